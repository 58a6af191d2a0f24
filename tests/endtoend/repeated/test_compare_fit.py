"""Runs pump compare and pump fit on the virtual GPU; the programs print their times."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from supervisor_client import alive, eventually

BIN = Path(sys.executable).parent
PROGRAM = str(Path(__file__).with_name("measured_job.py"))
VIRTUAL = ("--virtual", "a100-pcie4", "--virtual-set", "memory=128MiB")
PRINTED = ("--time-from", "took ([0-9.]+) s")
TIMEOUT_S = 120


class Here:
    """The current folder of pump's verbs, and a folder for their temporary folders."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary = folder / "here", folder / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()
        self.environ = {**os.environ, "PUMP_SERVICE": "none", "TMPDIR": str(self.temporary)}

    def command(self, verb: str, *words: str) -> list[str]:
        return [str(BIN / "pump"), verb, *VIRTUAL, *words]

    def run(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(verb, *words),
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def left(self) -> list[str]:
        """Returns the entries of both folders."""
        return sorted(path.name for path in (*self.folder.iterdir(), *self.temporary.iterdir()))


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def python(*words: object) -> list[str]:
    return ["--", sys.executable, PROGRAM, *map(str, words)]


def figures(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_every_way_runs_in_each_round_and_nothing_is_left(here: Here) -> None:
    words = ("--yes", "--rounds", "2", *PRINTED, "--json", "-", "--markdown", "page.md")
    found = figures(here.run("compare", *words, *python(2, 0.25)))
    assert [one["variant"] for one in found["variants"]] == ["plain", "demand", "window", "planned"]
    assert [one["seconds"] for one in found["variants"]] == [[0.5, 0.5]] * 4
    assert found["baseline"] == "plain"
    assert here.left() == ["page.md"]
    assert "with a confidence of 50.0%" in (here.folder / "page.md").read_text()


def test_lack_of_memory_without_pump_is_a_result_and_is_not_tried_again(here: Here) -> None:
    done = here.run("compare", "--yes", "--rounds", "2", *PRINTED, *python(6, 0.25))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("plain, round") == 1
    assert "Without pump the command runs out of memory." in done.stdout
    assert "against demand" in done.stdout
    assert f"Run it with: pump-run {' '.join(VIRTUAL)} -- {sys.executable} " in done.stdout
    assert here.left() == []


def test_a_command_that_fails_is_named_with_its_log(here: Here) -> None:
    done = here.run("compare", "--yes", "--", "sh", "-c", "echo a reason; exit 5")
    assert (done.returncode, done.stdout) == (1, "")
    *_, tail, message = done.stderr.splitlines()
    assert tail == "a reason"
    start = "pump: the command fails without pump, too: exit status 5; full output: "
    assert message.startswith(start)
    assert Path(message.removeprefix(start)).read_text() == "a reason\n"


def test_a_way_that_fails_costs_the_status_and_not_the_others(here: Here) -> None:
    script = 'if [ -n "$PUMP_SOCKET" ]; then echo "${PWD##*/} fails"; exit 4; fi; echo took 1 s'
    words = ("--yes", "--rounds", "1", *PRINTED, "--folder", "runs", "--json", "out.json")
    done = here.run("compare", *words, "--", "sh", "-c", script)
    assert done.returncode == 1
    found = json.loads((here.folder / "out.json").read_text())
    assert [variant["failure"] for variant in found["variants"]] == [None, *["exit status 4"] * 3]
    assert Path(found["variants"][2]["log"]) == here.folder / "runs" / "window-1.log"
    assert "window failed: exit status 4; output: " in done.stdout
    assert done.stderr.endswith("\ndemand-1 fails\n")


def test_each_run_of_a_job_that_is_recorded_has_a_recording_of_its_own(here: Here) -> None:
    here.environ["PUMP_RECORD"] = "mine.pump"
    words = ("--yes", "--rounds", "1", *PRINTED, "--folder", "runs")
    done = here.run("compare", *words, *python(2, 0.25))
    assert done.returncode == 0, done.stderr
    assert here.left() == ["runs"]
    kept = {path.name for path in (here.folder / "runs").glob("*.recording")}
    assert kept == {f"{variant}-1.recording" for variant in ("demand", "window", "planned")}
    checkpoints = (here.folder / "runs").glob("*/checkpoint")
    assert len({path.resolve() for path in checkpoints}) == 4


def test_a_signal_ends_all_and_prints_what_was_measured(here: Here) -> None:
    marks = here.folder / "marks"
    script = f'echo took 1 s; [ -z "$PUMP_SOCKET" ] || {{ echo $$ >>"{marks}"; exec sleep 1000; }}'
    running = subprocess.Popen(
        here.command("compare", "--yes", *PRINTED, "--", "sh", "-c", script),
        cwd=here.folder,
        env=here.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: marks.exists() and marks.read_text().endswith("\n"), "the second run")
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 128 + signal.SIGTERM
    assert "Ended early" in out
    assert "plain    1     1.000 s" in out
    assert not Path(f"/proc/{marks.read_text().strip()}").exists()
    assert here.left() == ["marks"]


def test_it_asks_before_the_first_run_and_takes_no_for_an_answer(here: Here) -> None:
    mine, theirs = pty.openpty()
    os.write(mine, b"n\n")
    done = subprocess.run(
        here.command("compare", *python(2, 0.25)),
        cwd=here.folder, env=here.environ, stdin=theirs, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    os.close(mine)
    os.close(theirs)
    assert (done.returncode, done.stdout) == (1, "")
    assert "runs the command 24 times" in done.stderr
    assert "Begin? [y/N]" in done.stderr
    assert done.stderr.endswith("nothing was run\n")


@pytest.mark.parametrize("verb", ["compare", "fit"])
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "no command given"),
        (("--", "no-such-command", "{}"), "no-such-command: command not found"),
        (("--", "true", "{}"), "Add --yes to begin"),
        (("--yes", "--budget", "much", "--", "true", "{}"), "--budget: 'much' is not a size"),
        (("--yes", "--round", "3", "--", "true", "{}"), "unknown option '--round'"),
        (
            ("--yes", "--time-from", "(", "--", "true", "{}"),
            "--time-from: must be a regular expression",
        ),
        (("--yes", "--time-from", "x", "--", "true", "{}"), "--time-from: must have a group"),
        (("--yes", "--json", "held", "--", "true", "{}"), "it is not a result of"),
        (("--yes", "--folder", "held", "--", "true", "{}"), "File exists"),
        (("--yes", "--record", "x", "--", "true", "{}"), "unknown option '--record'"),
    ],
)
def test_bad_input_starts_nothing_and_gets_one_line(
    here: Here, verb: str, words: tuple[str, ...], named: str
) -> None:
    (here.folder / "held").write_text("something")
    done = here.run(verb, *words)
    assert done.returncode in (2, 127)
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert here.left() == ["held"]


