"""pump-run in a folder that another user wrote, and with files that are not pump's."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import BIN, Job, recording
from places import PROGRAMS

WORK = ("--buffers=4", "--steps=5")
EVIL = "$(touch pwned)`touch pwned`;touch pwned\ntouch pwned #'"


class Clone:
    """A cloned folder and its user's home, with files that the user needs."""

    def __init__(self, job: Job, base: Path) -> None:
        self.job = job
        self.home, self.folder = base / "home", base / "clone"
        self.home.mkdir()
        self.folder.mkdir()
        self.thesis = self.home / "thesis.tex"
        self.thesis.write_text("years of work")
        (self.home / ".bashrc").write_text("true\n")
        self.environ = {"HOME": str(self.home)}

    def write(self, text: str) -> None:
        (self.folder / "pump.toml").write_text(f"[job]\n{text}\n")

    def run(
        self, *options: str, command: str = "exec {job}", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs pump-run in the folder with a shell command; {job} in it is the program."""
        program = shlex.join([sys.executable, str(PROGRAMS / "job.py"), *WORK])
        words = [str(BIN / "pump-run"), "--virtual", "a100-pcie4"]
        words += ["--virtual-set", "memory=64MiB", "--virtual-set", "mode=compute", *options]
        return subprocess.run(
            [*words, "--", "sh", "-c", command.format(job=program)],
            cwd=self.folder,
            env={**self.job.environment(), **self.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def trust(self) -> None:
        subprocess.run(
            [str(BIN / "pump"), "config", "trust"],
            cwd=self.folder,
            env={**os.environ, **self.environ},
            stdout=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )

    def unharmed(self) -> bool:
        return (self.thesis.read_text(), (self.home / ".bashrc").read_text()) == (
            "years of work",
            "true\n",
        )


@pytest.fixture
def clone(job: Job, tmp_path: Path) -> Clone:
    return Clone(job, tmp_path)


def test_a_clones_file_neither_empties_nor_appends_to_anything_and_its_budget_applies(
    clone: Clone,
) -> None:
    clone.write('budget = "8MiB"\nrecord = "~/thesis.tex"\nlog_file = "~/.bashrc"\nname = "x"')
    done = clone.run()
    assert done.returncode == 0, done.stderr
    assert clone.unharmed()
    (note,) = [line for line in done.stderr.splitlines() if "ignoring" in line]
    assert note.startswith("pump-run: pump.toml: ignoring log_file (line 4), record (line 3): ")
    assert "pump config trust" in note
    assert "2.00x the budget" in done.stderr
    clone.trust()  # even trusted, the file's paths stay in its folder
    assert clone.run().returncode == 0
    assert clone.unharmed()


def test_a_trusted_recording_lies_beneath_the_folder_and_no_link_leads_it_out(
    clone: Clone,
) -> None:
    (clone.folder / "runs").mkdir()
    clone.write('record = "runs/t"')
    clone.trust()
    assert clone.run().returncode == 0
    assert recording(clone.folder / "runs" / "t")["operations"] > 5
    (clone.folder / "runs").rename(clone.folder / "old")
    (clone.folder / "runs").symlink_to(clone.home)
    done = clone.run()
    assert done.returncode == 2
    assert "its path contains a symbolic link or a file" in done.stderr
    assert not (clone.home / "t").exists()


def test_a_folder_that_becomes_a_link_while_the_job_runs_leads_nothing_away(
    clone: Clone,
) -> None:
    (clone.folder / "runs").mkdir()
    (clone.home / "t").write_text("dear")
    clone.write('record = "runs/t"')
    clone.trust()
    done = clone.run(command="mv runs moved && ln -s ~ runs && {job} && {job}")
    assert done.returncode == 0, done.stderr
    for name in ("t", "t.2"):
        assert recording(clone.folder / "moved" / name)["operations"] > 5
    assert (clone.home / "t").read_text() == "dear"
    assert not list(clone.home.glob("t.*"))


def test_a_recordings_name_runs_nothing_where_the_log_is_a_shells_file(clone: Clone) -> None:
    log, evil = clone.home / "log", EVIL
    done = clone.run(f"--record={evil}", f"--log-file={log}", "-vv")
    assert done.returncode == 0, done.stderr
    recording(clone.folder / evil)
    refused = clone.run(f"--record={evil}", f"--log-file={log}", env={"PUMP_SUMMARY": "."})
    assert refused.returncode == 0
    text = log.read_text()
    assert "pwned" in text
    assert all(line.startswith("pump: ") or " pumpd[" in line for line in text.splitlines())
    for line in text.splitlines():  # one by one: a syntax error would hide the rest
        subprocess.run(["sh", "-c", line], cwd=clone.home, capture_output=True, check=False)
    assert not (clone.home / "pwned").exists()


@pytest.mark.parametrize("kind", ["file", "link", "hard link"])
def test_record_and_summary_replace_nothing_that_is_not_theirs(clone: Clone, kind: str) -> None:
    path = clone.folder / "t"
    if kind == "hard link":
        path.hardlink_to(clone.thesis)
    elif kind == "link":
        path.symlink_to(clone.thesis)
    else:
        path.write_text("years of work")
    done = clone.run("--record", "t")
    assert done.returncode == 2
    assert "--record: cannot write to" in done.stderr
    assert done.stderr.count("\n") == 1
    done = clone.run(env={"PUMP_SUMMARY": str(path)})
    assert done.returncode == 0
    assert "PUMP_SUMMARY: " in done.stderr
    assert path.read_text() == "years of work"
    assert clone.unharmed()


def test_without_the_command_a_recording_holds_no_command_line(clone: Clone) -> None:
    done = clone.run(
        "--record=t", command="exec {job} --seed=4711", env={"PUMP_RECORD_COMMAND": "no"}
    )
    assert done.returncode == 0, done.stderr
    told = recording(clone.folder / "t")
    assert told["command"] == []
    assert "command" not in told["job"]
    assert "4711" not in json.dumps(told)
    assert recording(clone.folder / "t")["unfinished"] == []


def test_a_log_file_that_is_a_pipe_keeps_nothing_waiting(clone: Clone) -> None:
    for name in ("unread", "read"):
        os.mkfifo(clone.folder / name)
    done = clone.run("--log-file=unread", "-v")  # opening it would block forever
    assert done.returncode == 0, done.stderr
    with subprocess.Popen(["cat", "read"], cwd=clone.folder, stdout=subprocess.PIPE) as reader:
        assert clone.run("--log-file=read", "-v").returncode == 0
        read = reader.communicate(timeout=30)[0].decode()
    assert "serving job" in read


def test_what_a_killed_writer_left_is_named_and_kept(clone: Clone) -> None:
    (clone.folder / "t.part-0123abcd").write_bytes(b"\x93PUMPTR\n")
    (clone.folder / "t").touch()
    told = [str(BIN / "pump"), "trace", "info", "t"]
    done = subprocess.run(told, cwd=clone.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "; a recording that was not finished is t.part-0123abcd" in done.stderr
    done = clone.run("--record=t")
    assert (
        f"keeping an earlier, unfinished recording: {clone.folder}/t.part-0123abcd" in done.stderr
    )
    assert recording(clone.folder / "t")["unfinished"] == [str(clone.folder / "t.part-0123abcd")]
