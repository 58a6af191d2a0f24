"""Resolves a job's settings: options > environment > --config > ./pump.toml > the user's file >
the administrator's. The first source that sets a key wins; values are not merged.

pump-run imports this module. If there is no file, it makes only a few look-ups, and imports neither
TOML nor the schema.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pump.base.names import quoted
from pump.base.paths import users_path
from pump.config.settings import DEFAULTS, JOB, JobConfig, Layer, variable
from pump.config.values import BadValueError, closest

ADMINISTRATORS_FILE = "/etc/pump/config.toml"
FOLDER_FILE = "pump.toml"
SHIM = "libpump.so"

RULES = "PUMP_JOBS"
"""Variable with the paths of `pump enable`'s compiled rules. Jobs of pump-run do not have it."""

OPTION = "option"
DEFAULT = "default"


class ConfigInputError(Exception):
    """One line: the wrong setting, its file and line, and what to write instead."""


class Places(NamedTuple):
    """Paths of configuration files. named: the file of --config, which must exist, or None."""

    named: str | None
    folder: str
    user: str | None
    administrator: str = ADMINISTRATORS_FILE


class Resolved(NamedTuple):
    """All settings of a job that any source sets, each with its origin.

    `most`, `most_origins`: the administrator's bounds by key of [limits], and their origins.
    `notes`: lines for the user about settings that were lowered or ignored.
    """

    values: dict[str, Any]
    origins: dict[str, str]
    most: Mapping[str, Any]
    most_origins: Mapping[str, str]
    notes: list[str]
    record_beneath: str = ""

    def apply(self, config: JobConfig) -> JobConfig:
        """Returns `config` with these settings in place of its own."""
        changes = {**self.values, "record_beneath": self.record_beneath}
        for key in ("budget", "limit"):
            if key in self.most:
                changes[f"{key}_most"] = self.most[key]
        return config._replace(**changes)


def places(named: str | None, environ: Mapping[str, str]) -> Places:
    """Returns the paths of configuration files in this environment. named: file of --config."""
    user = users_path(environ, "XDG_CONFIG_HOME", ".config", "pump/config.toml") or None
    return Places(named, os.curdir, user)


def resolve(
    options: Mapping[str, Any], environ: Mapping[str, str], places: Places, disabled: bool = False
) -> Resolved:
    """Resolves all settings. Raises ConfigInputError.

    `options`: settings of the command line, already checked. `disabled`: use only the options
    (PUMP_DISABLE), because an error in a file must not stop a job that runs without pump.
    """
    layers = [Layer(options, dict.fromkeys(options, OPTION))]
    most: Mapping[str, Any] = {}
    most_origins: Mapping[str, str] = {}
    if not disabled:
        layers.append(environment(environ))
        for path, kind in _existing(places):
            layer, most, most_origins = _file(path, kind, environ)
            layers.append(layer)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    beneath = ""
    for layer in layers:
        for key, value in layer.values.items():
            if key not in values:
                values[key], origins[key] = value, layer.origins[key]
                beneath = layer.record_beneath if key == "record" else beneath
    notes = [note for layer in layers for note in layer.notes]
    resolved = Resolved(values, origins, most, most_origins, notes, beneath)
    _bound_priority(resolved)
    return resolved


def environment(environ: Mapping[str, str]) -> Layer:
    """Returns the settings of the variables PUMP_<KEY>. Raises ConfigInputError.

    Ignores them inside a job, where its pump-run has set these variables for the shim: a pump-run
    there starts its own job.
    """
    if _inside_a_job(environ):
        return Layer({}, {})
    values, origins = {}, {}
    for key, setting in JOB.items():
        name = variable(key)
        text = environ.get(name, "")
        if not text:
            continue
        try:
            values[key] = setting.check(text)
        except BadValueError as error:
            raise ConfigInputError(f"{name}: {error}") from None
        origins[key] = name
    return Layer(values, origins, unknown_variables(environ))


