"""pump install kernel writes and removes its specification, without Jupyter's packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pump.cli import main as pump


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    return tmp_path / "jupyter" / "kernels"


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pump", "install", "kernel", *words])
    return pump.main()


def test_a_kernel_runs_its_python_under_pump_run(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch, "--", "--budget", "8GiB") == 0
    found = json.loads((data / "pump" / "kernel.json").read_text())
    assert found["display_name"] == "Python (pump)" and found["language"] == "python"
    run, *rest = found["argv"]
    assert Path(run).name == "pump-run" and Path(run).is_absolute()
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert rest == ["--budget", "8GiB", "--", *python]
    assert call(monkeypatch) == 0, "its own is replaced"
    assert call(monkeypatch, "--remove") == 0
    assert list(data.iterdir()) == []


def test_a_prefix_and_the_users_own_folder_are_jupyters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTER_DATA_DIR", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert call(monkeypatch) == 0
    assert (tmp_path / ".local/share/jupyter/kernels/pump/kernel.json").is_file()
    assert call(monkeypatch, "--prefix", str(tmp_path / "venv")) == 0
    assert (tmp_path / "venv/share/jupyter/kernels/pump/kernel.json").is_file()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--remove"], "there is no kernel"),
        (["--python", "python3"], "absolute path"),
        (["--", "--policy", "none"], "none"),
    ],
)
def test_what_is_wrong_is_named(
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    why: str,
) -> None:
    assert call(monkeypatch, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_a_kernel_of_another_is_neither_replaced_nor_removed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "pump").mkdir(parents=True)
    (data / "pump" / "kernel.json").write_text("{}")
    assert call(monkeypatch) == 2
    assert call(monkeypatch, "--remove") == 2
    assert (data / "pump" / "kernel.json").read_text() == "{}"
