"""Parses the command line of pump-run. Starts nothing.

Settings without an option come from the environment and from files (pump/config/layers.py).

Options stand before the command. From the first word that is no option, all words belong to
the command. argparse alone cannot guarantee that, so the line is split before argparse parses
the first part.
"""

from __future__ import annotations

import argparse
import errno
import os
from typing import Any, NamedTuple

import pump
from pump import paths
from pump.cli.support.lines import BadInputError, Once, OneLineParser
from pump.config import checks, keep
from pump.config.job import (
    DEFAULT_DUPLICATES,
    DEFAULT_GRANULARITY,
    DEFAULT_LOG_LEVEL,
    DEFAULT_POLICY,
    DEFAULT_PRIORITY,
    DEFAULT_REPORT,
    DUPLICATES,
    LOG_LEVELS,
    POLICIES,
    REPORTS,
    JobConfig,
)
from pump.config.values import BadValueError
from pump.names import escaped

USAGE = "pump-run [options] [--] command [argument ...]"

EPILOG = """\
Sizes: 4294967296, 4GiB, 1.5G, 800MB; a percentage such as 80%; or a multiple of the
GPU's memory such as 1.5x. What no option says is looked for in the environment
(PUMP_BUDGET and so on), --config, ./pump.toml, ~/.config/pump/config.toml and
/etc/pump/config.toml, in this order (pump config show --origin).
PUMP_DISABLE=1 in the environment runs the command without pump.
The command's exit status and signals are passed on; 2: bad options,
126: command cannot be executed, 127: command not found."""


class Asked(NamedTuple):
    """The content of a command line.

    settings: by field of JobConfig, those with an option, checked for form.
    config: the file that --config names, None without.
    The rest: as in JobConfig.
    """

    command: list[str]
    settings: dict[str, Any]
    config: str | None
    virtual: str | None
    virtual_settings: dict[str, str]
    virtual_runtime: bool

    def job(self) -> JobConfig:
        """The job, with pump's defaults for all settings."""
        return JobConfig(
            command=self.command,
            virtual=self.virtual,
            virtual_settings=self.virtual_settings,
            virtual_runtime=self.virtual_runtime,
        )


def parse(argv: list[str]) -> Asked:
    """Parse `argv`, without the program's name.

    Raises BadInputError; raises SystemExit(0) after --help or --version.
    """
    parser = _parser()
    front, command = _split(argv, _options_with_value(parser))
    asked = parser.parse_args(front)
    if not command:
        raise BadInputError(f"no command given; usage: {USAGE}")
    if not command[0]:
        raise BadInputError(f"the command is an empty word; usage: {USAGE}")
    if asked.virtual is None and asked.virtual_set:
        raise BadInputError("--virtual-set needs a virtual GPU; add --virtual PROFILE")
    if asked.virtual is None and asked.virtual_runtime:
        raise BadInputError("--virtual-runtime needs a virtual GPU; add --virtual PROFILE")
    return Asked(
        command,
        _settings(asked),
        asked.config,
        asked.virtual,
        dict(asked.virtual_set),
        asked.virtual_runtime,
    )


def _settings(asked: argparse.Namespace) -> dict[str, Any]:
    if asked.quiet and asked.v:
        raise BadInputError("-q and -v contradict each other; give one of them")
    if asked.log_level is None and asked.v:
        asked.log_level = "debug" if asked.v > 1 else "info"
    if asked.keep_device is not None:
        try:
            asked.keep_device = keep.combine(asked.keep_device)
        except BadValueError as error:
            raise BadInputError(f"--keep-device: {error}") from None
    said = vars(asked)
    return {key: said[key] for key in checks.JOB if said[key] is not None}