OTHER_VARIABLES = (
    *("ACTIVE", "BLOCK_EVENTS", "BUDGET_MOST", "DISABLE", "LEDGER", "LIB_DIR", "LIMIT_MOST"),
    *("NEIGHBOURS", "SERVICE", "SOCKET", "SUMMARY", "VIRTUAL_CARDS", "VIRTUAL_DELAY_US"),
    *("VIRTUAL_DISCARD", "VIRTUAL_EVENTS", "VIRTUAL_FAIL", "VIRTUAL_KERNELS"),
    *("VIRTUAL_LATE_HANDLES", "VIRTUAL_LOG", "VIRTUAL_PROFILE", "VIRTUAL_REPORT"),
    *("VIRTUAL_VERSION", "CGROUP_ROOT", "JOBS", "JOB_PID", "PROC_ROOT"),
    "SYS_ROOT",
)
"""Other variables PUMP_<NAME> that parts of pump read."""


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns sentences about unknown variables PUMP_... that resemble one of pump's variables.
    Other unknown variables may belong to another program."""
    known = [key.upper() for key in JOB] + list(OTHER_VARIABLES)
    asked = [name.removeprefix("PUMP_") for name in environ if name.startswith("PUMP_")]
    unknown = [name for name in asked if name not in known]
    near = {name: closest(name, [one.lower() for one in known]) for name in unknown}
    return [
        f"ignoring unknown variable PUMP_{name} (did you mean PUMP_{meant.upper()}?)"
        for name, meant in near.items()
        if meant
    ]


def _inside_a_job(environ: Mapping[str, str]) -> bool:
    if RULES in environ:  # every process of an enabled user has the shim
        return False
    preloaded = environ.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    return any(os.path.basename(path) == SHIM for path in preloaded)


NAMED, FOLDER, USER, ADMINISTRATOR = "named", "folder", "user", "administrator"


def _existing(places: Places) -> Iterable[tuple[str, str]]:
    """Yields files that may exist, in order of precedence, each once."""
    seen = set()
    for path, kind in (
        (places.named, NAMED),
        (os.path.join(places.folder, FOLDER_FILE), FOLDER),
        (places.user, USER),
        (places.administrator, ADMINISTRATOR),
    ):
        if path and (kind == NAMED or _there(path, kind)) and os.path.abspath(path) not in seen:
            seen.add(os.path.abspath(path))
            yield os.path.normpath(path), kind


def _there(path: str, kind: str) -> bool:
    """Returns whether a file may exist. True if it cannot be examined: opening it gives the error.

    Exception: a folder that the user may not enter (root's, after `su` or in a container) contains
    no file of the user.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return kind == ADMINISTRATOR
    except OSError:
        pass
    return True


def _file(
    path: str, kind: str, environ: Mapping[str, str]
) -> tuple[Layer, Mapping[str, Any], Mapping[str, str]]:
    try:
        from pump.config import files  # slow: imports TOML and the schema
    except ModuleNotFoundError as error:
        raise ConfigInputError(f"reading {path} needs {error.name}; reinstall pump") from None
    administrators = kind == ADMINISTRATOR
    try:
        found = files.load(path, administrators=administrators, own=kind in (FOLDER, USER))
    except files.NotOursError as error:
        return Layer({}, {}, (f"ignored: {error}",)), {}, {}
    except files.ConfigError as error:
        more = len(error.faults) - 1
        also = f" (and {more} more: pump config check {quoted(path)})" if more else ""
        raise ConfigInputError(f"{error}{also}") from None
    if found is None and kind == NAMED:
        raise ConfigInputError(f"--config: there is no file {path}")
    if found is None:  # a link to a missing file, or removed by another process
        return Layer({}, {}), {}, {}
    job = found.tables.get("job", {})
    layer = Layer(job, {key: found.origin("job", key) for key in job})
    if kind == FOLDER:
        from pump.config import folder

        layer = folder.allowed(layer, found, path, environ)
    most = found.tables.get("limits", {})
    return layer, most, {key: found.origin("limits", key) for key in most}


def _bound_priority(resolved: Resolved) -> None:
    """Lowers the priority to the administrator's bound. The shim bounds budget and limit, because
    it knows the GPU's memory."""
    most = resolved.most.get("priority")
    asked = resolved.values.get("priority", DEFAULTS.priority)
    if most is None or asked <= most:
        return
    origin = resolved.most_origins["priority"]
    if "priority" in resolved.values:
        resolved.notes.append(
            f"priority {asked} is lowered to {most}, the administrator's maximum ({origin})"
        )
    resolved.values["priority"] = most
    resolved.origins["priority"] = origin
