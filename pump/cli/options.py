"""pump-run's options: from the command line to a JobConfig. Starts nothing.

Options stand before the command; from the first word that is none, all belongs to
the command, whatever it looks like. argparse alone cannot promise that, so the line
is cut in two before argparse sees the front part.
"""

from __future__ import annotations

import argparse
import os

import pump
from pump.cli.lines import BadInputError, OneLineParser, checked
from pump.config import keep
from pump.config.job import (
    DEFAULT_GRANULARITY,
    DEFAULT_LOG_LEVEL,
    DEFAULT_POLICY,
    GRANULARITIES,
    LOG_LEVELS,
    POLICIES,
    JobConfig,
)
from pump.config.values import BadValueError, choose, nearest, parse_share

USAGE = "pump-run [options] [--] command [argument ...]"

EPILOG = """\
Sizes: 4294967296, 4GiB, 1.5G, 800MB, or a percentage such as 80%.
PUMP_DISABLE=1 in the environment runs the command without pump.
The command's exit status and signals are passed on; 2: bad options,
126: command cannot be executed, 127: command not found."""


def parse(argv: list[str]) -> JobConfig:
    """The job that `argv`, without the program's name, asks for.

    Raises BadInputError; raises SystemExit(0) after --help or --version.
    """
    parser = _parser()
    front, command = _split(argv, _options_with_value(parser))
    asked, unknown = parser.parse_known_args(front)
    if unknown:
        option = unknown[0].partition("=")[0]
        known = sorted(o for action in parser._actions for o in action.option_strings)
        hint = nearest(option, [o for o in known if o.startswith("--")])
        raise BadInputError(f"unknown option '{option}'{hint}; see pump-run --help")
    if not command:
        raise BadInputError(f"no command given; usage: {USAGE}")
    if not command[0]:
        raise BadInputError(f"the command is an empty word; usage: {USAGE}")
    if asked.virtual is None and asked.virtual_set:
        raise BadInputError("--virtual-set needs a virtual GPU; add --virtual PROFILE")
    if asked.virtual is None and asked.virtual_runtime:
        raise BadInputError("--virtual-runtime needs a virtual GPU; add --virtual PROFILE")
    level = asked.log_level or ("debug" if asked.v > 1 else "info" if asked.v else None)
    return JobConfig(
        command=command,
        budget=asked.budget or "",
        limit=asked.limit or "",
        policy=asked.policy,
        devices=asked.device,
        virtual=asked.virtual,
        virtual_settings=dict(asked.virtual_set),
        virtual_runtime=asked.virtual_runtime,
        log_level=level or DEFAULT_LOG_LEVEL,
        log_file=asked.log_file or "",
        record=asked.record or "",
        keep_device=_keep(asked.keep_device),
        granularity=asked.granularity,
    )


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="pump-run",
        usage=USAGE,
        description="Run a CUDA program that needs more memory than its GPU has.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    add = parser.add_argument
    add(
        "--budget",
        metavar="SIZE",
        type=checked(parse_share),
        help="GPU memory the program may keep resident (default: what is free)",
    )
    add(
        "--limit",
        metavar="SIZE",
        type=checked(parse_share),
        help="memory the job may convert in all (default: the host's headroom)",
    )
    add(
        "--policy",
        metavar="NAME",
        type=checked(lambda text: choose(text, POLICIES, "policy")),
        default=DEFAULT_POLICY,
        help=f"{' or '.join(POLICIES)} (default: {DEFAULT_POLICY})",
    )
    add(
        "--granularity",
        metavar="NAME",
        type=checked(lambda text: choose(text, GRANULARITIES, "granularity")),
        default=DEFAULT_GRANULARITY,
        help="native: leave allocators alone; tensor: make frameworks allocate each tensor in "
        f"stream order; auto: where that is known to help (default: {DEFAULT_GRANULARITY})",
    )
    add(
        "--keep-device",
        metavar="RULE",
        type=checked(keep.parse),
        action="append",
        default=[],
        help="what stays device memory, beside NCCL's, NVSHMEM's and UCX's: below=SIZE, "
        "library=NAME or ipc; none: not even those; may be repeated",
    )
    add(
        "--device",
        metavar="LIST",
        type=checked(_devices),
        default=[],
        help="GPUs by index (as nvidia-smi counts) or UUID, separated by commas",
    )
    add(
        "--virtual",
        metavar="PROFILE",
        type=checked(_not_empty),
        help="run on the virtual GPU: a profile's name (see pump profiles) or a .toml file",
    )
    add(
        "--virtual-set",
        metavar="KEY=VALUE",
        type=checked(_setting),
        action="append",
        default=[],
        help="change the profile, e.g. memory=8GiB or mode=compute; may be repeated",
    )
    add(
        "--virtual-runtime",
        action="store_true",
        help="put pump's stand-ins in the place of CUDA's runtime and cuBLAS, as PyTorch needs it",
    )
    add(
        "--log-level",
        metavar="LEVEL",
        type=checked(lambda text: choose(text, LOG_LEVELS, "log level")),
        help=f"{', '.join(LOG_LEVELS)} (default: {DEFAULT_LOG_LEVEL})",
    )
    add(
        "--log-file",
        metavar="FILE",
        type=checked(_log_file),
        help="append log lines to FILE",
    )
    add(
        "--record",
        metavar="FILE",
        type=checked(_record_file),
        help="record what the program asks of the GPU, over what FILE holds (pump trace info)",
    )
    add("-v", action="count", default=0, help="same as --log-level info; -vv: debug")
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


def _keep(rules: list[str]) -> list[str]:
    try:
        return keep.combine(rules)
    except BadValueError as error:
        raise BadInputError(str(error)) from None


def _devices(text: str) -> list[str]:
    devices = [device.strip() for device in text.split(",")]
    for device in devices:
        number = device.isascii() and device.isdigit() and len(device) <= 4
        if not number and not device.upper().startswith(("GPU-", "MIG-")):
            raise BadValueError(
                f"'{device}' is no device; write an index such as 0, or a GPU-... UUID"
            )
    if len(set(devices)) != len(devices):
        raise BadValueError(f"'{text}' names a device twice")
    return devices


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise BadValueError(f"'{text}' is not KEY=VALUE; write for instance memory=8GiB")
    return key.strip(), value.strip()


def _log_file(text: str) -> str:
    return _writable(text, os.O_APPEND)


def _record_file(text: str) -> str:
    """Only looks: what an older recording holds is kept until the command is sure to start."""
    if os.path.exists(text) and not os.path.isfile(text) and not os.path.isdir(text):
        raise BadValueError(f"cannot write to '{text}': not a regular file")
    return _writable(text, 0)


def _writable(text: str, flags: int) -> str:
    if not text:
        raise BadValueError("the file name is empty")
    path = os.path.abspath(text)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o666))
    except OSError as error:
        raise BadValueError(f"cannot write to '{text}': {error.strerror}") from None
    except ValueError:
        raise BadValueError("the file name holds a zero byte") from None
    return path