def test_the_largest_number_at_the_asked_speed_is_found(here: Here) -> None:
    words = ("--yes", "--from", "2", "--to", "32", *PRINTED, "--json", "-")
    found = figures(here.run("fit", *words, *python("{}", 0.25, 9)))
    assert (found["largest"], found["too_large"], found["whole"]) == (9, 10, True)
    assert found["tried"][0]["unit_seconds"] == 0.25
    assert here.left() == []


def test_a_number_in_the_command_is_found_and_lack_of_memory_is_too_large(here: Here) -> None:
    limited = ("--limit", "256MiB")  # 8 buffers
    words = ("--yes", *limited, "--number", "4", "--step", "2", *PRINTED)
    done = here.run("fit", *words, *python(4, 0.25))
    assert done.returncode == 0, done.stderr
    assert "Largest: 8 runs at the target speed; 10 does not." in done.stdout
    assert "out of memory" in done.stdout


BEST_AT_FOUR = """
BEGIN { unit = n <= 4 ? 1 / n : 0.25 * (1 + (n - 4) * 0.04); print "took", n * unit, "s" }
"""


def test_the_speed_is_a_share_of_the_best_and_the_fastest_number_is_named(here: Here) -> None:
    """Larger batches are faster per sample at first, and slower once they do not fit."""
    words = ("--yes", "--to", "64", *PRINTED)
    done = here.run("fit", *words, "--", "awk", "-v", "n={}", BEST_AT_FOUR)
    assert done.returncode == 0, done.stderr
    assert "Largest: 10 runs at the target speed; 11 does not." in done.stdout
    assert "Fastest: 4, with 0.25 s per unit; 10 takes 0.31 s." in done.stdout


def test_a_bound_on_runs_leaves_the_answer_open_and_says_so(here: Here) -> None:
    words = ("--yes", "--runs", "4", "--speed", "0.25s", "--to", "64", *PRINTED)
    done = here.run("fit", *words, *python("{}", 0.25, 5))
    assert done.returncode == 0, done.stderr
    assert "Largest: 4 runs at the target speed; 8 does not." in done.stdout
    assert "Incomplete: larger numbers may also work." in done.stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--", "true"), "no number is marked"),
        (("--number", "4", "--", "true", "4", "--x=4"), "4 occurs 2 times in the command"),
        (("--number", "4", "--", "true", "{}"), "replace --number 4 with --from 4"),
        (
            ("--speed", "fast", "--", "true", "{}"),
            "--speed: must be 1% to 100%, or seconds such as 0.05s, not 'fast'",
        ),
        (("--from", "9", "--to", "9", "--", "true", "{}"), "--to is 9"),
    ],
)
def test_a_number_that_cannot_be_searched_is_refused(
    here: Here, words: tuple[str, ...], named: str
) -> None:
    done = here.run("fit", "--yes", *words)
    assert done.returncode == 2
    assert named in done.stderr


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("exit 7", "the smallest number, 1, does not work: exit status 7"),
        (
            "echo took 9 s",
            "the smallest number, 1, does not work: 9 s per unit, the limit is 0.5 s",
        ),
    ],
)
def test_a_smallest_number_that_does_not_do_is_an_error(
    here: Here, script: str, named: str
) -> None:
    words = ("--yes", "--speed", "0.5s", *PRINTED)
    done = here.run("fit", *words, "--", "sh", "-c", script, "{}")
    assert done.returncode == 1
    assert named in done.stderr


