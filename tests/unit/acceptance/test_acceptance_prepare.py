"""--prepare and the folder that programs run from, with a local package index and no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from acceptance import build, machine, prepare, running
from places import ROOT


def wheel(folder: Path, name: str, version: str, text: str = "VALUE = 1\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\n"
                                             f"Version: {version}\n")  # fmt: skip
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
                                          "Root-Is-Purelib: true\n")  # fmt: skip
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_only_what_the_card_machine_lacks_is_fetched() -> None:
    wanted = prepare.dependencies((ROOT / "pyproject.toml").read_text())
    lacking = prepare.lacking(wanted, prepare.AVAILABLE_THERE)
    assert [prepare.name_of(text) for text in lacking] == [
        *("cffi", "msgspec", "rich", "prometheus-client"),
    ]
    assert prepare.name_of("nvidia-ml-py>=12.560") == "nvidia-ml-py"


def test_what_has_to_be_carried_is_missed_before_anything_runs() -> None:
    wanted = prepare.dependencies((ROOT / "pyproject.toml").read_text())
    carried = map(prepare.name_of, prepare.lacking(wanted, prepare.AVAILABLE_THERE))
    assert set(carried) <= set(machine.NEEDED.values())


def test_pip_is_asked_for_wheels_of_that_python_and_machine_alone() -> None:
    words = prepare.command(["cffi>=1.16"], Path("/w"), "aarch64")
    assert "--only-binary=:all:" in words
    assert "--python-version=3.12" in words
    platforms = [word for word in words if word.startswith("--platform=")]
    assert platforms and all(word.endswith("aarch64") for word in platforms)


def test_preparing_fetches_from_an_index_and_writes_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, out = tmp_path / "index", tmp_path / "wheels"
    wheel(index, "cffi", "9.9")
    wheel(index, "msgspec", "9.8")
    wheel(index, "rich", "99.7")
    wheel(index, "prometheus_client", "9.6")
    wheel(out, "stale", "1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    told: list[str] = []
    assert prepare.main(out, "x86_64", told.append) == 0
    found = json.loads((out / prepare.MANIFEST).read_text())
    entries = sorted(found["wheels"], key=lambda entry: entry["name"])
    assert [(entry["name"], entry["version"]) for entry in entries] == [
        ("cffi", "9.9"),
        ("msgspec", "9.8"),
        ("prometheus_client", "9.6"),
        ("rich", "99.7"),
    ]
    assert all(len(entry["sha256"]) == 64 for entry in entries)
    assert {path.name for path in out.glob("*.whl")} == {entry["file"] for entry in entries}


def test_a_network_that_is_not_there_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(prepare.PrepareError, match="cffi"):
        prepare.main(tmp_path / "out", "x86_64", lambda _line: None)


def test_more_than_may_be_carried_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "TOTAL_BYTES_MAX", 100)
    with pytest.raises(prepare.PrepareError, match="may be carried"):
        prepare.manifest([wheel(tmp_path, "big", "1.0")])


def test_the_site_serves_checkout_and_wheels_from_one_folder(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "carried", "1.0", "VALUE = 7\n")
    names = build.lay_out_site(ROOT, tmp_path / "site", tmp_path / "wheels")
    assert names == ["carried-1.0-py3-none-any.whl"]
    code = "import carried, pump, pumpd; print(carried.VALUE, pump.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"7 {tmp_path / 'site'}")


def test_pump_of_the_checkout_starts_whatever_the_environment_does_to_python(
    tmp_path: Path,
) -> None:
    site = tmp_path / running.BUILD / "site"
    build.lay_out_site(ROOT, site, None)
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "sitecustomize.py").write_text("import os\nos._exit(7)\n")
    (hostile / "json.py").write_text("raise SystemExit(8)\n")
    environ = {**os.environ, "PYTHONHOME": "/nonexistent", "PYTHONPATH": str(hostile)}
    code = "import json, pump, pumpd; print(json.dumps([pump.__file__, pumpd.__file__]))"
    done = subprocess.run(
        running.pump_command(tmp_path, "-c", code), env=environ, capture_output=True, check=True
    )
    found = [Path(file).parent for file in json.loads(done.stdout)]
    assert found == [site / "pump", site / "pumpd"], "not what is installed here"
    version = running.pump_command(tmp_path, "pump-run", "--version")
    done = subprocess.run(version, env=environ, capture_output=True, check=True)
    assert done.stdout.startswith(b"pump")


def test_a_broken_wheel_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "bad-1.0-py3-none-any.whl").write_bytes(b"no zip")
    with pytest.raises(build.BuildError, match=r"bad-1.0.*fetch it again"):
        build.lay_out_site(ROOT, tmp_path / "site", tmp_path)
    assert (tmp_path / "site" / "pump").is_dir(), "what is whole is there all the same"
