"""Hooks of mkdocs that convert the pages of docs/ for the site.

In the repository a page names another file in backticks, like code: `docs/guides/why.md`. On the
site the name becomes a link with the page's title, if the file is a page. Man pages, which are made
from the commands, become pages. The folder of decisions gets its own navigation.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

NAMED = re.compile(r"(?<![\[`])`((?:\.\./)*[\w./-]+\.(?:md|1))(?::\d+)?`(?![\]`])")
FENCES = re.compile(r"^ {0,3}```.*?^ {0,3}```$", re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """Names all decisions in the navigation, in order."""
    names = sorted(path.name for path in (Path(config.docs_dir) / "decisions").glob("*.md"))
    for entry in config.nav:
        if "Decisions" in entry:
            entry["Decisions"] = [f"decisions/{name}" for name in names]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the man pages as Markdown."""
    for file in list(files):
        if file.src_uri.startswith("man/") and file.src_uri.endswith(".1"):
            text = Path(file.abs_src_path).read_text(encoding="utf-8")
            name = file.src_uri.removesuffix(".1") + ".md"
            files.append(File.generated(config, name, content=markdown_of(text)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turns names of pages into links, except in code blocks."""
    parts, last = [], 0
    for fence in FENCES.finditer(markdown):
        parts += [_linked(markdown[last : fence.start()], page, files), fence[0]]
        last = fence.end()
    return "".join([*parts, _linked(markdown[last:], page, files)])


def _linked(text: str, page: Any, files: Files) -> str:
    here = dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        name = found[1]
        candidates = (name.removeprefix("docs/"), normpath(f"{here}/{name}"), f"decisions/{name}")
        for candidate in candidates:
            target = files.get_file_from_path(re.sub(r"\.1$", ".md", candidate))
            if target is not None and target.is_documentation_page():
                return f"[{_title(target)}]({relpath(target.src_uri, here or '.')})"
        return found[0]

    return NAMED.sub(link, text)


def _title(page: File) -> str:
    """Returns the page's first heading."""
    found = re.search(r"^# (.+)$", page.content_string, re.MULTILINE)
    return found[1].strip() if found else page.name


def markdown_of(roff: str) -> str:
    """Converts a man page of docs/made/man_pages.py, which uses few roff requests, to Markdown."""
    lines: list[str] = []
    term = command = False
    for line in roff.splitlines():
        request, _, rest = line.partition(" ")
        if request == ".TP":
            term = True
            continue
        if request == ".TH":
            lines.append(f"# {rest.split()[0].lower()}\n")
        elif request in (".SH", ".SS"):
            lines.append(f"\n{'##' if request == '.SH' else '###'} {_inline(rest)}\n")
        elif request == ".PP":
            lines.append("")
        elif request in (".EX", ".EE"):
            command = request == ".EX"
            lines.append("\n```sh" if command else "```")
        elif command:
            lines.append(_unescaped(line))
        elif not line.startswith('.\\"'):
            text = f"**{_inline(rest)}**" if request in (".B", ".I", ".BR") else _inline(line)
            lines.append(f"\n{text}  " if term else text)
        term = False
    return "\n".join(lines) + "\n"


def _unescaped(text: str) -> str:
    return re.sub(r"\\f[BIR]", "", text.replace("\\&", "").replace("\\-", "-")).replace("\\e", "\\")


def _inline(text: str) -> str:
    marked = re.sub(r"\\fB(.*?)\\fR", r"**\1**", text)
    marked = re.sub(r"\\fI(.*?)\\fR", r"*\1*", marked)
    return _unescaped(marked).replace("<", "&lt;")
