"""How the commands speak: one line on stderr. Standard output belongs to the job."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pump.config.values import BadValueError
from pump.names import one_line

T = TypeVar("T")


class BadInputError(Exception):
    """What was asked cannot be done. One line: the thing, then the remedy."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status


class OneLineParser(argparse.ArgumentParser):
    """argparse without its usage block: an error is a BadInputError, one line."""

    def error(self, message: str) -> NoReturn:
        raise BadInputError(message.removeprefix("argument "))

    def value(self, usage: str, check: Callable[[str], object], text: str, **more: Any) -> None:
        """Add an option, "--name METAVAR"; `check` converts its value or raises BadValueError."""
        option, metavar = usage.split()
        self.add_argument(option, metavar=metavar, type=checked(check), help=text, **more)


def checked(convert: Callable[[str], T]) -> Callable[[str], T]:
    """`convert` for use as argparse's `type`: the text of its BadValueError is kept."""

    def converter(text: str) -> T:
        try:
            return convert(text)
        except BadValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converter


def say(program: str, text: str) -> None:
    """One line on stderr; nothing at all when stderr is closed."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{program}: {one_line(text)}\n")
            sys.stderr.flush()
