"""pump doctor: checks whether pump works on this machine, and why not.

One line for each finding: ok, warning or problem; the last line says whether all is ready. It
starts one process that loads driver and shim as a job would. It reads the file of a command that
is named and does not run it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from pump import schemas
from pump.cli.doctor import host, probe, rules, switches, target
from pump.cli.doctor.finding import OK, PROBLEM, WARNING, Finding, problem
from pump.cli.support import environment
from pump.cli.support.lines import BadInputError
from pump.config.job import JobConfig
from pump.report.words import many

HELP = "check that pump works on this machine: driver, memory, permissions"
EXAMPLES = ("pump doctor", "pump doctor -- python train.py")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--virtual", metavar="PROFILE", help="check for a virtual GPU instead")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="[--] command: can pump serve it?",
    )


def run(asked: argparse.Namespace) -> int:
    """Print the findings. Status 1 when one of them is a problem."""
    words = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    found = examine(asked.virtual, words, dict(os.environ))
    if asked.json:
        print(schemas.dump("doctor", {"findings": [finding._asdict() for finding in found]}))
    else:
        print("\n".join([*_lines(found), "", _last(found)]))
    return int(any(finding.status == PROBLEM for finding in found))


def examine(virtual: str | None, words: list[str], environ: dict[str, str]) -> list[Finding]:
    """All findings, in the order in which a job would meet them.

    virtual: a profile, or None for a real GPU. words: a command to examine, or none.
    """
    found, answer = _driver(virtual, environ)
    sizes = [d["bytes"] for d in answer["devices"]] if isinstance(answer, dict) else []
    if virtual is None:
        found = [*host.platform(), *found, *switches.mps(environ)]
        found += [host.device_files()] if sizes else []
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


def _last(found: list[Finding]) -> str:
    """Whether jobs run as promised here, in one line."""

    def names(status: str) -> str:
        return ", ".join(dict.fromkeys(one.name for one in found if one.status == status))

    count = sum(finding.status == PROBLEM for finding in found)
    if count:
        return f"not ready: {many(count, 'problem')} in the way: {names(PROBLEM)}"
    warned = names(WARNING)
    return f"ready; may cost speed or memory: {warned}" if warned else "ready"


def _lines(found: list[Finding]) -> list[str]:
    lines = []
    for finding in found:
        remedy = f"; remedy: {finding.remedy}" if finding.status != OK else ""
        lines.append(f"{finding.status:<8} {finding.name:<14} {finding.text}{remedy}")
    return lines
