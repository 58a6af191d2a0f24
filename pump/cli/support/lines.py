"""Prints messages of the commands: one line on stderr. Standard output belongs to the job."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pump.base.names import one_line, quoted
from pump.config.values import BadValueError, nearest

if TYPE_CHECKING:
    from pump.base.outputs import Kind

T = TypeVar("T")


class BadInputError(Exception):
    """A refused request. One line: the cause, then the remedy. status: the exit status."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status


class Once(argparse.Action):
    """Stores the value of an option. Refuses a second value, which would silently win."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not self.default:
            parser.error(f"{option_string} is given twice; give it once")
        setattr(namespace, self.dest, values)


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports an error as one line (BadInputError), without argparse's usage block.
    examples: commands at the end of the help text."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.register("action", "once", Once)
        self.examples = examples

    def format_help(self) -> str:
        """Returns the help text, with the examples."""
        if not self.examples:
            return super().format_help()
        title = "example" if len(self.examples) == 1 else "examples"
        lines = "".join(f"  {example}\n" for example in self.examples)
        return f"{super().format_help()}\n{title}:\n{lines}"

    def error(self, message: str) -> NoReturn:
        """Raises BadInputError. The base class would print its usage and exit."""
        raise BadInputError(message.removeprefix("argument "))

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses like argparse, but raises BadInputError for an unknown argument, with the nearest
        option. Parsers of verbs inside a verb do the same."""
        asked, unknown = super().parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            if not word.startswith("-"):
                raise BadInputError(f"unexpected argument '{unknown[0]}'; see {self.prog} --help")
            shown = [a for a in self._actions if a.help != argparse.SUPPRESS]
            known = sorted(o for a in shown for o in a.option_strings if o.startswith("--"))
            hint = nearest(word, known)
            raise BadInputError(f"unknown option '{word}'{hint}; see {self.prog} --help")
        return asked, unknown


def take_options_as_words(parser: argparse.ArgumentParser) -> None:
    """Lets the parser's positional arguments take options that it does not know."""
    parser._negative_number_matcher = re.compile("-")  # a match is not an option


def add_value(
    to: argparse._ActionsContainer,
    usage: str,
    check: Callable[[str], object],
    text: str,
    **more: Any,
) -> None:
    """Adds an option, "--name METAVAR", to a parser or to one of its groups. `check` converts the
    value or raises BadValueError."""
    option, metavar = usage.split()
    to.add_argument(option, metavar=metavar, type=checked(check), help=text, **more)


def checked(convert: Callable[[str], T]) -> Callable[[str], T]:
    """Returns `convert` for use as argparse's `type`: raises argparse's ArgumentTypeError instead
    of BadValueError, with the same text."""

    def converter(text: str) -> T:
        try:
            return convert(text)
        except BadValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converter


def save(
    path: str,
    text: str,
    kind: Kind,
    option: str = "",
    *,
    sources: Sequence[str] = (),
    mode: int | None = None,
) -> None:
    """Writes a result to the file at `path` (sources, mode: as in outputs.write). option: the
    option that names the file, for messages. Raises BadInputError with status 1."""
    from pump.base import outputs  # pump-run does not need it

    with writing(path, option, 1):
        outputs.write(path, text, kind, mode, sources)


@contextlib.contextmanager
def writing(path: str, option: str, status: int = 2) -> Iterator[None]:
    """Turns an OSError of the block, which writes to `path`, into BadInputError. option: as in
    `save`."""
    try:
        yield
    except OSError as error:
        what = f"{option}: " if option else ""
        text = f"{what}cannot write to {quoted(path)}: {error.strerror}"
        raise BadInputError(text, status) from None


def say(program: str, text: str) -> None:
    """Writes one line to stderr, unless stderr is closed."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{program}: {one_line(text)}\n")
            sys.stderr.flush()
