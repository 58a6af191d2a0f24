"""pump jobs: lists the user's running jobs, with metrics from their own pumpds.

A job's socket is in a folder below one of the user's runtime folders (pump/base/paths.py). The
folder's name begins with the process id of the job's first process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pump.base import nvml, paths, schemas
from pump.base.names import of_command, printable
from pump.base.processes import command_of, environment_of
from pump.cli.support.lines import BadInputError, say
from pump.control import ClientState, Control, ControlError

if TYPE_CHECKING:
    from pump.cli.support import registered
    from pump.service import JobState

HELP = "list your running jobs, and others that you may see"
EXAMPLES = ("pump jobs", "pump jobs --json")

ASKED_AT_ONCE = 32
DEVICE_NAME = "device.name="
"""Key of the GPU's name in a virtual GPU's profile."""

Answer = TypeVar("Answer")


class Job(NamedTuple):
    """A job with a socket."""

    pid: int
    socket: str
    name: str
    """The value of --name, else the name of the script or program."""
    command: str
    limit: str = ""
    """The limit that the job requested at its start; "" for none."""
    virtual: str = ""
    """The name of its virtual GPU; "" for a real GPU."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")


def run(asked: argparse.Namespace) -> int:
    """Prints the jobs, as a table or as one JSON object."""
    from pump.cli.support import registered

    there = list(found())
    service = registered.Registered()
    known, answers = of_all(service, there, state_of)
    service.close()
    answered = [(job, *answer) for job, answer in zip(there, answers, strict=True)]
    others = registered.others(known, (job.socket for job in there))
    if service.warning:
        say("pump", service.warning)
    if asked.json:
        mine = [as_json(*one) for one in answered]
        print(schemas.dump("jobs", {"jobs": mine, "others": registered.as_json(others)}))
        return 0
    if not answered and not others:
        print("No jobs are running under pump.")
        return 0
    from pump.base.console import console
    from pump.cli.support import listed

    console().print(listed.table(answered, known))
    return 0


def found() -> Iterator[Job]:
    """Yields the user's jobs with a running first process, in the order of process ids."""
    for pid, socket in sorted(paths.job_sockets()):
        # A process without a command has ended, or is another user's.
        if os.path.exists(socket) and (command := command_of(pid)):
            yield _job(pid, socket, [os.fsdecode(word) for word in command])


def of_each(there: Sequence[Job], ask: Callable[[Job], Answer]) -> list[Answer]:
    """Returns the answer of each job, in order. Asks in parallel: a hung job delays no others."""
    if not there:
        return []
    with ThreadPoolExecutor(min(len(there), ASKED_AT_ONCE)) as pool:
        return list(pool.map(ask, there))


def of_all(
    service: registered.Registered, there: Sequence[Job], ask: Callable[[Job], Answer]
) -> tuple[list[JobState], list[Answer]]:
    """Returns the jobs that the service knows, and the answer of each job of `there`. Asks all of
    them in parallel."""
    with ThreadPoolExecutor(1) as beside:
        known = beside.submit(service.jobs)
        answers = of_each(there, ask)
        return known.result(), answers


def state_of(job: Job) -> tuple[list[ClientState], str]:
    """Returns the states of a job's clients, and the error if the job does not answer ("" else)."""
    with Control(job.socket) as control:
        return answer_of(job, control)


def answer_of(job: Job, control: Control) -> tuple[list[ClientState], str]:
    """Does the same as `state_of` over an existing connection to the job."""
    try:
        return control.state(), ""
    except ControlError as error:
        return error.clients, str(error).removeprefix(f"{job.socket}: ")


def as_json(job: Job, clients: list[ClientState], error: str) -> dict[str, Any]:
    """Converts a job and the states of its clients for JSON."""
    return {**job._asdict(), "error": error or None, "clients": [client_json(c) for c in clients]}


def client_json(client: ClientState) -> dict[str, Any]:
    """Converts a client's state for JSON, with UUIDs in NVML's form."""
    from dataclasses import asdict

    found = asdict(client)
    for device in found["devices"]:
        device["uuid"] = nvml.gpu_uuid(device["uuid"])
    return found


def recording_of(job: str) -> str:
    """Returns the path of a running job's recording. job: process id or name. Raises
    BadInputError."""
    mine = [one for one in found() if job in (str(one.pid), one.name)]
    if not mine:
        raise BadInputError(f"there is no file and no running job '{job}' (pump jobs lists them)")
    if len(mine) > 1:
        pids = ", ".join(str(one.pid) for one in mine)
        raise BadInputError(f"several jobs are called '{job}': name one by its process id: {pids}")
    record = environment_of(mine[0].pid).get("PUMP_RECORD", "")
    if not record:
        raise BadInputError(
            f"job {mine[0].pid} is not being recorded; start it with --record FILE, or see pump top"
        )
    return record


def _job(pid: int, socket: str, command: list[str]) -> Job:
    environ = environment_of(pid)
    name = environ.get("PUMP_NAME", "") or of_command(command)
    profile = environ.get("PUMP_VIRTUAL_PROFILE", "").split(";")
    device = next((entry for entry in profile if entry.startswith(DEVICE_NAME)), DEVICE_NAME)
    return Job(
        pid,
        socket,
        printable(name)[:64],
        " ".join(command),
        printable(environ.get("PUMP_LIMIT", "")),
        printable(device.removeprefix(DEVICE_NAME)),
    )
