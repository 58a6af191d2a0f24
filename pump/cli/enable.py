"""pump enable: serves programs without pump-run. Compiles the rules of jobs.d and writes the files
that preload the shim. Starts nothing."""

from __future__ import annotations

import argparse
import os

from pump.cli.support import enabling, service_files
from pump.cli.support.lines import BadInputError
from pump.cli.support.service_files import below
from pump.config import job_rules
from pump.report.words import many

HELP = "serve programs that match rules, without pump-run"
EXAMPLES = ("pump enable", "sudo pump enable --machine")


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    add = parser.add_argument
    add("--machine", action="store_true", help="for all users of the machine (as root)")
    add("--root", metavar="DIR", default="", help="write below DIR instead of / (for packagers)")
    add(
        "--pumpd",
        metavar="PATH",
        default="",
        help="the pumpd to start (default: this one)",
    )


def run(asked: argparse.Namespace) -> int:
    """Writes the files; prints their names and the next steps. Raises BadInputError; each file is
    then unchanged or complete."""
    environ = dict(os.environ)
    at = enabling.places(environ, machine=asked.machine)
    texts = enabling.texts(at, service_files.pumpd_command(asked.pumpd))
    rules = _rules(below(asked.root, at.rules), environ, machine=asked.machine)
    try:
        texts = {at.compiled: job_rules.compiled(rules), **texts}
    except job_rules.RuleError as error:
        raise BadInputError(str(error)) from None
    for path in (below(asked.root, one) for one in texts):
        if os.path.lexists(path) and not enabling.is_ours(path):
            raise BadInputError(f"{path} already exists, but pump did not write it; move it away")
    for path, text in texts.items():
        service_files.write(below(asked.root, path), text, asked.root)
        print(f"written  {below(asked.root, path)}")
    print(f"rules    {many(len(rules), 'rule')} of {at.rules}")
    for rule in rules:
        print(f"         {rule.name}")
    if not rules:
        print(f"         none: no program is served; write one, such as {at.rules}/training.toml")
    if not asked.root:
        _print_next(at, machine=asked.machine)
    return 0


def _rules(folder: str, environ: dict[str, str], *, machine: bool) -> list[job_rules.Rule]:
    try:
        return job_rules.load(folder, environ, machine=machine)
    except job_rules.RuleError as error:
        more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
        raise BadInputError(f"{error}{more}") from None


def _print_next(at: enabling.Places, *, machine: bool) -> None:
    print("next:")
    if machine:
        print("    systemctl --global enable pump-jobs.socket")
        print("    # applies to new sessions")
        return
    print(f"    {service_files.systemctl('daemon-reload', user=True)}")
    print(f"    {service_files.systemctl('enable', '--now', 'pump-jobs.socket', user=True)}")
    print(f"    {enabling.source_line(at)}    # this shell; add the line to ~/.profile for others")
    print("    pump doctor -- COMMAND    # shows which rule matches a command")
