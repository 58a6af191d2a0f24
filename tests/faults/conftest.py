"""Fixtures of the fault campaigns: the injector, the job, and the job's environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import BIN, HERE, MEMORY_MIB, Injector
from jobs import host_kernels
from places import HARD, INCLUDE

FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g1", "-Wall", "-Wextra", "-Werror"]


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds inject, brief and the kernels that brief launches; returns their folder."""
    folder = tmp_path_factory.mktemp("faults")
    includes = [f"-I{HARD}", f"-I{INCLUDE}"]
    brief = [str(HERE / "brief.c"), str(HARD / "hard.c"), "-ldl", "-lpthread"]
    for command in (
        [*FLAGS, "-o", str(folder / "inject"), str(HERE / "inject.c"), "-lpthread"],
        [*FLAGS, *includes, "-o", str(folder / "brief"), *brief],
    ):
        subprocess.run(["cc", *command], check=True)
    host_kernels("mix_kernels.c", folder)
    return folder


@pytest.fixture(scope="session")
def inject(tools: Path) -> Path:
    """Returns the injector, or skips the test if the kernel does not support it."""
    program = tools / "inject"
    try:
        tried = Injector(program, ["read"], ["true"], stderr=subprocess.PIPE)
        tried.ended()
    except (OSError, ValueError, AssertionError):
        pytest.skip("this kernel or container gives no user notification by seccomp")
    return program


@pytest.fixture(scope="session")
def job_environment(tools: Path) -> Iterator[dict[str, str]]:
    """Returns the environment of a job's process; its pumpd runs until the tests end."""
    settings = [f"device.memory_bytes={MEMORY_MIB << 20}", "mode=compute"]
    virtual = [word for setting in settings for word in ("--virtual-set", setting)]
    command = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *virtual, "--"]
    with subprocess.Popen(
        [*command, "sh", "-c", "env -0; exec cat >/dev/null"],
        env={
            **os.environ,
            "PUMP_VIRTUAL_KERNELS": str(tools / "mix_kernels.so"),
            "PUMP_SERVICE": "none",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        words = os.fsdecode(holder.stdout.read()).split("\0")
        yield dict(word.split("=", 1) for word in words if "=" in word)
        holder.stdin.close()
