"""pump doctor: checks whether pump works on this machine, and why not.

The output begins with problems and warnings, each with its remedy, followed by the successful
checks. The last line reports whether jobs can run. Doctor starts one process that loads driver and
shim like a job. For a named command, doctor reads its file, but does not run it.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING, Any

from pump.base import schemas
from pump.base.names import printable
from pump.cli.doctor import host, probe, rules, switches, target
from pump.cli.doctor.finding import OK, PROBLEM, WARNING, Finding, problem
from pump.cli.support import environment
from pump.cli.support.lines import BadInputError
from pump.config.settings import JobConfig
from pump.report.words import many

if TYPE_CHECKING:
    from rich.text import Text

HELP = "check that pump works on this machine: driver, memory, permissions"
EXAMPLES = ("pump doctor", "pump doctor -- python train.py")

DETAILED = re.compile("driver|device |host memory|command|rules")
"""Findings with a text that is useful even without a problem."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--virtual", metavar="PROFILE", help="check for a virtual GPU instead")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="[--] command: also check whether pump can intercept it",
    )


def run(asked: argparse.Namespace) -> int:
    """Prints the findings. Returns status 1 if there is a problem."""
    words = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    found = examine(asked.virtual, words, dict(os.environ))
    if asked.json:
        print(schemas.dump("doctor", {"findings": [finding._asdict() for finding in found]}))
    else:
        from pump.base.console import console

        out = console()
        for line in [*_lines(found), "", _last(found)]:
            out.print(line)
    return int(any(finding.status == PROBLEM for finding in found))


def examine(virtual: str | None, words: list[str], environ: dict[str, str]) -> list[Finding]:
    """Returns all findings, in the order in which they would affect a job.

    virtual: a profile, or None for a real GPU. words: a command to examine, or [].
    """
    found, answer = _driver(virtual, environ)
    sizes = [d["bytes"] for d in answer["devices"]] if isinstance(answer, dict) else []
    if virtual is None:
        found = [*host.platform(), *found, *switches.mps(environ)]
        found += [host.device_files(), *host.fragmentation(max(sizes))] if sizes else []
    found += host.kernel()
    found += host.daemon()
    found += [host.memory(max(sizes, default=0)), host.address_space()]
    found += switches.findings(environ)
    found += switches.granularity(environ)
    found += switches.queues(environ)
    found += rules.findings(words, environ)
    if words:
        found += target.findings(words, environ)
    return found


def _driver(
    virtual: str | None, environ: dict[str, str]
) -> tuple[list[Finding], dict[str, Any] | str]:
    from pump.cli.run import parts_of

    config = JobConfig(command=["doctor"], virtual=virtual)
    try:
        parts = parts_of(config, environ)
        child = environment.for_job(config, parts, environ)
    except BadInputError as error:
        thing, _, remedy = str(error).partition("; ")
        return [problem("driver", thing, remedy or "change what it names")], str(error)
    answer = probe.ask(child)
    return probe.findings(answer, parts.shim), answer


def _last(found: list[Finding]) -> Text:
    """Returns a line about whether jobs work on this machine."""
    from rich.text import Text

    def names(status: str) -> str:
        return ", ".join(dict.fromkeys(one.name for one in found if one.status == status))

    count = sum(finding.status == PROBLEM for finding in found)
    if count:
        return Text(f"Not ready: {many(count, 'problem')} ({names(PROBLEM)})", "bad")
    warned = names(WARNING)
    return Text(f"Ready, with warnings: {warned}", "warn") if warned else Text("Ready", "good")


def _lines(found: list[Finding]) -> list[Text]:
    """Formats the findings, the worst first. Findings without a problem are printed by name only,
    except DETAILED."""
    lines = []
    for status, style in ((PROBLEM, "bad"), (WARNING, "warn"), (OK, "good")):
        mine = [finding for finding in found if finding.status == status]
        short = [one.name for one in mine if status == OK and not DETAILED.match(one.name)]
        for name, _, text, remedy in mine:
            if name not in short:
                lines.append(_line(status, style, f"{name}: {text}"))
            if remedy and status != OK:
                lines.append(_line("", "", f"  fix: {remedy}"))
        if short:
            lines.append(_line(status, style, ", ".join(dict.fromkeys(short))))
    return lines


def _line(status: str, style: str, text: str) -> Text:
    from rich.text import Text

    return Text.assemble((f"{status:<8} ", style), printable(text))
