"""pump-run with real commands: status, signals, pipes, descriptors, strangers.

The libraries are empty stand-ins: the tests cover what the job sees of pump-run and of pumpd, not
what the shim does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_bench import PUMP_RUN, SHOW, TIMEOUT_S, Bench
from supervisor_client import eventually

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
    # A writer without a reader must die of SIGPIPE, which Python ignores.
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_program_that_the_loader_preloads_nothing_into_is_named(bench: Bench) -> None:
    program = bench.runtime / "privileged"
    shutil.copy("/bin/true", program)
    os.chown(program, 12345, 12345)
    program.chmod(0o4755)
    (line,) = bench.run(str(program)).stderr.splitlines()
    assert f"{program} runs with elevated privileges" in line
    program.chmod(0o755)
    assert bench.run(str(program)).stderr == ""


# ---- the virtual GPU ----


@pytest.mark.lab
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
        virtual = libraries.parents[1] / "pump_lab/_lib/virtual"
        assert environ["LD_LIBRARY_PATH"] == f"{virtual}:/x"
        profile = environ["PUMP_VIRTUAL_PROFILE"].split(";")
        assert {"name=a100-pcie4", f"device.memory_bytes={8 << 30}", "mode=compute"} <= set(profile)
        assert environ["CUDA_VISIBLE_DEVICES"] == "0"
        preloaded = environ["LD_PRELOAD"].split(":")
        assert all(path.startswith(f"{virtual}/runtime/lib") for path in preloaded[-4:])
        assert preloaded[:-4] == ([] if disable else [f"{libraries}/libpump.so"])
        assert ("PUMP_SOCKET" in environ) == (not disable)


@pytest.mark.lab
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
