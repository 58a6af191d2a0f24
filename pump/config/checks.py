"""Checks each setting of a job, and converts it to the form of JobConfig.

The same functions check options, environment variables and files, so that all have the same
rules. No I/O but for the name of the working folder. Standard library only, because pump-run
imports it.

Every function raises BadValueError, one line that names the value and the remedy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from pump.config import keep
from pump.config.job import DUPLICATES, GRANULARITIES, LOG_LEVELS, POLICIES, REPORTS
from pump.config.values import BYTES_MAX, BadValueError, choose, parse_amount, shown, whole_number

NAME_CHARACTERS_MAX = 64
PRIORITY_MAX = 10


def name(text: str) -> str:
    """A job's name: one line of 1 to 64 printable characters. Raises BadValueError."""
    stripped = text.strip()
    if not stripped or len(stripped) > NAME_CHARACTERS_MAX or not stripped.isprintable():
        raise BadValueError(
            f"must be a job name of 1 to {NAME_CHARACTERS_MAX} printable characters, not "
            f"{stripped[:20]!r}"
        )
    return stripped


def priority(value: str | int) -> int:
    """A whole number from -10 to 10; the greater, the sooner a job is served."""
    return whole_number(value, -PRIORITY_MAX, PRIORITY_MAX)


def amount(value: str | int) -> str:
    """A size, a percentage or a multiple, in the form that the shim reads. Raises
    BadValueError."""
    if isinstance(value, int) and value >= BYTES_MAX:  # Python refuses to write out a long one
        raise BadValueError("must be an amount of memory that a machine can have")
    return parse_amount(str(value))


def report(text: str) -> str:
    """One of REPORTS: what cuMemGetInfo reports as free. Raises BadValueError."""
    return choose(text, REPORTS, "kind of report")


def policy(text: str) -> str:
    """One of POLICIES. Raises BadValueError."""
    return choose(text, POLICIES, "policy")


def duplicates(text: str) -> str:
    """One of DUPLICATES. Raises BadValueError."""
    return choose(text, DUPLICATES, "choice of duplicates")


def granularity(text: str) -> str:
    """One of GRANULARITIES. Raises BadValueError."""
    return choose(text, GRANULARITIES, "granularity")


def truth(value: str | bool) -> bool:
    """True or false; in options and variables also yes or no, 1 or 0. Raises BadValueError."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = value if isinstance(value, bool) else words.get(value.strip().lower())
    if found is None:
        raise BadValueError(f"must be true or false, not '{shown(str(value))}'")
    return found


def log_level(text: str) -> str:
    """One of LOG_LEVELS. Raises BadValueError."""
    return choose(text, LOG_LEVELS, "log level")


def keep_device(value: str | Sequence[str]) -> list[str]:
    """The default rules and these (keep.combine): a list, or a text with commas between. Raises
    BadValueError."""
    words = value.split(",") if isinstance(value, str) else value
    return keep.combine([keep.parse(word) for word in words if word.strip()])


def devices(value: str | Sequence[str | int]) -> list[str]:
    """GPUs by index or UUID, or a text of them between commas; each once. Raises
    BadValueError."""
    words = value.split(",") if isinstance(value, str) else value
    found = [str(word).strip() for word in words]
    for device in found:
        number = device.isascii() and device.isdigit() and len(device) <= 4
        if not number and not device.upper().startswith(("GPU-", "MIG-")):
            raise BadValueError(
                f"must be an index such as 0 or a UUID such as GPU-..., not '{shown(device)}'"
            )
    if len(set(found)) != len(found):
        raise BadValueError(f"'{shown(','.join(found))}' names a device twice")
    return found


def file_name(text: str) -> str:
    """An absolute path; what is relative begins where pump-run was started. Raises
    BadValueError."""
    if not text.strip() or "\0" in text:
        raise BadValueError("the file name is empty or has a zero byte")
    try:
        return os.path.abspath(os.path.expanduser(text))
    except FileNotFoundError:
        raise BadValueError(
            f"'{shown(text)}' starts in the current folder, which has been deleted; write "
            "an absolute path"
        ) from None


# By key, which is also the name of JobConfig's field and, as PUMP_<KEY>, of the variable.
JOB: dict[str, Callable[..., object]] = {
    "name": name,
    "priority": priority,
    "budget": amount,
    "limit": amount,
    "report": report,
    "policy": policy,
    "duplicates": duplicates,
    "granularity": granularity,
    "keep_device": keep_device,
    "devices": devices,
    "record": file_name,
    "record_command": truth,
    "keep_learned": truth,
    "log_level": log_level,
    "log_file": file_name,
    "quiet": truth,
}
