"""Messages of the commands: one line on stderr. Standard output belongs to the job."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pump.config.values import BadValueError
from pump.names import one_line, quoted

if TYPE_CHECKING:
    from pump.outputs import Kind

T = TypeVar("T")


class BadInputError(Exception):
    """A request cannot be carried out. One line: the cause, then the remedy. status: of exit."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status


class OneLineParser(argparse.ArgumentParser):
    """argparse without its usage block: an error is a BadInputError, one line."""

    def error(self, message: str) -> NoReturn:
        """Raises BadInputError, where argparse would print its usage and exit."""
        raise BadInputError(message.removeprefix("argument "))

    def value(self, usage: str, check: Callable[[str], object], text: str, **more: Any) -> None:
        """Add an option, "--name METAVAR"; `check` converts its value or raises BadValueError."""
        option, metavar = usage.split()
        self.add_argument(option, metavar=metavar, type=checked(check), help=text, **more)


def checked(convert: Callable[[str], T]) -> Callable[[str], T]:
    """`convert` for use as argparse's `type`: its BadValueError becomes the ArgumentTypeError of
    argparse, with the same text."""

    def converter(text: str) -> T:
        try:
            return convert(text)
        except BadValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converter


def save(path: str, text: str, kind: Kind, option: str = "", status: int = 2) -> None:
    """Write `text` to the file at `path` (outputs.write). Raises BadInputError with this exit
    status. option: that names the file, for the message."""
    from pump import outputs  # pump-run writes no such file

    try:
        outputs.write(path, text, kind)
    except OSError as error:
        what = f"{option}: " if option else ""
        raise BadInputError(
            f"{what}cannot write to {quoted(path)}: {error.strerror}", status
        ) from None


def say(program: str, text: str) -> None:
    """Write one line to stderr; nothing when stderr is closed."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{program}: {one_line(text)}\n")
            sys.stderr.flush()
