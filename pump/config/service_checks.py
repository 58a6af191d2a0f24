"""Checks the settings of the system service. No I/O.

Every function raises BadValueError, one line that names the value and the remedy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pump.base.paths import SOCKET_PATH_BYTES_MAX
from pump.config.values import BadValueError, whole_number

WEIGHT_MAX = 1000


def socket(path: str) -> str:
    """Checks the length of a socket's path. Raises BadValueError."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise BadValueError(
            f"'{path[:40]}...' exceeds the {SOCKET_PATH_BYTES_MAX} bytes of a socket's path"
        )
    return path


def address(text: str) -> str:
    """Checks HOST:PORT, or [HOST]:PORT for IPv6; "" for none. Raises BadValueError."""
    if not text:
        return text
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare and not host.startswith("[")):
        raise BadValueError(f"must be an address such as 127.0.0.1:9464, not '{text[:40]}'")
    whole_number(port, 1, 65535)
    return text


def people(names: Sequence[str]) -> list[str]:
    """Checks users, and groups as "@name". Raises BadValueError."""
    for name in names:
        _check_name(name)
    return list(names)


def _check_name(name: str) -> None:
    if not name.removeprefix("@").strip() or not name.isprintable() or len(name) > 64:
        raise BadValueError(f"must be a user, or a group as @name, not {name[:20]!r}")


def shares(weights: Mapping[str, int]) -> dict[str, int]:
    """Checks weights from 1 to 1000 by user or "@group". Raises BadValueError."""
    for name, weight in weights.items():
        _check_name(name)
        whole_number(weight, 1, WEIGHT_MAX)
    return dict(weights)
