"""Reads a configuration file (TOML), checks it by the schema, and finds the line of each error.

A pump.toml in the folder where pump-run starts is read without being named. So it must belong to
the user; otherwise another user could control the user's job from a shared folder. Even so, its
text may come from another person (a cloned repository): Setting.folder tells which settings
apply.

Imports msgspec and tomllib: pump-run imports this module only if there is a file.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from pump.base import inputs
from pump.base.names import escaped, one_line, quoted
from pump.config import locate, values
from pump.config.schema import ADMINISTRATORS, CONFIG
from pump.config.settings import Setting, settings
from pump.config.values import BadValueError, nearest

FILE_BYTES_MAX = 64 << 10
LINE_BYTES_MAX = 2048
"""Longest line: tomllib's time grows with the square of a dotted key's length."""
FAULTS_MAX = 20
"""Number of faults after which the rest of a file is not checked."""


class ConfigError(Exception):
    """One line for each fault, with path and line; `str()` is the first line."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(faults[0])
        self.faults = faults


class NotOursError(ConfigError):
    """A file that was not named must not be used. One line gives the reason."""


class FileValues(NamedTuple):
    """The settings of a file.

    `path`: its name in messages. `tables`: values by table and key, in pump's form. `lines`: line
    numbers by path of a key. `content`: the file's bytes.
    """

    path: str
    tables: dict[str, dict[str, Any]]
    lines: dict[tuple[str, ...], int]
    content: bytes

    def origin(self, *path: str) -> str:
        """Returns the file and line of a key, such as "pump.toml:3"."""
        return f"{self.path}:{self.lines.get(path, 1)}"


def load(
    path: str,
    *,
    administrators: bool = False,
    own: bool = False,
    shown: str | None = None,
    schema: Mapping[str, object] = CONFIG,
) -> FileValues | None:
    """Returns the settings of the file at `path`; None if there is no file.

    `administrators`: whether the file may contain the administrator's tables.
    `own`: the file was not named. Raises NotOursError unless it is a regular file of the user or
        of root that not all users may write to.
    `shown`: its name in messages; None: `path`.
    `schema`: the tables that the file may hold.
    Raises ConfigError with all faults that were found.
    """
    shown = shown or path
    data = read(path, own=own, shown=shown)
    if data is None:
        return None
    return parse(data, shown, administrators=administrators, schema=schema)


def read(path: str, *, own: bool, shown: str) -> bytes | None:
    """Returns the bytes of a regular file; None if there is no file.

    own, shown: as in `load`. Raises ConfigError (NotOursError if an own file must not be used).
    """
    refusal = NotOursError if own else ConfigError
    follow = True
    try:
        if own:
            status = os.lstat(path)
            _check_owner(status, shown)  # a link's owner chooses the file
            follow = stat.S_ISLNK(status.st_mode)  # else refuse a link created since lstat
        with inputs.opened(path, follow=follow) as file:
            if own:
                status = os.fstat(file.fileno())
                _check_owner(status, shown)
                _check_access(path, status, shown)
            data = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refusal([f"cannot read {shown}: {error.strerror}"]) from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError([f"{shown} exceeds 64 KiB, the maximum of a configuration file"])
    return data


_REMEDY = "remove it, or name it with --config if you trust it"


def _check_owner(status: os.stat_result, shown: str) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise NotOursError([f"{shown} belongs to user {status.st_uid}, not to you; {_REMEDY}"])


def _check_access(path: str, status: os.stat_result, shown: str) -> None:
    if status.st_mode & stat.S_IWOTH:
        raise NotOursError([f"{shown} can be written by all users; run: chmod o-w {quoted(shown)}"])
    if status.st_nlink > 1:  # another user may have linked a file of the user
        folder = os.stat(os.path.dirname(path) or os.curdir)
        others = folder.st_uid not in (os.geteuid(), 0) or folder.st_mode & 0o022
        if others:
            raise NotOursError(
                [
                    f"{shown} has a second hard link in a folder that other users may write "
                    f"to; {_REMEDY}"
                ]
            )