def parser() -> argparse.ArgumentParser:
    """The parser of the options alone, from which the manual page is made."""
    return _parser()


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="pump-run",
        usage=USAGE,
        description="Run a CUDA program that needs more memory than its GPU has.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    value, add = parser.value, parser.add_argument
    value(
        "--config FILE",
        checks.file_name,
        "read settings from FILE, before ./pump.toml and the user's and system's files",
    )
    value(
        "--name NAME",
        checks.name,
        "what the job is called in pump jobs and pump top (default: its script's name)",
    )
    value(
        "--priority N",
        checks.priority,
        f"-10 to 10: what the system service shares GPUs by (default: {DEFAULT_PRIORITY})",
    )
    value(
        "--budget SIZE",
        checks.amount,
        "GPU memory that each process may keep resident on each GPU (default: what is free)",
    )
    value(
        "--limit SIZE",
        checks.amount,
        "memory that all processes of the job together may convert (default: the host's headroom)",
    )
    value(
        "--report NAME",
        checks.report,
        f"the free memory that CUDA reports to the program: what is left of "
        f"{' or '.join(REPORTS)} (default: {DEFAULT_REPORT})",
    )
    value(
        "--policy NAME",
        checks.policy,
        f"{' or '.join(POLICIES)} (default: {DEFAULT_POLICY})",
        action=Once,
    )
    value(
        "--duplicates WHEN",
        checks.duplicates,
        f"{', '.join(DUPLICATES)}: whether memory that was only read leaves the GPU without a "
        f"copy, where policy window serves the job (default: {DEFAULT_DUPLICATES}, where the "
        "virtual GPU's profile says that it pays)",
    )
    add(
        "--no-duplicates",
        action="store_const",
        const="off",
        dest="duplicates",
        help="same as --duplicates off",
    )
    value(
        "--granularity NAME",
        checks.granularity,
        "native: leave allocators alone; tensor: make frameworks allocate each tensor in "
        "stream order; auto: for each framework where no known conflict prevents it "
        f"(default: {DEFAULT_GRANULARITY})",
    )
    value(
        "--keep-device RULE",
        keep.parse,
        "what stays device memory, beside NCCL's, NVSHMEM's and UCX's: below=SIZE, "
        "library=NAME, ipc, stream-ordered or vmm; none: not even those; may be repeated",
        action="append",
    )
    value(
        "--device LIST",
        checks.devices,
        "GPUs by index (as nvidia-smi counts) or UUID, separated by commas",
        dest="devices",
    )
    value(
        "--virtual PROFILE",
        _not_empty,
        "run on the virtual GPU: a profile's name (see pump profiles) or a .toml file",
    )
    value(
        "--virtual-set KEY=VALUE",
        _setting,
        "change the profile, e.g. memory=8GiB or mode=compute; may be repeated",
        action="append",
        default=[],
    )
    add(
        "--virtual-runtime",
        action="store_true",
        help="put pump's stand-ins in the place of CUDA's runtime and cuBLAS, as PyTorch needs it",
    )
    value(
        "--log-level LEVEL",
        checks.log_level,
        f"{', '.join(LOG_LEVELS)} (default: {DEFAULT_LOG_LEVEL})",
    )
    value("--log-file FILE", _log_file, "append log lines to FILE")
    value(
        "--record FILE",
        _record_file,
        "record what the program asks of the GPU; an older recording in FILE is replaced "
        "when the new one is whole (pump trace info)",
    )
    value(
        "--record-command yes|no",
        checks.truth,
        "whether the recording holds command lines (default: yes)",
    )
    value(
        "--keep-learned yes|no",
        checks.truth,
        "whether what policy planned learns of the program is kept for its next run, in "
        "~/.cache/pump/learned (default: yes)",
    )
    add("-v", action="count", default=0, help="same as --log-level info; -vv: debug")
    add(
        "-q",
        "--quiet",
        action="store_const",
        const=True,
        help="print pump's errors alone: no notes, no warnings, no last line",
    )
    add("--version", action="version", version=f"pump {pump.__version__}", help="show the version")
    add("-h", "--help", action="help", help="show this text")
    return parser


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


def _not_empty(text: str) -> str:
    if not text.strip():
        raise BadValueError("the name is empty; see pump profiles")
    return text


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise BadValueError(f"'{text}' is not KEY=VALUE; write for instance memory=8GiB")
    return key.strip(), value.strip()


def _log_file(text: str) -> str:
    return writable_log(checks.file_name(text))


def _record_file(text: str) -> str:
    return writable_record(checks.file_name(text))


def writable_log(path: str) -> str:
    """`path`; the file is made if there is none. Raises BadValueError where it cannot be written.

    Lines for a pipe without a reader are lost: pump-run does not wait for one.
    """
    if paths.is_pipe(path):
        return path
    try:
        os.close(paths.open_log(path))
    except OSError as error:
        raise BadValueError(f"cannot write to '{escaped(path)}': {error.strerror}") from None
    return path


def writable_record(path: str) -> str:
    """`path`, if a recording may be written there. Makes nothing: the command may not start.
    Raises BadValueError."""
    from pump import outputs  # only where something is recorded

    try:
        there = outputs.look(path, outputs.RECORDING)
        target = path if there else os.path.dirname(path)
        os.stat(target)
        if not os.access(target, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise BadValueError(f"cannot write to '{escaped(path)}': {error.strerror}") from None
    return path
