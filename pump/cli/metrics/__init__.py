"""pump service metrics: exports metrics for Prometheus, of this user's jobs and of other jobs that
the system service shows to this user.

Prints the metrics once, writes them to a textfile for the node exporter at an interval, or serves
HTTP on a unix socket. Serves a TCP port only on request, because any process that can connect reads
the metrics. Counters come directly from the shim and the worker. Bytes by place, hits and misses
come from the worker's model; the help texts call hits and misses estimates.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from pump.base import outputs
from pump.base.names import quoted
from pump.cli.metrics.answers import Server, listen
from pump.cli.metrics.families import Families
from pump.cli.support import live
from pump.cli.support.lines import BadInputError, checked, say, writing
from pump.config import service_checks

HELP = "report running jobs to Prometheus: textfile, unix socket or TCP"
EXAMPLES = (
    "pump service metrics",
    "pump service metrics --textfile /var/lib/node_exporter/textfile/pump.prom",
)

INTERVAL_S = 15.0


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--textfile", metavar="FILE", help="rewrite FILE at each interval")
    target.add_argument(
        "--socket",
        metavar="PATH",
        type=checked(lambda text: service_checks.socket(os.path.abspath(text))),
        help="serve HTTP on a unix socket, for this user only",
    )
    target.add_argument(
        "--tcp",
        metavar="HOST:PORT",
        type=checked(service_checks.address),
        help="serve HTTP on an address; any process that can connect can read it",
    )
    parser.add_argument(
        "--per-job", action="store_true", help="one series per job instead of one per user"
    )
    live.add_interval(parser, 1, INTERVAL_S, "updates of the textfile")


def run(asked: argparse.Namespace) -> int:
    """Prints the metrics once, or writes or serves them until Ctrl-C. Raises BadInputError."""
    repeats = bool(asked.textfile or asked.socket or asked.tcp)
    families = Families(per_job=asked.per_job, keeps=repeats)
    warning = ""
    with contextlib.closing(live.Watch()) as watch, contextlib.suppress(KeyboardInterrupt):

        def text() -> str:
            nonlocal warning
            poll = watch.poll()
            if poll.warning and not warning:
                warning = poll.warning
                say("pump", warning)
            return exposition(families, poll)

        if asked.textfile:
            _write_for_ever(text, asked.textfile, asked.interval)
        elif repeats:
            _serve(text, asked.socket, asked.tcp)
        else:
            print(text(), end="")
    return 0


def exposition(families: Families, poll: live.Poll) -> str:
    """Returns the metrics of a poll in Prometheus's text format."""

    class Families(Collector):
        def collect(self) -> list[Metric]:
            return families.collect(poll)

    return generate_latest(Families()).decode()


def _write_for_ever(text: Callable[[], str], path: str, interval_s: float) -> None:
    write(path, text())
    say("pump", f"writing {quoted(path)} every {interval_s:g} s; Ctrl-C stops")
    while True:
        time.sleep(interval_s)
        write(path, text())


def _serve(text: Callable[[], str], path: str | None, address: str | None) -> None:
    try:
        listener = listen(path, address)
    except OSError as error:
        raise BadInputError(f"cannot listen at {path or address}: {error.strerror}") from None
    try:
        say("pump", f"listening at {quoted(path or address or '')}; Ctrl-C stops")
        Server(listener, text).serve()
    finally:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)


def write(path: str, content: str) -> None:
    """Replaces the textfile at `path` atomically. Raises BadInputError."""
    with writing(path, "--textfile"):
        outputs.examine(path, outputs.METRICS)  # also refuses a pipe or /dev/null
        outputs.write(path, content, outputs.METRICS)
