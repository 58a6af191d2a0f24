"""With children at a tenth of the speed, the probe still answers the most important questions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from probe.questions import FIRST
from probe_recovery import KERNELS, PROBE, PUMP_RUN

SLOW = """
import ctypes, os, signal, subprocess, sys, time
PROBE = {probe!r}
if "--question" in sys.argv:
    die = lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # with the one that is killed
    child = subprocess.Popen([sys.executable, PROBE, *sys.argv[1:]], preexec_fn=die)
    while child.poll() is None:
        time.sleep(0.01)
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.09)
        child.send_signal(signal.SIGCONT)
    sys.exit(child.returncode)
sys.path.insert(0, {folder!r})
from probe.entry import main
sys.exit(main())
"""


@pytest.mark.long
def test_children_ten_times_as_slow_answer_the_first_eight_questions_in_nine_minutes(
    tmp_path: Path,
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library, script, out = tmp_path / "k.so", tmp_path / "slow", tmp_path / "report.json"
    words = [compiler, "-O2", "-fPIC", "-shared", "-o", str(library), str(KERNELS)]
    subprocess.run(words, check=True)
    folder = PROBE.parents[1] / "tests" / "acceptance"
    script.write_text(SLOW.format(probe=str(PROBE), folder=str(folder)))
    began = time.monotonic()
    done = subprocess.run(
        [
            *(str(PUMP_RUN), "--virtual", "a100-pcie4", "--virtual-set", "copies=modelled", "--"),
            *(sys.executable, str(script), "--out", str(out)),
        ],
        env={**os.environ, "PUMP_DISABLE": "1", "PUMP_VIRTUAL_KERNELS": str(library)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    print(done.stderr, seconds)
    answers = json.loads(out.read_text())["questions"]
    told = {name: (answers[name]["status"], answers[name]["reason"]) for name in FIRST}
    expected = dict.fromkeys(FIRST, "ok") | {"tma": "unsupported"}  # not sm_90
    assert {name: status for name, (status, _) in told.items()} == expected, told
    assert seconds < 9 * 60
