"""Files that others name or write: no read waits, and each read has a bound."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump.base import inputs
from pump.cli import main, run


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    """A read that waits is killed after 10 s, and fails the test."""
    signal.alarm(10)
    yield
    signal.alarm(0)


def test_a_pipe_of_any_name_is_refused_at_once(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link, Path("/dev/zero"), Path("/dev/tty")):
        with pytest.raises(OSError) as raised:
            inputs.read(str(path))
        assert raised.value.filename == str(path) and raised.value.strerror


def test_a_stream_that_the_users_shell_has_opened_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    assert inputs.read(f"/dev/fd/{reader}") == b"text"
    os.close(reader)


def test_no_more_than_the_bound_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert inputs.read(str(path), 5) == b"12345" and inputs.start(str(path), 2) == b"12"
    with pytest.raises(OSError, match="longer than"):
        inputs.read(str(path), 4)
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="longer than 1 MiB"):
        inputs.read(str(path))


def test_what_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        inputs.read(str(tmp_path))
    with pytest.raises(OSError, match="zero byte"):
        inputs.read("a\0b")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    assert inputs.read(str(tmp_path / "link")) == b""
    with pytest.raises(OSError, match="symbolic link"):
        inputs.read(str(tmp_path / "link"), follow=False)


VERBS = {
    "simulate": "pump simulate f.pump",
    "simulate json": "pump simulate f.json",
    "wake-ups": "pump simulate --wake-ups f.toml f.json",
    "report": "pump report f.pump --output r.html",
    "report with": "pump report f.pump --with f.json --text",
    "trace info": "pump trace info f.pump",
    "trace export": "pump trace export --perfetto out.json f.pump",
    "config check": "pump config check f.toml",
    "config show": "pump config show --config f.toml",
    "config trust": "pump config trust pump.toml",
    "from-probe": "pump simulate --profile-from f.json --base a100-pcie4 --out x.toml",
    "base": "pump simulate --profile-from f.json --base f.toml --out x.toml",
    "compare": "pump compare --virtual f.toml --yes -- true",
    "install kernel": "pump install kernel",
    "install kernel --remove": "pump install kernel --remove",
    "enable": "pump enable",
    "disable": "pump disable",
    "service install": "pump service install --user",
    "service uninstall": "pump service uninstall --user",
    "virtual": "pump-run --virtual f.toml -- true",
    "config": "pump-run --config f.toml -- true",
}


def _lab(words: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.lab] if "simulate" in words or "--virtual" in words else []


@pytest.mark.parametrize(
    "words", [pytest.param(words, id=name, marks=_lab(words)) for name, words in VERBS.items()]
)
def test_no_verb_waits_for_a_pipe(
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    program, *rest = words.split()
    state, config = tmp_path / ".local/state/pump", tmp_path / ".config"
    kernels, units = tmp_path / ".local/share/jupyter/kernels/pump", config / "systemd/user"
    for folder in (state, config / "pump/jobs.d", kernels, units):
        folder.mkdir(parents=True)
    here = [tmp_path / name for name in ("f.toml", "f.pump", "f.json", "pump.toml")]
    users = [state / "trusted.json", kernels / "kernel.json", units / "pumpd.service"]
    users += [config / "pump/config.toml", config / "pump/jobs.d/a.toml"]
    users += [config / "pump/jobs.compiled", config / "pump/profile.sh"]
    for pipe in (*here, *users):
        os.mkfifo(pipe)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "JUPYTER_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PUMP_DISABLE", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [program, *rest])
    status = (main.main if program == "pump" else run.main)()
    told = capfd.readouterr()
    assert status in (1, 2) or "kept" in told.out
    errors = [line for line in told.err.splitlines() if "ignored: cannot read" not in line]
    assert len(errors) <= 1 and "Traceback" not in told.err
    assert all(pipe.is_fifo() for pipe in (*here, *users))
