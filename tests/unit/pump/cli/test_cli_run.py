"""pump-run in front of real commands: status, signals, pipes, descriptors, strangers.

The libraries are empty stand-ins: what is tested is what the job sees of pump-run and
of pumpd, not what the shim does.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_users import VICTIM, as_user
from supervisor_client import Client, alive, eventually

from pump import paths
from pump.cli.support import launch
from pumpd.common import link

CODE = "import sys; from pump.cli.run import main; sys.exit(main())"
PUMP_RUN = [sys.executable, "-c", CODE]
PUMPD = [sys.executable, "-m", "pumpd"]
TIMEOUT_S = 60


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like pump/_lib: a loadable libpump.so and a libcuda.so.1 on the library path."""
    folder = tmp_path_factory.mktemp("lib")
    (folder / "virtual").mkdir()
    for name in ("libpump.so", "virtual/libcuda.so.1"):
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / name],
            input=b"int pump_nothing;",
            check=True,
            timeout=TIMEOUT_S,
        )
    return folder


class Bench:
    """Runs commands under pump-run with a runtime folder of its own."""

    def __init__(self, runtime: Path, libraries: Path) -> None:
        self.runtime = runtime
        self.environ = dict(os.environ)
        for name in ("LD_PRELOAD", "PUMP_SOCKET", "PUMP_DISABLE"):
            self.environ.pop(name, None)
        self.environ["XDG_RUNTIME_DIR"] = str(runtime)
        self.environ["PUMP_LIB_DIR"] = str(libraries)
        self.environ["LD_LIBRARY_PATH"] = str(libraries / "virtual")

    def run(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PUMP_RUN, *words],
            env=self.environ | changes,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def shell(self, line: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """A shell line in which $PUMP_RUN stands for pump-run."""
        wrapper = self.runtime / "pump-run"
        wrapper.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{CODE}' \"$@\"\n")
        wrapper.chmod(0o755)
        return subprocess.run(
            ["bash", "-c", line],
            env=self.environ | {"PUMP_RUN": str(wrapper)} | changes,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def python(self, code: str, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.run(*options, sys.executable, "-c", code, **changes)

    def pumpds(self) -> list[int]:
        """Process ids of the supervisors of this bench's jobs."""
        everyone = self.processes()
        return [pid for pid in everyone if parent_of(pid) not in everyone]

    def processes(self) -> list[int]:
        """Process ids of pumpds and of what they forked: the command line is the same."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and alive(int(entry.name)):
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if b"\0pumpd\0job\0" in words and bytes(self.runtime) in words:
                    found.append(int(entry.name))
        return found

    def started_nothing(self) -> bool:
        return not (self.runtime / "pump").exists()


def parent_of(pid: int) -> int:
    """0 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture
def bench(libraries: Path) -> Iterator[Bench]:
    # Not pytest's own folder: a socket's path has to fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pump-test-", dir="/tmp") as folder:
        made = Bench(Path(folder), libraries)
        yield made
        eventually(lambda: not made.processes(), "every pumpd to end with its job")


# ---- bad input ----


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "no command"),
        (["--bugdet", "4GiB", "true"], "--budget"),
        (["--policy", "windw", "true"], "window"),
        (["--budget", "four", "true"], "'four'"),
        (["--device", "first", "true"], "'first'"),
    ],
)
def test_bad_input_gets_one_line_status_2_and_starts_nothing(
    words: list[str], expected: str, bench: Bench
) -> None:
    done = bench.run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("pump-run: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr
    assert bench.started_nothing()


def test_a_missing_driver_is_an_error_that_names_the_switch(bench: Bench) -> None:
    if bench.python("import ctypes; ctypes.CDLL('libcuda.so.1')", LD_LIBRARY_PATH="").stderr == "":
        pytest.skip("this machine has a driver")
    done = bench.run("true", LD_LIBRARY_PATH="")
    assert done.returncode == 2
    assert "--virtual" in done.stderr
    assert done.stderr.count("\n") == 1
    assert bench.started_nothing()


def test_a_missing_shim_is_named_with_its_folder(bench: Bench, tmp_path: Path) -> None:
    done = bench.run("true", PUMP_LIB_DIR=str(tmp_path))
    assert done.returncode == 2
    assert f"libpump.so is missing from {tmp_path}" in done.stderr


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ("no-such-command", 127, "no-such-command: command not found"),
        ("/no/such/file", 127, "/no/such/file: No such file or directory"),
        ("/etc/passwd", 126, "/etc/passwd: Permission denied"),
        ("/etc", 126, "/etc: Is a directory"),
    ],
)
def test_a_command_that_cannot_run_answers_like_a_shell(
    command: str, status: int, text: str, bench: Bench
) -> None:
    done = bench.run(command)
    assert (done.returncode, done.stderr) == (status, f"pump-run: {text}\n")
    assert bench.started_nothing()


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(bench: Bench) -> None:
    script = bench.runtime / "script"
    script.write_text('echo "$1"; exit 4\n')
    script.chmod(0o755)
    done = bench.run(str(script), "word")
    assert (done.returncode, done.stdout) == (4, "word\n")


