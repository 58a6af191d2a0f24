"""Parses the command line of pump-run. Starts nothing.

Other settings come from the environment and from files (pump/config/layers.py).

Options come before the command. The first argument that is not an option, and all arguments after
it, belong to the command. This module itself splits the command line, because argparse cannot
guarantee that rule.
"""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import pump
from pump.base import paths
from pump.base.names import escaped
from pump.cli import lab
from pump.cli.support import environment
from pump.cli.support.lines import BadInputError, OneLineParser, add_value
from pump.config import checks, layers
from pump.config.settings import EVERYDAY, JOB, OUTPUT, QUIETER, SHARING, JobConfig, Option
from pump.config.values import BadValueError

PROGRAM = "pump-run"
USAGE = "pump-run [options] [--] command [argument ...]"
EXAMPLES = (
    "pump-run python train.py",
    "pump-run --budget 20GiB --record run.pump python train.py",
    "pump-run --virtual a100-pcie4 python train.py",
)

EPILOG = """\
Sizes: 4294967296, 4GiB, 1.5G, 800MB; a percentage such as 80%; or a multiple of the
GPU's memory such as 1.5x. If an option is not given, pump-run takes the setting from the
environment (PUMP_BUDGET and so on), --config, ./pump.toml, ~/.config/pump/config.toml or
/etc/pump/config.toml, in this order. These also hold settings that have no option: run
pump config show --origin. PUMP_DISABLE=1 runs the command without pump.
Exit status: the command's own, or 128 + N if signal N ended the command. 2: bad options,
nothing was run. 126: the command cannot be executed. 127: the command was not found."""


class Asked(NamedTuple):
    """The content of a command line.

    `settings`: values of options by field of JobConfig, checked for form.
    `config`: the file of --config, or None.
    Other fields: as in JobConfig.
    """

    command: list[str]
    settings: dict[str, Any]
    config: str | None
    virtual: str | None
    virtual_settings: dict[str, str]

    def job(self) -> JobConfig:
        """Returns the job, with pump's defaults for all settings."""
        return JobConfig(
            command=self.command,
            virtual=self.virtual,
            virtual_settings=self.virtual_settings,
        )

    def resolve(self, environ: Mapping[str, str]) -> layers.Resolved:
        """Returns the settings of all sources; only of the options if pump is disabled. Raises
        BadInputError."""
        places = layers.places(self.config, environ)
        try:
            return layers.resolve(self.settings, environ, places, environment.disabled(environ))
        except layers.ConfigInputError as error:
            raise BadInputError(str(error)) from None


def parse(argv: list[str]) -> Asked:
    """Parses `argv`, without the program's name.

    Raises BadInputError; raises SystemExit(0) after --help or --version.
    """
    made = parser(of_lab=False)
    front, command = _split(argv, {*_options_with_value(made), *lab.OPTIONS})
    words = {word.partition("=")[0] for word in front}
    if of_lab := sorted(words.intersection(lab.OPTIONS)):
        lab.get(of_lab[0])
    if of_lab or words.intersection(("-h", "--help")):
        made = parser()
    asked = made.parse_args(front)
    if not command:
        raise BadInputError(f"no command given; usage: {USAGE}")
    if not command[0]:
        raise BadInputError(f"the command is an empty word; usage: {USAGE}")
    virtual, changes = getattr(asked, "virtual", None), dict(getattr(asked, "virtual_set", ()))
    if virtual is None and changes:
        raise BadInputError("--virtual-set needs a virtual GPU; add --virtual PROFILE")
    return Asked(command, _settings(asked), asked.config, virtual, changes)


def _settings(asked: argparse.Namespace) -> dict[str, Any]:
    if asked.quiet and asked.verbose:
        raise BadInputError("-q and -v contradict each other; give one of them")
    if asked.log_level is None and asked.verbose:
        asked.log_level = "debug" if asked.verbose > 1 else "info"
    said = {key: value for key in JOB if (value := getattr(asked, key)) is not None}
    for key, value in said.items():
        if JOB[key].option.each:
            try:
                said[key] = JOB[key].check(value)
            except BadValueError as error:
                raise BadInputError(f"{JOB[key].option.usage.split()[0]}: {error}") from None
    return said


