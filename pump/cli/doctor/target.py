"""Checks whether pump-run can intercept a command. Reads the command's file, runs nothing."""

from __future__ import annotations

import os
import shlex
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from pump.base import inputs
from pump.cli.doctor.finding import OK, Finding, ok, problem, warning
from pump.cli.doctor.starters import Started, started
from pump.cli.support import command
from pump.cli.support.lines import BadInputError

# Their programs do not inherit the environment, or run on another machine.
ELSEWHERE = (
    *("docker", "podman", "nerdctl", "kubectl", "flatpak", "ssh", "systemd-run", "sbatch"),
    *("sudo", "su", "doas", "pkexec"),
)
STARTERS_MOST = 8  # commands that start another command
SCRIPTS_MOST = 4  # interpreters that are scripts
PT_INTERP = 3
PROGRAM_HEADER_BYTES = 56
INTERPRETER_BYTES_MOST = 4096


def findings(words: Sequence[str], environ: Mapping[str, str]) -> list[Finding]:
    """Returns at least one finding on the command `words`."""
    return [_check_command(Started(list(words), dict(environ)), STARTERS_MOST)]


def _check_command(asked: Started, starters: int) -> Finding:
    """Returns the first finding that is not ok, on a command or a command that it starts."""
    words, environ, lost = asked
    if lost:
        remedy = f"start pump-run inside it: pump-run {shlex.join(words)}"
        return problem("command", f"{lost}: {words[0]} runs without pump", remedy)
    try:
        path = command.find(words[0], environ)
    except BadInputError as error:
        return problem("command", str(error), "name an executable program")
    name = os.path.basename(path)
    if name in ELSEWHERE:
        rest = shlex.join(words[-2:]) if len(words) > 1 else "command"
        remedy = f"start pump-run inside it: {name} ... pump-run {rest}"
        return problem("command", f"{name} does not pass on its environment", remedy)
    found = _check_file(os.path.realpath(path), environ, SCRIPTS_MOST)
    for inner in started(words, environ) if starters else ():
        if found.status != OK:
            break
        found = _check_command(inner, starters - 1)
    return found


def _check_file(path: str, environ: Mapping[str, str], scripts: int) -> Finding:
    try:
        with inputs.opened(path) as file:
            start = file.read(4096)
            interpreter = _interpreter(file, start)
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        return warning("command", text, "nothing to do if it can be executed")
    if command.privileged(path):
        text = f"{path} is setuid or has capabilities, so the loader preloads nothing into it"
        return problem("command", text, f"run a copy: cp {shlex.quote(path)} .")
    if start.startswith(b"#!"):
        return _check_script(path, start, environ, scripts)
    if not start.startswith(b"\x7fELF"):
        text = f"{path} is not a binary and has no #! line: a shell runs it"
        return ok("command", text)
    return _check_program(path, start, interpreter)


def _check_script(path: str, start: bytes, environ: Mapping[str, str], scripts: int) -> Finding:
    words = start.splitlines()[0][2:].decode(errors="replace").split()
    if words and os.path.basename(words[0]) == "env":
        inner = next(started(words, environ), None)
        if inner is not None and inner.lost:
            remedy = (
                f"change its first line, or pass it to its interpreter: {inner.words[0]} {path}"
            )
            return problem("command", f"{path}: {inner.lost}", remedy)
        words = inner.words if inner is not None else []
    try:
        interpreter = command.find(words[0], environ) if words else ""
    except BadInputError as error:
        return problem("command", f"{path}: {error}", "install its interpreter")
    if not interpreter or scripts == 0:
        return warning("command", f"{path}: no interpreter found", "nothing to do if it runs")
    found = _check_file(os.path.realpath(interpreter), environ, scripts - 1)
    return found._replace(text=f"{path} is a script; {found.text}")


def _check_program(path: str, start: bytes, interpreter: str | None) -> Finding:
    if len(start) < 64 or start[4] != 2:
        text = f"{path} is not a 64-bit program"
        return problem("command", text, "use a 64-bit build")
    machine = struct.unpack_from("<H", start, 18)[0]
    own = {"x86_64": 62, "aarch64": 183}.get(os.uname().machine)
    if own is not None and machine != own:
        text = f"{path} is built for another CPU architecture"
        return problem("command", text, f"use a build for {os.uname().machine}")
    if interpreter is None:
        text = f"{path}: unclear whether it is dynamically linked"
        return warning("command", text, f"nothing to do if it is: file {shlex.quote(path)}")
    if not interpreter:
        text = f"{path} is statically linked, so pump cannot be preloaded into it"
        return problem("command", text, "use a dynamically linked build")
    if "musl" in os.path.basename(interpreter):
        text = f"{path} uses musl: neither pump nor the CUDA driver works there"
        return problem("command", text, "use a build for glibc")
    text = f"{path}: pump intercepts the CUDA calls of this program and its children"
    return ok("command", text)


def _interpreter(file: BinaryIO, start: bytes) -> str | None:
    """Returns the path of a program's loader; "" if the program has none, None if its headers are
    not within `start`."""
    if len(start) < 64 or not start.startswith(b"\x7fELF"):
        return None
    offset = struct.unpack_from("<Q", start, 32)[0]
    size, count = struct.unpack_from("<HH", start, 54)
    if size < PROGRAM_HEADER_BYTES or offset + size * count > len(start):
        return None
    for at in range(offset, offset + size * count, size):
        if struct.unpack_from("<I", start, at)[0] == PT_INTERP:
            place, _, _, length = struct.unpack_from("<4Q", start, at + 8)
            file.seek(min(place, sys.maxsize))
            name = file.read(min(length, INTERPRETER_BYTES_MOST)).rstrip(b"\0")
            return name.decode(errors="replace") or "unnamed"
    return ""
