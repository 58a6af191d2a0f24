"""Checks the rules of `pump enable`, and which rule serves a command. Runs nothing."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence

from pump.base import inputs, paths
from pump.cli.doctor.finding import Finding, ok, problem, warning
from pump.cli.support import command, enabling
from pump.cli.support.lines import BadInputError
from pump.config import job_rules
from pump.report.words import many
from pump.wire import request_reply, server

NAME = "rules"
SCRIPT_LINE_BYTES = 256
CONNECT_S = 1.0
"""Longest wait for a connection to the activation socket, whose backlog may be full."""


def findings(words: Sequence[str], environ: Mapping[str, str]) -> list[Finding]:
    """Returns findings on the rules of the user and the machine, and on the command `words`, if
    any. Returns [] without files of `pump enable`."""
    found: list[Finding] = []
    rules: list[job_rules.Rule] = []
    there = False
    for machine in (False, True):  # in the shim's order
        try:
            at = enabling.places(environ, machine=machine)
        except BadInputError:
            continue
        if not os.path.lexists(at.compiled):
            continue
        there = True
        try:
            these = job_rules.load(at.rules, environ, machine=machine)
        except job_rules.RuleError as error:
            found.append(problem(NAME, str(error), "correct the rule, then: pump enable"))
            continue
        found.append(_check_compiled(at, these, machine=machine))
        rules += these
    if not there:
        return []
    if not enabling.in_force(environ):
        text = "this session does not preload pump, so no rule applies to its programs"
        remedy = "log in again, or add the line that pump enable prints to your profile"
        found.append(warning(NAME, text, remedy))
    found += _check_activation(rules, environ)
    return [*found, *([_check_command(words, rules, environ)] if words else [])]


def _check_compiled(at: enabling.Places, rules: list[job_rules.Rule], *, machine: bool) -> Finding:
    again = f"pump enable{' --machine' if machine else ''}"
    try:
        status = os.lstat(at.compiled)
        text = inputs.text(at.compiled, job_rules.COMPILED_BYTES_MAX + 1)
    except OSError as error:
        return problem(NAME, f"{at.compiled} cannot be read: {error.strerror}", again)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        return problem(
            NAME,
            f"{at.compiled} belongs to another user or others can write it, so pump ignores it",
            f"rm {at.compiled}; {again}",
        )
    if text != job_rules.compiled(rules):
        return warning(NAME, f"{at.rules} has changed since it was compiled", again)
    names = ", ".join(rule.name for rule in rules) or "none, so no program is served"
    return ok(NAME, f"{many(len(rules), 'rule')} in {at.compiled}: {names}")


def _check_activation(rules: list[job_rules.Rule], environ: Mapping[str, str]) -> list[Finding]:
    path = paths.activation_socket(environ)
    needy = [rule.name for rule in rules if not rule.match.without_pumpd]
    remedy = "systemctl --user enable --now pump-jobs.socket; without systemd: pumpd jobs"
    try:
        request_reply.connect(path, time.monotonic() + CONNECT_S).close()
        return [ok(NAME, f"pumpds are started at {path}, in the cgroup of pump-jobs.service")]
    except server.UntrustedServerError as error:
        text = f"{path} is not trusted: {error}"
    except TimeoutError:
        text = f"{path} does not answer"
    except OSError:
        text = f"nothing listens at {path}"
    if not needy:
        return []
    return [warning(NAME, f"{text}: processes of {', '.join(needy)} run without pump", remedy)]


def _check_command(
    words: Sequence[str], rules: Sequence[job_rules.Rule], environ: Mapping[str, str]
) -> Finding:
    try:
        executable, line = _process(words, environ)
    except (BadInputError, OSError) as error:
        return warning(NAME, f"cannot compare rules: {error}", "name an executable program")
    why = []
    for rule in rules:
        differs = rule.differs(executable, line, _cgroup())
        if not differs:
            return ok(NAME, f"rule {rule.name} serves {line}")
        why.append(f"{rule.name}: {differs}")
    text = f"no rule matches it ({'; '.join(why) or 'there is none'})"
    return warning(NAME, text, f"pump-run {shlex.join(words)}; or change a rule, then: pump enable")


def _process(words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, str]:
    """Returns the executable and the command line that the kernel will use for a command, also for
    a script. Raises BadInputError and OSError."""
    path = command.find(words[0], environ)
    first = inputs.start(path, SCRIPT_LINE_BYTES).partition(b"\n")[0].decode(errors="replace")
    line = list(words)
    if first.startswith("#!") and (interpreter := first[2:].split(None, 1)):
        given = [word.strip() for word in interpreter]
        if os.path.basename(given[0]) == "env" and len(given) > 1:
            given = [word for word in given[1].split() if not word.startswith("-")]
        line = [*given, path, *words[1:]]
        path = command.find(given[0], environ)
    return os.path.realpath(path), " ".join(line)


def _cgroup() -> str | None:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in sorted(lines, key=lambda one: not one.startswith("0::")):
        return line.partition("/")[1] + line.partition("/")[2]
    return None
