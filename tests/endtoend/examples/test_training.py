"""The training example computes the same weights under every policy, and its loss falls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import BIN, learned
from places import ROOT

SHAPE = ["--width=1024", "--layers=12", "--batch=16", "--rate=2e-4", "--iterations=12"]
MEMORY_MIB = {1.5: 130, 2.0: 97}
"""GPU memory by oversubscription of the model (195 MiB)."""


@pytest.fixture(scope="module")
def kernels() -> Path:
    from host_build import build

    return Path(build())


def train(
    kernels: Path, folder: Path, memory_mib: int, *words: str, **env: str
) -> dict[str, object]:
    """Trains in compute mode on a GPU of that size; returns the output of train_mlp.py."""
    result = folder / "result.json"
    settings = [f"memory={memory_mib}MiB", "mode=compute"]
    virtual = [word for setting in settings for word in ("--virtual-set", setting)]
    policy = [word for word in words if word.startswith("--policy")]
    script = [sys.executable, str(ROOT / "examples" / "train_mlp.py"), *SHAPE]
    own = [word for word in words if word not in policy]
    run = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *virtual, *policy, "--"]
    subprocess.run(
        [*run, *script, *own, "--json", str(result)],
        env={**os.environ, "PUMP_VIRTUAL_KERNELS": str(kernels), **env},
        check=True,
        capture_output=True,
        timeout=90,
    )
    return dict(json.loads(result.read_text()))


@pytest.fixture(scope="module")
def unlimited(kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Runs without pump on a GPU with enough memory."""
    return train(kernels, tmp_path_factory.mktemp("unlimited"), 1024, PUMP_DISABLE="1")


def test_the_loss_falls(unlimited: dict[str, object]) -> None:
    losses = unlimited["losses"]
    assert isinstance(losses, dict)
    first, *_, last = losses.values()
    assert last < 0.8 * first


@pytest.mark.parametrize("ratio", [1.5, 2.0])
@pytest.mark.parametrize("policy", ["demand", "window", "planned"])
def test_every_policy_trains_the_same_weights(
    kernels: Path, tmp_path: Path, unlimited: dict[str, object], policy: str, ratio: float
) -> None:
    found = train(kernels, tmp_path, MEMORY_MIB[ratio], f"--policy={policy}")
    assert found["weights_sha256"] == unlimited["weights_sha256"]


def test_naive_unified_memory_trains_the_same_weights(
    kernels: Path, tmp_path: Path, unlimited: dict[str, object]
) -> None:
    found = train(kernels, tmp_path, MEMORY_MIB[2.0], "--managed", PUMP_DISABLE="1")
    assert found["weights_sha256"] == unlimited["weights_sha256"]


CHANGES = [
    "--iterations=20",
    "--sync-every-step=launch",
    *("--batch-from=6:8", "--batch-from=11:16", "--batch-from=16:8"),
]
"""A smaller batch, the first size again, and the smaller size again."""


def test_a_change_of_batch_size_is_learned_again_and_changes_no_bit(
    kernels: Path, tmp_path: Path
) -> None:
    """Without learning again, pump would predict only five of twenty steps. It can predict
    seventeen: the program waits for each launch, so that a slow worker misses none."""
    alone = train(kernels, tmp_path, 1024, *CHANGES, PUMP_DISABLE="1")
    summary = tmp_path / "summary.json"
    words = ["--policy=planned", *CHANGES]
    found = train(kernels, tmp_path, MEMORY_MIB[1.5], *words, PUMP_SUMMARY=str(summary))
    assert found["weights_sha256"] == alone["weights_sha256"]
    worker = json.loads(summary.read_text())["worker"]
    launches = found["launches"]
    assert isinstance(launches, int)
    assert worker["predicted"] >= 0.7 * launches
    assert worker["predictions_lost"] <= 15, "once for each change, and for the layers of each size"


def test_a_second_run_is_predicted_from_its_first_iteration_on(
    kernels: Path, tmp_path: Path
) -> None:
    """Within one iteration only layers repeat, so the predictions come from the first run."""
    summary, cache = tmp_path / "summary.json", tmp_path / "cache"
    words = ["--policy=planned", "--iterations=1", "--warm-up=0", "--sync-every-step=launch"]
    env = {"PUMP_SUMMARY": str(summary), "PUMP_KEEP_LEARNED": "yes", "XDG_CACHE_HOME": str(cache)}
    first = train(kernels, tmp_path, MEMORY_MIB[1.5], *words, "--layers=24", **env)
    alone = json.loads(summary.read_text())["worker"]
    assert learned(cache).stat().st_mode & 0o777 == 0o600
    second = train(kernels, tmp_path, MEMORY_MIB[1.5], *words, "--layers=24", **env)
    assert second["weights_sha256"] == first["weights_sha256"]
    launches = second["launches"]
    assert isinstance(launches, int)
    again = json.loads(summary.read_text())["worker"]
    assert again["predicted"] >= 0.9 * launches > alone["predicted"]
