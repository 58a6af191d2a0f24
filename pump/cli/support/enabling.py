"""Names and contents of the files of `pump enable`. Writes no files; reads templates, and the
first bytes of a file to recognise it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from pump.base import inputs, paths
from pump.cli.support import environment, service_files
from pump.cli.support.lines import BadInputError
from pump.config import job_rules, layers

MARK = "written by pump enable"
COMPILED = "jobs.compiled"
MACHINES_COMPILED = f"/etc/pump/{COMPILED}"
UNITS = ("pump-jobs.socket", "pump-jobs.service")
SNIPPET = """\
# {mark}; pump disable removes it.
# Not in a job of pump-run, which has the shim and no rules.
case ":${{LD_PRELOAD-}}:" in
*/libpump.so:*) [ -z "${{PUMP_JOBS-}}" ] || PUMP_JOBS={rules} ;;
*)
  LD_PRELOAD="${{LD_PRELOAD:+$LD_PRELOAD:}}"{shim}
  PUMP_JOBS={rules}
  {asan}="${{{asan}:+${asan}:}}{option}=0"
  export LD_PRELOAD PUMP_JOBS {asan}
  ;;
esac
"""
ENVIRONMENT = """\
# {mark}; pump disable removes it.
LD_PRELOAD=${{LD_PRELOAD:+$LD_PRELOAD:}}{shim}
PUMP_JOBS={rules}
{asan}=${{{asan}:+${asan}:}}{option}=0
"""


class Places(NamedTuple):
    """Paths of the files for a user, or for the machine. rules: the folder of the rules."""

    rules: str
    compiled: str
    environment: str
    snippet: str
    units: tuple[str, ...]

    def written(self) -> tuple[str, ...]:
        """Returns every file of `pump enable`."""
        return (self.compiled, *self.units, self.snippet, self.environment)


def places(environ: Mapping[str, str], *, machine: bool) -> Places:
    """Returns the paths for this user, or for the machine. Raises BadInputError without a home."""
    if machine:
        return Places(
            job_rules.MACHINES_FOLDER,
            MACHINES_COMPILED,
            "/etc/environment.d/60-pump.conf",
            "/etc/profile.d/pump.sh",
            tuple(f"/etc/systemd/user/{unit}" for unit in UNITS),
        )
    rules = job_rules.users_folder(environ)
    if not rules:
        raise BadInputError("HOME is not set, so there is no folder for rules; set HOME")
    pump = os.path.dirname(rules)
    config = os.path.dirname(pump)
    return Places(
        rules,
        os.path.join(pump, COMPILED),
        os.path.join(config, "environment.d", "60-pump.conf"),
        os.path.join(pump, "profile.sh"),
        tuple(os.path.join(config, "systemd", "user", unit) for unit in UNITS),
    )


def texts(at: Places, pumpd: str) -> dict[str, str]:
    """Returns the content of each file except the compiled rules, by path. Raises BadInputError."""
    try:
        shim = paths.library(environment.SHIM)
    except paths.MissingFileError as error:
        raise BadInputError(str(error)) from None
    compiled = list(dict.fromkeys((at.compiled, MACHINES_COMPILED)))
    for path in (shim, *compiled):
        # ld.so splits at blanks and colons; environment.d expands $ and removes quotes.
        if any(one in path for one in " \t\n:;\"'\\$%`"):
            raise BadInputError(
                f"an environment file cannot hold {path!r}; use a path without blanks, "
                "colons, quotes, $ and %"
            )
    words = {
        "mark": MARK,
        "shim": shim,
        "rules": ":".join(compiled),
        "asan": environment.ADDRESS_SANITIZER,
        "option": environment.LINK_ORDER,
    }
    found = {
        path: service_files.content_of(service_files.ServiceFile(unit, path), pumpd)
        for unit, path in zip(UNITS, at.units, strict=True)
    }
    found[at.snippet] = SNIPPET.format(**words)
    found[at.environment] = ENVIRONMENT.format(**words)
    return found


def is_ours(path: str) -> bool:
    """Returns whether `pump enable` wrote the file."""
    if os.path.basename(path) == COMPILED:
        try:
            return inputs.start(path, len(job_rules.HEADER)) == job_rules.HEADER.encode()
        except OSError:
            return False
    return service_files.is_ours(path, MARK)


def in_force(environ: Mapping[str, str]) -> bool:
    """Returns whether rules apply to programs with this environment."""
    preloaded = environ.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    there = any(os.path.basename(path) == environment.SHIM for path in preloaded)
    return there and layers.RULES in environ


def source_line(at: Places) -> str:
    """Returns the line for a shell's profile that loads the user's snippet."""
    return f". {shlex.quote(at.snippet)}"
