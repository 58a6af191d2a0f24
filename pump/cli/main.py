"""The command pump: one verb, one file of this folder.

A verb's module has HELP (one line), `options(parser)` and `run(asked) -> exit status`.
Only the module of the verb that was asked for is imported, unless help is wanted.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from typing import Protocol, cast

import pump
from pump.cli.support.lines import BadInputError, OneLineParser, say
from pump.config.values import nearest
from pump.paths import MissingFileError

PROGRAM = "pump"
VERBS = {
    "cdi": "pump.cli.cdi",
    "compare": "pump.cli.compare",
    "config": "pump.cli.config",
    "disable": "pump.cli.disable",
    "doctor": "pump.cli.doctor",
    "enable": "pump.cli.enable",
    "explain": "pump.cli.explain",
    "fit": "pump.cli.fit",
    "install-service": "pump.cli.install_service",
    "jobs": "pump.cli.jobs",
    "kernel": "pump.cli.kernel",
    "metrics": "pump.cli.metrics",
    "profiles": "pump.cli.profiles",
    "report": "pump.cli.report",
    "simulate": "pump.cli.simulate",
    "top": "pump.cli.top",
    "trace": "pump.cli.trace",
    "uninstall-service": "pump.cli.uninstall_service",
}


class Verb(Protocol):
    """A module of this folder that holds a verb."""

    HELP: str

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's options to its parser."""

    def run(self, asked: argparse.Namespace) -> int:
        """Carry out the verb; return its exit status. Raises BadInputError."""


def main() -> int:
    """Entry point. Exit status 2 for bad input or a broken installation, 1 for output that
    no reader takes, 130 after Ctrl-C, else the verb's."""
    try:
        status = _run(sys.argv[1:])
        if sys.stdout is not None:  # None where it was closed
            sys.stdout.flush()
        return status
    except BadInputError as error:
        say(PROGRAM, str(error))
        return error.status
    except MissingFileError as error:
        say(PROGRAM, str(error))
        return 2
    except BrokenPipeError:  # `pump ... | head`: the reader has seen enough
        _abandon_output()
        return 1
    except KeyboardInterrupt:
        _abandon_output()
        return 128 + signal.SIGINT
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _abandon_output()
        say(PROGRAM, f"cannot write all of {error.filename or 'the output'}: {error.strerror}")
        return 1


def _abandon_output() -> None:
    """Else Python would flush the output once more when it ends, and print an error."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    wants_help = bool({"-h", "--help"} & set(words[:1]))
    lines = [f"  {name:<18}{_module(name).HELP}" for name in VERBS if wants_help]
    parser = OneLineParser(
        prog=PROGRAM,
        usage="pump [-h] [--version] verb [argument ...]",
        description="Watch, record, simulate and configure the jobs of pump-run.",
        epilog="\n".join(["verbs:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pump {pump.__version__}")
    if not words or words[0].startswith("-"):
        parser.parse_args(words)
        raise BadInputError(f"no verb given; known: {', '.join(VERBS)}")
    name = words[0]
    if name not in VERBS:
        hint = nearest(name, list(VERBS))
        raise BadInputError(f"unknown verb '{name}'{hint}; known: {', '.join(VERBS)}")
    verb = _module(name)
    verb_parser = OneLineParser(prog=f"{PROGRAM} {name}", description=verb.HELP, allow_abbrev=False)
    verb.options(verb_parser)
    return verb.run(verb_parser.parse_args(words[1:]))


def _module(name: str) -> Verb:
    return cast(Verb, importlib.import_module(VERBS[name]))
