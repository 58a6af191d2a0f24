"""The command pumpd: `pumpd job` serves one job, and pump-run starts it. `pumpd serve` is the
system service (serve.py). `pumpd jobs` starts a `pumpd job` for each process that `pump enable`
makes a job (service/activation.py).

A user may run `pumpd job` by hand to replace a killed one: the job's clients find the new process
at the same path and reconnect.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pump
from pump.base.names import quoted
from pump.base.paths import SERVICE_SOCKET, SOCKET_PATH_BYTES_MAX, learned_folder
from pump.base.processes import start_time
from pump.cli.support.lines import BadInputError, OneLineParser, add_value, checked, say
from pump.config import checks
from pump.config.checks import LOG_LEVELS, POLICIES
from pump.config.layers import ADMINISTRATORS_FILE
from pump.config.settings import DEFAULTS
from pump.config.values import seconds
from pumpd.common import last_line, link
from pumpd.common.jobwatch import JobWatch
from pumpd.common.loglines import FileHandler, Formatter
from pumpd.common.process_name import name_process
from pumpd.common.settings import WorkerSettings
from pumpd.job.place import Place
from pumpd.job.supervisor import Supervisor
from pumpd.lease.lease_client import JobFacts

BACKLOG = 64

log = logging.getLogger("pumpd")


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns 0 after the job or the service has ended, 2 for bad input, and 1
    if descriptors or memory do not suffice."""
    try:
        asked = _parser().parse_args(argv)
        run: Callable[[Namespace], int] = asked.run
        return run(asked)
    except BadInputError as error:
        say("pumpd", str(error))
        return error.status
    except OSError as error:  # too few descriptors, or too little memory
        say("pumpd", f"cannot continue: {error}")
        return 1


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="pumpd",
        description="Decide which memory of a job moves, and share GPUs between jobs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pump {pump.__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    job = verbs.add_parser("job", help="serve one job until it ends", allow_abbrev=False)
    job.set_defaults(run=_job)
    _job_options(job)
    _sharing_options(job)
    service = verbs.add_parser(
        "serve", help="share GPUs between jobs, until SIGTERM", allow_abbrev=False
    )
    _serve_options(service)
    jobs = verbs.add_parser(
        "jobs",
        help="start a pumpd for each process that connects (pump enable)",
        allow_abbrev=False,
    )
    jobs.set_defaults(run=_jobs)
    jobs.add_argument(
        "--socket",
        metavar="PATH",
        default="",
        help="socket for these processes (default: the one from systemd, else "
        "$XDG_RUNTIME_DIR/pump/jobs)",
    )
    service.set_defaults(run=_serve)
    return parser


def _job_options(parser: OneLineParser) -> None:
    value, add = partial(add_value, parser), parser.add_argument
    add("--socket", metavar="PATH", required=True, help="the job's socket (its PUMP_SOCKET)")
    add("--fd", metavar="N", type=int, help="descriptor that already listens on that socket")
    add("--job-pid", metavar="PID", type=int, required=True, help="the job's first process")
    add("--job-pidfd", metavar="N", type=int, help="pidfd of that process")
    value(
        "--policy NAME",
        checks.policy,
        f"{' or '.join(POLICIES)} (default: {DEFAULTS.policy})",
        default=DEFAULTS.policy,
    )
    value(
        "--log-level LEVEL",
        checks.log_level,
        f"{', '.join(LOG_LEVELS)} (default: {DEFAULTS.log_level})",
        default=DEFAULTS.log_level,
    )
    add("--log-file", metavar="FILE", help="append log lines to FILE (default: no log)")
    add(
        "--stderr",
        metavar="PLACE",
        default="",
        help="the job's standard error as device:inode:path, for the last line of a killed job",
    )
    add("--record", metavar="FILE", help="record clients to FILE, FILE.2, ...")
    add("--record-fd", metavar="N", type=int, help="descriptor of the folder of FILE")
    value(
        "--record-command yes|no",
        checks.truth,
        "whether recordings contain command lines (default: yes)",
        default=True,
    )
    add("--record-job", metavar="JSON", default="", help="metadata for the header of recordings")
    value(
        "--placement migrate|auto|remote",
        checks.placement,
        f"where kernels read memory that does not fit on the GPU (default: {DEFAULTS.placement})",
        default=DEFAULTS.placement,
    )
    value(
        "--duplicates yes|no",
        checks.truth,
        "whether evictions skip the copy of clean memory (default: no)",
        default=False,
    )
    value(
        "--keep-learned yes|no",
        checks.truth,
        "whether to keep learned access patterns for the program's next run (default: no)",
        default=False,
    )


