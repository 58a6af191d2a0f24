"""Stage "speed": the cost of paging under each policy, compared with no limit and with the floor.

One process per model (speed/program.py) switches policy and budget between iterations. For the case
that fits, a plain and a pumped process are alive at once and run their loops alternately. Items:

    `<model>.<ratio>.<policy>`   such as gpt2.1_5x.window: numbers of speed_plan.figures;
    `<model>.fits`               time of the same loop with pump / without, nothing to page;
    `<model>.run`                how the program ended.

An item that ran out of time has the numbers of its complete rounds. The next call with --resume
measures it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance import models, running
from acceptance.comparing import broken
from acceptance.contract import (
    FAIL,
    INFO,
    LATE,
    NO_MEMORY,
    PASS,
    SPARE_SHARE,
    UNAVAILABLE,
    Context,
    Item,
    RefusedError,
    late,
)
from acceptance.models import programs
from acceptance.speed import plan as speed_plan
from acceptance.speed.plan import compare
from acceptance.speed.turns import Player, read_lines

NAME = "speed"
LIMIT_S = 240.0
WHAT = "speed under each policy against no limit, the floor and emulated demand; the case that fits"

CORE_RATIOS = (1.5, 2.0)
MORE_RATIOS = (1.1, 3.0)
FITS_PAIRS = 6
FITS_PAIRS_LEAST = 5
FITS_MOST = 1.01
FITS_LOOP_S = 3.0
FITS_ITERATIONS_LEAST = 5
FITS_SHARE = 0.85
"""Share of the time that pairs may take; the rest is for untimed work."""
START_S = 15.0
"""Time for a program to start, and to end by itself before it is killed."""


@dataclass(frozen=True)
class Job:
    """A process to run. `weight`: its share of the time. Without ratios: the case that fits."""

    model: str
    ratios: tuple[float, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Against:
    """Policies to measure, and the link's speed. `link`: bytes per second to the GPU."""

    policies: Sequence[str]
    link: float


def jobs(context: Context) -> list[Job]:
    """Returns what to run on this machine, most important first.

    On the virtual GPU, PyTorch's models come last. Its traffic is realistic there, but kernels
    touch a whole segment of the allocator, and launching on the CPU is the bottleneck.
    """
    torch = "torch" in context.machine.packages
    real = torch and not context.machine.virtual
    first, second = ("gpt2", "resnet50") if real else ("mlp", "sweep")
    found = [Job(first, CORE_RATIOS, 2), Job(second, CORE_RATIOS, 2), Job(first, (), 1.5)]
    if context.core:
        return found
    found += [Job(first, MORE_RATIOS, 2), Job(second, MORE_RATIOS, 2), Job(second, (), 1.5)]
    if torch:
        found.append(Job("embedding", CORE_RATIOS + MORE_RATIOS, 3))
        others = ("mlp", "sweep") if real else ("gpt2", "resnet50")
        found += [Job(name, CORE_RATIOS, 2) for name in others]
    return found


def virtual_parts(context: Context, model: str) -> dict[str, Any]:
    """Returns a model's settings for the virtual GPU, as arguments of running.pumped."""
    if not context.machine.virtual:
        return {}
    if models.MODELS[model].family == models.TORCH:
        return {"environ": {"PUMP_ACCEPTANCE_CUDNN": "0"}}
    return {"settings": programs.VIRTUAL_SETTINGS.get(model, {})}


def policies() -> list[str]:
    """Returns all policies of pump-run, demand first: the others are compared with it."""
    from pump.config.checks import POLICIES

    return [speed_plan.DEMAND, *(name for name in POLICIES if name != speed_plan.DEMAND)]


