"""Turns the archive of a first call into results, profile, pages and a list of differences."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import first_call_cards as made_up
import pytest
from acceptance import results
from acceptance.contract import FAIL, Item
from acceptance.first_call import adopt, pages, settings
from acceptance.first_call import reports as first_call_reports
from acceptance.first_card import page as first_card
from places import ROOT
from probe import questions, transfer

from pump_lab import profiles
from pump_lab.profiles import from_probe

RESULTS = "lab/bench/results"


def adopted(folder: Path, members: dict[str, bytes], root: Path | None = None) -> list[str]:
    """Adopts an archive of these members, and returns the lines of the call."""
    root = root or made_up.checkout(folder)
    return adopt.adopt(made_up.pack(folder / "results.tar.gz", members), root)


def of_card(tmp_path: Path, name: str, runtime: str = "vm", **answers: Any) -> dict[str, bytes]:
    work = tmp_path / "members"
    work.mkdir(exist_ok=True)
    return made_up.parts(work, made_up.report_of(name, runtime, **answers), name, runtime)


def rows_of(page: str, mark: str) -> list[str]:
    return [line for line in page.splitlines() if mark in line and line.startswith("| ")]


def test_the_stored_report_has_the_questions_of_today() -> None:
    asked = made_up.REPORT["questions"]
    assert set(asked) == set(questions.QUESTIONS), "make first_call_report.json again"
    missing = [name for name in asked if asked[name]["status"] not in ("ok", "skipped")]
    assert set(missing) <= {"tma", "bulk", "pageable", "param_info_wrong_kind"}, missing


def test_a_card_near_the_assumptions_becomes_results_profile_and_pages(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    told = adopted(tmp_path, of_card(tmp_path, made_up.H100, **made_up.near()), root)
    folder = root / RESULTS / "nvidia-h100-80gb-hbm3-2026-11-28"
    card = json.loads((folder / "card.json").read_text())
    assert (card["driver"], card["runtime"], card["commit"]) == ("580.159.03", "vm", "c0ffee" * 6)
    assert card["kind"] == "measured on this card" and card["label"] in told[0]
    names = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert names == {
        *("card.json", "summary.md", "first-card.md", "settings.md", "steps.json", "decoder.json"),
        *("bits.json", "speed.json", "proof.window.json", "probe/gpu_probe.json"),
        "probe/nvidia-h100-80gb-hbm3-2026-11-28.toml",
    }
    report = json.loads((folder / "probe/gpu_probe.json").read_text())
    answers = {name for name, one in report["questions"].items() if one["status"] == "ok"}
    assert {"symbols", "faults", "discard", "way_back"} <= answers, "both reports in one"
    assert report["profile"] == first_call_reports.concluded(made_up.REPORT)["profile"]
    assert "/root/" not in json.dumps(report), "no folders of the other machine"
    summary = (folder / "summary.md").read_text()
    assert "window: same bits" in summary and "| 1.5 | window | 80.0 | 0.40 | 2 |" in summary

    profile = profiles.load(str(next((folder / "probe").glob("*.toml"))))
    assert profile.values["device.name"] == f"{made_up.H100} (pump virtual)"
    (command,) = [line for line in told if "pump-run --virtual" in line]
    assert (root / command.split()[2]).exists()

    page = (root / "docs/first-card.md").read_text()
    assert page == (folder / "first-card.md").read_text()
    assert f"**Filled in:** {card['label']}" in page
    assert page.count(f"| {first_card.MARK} |") >= len(settings.ASSUMED)
    assert "decides" not in (folder / "settings.md").read_text(), "nothing but small ratios"
    marks = rows_of((root / "docs/uvm.md").read_text(), "[M] ")
    assert len(marks) > 20
    assert all("NVIDIA H100 80GB HBM3, driver 580.159.03, vm, 2026-11-28: " in row for row in marks)


def test_what_is_to_be_committed_keeps_to_the_rules_of_the_tree(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    adopted(tmp_path, of_card(tmp_path, made_up.H100), root)
    files = [*(root / RESULTS).rglob("*.*"), *(root / "docs").iterdir()]
    assert len(files) > 10
    for file in files:
        text = file.read_text()
        assert not re.search(r"[\t\r]| +$", text, re.MULTILINE), file
        assert text.endswith("\n") and not text.endswith("\n\n"), file
        assert not re.search(r"(?<![\w.<}$*-])/(home|root|Users|work|mnt)/\w", text), file


def test_the_page_of_docs_is_what_make_docs_makes_of_the_results(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    adopted(tmp_path, of_card(tmp_path, made_up.H100), root)
    made = pages.first_card_page(pages.newest(root / RESULTS))
    assert made == (root / "docs/first-card.md").read_text()
    assert pages.first_card_page(None) == first_card.page(None, {})


def test_what_differs_much_is_listed_with_assumption_and_place_the_largest_first(
    tmp_path: Path,
) -> None:
    root = made_up.checkout(tmp_path)
    told = adopted(tmp_path, of_card(tmp_path, made_up.SLOW, **made_up.slow_link()), root)
    folder = root / RESULTS / "nvidia-rtx-a4000-2026-11-28"
    listed = (folder / "settings.md").read_text().splitlines()
    rows = [line.split(" | ") for line in listed if line.startswith("| ")][1:]
    found = {row[0].removeprefix("| "): row[1:] for row in rows}
    assert found["discard"][:3] == ["unmaps", "keeps_mappings", "decides"]
    assert found["tma"][1] == "unsupported"
    base = profiles.load("a100-pcie4").values["link.copy_h2d_gbps"]
    assert found["link.copy_h2d_gbps"][0] == f"{base:g} (a100-pcie4)"
    assert "lab/gpu/" in found["link.copy_h2d_gbps"][3]
    ratios = [settings.DECIDES if row[3] == "decides" else float(row[3]) for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    assert any("discard: assumed unmaps, found keeps_mappings" in line for line in told)

    page = (root / "docs/uvm.md").read_text()
    (kind,) = [row for row in rows_of(page, "[M] ") if "the public discard is undone" in row]
    assert "[M] **wrong**, NVIDIA RTX A4000" in kind
    (rate,) = [row for row in rows_of(page, "[M] ") if row.startswith("| prefetch reaches")]
    assert "**wrong**" in rate and "GB/s on PCIe 5" in rate
    assert not [row for row in rows_of(page, "[M] ") if "through a tensor map" in row]
    marked = (folder / "first-card.md").read_text()
    assert f"| {first_card.MARK} | keeps_mappings |" in marked
    assert f"| {first_card.MARK} | unsupported | needs compute capability" in marked


def gvisor(tmp_path: Path) -> dict[str, bytes]:
    """Returns the members from a card under gVisor: rest.json was cut off, a stage failed."""
    members = of_card(tmp_path, made_up.SANDBOXED, "gvisor")
    members["rest.json"] = members["rest.json"][:5000]
    failed = [Item("torch.window", FAIL, "other bits")]
    result = made_up.stage(tmp_path / "members", made_up.SANDBOXED, "bits", failed, "gvisor")
    members["acceptance/bits.json"] = json.dumps(result).encode()
    return members


def test_what_holds_under_gvisor_alone_reaches_neither_profile_nor_pages(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    told = adopted(tmp_path, gvisor(tmp_path), root)
    folder = root / RESULTS / "nvidia-h200-2026-11-28"
    assert any(line.startswith("rest.json: damaged") for line in told)
    assert any(
        "answers hold under gvisor alone: discard, felt_by_others, lanes" in line for line in told
    )
    profile = tomllib.loads(next((folder / "probe").glob("*.toml")).read_text())
    kinds = profile["conditions"]["constants"]
    assert kinds["uvm.discard_call_us"].startswith(from_probe.ASSUMED)
    assert transfer.DISCARD in kinds["uvm.discard_call_us"]
    assert kinds["uvm.populate_gbps"].startswith(from_probe.MEASURED)
    page = (root / "docs/first-card.md").read_text()
    discard = page.partition("## 5. discard")[2].partition("## 6.")[0]
    assert first_card.MARK not in discard and "not adopted: gVisor does not pass" in discard
    assert f"| {first_card.MARK} | fail | data was lost" in page, "verdicts hold everywhere"
    uvm = (root / "docs/uvm.md").read_text()
    assert not [row for row in rows_of(uvm, "[M] ") if "discard" in row or "eviction in" in row]
    assert [row for row in rows_of(uvm, "[M] ") if "cuGetProcAddress returns" in row]
    assert "discard" not in (folder / "settings.md").read_text()


def test_figures_of_speed_under_gvisor_are_not_adopted(tmp_path: Path) -> None:
    members = of_card(tmp_path, made_up.SANDBOXED, "gvisor")
    values = {transfer.KEY: "speed under gVisor"}
    items = [Item("gpt2.1_5x.window", "pass", values=values)]
    result = made_up.stage(tmp_path / "members", made_up.SANDBOXED, "speed", items, "gvisor")
    members["acceptance/speed.json"] = json.dumps(result).encode()
    root = made_up.checkout(tmp_path)
    adopted(tmp_path, members, root)
    speed = (root / "docs/first-card.md").read_text().partition(". speed\n")[2]
    speed = speed.partition("\n## ")[0]
    assert first_card.MARK not in speed and "not adopted: speed under gVisor" in speed


def test_a_folder_that_exists_gets_a_number_and_stays_as_it_is(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    members = of_card(tmp_path, made_up.H100)
    adopted(tmp_path, members, root)
    folder = root / RESULTS / "nvidia-h100-80gb-hbm3-2026-11-28"
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    told = adopted(tmp_path, members, root)
    assert f"{folder.name}-2: " in told[0] and "was there already" in told[1]
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert (folder.with_name(f"{folder.name}-2") / "card.json").exists()
    uvm = (root / "docs/uvm.md").read_text()
    assert max(line.count("[M] ") for line in uvm.splitlines() if line.startswith("| ")) == 1


def test_another_card_is_marked_beside_the_first(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    adopted(tmp_path, of_card(tmp_path, made_up.H100), root)
    adopted(tmp_path, of_card(tmp_path, made_up.SLOW, **made_up.slow_link()), root)
    (row,) = rows_of((root / "docs/uvm.md").read_text(), "| cuGetProcAddress returns addresses")
    assert row.count("[M] confirmed") == 2 and row.count(" | ") == 3


@pytest.mark.parametrize("changed", ["uvm.md", "first-card.md"])
def test_a_page_with_changes_that_are_not_committed_is_left_alone(
    tmp_path: Path, changed: str
) -> None:
    root = made_up.checkout(tmp_path)
    for words in (["init", "-q"], ["add", "docs"], ["commit", "-q", "-m", "docs"]):
        named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *named, *words], cwd=root, check=True, timeout=30)
    page = root / "docs" / changed
    page.write_text(page.read_text() + "\nMine.\n")
    mine = page.read_text()
    told = adopted(tmp_path, of_card(tmp_path, made_up.H100), root)
    assert page.read_text() == mine
    beside = root / RESULTS / "nvidia-h100-80gb-hbm3-2026-11-28" / f"changed-{changed}"
    assert "580.159.03" in beside.read_text()
    (line,) = [one for one in told if one.startswith(f"docs/{changed} has changes")]
    assert str(beside.relative_to(root)) in line
    (other,) = {"uvm.md", "first-card.md"} - {changed}
    assert f"docs/{other}: changed" in told


def with_rest_of(tmp_path: Path, part: str, **changes: str) -> dict[str, bytes]:
    """Returns an archive's members; another machine answered the second half of the questions."""
    members = of_card(tmp_path, made_up.H100)
    other = made_up.report_of(made_up.H100)
    other[part] |= changes
    members["rest.json"] = json.dumps(made_up.halves(other)[1]).encode()
    return members


