"""The configuration of one job, as pump-run resolves it. No I/O.

NamedTuple and not dataclass: the latter imports `inspect`, which pump-run has no time for.
"""

from __future__ import annotations

from typing import NamedTuple

POLICIES = ["demand", "window"]
DEFAULT_POLICY = "window"
LOG_LEVELS = ["error", "warning", "info", "debug"]
DEFAULT_LOG_LEVEL = "warning"


class JobConfig(NamedTuple):
    """Everything that was asked of one job, checked for form.

    budget, limit: "" for pump's own choice, decimal bytes, or "80%".
    devices: as typed: indices or UUIDs; empty for all that the program sees.
    virtual: name of a device profile or path of one, None on a real GPU.
    virtual_settings: changes to that profile, by key.
    log_file: absolute path or "".
    record: absolute path of the recording or "".
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
    record: str = ""
