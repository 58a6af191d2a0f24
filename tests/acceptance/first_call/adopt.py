"""scripts/first_call --adopt ARCHIVE: turns the answers of a first call into files of the product.

DESIGN
  The archive comes from another machine: archive.py unpacks it within size limits, and reports.py
  sorts its parts by GPU. Each GPU gets its own results folder, which never replaces an older one.
  Pages in docs/ are changed only if they have no uncommitted changes. Constants are never changed.
  Answers that hold only for one kind of runtime are kept in the report and used nowhere else.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acceptance import stage_probe, summary
from acceptance.contract import Json
from acceptance.first_call import extras, pages, settings, uvm_page
from acceptance.first_call.archive import ArchiveError, load_json, unpack
from acceptance.first_call.claims import FORM_ERRORS
from acceptance.first_call.reports import Card, cards, not_adopted, transferable

RESULTS = "lab/bench/results"
REHEARSED = "build/acceptance/adopted"
"""Folder for results of the virtual GPU, which are never committed."""
UVM, FIRST = "docs/uvm.md", "docs/first-card.md"
PROOF = re.compile(r"proof\.[a-z_.]+\.json")
SHOWN_MOST = 12
PLACE = re.compile(r"(?<![\w.<}$*-])/(home|root|Users|work|mnt)(?=/\w)")
"""Folders of a machine; committed files must not contain them."""


@dataclass
class Adopted:
    """Result of adopting one GPU's answers. `folder`: its results. `lines`: messages for the user.
    `changed`: changed pages of docs/."""

    card: Card
    folder: Path
    root: Path
    base: str
    lines: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def write(self, name: str, content: str | Mapping[str, Json]) -> Path:
        """Writes a file of the folder, without names of the other machine's folders."""
        text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
        text = PLACE.sub(r"<\1>", text)
        if not name.endswith(".json"):
            text = "\n".join(line.rstrip() for line in text.expandtabs().splitlines()) + "\n"
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def shown(self, file: Path) -> str:
        return str(file.relative_to(self.root))


def main(archive: Path, root: Path) -> int:
    """Prints the adopted files; returns exit status 0 if anything was adopted, else 1."""
    try:
        print("\n".join(_adopt(archive, root)))
    except ArchiveError as error:
        print(f"scripts/first_call: nothing adopted: {error}", file=sys.stderr)
        return 1
    return 0


def adopt(archive: Path, root: Path) -> list[str]:
    """Copies the results in `archive` into the checkout `root`; returns lines for the user.

    An archive without any result gives one line with the reason.
    """
    try:
        return _adopt(archive, root)
    except ArchiveError as error:
        return [f"nothing adopted: {error}"]


def _adopt(archive: Path, root: Path) -> list[str]:
    """Raises ArchiveError if there is nothing to adopt, or nothing can be written."""
    if importlib.util.find_spec("pump") is None:
        sys.path += [str(root), str(root / "lab")]
    root = root.resolve()
    with tempfile.TemporaryDirectory(prefix="first-call-") as name:
        unpacked = Path(name)
        notes = unpack(archive, unpacked)
        found, more = cards(unpacked)
        if not found:
            raise ArchiveError(f"{archive}: no report and no stage in it ({'; '.join(more)})")
        untouched = {page: as_committed(root, page) for page in (UVM, FIRST)}
        made: list[Adopted] = []
        try:
            for turn, card in enumerate(found):
                made.append(_one(card, unpacked if turn == 0 else None, root, untouched))
        except OSError as error:
            raise ArchiveError(f"{error.filename or root}: {error.strerror}") from None
    lines = [line for one in made for line in one.lines] + notes + more
    changed = [one.shown(one.folder) for one in made if not one.card.virtual]
    changed += dict.fromkeys(page for one in made for page in one.changed)
    lines += [f"read the pages, then: git add {' '.join(changed)}"] if changed else []
    return ["".join(one if one.isprintable() else " " for one in line) for line in lines]


def as_committed(root: Path, page: str) -> bool:
    """Returns whether a page has no uncommitted changes; true also without git or a commit."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "--", page],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return True
    return done.returncode != 0 or not done.stdout.strip()


def _one(card: Card, unpacked: Path | None, root: Path, untouched: Mapping[str, bool]) -> Adopted:
    """Adopts one GPU's answers. `unpacked`: folder of files that name no GPU, for the first GPU."""
    place = root / (REHEARSED if card.virtual else RESULTS)
    made = Adopted(card, new_folder(place / card.folder), root, stage_probe.base_for(card.name))
    made.say(f"{made.shown(made.folder)}: {card.label}")
    if made.folder.name != card.folder:
        made.say(f"{card.folder} was there already and stays as it is")
    _results(made, unpacked)
    _pages(made, untouched)
    return made


def new_folder(wanted: Path) -> Path:
    """Creates that folder; appends a number to its name if it exists. Raises OSError."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    folder, number = wanted, 1
    while True:
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            folder = wanted.with_name(f"{wanted.name}-{number}")
        else:
            return folder


def _results(made: Adopted, unpacked: Path | None) -> None:
    """Writes the folder's JSON files and summary."""
    card = made.card
    made.write(
        pages.CARD,
        {
            "label": card.label,
            "name": card.name,
            "driver": card.driver,
            "uuids": sorted(card.uuids),
            "runtime": card.runtime,
            "date": card.date,
            "commit": card.commit,
            "kind": card.kind,
            "quick": card.quick,
            "sources": card.sources,
        },
    )
    if card.report is not None:
        made.write("probe/gpu_probe.json", card.report)
    for name, result in card.stages.items():
        made.write(f"{name}.json", result)
    sections = [] if unpacked is None else list(_extras(made, unpacked))
    try:
        seconds = sum(float(result.get("seconds", 0.0)) for result in card.stages.values())
        text = summary.page(list(card.stages.values()), seconds) if card.stages else ""
    except FORM_ERRORS as error:
        text = ""
        made.say(f"no summary of the stages: one is of another form ({type(error).__name__})")
    text = text or f"# First call: {card.name}\n\n**{card.label}**\n"
    made.write("summary.md", "\n\n".join([text.rstrip("\n"), *filter(None, sections)]))


