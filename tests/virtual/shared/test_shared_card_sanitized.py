"""Processes on one shared card under sanitizers, the driver's sources linked directly."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import virtual_driver as virtual

HERE = Path(__file__).resolve().parent
PROCESSES = 3


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_processes_that_share_a_card_find_no_race(sanitizer: str, tmp_path: Path) -> None:
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-g1", "-O1", "-rdynamic", f"-fsanitize={sanitizer}")
    sources = (HERE / "card_client.c", *virtual.sources())
    libraries = ("-lpthread", "-lm", "-ldl")
    program = virtual.compile_c(
        tmp_path / "client", *flags, *virtual.INCLUDES, *sources, *libraries
    )
    memory = 256 * virtual.MIB
    settings = {"shared": "sanitized", "copies": "modelled"}
    env = {
        **virtual.environment("timing", memory, PUMP_VIRTUAL_CARDS=str(tmp_path)),
        "PUMP_VIRTUAL_PROFILE": virtual.profile("timing", memory, **settings),
    }
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    started = [subprocess.Popen([program], env=env, text=True, **pipes) for _ in range(PROCESSES)]
    for number, process in enumerate(started):
        assert process.stdin
        process.stdin.write(f"random {number} 1500\ncall 20\nleave\n")
        process.stdin.flush()
    for process in started:
        answers, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors[-4000:]
        assert answers.split()[:3] == ["0", "0", "0"]
        assert "Sanitizer" not in errors
    assert not list(tmp_path.glob("pump-card-*"))
