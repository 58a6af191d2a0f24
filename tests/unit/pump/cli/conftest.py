"""A bench that runs pump-run."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_bench import TIMEOUT_S, Bench
from supervisor_client import eventually

from pump.cli import lab


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder like pump/_lib with a loadable libpump.so, and libcuda.so.1 in driver/. If
    the laboratory is installed, its libcuda.so.1 and stand-ins for CUDA's runtime are there too."""
    folder = tmp_path_factory.mktemp("build") / "pump" / "_lib"
    files = [folder / "libpump.so", folder / "driver" / "libcuda.so.1"]
    if lab.find():
        from pump_lab.cli.virtual import STAND_INS

        virtual = folder.parents[1] / "pump_lab" / "_lib" / "virtual"
        files += [virtual / "libcuda.so.1", *(virtual / "runtime" / name for name in STAND_INS)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", file],
            input=b"int pump_nothing;",
            check=True,
            timeout=TIMEOUT_S,
        )
    return folder


@pytest.fixture
def bench(libraries: Path) -> Iterator[Bench]:
    # pytest's own folder is too long: a socket's path has to fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pump-test-", dir="/tmp") as folder:
        made = Bench(Path(folder), libraries)
        yield made
        eventually(lambda: not made.processes(), "every pumpd to end with its job")