def _extras(made: Adopted, unpacked: Path) -> Iterator[str]:
    """Copies steps, proof and decoder; yields their sections of the summary."""
    steps: dict[str, Json] = {}
    try:
        steps = load_json(unpacked / "steps.json")
        made.write("steps.json", steps)
    except ValueError as error:
        made.say(f"{error}; steps and proof are unknown")
    for file in sorted(unpacked.glob("proof.*.json")):
        if not PROOF.fullmatch(file.name):
            continue
        try:
            made.write(file.name, load_json(file))
        except ValueError as error:
            made.say(f"{error}; left out")
    for line in extras.broken(steps):
        made.say(line)
    other = [name for name, held in extras.verdicts(steps).items() if not held]
    if other:
        made.say(f"BITS DIFFER from the plain run: {', '.join(other)}; nothing else counts before")
    yield extras.proof(steps)
    lines = unpacked / "decoder.lines"
    phases = extras.phases(lines.read_text(errors="replace")) if lines.is_file() else []
    if phases:
        made.write("decoder.json", {"label": made.card.label, "phases": phases})
    yield extras.decoder(phases)


def _pages(made: Adopted, untouched: Mapping[str, bool]) -> None:
    """Writes the page, profile, list of differences, and the pages of docs/."""
    card = made.card
    try:
        made.write("first-card.md", pages.first_card_page(made.folder))
    except ValueError:
        made.say("no page of the first answers: they are to none of its questions")
    if card.report is None:
        made.say("no report of the probe: no profile, and docs/ stays as it is")
        return
    held = transferable(card.report)
    limits = not_adopted(card.report)
    if limits:
        made.say(f"not adopted, answers hold under {card.runtime} alone: {', '.join(limits)}")
    _profile(made)
    _differences(made, held)
    if card.virtual or card.quick:
        made.say(f"docs/ stays as it is: {card.kind}")
        return
    _uvm(made, held, untouched[UVM])
    _first_card(made, untouched[FIRST])


def _profile(made: Adopted) -> None:
    """Writes the device profile and names the command that uses it."""
    assert made.card.report is not None
    name = made.card.folder
    try:
        from pump_lab import profiles
        from pump_lab.profiles import from_probe

        text = from_probe.text_of(made.card.report, profiles.load(made.base), name)
    except ImportError as error:
        made.say(f"no profile: pump's package {error.name} is missing here")
    except ValueError as error:  # includes ReportError and ProfileError
        made.say(f"no profile: {error}")
    else:
        file = made.write(f"probe/{name}.toml", text)
        made.say(f"profile, from {made.base} where not measured: use it with")
        made.say(f"  pump-run --virtual {made.shown(file)} python train.py")


def _differences(made: Adopted, held: Mapping[str, Json]) -> None:
    try:
        found = settings.differences(held, made.base, made.root)
    except (ImportError, ValueError) as error:
        made.say(f"no list of what differs: {error}")
        return
    file = made.write("settings.md", settings.page(found, made.card.label, made.base))
    made.say(f"{len(found)} assumptions differ, none was changed: {made.shown(file)}")
    for one in found[:SHOWN_MOST]:
        made.say(f"  {one.line()}")
    if len(found) > SHOWN_MOST:
        made.say(f"  and {len(found) - SHOWN_MOST} that differ less")


def _uvm(made: Adopted, held: Mapping[str, Json], untouched: bool) -> None:
    """Marks the rows of docs/uvm.md."""
    page = made.root / UVM
    try:
        text, told = uvm_page.marked(page.read_text(encoding="utf-8"), held, made.card.short)
    except OSError as error:
        made.say(f"{UVM}: {error.strerror}")
        return
    if not told:
        made.say(f"{UVM}: no answer confirms or corrects a row")
        return
    _put(made, page, text, untouched)
    counts = ", ".join(
        f"{sum(line.startswith(verdict) for line in told)} {verdict}"
        for verdict in ("confirmed", "wrong", "measured")
    )
    made.say(f"{len(told)} rows of {UVM} marked: {counts}")
    for line in told:
        if line.startswith("wrong"):
            made.say(f"  {line}")


def _first_card(made: Adopted, untouched: bool) -> None:
    """Fills in docs/first-card.md, in the same way as docs/made/make_docs.py."""
    shown = pages.newest(made.root / RESULTS)
    if shown != made.folder:
        made.say(f"{FIRST} keeps the answers of {shown.name if shown else 'no card'}")
        return
    _put(made, made.root / FIRST, pages.first_card_page(shown), untouched)


def _put(made: Adopted, page: Path, text: str, untouched: bool) -> None:
    """Writes a page of docs/, or a copy in the results if the page has uncommitted changes."""
    name = made.shown(page)
    if untouched and page.parent.is_dir():
        page.write_text(text, encoding="utf-8")
        made.changed.append(name)
        made.say(f"{name}: changed")
        return
    file = made.write(f"changed-{page.name}", text)
    made.say(f"{name} has changes that are not committed: the new page is {made.shown(file)}")
