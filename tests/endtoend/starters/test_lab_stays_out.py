"""The product is independent of the laboratory: a job without a virtual GPU loads no file of the
laboratory, nor does its pumpd."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import harness
import pumpds

BIN = Path(sys.executable).parent
MAPS = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 << 20)) == 0
print(os.getpid(), flush=True)
sys.stdin.read()
"""

MODULES = """
import sys
from pump.cli.run import main
sys.addaudithook(lambda event, _: event == "os.exec" and print(*sys.modules, flush=True))
main(["true"])
"""


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_shim_and_pumpd_map_no_library_of_the_laboratory(tmp_path: Path) -> None:
    driver = harness.build_null_driver(dataclasses.replace(harness.Tools(), work=tmp_path))
    job = subprocess.Popen(
        [BIN / "pump-run", sys.executable, "-c", MAPS],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LD_LIBRARY_PATH": str(driver.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdin is not None and job.stdout is not None
    try:
        pid = int(job.stdout.readline())
        assert "libpump.so" in maps(pid) and "pump_lab" not in maps(pid)
        assert pumpds.wait_for(lambda: bool(pumpds.of_job(pid).workers))
        serving = pumpds.of_job(pid)
        found = [maps(one) for one in (serving.supervisor, *serving.workers)]
        assert any("libpump_core.so" in text for text in found)
        assert not any("pump_lab" in text for text in found)
    finally:
        job.stdin.close()
        job.wait(60)


def test_pump_run_imports_nothing_of_the_laboratory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES],
        env={"PATH": "/usr/bin:/bin", "PUMP_DISABLE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules = done.stdout.split()
    assert "pump.cli.lab" in modules
    assert not [name for name in modules if name.startswith("pump_lab")]
