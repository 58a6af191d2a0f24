"""Device profiles: the constants of a modelled GPU, from TOML to "key=value;...".

The keys of a profile are in keys.def, for this module and for lab/gpu/uvm_profile.c, which parses
the flattened form. "gbps" means 10^9 bytes a second. `host` names the computer around the GPU, one
of hosts.toml; a file without it contains all costs of Unified Memory itself. A table [conditions]
holds the conditions of the measurement (from_probe.py writes it); the driver does not get it.

Standard library only, because pump-run imports it.
"""

from __future__ import annotations

import functools
import hashlib
import string
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pump.base import inputs
from pump.config.values import BadValueError, nearest, parse_size
from pump_lab import tables

FOLDER = Path(__file__).parent
HOSTS = FOLDER.parent / "hosts.toml"
FACTOR = "uvm.host_factor"
MODES = ("timing", "compute")
DRIVER_KEYS: dict[str, tuple[str, ...]] = {
    "mode": MODES,
    "copies": ("real", "modelled"),
    "locks": ("none", "context", "space", "both", "lazy"),
    "queues": ("apart", "shared"),
    "shared": (),
}
"""Settings of the virtual driver, not of the model, with their values; the default is first.
`shared` takes the name of a GPU that several processes share. Without it each process has its own.
"""
CARD_NAME_LETTERS = frozenset(string.ascii_letters + string.digits + "-_.")
MAX_CARD_NAME = 48
MAX_KERNELS = 128
MAX_NAME_BYTES = 127
SHOWN_CHARACTERS = 80

Value = str | int | float


class ProfileError(ValueError):
    """One line that names the profile and the key, and what to write instead."""


@dataclass(frozen=True)
class Key:
    """Kind of a value and its bounds (inclusive). `of_host`: the host's factor multiplies it."""

    kind: type
    minimum: float = 0
    maximum: float = 0
    of_host: bool = False


_KINDS: dict[str, type] = {
    **{"NAME": str, "VERSION": str, "U32": int, "U64": int},
    **{"DOUBLE": float, "HOST": float},
}


def _keys(macro: str) -> dict[str, Key]:
    """Returns the entries of keys.def under `macro`, in its order."""
    found = {}
    for line in inputs.text(str(FOLDER / "keys.def")).splitlines():
        if line.startswith(f"{macro}("):
            key, kind, _, least, most = line[len(macro) + 1 : -1].split(", ")
            found[key.strip('"')] = Key(_KINDS[kind], float(least), float(most), kind == "HOST")
    return found


KEYS: dict[str, Key] = _keys("PROFILE_KEY")
KERNEL_KEYS: dict[str, Key] = _keys("KERNEL_KEY")
RETIRED: dict[str, tuple[str, ...]] = {
    "link.duplex_factor": ("link.duplex_in", "link.duplex_out"),
    "link.demand_gbps": (),
}
"""Keys of older profiles, each with the keys that take its value."""
ADDED: dict[str, Value] = {
    FACTOR: 1.0,
    "uvm.fault_wake_us": 0.0,
    "uvm.cpu_unmap_page_us": 0.0,
    "link.piece_us": 0.0,
    "link.remote_gbps": 0.0,
    "link.remote_us": 1.3,
    "link.remote_walk_ns": 40.0,
    "link.remote_reach_gib": 3.9,
    "uvm.host_page_kib": 2048.0,
    "uvm.host_page_us": 0.0,
}
"""Keys that older profiles lack, with the value that they imply."""


