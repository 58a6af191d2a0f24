"""Finds the command that another command starts, and whether it keeps pump's environment."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pump.cli.support import command
from pump.cli.support.lines import BadInputError

SHELLS = ("sh", "ash", "bash", "dash", "ksh", "zsh")
VALUED = {
    "env": ("-C", "--chdir", "-a", "--argv0"),
    "nice": ("-n", "--adjustment"),
    "nohup": (),
    "setsid": (),
    "stdbuf": ("-i", "-o", "-e", "--input", "--output", "--error"),
    "timeout": ("-k", "--kill-after", "-s", "--signal"),
}
"""Programs that become or start the command after their options (coreutils, util-linux), with the
options that take the next argument as their value."""
OPERANDS = {"timeout": 1}
"""Number of positional arguments before the command."""
KEYWORDS = {"!", "{", "do", "elif", "else", "exec", "if", "then", "time", "until", "while"}
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
PRELOAD = "LD_PRELOAD"


class Started(NamedTuple):
    """A command that another command starts. lost: how it loses pump; "" if it keeps pump."""

    words: list[str]
    environ: dict[str, str]
    lost: str = ""


def started(words: Sequence[str], environ: Mapping[str, str]) -> Iterator[Started]:
    """Yields the commands that `words` start, as far as the command line shows. Most commands
    start none."""
    name = os.path.basename(words[0])
    if name in SHELLS:
        yield from _by_shell(words[1:], environ)
    elif name in VALUED:
        yield from _behind_options(name, list(words[1:]), environ)


def _behind_options(name: str, rest: list[str], environ: Mapping[str, str]) -> Iterator[Started]:
    lost = ""
    while rest and (rest[0].startswith("-") or rest[0] in VALUED[name]):
        option = rest.pop(0)
        if option == "--":
            break
        if name == "env":
            lost = lost or _emptied(option, rest)
        if option in VALUED[name]:
            del rest[:1]
    del rest[: OPERANDS.get(name, 0)]
    changed = Started(rest, dict(environ), lost)
    if name == "env":
        changed = _assigned(changed)
    if changed.words:
        yield changed


def _emptied(option: str, rest: list[str]) -> str:
    """Returns how an option of env loses pump, or "". Removes the option's value from `rest`."""
    if option in ("-", "--ignore-environment") or re.fullmatch(r"-[0v]*i[0iv]*", option):
        return f"env {option} empties the environment, and {PRELOAD} with it"
    if option in ("-u", "--unset"):
        option = f"-u{rest.pop(0) if rest else ''}"
    elif option in ("-S", "--split-string"):
        rest[:1] = shlex.split(rest[0]) if rest else []
    if option in (f"-u{PRELOAD}", f"--unset={PRELOAD}"):
        return f"env removes {PRELOAD}"
    return ""


def _assigned(asked: Started) -> Started:
    """Returns the command without its leading variable assignments, which are applied."""
    words, environ, lost = asked
    while words and (found := ASSIGNMENT.match(words[0])):
        name, value = found.groups()
        environ = {**environ, name: value}
        if name == PRELOAD and "libpump.so" not in value and f"${PRELOAD}" not in value:
            lost = lost or f"{PRELOAD}={value} takes the place of pump's"
        elif name == "PUMP_DISABLE" and value not in ("", "0"):
            lost = lost or f"PUMP_DISABLE={value} switches pump off"
        words = words[1:]
    return Started(words, environ, lost)


def _by_shell(rest: Sequence[str], environ: Mapping[str, str]) -> Iterator[Started]:
    """Yields each program that `sh -c TEXT` names, except commands that are built into the shell
    or have computed names."""
    at = next((i for i, word in enumerate(rest) if re.fullmatch(r"-[a-z]*c", word)), None)
    if at is None or at + 1 >= len(rest):
        return
    lexer = shlex.shlex(rest[at + 1], posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote
        return
    kept, lost = dict(environ), ""
    for simple in _simple(words):
        found = _assigned(Started(simple, kept, lost))
        if not found.words:
            kept, lost = found.environ, found.lost
        elif found.words[0] == "export":
            _, kept, lost = _assigned(Started(found.words[1:], kept, lost))
        elif found.words[0] == "unset":
            lost = lost or (f"unset {PRELOAD}" if PRELOAD in found.words else "")
        elif _is_there(found):
            yield found


def _is_there(asked: Started) -> bool:
    try:
        command.find(asked.words[0], asked.environ)
    except BadInputError:
        return False
    return True


def _simple(words: Sequence[str]) -> Iterator[list[str]]:
    simple: list[str] = []
    for word in [*words, ";"]:
        if not word.strip(";&|()\n"):
            if simple:
                yield simple
            simple = []
        elif simple or word not in KEYWORDS:
            simple.append(word)