def test_two_cards_of_one_kind_are_one_profile(tmp_path: Path) -> None:
    """Two calls on lent machines give such archives."""
    members = with_rest_of(tmp_path, "device", uuid="0d" * 16)
    root = made_up.checkout(tmp_path)
    adopted(tmp_path, members, root)
    (folder,) = (root / RESULTS).iterdir()
    assert "0d" * 16 in json.loads((folder / "card.json").read_text())["uuids"]
    answers = json.loads((folder / "probe/gpu_probe.json").read_text())["questions"]
    assert answers["faults"]["status"] == answers["symbols"]["status"] == "ok"


def test_two_kinds_of_card_in_one_archive_are_kept_apart(tmp_path: Path) -> None:
    members = with_rest_of(tmp_path, "device", name="NVIDIA H200")
    root = made_up.checkout(tmp_path)
    told = adopted(tmp_path, members, root)
    assert any(line.startswith("kept apart, not of one kind of GPU") for line in told)
    folders = sorted((root / RESULTS).iterdir())
    reports = [json.loads((one / "probe/gpu_probe.json").read_text()) for one in folders]
    assert [one["questions"]["faults"]["status"] for one in reports] == ["skipped", "ok"]
    assert (folders[0] / "bits.json").exists() and not (folders[1] / "bits.json").exists()