@dataclass(frozen=True)
class Profile:
    """A valid profile. `values` maps flattened keys (KEYS and kernel.NAME.KEY) to values.

    `conditions`: The parsed conditions of the measurement; empty without any.
    """

    name: str
    values: Mapping[str, Value]
    conditions: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Profile({self.name} {self.hash()})"

    def changed(self, settings: Mapping[str, str]) -> Profile:
        """Returns this profile with other values, given as text under their flattened keys.

        "memory" means device.memory_bytes. It may have a unit (8GiB) and is rounded down to whole
        blocks. Raises ProfileError.
        """
        values = dict(self.values)
        for key, text in settings.items():
            if key == "memory":
                values["device.memory_bytes"] = _memory_bytes(self.name, text)
                continue
            for name in _current(self.name, key):
                rule = _rule(name)
                if rule is None:
                    known = [*KEYS, "memory", *DRIVER_KEYS]
                    raise ProfileError(f"{self.name}: unknown key '{key}'{nearest(key, known)}")
                values[name] = _checked(self.name, name, rule, _read(rule, text))
        return replace(_complete(self.name, values), conditions=self.conditions)

    def on_own_host(self) -> Profile:
        """Returns the same machine, with the host's factor multiplied into the times."""
        factor = float(self.values[FACTOR])
        values = {
            key: value * factor if key in KEYS and KEYS[key].of_host else value  # type: ignore[operator]
            for key, value in self.values.items()
        }
        return replace(self, values=values | {FACTOR: 1.0})

    def flatten(self, settings: Mapping[str, str] | None = None) -> str:
        """Returns the virtual driver's "key=value;key=value", with `settings` applied.

        `settings`: the keys that changed() takes, and DRIVER_KEYS, which only the driver reads. If
        given, even empty, the result has the profile's hash for the driver's report. Raises
        ProfileError.
        """
        changes = dict(settings or {})
        own = {key: changes.pop(key) for key in DRIVER_KEYS if key in changes}
        for key, value in own.items():
            if key == "shared":
                _check_card_name(self.name, value)
            elif value not in DRIVER_KEYS[key]:
                raise ProfileError(
                    f"{self.name}: {key} must be {' or '.join(DRIVER_KEYS[key])}, not '{value}'"
                )
        if own.get("copies") == "modelled" and own.get("mode") == "compute":
            raise ProfileError(
                f"{self.name}: mode=compute needs copies=real, because copies=modelled "
                "moves no data"
            )
        if own.get("locks", "none") != "none" and "shared" in own:
            raise ProfileError(
                f"{self.name}: a shared card cannot have locks, which belong to one process"
            )
        profile = self.changed(changes) if changes else self
        if settings is not None:
            own = {"hash": profile.hash(), **own}
        entries = [f"{key}={value}" for key, value in {**profile.values, **own}.items()]
        return ";".join(entries)

    def hash(self) -> str:
        """Returns the first 12 hex digits of SHA-256 over all values; part of every result."""
        return hashlib.sha256(self.flatten().encode()).hexdigest()[:12]


def names() -> list[str]:
    """Returns the names of the profiles that come with pump."""
    return tables.names(FOLDER)


@functools.cache
def hosts() -> dict[str, float]:
    """Returns the names of the hosts, each with its uvm.host_factor."""
    return {name: float(factor) for name, factor in _hosts()["factors"].items()}


def of_hosts() -> dict[str, Value]:
    """Returns the constants that all named hosts share, by key."""
    return _flat(HOSTS.name, {key: table for key, table in _hosts().items() if key != "factors"})


def load(name: str) -> Profile:
    """Returns the profile of that name, or from a .toml file; NAME@HOST: in that host.

    Raises ProfileError, also if the file is missing or a value is invalid.
    """
    card, at, host = name, "", ""
    if "@" in name and not name.endswith(".toml"):
        card, at, host = name.rpartition("@")
    table = tables.load(FOLDER, "profile", card, ProfileError)
    if at:
        if "host" not in table:
            raise ProfileError(f"{card}: has its own host's times; leave out '@{host}'")
        if host != table["host"]:
            table |= {"name": f"{table.get('name')}@{host}", "host": host}
    return validate(name, table)


def validate(source: str, table: Mapping[str, Any]) -> Profile:
    """Returns a profile from parsed TOML; `source` names it in errors. Raises ProfileError."""
    conditions = table.get("conditions", {})
    if not isinstance(conditions, dict):
        raise ProfileError(f"{source}: conditions must be a table; write [conditions]")
    values = _flat(source, {key: table[key] for key in table if key not in ("conditions", "host")})
    if "host" in table:
        values = _of_host(source, table["host"], values) | values
    return replace(_complete(source, values), conditions=conditions)


@functools.cache
def _hosts() -> dict[str, Any]:
    return tomllib.loads(inputs.text(str(HOSTS)))


