"""The libraries of a run, carried or built, and the stages that a failed build costs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from acceptance import build, child, host_memory, main, runner, running, stage_probe, stages
from acceptance.contract import PASS, UNAVAILABLE, Context, Json, Machine
from acceptance_fakes import make_machine, make_run
from places import ROOT

from pump.base import paths


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder in which nothing is built, on a machine without CMake."""
    monkeypatch.delenv("PUMP_LIB_DIR", raising=False)
    monkeypatch.setenv("PATH", "")
    return tmp_path


def carry(checkout: Path) -> list[Path]:
    """Copies the libraries under test to the folder of a build, and returns their paths."""
    files = []
    for name in build.TARGETS:
        file = running.library_folder(checkout) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(paths.library(name), file)
        files.append(file)
    return files


def configured(checkout: Path, home: Path) -> Path:
    cache = checkout / running.BUILD / "CMakeCache.txt"
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={home}\n")
    return cache


# ---- libraries ---------------------------------------------------------------


def test_carried_libraries_that_load_are_used(checkout: Path) -> None:
    carry(checkout)
    found = build.build(checkout, None, False, 5)
    assert (found.libraries, found.lacks) == ("carried", "")


def test_carried_libraries_are_used_beside_what_another_place_had_configured(
    checkout: Path,
) -> None:
    carry(checkout)
    configured(checkout, Path("/somewhere/else"))
    assert build.build(checkout, None, False, 5).libraries == "carried"


def test_libraries_of_another_machine_are_built_again(checkout: Path) -> None:
    carry(checkout)[0].write_bytes(b"no library")
    found = build.build(checkout, None, False, 5)
    assert found.libraries == ""
    assert "do not load here" in found.lacks and "no cmake here" in found.lacks


def test_what_was_built_from_this_checkout_is_never_taken_without_building(
    checkout: Path,
) -> None:
    carry(checkout)
    configured(checkout, checkout)
    assert "no cmake here" in build.build(checkout, None, False, 5).lacks


def test_nothing_runs_on_the_virtual_gpu_without_libraries(checkout: Path) -> None:
    with pytest.raises(build.BuildError, match="no cmake here"):
        build.build(checkout, None, True, 5)


def test_a_broken_wheel_costs_no_more_than_a_failed_build(checkout: Path) -> None:
    (checkout / "bad-1.0-py3-none-any.whl").write_bytes(b"no zip")
    assert "fetch it again" in build.build(checkout, checkout, False, 5).lacks


def test_why_a_library_does_not_load_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(b"x")
    assert "libbroken.so" in build.loading([broken])
    assert build.loading([Path(paths.library("libpump.so"))]) == ""


def test_a_warning_ends_no_build_over_there_and_a_carried_build_begins_anew(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "CMakeCache.txt"
    cache.write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n")
    words = build.configuring(ROOT, tmp_path)
    assert "-DPUMP_WARNINGS_ARE_ERRORS=OFF" in words
    assert "-G" not in words
    assert cache.exists()
    cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/somewhere/else\n")
    build.configuring(ROOT, tmp_path)
    assert not cache.exists()


# ---- what a failed build costs -----------------------------------------------

WHY = "the build failed; its log: build.log"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the names of the stages that the command runs on a card where the build fails."""
    names: list[str] = []

    def run(one: runner.StageRun, _machine: Machine) -> dict[str, Json]:
        names.append(one.file.stem)
        return {"seconds": 0.0, "complete": True, "items": []}

    monkeypatch.setattr(main.machine, "driver_loads", lambda: True)
    monkeypatch.setattr(main.machine, "missing", list)
    monkeypatch.setattr(main.build, "build", lambda *_: build.Built(lacks=WHY))
    monkeypatch.setattr(main, "look", lambda *_: make_machine())
    monkeypatch.setattr(host_memory, "look", lambda: host_memory.HostMemory(0, 0, 0))
    monkeypatch.setattr(runner.StageRun, "run", run)
    return names


def test_a_failed_build_costs_all_stages_but_the_probe(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    assert main.main(["--out", str(out)]) == main.EXIT_FAILED
    assert ran == ["probe"]
    for name in set(stages.ORDER) - {"probe"}:
        (item,) = json.loads((out / f"{name}.json").read_text())["items"]
        assert (item["status"], item["reason"]) == (UNAVAILABLE, WHY)
    said = capsys.readouterr()
    assert f"only probe can run: {WHY}" in said.err
    assert WHY in (out / "summary.md").read_text()


def test_a_stage_is_told_why_nothing_runs_under_pump(tmp_path: Path) -> None:
    context = Context(tmp_path, tmp_path, tmp_path, make_machine(), lacks=WHY)
    packed = json.loads(json.dumps(child.packed(context, "probe", 5.0, 3)))
    assert child.unpacked(packed).lacks == WHY


def test_the_probe_does_not_try_its_profile_without_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "tool", lambda *_args, **_more: make_run())
    context = Context(tmp_path, tmp_path, tmp_path, make_machine(), lacks=WHY)
    report = tmp_path / "gpu_probe.json"
    report.write_text('{"questions": {}, "profile": {}}')
    found = {item.name: item for item in stage_probe._profile(context, report)}
    assert (found["profile.starts"].status, found["profile.starts"].reason) == (UNAVAILABLE, WHY)
    assert found["profile.written"].status == PASS