def parser(*, of_lab: bool = True) -> OneLineParser:
    """Returns the parser of the options, without the command. of_lab: whether to include the
    laboratory's options, if the laboratory is installed."""
    found = lab.find() if of_lab else None
    made = OneLineParser(
        prog=PROGRAM,
        usage=USAGE,
        description="Run a CUDA program that needs more memory than its GPU has.",
        epilog=EPILOG,
        examples=[line for line in EXAMPLES if found or lab.OPTIONS[0] not in line],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    everyday, sharing, output = map(made.add_argument_group, (EVERYDAY, SHARING, OUTPUT))
    _add(everyday, EVERYDAY)
    add_value(
        everyday,
        "--config FILE",
        checks.file_name,
        "read settings from FILE before the folder's, the user's and the system's files",
    )
    everyday.add_argument(
        "--version", action="version", version=f"pump {pump.__version__}", help="print the version"
    )
    everyday.add_argument("-h", "--help", action="help", help="print this help")
    _add(sharing, SHARING)
    _add(output, OUTPUT)
    output.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="log what pump decides and why; -vv: log details for developers",
    )
    _add(output, QUIETER)
    if found:
        found.options(made.add_argument_group("without a GPU"))
    # Options of version 0.1. Later versions have the settings only in files and variables.
    _add(made, "")
    made.add_argument(
        "--no-duplicates",
        action="store_const",
        const="off",
        dest="duplicates",
        help=argparse.SUPPRESS,
    )
    made.add_argument("--virtual-runtime", action="store_true", help=argparse.SUPPRESS)  # no effect
    return made


def _add(to: argparse._ActionsContainer, group: str) -> None:
    """Adds the options of the settings in a group."""
    for key, setting in JOB.items():
        option = setting.option
        if not option.usage or option.group != group:
            continue
        text = option.help.format(default=setting.default) or argparse.SUPPRESS
        more: dict[str, Any] = {"dest": key, "action": option.action}
        if option.action == "store_const":
            to.add_argument(*option.usage.split(), const=True, help=text, **more)
        else:
            add_value(to, option.usage, partial(_value, key, option), text, **more)


def _value(key: str, option: Option, text: str) -> object:
    """Converts the value of an option. Raises BadValueError."""
    value: Any = (option.each or JOB[key].check)(text)
    return WRITABLE[key](value) if key in WRITABLE else value


def _options_with_value(parser: argparse.ArgumentParser) -> set[str]:
    return {
        option
        for action in parser._actions
        for option in action.option_strings
        if action.nargs is None and action.metavar is not None
    }


def _split(argv: list[str], with_value: set[str]) -> tuple[list[str], list[str]]:
    position = 0
    while position < len(argv):
        word = argv[position]
        if word == "--":
            return argv[:position], argv[position + 1 :]
        if not word.startswith("-") or word == "-":
            return argv[:position], argv[position:]
        position += 2 if word in with_value else 1
    return argv, []


def writable_log(path: str) -> str:
    """Returns `path`, and creates the file if needed. Raises BadValueError if it is not writable.

    Lines for a pipe without a reader are lost: pump-run does not wait for a reader.
    """
    if paths.is_pipe(path):
        return path
    try:
        os.close(paths.open_log(path))
    except OSError as error:
        raise BadValueError(f"cannot write to '{escaped(path)}': {error.strerror}") from None
    return path


def writable_record(path: str) -> str:
    """Returns `path` if a recording may be written there. Creates nothing, because the command may
    not start. Raises BadValueError."""
    from pump.base import outputs  # only needed for recordings

    try:
        there = outputs.examine(path, outputs.RECORDING)
        target = path if there else os.path.dirname(path)
        os.stat(target)
        if not os.access(target, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise BadValueError(f"cannot write to '{escaped(path)}': {error.strerror}") from None
    return path


WRITABLE = {"log_file": writable_log, "record": writable_record}
"""Checks of the settings that name an output file."""
