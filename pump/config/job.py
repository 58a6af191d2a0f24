"""The configuration of one job, as pump-run resolves it. No I/O.

Uses NamedTuple, because dataclass imports `inspect` and would slow the start of pump-run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

POLICIES = ["demand", "window", "planned"]
DEFAULT_POLICY = "planned"
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
# network cards or with other GPUs, and allocations to be shared by IPC. Excludes UCX's libucm,
# because it wraps the allocations of all libraries.
DEFAULT_KEEP_DEVICE = ["library=libnccl", "library=libnvshmem", "library=libuct", "ipc"]


class JobConfig(NamedTuple):
    """All settings of one job, checked for form.

    `name`: the job's name in lists; "" for the name of its script or command.
    `priority`: -10 to 10; the system service shares GPUs by priority.
    `budget`, `limit`: "" for pump's own choice, decimal bytes, "80%" or "1.5x".
    `budget_most`, `limit_most`: the administrator's bounds in the same form, or "".
    `report`: the kind of free memory that cuMemGetInfo reports, one of REPORTS.
    `devices`: indices or UUIDs, as typed; empty for all GPUs that the program sees.
    `virtual`: name or path of a device profile, None for a real GPU.
    `virtual_settings`: changes to that profile, by key.
    `log_file`: absolute path or "".
    `quiet`: whether pump prints only errors to standard error.
    `record`: absolute path of the recording or "".
    `record_beneath`: if a folder's own file requests the recording: the folder that must contain
        the recording, reached without symbolic links. "" if the user requests it.
    `record_command`: whether recordings contain command lines.
    `keep_learned`: whether to store the learned facts about the program for its next run.
    `keep_device`: rules for memory that stays device memory, in the form that the shim reads
        (shim/memory/rules.c).
    `duplicates`: whether to evict unmodified memory without a copy, one of DUPLICATES.
    `granularity`: whether frameworks allocate each tensor separately (pump/frameworks).
    `command`: program and arguments, never empty.
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
    """The data of a recording for pumpd, in addition to its path.

    folder: a descriptor of the file's folder. job: the job's part of its header, JSON.
    """

    folder: int
    job: str


class Layer(NamedTuple):
    """The settings of one source, in JobConfig's form.

    origins: the source of each key, for users. notes: sentences about ignored settings.
    record_beneath: as in JobConfig.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    notes: Sequence[str] = ()
    record_beneath: str = ""