def test_a_missing_interpreter_is_status_126_and_leaves_no_pumpd(bench: Bench) -> None:
    script = bench.runtime / "script"
    script.write_text("#!/no/interpreter\n")
    script.chmod(0o755)
    done = bench.run(str(script))
    assert done.returncode == 126
    assert "interpreter is missing" in done.stderr


# ---- the job is the command ----


def test_the_exit_status_passes_through(bench: Bench) -> None:
    for status in (0, 3, 255):
        done = bench.run("sh", "-c", f"exit {status}")
        assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_a_signals_death_passes_through(bench: Bench) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGPIPE):
        assert bench.run("sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_a_signal_sent_to_pump_run_reaches_the_command(bench: Bench) -> None:
    job = subprocess.Popen([*PUMP_RUN, "sleep", "60"], env=bench.environ)
    eventually(lambda: Path(f"/proc/{job.pid}/comm").read_text() == "sleep\n", "the command")
    job.terminate()
    assert job.wait(TIMEOUT_S) == -signal.SIGTERM


def test_pump_run_in_a_pipe_ends_when_the_command_does(bench: Bench) -> None:
    assert bench.shell("$PUMP_RUN echo done | cat").stdout == "done\n"
    # A writer whose reader has gone must die of SIGPIPE, which Python ignores.
    done = bench.shell("$PUMP_RUN yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert done.stdout == f"y\n{128 + signal.SIGPIPE}\n"


def test_the_command_starts_with_the_signals_that_the_shell_gave(bench: Bench) -> None:
    look = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"
    plain, under = bench.shell(look), bench.shell(f"$PUMP_RUN {look}")
    assert plain.stdout == under.stdout
    look = f"trap '' INT HUP; {look}"
    plain, under = bench.shell(look), bench.shell(look.replace("grep", "$PUMP_RUN grep"))
    assert plain.stdout == under.stdout


@pytest.mark.parametrize("closed", ["", "<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_the_command_has_the_descriptors_that_it_was_given(closed: str, bench: Bench) -> None:
    code = "import os; open('{}', 'w').write(str(sorted(os.listdir('/proc/self/fd'))))"
    results = []
    for name, prefix in (("plain", ""), ("under", "$PUMP_RUN ")):
        out = bench.runtime / name
        done = bench.shell(f'{prefix}{sys.executable} -c "{code.format(out)}" {closed}')
        assert done.returncode == 0, done.stderr
        results.append(out.read_text())
    assert results[0] == results[1]


def test_a_job_that_waits_for_every_child_sees_no_stranger(bench: Bench) -> None:
    code = """
import os, time
time.sleep(0.5)  # pumpd and its warm process are there by now
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child")
"""
    assert bench.python(code).stdout == "no child\n"


def test_the_job_does_not_wait_for_pumpd_to_start(bench: Bench) -> None:
    # A pumpd that never starts: its Python is told to import for ever.
    hook = bench.runtime / "pumpd"
    hook.mkdir()
    (hook / "__init__.py").write_text("import time; time.sleep(30)\n")
    start = time.monotonic()
    path = f"{bench.runtime}:{bench.environ.get('PYTHONPATH', '')}"
    assert bench.run("true", PYTHONPATH=path).returncode == 0
    assert time.monotonic() - start < 20
    for pid in bench.pumpds():
        os.kill(pid, signal.SIGKILL)


# ---- pumpd ----

SHOW = """
import json, os, time
print(json.dumps(dict(os.environ)), flush=True)
time.sleep({seconds})
"""


def test_pumpd_stands_beside_the_job_and_ends_with_it(bench: Bench) -> None:
    inherited, far_end = os.pipe()  # as a shell's 5>file or a make's job server
    job = subprocess.Popen(
        [*PUMP_RUN, sys.executable, "-c", SHOW.format(seconds=60)],
        env=bench.environ | {"LD_PRELOAD": ""},
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[inherited],
    )
    try:
        assert job.stdout is not None
        environ = json.loads(job.stdout.readline())
        path = Path(environ["PUMP_SOCKET"])
        assert path.parent.stat().st_mode & 0o777 == 0o700
        eventually(bench.pumpds, "pumpd to start")
        (pid,) = bench.pumpds()
        eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "pumpd\n", "pumpd's name")
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parent, group, session = (int(field) for field in fields[1:4])
        assert job.pid not in (parent, group, session)
        assert os.getpgrp() != group  # no signal from the terminal
        assert os.getsid(0) == session  # scheduled with the job, not against it
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert b"LD_PRELOAD" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PUMP_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
        jobs_pipe = f"pipe:[{os.fstat(inherited).st_ino}]"
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except FileNotFoundError:  # closed meanwhile: it was not inherited
                continue
            assert target != jobs_pipe
            if target == f"/proc/{job.pid}/stat":  # it looks at the job as it starts
                continue
            assert target == "/dev/null" or target.startswith(("socket:", "pipe:", "anon_inode:"))
        standard = [str(Path(f"/proc/{pid}/fd/{fd}").readlink()) for fd in (0, 1, 2)]
        assert standard == ["/dev/null"] * 3
    finally:
        job.kill()
        job.communicate()
        os.close(inherited)
        os.close(far_end)
    eventually(lambda: not alive(pid), "pumpd to end with the job")
    eventually(lambda: not path.parent.exists(), "the job's folder to be removed")


@pytest.mark.parametrize("name", ["-x", "--name", "a\nb", "n" * 100, " ", "é\udcff"])
def test_a_command_with_an_unusual_name_has_its_pumpd(bench: Bench, name: str) -> None:
    program = bench.runtime / name
    program.write_text(
        f"#!{sys.executable}\nimport os, socket\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.settimeout(30)\ns.connect(os.environ['PUMP_SOCKET'])\n"
        f"s.send({link.pack_hello(1)!r})\nprint(len(s.recv(64)))\n"
    )
    program.chmod(0o755)
    done = bench.run("--", str(program))
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0, "a pumpd that does not start says nothing"


def test_a_client_that_connects_in_its_first_moment_is_answered(bench: Bench) -> None:
    code = f"""
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(os.environ["PUMP_SOCKET"])
s.settimeout(30)
s.send(bytes.fromhex("{link.pack_hello(1).hex()}"))
print(s.recv(256)[:8].hex())
"""
    done = bench.run(sys.executable, "-S", "-c", code)
    assert done.stdout.strip() == link.HELLO_MAGIC.to_bytes(8, "little").hex(), done.stderr


def test_a_killed_pumpd_is_replaced_by_hand_on_the_old_path(bench: Bench) -> None:
    job = subprocess.Popen(
        [*PUMP_RUN, sys.executable, "-c", SHOW.format(seconds=60)],
        env=bench.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert job.stdout is not None
        path = json.loads(job.stdout.readline())["PUMP_SOCKET"]
        again = [*PUMPD, "job", "--socket", path, "--job-pid", str(job.pid)]
        refused = subprocess.run(again, capture_output=True, text=True, timeout=20, check=False)
        assert refused.returncode == 2
        assert "another pumpd answers" in refused.stderr
        eventually(bench.pumpds, "pumpd to start")
        os.kill(bench.pumpds()[0], signal.SIGKILL)
        eventually(lambda: not link.answers(path), "the killed one's socket to go dead")
        with subprocess.Popen(again) as replacement:
            eventually(lambda: link.answers(path), "the new one to listen")
            with Client(path) as client:
                assert client.magic == link.HELLO_MAGIC
            job.kill()
            job.communicate()
            assert replacement.wait(20) == 0
        assert not Path(path).parent.exists()
    finally:
        job.kill()
        job.wait()


def test_leftovers_of_killed_pumpds_are_swept_by_the_next_one(bench: Bench) -> None:
    job = subprocess.Popen([*PUMP_RUN, "sleep", "60"], env=bench.environ)
    eventually(bench.pumpds, "pumpd to start")
    os.kill(bench.pumpds()[0], signal.SIGKILL)
    job.kill()
    job.wait()
    base = bench.runtime / "pump"
    assert len(list(base.iterdir())) == 1
    (base / "not-ours").mkdir()
    assert bench.run("true").returncode == 0
    eventually(lambda: [p.name for p in base.iterdir()] == ["not-ours"], "the sweep")


def test_an_unsafe_runtime_folder_is_told_and_costs_the_job_nothing(bench: Bench) -> None:
    (bench.runtime / "elsewhere").mkdir()
    (bench.runtime / "pump").symlink_to("elsewhere")
    done = bench.python("import os; print(os.environ['PUMP_SOCKET'])")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    folder = Path(done.stdout.strip()).parents[1]
    assert paths.TEMPORARY_BASE.fullmatch(folder.name)
    eventually(lambda: not folder.exists(), "the folder to go with the job")
    assert "symbolic link" in done.stderr
    (bench.runtime / "pump").unlink()
    (bench.runtime / "pump").mkdir(mode=0o755)
    assert "chmod 700" in bench.run("true").stderr


def test_a_umask_that_takes_from_the_owner_does_not_close_the_socket(bench: Bench) -> None:
    words = "import os; print(os.stat(os.environ['PUMP_SOCKET']).st_mode & 0o777, os.umask(0))"
    done = subprocess.run(
        [*PUMP_RUN, sys.executable, "-c", words],
        env=bench.environ,
        umask=0o777,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert (done.stdout, done.stderr) == (f"{0o600} {0o777}\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_program_that_the_loader_preloads_nothing_into_is_named(bench: Bench) -> None:
    program = bench.runtime / "privileged"
    shutil.copy("/bin/true", program)
    os.chown(program, 12345, 12345)
    program.chmod(0o4755)
    (line,) = bench.run(str(program)).stderr.splitlines()
    assert f"{program} has privileges of its own" in line
    program.chmod(0o755)
    assert bench.run(str(program)).stderr == ""


def test_the_log_file_is_pumpds_only_voice(bench: Bench) -> None:
    log = bench.runtime / "log"
    done = bench.run("--log-file", str(log), "-v", "sleep", "0.5")
    assert (done.stdout, done.stderr) == ("", "")
    eventually(lambda: log.exists() and "has ended" in log.read_text(), "pumpd's log lines")
    assert "policy window" in log.read_text()


# ---- the virtual GPU ----


def test_virtual_puts_the_virtual_driver_and_its_profile_before_the_job(
    bench: Bench, libraries: Path
) -> None:
    settings = ["--virtual-set", "memory=8GiB", "--virtual-set", "mode=compute"]
    options = ["--virtual", "a100-pcie4", *settings, "--budget", "50%", "--device", "0"]
    for disable in ("", "1"):
        done = bench.python(
            SHOW.format(seconds=0), *options, LD_LIBRARY_PATH="/x", PUMP_DISABLE=disable
        )
        environ = json.loads(done.stdout)
        assert environ["LD_LIBRARY_PATH"] == f"{libraries}/virtual:/x"
        profile = environ["PUMP_VIRTUAL_PROFILE"].split(";")
        assert {"name=a100-pcie4", f"device.memory_bytes={8 << 30}", "mode=compute"} <= set(profile)
        assert environ["CUDA_VISIBLE_DEVICES"] == "0"
        assert ("LD_PRELOAD" in environ, "PUMP_SOCKET" in environ) == (not disable, not disable)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--virtual", "a100-pcie"], "did you mean 'a100-pcie4'"),
        (["--virtual", "no/such.toml"], "cannot read 'no/such.toml'"),
        (["--virtual", "a100-pcie4", "--virtual-set", "memroy=8GiB"], "did you mean 'memory'"),
        (["--virtual", "a100-pcie4", "--virtual-set", "memory=8"], "device.memory_bytes"),
        (["--virtual", "a100-pcie4", "--virtual-set", "mode=fast"], "timing or compute"),
        (["--virtual", "a100-pcie4", "--device", "1"], "has one device"),
    ],
)
def test_a_bad_virtual_gpu_is_named_and_starts_nothing(
    options: list[str], expected: str, bench: Bench
) -> None:
    done = bench.run(*options, "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr
    assert bench.started_nothing()


# ---- environment ----


def test_the_kill_switch_runs_the_bare_command_even_without_a_driver(bench: Bench) -> None:
    done = bench.python(SHOW.format(seconds=0), PUMP_DISABLE="1", LD_LIBRARY_PATH="")
    environ = json.loads(done.stdout)
    assert "LD_PRELOAD" not in environ
    assert "PUMP_SOCKET" not in environ
    assert bench.started_nothing()


def test_a_pump_run_inside_a_pump_run_is_a_job_of_its_own(bench: Bench) -> None:
    done = bench.shell(
        "$PUMP_RUN sh -c 'echo $PUMP_SOCKET $LD_PRELOAD; "
        '$PUMP_RUN sh -c "echo \\$PUMP_SOCKET \\$LD_PRELOAD"\''
    )
    (outer, outer_preload), (inner, inner_preload) = (
        line.split(" ") for line in done.stdout.splitlines()
    )
    assert outer != inner
    assert outer_preload == inner_preload
    assert inner_preload.count("libpump.so") == 1


def test_pump_run_imports_nothing_slow() -> None:
    code = "import pump.cli.run, pump.cli.support.launch\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    ).stdout.split()
    slow = {"numpy", "cffi", "inspect", "dataclasses", "logging", "ctypes", "tomllib", "difflib"}
    assert slow.isdisjoint(loaded)
    assert {"subprocess", "pathlib", "tempfile", "importlib.metadata"}.isdisjoint(loaded)
    assert {"pynvml", "psutil", "cuda", "msgspec", "json"}.isdisjoint(loaded)


def test_the_supervisor_imports_nothing_slow() -> None:
    code = "import sys, pumpd.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    ).stdout.split()
    assert {"numpy", "cffi", "_cffi_backend", "asyncio"}.isdisjoint(loaded)
    assert {"psutil", "pynvml", "cuda"}.isdisjoint(loaded)


# ---- limits ----


def limits_of(pid: int) -> dict[str, tuple[int, int]]:
    """Soft and hard limits of a process by the kernel's names; -1 for none."""
    found = {}
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        words = line[26:].split()
        soft, hard = (-1 if word == "unlimited" else int(word) for word in words[:2])
        found[line[:26].strip()] = (soft, hard)
    return found


def test_the_limits_of_the_job_are_not_its_pumpds(bench: Bench) -> None:
    """A program under 64 files, one second of processor time and files of 8 KiB is served."""
    line = (
        "ulimit -S -n 64 -t 1 -f 8 -d 600000 -v 700000; "
        "exec $PUMP_RUN sh -c 'cat /proc/self/limits; echo end; exec sleep 60' >&3"
    )
    reader, writer = os.pipe()
    wrapper = bench.runtime / "pump-run"
    wrapper.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{CODE}' \"$@\"\n")
    wrapper.chmod(0o755)
    environ = bench.environ | {"PUMP_RUN": str(wrapper)}
    job = subprocess.Popen(
        ["bash", "-c", line.replace(">&3", f">&{writer}")], env=environ, pass_fds=[writer]
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as told:
            lines = [*iter(told.readline, "end\n")]
        own = {one[:26].strip(): one[26:].split()[0] for one in lines[1:]}
        assert own["Max open files"] == "64" and own["Max cpu time"] == "1", "the job keeps its own"
        eventually(bench.pumpds, "pumpd")
        mine, whole = limits_of(os.getpid()), limits_of(bench.pumpds()[0])
        for name in ("cpu time", "file size", "data size", "address space", "processes"):
            soft, hard = whole[f"Max {name}"]
            assert soft == hard and (hard == -1 or hard == mine[f"Max {name}"][1]), name
        assert whole["Max open files"][0] >= min(4096, mine["Max open files"][1])
    finally:
        job.kill()
        job.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_user_without_privilege_gives_pumpd_what_its_hard_limits_allow() -> None:
    def raised() -> str:
        for name in ("NOFILE", "CPU", "FSIZE"):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (16, 100))
        launch._raise_limits()
        names = ("NOFILE", "CPU", "FSIZE")
        return str([resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names])

    assert as_user(VICTIM, raised) == str([(100, 100)] * 3)
    root = as_user(0, raised)
    assert root == str([(4096, 4096), (-1, -1), (-1, -1)]) or "(100, 100)" in root