def run(context: Context) -> Iterator[Item]:
    """Yields the items described at the top of this file."""
    if not context.machine.virtual and "torch" not in context.machine.packages:
        yield Item("torch", UNAVAILABLE, "PyTorch is not installed; mlp and sweep stand in")
    link = link_bytes_per_second(context)
    if isinstance(link, Item):
        yield link
        return
    if "link" not in context.done:
        yield Item("link", INFO, values={"link_bytes_per_second": link})
    against = Against(policies(), link)
    lefts = ((job, _left(context, job, against.policies)) for job in jobs(context))
    todo = [(job, left) for job, left in lefts if left is not None]
    for number, (job, left) in enumerate(todo):
        share = job.weight / sum(other.weight for other, _ in todo[number:])
        limit_s = context.left_s() * share
        if limit_s < 2 * START_S and not context.quick:
            yield from _too_late(job, left, against)
            continue
        try:
            expected = models.MODELS[job.model].expected_bytes(context.quick)
            context.managed(expected)
        except RefusedError as error:
            yield Item(f"{job.model}.run", UNAVAILABLE, str(error))
            continue
        if job.ratios:
            yield from _switched(context, job.model, left, against, limit_s)
        else:
            yield from _fits(context, job.model, limit_s)


def _too_late(job: Job, ratios: Sequence[float], against: Against) -> Iterator[Item]:
    """Yields late items for a job that the time does not reach."""
    if not job.ratios:
        yield late(f"{job.model}.fits")
    for ratio in ratios:
        yield from (late(_name(job.model, ratio, policy)) for policy in against.policies)


def _left(context: Context, job: Job, every: Sequence[str]) -> tuple[float, ...] | None:
    """Returns the job's unfinished ratios; () for a job that fits; None if nothing is left."""
    if not job.ratios:
        return None if f"{job.model}.fits" in context.done else ()
    left = tuple(
        ratio
        for ratio in job.ratios
        if not {_name(job.model, ratio, policy) for policy in every} <= context.done
    )
    return left or None


def _name(model: str, ratio: float, policy: str) -> str:
    return f"{model}.{speed_plan.tag(ratio)}.{policy}"


def link_bytes_per_second(context: Context) -> float | Item:
    """Returns the rate of copies from pinned memory to the GPU, or an item for a failure. Host
    memory limits the virtual GPU's copies, so its profile gives the rate."""
    if context.machine.virtual:
        profile = context.root / "lab" / "pump_lab" / "profiles" / f"{context.machine.profile}.toml"
        return 1e9 * float(tomllib.loads(profile.read_text())["link"]["copy_h2d_gbps"])
    words = [sys.executable, str(context.root / "examples" / "quickstart" / "card.py")]
    ended = running.plain(context, words, limit_s=60)
    if not ended.ok:
        return Item("link", FAIL, ended.trouble(), ended.evidence())
    return float(json.loads(ended.stdout)["link_bytes_per_second"])


def words(context: Context, model: str, lines: Path, *more: str) -> list[str]:
    """Returns the command that trains a model, without pump."""
    program = context.root / "tests" / "acceptance" / "speed" / "program.py"
    quick = ["--quick"] if context.quick else []
    return [sys.executable, str(program), "--model", model, "--out", str(lines), *quick, *more]


# ---- under budgets ----


def _switched(
    context: Context, model: str, ratios: Sequence[float], against: Against, limit_s: float
) -> Iterator[Item]:
    """Yields the items of one model at these oversubscriptions."""
    lines = context.work / f"{model}.lines"
    lines.unlink(missing_ok=True)
    more = ["--seconds", f"{max(5.0, limit_s - START_S):.1f}"]
    more += ["--phase-seconds", "0.2", "--warm-seconds", "0"] if context.quick else []
    more += [] if context.quick else ["--timeline-below", str(speed_plan.SPEEDUP_WANTED)]
    for ratio in ratios:
        more += ["--ratio", str(ratio)]
    for policy in against.policies:
        more += ["--policy", policy]
    ended = running.pumped(
        context,
        words(context, model, lines, *more),
        limit_bytes=context.most_bytes(),
        limit_s=limit_s,
        **virtual_parts(context, model),
    )
    found = read_lines(lines)
    yield from items(context, model, found, against)
    seen = {line["ratio"] for line in found if line["kind"] == "whole"}
    begun = {line["phase"]["ratio"] for line in found if line["kind"] == "phase"}
    for ratio in ratios:
        if ratio not in seen | begun and ended.ok:
            yield from (late(_name(model, ratio, policy)) for policy in against.policies)
    name = f"{model}.run"
    yield Item(name, PASS) if ended.ok else broken(name, ended)


