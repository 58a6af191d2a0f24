"""Keeps the learned access patterns of a program for the program's next run.

DESIGN
  A worker cannot identify its program at the start: command lines change from run to run, and do
  not describe a script's content. So the worker searches for a file whose sketch contains the
  kinds of the program's first operations, and searches again after more operations. The learner
  takes the run in that file as its history (daemon/core/predict/learner_log.c).

  When the client ends, the beginning of its run replaces that file or becomes a new one. Errors
  here never end the worker; each is one line of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from pump.base.names import quoted
from pump.model.client import ClientModel
from pumpd.worker.learned_files import Entry, Folder, encode, name_of, sketch

log = logging.getLogger("pumpd.worker")

SEARCHES: Final = (16, 32, 64, 128, 256, 512, 1024)
"""Numbers of operations after which a worker searches for a file. 16 operations are the shortest
history that the learner trusts immediately."""
ALIKE: Final = 0.75
"""Least share of the program's kinds of operations that a matching sketch contains."""
LEAST: Final = 256
"""Least number of operations in a run that is kept."""


class Learned:
    """Loads and saves one client's patterns. `step` and `end` are called by the worker's thread."""

    def __init__(self, model: ClientModel, path: str) -> None:
        """`path`: absolute path of the folder."""
        self._model = model
        self._path = path
        self._searches = list(SEARCHES)
        self._folder: Folder | None = None
        self._entries: list[Entry] = []
        self._guarded(self._open_folder)
        self._recalled: Entry | None = None
        self._known: frozenset[int] = frozenset()
        """The kinds of all operations in the recalled earlier run, by their keys."""

    def step(self) -> None:
        """Searches for the program's file when it is time; cheap otherwise."""
        if self._searches and self._model.kept_operations() >= self._searches[0]:
            self._guarded(self._search)

    def end(self) -> None:
        """Saves the learned patterns after the client has ended."""
        self._searches.clear()
        if self._folder is None:
            return
        if self._model.kept_operations() >= LEAST:
            self._guarded(partial(self._save, self._folder))
        self._folder.close()
        self._folder = None

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, MemoryError) as error:
            self._searches.clear()
            reason = getattr(error, "strerror", None) or "no memory"
            log.info("cannot keep learned patterns in %s: %s", quoted(self._path), reason)

    def _open_folder(self) -> None:
        self._folder = Folder(self._path)
        self._entries = self._folder.entries()

    def _search(self) -> None:
        event_log = self._model.kept()
        keys = event_log.keys()
        self._searches = [count for count in self._searches if count > len(keys)]
        so_far = sketch(keys)
        while self._folder and (found := _likest(self._entries, so_far)):
            if self._recalled is not None and found.name == self._recalled.name:
                return
            try:
                recalled = self._folder.read(found.name)
            except (OSError, ValueError) as error:
                log.info("ignoring %s: %s", found.name, error)
                self._entries.remove(found)
                continue
            self._model.recall(recalled)
            self._recalled, self._known = found, frozenset(recalled.keys().tolist())
            log.info("loaded %d operations of an earlier run", found.operations)
            return

    def _save(self, folder: Folder) -> None:
        event_log = self._model.kept()
        keys = event_log.keys()
        name, recalled = name_of(sketch(keys)), self._recalled
        again = recalled is not None and recalled.name == name
        longer = recalled is not None and recalled.operations > len(keys)
        if again and longer and _share(frozenset(keys.tolist()), self._known) >= ALIKE:
            folder.touch(name)  # this run was only cut short: keep the longer one
            return
        folder.write(name, encode(event_log))
        log.info("saved %d operations for the next run", len(keys))


def _share(some: frozenset[int], among: frozenset[int]) -> float:
    return len(some & among) / max(1, len(some))


def _likest(entries: list[Entry], so_far: frozenset[int]) -> Entry | None:
    """Returns the file whose sketch contains most of these kinds, the longest if several do; None
    if no share reaches ALIKE."""
    shares = [(_share(so_far, entry.sketch), entry.operations, entry.name) for entry in entries]
    best = max(shares, default=(0.0, 0, ""))
    return next((e for e in entries if e.name == best[2]), None) if best[0] >= ALIKE else None
