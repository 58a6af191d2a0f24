"""Archives of other machines: members stay inside the folder and never break the adoption."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import first_call_cards as made_up
import pytest
from acceptance.first_call import adopt, archive
from places import ROOT

GOOD = {"steps.json": b"{}", "first.json": b'{"a": 1}'}


def with_member(file: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    """Returns an archive of GOOD with one more member between its two."""
    with tarfile.open(file, "w:gz") as packed:
        for name, data in GOOD.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
            if name == "steps.json":
                packed.addfile(member, io.BytesIO(content))
    return file


def member(name: str, **more: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    "hostile",
    [
        member("../escaped.json", size=2),
        member("a/../../escaped.json", size=2),
        member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("link", type=tarfile.LNKTYPE, linkname="steps.json"),
        member("pipe", type=tarfile.FIFOTYPE),
        member("device", type=tarfile.CHRTYPE),
        member("steps.json/inside", size=2),
    ],
    ids=lambda one: f"{one.name} {one.type!r}",
)
def test_a_member_that_is_no_file_of_the_folder_is_left_out_and_named(
    tmp_path: Path, hostile: tarfile.TarInfo
) -> None:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    (line,) = archive.unpack(with_member(tmp_path / "x.tar.gz", hostile, b"{}"), folder)
    assert hostile.name in line
    assert {str(file.relative_to(folder)) for file in folder.rglob("*")} == set(GOOD)
    assert not (tmp_path / "escaped.json").exists()


def test_an_absolute_name_stays_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    inside = member("/absolute.json", size=2)
    assert archive.unpack(with_member(tmp_path / "x.tar.gz", inside, b"{}"), folder) == []
    assert (folder / "absolute.json").exists()


def test_what_is_too_large_is_left_out_or_ends_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = member("large.json", size=3000)
    file = with_member(tmp_path / "x.tar.gz", large, bytes(3000))
    monkeypatch.setattr(archive, "MEMBER_BYTES_MOST", 2000)
    first = tmp_path / "first"
    first.mkdir()
    (line,) = archive.unpack(file, first)
    assert "large.json" in line and (first / "first.json").exists()
    monkeypatch.setattr(archive, "UNPACKED_BYTES_MOST", 2500)
    second = tmp_path / "second"
    second.mkdir()
    (line,) = archive.unpack(file, second)
    assert "more than" in line
    assert [file.name for file in second.iterdir()] == ["steps.json"]


def test_many_members_end_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MEMBERS_MOST", 5)
    file = made_up.pack(tmp_path / "x.tar.gz", {f"{n}.json": b"{}" for n in range(20)})
    folder = tmp_path / "unpacked"
    folder.mkdir()
    (line,) = archive.unpack(file, folder)
    assert "more than 5 files" in line and len(list(folder.iterdir())) == 5


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9])
def test_a_truncated_archive_gives_its_lines_and_no_traceback(tmp_path: Path, share: float) -> None:
    work = tmp_path / "members"
    work.mkdir()
    members = made_up.parts(work, made_up.report_of(made_up.H100), made_up.H100)
    file = made_up.pack(tmp_path / "results.tar.gz", members)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    told = adopt.adopt(file, made_up.checkout(tmp_path))
    assert any("damaged" in line for line in told), told
    assert all("\n" not in line for line in told)


@pytest.mark.parametrize(
    "content", [b"", b"no archive", b"\x1f\x8b\x08\x00" + bytes(40), b"\xff" * 2000]
)
def test_what_is_no_archive_gets_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "results.tar.gz"
    file.write_bytes(content)
    (line,) = adopt.adopt(file, made_up.checkout(tmp_path))
    assert line.startswith("nothing adopted: ") and "\n" not in line


def test_a_folder_or_nothing_in_place_of_the_archive_gets_one_line(tmp_path: Path) -> None:
    root = made_up.checkout(tmp_path)
    for place in (tmp_path, tmp_path / "nowhere.tar.gz"):
        (line,) = adopt.adopt(place, root)
        assert str(place) in line


@pytest.mark.parametrize("seconds", [[], "x", None, 10**400, -1])
def test_a_report_whose_duration_is_no_number_of_seconds_is_merged(
    tmp_path: Path, seconds: Any
) -> None:
    work = tmp_path / "members"
    work.mkdir()
    members = made_up.parts(work, made_up.report_of(made_up.H100), made_up.H100)
    rest = json.loads(members["rest.json"]) | {"seconds": seconds}
    members["rest.json"] = json.dumps(rest).encode()
    root = made_up.checkout(tmp_path)
    adopt.adopt(made_up.pack(tmp_path / "results.tar.gz", members), root)
    (file,) = root.rglob("gpu_probe.json")
    report = json.loads(file.read_text())
    assert report["seconds"] == json.loads(members["first.json"])["seconds"]
    assert report["questions"]["faults"]["status"] == "ok"


DEEP = b"[" * 100_000


@pytest.mark.parametrize("name", ["steps.json", "first.json", "rest.json", "acceptance/bits.json"])
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", DEEP, b'{"a": NaN}', b'{"device": 1e999}'),
        b'{"items": [3], "device": "x"}',
        b'{"device": {"name": "x"}, "questions": {"faults": 3, "machine": {"status": "ok"}}}',
        b'{"device": {"name": {}}, "host": 3, "questions": {}, "profile": 7, "date": 5}',
        b'{"proof": {"same_bits": {"x": 3}}, "trace": 4}',
    ],
    ids=lambda content: repr(content[:30]),
)
def test_a_damaged_part_costs_that_part(tmp_path: Path, name: str, content: bytes) -> None:
    work = tmp_path / "members"
    work.mkdir()
    members = made_up.parts(work, made_up.report_of(made_up.H100), made_up.H100)
    members[name] = content
    root = made_up.checkout(tmp_path)
    told = adopt.adopt(made_up.pack(tmp_path / "results.tar.gz", members), root)
    assert all("\n" not in line for line in told)
    folders = list((root / "lab/bench/results").glob("nvidia-h100*"))
    assert folders, told
    if name != "steps.json":
        assert any(name.rpartition("/")[2] in line for line in told), told


def mangled(found: Any, turn: int) -> Any:
    """Replaces each value at one depth of the JSON."""
    if isinstance(found, dict) and turn:
        return {key: mangled(value, turn - 1) for key, value in found.items()}
    return ["|", None, {"x": []}][turn % 3] if turn else "| x |\n## y"


@pytest.mark.parametrize("depth", range(6))
def test_answers_of_another_form_bring_nothing_down(tmp_path: Path, depth: int) -> None:
    work = tmp_path / "members"
    work.mkdir()
    report = made_up.report_of(made_up.H100)
    members = made_up.parts(work, report, made_up.H100)
    for answer in report["questions"].values():
        answer["result"] = mangled(answer["result"], depth) if depth else {}
    members["first.json"] = json.dumps(report).encode()
    root = made_up.checkout(tmp_path)
    told = adopt.adopt(made_up.pack(tmp_path / "results.tar.gz", members), root)
    assert all("\n" not in line for line in told)
    assert (root / "lab/bench/results").is_dir()
    for page in ("uvm.md", "first-card.md"):
        before, after = ((one / "docs" / page).read_text() for one in (ROOT, root))
        assert re.findall("^#+ .*", before, re.M) == re.findall("^#+ .*", after, re.M)
        cells = [line.count("|") for line in after.splitlines() if line.startswith("| ")]
        assert cells == [line.count("|") for line in before.splitlines() if line.startswith("| ")]
