"""Runs the steps of a call in bounded child processes; the results survive a kill."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance import processes, results
from acceptance.first_call.archive import extract

PASS, FAIL, INFO, LATE, UNAVAILABLE = "pass", "fail", "info", "late", "unavailable"
"""Verdicts. INFO: numbers without a bound to compare with. LATE: the time limit was reached."""

END_S = 4.0
"""Time between SIGTERM and SIGKILL, and the time that a call reserves for packing."""
STEP_LEAST_S = 12.0
"""A step starts only if this much time is left."""
FILE_BYTES_MOST = 12_000_000
"""Larger files are not packed: lent machines return files of at most 16 MiB."""
UNPACKED_BYTES_MOST = 256_000_000
LINE_CHARACTERS = 900
ARCHIVE, CONSOLE, STEPS, SUMMARY = "results.tar.gz", "console.log", "steps.json", "summary.md"
BROKEN = (OSError, EOFError, ValueError, TypeError, AttributeError, tarfile.TarError)
COPIED = (STEPS, CONSOLE, SUMMARY, "first.json")
"""Also copied next to the archive, because people read them first."""

Told = dict[str, Any]


class EarlierError(Exception):
    """The archive of an earlier call is unusable; the message gives the reason."""


@dataclass
class Call:
    """One call and its results.

    `root`: the checkout. `work`: folder with all results. `out`: folder for the packed files.
    `seconds`: time limit of the call. `managed_bytes`: limit of managed memory of one program.
    `python`: interpreter with pump's dependencies. `program`: interpreter of the programs under
    test. `virtual`: profile of the virtual GPU, "" on a real one. `side_by_side`: four programs fit
    into GPU memory at once. `kept_bytes`: free GPU memory to leave to others. `private`: texts that
    results must not contain, and their replacements; recordings, which cannot be edited, are then
    left out. `runtime`: private folder for sockets.
    """

    root: Path
    work: Path
    out: Path
    seconds: float
    managed_bytes: int
    kept_bytes: int = 0
    private: tuple[tuple[str, str], ...] = ()
    python: str = sys.executable
    program: str = sys.executable
    virtual: str = ""
    quick: bool = False
    gvisor: bool = False
    side_by_side: bool = True
    commit: str = "unknown"
    steps: dict[str, Told] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    runtime: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="pump-card-", dir="/tmp"))

    def close(self) -> None:
        """Removes the folder for sockets."""
        shutil.rmtree(self.runtime, ignore_errors=True)

    @property
    def build(self) -> Path:
        return self.root / "build" / "acceptance"

    @property
    def libraries(self) -> Path:
        return Path(os.environ.get("PUMP_LIB_DIR") or self.build / "pump" / "_lib")

    def left(self) -> float:
        """Returns the seconds until the results are packed for the last time."""
        return self.seconds - END_S - (time.monotonic() - self.began)

    def say(self, text: str) -> None:
        line = f"[{time.monotonic() - self.began:6.1f}] {text}"[:LINE_CHARACTERS]
        print(line, flush=True)
        with contextlib.suppress(OSError), (self.work / CONSOLE).open("a") as log:
            log.write(line + "\n")

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Returns a child's environment, without pump's variables and LD_PRELOAD.

        XDG_RUNTIME_DIR is short, because socket paths are limited, and a lent machine may have no
        HOME.
        """
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PUMP_")}
        kept.pop("LD_PRELOAD", None)
        kept.setdefault("HOME", self.runtime)
        own = {"PYTHONUNBUFFERED": "1", "XDG_RUNTIME_DIR": self.runtime}
        return {**kept, **own, "PUMP_LIB_DIR": str(self.libraries), **more}

    def run(
        self, name: str, words: Sequence[str], limit_s: float, more: Mapping[str, str] | None = None
    ) -> int | None:
        """Runs a child and returns its exit status, or None at the time limit.

        Writes its output to work/NAME.log, and kills every process that it has started, pumpd
        included.
        """
        mark = processes.new_mark()
        environ = {**self.environment(more or {}), processes.CALL_MARK: mark}
        end = time.monotonic() + max(1.0, min(limit_s, self.left()))
        with (self.work / f"{name}.log").open("ab") as log:
            try:
                child = subprocess.Popen(
                    words,
                    cwd=self.root,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environ,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"{words[0]}: {error}\n".encode())
                return 127
        try:
            return child.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            self._end(child, mark)

    @staticmethod
    def _end(child: subprocess.Popen[bytes], mark: str) -> None:
        """Ends a child and all processes with its mark, by SIGTERM first: gpu_acceptance then
        writes its summary."""
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
        if processes.wait_gone(processes.CALL_MARK, mark, END_S / 2):
            processes.kill_marked(processes.CALL_MARK, mark, END_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)

    def step(self, name: str, work: Callable[[Call], Told]) -> None:
        """Runs a step and packs the results. A step's exception does not affect other steps."""
        if self.left() < STEP_LEAST_S:
            self.steps[name] = {"verdict": LATE, "why": "no time left in this call"}
        else:
            began = time.monotonic()
            try:
                told = work(self)
            except Exception as error:
                told = {"verdict": FAIL, "why": f"{type(error).__name__}: {error}"}
            self.steps[name] = {**told, "step_s": round(time.monotonic() - began, 1)}
        self.say(f"{name}: {json.dumps(self.steps[name])}")
        self.pack()

    def pack(self) -> None:
        """Writes at most six files below `out`, each atomically."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.work / STEPS).write_text(json.dumps(self.steps, indent=1) + "\n")
            (self.work / SUMMARY).write_text(page(self))
            self._put(ARCHIVE, self._archive())
            for name in COPIED:
                if (self.work / name).is_file():
                    self._put(name, self._public((self.work / name).read_bytes()))
        except (OSError, tarfile.TarError) as error:
            self.say(f"results cannot be written to {self.out}: {error}")

    def _archive(self) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path in sorted(self.work.rglob("*")):
                if self.out in path.parents or not path.is_file() or path.is_symlink():
                    continue
                if self.private and path.suffix == ".pump":
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed by a running program
                    if path.stat().st_size <= FILE_BYTES_MOST:
                        data = self._public(path.read_bytes())
                        member = tarfile.TarInfo(str(path.relative_to(self.work)))
                        member.size, member.mtime = len(data), int(path.stat().st_mtime)
                        archive.addfile(member, io.BytesIO(data))
        return packed.getvalue()

    def _public(self, data: bytes) -> bytes:
        for private, public in self.private:
            data = data.replace(private.encode(), public.encode())
        return data

    def _put(self, name: str, data: bytes) -> None:
        draft = self.out / "draft"
        draft.write_bytes(data)
        draft.replace(self.out / name)

    def take_over(self, name: str, data: bytes) -> None:
        """Adds the results in the archive `data` of an earlier call; `name` is for messages.

        Raises EarlierError if it is unusable.
        """
        try:
            with tarfile.open(fileobj=io.BytesIO(data)) as packed:
                members = packed.getmembers()
                if sum(member.size for member in members) > UNPACKED_BYTES_MOST:
                    raise ValueError(f"it unpacks to more than {UNPACKED_BYTES_MOST} bytes")
                for member in members:
                    if member.isfile():
                        extract(packed, member, self.work)
                    elif not member.isdir():
                        raise ValueError(f"'{member.name}' is not a regular file")
            earlier = json.loads((self.work / STEPS).read_text())
            self.steps.update({f"earlier.{name}": dict(told) for name, told in earlier.items()})
        except BROKEN as error:
            raise EarlierError(f"{name} is no archive of an earlier call: {error}") from None


def page(call: Call) -> str:
    """Returns the summary: a table with a row for each step."""
    kind = f"virtual GPU {call.virtual}: figures are a model's" if call.virtual else "a card"
    rows = [
        f"| {name} | {told.get('verdict', '')} | {told.get('step_s', '')} | {_cell(told)} |"
        for name, told in call.steps.items()
    ]
    return "\n".join(
        [
            "# First call",
            "",
            f"On {kind}; {results.now()}; commit {call.commit}.",
            "",
            "| step | verdict | s | what it found |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _cell(told: Told) -> str:
    rest = {key: value for key, value in told.items() if key not in ("verdict", "step_s")}
    return json.dumps(rest).replace("|", "/")[:600]