OVERWRITES = """
for name in ckpt.pt sub/ckpt.pt .hidden/ckpt.pt link.pt outside/ckpt.pt "$1/named.pt"; do
    echo of a run >"$name"
done
rm -f gone.pt; mv ckpt.pt moved.pt; touch new; chmod 600 sub/ckpt.pt
"""


def contents(folder: Path) -> dict[str, object]:
    """Returns bytes, links, modes and times of all entries of a folder."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held: object = path.readlink() if path.is_symlink() else None
        if path.is_file():
            held = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_nlink, held)
    return found


@pytest.fixture
def precious(here: Here) -> Here:
    """Creates a folder with the files that a run of OVERWRITES tries to change."""
    outside = here.folder.parent / "outside"
    for folder in (here.folder / "sub", here.folder / ".hidden", outside):
        folder.mkdir()
    for folder in (here.folder, here.folder / "sub", here.folder / ".hidden", outside):
        (folder / "ckpt.pt").write_text("precious")
    for name in ("gone.pt", "named.pt"):
        (here.folder / name).write_text("precious")
    (here.folder / "link.pt").symlink_to("ckpt.pt")
    (here.folder / "outside").symlink_to(outside)
    return here


@pytest.mark.parametrize(
    ("verb", "words"), [("compare", ["--rounds", "1"]), ("fit", ["--from", "1", "--to", "2"])]
)
def test_the_users_files_are_there_afterwards_byte_for_byte(
    precious: Here, verb: str, words: list[str]
) -> None:
    before = contents(precious.folder), contents(precious.folder.parent / "outside")
    script = ["--", "sh", "-ec", OVERWRITES + " # {}", "sh", str(precious.folder), "{}"]
    done = precious.run(verb, "--yes", *words, *script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (contents(precious.folder), contents(precious.folder.parent / "outside")) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_pump_costs_no_file_and_the_next_run_removes_what_was_left(
    precious: Here, number: int
) -> None:
    before = contents(precious.folder)
    marks = precious.temporary.parent / "marks"
    script = f'{OVERWRITES} echo $$ >"{marks}"; exec sleep 1000'
    words = ("fit", "--yes", "--", "sh", "-ec", script + " # {}", "sh", str(precious.folder), "{}")
    with subprocess.Popen(
        precious.command(*words), cwd=precious.folder, env=precious.environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as running:  # fmt: skip
        eventually(lambda: marks.exists() and marks.read_text().endswith("\n"), "the first run")
        running.send_signal(number)
        running.wait(TIMEOUT_S)
    run = int(marks.read_text())
    eventually(lambda: not alive(run), "the end of the run")
    assert contents(precious.folder) == before
    assert precious.run("fit", "--yes", "--to", "2", "--", "true", "{}").returncode == 0
    assert list(precious.temporary.iterdir()) == []


def test_files_too_large_to_copy_are_named_before_anything_runs(precious: Here) -> None:
    (precious.folder / "data.bin").write_bytes(b"d" * (3 << 20))
    few = ("--copy-most", "2MiB", "--rounds", "1")
    script = ("--", "sh", "-c", "test -s data.bin && echo of a run >>data.bin")
    done = precious.run("compare", "--yes", *few, *script)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "too large to copy for each run: data.bin (3.0 MiB); add --share data.bin" in done.stderr
    mine, theirs = pty.openpty()
    os.write(mine, b"n\n")
    asked = subprocess.run(
        precious.command("compare", *few, *script),
        cwd=precious.folder, env=precious.environ, stdin=theirs, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    os.close(mine)
    os.close(theirs)
    assert "so runs write to the originals: data.bin (3.0 MiB). Begin?" in asked.stderr
    assert (precious.folder / "data.bin").stat().st_size == 3 << 20
    done = precious.run("compare", "--yes", "--share", "data.bin", *few, *script)
    assert done.returncode == 0, done.stderr
    assert (precious.folder / "data.bin").stat().st_size > 3 << 20
