"""Stage "bits" checks invariant 1: the same training gives the same bits, whatever pump does.

It runs a small deterministic PyTorch training, if PyTorch is installed, and examples/train_mlp.py.
Each runs with memory for half of its data under every policy of pump. The example also runs on
naive Unified Memory without pump, and under a pump that has nothing to do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acceptance import results, running
from acceptance.comparing import (
    COMPUTE,
    LEAST_S,
    TORCH_NEEDS,
    allowed,
    not_here,
    not_intercepted,
    unclean,
)
from acceptance.contract import FAIL, GIB, INFO, PASS, UNAVAILABLE, Context, Item, Json, late
from acceptance.running import Run

NAME = "bits"
LIMIT_S = 110.0
"""Enough for five runs of PyTorch, which starts slowly, and seven of the example."""
WHAT = "the same training with and without pump, under each policy: the same weights"

TRAININGS = {
    "card": ("--width=4096", "--layers=8", "--batch=64", "--rate=5e-5", "--iterations=12"),
    "virtual": ("--width=1024", "--layers=6", "--batch=8", "--rate=2e-4", "--iterations=4"),
    "quick": ("--width=1024", "--layers=4", "--batch=8", "--rate=2e-4", "--iterations=3"),
}
"""2.2 GiB on a real GPU; small if a CPU computes the result."""
BUDGET_SHARE = 0.5
RUN_LIMIT_S = 50.0
TORCH_MOST_BYTES = 2 * GIB
TORCH = {**TORCH_NEEDS, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""cuBLAS is deterministic only with a workspace of fixed size."""
POLICIES = "import json; from pump.policy import POLICIES; print(json.dumps(sorted(POLICIES)))"


@dataclass(frozen=True)
class Training:
    """A program that hashes its trained weights: in its last line, or in the file of --json."""

    name: str
    words: list[str]
    key: str
    environ: Mapping[str, str] = field(default_factory=dict)


def run(context: Context) -> Iterator[Item]:
    policies = known_policies(context)
    if isinstance(policies, Item):
        yield policies
        return
    # PyTorch first: its bits matter most, and the time may run out.
    yield from allowed("torch", _torch(context, policies))
    yield from allowed("example", _train_mlp(context, policies))


def known_policies(context: Context) -> list[str] | Item:
    """Asks pump for the names of its policies."""
    asked = running.tool(context, running.pump_command(context.root, "-c", POLICIES), limit_s=30)
    if not asked.ok:
        return Item("policies", FAIL, asked.trouble(), asked.evidence())
    return [str(name) for name in json.loads(asked.stdout)]


def _train_mlp(context: Context, policies: list[str]) -> Iterator[Item]:
    shape = TRAININGS["quick" if context.quick else context.machine.kind]
    script = str(context.root / "examples" / "train_mlp.py")
    words = [sys.executable, script, *shape]
    asked = running.tool(context, [*words, "--footprint"], limit_s=30)
    if not asked.ok:
        yield Item("example", FAIL, asked.trouble(), asked.evidence())
        return
    footprint = context.managed(int(asked.stdout))
    training = Training("example", words, "weights_sha256")
    plain, hashed = _hashed(context, training, pump=False)
    if hashed is None:
        yield not_here("example.plain", plain, context.machine)
        return
    yield Item("example.plain", INFO, values={"sha256": hashed, "footprint_bytes": footprint})
    budget = int(footprint * BUDGET_SHARE)
    if "example.naive" not in context.done:
        naive = Training("example.naive", [*words, "--managed"], "weights_sha256")
        yield _judged(context, naive, hashed, pump=False)
    for name in (name for name in ("example.fits", *_names(training, policies))):
        if name not in context.done:
            policy = policies[-1] if name == "example.fits" else name.rpartition(".")[2]
            some = None if name == "example.fits" else budget
            yield _judged(context, training, hashed, name=name, policy=policy, budget_bytes=some)


def _torch(context: Context, policies: list[str]) -> Iterator[Item]:
    if "torch" not in context.machine.packages:
        yield Item("torch.plain", UNAVAILABLE, "torch is not installed here")
        return
    context.managed(TORCH_MOST_BYTES)
    program = Path(__file__).with_name("programs") / "torch_training.py"
    small = ["--width=512", "--layers=2", "--iterations=3"] if context.quick else []
    training = Training("torch", [sys.executable, str(program), *small], "sha256", TORCH)
    plain, hashed = _hashed(context, training, pump=False)
    if hashed is None:
        yield not_here("torch.plain", plain, context.machine)
        return
    peak = int((plain.result() or {}).get("peak_bytes", 0))
    yield Item("torch.plain", INFO, values={"sha256": hashed, "peak_bytes": peak})
    again, hashed_again = _hashed(context, training, pump=False)
    if hashed_again is None:
        yield not_here("torch.repeats", again, context.machine)
        return
    if hashed_again != hashed:
        why = "two runs without pump differ: nothing can be said about pump"
        yield Item("torch.repeats", FAIL, why, again.evidence())
        return
    for name in _names(training, policies):
        if name not in context.done:
            policy = name.rpartition(".")[2]
            yield _judged(
                context,
                training,
                hashed,
                name=name,
                policy=policy,
                budget_bytes=int(peak * BUDGET_SHARE),
            )


def _names(training: Training, policies: list[str]) -> list[str]:
    return [f"{training.name}.half.{policy}" for policy in policies]


def _hashed(
    context: Context,
    training: Training,
    *,
    pump: bool,
    policy: str = "window",
    budget_bytes: int | None = None,
) -> tuple[Run, str | None]:
    """Runs once and returns the run with the hash that it reported; None if there is no hash."""
    file = context.work / "trained.json"
    file.unlink(missing_ok=True)
    words = [*training.words]
    if training.key == "weights_sha256":
        words += ["--json", str(file)]
    program = running.start(
        context,
        words,
        pump=pump,
        policy=policy,
        budget_bytes=budget_bytes,
        limit_bytes=context.most_bytes(),
        environ=training.environ,
        settings=COMPUTE,
    )
    done = program.finish(RUN_LIMIT_S)
    found = results.read(file) if file.exists() else done.result()
    return done, str(found[training.key]) if done.ok and found else None


def _judged(
    context: Context,
    training: Training,
    wanted: str,
    *,
    name: str = "",
    pump: bool = True,
    policy: str = "window",
    budget_bytes: int | None = None,
) -> Item:
    name = name or training.name
    if context.left_s() < LEAST_S:
        return late(name)
    done, hashed = _hashed(context, training, pump=pump, policy=policy, budget_bytes=budget_bytes)
    oversubscribed = pump and budget_bytes is not None
    return verdict(name, done, hashed, wanted, oversubscribed)


def verdict(name: str, done: Run, hashed: str | None, wanted: str, oversubscribed: bool) -> Item:
    """Returns PASS for the wanted bits. If `oversubscribed`, pump must have seen operations."""
    values: dict[str, Json] = {"sha256": hashed, "run_s": round(done.seconds, 3)}
    if done.summary is not None:
        shim = done.summary["shim"]
        values |= {key: shim[key] for key in ("converted_bytes_peak", "operations", "attaches")}
        values["moved_bytes"] = shim["moved_to_gpu_bytes"] + shim["moved_to_host_bytes"]
    if hashed is None:
        reason = done.trouble() or "it told no hash"
    elif hashed != wanted:
        reason = "other bits than without pump"
    else:
        reason = (not_intercepted(done) if oversubscribed else "") or unclean(done)
    if reason:
        return Item(name, FAIL, reason, {**values, **done.evidence()})
    return Item(name, PASS, values=values)