def _of_host(source: str, host: object, own: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the constants of a named host. `own`: The profile's own values, which may differ from
    them."""
    if not isinstance(host, str) or host not in hosts():
        known = ", ".join(hosts())
        raise ProfileError(
            f"{source}: no host {_shown(host)}{nearest(str(host), list(hosts()))}; known: {known}"
        )
    if FACTOR in own:
        raise ProfileError(f"{source}: host and {FACTOR} say the same; leave one out")
    return of_hosts() | {FACTOR: hosts()[host]}


def _flat(source: str, table: Mapping[str, Any]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for section, content in table.items():
        if not isinstance(content, dict):
            _take(source, values, section, content)
            continue
        for key, value in content.items():
            if section == "kernels" and isinstance(value, dict):
                for kernel_key, number in value.items():
                    _take(source, values, f"kernel.{key}.{kernel_key}", number)
            else:
                _take(source, values, f"{section}.{key}", value)
    return values


def _take(source: str, values: dict[str, Value], key: str, value: object) -> None:
    for name in _current(source, key):
        rule = _rule(name)
        if rule is None:
            raise ProfileError(f"{source}: unknown key '{key}'{nearest(key, list(KEYS))}")
        values[name] = _checked(source, name, rule, value)


@functools.cache  # one warning for each key and profile
def _current(source: str, key: str) -> tuple[str, ...]:
    """Returns the valid keys for `key`: itself, or the successors of an old key."""
    if key not in RETIRED:
        return (key,)
    instead = f"use {' and '.join(RETIRED[key])}" if RETIRED[key] else "it has no effect"
    print(f"pump: {source}: {key} is an old key; {instead}", file=sys.stderr)
    return RETIRED[key]


def _rule(key: str) -> Key | None:
    if not key.startswith("kernel."):
        return KEYS.get(key)
    kernel, _, kernel_key = key.removeprefix("kernel.").rpartition(".")
    if not kernel or len(kernel.encode()) > MAX_NAME_BYTES or set(kernel) & set(";="):
        return None
    return KERNEL_KEYS.get(kernel_key)


def _read(rule: Key, text: str) -> object:
    """Returns the text as a value of the rule's kind, or the text itself if it is invalid."""
    if rule.kind is str:
        return text
    try:
        return int(text, 0) if rule.kind is int else float(text)
    except ValueError:
        return text


def _checked(source: str, key: str, rule: Key, value: object) -> Value:
    if rule.kind is str:
        text_bytes = len(value.encode()) if isinstance(value, str) else 0
        if not isinstance(value, str) or not 1 <= text_bytes <= MAX_NAME_BYTES:
            raise ProfileError(f"{source}: {key} must be a text of 1 to {MAX_NAME_BYTES} bytes")
        if set(value) & set(";=\n"):
            raise ProfileError(f"{source}: {key} must not contain ';', '=' or line breaks")
        if key == "device.compute_capability":
            _check_capability(source, value)
        return value
    allowed = (int,) if rule.kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        what = "an integer" if rule.kind is int else "a number"
        raise ProfileError(f"{source}: {key} must be {what}, not {_shown(value)}")
    if not rule.minimum <= value <= rule.maximum:
        raise ProfileError(
            f"{source}: {key} must be from {rule.minimum:g} to {rule.maximum:g}, not "
            f"{_shown(value)}"
        )
    return rule.kind(value)  # type: ignore[no-any-return]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _check_capability(source: str, text: str) -> None:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal() and len(minor) == 1):
        raise ProfileError(
            f"{source}: device.compute_capability must be like \"8.0\", not '{text}'"
        )


def _check_card_name(source: str, text: str) -> None:
    if not 1 <= len(text) <= MAX_CARD_NAME or text[0] == "." or set(text) - CARD_NAME_LETTERS:
        raise ProfileError(
            f"{source}: shared must be a name of up to 48 letters, digits, '-', '_' and "
            f"'.', not '{text}'"
        )


def _memory_bytes(source: str, text: str) -> int:
    try:
        size_bytes = parse_size(text)
    except BadValueError as error:
        raise ProfileError(f"{source}: memory: {error}") from None
    whole = size_bytes - size_bytes % (2 << 20)
    return int(_checked(source, "device.memory_bytes", KEYS["device.memory_bytes"], whole))


def _complete(source: str, values: dict[str, Value]) -> Profile:
    values = ADDED | values
    missing = [key for key in KEYS if key not in values]
    if missing:
        raise ProfileError(f"{source}: missing key '{missing[0]}'; every key is required")
    kernels = sorted(key for key in values if key not in KEYS)
    if len({key.rpartition(".")[0] for key in kernels}) > MAX_KERNELS:
        raise ProfileError(f"{source}: more than {MAX_KERNELS} kernels")
    ordered = {key: values[key] for key in [*KEYS, *kernels]}
    return Profile(str(values["name"]), ordered)
