"""The command pump: one module for each verb.

A verb's module has HELP (one line), EXAMPLES (commands), `options(parser)` and
`run(asked) -> exit status`. Only the module of the requested verb is imported, unless the list of
verbs is printed.

EXIT STATUS
  The same for all verbs. In all other cases, `run` returns the exit status of its command.
    0:         Success; or the answer is yes.
    1:         A negative answer, or the output could not be written.
    2:         Bad input, or a broken installation. One line names the cause and the remedy.
    126, 127:  Only `run`: the command cannot be executed, or was not found, as in shells.
    128 + N:   Signal N ended the verb early; 130 is Ctrl-C.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, Protocol, cast

import pump
from pump.base.paths import MissingFileError
from pump.cli import lab
from pump.cli.support.lines import BadInputError, OneLineParser, say
from pump.config.values import nearest

PROGRAM = "pump"
GROUPS = {
    "everyday": {
        "run": "pump.cli.run",
        "compare": "pump.cli.compare",
        "fit": "pump.cli.fit",
        "top": "pump.cli.top",
        "jobs": "pump.cli.jobs",
        "report": "pump.cli.report",
        "doctor": "pump.cli.doctor",
        "config": "pump.cli.config",
        "explain": "pump.cli.explain",
    },
    "administrators": {
        "enable": "pump.cli.enable",
        "disable": "pump.cli.disable",
        "service install": "pump.cli.service.install",
        "service uninstall": "pump.cli.service.uninstall",
        "service metrics": "pump.cli.metrics",
        "install kernel": "pump.cli.install.kernel",
        "install cdi": "pump.cli.install.cdi",
        "install completion": "pump.cli.install.completion",
    },
    "development": {
        "trace": "pump.cli.trace",
    },
}
"""The verbs and their modules, in the groups and the order of pump --help, without the
laboratory's verbs."""
VERBS = {name: module for group in GROUPS.values() for name, module in group.items()}
HELP = {
    "": "Run CUDA programs that need more memory than the GPU has, and see how they fare.",
    "service": "the service that shares GPUs between jobs: install, uninstall, metrics",
    "install": "a Jupyter kernel, a container specification, shell completions",
}
"""Descriptions of pump itself and of the words that have verbs below them."""
RENAMED = {
    "cdi generate": "install cdi",
    "install-service": "service install",
    "kernel install": "install kernel",
    "kernel remove": "install kernel --remove",
    "metrics": "service metrics",
    "profiles from-probe": "simulate --profile-from",
    "profiles": "simulate --profiles",
    "uninstall-service": "service uninstall",
}
"""New names by old name. Version 0.1 is the last version that accepts the old names."""


class Verb(Protocol):
    """The interface of a verb's module."""

    HELP: str
    EXAMPLES: Sequence[str]

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Adds the verb's options to its parser."""

    def run(self, asked: argparse.Namespace) -> int:
        """Runs the verb; returns its exit status. Raises BadInputError."""


def main() -> int:
    """Runs the command pump; returns the exit status."""
    try:
        status = _run(sys.argv[1:])
        if sys.stdout is not None:  # None if closed
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
    """Redirects stdout to /dev/null, so that Python's flush at exit does not print an error."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def groups() -> dict[str, Mapping[str, str]]:
    """Returns GROUPS, with the verbs of the laboratory in the last group."""
    found = lab.find()
    return {**GROUPS, "development": {**GROUPS["development"], **(found.verbs if found else {})}}


def verbs() -> dict[str, str]:
    """Returns the modules of all verbs."""
    return {name: module for group in groups().values() for name, module in group.items()}


def _run(words: list[str]) -> int:
    name, words = _find("", _renamed(words))
    if name == "run":
        from pump.cli import run

        return run.main(words)
    return _module(name).run(verb_parser(name).parse_args(words))


def _renamed(words: list[str]) -> list[str]:
    """Replaces an old name by the new one, and prints the new name."""
    for count in (2, 1):
        old = " ".join(words[:count])
        if old in RENAMED:
            say(PROGRAM, f"'pump {old}' is now 'pump {RENAMED[old]}'; use the new name")
            return [*RENAMED[old].split(), *words[count:]]
    return words


def _find(above: str, words: list[str], known: Mapping[str, str] = VERBS) -> tuple[str, list[str]]:
    """Returns the verb that the first words name, and the other words. Prints help or the version
    on request. Loads the laboratory only if pump itself has no such verb."""
    if above in known:
        return above, words
    if not words or words[0].startswith("-"):
        list_parser(above, listed=words[:1] in (["-h"], ["--help"])).parse_args(words)
        _unknown("no verb given", above)
    below = verbs_below(above, known)
    if words[0] not in below and known is VERBS:
        return _find(above, words, verbs())
    if words[0] not in below:
        _unknown(f"unknown verb '{words[0]}'{nearest(words[0], below)}", above)
    return _find(f"{above} {words[0]}".strip(), words[1:], known)


def _unknown(problem: str, above: str) -> NoReturn:
    program = f"{PROGRAM} {above}".strip()
    raise BadInputError(f"{problem}; {program} knows: {', '.join(verbs_below(above))}")


def verbs_below(above: str, known: Mapping[str, str] | None = None) -> list[str]:
    """Returns the verbs below "service" or "install", or of pump for "". known: all verbs by
    default."""
    prefix = f"{above} " if above else ""
    names = verbs() if known is None else known
    return first_words(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def verb_help(name: str) -> str:
    """Returns one line about a verb, or about a word that has verbs below it."""
    return HELP[name] if name in HELP else _module(name).HELP


def verb_parser(name: str) -> OneLineParser:
    """Returns the parser of a verb."""
    if name == "run":
        from pump.cli.support import options

        return options.parser()
    verb = _module(name)
    parser = OneLineParser(
        prog=f"{PROGRAM} {name}", description=verb.HELP, examples=verb.EXAMPLES, allow_abbrev=False
    )
    verb.options(parser)
    return parser


def list_parser(above: str, *, listed: bool) -> OneLineParser:
    """Returns the parser of pump without a verb. listed: whether to print its help, with all
    verbs."""
    program = f"{PROGRAM} {above}".strip()
    parser = OneLineParser(
        prog=program,
        usage=f"{program} [-h] {'' if above else '[--version] '}verb [argument ...]",
        description=HELP[above],
        epilog="\n".join(_listed(above)) if listed else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if not above:
        version = f"pump {pump.__version__}"
        parser.add_argument(
            "--version", action="version", version=version, help="print the version"
        )
    return parser


def _listed(above: str) -> list[str]:
    lines: list[str] = []
    listed = {"verbs": verbs_below(above)} if above else groups()
    for group, names in listed.items():
        lines += [f"{group}:"]
        for name in first_words(names):
            lines += [f"  {name:<11} {verb_help(f'{above} {name}'.strip())}"]
        lines += [""]
    program = f"{PROGRAM} {above}".strip()
    return [*lines, f"{program} VERB --help explains a verb, with an example."]


def first_words(names: Iterable[str]) -> list[str]:
    """Returns the distinct first words of verbs."""
    return list(dict.fromkeys(name.split()[0] for name in names))


def _module(name: str) -> Verb:
    return cast(Verb, importlib.import_module(VERBS.get(name) or verbs()[name]))
