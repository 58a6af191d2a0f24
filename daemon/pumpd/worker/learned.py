"""What a worker learned of a program, kept for the program's next run.

DESIGN
  A worker cannot know which program it serves before that has begun: command lines change from
  run to run, and say nothing of what a script does. So after its first operations, and again
  after more of them, the file is looked for whose sketch has what they were, and is recalled:
  the learner gets the run that it holds for its past (daemon/core/predict/learner_story.c).

  At the end of the client its own beginning replaces that file, or becomes a new one. Nothing
  here can fail the worker: what goes wrong is a line of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from pump.model.client import ClientModel
from pump.model.story import Keys
from pump.names import quoted
from pumpd.worker.learned_files import Entry, Folder, encode, name_of, sketch

log = logging.getLogger("pumpd.worker")

LOOKS: Final = (16, 32, 64, 128, 256, 512, 1024)
"""Operations after which it looks for a file. 16 are the shortest past that the learner trusts at
once."""
ALIKE: Final = 0.75
"""Least share of the kinds of operations so far that a sketch has to hold."""
LEAST: Final = 256
"""Operations of a run that is kept."""


class Learned:
    """Of one client. `step` and `end` are called by the worker's thread."""

    def __init__(self, model: ClientModel, path: str) -> None:
        """path: of the folder, absolute."""
        self._model = model
        self._path = path
        self._looks = list(LOOKS)
        self._folder: Folder | None = None
        self._entries: list[Entry] = []
        self._guarded(self._open)
        self._recalled: Entry | None = None
        self._known: frozenset[int] = frozenset()
        """All kinds of operations of the recalled run."""

    def step(self) -> None:
        """Look for the program's file when it is time; cheap when it is not."""
        if self._looks and self._model.kept_operations() >= self._looks[0]:
            self._guarded(self._look)

    def end(self) -> None:
        """The client is gone: keep what was learned."""
        self._looks.clear()
        if self._folder is None:
            return
        if self._model.kept_operations() >= LEAST:
            self._guarded(partial(self._keep, self._folder))
        self._folder.close()
        self._folder = None

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, MemoryError) as error:
            self._looks.clear()
            reason = getattr(error, "strerror", None) or "no memory"
            log.info("cannot keep learned patterns in %s: %s", quoted(self._path), reason)

    def _open(self) -> None:
        self._folder = Folder(self._path)
        self._entries = self._folder.entries()

    def _look(self) -> None:
        story = self._model.kept()
        keys = story.keys()
        self._looks = [count for count in self._looks if count > len(keys)]
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

    def _is_known(self, keys: Keys) -> bool:
        return _share(frozenset(keys.tolist()), self._known) >= ALIKE

    def _keep(self, folder: Folder) -> None:
        story = self._model.kept()
        keys = story.keys()
        name, recalled = name_of(sketch(keys)), self._recalled
        again = recalled is not None and recalled.name == name
        longer = recalled is not None and recalled.operations > len(keys)
        if again and longer and self._is_known(keys):
            folder.touch(name)  # it was broken off, and nothing else
            return
        folder.write(name, encode(story))
        log.info("saved %d operations for the next run", len(keys))


def _share(some: frozenset[int], among: frozenset[int]) -> float:
    return len(some & among) / max(1, len(some))


def _likest(entries: list[Entry], so_far: frozenset[int]) -> Entry | None:
    """The file whose sketch has most of these kinds, the longest of such; None: none has ALIKE."""
    shares = [(_share(so_far, entry.sketch), entry.operations, entry.name) for entry in entries]
    best = max(shares, default=(0.0, 0, ""))
    return next((e for e in entries if e.name == best[2]), None) if best[0] >= ALIKE else None
