"""Results of a first call outside of probe and acceptance: the proof and the decoder. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from acceptance.contract import Json
from acceptance.first_call.archive import parse_json
from acceptance.first_call.reports import text
from acceptance.labels import EMULATED

LINES_MOST = 10_000
UNLIMITED, DEMAND = "unlimited", "demand"


def phases(lines: str) -> list[dict[str, Json]]:
    """Returns the timed phases from the decoder's output, without damaged lines."""
    found = []
    for line in lines.splitlines()[:LINES_MOST]:
        try:
            row = parse_json(line, "decoder.lines")
        except ValueError:
            continue  # the last line may be incomplete
        phase = row.get("phase")
        if row.get("kind") != "phase" or not isinstance(phase, dict):
            continue
        numbers = (row.get("seconds"), row.get("iterations"), phase.get("ratio"))
        if all(isinstance(one, int | float) and one > 0 for one in numbers):
            found.append(row)
    return found


def decoder(found: list[dict[str, Json]]) -> str:
    """Returns a section of the summary: milliseconds per iteration by budget and policy, or ""."""
    times: dict[tuple[float, str], list[float]] = {}
    for row in found:
        key = (float(row["phase"]["ratio"]), text(row["phase"].get("policy", "")))
        times.setdefault(key, []).append(1e3 * row["seconds"] / row["iterations"])
    if not times:
        return ""
    lines = ["## Decoder", "", f"Optimistic: {EMULATED}.", ""]
    lines += ["| oversubscription | policy | ms an iteration | of demand | phases |"]
    lines += ["|---|---|---|---|---|"]
    for (ratio, policy), spent in times.items():
        demand = times.get((ratio, DEMAND))
        share = f"{median(spent) / median(demand):.2f}" if demand else "-"
        lines.append(f"| {ratio:g} | {policy} | {median(spent):.1f} | {share} | {len(spent)} |")
    return "\n".join(lines)


def verdicts(steps: Mapping[str, Json]) -> dict[str, bool]:
    """Returns for each run of the proof whether it has the plain run's bits."""
    proof = steps.get("proof") or steps.get("earlier.proof")
    same = proof.get("same_bits") if isinstance(proof, dict) else None
    if not isinstance(same, dict):
        return {}
    return {text(name): held for name, held in same.items() if isinstance(held, bool)}


def proof(steps: Mapping[str, Json]) -> str:
    """Returns a section of the summary: which runs of the proof have the same bits, or ""."""
    found = verdicts(steps)
    if not found:
        return ""
    lines = [
        f"- {name}: {'same bits' if held else '**other bits**'}" for name, held in found.items()
    ]
    return "\n".join(["## Proof: the bits of the plain run", "", *lines])


def broken(steps: Mapping[str, Json]) -> Iterator[str]:
    """Yields a line for each step that broke, was stopped, or ended with a nonzero exit status."""
    for name, step in steps.items():
        if not isinstance(step, dict):
            continue
        why = step.get("broke") or step.get("code", 0)
        if why != 0:
            end = f"exit status {why}" if isinstance(why, int) else text(why)
            yield f"step {text(name)}: {'stopped at its limit' if why is None else end}"
