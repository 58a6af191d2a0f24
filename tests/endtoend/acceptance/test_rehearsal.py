"""Both calls of scripts/first_call: as on a lent machine, and with each of its parts broken."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

import bare_python
import pytest

from pump.base import paths

LIMIT_S = 500
"""Longer than the calls take, even if all stages of the acceptance hang."""
A = ("facts", "libraries", "proof", "decoder", "first")
B = ("facts", "libraries", "speed", "bits", "shim", "rest", "trace", "failures")
GOOD = {"pass", "info"}


class Machine:
    """A machine like a lent one: a checkout without .git, a Python without pump, no network."""

    def __init__(self, folder: Path) -> None:
        self.python = bare_python.python(folder)
        self.root = bare_python.checkout(folder)
        bare_python.wheels(folder).rename(self.root / ".wheels")
        self.out = folder / "out"

    def command(self, *words: str) -> list[str]:
        script = str(self.root / "scripts" / "first_call")
        more = ["--virtual", "h200-pcie5", "--quick"]
        return [*bare_python.without_network(), str(self.python), script, *words, *more]

    def environment(self) -> dict[str, str]:
        libraries = str(Path(paths.library("libpump.so")).parent)
        return {"PATH": os.environ["PATH"], "OUT": str(self.out), "PUMP_LIB_DIR": libraries}

    def call(self, *words: str) -> dict[str, Mapping[str, object]]:
        """Runs one call; returns the findings of its steps."""
        done = subprocess.run(
            self.command(*words),
            env=self.environment(),
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(list(self.out.iterdir())) <= 8
        found: dict[str, Mapping[str, object]] = json.loads((self.out / "steps.json").read_text())
        assert len(done.stdout.splitlines()) == len([name for name in found if "." not in name]) + 1
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_both_calls_end_well_where_only_the_named_packages_are(
    machine: Machine, tmp_path: Path
) -> None:
    first = machine.call("A")
    assert tuple(first) == A
    assert {told["verdict"] for told in first.values()} <= GOOD, first
    assert first["proof"]["same_bits"] is True
    archive = (machine.out / "results.tar.gz").rename(tmp_path / "a.tar.gz")
    both = machine.call("B", "--from", str(archive))
    assert tuple(name for name in both if "." not in name) == B
    assert {told["verdict"] for told in both.values()} <= GOOD, both
    assert both["earlier.proof"]["same_bits"] is True
    with tarfile.open(machine.out / "results.tar.gz") as packed:
        names = set(packed.getnames())
    assert {"first.json", "rest.json", "decoder.lines", "acceptance/bits.json"} <= names
    assert "| bits | pass |" in (machine.out / "summary.md").read_text()


def test_sigterm_packs_what_was_found(machine: Machine) -> None:
    process = subprocess.Popen(
        machine.command("A"),
        env=machine.environment(),
        cwd=machine.root,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and "facts" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 0 and "interrupted" in said
    found = json.loads((machine.out / "steps.json").read_text())
    assert found["facts"]["verdict"] == "info"


BROKEN = {
    "hangs": "import time\ntime.sleep(10000)\n",
    "crashes": "import os\nos.abort()\n",
    "missing": "",
}
PARTS = {
    "scripts/gpu_probe": {"first", "rest"},
    "scripts/gpu_acceptance": {"speed", "bits", "shim", "trace", "failures"},
    "tests/acceptance/speed/program.py": {"decoder", "speed", "trace"},
    "examples/train_mlp.py": {"proof", "bits"},
    "tests/acceptance/stage_shim.py": {"shim"},
    "tests/acceptance/stage_failures.py": {"failures"},
    "tests/acceptance/stage_trace.py": {"trace"},
}
"""Steps that may fail without a part of the checkout."""


@pytest.mark.long
@pytest.mark.parametrize("how", sorted(BROKEN))
@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_broken_part_changes_no_verdict_of_other_steps(
    machine: Machine, part: str, how: str
) -> None:
    path = machine.root / part
    path.unlink()
    if how != "missing":
        path.write_text(BROKEN[how])
    found = {**machine.call("A"), **machine.call("B")}
    bad = {name for name, told in found.items() if told["verdict"] not in GOOD}
    assert bad <= PARTS[part], {name: found[name] for name in bad - PARTS[part]}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_a_call_that_is_killed_is_gone_on_with(machine: Machine, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    call = chance.choice("AB")
    process = subprocess.Popen(
        machine.command(call), env=machine.environment(), cwd=machine.root, start_new_session=True
    )
    time.sleep(chance.random() * 60)
    os.killpg(process.pid, 9)
    process.wait()
    words = [call]
    if (machine.out / "results.tar.gz").exists():
        assert len(list(machine.out.iterdir())) <= 8
        archive = (machine.out / "results.tar.gz").rename(tmp_path / "before.tar.gz")
        words += ["--from", str(archive)]
    found = machine.call(*words)
    assert {told["verdict"] for told in found.values()} <= GOOD, found


@pytest.mark.long
def test_with_children_ten_times_as_slow_every_step_still_has_its_turn(
    machine: Machine,
) -> None:
    """Steps that measure may be late. No step fails, and no step is skipped for another."""
    folder = machine.python.parents[1]
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "slow.pth").write_text("import time; time.sleep(3)\n")
    for call in "AB":
        found = machine.call(call)
        assert {told["verdict"] for told in found.values()} <= {*GOOD, "late"}, found
