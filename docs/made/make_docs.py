"""Writes the files that are generated from code: pages of docs/, completions. Tests compare them.

python docs/made/make_docs.py     (in an environment where pump is installed)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # acceptance
sys.path.append(str(ROOT / "lab" / "bench"))  # study

import completions  # noqa: E402
import man_pages  # noqa: E402
import python_page  # noqa: E402
from acceptance.first_call import pages as first_call  # noqa: E402
from evidence import table as evidence_table  # noqa: E402
from published import table as published_table  # noqa: E402
from study.papers import table  # noqa: E402
from study.sparse import table as sparse_table  # noqa: E402
from workloads import intensity, simulated  # noqa: E402

from pump.config import reference  # noqa: E402

DOCS = ROOT / "docs"
RESULTS = ROOT / "lab" / "bench" / "results" / "papers.jsonl"
SUITES = ROOT / "lab" / "bench" / "results" / "thirdparty.jsonl"
PUBLISHED = ROOT / "lab" / "bench" / "results" / "published.jsonl"
CONSTANTS = PUBLISHED.with_name("constants.jsonl")
EVIDENCE = ROOT / "lab" / "bench" / "results" / "evidence.jsonl"
REMOTE = RESULTS.with_name("remote.jsonl")
END = "<!-- end of the generated part -->\n"


def with_tables(page: str, source: str, tables: str) -> str:
    """Returns a page of docs/ with the tables that are made from `source`."""
    text = (DOCS / page).read_text(encoding="utf-8")
    mark = f"<!-- made by docs/made/make_docs.py from {source} -->\n"
    before, begin, rest = text.partition(mark)
    _, end, after = rest.partition(END)
    assert begin and end, f"docs/{page} has lost its marks"
    return before + mark + "\n" + tables + "\n" + END + after


def papers() -> str:
    """Returns the table of docs/papers.md, made from the stored results."""
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return "\n".join(table.lines(rows)) + "\n"


def suites() -> str:
    """Returns the table of docs/reference/frameworks.md, made from the stored results."""
    rows = [json.loads(line) for line in SUITES.read_text(encoding="utf-8").splitlines()]
    ways = list(max((row["passed"] for row in rows), key=len))
    head = ["suite", *ways, "fail plain", "reason of these failures"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        passed = [str(row["passed"].get(way, "not run")) for way in ways]
        cells = [row["of"], *passed, str(row["failed_plain"]), row["rest"]]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def published() -> str:
    """Returns the tables of docs/published.md, made from the stored results."""
    rows, rest = (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in (PUBLISHED, CONSTANTS)
    )
    parts = published_table.lines(rows), published_table.constants(rest)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def evidence() -> str:
    """Returns the tables of docs/evidence.md, made from the stored results."""
    rows = [json.loads(line) for line in EVIDENCE.read_text(encoding="utf-8").splitlines()]
    return "\n".join(evidence_table.lines(rows)) + "\n"


def remote() -> str:
    """Returns the tables of docs/sparse.md, made from the stored results."""
    rows = [json.loads(line) for line in REMOTE.read_text(encoding="utf-8").splitlines()]
    return "\n".join(sparse_table.lines(rows)) + "\n"


def pages() -> dict[Path, str]:
    """Returns the path and text of each page that is made."""
    manual = {DOCS / "man" / name: text for name, text in man_pages.pages().items()}
    answers = first_call.newest(RESULTS.parent)
    first = {DOCS / "first-card.md": first_call.first_card_page(answers)}
    python = {DOCS / "reference" / "python.md": python_page.page()}
    sources = {
        "reference/configuration.md": ("pump/config/settings.py", reference.markdown()),
        "guides/choose.md": (str(intensity.DATA.relative_to(ROOT)), intensity.table()),
        "papers.md": (str(RESULTS.relative_to(ROOT)), papers()),
        "published.md": (str(PUBLISHED.relative_to(ROOT)), published()),
        "sparse.md": (str(REMOTE.relative_to(ROOT)), remote()),
        "evidence.md": (str(EVIDENCE.relative_to(ROOT)), evidence()),
        "reference/frameworks.md": (str(SUITES.relative_to(ROOT)), suites()),
    }
    for program, unit in (("inference", "token"), ("lora", "step"), ("experts", "token")):
        made = "\n".join(simulated.lines(program, unit)) + "\n"
        sources[f"guides/{program}.md"] = str(simulated.RESULTS.relative_to(ROOT)), made
    tables = {DOCS / page: with_tables(page, *made) for page, made in sources.items()}
    folder = ROOT / "packaging" / "completions"
    shells = {folder / name: text for name, text in completions.pages().items()}
    return {**tables, **first, **manual, **python, **shells}


if __name__ == "__main__":
    for path, content in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
