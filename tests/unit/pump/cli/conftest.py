"""A bench to run pump-run on."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_bench import TIMEOUT_S, Bench
from supervisor_client import eventually

from pump_lab.cli.virtual import STAND_INS


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like pump/_lib: a loadable libpump.so, a libcuda.so.1 on the library path, and
    stand-ins for CUDA's runtime."""
    folder = tmp_path_factory.mktemp("build") / "pump" / "_lib"
    virtual = "../../pump_lab/_lib/virtual"
    folder.mkdir(parents=True)
    (folder / virtual / "runtime").mkdir(parents=True)
    stand_ins = (f"{virtual}/runtime/{name}" for name in STAND_INS)
    for name in ("libpump.so", f"{virtual}/libcuda.so.1", *stand_ins):
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / name],
            input=b"int pump_nothing;",
            check=True,
            timeout=TIMEOUT_S,
        )
    return folder


@pytest.fixture
def bench(libraries: Path) -> Iterator[Bench]:
    # Not pytest's own folder: a socket's path has to fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pump-test-", dir="/tmp") as folder:
        made = Bench(Path(folder), libraries)
        yield made
        eventually(lambda: not made.processes(), "every pumpd to end with its job")
