"""Compares variants of one command: ratios by round, a verdict, text, Markdown, JSON. Pure.

DESIGN
  Every variant runs once in each round, and ratios are taken within a round: a machine that is slow
  for some minutes slows all variants of a round alike. The result of a variant is the median of its
  ratios. Its range contains the true median with the confidence of the sign test for the number of
  rounds (pump/measure/paired.py). Variants differ only if the range excludes 1.

  A variant that ran out of memory has no time, which is a result, too. Ratios then refer to the
  next variant.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pump.base.names import one_line, quoted
from pump.measure.paired import Enclosed, enclosing
from pump.report.words import many

PLAIN = "plain"
VARIANTS = (PLAIN, "demand", "window", "planned")
"""Without pump, then under each policy. Ratios refer to the first variant that has times."""
USUAL = "planned"
"""The default policy of pump-run, recommended unless another variant is faster."""
OUT_OF_MEMORY = "out of memory"
ROUNDS = 6
"""Fewest rounds for a range with a confidence of at least 95 %."""
SURE = 0.9
"""Lowest confidence for a difference that is reported without a warning."""


@dataclass
class Variant:
    """The measurements of one variant. seconds: by round. failure: the reason why it is not run
    again, or "". log: the output of the failed run."""

    name: str
    seconds: dict[int, float] = field(default_factory=dict)
    failure: str = ""
    log: str = ""


@dataclass
class Comparison:
    """All measurements. setting: a line about the GPU. times: what a time measures, for people.
    rounds: as requested. ended_early: whether a signal ended the comparison."""

    command: Sequence[str]
    options: Sequence[str]
    setting: str
    times: str
    rounds: int
    variants: list[Variant] = field(default_factory=lambda: [Variant(name) for name in VARIANTS])
    ended_early: bool = False

    def baseline(self) -> Variant | None:
        """Returns the variant that ratios refer to: the first with times and without a failure."""
        return next((one for one in self.variants if one.seconds and not one.failure), None)

    def ratio(self, variant: Variant, to: Variant) -> tuple[float, Enclosed] | None:
        """Returns the median ratio of common rounds, and its range; None without a common round."""
        pairs = [variant.seconds[r] / to.seconds[r] for r in variant.seconds if r in to.seconds]
        return (median(pairs), enclosing(pairs)) if pairs else None

    def variant(self, name: str) -> Variant:
        """Returns the variant with that name."""
        return next(variant for variant in self.variants if variant.name == name)


def verdict(found: Comparison) -> list[str]:
    """Returns the conclusions as sentences, with the command to run."""
    base = found.baseline()
    under = [one for one in found.variants if one.name != PLAIN and one.seconds and not one.failure]
    broken = [
        f"{variant.name} failed: {variant.failure}; output: {quoted(variant.log)}"
        for variant in found.variants
        if variant.failure and variant.failure != OUT_OF_MEMORY
    ]
    plain = found.variant(PLAIN)
    alone = ["Without pump the command runs out of memory."] * (plain.failure == OUT_OF_MEMORY)
    if base is None or not under:
        reason = "finished" if found.ended_early else "succeeded"
        return [*alone, *broken, f"Nothing to compare: no run with pump {reason}."]
    best = _best(found, under)
    said = [*alone, *broken]
    if best is base:
        said.append(f"No policy of pump was faster than {base.name}.")
    else:
        said.append(_against(found, best, base))
    policy = [] if best.name == USUAL else ["--policy", best.name]
    line = shlex.join(["pump-run", *policy, *found.options, "--", *found.command])
    if base.name == PLAIN and (ratio := found.ratio(best, base)) and ratio[1].high >= 1.0:
        said.append(f"The command fits without pump. For one that does not: {one_line(line)}")
    else:
        said.append(f"Run it with: {one_line(line)}")
    return said


def _best(found: Comparison, variants: Sequence[Variant]) -> Variant:
    """Returns the fastest variant: USUAL, unless another one is faster with confidence SURE."""
    usual = next((variant for variant in variants if variant.name == USUAL), variants[0])
    best, least = usual, 1.0
    for variant in variants:
        ratio = found.ratio(variant, usual)
        sure = ratio and ratio[1].high < 1.0 and ratio[1].confidence >= SURE
        if ratio and sure and ratio[0] < least:
            best, least = variant, ratio[0]
    return best


def _against(found: Comparison, best: Variant, base: Variant) -> str:
    ratio = found.ratio(best, base)
    if ratio is None:
        return f"{best.name} and {base.name} share no round."
    middle, around = ratio
    said = f"{best.name} {_speed(middle)} {base.name}"
    if around.confidence < SURE:
        rounds = many(len(best.seconds), "round")
        return f"{said}, but {rounds} may be noise; use --rounds {ROUNDS}."
    times = f"{around.low:.2f} to {around.high:.2f} times {base.name}'s time"
    sure = f"{times}, {_percent(around.confidence)} sure"
    if around.low <= 1.0 <= around.high:
        return f"{best.name} took about as long as {base.name} ({sure})."
    return f"{said} ({sure})."


def _speed(ratio: float) -> str:
    """Returns a ratio of times in words; the name of the other variant follows."""
    if ratio <= 0.5:
        return f"was {1 / ratio:.1f} times as fast as"
    if ratio < 1.0:
        return f"was {_percent(1 - ratio)} faster than"
    return (
        f"was {_percent(ratio - 1)} slower than"
        if ratio < 2
        else f"took {ratio:.1f} times as long as"
    )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


HEAD = ("variant", "runs", "median", "against", "range")


def _rows(found: Comparison) -> list[Sequence[str]]:
    base = found.baseline()
    rows: list[Sequence[str]] = [(*HEAD[:3], f"against {base.name if base else '-'}", *HEAD[4:])]
    for variant in found.variants:
        if variant.failure or not variant.seconds:
            said = variant.failure or "not run"
            rows.append((variant.name, str(len(variant.seconds)), said, "-", "-"))
            continue
        ratio = found.ratio(variant, base) if base and variant is not base else None
        middle, around = ("-", "-")
        if ratio:
            middle = f"{ratio[0]:.3f}"
        if ratio and ratio[1].confidence:
            around = f"{ratio[1].low:.3f} to {ratio[1].high:.3f}"
        time = f"{median(variant.seconds.values()):.3f} s"
        rows.append((variant.name, str(len(variant.seconds)), time, middle, around))
    return rows


def _notes(found: Comparison) -> list[str]:
    base = found.baseline()
    ratios = [found.ratio(one, base) for one in found.variants if base and one is not base]
    sure = {ratio[1].confidence for ratio in ratios if ratio and ratio[1].confidence}
    counts = [f"{confidence:.1%}" for confidence in sorted(sure)]
    notes = [f"median: of {found.times}."]
    if counts:
        notes.append(
            "range: contains the true median of the ratio with a confidence of "
            f"{' to '.join(counts[:: max(1, len(counts) - 1)])} (sign test)."
        )
    if found.ended_early:
        notes.insert(0, "Ended early: only the runs until then are shown.")
    return notes


def _title(found: Comparison) -> str:
    return one_line(" ".join(found.command))


def as_text(found: Comparison) -> str:
    """Returns the result as text for a terminal."""
    rows = _rows(found)
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = [
        *verdict(found),
        "",
        f"command  {_title(found)}",
        f"GPU      {found.setting}",
        f"rounds   {many(found.rounds, 'round')}, each with one run of every variant",
        "",
    ]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, "", *_notes(found)])


def as_markdown(found: Comparison) -> str:
    """Returns the result as a page of Markdown."""
    head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in _rows(found)]
    table = [head, ["---"] * len(head), *rows]
    lines = [
        "# pump compare",
        "",
        f"    {_title(found)}",
        "",
        f"- GPU: {found.setting}",
        f"- {many(found.rounds, 'round')}, each with one run of every variant",
        "",
        *(f"| {' | '.join(row)} |" for row in table),
        "",
        *(f"- {note}" for note in _notes(found)),
        "",
        " ".join(f"**{sentence}**" for sentence in verdict(found)),
    ]
    return "\n".join(lines) + "\n"


def as_json(found: Comparison) -> dict[str, Any]:
    """Returns the result for scripts; times in seconds, in the order of rounds."""
    base = found.baseline()
    return {
        "compared": list(found.command),
        "options": list(found.options),
        "gpu": found.setting,
        "rounds": found.rounds,
        "ended_early": found.ended_early,
        "baseline": base.name if base else None,
        "variants": [_variant_as_json(found, variant, base) for variant in found.variants],
        "verdict": verdict(found),
    }


def _variant_as_json(found: Comparison, variant: Variant, base: Variant | None) -> dict[str, Any]:
    ratio = found.ratio(variant, base) if base else None
    return {
        "variant": variant.name,
        "seconds": list(variant.seconds.values()),
        "median_seconds": median(variant.seconds.values()) if variant.seconds else None,
        "ratio": ratio[0] if ratio else None,
        "range": [ratio[1].low, ratio[1].high] if ratio else None,
        "confidence": ratio[1].confidence if ratio else None,
        "failure": variant.failure or None,
        "log": variant.log or None,
    }
