"""pump-run and the job's pumpd: it runs alongside the job, ends with it, and costs it nothing."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from other_users import VICTIM, as_user
from run_bench import CODE, PUMP_RUN, PUMPD, SHOW, TIMEOUT_S, Bench
from supervisor_client import Client, alive, eventually

from pump.base import paths
from pump.cli.support import launch
from pumpd.common import link


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
    # A pumpd with the same command line that never starts.
    never = "import time; time.sleep(30)"
    changed = f"""
import sys
from pump.base import paths
from pump.cli.run import main
paths.isolated = lambda *words: [sys.executable, "-c", {never!r}, "-m", *words]
sys.argv[1:] = ["true"]
sys.exit(main())
"""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", changed], env=bench.environ, timeout=60, check=False
    )
    assert done.returncode == 0
    assert time.monotonic() - start < 20
    eventually(bench.pumpds, "a pumpd beside the job")  # may be forked, but not started
    for pid in bench.pumpds():
        os.kill(pid, signal.SIGKILL)


# ---- pumpd ----


def test_pumpd_stands_beside_the_job_and_ends_with_it(bench: Bench) -> None:
    inherited, far_end = os.pipe()  # like a shell's 5>file or make's job server
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
        assert os.getpgrp() != group  # gets no signal from the terminal
        assert os.getsid(0) == session  # scheduled with the job, not against it
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert b"LD_PRELOAD" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PUMP_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
        jobs_pipe = f"pipe:[{os.fstat(inherited).st_ino}]"
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except FileNotFoundError:  # closed in between: not inherited
                continue
            assert target != jobs_pipe
            if target == f"/proc/{job.pid}/stat":  # pumpd reads it at its start
                continue
            if target.startswith((sys.prefix, sys.base_prefix)):  # it imports a module
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
        assert "another pumpd already listens" in refused.stderr
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


def test_the_log_file_is_pumpds_only_voice(bench: Bench) -> None:
    log = bench.runtime / "log"
    done = bench.run("--log-file", str(log), "-v", "sleep", "0.5")
    assert (done.stdout, done.stderr) == ("", "")
    eventually(lambda: log.exists() and "has ended" in log.read_text(), "pumpd's log lines")
    assert "policy planned" in log.read_text()


# ---- limits ----


def limits_of(pid: int) -> dict[str, tuple[int, int]]:
    """Returns soft and hard limits of a process by the kernel's names; -1 for none."""
    found = {}
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        words = line[26:].split()
        soft, hard = (-1 if word == "unlimited" else int(word) for word in words[:2])
        found[line[:26].strip()] = (soft, hard)
    return found


def test_the_limits_of_the_job_are_not_its_pumpds(bench: Bench) -> None:
    """A program with limits of 64 files, one second of CPU time and files of 8 KiB is served."""
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