def items(
    context: Context, model: str, found: Sequence[Mapping[str, Any]], against: Against
) -> Iterator[Item]:
    """Yields items from the output of speed/program.py."""
    facts: dict[str, Any] = {}
    for line in found:
        if line["kind"] == "model":
            facts = {**line["facts"], "footprint_bytes": line["footprint_bytes"]}
    measured = [speed_plan.Measured.from_json(line) for line in found if line["kind"] == "phase"]
    whole = {line["ratio"] for line in found if line["kind"] == "whole"}
    for ratio in dict.fromkeys(one.phase.ratio for one in measured):
        here = [one for one in measured if one.phase.ratio == ratio]
        shown = _keep_timelines(context, model, ratio, found)
        for policy in against.policies:
            values = speed_plan.figures(here, policy, against.link)
            if values:
                name = _name(model, ratio, policy)
                values["headline"] = headline(model, ratio, policy, values)
                possible = speed_plan.speedup_possible(here, against.link)
                status, reason = judge(policy, ratio, values, possible, context.quick)
                if ratio not in whole:
                    status, reason = INFO, LATE
                more = {"ratio": ratio, "speedup_possible": possible, "timeline": shown}
                yield Item(name, status, reason, {**values, **more, "model": facts})


def headline(model: str, ratio: float, policy: str, values: Mapping[str, Any]) -> str:
    """Returns the most important numbers as a sentence; "" for other policies and ratios."""
    if policy != speed_plan.WINDOW or ratio not in CORE_RATIOS:
        return ""
    text = f"{model} at {ratio:g}x: window takes {values['slowdown']:.2f} times unlimited"
    if values["of_floor"] is not None:
        text += f", {values['of_floor']:.0%} of the floor"
    if values["speedup_over_demand_emulated"] is not None:
        text += f", {values['speedup_over_demand_emulated']:.2f} times as fast as emulated demand"
    return text


def judge(
    policy: str, ratio: float, values: Mapping[str, Any], possible: float | None, quick: bool
) -> tuple[str, str]:
    """Returns status and reason for a policy's numbers. Pure."""
    speedup = values["speedup_over_demand_emulated"]
    if policy != speed_plan.WINDOW or ratio not in CORE_RATIOS or quick or speedup is None:
        return INFO, ""
    wanted = speed_plan.SPEEDUP_WANTED
    if speedup >= wanted:
        return PASS, ""
    if possible is not None and possible < wanted:
        return INFO, f"no policy can be {wanted:g} times as fast: the floor allows {possible:.2f}"
    return FAIL, f"{speedup:.2f} times emulated demand, not {wanted:g}; see the timeline"


def _keep_timelines(
    context: Context, model: str, ratio: float, found: Sequence[Mapping[str, Any]]
) -> str | None:
    """Writes the timelines of one oversubscription; returns the file's name, None without any."""
    lines = [line for line in found if line["kind"] == "timeline" and line["ratio"] == ratio]
    if not lines:
        return None
    file = context.out / f"{model}.{speed_plan.tag(ratio)}.timeline.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return file.name


# ---- the case that fits ----


