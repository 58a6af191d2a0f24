"""Writes the pages of docs/ that are made from the code; tests hold them current.

python docs/made/make_docs.py     (in an environment where pump is installed)
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # acceptance

import man_pages  # noqa: E402
from acceptance.first_card import page as first_card  # noqa: E402

from pump.config import reference  # noqa: E402

DOCS = ROOT / "docs"
BEGIN = "<!-- made by docs/made/make_docs.py from pump/config/schema.py -->\n"
END = "<!-- end of what is made -->\n"


def configuration() -> str:
    """docs/configuration.md with its tables made anew; the rest is written by hand."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, "docs/configuration.md has lost its marks"
    return before + BEGIN + "\n" + reference.markdown() + "\n" + END + after


def pages() -> dict[Path, str]:
    """Every page that is made, as it should be."""
    manual = {DOCS / "man" / name: text for name, text in man_pages.pages().items()}
    first = {DOCS / "first-card.md": first_card.page(None, {})}
    return {DOCS / "configuration.md": configuration(), **first, **manual}


if __name__ == "__main__":
    for path, content in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
