"""Prepares the file of --record before the job starts. Imported only for recordings."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping

from pump.base import outputs
from pump.base.names import escaped, quoted
from pump.cli.support.lines import BadInputError
from pump.config.settings import JobConfig
from pump.trace import place

COMMAND_CHARACTERS_MAX = 32768
"""Maximum length of the command in a recording, which pump-run passes to pumpd in one argument."""

LAST_WRITER_S = 3.0
"""Longest wait for the writer of a job that has just ended."""


def prepare(path: str, beneath: str) -> tuple[int, list[str]]:
    """Checks that a recording can be written to `path`. Returns a descriptor of its folder, and
    notes for the user.

    The check leaves no new file, because a command without CUDA records nothing. An older recording
    stays until the new one is complete (pump/trace/place.py). `beneath`: the folder that must
    contain the recording, as JobConfig.record_beneath. Raises BadInputError, and changes nothing,
    if the file is not a recording, or while another job records to it.
    """
    folder = -1
    try:
        folder = place.open_folder(path, beneath)
        name = os.path.basename(path)
        new = outputs.examine(name, outputs.RECORDING, folder) is None
        claimed = _claim(name, folder)
        try:
            if new:
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(claimed)
    except OSError as error:
        if folder >= 0:
            os.close(folder)
        raise BadInputError(
            f"--record: cannot write to '{escaped(path)}': {error.strerror}"
        ) from None
    notes = []
    if old := place.unfinished(path, folder):
        more = f" (and {len(old) - 1} more)" if len(old) > 1 else ""
        notes.append(f"keeping an earlier, unfinished recording: {quoted(old[-1])}{more}")
    return folder, notes


def _claim(name: str, folder: int) -> int:
    until = time.monotonic() + LAST_WRITER_S
    while True:
        try:
            return place.claim(name, folder)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() >= until:
                raise OSError(
                    errno.EBUSY, "another job records to it; choose another file"
                ) from None
            time.sleep(0.02)


def job_facts(config: JobConfig, virtual: Mapping[str, str] | None = None) -> str:
    """Returns the job's part of a recording's header, a JSON object (docs/trace-format.md).
    virtual: facts about its virtual GPU."""
    words, left = [], COMMAND_CHARACTERS_MAX
    for word in config.command:
        left -= len(json.dumps(word))
        if left < 0:
            words.append("...")
            break
        words.append(word)
    facts: dict[str, object] = {"budget": config.budget}
    if config.record_command:
        facts["command"] = words
    if virtual is not None:
        facts["virtual"] = virtual
    return json.dumps(facts)
