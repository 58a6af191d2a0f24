"""pump-run as process 1 of a PID namespace: the job is its child, and pumpd ends before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_bench import PUMP_RUN, TIMEOUT_S, Bench

from pumpd.job import place

NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def run(bench: Bench, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NAMESPACE, *PUMP_RUN, *command],
        env=bench.environ | {"LD_PRELOAD": ""} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_job_has_no_pumpd_for_a_child_and_leaves_no_zombie(bench: Bench) -> None:
    code = """
import os, pathlib, subprocess, sys, time
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child", os.getpid() != 1, os.getppid(), os.getpgrp() == os.getpid())
orphan = "sleep 0.1 & echo $!"
pid = subprocess.run(["sh", "-c", orphan], stdout=subprocess.PIPE, text=True).stdout.strip()
until = time.monotonic() + 30
while pathlib.Path(f"/proc/{pid}").exists() and time.monotonic() < until:
    time.sleep(0.02)
print("reaped", not pathlib.Path(f"/proc/{pid}").exists())
"""
    done = run(bench, sys.executable, "-c", code)
    assert (done.stdout, done.stderr) == ("no child True 1 True\nreaped True\n", "")


def test_pumpd_ends_before_process_1_and_takes_its_socket_away(bench: Bench) -> None:
    code = "import os; print(os.environ['PUMP_SOCKET'])"
    done = run(bench, sys.executable, "-c", code)
    socket = Path(done.stdout.strip())
    assert socket.is_relative_to(bench.runtime) and not socket.parent.exists()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["sh", "-c", "trap 'exit 5' TERM; kill -TERM 1; while :; do sleep 0.05; done"], 5),
        (["no-such-program"], 127),
    ],
    ids=["status", "killed", "signal", "missing"],
)
def test_signals_go_to_the_job_and_its_status_comes_back(
    bench: Bench, command: list[str], status: int
) -> None:
    assert run(bench, *command).returncode == status


def test_switched_off_it_becomes_the_job(bench: Bench) -> None:
    assert run(bench, "sh", "-c", "echo $$", PUMP_DISABLE="1").stdout == "1\n"


def test_folders_are_swept_where_their_number_is_another_users_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job in another PID namespace with the same temporary folder may have that number."""
    left = tmp_path / f"{os.getpid()}-0123abcd"
    left.mkdir()
    place.sweep(tmp_path)
    assert left.exists()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    place.sweep(tmp_path)
    assert not left.exists()
