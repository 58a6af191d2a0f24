"""No dead settings: each key of the files has an effect."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pump.cli.support import environment, launch
from pump.config import layers, schema
from pump.config.settings import JOB, JobConfig, Setting, settings
from pumpd.service import serve
from pumpd.service.settings import ServiceSettings

NOBODY = {"observers": ["root"], "shares": {"root": 7}}
"""Replaces examples with users that this machine may lack."""
LIMITS, SERVICE = settings(schema.Limits), settings(schema.Service)
OPTIONS = argparse.Namespace(beat=None, settle=None, log_level=None)


def example_of(table: dict[str, Setting], key: str) -> Any:
    """Returns the example of a key, which differs from its default."""
    return NOBODY.get(key, table[key].example)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def service_settings(folder: Path, text: str) -> ServiceSettings:
    path = folder / "config.toml"
    path.write_text(text)
    return serve.read_settings(argparse.Namespace(config=str(path), **vars(OPTIONS)))


@pytest.mark.parametrize("key", SERVICE)
def test_each_key_of_the_service_changes_the_service(tmp_path: Path, key: str) -> None:
    line = f"[service]\n{key} = {toml(example_of(SERVICE, key))}\n"
    if key == "lease_s":  # the example equals the default
        line = "[service]\nlease_s = 7.5\n"
    if key == "reserve":
        line = '[service]\nreserve = "1GiB"\n'
    if key == "log_level":
        line = '[service]\nlog_level = "debug"\n'
    assert service_settings(tmp_path, line) != service_settings(tmp_path, "[service]\n")


def test_shares_and_the_greatest_priority_change_the_service(tmp_path: Path) -> None:
    before = service_settings(tmp_path, "")
    assert service_settings(tmp_path, "[shares]\nroot = 7\n").weights == {0: 7.0}
    both = service_settings(tmp_path, "[shares]\nroot = 7\n'@root' = 2\n").weights
    assert both[0] == 7.0, "a user's own weight comes before that of a group"
    after = service_settings(tmp_path, "[limits]\npriority = 3\n")
    assert after.quotas == dataclasses.replace(before.quotas, priority_most=3)


def told(config: JobConfig) -> tuple[Any, ...]:
    """Returns all that a configuration gives a job and its pumpd, and the devices for pump-run."""
    parts = environment.Parts("/shim", socket_path="/socket")
    command = launch._pumpd_command(config, "/socket", 1, False, launch.Recording(9, "{}"))
    return environment.for_job(config, parts, {}), command, config.devices


@pytest.mark.parametrize(
    ("table", "key"),
    [
        *(("job", key) for key in JOB),
        *(("limits", key) for key in LIMITS),
    ],
)
def test_each_key_of_a_job_changes_what_it_is_told(tmp_path: Path, table: str, key: str) -> None:
    value = example_of(JOB if table == "job" else LIMITS, key)
    if (table, key) == ("job", "policy"):  # the example equals the default
        value = "demand"
    if (table, key) == ("job", "priority"):
        value = 3
    asked = "[job]\npriority = 9\n" if (table, key) == ("limits", "priority") else ""
    results = []
    for text in ("", f"[{table}]\n{key} = {toml(value)}\n"):
        path = tmp_path / "config.toml"
        path.write_text(asked + text)
        places = layers.Places(None, str(tmp_path / "none"), None, str(path))
        resolved = layers.resolve({}, {}, places)
        results.append(told(resolved.apply(JobConfig(command=["true"]))))
    assert results[0] != results[1]
