"""Each job ends with one honest line, however it ends and whichever process used CUDA."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import BIN
from places import ROOT

FITS = """
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
cu.cuMemAlloc({mib} << 20)
"""
WAITS = (
    FITS.format(mib=8)
    + """
import time
print("up", flush=True)
time.sleep(60)
"""
)
LOOKS = "from cuda.bindings import driver as cu; cu.cuInit(0); cu.cuDeviceGetCount()"
EMPTY = "this job allocated no GPU memory, so pump did nothing"
NOTHING = "no process of this job used CUDA"
SHORT = "everything fitted on the GPU, so pump did nothing"
CUT = "ended by a signal or _exit"
LOST = " to memory"
TIMING = "timing mode, nothing was computed"
SOON_S = 30.0


def command(*words: str, mode: str = "compute") -> list[str]:
    settings = [f"--virtual-set={word}" for word in ("memory=64MiB", f"mode={mode}")]
    return [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *settings, "--", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PUMP_SERVICE": "none"}


def python(mib: int = 8) -> list[str]:
    return [sys.executable, "-c", FITS.format(mib=mib)]


def line(*words: str, mode: str = "compute", status: int = 0) -> str:
    """Runs a job and returns its only line."""
    done = subprocess.run(
        command(*words, mode=mode),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    (found,) = done.stderr.splitlines()
    assert found.startswith("pump: ") and len(found) <= 100
    return found


def test_a_job_that_fits_names_its_peak_and_its_budget() -> None:
    assert line(*python()) == f"pump: {SHORT}: peak 8 MiB of 62 MiB"


def test_a_recorded_job_that_fits_is_told_so_behind_its_recording(tmp_path: Path) -> None:
    program = FITS.format(mib=8).strip().replace("cu.cuMemAlloc(", "m = cu.cuMemAlloc(")
    done = subprocess.run(
        command(sys.executable, "-c", f"{program}[1]\ncu.cuMemsetD8(m, 0, 4096)"),
        env={
            **environment(),
            "PUMP_RECORD": str(tmp_path / "run.pump"),
            "PUMP_LOG_LEVEL": "info",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "\npump: recorded 1 operations to " in f"\n{done.stderr}"
    assert done.stderr.endswith(f"{SHORT}: peak 8 MiB of 62 MiB\n")


def test_a_job_that_only_looks_for_gpus_is_told_that_it_allocated_nothing() -> None:
    assert line(sys.executable, "-c", LOOKS) == f"pump: {EMPTY}"


@pytest.mark.parametrize("mode", ["timing", "compute"])
def test_a_job_of_which_nothing_is_computed_is_told_that_its_losses_mean_nothing(
    mode: str,
) -> None:
    assert (TIMING in line(*python(), mode=mode)) == (mode == "timing")


def test_a_job_without_cuda_is_told_so_with_what_to_do() -> None:
    assert line("bash", "-c", "exit 0").startswith(f"pump: {NOTHING}, so pump did nothing: ")
    assert line("bash", "-c", "exit 3", status=3) == f"pump: failed with status 3; {NOTHING}"
    done = subprocess.run(
        [command()[0], "-v", *command("true")[1:]],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pump doctor" in done.stderr


@pytest.mark.parametrize("mib", [8, 96], ids=["fits", "moves"])
def test_a_program_that_fails_has_one_short_line(mib: int) -> None:
    program = FITS.format(mib=mib) + "raise SystemExit(7)"
    found = line(sys.executable, "-c", program, status=7)
    assert found.startswith("pump: failed with status 7; ") and len(found) < 75


@pytest.mark.parametrize("quiet", [["-q"], ["--quiet"], []], ids=["-q", "--quiet", "PUMP_QUIET"])
@pytest.mark.parametrize("words", [["true"], ["bash", "-c", "kill -9 $$"], python(96)])
def test_quiet_prints_nothing(tmp_path: Path, quiet: list[str], words: list[str]) -> None:
    env = environment() | ({} if quiet else {"PUMP_QUIET": "1"})
    errors = tmp_path / "errors"
    with errors.open("a") as file:
        whole = command(*words)
        subprocess.run([whole[0], *quiet, *whole[1:]], env=env, stderr=file, check=False)
    assert errors.read_text() == ""


def test_a_name_that_was_given_stands_before_the_line() -> None:
    whole = command(*python())
    done = subprocess.run(
        [whole[0], "--name", "llama", *whole[1:]],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == f"pump: [llama] {SHORT}: peak 8 MiB of 62 MiB\n"


CAUSES = {
    "999": "try: modprobe nvidia_uvm",
    "803": "libcuda and the kernel driver differ in version",
    "804": "cuda-compat does not support this GPU",
    "100": "the driver finds no GPU",
}


@pytest.mark.parametrize("error", CAUSES)
def test_a_cuinit_that_failed_is_named_with_its_usual_cause(
    monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    monkeypatch.setenv("PUMP_VIRTUAL_FAIL", f"cuInit:0:{error}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for status, more in ((0, ""), (9, "raise SystemExit(9)")):
        program = "from cuda.bindings import driver as cu; cu.cuInit(0)\n" + more
        found = line(sys.executable, "-c", program, status=status)
        assert found.startswith(f"pump: cuInit failed with error {error}: {CAUSES[error]}")


def test_a_card_that_is_hidden_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    done = subprocess.run(
        command(sys.executable, "-c", "from cuda.bindings import driver as cu; cu.cuInit(0)"),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cuInit failed with error 100: CUDA_VISIBLE_DEVICES names no GPU" in done.stderr


@pytest.mark.parametrize("before", ["", FITS.format(mib=8)], ids=["no CUDA", "CUDA"])
def test_the_line_follows_what_the_program_has_in_its_buffers(before: str) -> None:
    """With 2>&1, the C library writes the buffers of stdio at the very end of a process."""
    program = before + "import ctypes\nctypes.CDLL(None).puts(b'own')\n"
    done = subprocess.run(
        command(sys.executable, "-c", program),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=True,
    )
    own, line = done.stdout.splitlines()
    assert own == "own" and line.startswith("pump: ")


def test_a_launcher_has_one_line_for_all_its_children() -> None:
    script = '"$@" "$0"; "${@:1:2}" "${0/8 <</24 <<}"; exit 0'
    words = ["bash", "-c", script, FITS.format(mib=8), sys.executable, "-c"]
    found = line(*words)
    assert found == f"pump: {SHORT}: peak 24 MiB of 62 MiB"


@pytest.mark.parametrize("mib", [8, 96], ids=["fits", "moves"])
def test_a_launcher_that_looks_for_gpus_itself_leaves_the_line_to_its_child(mib: int) -> None:
    launcher = LOOKS + "; import subprocess, sys; subprocess.run(sys.argv[1:], check=True)"
    found = line(sys.executable, "-c", launcher, *python(mib))
    assert found.startswith(f"pump: {SHORT}: peak 8 MiB" if mib == 8 else "pump: ran at 1.55x")


def test_a_launcher_of_which_the_child_is_killed_says_so() -> None:
    launcher = LOOKS + "; import subprocess, sys; subprocess.run(sys.argv[1:])"
    killed = FITS.format(mib=8) + "import os\nos.kill(os.getpid(), 9)\n"
    done = subprocess.run(
        command(sys.executable, "-c", launcher, sys.executable, "-c", killed),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (found,) = [one for one in done.stderr.splitlines() if one.startswith("pump: ")]
    assert found == "pump: pump's effect is unknown: 1 process(es) ended by a signal or _exit"


def eventually(file: Path, wanted: str) -> str:
    until = time.monotonic() + SOON_S
    while time.monotonic() < until:
        if wanted in (text := file.read_text()):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{wanted!r} never comes: {file.read_text()!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_job_that_a_signal_ends_has_its_line_in_the_file_of_its_errors(
    tmp_path: Path, number: signal.Signals
) -> None:
    errors = tmp_path / "errors"
    with errors.open("a") as file:
        words = command(sys.executable, "-c", WAITS)
        job = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=file)
        assert job.stdout is not None and job.stdout.readline() == b"up\n"
        job.send_signal(number)
        assert job.wait() != 0
        job.stdout.close()
    assert eventually(errors, CUT).count("pump: ") == 1


def test_a_job_that_a_signal_ends_tells_the_time_that_it_lost(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    program = [str(ROOT / "examples" / "train_mlp.py"), "--width=1024", "--layers=8", "--no-hash"]
    with errors.open("a") as file:
        more = ["--iterations=1000000", "--report-every=5"]
        words = command(sys.executable, *program, *more, mode="timing")
        job = subprocess.Popen(words, env=environment(), stdout=file, stderr=file)
        eventually(errors, "iteration 20:")
        job.send_signal(signal.SIGTERM)
        assert job.wait() == -signal.SIGTERM
    said = [one for one in eventually(errors, LOST).splitlines() if one.startswith("pump: ")]
    assert len(said) == 1
    assert re.fullmatch(rf"pump: {CUT}; lost .* % of [\d.]+ m?s to memory", said[0])


def test_the_line_of_a_killed_job_is_not_written_over_by_what_follows(tmp_path: Path) -> None:
    """pumpd writes the line a moment later, so only to a file that is open for appending."""
    killed = " ".join(map(shlex.quote, command("bash", "-c", "kill -9 $$")))
    script = f"echo first; {killed}; for i in 1 2 3; do sleep 0.4; echo after it; done"
    for flags, said in ((os.O_TRUNC, 0), (os.O_APPEND, 1)):
        errors = tmp_path / f"errors-{flags}"
        file = os.open(errors, os.O_CREAT | os.O_WRONLY | flags, 0o600)
        subprocess.run(
            ["sh", "-c", script], env=environment(), stdout=file, stderr=file, check=True
        )
        os.close(file)
        lines = [one for one in errors.read_text().splitlines() if "Killed" not in one]
        assert [one for one in lines if CUT not in one] == ["first", *3 * ["after it"]]
        assert len(lines) == 4 + said, lines


def test_a_job_that_is_killed_in_a_terminal_has_its_line_there() -> None:
    ours, theirs = pty.openpty()
    words = command(sys.executable, "-c", WAITS)
    job = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=theirs)
    assert job.stdout is not None and job.stdout.readline() == b"up\n"
    job.send_signal(signal.SIGTERM)
    job.wait()
    job.stdout.close()
    seen = b""
    while CUT.encode() not in seen:
        seen += os.read(ours, 1024)
    os.close(ours)
    os.close(theirs)


def test_without_the_notes_nothing_is_claimed() -> None:
    """pumpd deletes the job's folder when it exits, and a job may outlive its pumpd."""
    script = f"{shlex.join(python())}; rm -r ${{PUMP_SOCKET%/*}}; true"
    said = "pump's effect is unknown: the job's pumpd exited before the job"
    assert line("bash", "-c", script) == f"pump: {said}"


def test_the_notes_of_processes_go_with_the_jobs_folder(tmp_path: Path) -> None:
    base = tmp_path / "run"
    base.mkdir(mode=0o700)
    subprocess.run(
        command(*python()), env={**environment(), "XDG_RUNTIME_DIR": str(base)}, check=True
    )
    until = time.monotonic() + SOON_S
    while list(base.rglob("clients")) or list(base.rglob("socket")):
        assert time.monotonic() < until
        time.sleep(0.05)
