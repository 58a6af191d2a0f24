"""Writes the pages of docs/ that are made from the code; tests hold them current.

python scripts/make_docs.py     (in an environment where pump is installed)
"""

from __future__ import annotations

from pathlib import Path

import man_pages
from acceptance import first_card

from pump.config import reference

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN = "<!-- made by scripts/make_docs.py from pump/config/schema.py -->\n"
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
