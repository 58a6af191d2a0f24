"""Whether pump-run can intercept a command: reads the command's file, runs nothing."""

from __future__ import annotations

import os
import shlex
import struct
from collections.abc import Mapping, Sequence

from pump.cli.doctor.finding import Finding, ok, problem, warning
from pump.cli.support import command
from pump.cli.support.lines import BadInputError

# The programs that they start do not inherit the environment, or run on another machine.
ELSEWHERE = ("docker", "podman", "nerdctl", "kubectl", "ssh", "sudo", "su", "systemd-run", "sbatch")
SCRIPTS_MOST = 4  # interpreters that are scripts themselves
PT_INTERP = 3


def findings(words: Sequence[str], environ: Mapping[str, str]) -> list[Finding]:
    """At least one finding on the command `words`."""
    try:
        path = command.find(words[0], environ)
    except BadInputError as error:
        return [problem("command", str(error), "name a program that can be executed")]
    name = os.path.basename(path)
    if name in ELSEWHERE:
        remedy = f"put pump-run into what {name} starts: {name} ... pump-run {_rest(words)}"
        return [problem("command", f"{name} does not hand its environment on", remedy)]
    return [_file(os.path.realpath(path), environ, SCRIPTS_MOST)]


def _rest(words: Sequence[str]) -> str:
    return shlex.join(words[-2:]) if len(words) > 1 else "command"


def _file(path: str, environ: Mapping[str, str], scripts: int) -> Finding:
    try:
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError as error:
        text = f"{path} cannot be looked at: {error.strerror}"
        return warning("command", text, "none is needed if it can be run")
    if command.privileged(path):
        text = f"{path} has privileges of its own, so the loader preloads nothing into it"
        return problem("command", text, "run a copy without setuid bit and capabilities")
    if start.startswith(b"#!"):
        return _script(path, start, environ, scripts)
    if not start.startswith(b"\x7fELF"):
        text = f"{path} is neither a program nor a script with an interpreter; a shell will run it"
        return ok("command", text)
    return _program(path, start)


def _script(path: str, start: bytes, environ: Mapping[str, str], scripts: int) -> Finding:
    words = start.splitlines()[0][2:].decode(errors="replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    try:
        interpreter = command.find(words[0], environ) if words else ""
    except BadInputError as error:
        return problem("command", f"{path}: {error}", "install its interpreter")
    if not interpreter or scripts == 0:
        return warning("command", f"{path}: no interpreter found", "none is needed if it runs")
    found = _file(os.path.realpath(interpreter), environ, scripts - 1)
    return found._replace(text=f"{path} is a script; {found.text}")


def _program(path: str, start: bytes) -> Finding:
    if len(start) < 64 or start[4] != 2:
        text = f"{path} is no 64-bit program"
        return problem("command", text, "use a 64-bit build of it")
    machine = struct.unpack_from("<H", start, 18)[0]
    own = {"x86_64": 62, "aarch64": 183}.get(os.uname().machine)
    if own is not None and machine != own:
        text = f"{path} is built for another kind of processor"
        return problem("command", text, f"use a build for {os.uname().machine}")
    offset, size, count = _headers(start)
    if offset + size * count > len(start):
        text = f"{path}: cannot tell whether it is dynamically linked"
        return warning("command", text, f"none is needed if 'file {path}' says so")
    kinds = [struct.unpack_from("<I", start, offset + i * size)[0] for i in range(count)]
    if PT_INTERP not in kinds:
        text = f"{path} is statically linked: nothing can be preloaded into it"
        return problem("command", text, "use a dynamically linked build of it")
    text = f"{path}: its CUDA calls, and those of what inherits its environment, pass pump"
    return ok("command", text)


def _headers(start: bytes) -> tuple[int, int, int]:
    offset = struct.unpack_from("<Q", start, 32)[0]
    size, count = struct.unpack_from("<HH", start, 54)
    return offset, size, count