def _fits(context: Context, model: str, limit_s: float) -> Iterator[Item]:
    """Runs the loops of a plain and a pumped process alternately, with both alive."""
    name = f"{model}.fits"
    together = 2 * models.MODELS[model].expected_bytes(context.quick)
    free = context.machine.free_bytes - int(context.machine.total_bytes * SPARE_SHARE)
    if together > free:
        why = f"{NO_MEMORY}: a plain and a pumped process at once need {together >> 20} MiB"
        yield Item(name, UNAVAILABLE, why)
        return
    deadline = time.monotonic() + FITS_SHARE * limit_s
    players = {pump: _player(context, model, pump) for pump in (False, True)}
    try:
        found = pairs(players, deadline, context.quick)
    finally:
        ended = [player.end() for player in players.values()]
    for run in ended:
        # A program still loading at the deadline is late; after a pair, all must end well.
        if not run.ok and (found or run.returncode is not None):
            yield broken(f"{name}.run", run)
            return
    plain, pumped = ([pair[pump] for pair in found] for pump in (False, True))
    yield fits_item(model, pumped, plain, context.quick) if found else late(name)


def _player(context: Context, model: str, pump: bool) -> Player:
    """Starts one of the two processes of the case that fits."""
    lines = context.work / f"{model}.{'pumped' if pump else 'plain'}.lines"
    lines.unlink(missing_ok=True)
    program = running.start(
        context,
        words(context, model, lines, "--turns"),
        pump=pump,
        limit_bytes=context.most_bytes(),
        stdin=subprocess.PIPE,
        **virtual_parts(context, model),
    )
    return Player(program, lines)


def pairs(
    players: Mapping[bool, Player], deadline: float, quick: bool = False
) -> list[dict[bool, float]]:
    """Returns seconds per iteration without pump (False) and with it, in pairs of alternating order
    (A B, B A). Runs at most FITS_PAIRS pairs; stops at the deadline or if a program ends."""
    found: list[dict[bool, float]] = []
    ready = [seconds for one in players.values() if (seconds := one.ready(deadline)) is not None]
    if len(ready) < len(players):
        return found
    longest_s = max(ready)
    for left in range(2 if quick else FITS_PAIRS, 0, -1):
        count = 8 if quick else loop_iterations(longest_s, deadline - time.monotonic(), left)
        if time.monotonic() + 2 * count * longest_s > deadline:
            break
        pair: dict[bool, float] = {}
        for pump in (False, True) if len(found) % 2 == 0 else (True, False):
            seconds = players[pump].loop(count, deadline)
            if seconds is None:
                return found
            pair[pump] = seconds
        found.append(pair)
        longest_s = max(pair.values())
    return found


def loop_iterations(iteration_s: float, left_s: float, pairs_left: int) -> int:
    """Returns a loop's number of iterations: about FITS_LOOP_S long, or shorter so that all
    remaining pairs fit into the time. `iteration_s`: estimated time of an iteration. Pure."""
    target_s = min(FITS_LOOP_S, FITS_SHARE * left_s / (2 * pairs_left))
    return max(FITS_ITERATIONS_LEAST, min(400, round(target_s / max(iteration_s, 1e-6))))


def fits_item(model: str, pumped: Sequence[float], plain: Sequence[float], quick: bool) -> Item:
    """Returns the item of the case that fits, from pairs of seconds per iteration. Pure."""
    name = f"{model}.fits"
    result = compare(pumped, plain)
    values = {
        "pumped_over_plain": result.ratio,
        "interval": result.interval,
        "headline": f"{model} fits: {result.ratio:.4f} times the time without pump",
        "pairs": result.pairs,
        "pumped_seconds_per_iteration": result.first_median,
        "plain_seconds_per_iteration": result.second_median,
        "ratios": [a / b for a, b in zip(pumped, plain, strict=True)],
    }
    if quick:
        return Item(name, INFO, "", values)
    if result.pairs < FITS_PAIRS_LEAST:
        return Item(name, INFO, LATE, values)
    if result.ratio <= FITS_MOST:
        return Item(name, PASS, "", values)
    low = result.interval[0] if result.interval else min(values["ratios"])
    if low <= FITS_MOST:
        reason = f"{result.ratio:.4f}, but the interval holds {FITS_MOST:g}: not decided"
        return Item(name, INFO, reason, values)
    return Item(name, FAIL, f"{result.ratio:.4f} times as long as without pump", values)
