"""Checks each setting of a job, and converts it to the form of JobConfig.

The same functions check options, environment variables and files, so that all have the same
rules. No I/O except to find the current folder. Standard library only, because pump-run imports
the module.

Every function raises BadValueError, one line that names the value and the remedy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from pump.config import keep
from pump.config.values import BYTES_MAX, BadValueError, choose, parse_amount, shown, whole_number

NAME_CHARACTERS_MAX = 64
PRIORITY_MAX = 10
POLICIES = ["demand", "window", "planned"]
GRANULARITIES = ["native", "tensor", "auto"]
LOG_LEVELS = ["error", "warning", "info", "debug"]


def name(text: str) -> str:
    """Checks a job's name: one line of 1 to 64 printable characters. Raises BadValueError."""
    stripped = text.strip()
    if not stripped or len(stripped) > NAME_CHARACTERS_MAX or not stripped.isprintable():
        raise BadValueError(
            f"must be a job name of 1 to {NAME_CHARACTERS_MAX} printable characters, not "
            f"{stripped[:20]!r}"
        )
    return stripped


def priority(value: str | int) -> int:
    """Checks a priority: an integer from -10 to 10. Higher priorities are served first."""
    return whole_number(value, -PRIORITY_MAX, PRIORITY_MAX)


def amount(value: str | int) -> str:
    """Converts a size, a percentage or a multiple to the form that the shim reads. Raises
    BadValueError."""
    if isinstance(value, int) and value >= BYTES_MAX:  # Python refuses to print long integers
        raise BadValueError("must be an amount of memory that a machine can have")
    return parse_amount(str(value))


policy = partial(choose, names=POLICIES, what="policy")
report = partial(choose, names=["budget", "limit"], what="kind of report")
placement = partial(choose, names=["migrate", "auto", "remote"], what="kind of placement")
duplicates = partial(choose, names=["auto", "on", "off"], what="choice of duplicates")
granularity = partial(choose, names=GRANULARITIES, what="granularity")
log_level = partial(choose, names=LOG_LEVELS, what="log level")


def truth(value: str | bool) -> bool:
    """Converts true or false; in options and variables also yes or no, 1 or 0. Raises
    BadValueError."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = value if isinstance(value, bool) else words.get(value.strip().lower())
    if found is None:
        raise BadValueError(f"must be true or false, not '{shown(str(value))}'")
    return found


def keep_device(value: str | Sequence[str]) -> list[str]:
    """Adds rules to the default rules (keep.combine). value: a list, or a text with commas. Raises
    BadValueError."""
    words = value.split(",") if isinstance(value, str) else value
    return keep.combine([keep.parse(word) for word in words if word.strip()])


def devices(value: str | Sequence[str | int]) -> list[str]:
    """Checks GPUs, given by index or UUID, each at most once. value: a list, or a text with commas.
    Raises BadValueError."""
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
    """Converts a path to an absolute one. A relative path starts in the folder where pump-run was
    started. Raises BadValueError."""
    if not text.strip() or "\0" in text:
        raise BadValueError("the file name is empty or has a zero byte")
    try:
        return os.path.abspath(os.path.expanduser(text))
    except FileNotFoundError:
        raise BadValueError(
            f"'{shown(text)}' starts in the current folder, which has been deleted; write "
            "an absolute path"
        ) from None
