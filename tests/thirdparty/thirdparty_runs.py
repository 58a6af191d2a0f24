"""Runs a suite of suites.toml in the environment of tests/thirdparty, with or without pump."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
TIMEOUT_S = 1800
SMALL = ("--budget={budget}",)
WAYS = {
    "plain": (),
    "default": (),
    "small": SMALL,
    "planned": (*SMALL, "--policy=planned"),
    "tensor": (*SMALL, "--granularity=tensor"),
}
"""Options of pump-run, by the names in the table of docs/reference/frameworks.md."""


@dataclass
class Suite:
    """A suite as described in suites.toml."""

    name: str
    of: str
    command: list[str]
    floor: int
    rest: str
    memory: str
    budget: str
    folder: str = ""
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """Test names by result, the GPU's kernels and violations, and the peak of converted memory."""

    passed: set[str]
    failed: set[str]
    kernels: Counter[str]
    violations: int
    converted_bytes: int


def suites() -> list[Suite]:
    tables = tomllib.loads((HERE / "suites.toml").read_text(encoding="utf-8"))
    return [Suite(name, **table) for name, table in tables.items()]


def run(suite: Suite, way: str, environment: Path, folder: Path) -> Outcome:
    """Runs a suite. Raises AssertionError after a crash or TIMEOUT_S without a result."""
    folder.mkdir()
    programs = shutil.copytree(HERE / "programs", folder / "programs")  # away from our conftest
    words = [word.format(programs=programs) for word in suite.command]
    pytest = [*words, "-q", "-p", "no:cacheprovider", f"--junitxml={folder / 'junit.xml'}"]
    options = ["--virtual=a100-pcie4", f"--virtual-set=memory={suite.memory}"]
    options += [option.format(budget=suite.budget) for option in WAYS[way]]
    with (folder / "output").open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [BIN / "pump-run", *options, "--", environment / "frameworks/bin/python", *pytest],
            cwd=environment / "sources" / suite.folder if suite.folder else folder,
            env=_variables(suite, way, environment, folder),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    told = (folder / "output").read_text(encoding="utf-8", errors="replace")
    assert done.returncode in (0, 1), f"{suite.name}, {way}: {done.returncode}\n{told[-6000:]}"
    return _outcome(folder)


def _variables(suite: Suite, way: str, environment: Path, folder: Path) -> dict[str, str]:
    nvidia = next((environment / "frameworks/lib").glob("python3*")) / "site-packages/nvidia/cu13"
    own = suite.env.items()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PUMP_V")},
        "PUMP_DISABLE": "1" if way == "plain" else "",
        "PUMP_VIRTUAL_REPORT": str(folder / "%p.report"),
        "PUMP_SUMMARY": str(folder / "%p.summary"),
        "PYTHONPATH": f"{environment / 'site'}:{HERE}",
        "CUDA_HOME": str(nvidia),
        "XDG_CACHE_HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **{name: value.format(environment=environment, here=HERE) for name, value in own},
    }


def _read(folder: Path, ending: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob(f"*.{ending}")]


def _outcome(folder: Path) -> Outcome:
    passed, failed = set(), set()
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        module = str(case.get("classname")).split(".")[-2:]  # the first parts depend on the folder
        name = ".".join([*module, str(case.get("name"))])
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    reports = _read(folder, "report")
    summaries = _read(folder, "summary")
    return Outcome(
        passed - failed,
        failed,
        sum((Counter(report["kernels"]) for report in reports), Counter()),
        sum(report["violations"] for report in reports),
        max((one["shim"]["converted_bytes_peak"] for one in summaries), default=0),
    )
