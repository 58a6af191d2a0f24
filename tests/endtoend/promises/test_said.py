"""What pump says where a request has no effect, and what it leaves where nothing was done."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobs import BIN, pump_run


def test_a_recorded_command_without_cuda_leaves_no_file(tmp_path: Path) -> None:
    pump_run("--record", str(tmp_path / "run.pump"), "true")
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_variable_gets_a_suggestion() -> None:
    done = pump_run("true", PUMP_BUGDET="1GiB")
    assert "PUMP_BUGDET is no variable of pump, and is ignored (did you mean PUMP_BUDGET?)" in (
        done.stderr
    )


def test_a_service_says_where_it_serves(tmp_path: Path) -> None:
    command = [BIN / "pumpd", "serve", "--socket", tmp_path / "service"]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr
        assert service.stderr.readline() == f"pumpd: serves at {tmp_path}/service, until SIGTERM\n"
    finally:
        service.terminate()
        service.wait(60)
