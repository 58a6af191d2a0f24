"""The configuration of one job, as pump-run resolves it. No I/O.

NamedTuple and not dataclass, which imports `inspect` and would slow the start of pump-run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

POLICIES = ["demand", "window", "planned"]
DEFAULT_POLICY = "window"
GRANULARITIES = ["native", "tensor", "auto"]
DEFAULT_GRANULARITY = "native"
REPORTS = ["budget", "limit"]
DEFAULT_REPORT = "budget"
DUPLICATES = ["auto", "on", "off"]
DEFAULT_DUPLICATES = "auto"
DEFAULT_PRIORITY = 0
LOG_LEVELS = ["error", "warning", "info", "debug"]
DEFAULT_LOG_LEVEL = "warning"
# Memory that stays device memory by default: buffers that NCCL, NVSHMEM and UCX register with
# network cards or with other GPUs, and allocations to be shared by IPC. Not UCX's libucm, which
# wraps the allocations of all libraries.
DEFAULT_KEEP_DEVICE = ["library=libnccl", "library=libnvshmem", "library=libuct", "ipc"]


class JobConfig(NamedTuple):
    """All settings of one job, checked for form.

    name: of the job where jobs are listed; "" for its script's or command's.
    priority: -10 to 10; the system service shares GPUs by it.
    budget, limit: "" for pump's own choice, decimal bytes, "80%" or "1.5x".
    budget_most, limit_most: the administrator's bounds in the same form, or "".
    report: what cuMemGetInfo reports as free, one of REPORTS.
    devices: as typed: indices or UUIDs; empty for all that the program sees.
    virtual: name of a device profile or path of one, None on a real GPU.
    virtual_settings: changes to that profile, by key.
    log_file: absolute path or "".
    quiet: whether nothing but errors of pump's reaches standard error.
    record: absolute path of the recording or "".
    record_beneath: the folder that the recording must lie in, reached without symbolic links,
        where that folder's own file asks for it; "" where the user does.
    record_command: whether recordings hold command lines.
    keep_learned: whether what is learned of the program is kept for its next run.
    keep_device: rules for memory that stays device memory, in the form the shim reads
        (shim/memory/rules.c).
    duplicates: whether memory that was only read leaves the GPU without a copy, one of DUPLICATES.
    granularity: whether frameworks allocate tensor by tensor (pump/frameworks).
    command: program and arguments, never empty.
    """

    command: list[str]
    budget: str = ""
    limit: str = ""
    policy: str = DEFAULT_POLICY
    devices: list[str] = []  # noqa: RUF012  (never changed)
    virtual: str | None = None
    virtual_settings: dict[str, str] = {}  # noqa: RUF012  (never changed)
    log_level: str = DEFAULT_LOG_LEVEL
    log_file: str = ""
    quiet: bool = False
    record: str = ""
    record_beneath: str = ""
    record_command: bool = True
    keep_learned: bool = True
    keep_device: list[str] = DEFAULT_KEEP_DEVICE
    duplicates: str = DEFAULT_DUPLICATES
    granularity: str = DEFAULT_GRANULARITY
    name: str = ""
    priority: int = DEFAULT_PRIORITY
    report: str = DEFAULT_REPORT
    budget_most: str = ""
    limit_most: str = ""


class Recording(NamedTuple):
    """What pumpd needs of a recording besides its path.

    folder: a descriptor of the file's folder. job: the job's part of its header, JSON.
    """

    folder: int
    job: str


class Layer(NamedTuple):
    """The settings of one source, in JobConfig's form.

    origins: of each key, for users. notes: sentences about ignored settings. record_beneath: as
    in JobConfig.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    notes: Sequence[str] = ()
    record_beneath: str = ""
