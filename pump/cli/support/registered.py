"""Asks the system service for its registered jobs.

Root, the service's own user and the observers in its configuration see all jobs. Other users see
only their own (docs/security.md). Without a service, the list of jobs is empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from pump.base.nvml import gpu_uuid
from pump.service import (
    JobState,
    ServiceClient,
    ServiceError,
    SilentServiceError,
    UntrustedServiceError,
)

RETRY_S = 5.0
"""Interval between attempts to find a service."""
SILENT_TIMES = 5
"""After a failed attempt, the pause before the next one is this multiple of the attempt's time."""


class Registered:
    """Asks the service for its jobs, over one connection."""

    def __init__(self) -> None:
        self._client: ServiceClient | None = None
        self._due = 0.0
        self.warning = ""
        """Why the latest service was not trusted or did not answer in time, or ""."""
        self.trouble = ""
        """Why no service answers, or ""."""

    def jobs(self) -> list[JobState]:
        """Returns all jobs that this user may see; [] if no service answers."""
        now = time.monotonic()
        try:
            if self._client is None:
                if now < self._due:
                    return []
                self._client = ServiceClient.find()
                self.warning = self.trouble = ""
            return self._client.jobs()
        except ServiceError as error:
            self.close()
            self.trouble = str(error)
            if isinstance(error, UntrustedServiceError | SilentServiceError):
                self.warning = str(error)
            waited_s = time.monotonic() - now
            self._due = time.monotonic() + max(RETRY_S, SILENT_TIMES * waited_s)
            return []

    def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._client is not None:
            self._client.close()
            self._client = None


def others(jobs: Iterable[JobState], own_sockets: Iterable[str]) -> list[JobState]:
    """Returns the jobs that this user cannot ask at their own sockets."""
    own = set(own_sockets)
    return [job for job in jobs if job.socket not in own]


def as_json(jobs: Iterable[JobState]) -> list[dict[str, Any]]:
    """Converts jobs for JSON, with UUIDs in NVML's form."""
    from msgspec import to_builtins

    found: list[dict[str, Any]] = to_builtins(list(jobs))
    for job in found:
        for lease in job["gpus"]:
            lease["gpu"] = gpu_uuid(lease["gpu"])
    return found
