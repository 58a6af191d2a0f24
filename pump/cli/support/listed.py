"""Makes the table of jobs for pump jobs, and for other users' jobs in pump top."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from pump.base.console import Columns
from pump.base.processes import age_s
from pump.cli.support.registered import others
from pump.control import ClientState
from pump.report.words import size
from pump.service import JobState

if TYPE_CHECKING:
    from pump.cli.jobs import Job

COLUMNS = (
    *("PID", "USER", "NAME", "PRIO", "TIME", "PROCS", "POLICY"),
    *("RESIDENT", "BUDGET", "MEMORY", "STATE"),
)
RIGHT = {"PID", "PRIO", "TIME", "PROCS", "RESIDENT", "BUDGET", "MEMORY"}
LEAST = ("PROCS", "POLICY", "MEMORY", "PRIO", "BUDGET", "USER", "TIME", "STATE")


def table(own: Iterable[tuple[Job, list[ClientState], str]], known: Sequence[JobState]) -> Columns:
    """Returns a row for each of the user's own jobs, with its clients' states or its error, and a
    row for each job that only the service knows."""
    priorities = {job.socket: str(job.priority) for job in known}
    asked = set()
    made = Columns(COLUMNS, RIGHT, LEAST)
    for job, clients, error in own:
        devices = [device for client in clients for device in client.devices]
        asked.add(job.socket)
        policies = sorted({client.policy for client in clients if client.policy})
        numbers = (
            str(len(clients)),
            ", ".join(policies) or "-",
            size(sum(device.resident_bytes for device in devices)),
            size(sum(device.budget_bytes for device in devices)),
            size(sum(device.allocated_bytes for device in devices)),
        )
        made.add_row(
            *(str(job.pid), user(os.geteuid()), job.name, priorities.get(job.socket, "-")),
            time_of(age_s(job.pid)),
            *(["-"] * 5 if error else numbers),
            Text(error, "bad") if error else _state(any(one.held_threads for one in devices)),
        )
    for other in others(known, asked):
        made.add_row(
            *(str(other.job_pid), user(other.user), other.name, str(other.priority)),
            *(time_of(other.age_ms / 1e3), str(other.clients), "-"),
            size(sum(gpu.resident_bytes for gpu in other.gpus)),
            size(sum(gpu.granted_bytes for gpu in other.gpus)),
            size(other.converted_bytes),
            _state(any(gpu.waits for gpu in other.gpus)),
        )
    return made


def user(number: int) -> str:
    """Returns a user's name, or the number of a user without one."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def time_of(seconds: float) -> str:
    """Returns a duration in the form "0:05:12"."""
    return str(timedelta(seconds=round(seconds)))


def _state(waits: bool) -> Text:
    return Text("waiting for its turn", "warn") if waits else Text("")
