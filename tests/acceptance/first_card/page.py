"""Makes the page for the first minutes on a GPU: docs/first-card.md, or filled in from results.

docs/made/make_docs.py makes the page in docs/, which is the same without results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from acceptance import results
from acceptance.contract import LATE, Json
from acceptance.first_card.rows import ROWS, UNSUPPORTED, Row

HEAD = """# The first minutes on a GPU

A GPU may be available only for minutes. `scripts/first_call` asks the most decisive questions
first. Each step is bounded, independent of the others, and leaves its results in a few files. The
script needs the Python packages of `docs/gpu.md` and no network, and changes no setting of the GPU.

On a machine that is lent for 15 minutes:

1. Prepare with a network: `scripts/gpu_acceptance --prepare`, and build with
   `scripts/gpu_acceptance --virtual h200-pcie5 --quick --stage trace`. Rehearse both calls:
   `scripts/first_call A --virtual h200-pcie5 --quick`, then `B`.
2. Copy the checkout with `.wheels`, `build/acceptance/pump` and `build/acceptance/pump_lab`, which
   git ignores. Name the commit: `export GPU_ACCEPTANCE_COMMIT=$(git rev-parse HEAD)`. Results go to
   `$OUT` or `build/card/out`; `results.tar.gz` contains all files.
3. **Call A**, 225 s: `scripts/first_call A`. It checks machine and libraries and measures a decoder
   under emulated budgets. Its proof repeats one training without pump, with enough memory and with
   half as much, and compares the hashes. Give the machine back before you read the answers.
4. **Call B**, 440 s: `scripts/first_call B --from results.tar.gz`, on the same machine or another.
   It runs speed, bits, shim, the rest of the probe, trace and failures. `--from` also continues an
   interrupted call.
5. `scripts/first_call --adopt results.tar.gz` writes the folder of results, the device profile, the
   rows of this page and of `docs/uvm.md`, and a list of settings that the answers contradict.
6. Commit these (`docs/gpu.md`, "What to commit"). Then make the changes that the list and this page
   name.

Each call uses at most 4 GiB of managed memory, and PyTorch's expandable segments stay off. On your
own GPU, `scripts/first_call --here` runs both calls in the memory that other programs leave. Under
gVisor some answers hold only for that runtime; the page names the reason next to them.
"""
FOOT = """Enter each answer into the table of `docs/uvm.md` with GPU, driver and date, and the
constants of `probe/<card>.toml` into `lab/pump_lab/profiles/`. `docs/uvm.md` covers the other
questions.
"""
MARK = "**this**"


def page(report: Mapping[str, Json] | None, stages: Mapping[str, Mapping[str, Json]]) -> str:
    """Returns the page. `report`: the probe's. `stages`: by name. None and {}: not asked yet."""
    parts = [HEAD]
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
    """Returns one line that names the GPU, date and commit."""
    device = found.get("device")
    name = device.get("name") if isinstance(device, dict) else found.get("label", device)
    return f"**Filled in:** {name}, {found.get('date', '')}, commit {found.get('commit', '')}\n"


def found_of_question(row: Row, answer: Mapping[str, Json] | None) -> tuple[str, str]:
    """Returns outcome ("" for none) and numbers."""
    if answer is None:
        return "", "not asked yet."
    if answer["status"] != "ok":
        known = answer["status"] == UNSUPPORTED
        return UNSUPPORTED if known else "", f"{answer['status']}: {answer.get('reason', '')}."
    key, said = judged(row, answer["result"])
    limits = answer.get("not_transferable")
    return key, said + (f" Holds for this runtime alone: {limits}." if limits else "")


def found_of_stage(row: Row, result: Mapping[str, Json] | None) -> tuple[str, str]:
    """Returns outcome ("" for none) and counts."""
    if result is None:
        return "", "not run yet."
    if "not_adopted" in result:
        return "", f"not adopted: {result['not_adopted']}."
    late = any(item.get("reason") == LATE for item in result["items"])
    key, said = judged(row, result)
    return key, said + (" Not complete, --resume goes on." if late else "")


def judged(row: Row, result: Mapping[str, Json]) -> tuple[str, str]:
    """Returns the row's judgement; no outcome if the answer lacks a deciding value."""
    try:
        key, said = row.judge(result)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return "", f"the answer lacks what decides ({type(error).__name__}: {error})."
    return key, said + "."


def load(path: Path) -> tuple[Mapping[str, Json] | None, dict[str, Mapping[str, Json]]]:
    """Loads the probe's report and the stages from a results folder, or only a report from a file.

    Raises ValueError with one line if there is neither.
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