def test_another_driver_is_another_report(tmp_path: Path) -> None:
    version = "NVRM version: Kernel Module 575.57.08"
    members = with_rest_of(tmp_path, "host", nvidia_version_file=version)
    root = made_up.checkout(tmp_path)
    adopted(tmp_path, members, root)
    drivers = {json.loads(one.read_text())["driver"] for one in root.rglob("card.json")}
    assert drivers == {"580.159.03", "575.57.08"}


def test_results_of_the_virtual_gpu_change_no_page_and_are_not_to_be_committed(
    tmp_path: Path,
) -> None:
    root = made_up.checkout(tmp_path)
    before = {page: page.read_bytes() for page in (root / "docs").iterdir()}
    first, rest = made_up.halves(made_up.REPORT)
    members = {"first.json": json.dumps(first).encode(), "rest.json": json.dumps(rest).encode()}
    told = adopted(tmp_path, members, root)
    assert "build/acceptance/adopted/" in told[0] and "a model's figures" in told[0]
    assert not (root / RESULTS).exists()
    assert before == {page: page.read_bytes() for page in (root / "docs").iterdir()}


def test_stages_alone_are_adopted_without_a_profile(tmp_path: Path) -> None:
    members = of_card(tmp_path, made_up.H100)
    del members["first.json"], members["rest.json"], members["steps.json"]
    root = made_up.checkout(tmp_path)
    told = adopted(tmp_path, members, root)
    assert "first.json: not in the archive" in told
    assert any("no report of the probe" in line for line in told)
    folder = root / RESULTS / "nvidia-h100-80gb-hbm3-2026-11-28"
    assert results.read(folder / "bits.json")
    assert not (folder / "probe").exists()
    assert "GPU acceptance: NVIDIA H100" in (folder / "summary.md").read_text()


