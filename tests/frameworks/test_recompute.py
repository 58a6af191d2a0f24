"""Layers that recompute in the backward pass (pump/recompute.py): same bits, less memory."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from framework_runs import MIB, PROGRAMS, Bench

pytestmark = pytest.mark.frameworks

KINDS = ("Block", "WithStatistics", "InPlace", "Later")
RANDOM = "rand_like"


@pytest.fixture(scope="module")
def on_the_cpu(frameworks: Any) -> dict[str, Any]:
    command = [frameworks / "bin" / "python", PROGRAMS / "recomputing.py", "cpu"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_parameters_keep_their_bits(
    kind: str, on: bool, on_the_cpu: dict[str, Any]
) -> None:
    assert on_the_cpu[f"{kind} {on}"]["equal"] is True


def test_pure_operators_run_again_and_random_numbers_do_not(on_the_cpu: dict[str, Any]) -> None:
    off, on = (on_the_cpu[f"Block {on}"] for on in (False, True))
    assert off["more"] == {}
    assert on["layers"] == on["more"]["gelu"] == on["more"]["native_layer_norm"] == 4
    assert on["more"]["addmm"] == 4, "of the two in each layer nothing needs the last"
    assert RANDOM not in on["more"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_layers_that_change_a_tensor_in_place_stay_as_they_are(
    kind: str, on_the_cpu: dict[str, Any]
) -> None:
    """`Later` starts to change a tensor in place after one step as a checkpoint."""
    found = on_the_cpu[f"{kind} True"]
    assert found["layers"] == 0
    (reason,) = found["left"]
    assert reason.endswith("changes a tensor in place")


def test_an_input_that_the_program_changed_is_an_error_and_not_another_gradient(
    on_the_cpu: dict[str, Any],
) -> None:
    assert "modified by an inplace operation" in on_the_cpu["changed"]


def test_wrap_says_what_it_cannot_do(on_the_cpu: dict[str, Any]) -> None:
    twice, none = on_the_cpu["again"]
    assert "has its own forward" in twice
    assert "repeats no layer" in none


def test_products_on_the_gpu_keep_their_bits_and_need_less_memory(bench: Bench) -> None:
    run = bench.program("recomputing", "gpu", pump=True, mode="compute", memory_bytes=48 * MIB)
    assert run.found == {"equal": True, "contents": True, "less_memory": True}
    assert run.violations() == 0


def test_what_the_gpu_waits_for_memory_decides(bench: Bench) -> None:
    plain = bench.program("recomputing", "learn", pump=False)
    assert (plain.found["before"], plain.found["on"]) == (None, False)
    assert plain.found["reason"] == "pump does not serve this process"
    roomy = bench.program("recomputing", "learn", pump=True)
    assert roomy.found["on"] is False, roomy.found["reason"]
    memory_bytes = plain.found["reserved_bytes"] // 3
    scarce = bench.program("recomputing", "learn", pump=True, memory_bytes=memory_bytes)
    assert scarce.found["on"] is True, scarce.found["reason"]
    assert "waited" in scarce.found["reason"]
