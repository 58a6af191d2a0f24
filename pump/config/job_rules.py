"""Compiles the rules of `pump enable` (jobs.d/*.toml) to the file that the shim reads at cuInit.

shim/life/job_rules.h describes the format; docs/decisions/0058-jobs-without-a-prefix.md explains
the design.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pump.config import files, layers, rule_checks
from pump.config.schema import RULE, Match
from pump.config.settings import JOB, JobConfig

HEADER, END = "pump-jobs 1", "end"
FOLDER = "jobs.d"
MACHINES_FOLDER = f"/etc/pump/{FOLDER}"
COMPILED_BYTES_MAX = 65535
RULES_MAX = 256
SETTINGS = [key for key, setting in JOB.items() if not setting.not_in_rules]
SETTINGS += ["budget_most", "limit_most"]
"""Fields of JobConfig in the compiled file, as variables."""


class RuleError(Exception):
    """One line for each fault of the rules; `str()` is the first."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(faults[0])
        self.faults = faults


class Rule(NamedTuple):
    """A rule: the name of its file, the patterns to match, the job's configuration."""

    name: str
    match: Match
    config: JobConfig

    def differs(self, executable: str, command: str, cgroup: str | None = None) -> str:
        """Returns why a process does not match, in words; "" if it matches. An unknown cgroup
        (None) counts as a match."""
        last = executable if "/" in self.match.executable else os.path.basename(executable)
        for pattern, is_, what in (
            (self.match.executable, last, "executable"),
            (self.match.command, command, "command"),
            (self.match.cgroup, cgroup, "cgroup"),
        ):
            if pattern and is_ is not None and not rule_checks.matches(pattern, is_):
                return f"{what} is {is_}, not {pattern}"
        return ""


def users_folder(environ: Mapping[str, str]) -> str:
    """Returns the folder of a user's rules; "" if the environment names no home."""
    config = layers.places(None, environ).user
    return os.path.join(os.path.dirname(config), FOLDER) if config else ""


def load(folder: str, environ: Mapping[str, str], *, machine: bool) -> list[Rule]:
    """Returns the rules of a folder, sorted by name; [] if there is no folder.

    machine: ignore the user's configuration file, because the rules are for all users. Raises
    RuleError with all faults.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RuleError([f"cannot read {folder}: {error.strerror}"]) from None
    if len(names) > RULES_MAX:
        raise RuleError([f"{folder} has more than {RULES_MAX} rules; join some"])
    rules, faults = [], []
    for name in names:
        try:
            rules.append(_load(os.path.join(folder, name), environ, machine=machine))
        except files.ConfigError as error:
            faults += error.faults
        except (RuleError, layers.ConfigInputError) as error:
            faults.append(str(error))
    if faults:
        raise RuleError(faults)
    return rules


def _load(path: str, environ: Mapping[str, str], *, machine: bool) -> Rule:
    found = files.load(path, own=True, schema=RULE)
    if found is None:
        raise RuleError([f"{path} is a dead link; remove it"])
    match, asked = Match(**found.tables.get("match", {})), found.tables.get("job", {})
    if not (match.executable or match.command or match.cgroup):
        raise RuleError(
            [f"{path}: [match] has no pattern; write executable, command or cgroup there"]
        )
    for key in asked:
        if why := JOB[key].not_in_rules:
            where = found.origin("job", key)
            raise RuleError([f"{where}: a rule cannot set {key}, because {why}; use pump-run"])
    name = os.path.basename(path).removesuffix(".toml")
    if not name.isprintable():
        raise RuleError([f"{path!r}: the name must be printable; rename the file"])
    places = layers.places(None, environ)
    # Ignore the current folder's file: a rule applies wherever the process starts.
    places = places._replace(folder=os.devnull, user=None if machine else places.user)
    resolved = layers.resolve(asked, {}, places)
    config = resolved.apply(JobConfig([name]))
    return Rule(name, match, config._replace(name=config.name or name))


def compiled(rules: Iterable[Rule]) -> str:
    """Returns the file that the shim reads. Raises RuleError if it is too long for the shim."""
    lines = [HEADER]
    for rule in rules:
        lines.append(f"rule {rule.name}")
        patterns = (
            ("exe", rule.match.executable),
            ("command", rule.match.command),
            ("cgroup", rule.match.cgroup),
        )
        lines += [f"{word} {pattern}" for word, pattern in patterns if pattern]
        lines += ["without-pumpd"] if rule.match.without_pumpd else []
        lines += [f"set {line}" for line in settings(rule.config)]
    text = "\n".join([*lines, END, ""])
    if len(os.fsencode(text)) > COMPILED_BYTES_MAX:
        raise RuleError(["the compiled rules exceed 64 KiB; join some"])
    return text


def settings(config: JobConfig) -> list[str]:
    """Returns PUMP_<KEY>=value for each setting that shim or pumpd use."""
    pairs = config.variables(SETTINGS).items()
    return [f"{name}={text}" for name, text in pairs if text and "\n" not in text]
