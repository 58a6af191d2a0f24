"""The environments of a job and of its pumpd, as functions of the user's. No I/O.

The shim reads PUMP_SOCKET, PUMP_BUDGET, PUMP_LIMIT, PUMP_LOG_LEVEL, PUMP_LOG_FILE,
PUMP_RECORD and PUMP_DISABLE; the virtual driver reads PUMP_VIRTUAL_PROFILE. Whatever an
outer pump-run left of these is replaced: a pump-run inside another is a job of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pump.cli.lines import BadInputError
from pump.config.job import JobConfig

SHIM = "libpump.so"
OURS = (
    *("PUMP_SOCKET", "PUMP_BUDGET", "PUMP_LIMIT", "PUMP_LOG_LEVEL", "PUMP_LOG_FILE"),
    "PUMP_RECORD",
)


class Parts(NamedTuple):
    """What the job is put together from.

    shim: path of libpump.so, None with PUMP_DISABLE=1.
    virtual_folder, virtual_profile: of the virtual driver, None on a real GPU.
    visible_devices: value of CUDA_VISIBLE_DEVICES, None to leave the user's.
    socket_path: of the job's pumpd, None when there is none.
    """

    shim: str | None
    virtual_folder: str | None = None
    virtual_profile: str | None = None
    visible_devices: str | None = None
    socket_path: str | None = None


def disabled(environ: Mapping[str, str]) -> bool:
    """True with the kill switch PUMP_DISABLE=1 (any value but "" and "0")."""
    return environ.get("PUMP_DISABLE", "") not in ("", "0")


def for_job(config: JobConfig, parts: Parts, environ: Mapping[str, str]) -> dict[str, str]:
    """The command's environment. Raises BadInputError when a path cannot be expressed in it."""
    job = {name: value for name, value in environ.items() if name not in OURS}
    _set_or_drop(job, "LD_PRELOAD", _preload(parts.shim, environ.get("LD_PRELOAD", "")))
    if parts.shim:
        job["PUMP_BUDGET"] = config.budget
        job["PUMP_LIMIT"] = config.limit
        job["PUMP_LOG_LEVEL"] = config.log_level
        job["PUMP_LOG_FILE"] = config.log_file
        if parts.socket_path:
            job["PUMP_SOCKET"] = parts.socket_path
        if parts.socket_path and config.record:  # nobody else would write it
            job["PUMP_RECORD"] = config.record
    if parts.virtual_folder is not None and parts.virtual_profile is not None:
        folder = _listable(parts.virtual_folder, "LD_LIBRARY_PATH", ":;")
        old = [p for p in environ.get("LD_LIBRARY_PATH", "").split(":") if p and p != folder]
        job["LD_LIBRARY_PATH"] = ":".join([folder, *old])
        job["PUMP_VIRTUAL_PROFILE"] = parts.virtual_profile
    if parts.visible_devices is not None:
        job["CUDA_VISIBLE_DEVICES"] = parts.visible_devices
    return job


def for_pumpd(
    environ: Mapping[str, str], holds_our_packages: Callable[[str], bool]
) -> dict[str, str]:
    """pumpd's environment: the user's without what could reach into it.

    Nothing is preloaded into it, it sees no virtual GPU, and of PYTHONPATH it keeps
    only the folders that hold pump or pumpd themselves: a training job's PYTHONPATH
    often names packages that are not ours.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name != "LD_PRELOAD"
        and not name.startswith("PUMP_")
        and (not name.startswith("PYTHON") or name == "PYTHONHOME")
    }
    path = [p for p in environ.get("PYTHONPATH", "").split(":") if p and holds_our_packages(p)]
    _set_or_drop(kept, "PYTHONPATH", ":".join(os.path.abspath(p) for p in path))
    if "PUMP_LIB_DIR" in environ:
        kept["PUMP_LIB_DIR"] = os.path.abspath(environ["PUMP_LIB_DIR"])
    return kept


def _preload(shim: str | None, existing: str) -> str:
    # The loader splits at blanks and colons. A shim of an outer pump-run is dropped:
    # two of them would hook each other.
    others = [p for p in re.split(r"[ :]+", existing) if p and os.path.basename(p) != SHIM]
    mine = [_listable(shim, "LD_PRELOAD", " :")] if shim else []
    return ":".join(mine + others)


def _listable(path: str, variable: str, separators: str) -> str:
    if any(separator in path for separator in separators):
        raise BadInputError(
            f"'{path}' cannot stand in {variable}, which splits at blanks, colons or semicolons; "
            "install pump in another folder"
        )
    return path


def _set_or_drop(environ: dict[str, str], name: str, value: str) -> None:
    if value:
        environ[name] = value
    else:
        environ.pop(name, None)
