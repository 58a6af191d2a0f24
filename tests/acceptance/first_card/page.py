"""The page for the first minutes on a card: docs/first-card.md, or filled in from results.

The page in docs/ is the same without results, made by docs/made/make_docs.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from acceptance import results
from acceptance.contract import LATE, Json
from acceptance.first_card.rows import ROWS, UNSUPPORTED, Row, questions

HEAD = """# The first minutes on a card

What to run, in this order; each step is worth its time if the machine is gone after it.

1. Before: `scripts/gpu_acceptance --prepare` with a network, and carry the checkout with `.wheels`.
   Without a checkout there: `scripts/gpu_probe --carry gpu_probe.pyz`, one file.
2. The questions that decide (about two minutes):
   `scripts/gpu_probe --out first.json --only {questions}`
3. Everything that fits into nine minutes: `scripts/gpu_acceptance`
4. `scripts/gpu_acceptance --resume` until every stage is complete. Another card of the same name
   goes on with shim, bits and failures; probe and speed begin anew there.
5. `scripts/gpu_acceptance --first-card RESULTS` prints this page with the answers: RESULTS is the
   folder of step 3 (the newest one without it) or the file of step 2.
6. Commit JSON, page and profile (`docs/gpu.md`, "What to commit"), then change what the page says.

Under gVisor some answers hold for that runtime alone; the page names the reason beside them.
"""
FOOT = """Each answer goes into the table of `docs/uvm.md` with card, driver and date, and the
constants of `probe/<card>.toml` into `pump/profiles/`. Of all that is not named here `docs/uvm.md`
says what follows.
"""
MARK = "**this**"


def page(report: Mapping[str, Json] | None, stages: Mapping[str, Mapping[str, Json]]) -> str:
    """The page. `report`: the probe's; `stages`: results by name. None and {}: not asked yet."""
    parts = [HEAD.format(questions=" ".join(questions()))]
    if report or stages:
        parts.append(origin(report or next(iter(stages.values()))))
    for number, row in enumerate(ROWS, 1):
        if row.stage:
            key, said = found_of_stage(row, stages.get(row.name))
        else:
            key, said = found_of_question(row, (report or {}).get("questions", {}).get(row.name))
        lines = [
            f"## {number}. {row.name}",
            "",
            f"{'Checks' if row.stage else 'Asks'} {row.asks}. **Found:** {said}",
            "",
            "| | outcome | what it means | what to change |",
            "|---|---|---|---|",
        ]
        for one in row.outcomes:
            mark = MARK if one.key == key else ""
            lines.append(f"| {mark} | {one.key} | {one.means} | {one.change} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join([*parts, FOOT])


def origin(found: Mapping[str, Json]) -> str:
    """One line: which card, and when."""
    device = found.get("device")
    name = device.get("name") if isinstance(device, dict) else found.get("label", device)
    return f"**Filled in:** {name}, {found.get('date', '')}, commit {found.get('commit', '')}\n"


def found_of_question(row: Row, answer: Mapping[str, Json] | None) -> tuple[str, str]:
    """Outcome ("" for none) and figures."""
    if answer is None:
        return "", "not asked yet."
    if answer["status"] != "ok":
        known = answer["status"] == UNSUPPORTED
        return UNSUPPORTED if known else "", f"{answer['status']}: {answer.get('reason', '')}."
    key, said = judged(row, answer["result"])
    limits = answer.get("not_transferable")
    return key, said + (f" Holds for this runtime alone: {limits}." if limits else "")


def found_of_stage(row: Row, result: Mapping[str, Json] | None) -> tuple[str, str]:
    """Outcome ("" for none) and counts."""
    if result is None:
        return "", "not run yet."
    if "not_adopted" in result:
        return "", f"not adopted: {result['not_adopted']}."
    late = any(item.get("reason") == LATE for item in result["items"])
    key, said = judged(row, result)
    return key, said + (" Not complete, --resume goes on." if late else "")


def judged(row: Row, result: Mapping[str, Json]) -> tuple[str, str]:
    """The row's judgement; an answer that lacks what it goes by is none."""
    try:
        key, said = row.judge(result)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return "", f"the answer lacks what decides ({type(error).__name__}: {error})."
    return key, said + "."


def load(path: Path) -> tuple[Mapping[str, Json] | None, dict[str, Mapping[str, Json]]]:
    """The probe's report and the stages of a folder of results, or of a report alone.

    Raises ValueError with one line when there is neither.
    """
    if path.is_dir():
        report = results.read(path / "probe" / "gpu_probe.json")
        found = {row.name: results.read(path / f"{row.name}.json") for row in ROWS if row.stage}
        stages = {name: result for name, result in found.items() if result}
    else:
        report, stages = results.read(path), {}
    if report is not None and not isinstance(report.get("questions"), dict):
        report = None
    if report is None and not stages:
        raise ValueError(f"{path}: no results of gpu_acceptance and no report of gpu_probe")
    return report, stages
