"""Computes the environments of a job and of its pumpd from the user's environment. No I/O.

The shim reads the variables of OF_SHIM. It also reads PUMP_RECORD, PUMP_SOCKET, PUMP_LEDGER,
PUMP_NEIGHBOURS, PUMP_DISABLE, PUMP_JOB (shared by processes with a common limit) and PUMP_JOB_PID
(the job's first process). Values from the user or an outer pump-run are replaced: a pump-run inside
another one is its own job. PUMP_SUMMARY is the user's: a file for pump's counters, one JSON object
when a process ends ("%p": the process id).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pump import frameworks
from pump.cli.lab import Virtual
from pump.cli.support.lines import BadInputError
from pump.config.layers import RULES
from pump.config.settings import JOB, JobConfig, variable
from pump.frameworks.advice import Advice

SHIM = "libpump.so"
OF_SHIM = [*(key for key, setting in JOB.items() if setting.shim), "budget_most", "limit_most"]
"""Fields of JobConfig for the shim and `pump jobs`; the last two are the administrator's bounds."""
OURS = (
    *map(variable, (*JOB, *OF_SHIM)),
    *("PUMP_SOCKET", "PUMP_LEDGER", "PUMP_NEIGHBOURS", "PUMP_JOB", "PUMP_JOB_PID", RULES),
)

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
CONNECTIONS_MOST = "32"
"""Hardware queues between the program's streams and the GPU; 8 if the variable is unset (CUDA
Programming Guide). Streams that share a queue wait for each other's work."""

ADDRESS_SANITIZER = "ASAN_OPTIONS"
LINK_ORDER = "verify_asan_link_order"
"""With this check, a shared AddressSanitizer ends programs in which it is not the first library
(sanitizer flags, manuals of gcc and clang). A preloaded library always comes before it."""


class Parts(NamedTuple):
    """The parts of a job's environment.

    `shim`: path of libpump.so, None with PUMP_DISABLE=1.
    `virtual`: the virtual GPU, None for a real GPU.
    `visible_devices`: value of CUDA_VISIBLE_DEVICES, None to keep the user's.
    `socket_path`: socket of the job's pumpd, None if there is none.
    `ledger`: folder of the host memory ledger, None if there is none.
    `job`: a unique hexadecimal number of the job, "" if each process is a job.
    `job_pid`: process id of the job's first process.
    `hooks_driver`: whether the library at a path must come before pump (exports.py).
    """

    shim: str | None
    virtual: Virtual | None = None
    visible_devices: str | None = None
    socket_path: str | None = None
    ledger: str | None = None
    job: str = ""
    job_pid: int = 0
    hooks_driver: Callable[[str], bool] = lambda path: False


def disabled(environ: Mapping[str, str]) -> bool:
    """Returns whether the kill switch PUMP_DISABLE=1 is set (any value except "" and "0")."""
    return environ.get("PUMP_DISABLE", "") not in ("", "0")


def for_job(config: JobConfig, parts: Parts, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the command's environment. Raises BadInputError if a variable cannot hold a path."""
    job = {name: value for name, value in environ.items() if name not in OURS}
    preload = _preload(parts, environ.get("LD_PRELOAD", ""))
    _set_or_drop(job, "LD_PRELOAD", preload)
    if parts.shim:
        job |= config.variables(key for key in OF_SHIM if getattr(config, key))
        job.update(_frameworks(config, environ).settings)
        job.setdefault(CONNECTIONS, CONNECTIONS_MOST)
        job[ADDRESS_SANITIZER] = _any_link_order(environ.get(ADDRESS_SANITIZER, ""))
        _set_or_drop(job, "PUMP_LEDGER", parts.ledger or "")
        _set_or_drop(job, "PUMP_JOB", parts.job)
        if parts.socket_path:
            job["PUMP_SOCKET"] = parts.socket_path
            job["PUMP_JOB_PID"] = str(parts.job_pid)
        if parts.socket_path and config.record:  # pumpd writes it
            job |= config.variables(["record"])
    if parts.virtual is not None:
        job.update(parts.virtual.variables(environ))
    if parts.visible_devices is not None:
        job["CUDA_VISIBLE_DEVICES"] = parts.visible_devices
    return job


def notes(config: JobConfig, environ: Mapping[str, str]) -> list[str]:
    """Returns sentences for the user: for_job's changes to frameworks' variables, and one_queue."""
    return [*_frameworks(config, environ).notes, *one_queue(environ)]


def one_queue(environ: Mapping[str, str]) -> list[str]:
    """Returns a sentence if all streams of a priority share one hardware queue, else []. Does not
    change this setting of the user, because Megatron needs it for the order of its kernels."""
    if environ.get(CONNECTIONS, "").strip() != "1":
        return []
    return [
        f"{CONNECTIONS}=1: all streams share one hardware queue, so a kernel may wait for "
        "another stream's transfer; unset it unless the framework needs it"
    ]


def choices(config: JobConfig, environ: Mapping[str, str]) -> list[str]:
    """Returns sentences: the granularity that `auto` has chosen for each framework, and why."""
    return _frameworks(config, environ).choices


def _frameworks(config: JobConfig, environ: Mapping[str, str]) -> Advice:
    advice = frameworks.advise(config.granularity, environ)
    if advice.conflicts:
        raise BadInputError(f"--granularity: {advice.conflicts[0]}")
    return advice


def for_pumpd(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns pumpd's environment: the user's without variables that change how pumpd loads.

    Nothing is preloaded into pumpd, and pumpd sees no virtual GPU. Keeps only the Python variables
    that may be needed to find pump (pump/start.py). Their paths become absolute, because pumpd
    starts in another folder.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name != "LD_PRELOAD"
        and not name.startswith("PUMP_")
        and (not name.startswith("PYTHON") or name == "PYTHONUSERBASE")
    }
    path = filter(None, environ.get("PYTHONPATH", "").split(":"))
    _set_or_drop(kept, "PYTHONPATH", ":".join(os.path.abspath(p) for p in path))
    if "PUMP_LIB_DIR" in environ:
        kept["PUMP_LIB_DIR"] = os.path.abspath(environ["PUMP_LIB_DIR"])
    return kept


def _preload(parts: Parts, existing: str) -> str:
    # The loader splits at blanks and colons. The shim of an outer pump-run is dropped, because two
    # shims would hook each other.
    mine = [parts.shim] if parts.shim else []
    mine += parts.virtual.libraries if parts.virtual else []
    others = [p for p in re.split(r"[ :]+", existing) if p and os.path.basename(p) != SHIM]
    others = [path for path in others if path not in mine]
    hooks = [path for path in others if "/" in path and parts.hooks_driver(path)]
    mine = [listable(path, "LD_PRELOAD", " :") for path in mine]
    return ":".join([*hooks, *mine, *(path for path in others if path not in hooks)])


def _any_link_order(existing: str) -> str:
    """Returns ASAN_OPTIONS without the check of the link order. Keeps the user's own choice."""
    if LINK_ORDER in existing:
        return existing
    return ":".join([*([existing] if existing else []), f"{LINK_ORDER}=0"])


def listable(path: str, variable: str, separators: str) -> str:
    """Returns `path` if `variable` can hold it. Raises BadInputError otherwise."""
    if any(separator in path for separator in separators):
        raise BadInputError(
            f"{variable} cannot hold '{path}', because it splits at blanks, colons or "
            "semicolons; install pump in another folder"
        )
    return path


def _set_or_drop(environ: dict[str, str], name: str, value: str) -> None:
    if value:
        environ[name] = value
    else:
        environ.pop(name, None)
