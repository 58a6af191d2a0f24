"""Runs one stage in its own process, within a time limit, and keeps its result file up to date.

Even if the stage hangs, crashes, prints garbage or starts daemons, the runner returns in time with
the items yielded until then, and kills everything that the stage started.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path

from acceptance import child, processes, results
from acceptance.contract import FAIL, Context, Item, Json, Machine
from acceptance.results import STAGE_ITEM, Identity

POLL_S = 0.2
PIPE_BYTES_MAX = 8 << 20
"""A stage that writes more than this without a newline is broken."""
LAUNCHER = Path(__file__).resolve().parents[2] / "scripts" / "gpu_acceptance"

Told = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Folder of the results, and their identity. `root`: the checkout. `lacks`: why nothing can run
    under pump here, "" if it can."""

    root: Path
    out: Path
    identity: Identity
    lacks: str = ""


class StageRun:
    """One run of one stage, at most `limit_s` seconds long. `told` gets lines of progress."""

    def __init__(
        self,
        place: Place,
        name: str,
        what: str,
        limit_s: float,
        *,
        core: bool = True,
        quick: bool = False,
        told: Told = lambda _line: None,
        launcher: Path = LAUNCHER,
    ) -> None:
        self._root, self._out, self._identity = place.root, place.out, place.identity
        self._lacks = place.lacks
        self._name, self._what, self.limit_s = name, what, limit_s
        self._core, self._quick = core, quick
        self._told, self._launcher = told, launcher
        self._items: list[Item] = []
        self._seconds_before = 0.0
        self._cards = [place.identity.machine.uuid]
        self._began = self._last = time.monotonic()
        self._ended = False

    @property
    def file(self) -> Path:
        return self._out / f"{self._name}.json"

    def keep(self, earlier: dict[str, Json]) -> None:
        """Takes over the items that an earlier call finished."""
        self._items = results.finished(earlier)
        self._seconds_before = float(earlier.get("seconds", 0.0))
        self._cards = list(dict.fromkeys([*earlier.get("cards", []), *self._cards]))

    def run(self, machine: Machine) -> dict[str, Json]:
        """Runs the stage and returns its result, which is also written."""
        self._began = self._last = time.monotonic()
        folder = self._out / self._name
        folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"gpu-acceptance-{self._name}-"))
        context = Context(
            root=self._root,
            out=folder,
            work=work,
            machine=machine,
            core=self._core,
            quick=self._quick,
            done=frozenset(item.name for item in self._items),
            lacks=self._lacks,
        )
        self._write()
        try:
            self._watch(context)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return self._write()

    def _watch(self, context: Context) -> None:
        mark = processes.new_mark()
        before = processes.children()
        reader, writer = os.pipe()
        given = context.work / "given.json"
        given.write_text(json.dumps(child.packed(context, self._name, self.limit_s, writer)))
        log = self._out / f"{self._name}.log"
        try:
            with log.open("ab") as stream:
                process = subprocess.Popen(
                    [sys.executable, str(self._launcher), "--child", str(given)],
                    env={**os.environ, processes.STAGE_MARK: mark},
                    stdin=subprocess.PIPE,  # closes when this process ends: see child.py
                    stdout=stream,
                    stderr=stream,
                    pass_fds=[writer],
                    start_new_session=True,
                )
            os.close(writer)
            writer = -1
            try:
                in_time = self._read(process, reader)
            finally:
                survivors = _end(process, mark, before)
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        self._judge(in_time, process.returncode, log)
        if survivors:
            names = ", ".join(map(processes.title, survivors))
            self._add(Item(STAGE_ITEM + ".left", FAIL, f"cannot be killed: {names}"))

    def _read(self, process: subprocess.Popen[bytes], reader: int) -> bool:
        """Reads items until the stage ends; returns False if the time limit came first."""
        deadline = self._began + self.limit_s
        os.set_blocking(reader, False)
        rest = b""
        while True:
            ended = process.poll() is not None
            select.select([reader], [], [], 0 if ended else POLL_S)
            rest, closed = self._take(reader, rest)
            if ended:
                return True
            if closed:  # the process may take a moment to exit
                left = max(0.1, deadline - time.monotonic())
                try:
                    process.wait(left)
                except subprocess.TimeoutExpired:
                    return False
            elif time.monotonic() >= deadline:
                return False

    def _take(self, reader: int, rest: bytes) -> tuple[bytes, bool]:
        """Reads all available input; returns the incomplete line and whether the pipe closed."""
        while True:
            try:
                chunk = os.read(reader, 1 << 16)
            except BlockingIOError:
                return rest, False
            if not chunk:
                return b"", True
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._accept(line)
            if len(rest) > PIPE_BYTES_MAX:
                rest = b""
                self._add(Item(f"{STAGE_ITEM}.protocol", FAIL, "an item without an end"))

    def _accept(self, line: bytes) -> None:
        try:
            item = results.item_from(json.loads(line))
        except ValueError as error:
            item = Item(f"{STAGE_ITEM}.protocol", FAIL, f"wrote what is no item: {error}"[:300])
        now = time.monotonic()
        item, self._last = replace(item, seconds=now - self._last), now
        self._add(item)

    def _add(self, item: Item) -> None:
        """Keeps an item; a second item with the same name replaces the first."""
        self._items = [kept for kept in self._items if kept.name != item.name] + [item]
        reason = f" ({item.reason})" if item.reason else ""
        self._told(f"  {item.status:11} {self._name}: {item.name}{reason}")
        self._write()

    def _judge(self, in_time: bool, returncode: int | None, log: Path) -> None:
        if not in_time:
            why = f"no end within its {self.limit_s:.0f} s, killed; its log: {log.name}"
            self._add(Item(STAGE_ITEM, FAIL, why))
        elif returncode != 0:
            said = log.read_text(errors="replace").strip().splitlines()
            last = said[-1][:300] if said else "it said nothing"
            self._add(Item(STAGE_ITEM, FAIL, f"its process ended with status {returncode}: {last}"))
        broke = any(item.name == STAGE_ITEM for item in self._items)
        self._ended = in_time and returncode == 0 and not broke

    def _write(self) -> dict[str, Json]:
        seconds = self._seconds_before + time.monotonic() - self._began
        result = {
            **self._identity.head(),
            "stage": self._name,
            "cards": self._cards,
            "what": self._what,
            "date": results.now(),
            "core": self._core,
            "quick": self._quick,
            "limit_s": round(self.limit_s, 3),
            "seconds": round(seconds, 3),
            "complete": results.complete(self._items, self._ended),
            "items": [item.as_json() for item in self._items],
        }
        results.write(self.file, result, self._root)
        return result


def absent(place: Place, name: str, status: str, reason: str) -> dict[str, Json]:
    """Writes and returns the result of a stage that cannot even start."""
    result = {
        **place.identity.head(),
        "stage": name,
        "what": "",
        "date": results.now(),
        "seconds": 0.0,
        "complete": False,
        "items": [Item(STAGE_ITEM, status, reason).as_json()],
    }
    results.write(place.out / f"{name}.json", result, place.root)
    return result


def _end(process: subprocess.Popen[bytes], mark: str, before: Set[int]) -> list[int]:
    """Kills the stage and all processes that it started; returns the survivors."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:  # only zombies of the group are left
        pass
    survivors = processes.kill_marked(processes.STAGE_MARK, mark)
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        survivors = [*survivors, process.pid]
    return [*survivors, *processes.kill_children(before)]
