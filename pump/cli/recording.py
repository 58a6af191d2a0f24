"""What pump-run does for --record before the job starts. Imported only where it is given."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time

from pump.cli.lines import BadInputError
from pump.config.job import JobConfig

COMMAND_CHARACTERS_MAX = 32768
"""Of the command that a recording keeps: it travels as one argument of pumpd."""

LAST_WRITER_S = 3.0
"""How long to wait for the writer of a job that has just ended."""


def clear(path: str) -> None:
    """Empties the file, so that an older recording is not taken for this job's.

    Raises BadInputError, and leaves the file alone, while another recording is being
    written to it.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _wait_for_writer(fd, path)
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)
    except OSError as error:
        raise BadInputError(f"--record: cannot write to '{path}': {error.strerror}") from None


def _wait_for_writer(fd: int, path: str) -> None:
    until = time.monotonic() + LAST_WRITER_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BadInputError(
                    f"--record: another job is being recorded to '{path}'; name another file"
                ) from None
            time.sleep(0.02)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                return  # a file system without locks
            raise


def job_facts(config: JobConfig) -> str:
    """What the header of a recording says about the job, a JSON object."""
    words, left = [], COMMAND_CHARACTERS_MAX
    for word in config.command:
        left -= len(json.dumps(word))
        if left < 0:
            words.append("...")
            break
        words.append(word)
    facts: dict[str, object] = {"command": words, "budget": config.budget}
    if config.virtual is not None:
        facts["virtual"] = _virtual_facts(config.virtual, config.virtual_settings)
    return json.dumps(facts)


def _virtual_facts(name: str, settings: dict[str, str]) -> dict[str, str]:
    from pump import profiles

    changes = {key: value for key, value in settings.items() if key not in profiles.DRIVER_KEYS}
    profile = profiles.load(name)
    return {
        "profile": profile.name,
        "hash": profile.changed(changes).hash(),
        "device": str(profile.values["device.name"]),
        "mode": settings.get("mode", profiles.MODES[0]),
    }