def parse(
    data: bytes,
    shown: str,
    *,
    administrators: bool,
    schema: Mapping[str, object] = CONFIG,
) -> FileValues:
    """Returns the settings in a file's bytes. Raises ConfigError with all faults."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > LINE_BYTES_MAX:
            raise ConfigError(
                [f"{shown}:{number}: the line exceeds {LINE_BYTES_MAX} bytes; break it"]
            )
    try:
        text = data.decode("utf-8")
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        bad = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{shown}:{bad}: not UTF-8 text"]) from None
    except RecursionError:
        raise ConfigError([f"{shown}: nested too deeply"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax(shown, str(error))]) from None
    lines = locate.lines(text)
    reading = _Reading(shown, lines, schema)
    tables: dict[str, dict[str, Any]] = {}
    for name, table in content.items():
        if reading.full():
            break
        if name in ADMINISTRATORS and not administrators:
            reading.fault((name,), f"only /etc/pump/config.toml may set [{name}]")
        elif name not in schema:
            reading.unknown((name,), list(schema), "table")
        elif not isinstance(table, dict):
            reading.fault((name,), f"{name} is a table; write [{name}]")
        else:
            tables[name] = reading.table(name, table)
    if reading.faults:
        raise ConfigError([line for _, line in sorted(reading.faults)])
    return FileValues(shown, tables, lines, data)


def _syntax(shown: str, message: str) -> str:
    """Returns tomllib's message, "... (at line 3, column 5)", with the line at the beginning."""
    what, _, place = message.partition(" (at ")
    line = place.removeprefix("line ").partition(",")[0]
    return f"{shown}:{line}: {what}" if line.isdigit() else f"{shown}: {message}"


class _Reading:
    """One reading of a file; collects its faults."""

    def __init__(
        self,
        shown: str,
        lines: dict[tuple[str, ...], int],
        schema: Mapping[str, object],
    ) -> None:
        self.shown = shown
        self.schema = schema
        self.lines = lines
        self.faults: list[tuple[int, str]] = []

    def full(self) -> bool:
        """Returns whether FAULTS_MAX faults are found."""
        return len(self.faults) >= FAULTS_MAX

    def fault(self, path: tuple[str, ...], text: str) -> None:
        line = self.lines.get(path) or self.lines.get(path[:1], 1)
        self.faults.append((line, f"{self.shown}:{line}: {one_line(text)}"))

    def unknown(self, path: tuple[str, ...], known: list[str], what: str) -> None:
        hint = nearest(values.shown(path[-1]), known)
        name = values.shown(escaped(".".join(path)))
        self.fault(path, f"unknown {what} '{name}'{hint}; known: {', '.join(sorted(known))}")

    def table(self, name: str, content: dict[str, Any]) -> dict[str, Any]:
        known = settings(self.schema[name])
        if "" in known:
            value = self.value((name,), content, known[""])
            return value if isinstance(value, dict) else {}
        values: dict[str, Any] = {}
        for key, value in content.items():
            if self.full():
                break
            if key not in known:
                self.unknown((name, key), list(known), "key")
            else:
                values[key] = self.value((name, key), value, known[key])
        return values

    def value(self, path: tuple[str, ...], value: object, setting: Setting) -> object:
        """Returns the value in pump's form. If it is invalid, adds a fault and returns None."""
        example = to_toml(setting.example)
        bounds = msgspec.Meta(ge=setting.least, le=setting.most)
        hint = Annotated[setting.kind, bounds]  # type: ignore[name-defined]
        try:
            converted = msgspec.convert(value, hint, strict=True)
        except msgspec.ValidationError as error:
            message = str(error).partition(" - at ")[0]
            message = message[0].lower() + message[1:]
            remedy = f"write for instance {path[-1]} = {example}" if len(path) > 1 else ""
            self.fault(path, f"{'.'.join(path)}: {message}{remedy and f'; {remedy}'}")
            return None
        try:
            return setting.check(converted)
        except BadValueError as error:
            self.fault(path, f"{'.'.join(path)}: {error}")
            return None


def to_toml(value: object) -> str:
    """Formats a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_toml_character(c) for c in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{to_toml(key)} = {to_toml(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return str(value)


def _toml_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