def test_runs_of_the_proof_with_other_bits_are_named(tmp_path: Path) -> None:
    members = of_card(tmp_path, made_up.H100)
    steps = json.loads(members["steps.json"])
    steps["proof"]["same_bits"]["window"] = False
    steps |= {"trace": {"code": 1}, "shim": {"code": None}, "rest": {"broke": "KeyError: x"}}
    members["steps.json"] = json.dumps(steps).encode()
    told = adopted(tmp_path, members)
    assert any(line.startswith("BITS DIFFER from the plain run: window") for line in told)
    assert {"step trace: exit status 1", "step shim: stopped at its limit"} <= set(told)
    assert "step rest: KeyError: x" in told


def test_no_constant_is_changed(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    coded = [root / one.file for one in settings.CODED]
    shipped = [*coded, *(root / "lab/pump_lab/profiles").glob("*.toml")]
    before = [file.read_bytes() for file in shipped]
    adopted(tmp_path, of_card(tmp_path, made_up.SLOW, **made_up.slow_link()), root)
    assert before == [file.read_bytes() for file in shipped]


def test_each_constant_of_the_code_that_an_answer_decides_is_found_in_it() -> None:
    values = {one.name: settings.coded_value(one, ROOT) for one in settings.CODED}
    assert None not in values.values(), values
    assert values["SLICE_BLOCKS_MOST"] == 32.0
    fields = settings.profile_fields(ROOT)
    assert set(fields) == set(profiles.KEYS)
    assert settings.users(ROOT, fields["uvm.discard_block_us"])


@pytest.mark.parametrize(
    ("assumed", "found", "times"), [(2, 8, 4), (8, 2, 4), (3, 3, 1), (0, 0, 1)]
)
def test_a_ratio_does_not_depend_on_the_direction(
    assumed: float, found: float, times: float
) -> None:
    assert settings.ratio(assumed, found) == times
    assert settings.ratio(0, 3) == settings.DECIDES


def test_the_command_says_in_one_line_that_there_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made_up.checkout(tmp_path)
    assert adopt.main(tmp_path / "no.tar.gz", root) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "no.tar.gz" in said.err
    archive = made_up.pack(tmp_path / "results.tar.gz", of_card(tmp_path, made_up.H100))
    assert adopt.main(archive, root) == 0
    assert "nvidia-h100-80gb-hbm3-2026-11-28" in capsys.readouterr().out