def _sharing_options(parser: OneLineParser) -> None:
    value, add = partial(add_value, parser), parser.add_argument
    add("--name", metavar="NAME", type=checked(checks.name), help="name of the job")
    add(
        "--named",
        action="store_true",
        help="the user chose the name: show it in the summary line at the job's end",
    )
    value(
        "--priority N",
        checks.priority,
        "priority when GPUs are shared, from -10 to 10",
        default=DEFAULTS.priority,
    )
    add(
        "--service",
        metavar="PATH",
        action="append",
        default=[],
        help="socket of a system service that grants budgets; may be repeated, the first that "
        "answers is used",
    )
    add("--budget", metavar="SIZE", default="", help="the job's budget, the maximum of its leases")


def _serve_options(parser: OneLineParser) -> None:
    value, add = partial(add_value, parser), parser.add_argument
    add(
        "--socket",
        metavar="PATH",
        default="",
        help=f"socket for jobs (default: the one from systemd, else {SERVICE_SOCKET} for root "
        "and a folder of the user's for others)",
    )
    add(
        "--config",
        metavar="FILE",
        default=ADMINISTRATORS_FILE,
        help=f"the administrator's configuration, if it exists (default: {ADMINISTRATORS_FILE})",
    )
    add("--open", action="store_true", help="let all users connect (default if root starts it)")
    add(
        "--run-as",
        metavar="USER",
        default="",
        help="become USER after opening the socket, which root keeps (root only)",
    )
    value("--beat SECONDS", _seconds, "interval of the jobs' reports (default: a third of lease_s)")
    value(
        "--settle SECONDS",
        _seconds,
        "grow no lease for this time after the start, while jobs reconnect (default: 5)",
    )
    value(
        "--log-level LEVEL",
        checks.log_level,
        f"{', '.join(LOG_LEVELS)} (default: {DEFAULTS.log_level}); log lines go to stderr",
    )


def _seconds(text: str) -> float:
    return seconds(text, 0.05, 60)


def _serve(asked: Namespace) -> int:
    from pumpd.service import serve  # imported late: a job's pumpd does not need it

    return serve.run(asked)


def _jobs(asked: Namespace) -> int:
    from pumpd.service import activation  # imported late: a job's pumpd does not need it

    return activation.run(asked.socket)


def _job(asked: Namespace) -> int:
    if asked.job_pidfd is None and start_time(asked.job_pid) is None:
        raise BadInputError(f"--job-pid: there is no process {asked.job_pid}")
    _start_log(asked.log_level, asked.log_file)
    listener = _listener(asked.socket, asked.fd)
    place = Place(asked.socket)
    name_process("pumpd")
    log.info("serving job %d on %s, policy %s", asked.job_pid, quoted(asked.socket), asked.policy)
    settings = WorkerSettings(
        asked.policy,
        asked.log_level,
        asked.log_file,
        client_pid=0,
        record=asked.record and str(Path(asked.record).absolute()),
        record_folder=asked.record_fd,
        record_command=asked.record_command,
        record_job=_json_object(asked.record_job),
        job_name=asked.name or "",
        priority=asked.priority,
        duplicates=asked.duplicates,
        placement=asked.placement,
        learned_folder=learned_folder(os.environ) if asked.keep_learned else "",
        notes_folder=place.folder,
    )
    facts = JobFacts(
        paths=[one for one in asked.service if len(os.fsencode(one)) <= SOCKET_PATH_BYTES_MAX],
        name=settings.job_name,
        priority=settings.priority,
        budget=asked.budget,
        socket=asked.socket,
        job_pid=asked.job_pid,
    )
    try:
        watch = JobWatch(asked.job_pid, asked.job_pidfd)
        Supervisor(listener, watch, settings, facts=facts).run()
        if watch.ended() and place.folder:
            name = asked.name if asked.named else ""
            details = log.isEnabledFor(logging.INFO)
            last_line.end_job(last_line.Place(asked.stderr, name, details), place.folder)
    finally:
        place.leave()
    return 0


def _json_object(text: str) -> str:
    try:
        sound = not text or isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise BadInputError("--record-job: must be a JSON object")
    return text


def _listener(path: str, fd: int | None) -> socket.socket:
    try:
        if fd is None:
            return link.bind_listener(path, BACKLOG)
        os.set_inheritable(fd, False)
        return socket.socket(fileno=fd)
    except OSError as error:
        raise BadInputError(f"--socket {path}: {error.strerror}") from None


def _start_log(level: str, file: str | None) -> None:
    log.propagate = False
    log.setLevel(level.upper())
    logging.raiseExceptions = False  # a full disk loses log lines silently
    if file is None:
        log.addHandler(logging.NullHandler())
        return
    try:
        handler = FileHandler(str(Path(file).absolute()))
    except OSError as error:
        raise BadInputError(f"--log-file {file}: {error.strerror}") from None
    handler.setFormatter(Formatter("%(asctime)s pumpd[%(process)d] %(levelname)s %(message)s"))
    log.addHandler(handler)
