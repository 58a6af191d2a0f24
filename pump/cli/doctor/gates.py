"""Whether launches would wait for blocks in flight here, and why not (decision 0022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pump.cli.doctor.finding import Finding, ok, problem, warning
from pump.cli.environment import disabled
from pump.config import layers
from pump.config.job import JobConfig

NAME = "gates"


def findings(answer: dict[str, Any] | str, environ: Mapping[str, str]) -> list[Finding]:
    """At most one. `answer`: of the child that loaded the driver (probe.py)."""
    devices = answer.get("devices", []) if isinstance(answer, dict) else []
    if not devices:
        return []
    places = layers.places(None, environ)
    try:
        resolved = layers.resolve({}, environ, places, disabled=disabled(environ))
    except layers.ConfigInputError as error:
        return [problem("settings", str(error), "pump config check FILE names all that is wrong")]
    job = resolved.apply(JobConfig(command=["doctor"]))
    return [judged(job.gate, job.policy, [bool(facts["waits"]) for facts in devices])]


def judged(wanted: bool, policy: str, waits: list[bool]) -> Finding:
    """wanted: the setting `gate`. waits: whether each device has stream memory operations."""
    unable = [str(device) for device, can in enumerate(waits) if not can]
    lacks = f"device {', '.join(unable)} has no stream memory operations"
    if not wanted:
        text = lacks if unable else "the GPU could wait, and nothing that was measured gains by it"
        return ok(NAME, f"off (gate = false): {text}")
    if unable:
        return warning(NAME, f"on, but {lacks}: jobs there run without", "set gate = false")
    if policy != "planned":
        text = f"on, but policy {policy} foresees no launch that could have one"
        return warning(NAME, text, "--policy planned, or gate = false")
    return ok(NAME, "on: a launch may wait on the GPU, 5 ms at most, for blocks in flight for it")
