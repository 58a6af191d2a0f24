"""Describes GPU, memory, runtime, packages and tools: first queries, then pure decisions.

Packages are looked up by their metadata and never imported: importing PyTorch takes seconds, and a
broken package would end the acceptance.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from probe.host import detect_runtime

from acceptance import host_memory
from acceptance.contract import CARD, VIRTUAL, Json, Machine

PACKAGES = (
    *("torch", "triton", "jax", "jaxlib", "cuda-bindings", "cuda-core", "numba", "numba-cuda"),
    *("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    *("numpy", "cffi", "psutil", "nvidia-ml-py", "scikit-learn", "nvidia-cuda-nvrtc"),
)
NEEDED = {
    "numpy": "numpy",
    "cffi": "cffi",
    "msgspec": "msgspec",
    "psutil": "psutil",
    "rich": "rich",
    "prometheus_client": "prometheus-client",
    "cuda.bindings": "cuda-bindings",
}
"""Required by pumpd and the examples: package by module."""
TOOLS = ("nvcc", "cmake", "ninja", "make", "cc")
FACTS_LIMIT_S = 60
VIRTUAL_MARK = "(pump virtual)"
"""Part of the name of every modelled device."""


class NothingToRunOnError(Exception):
    """There is no GPU and no virtual GPU was requested; the text gives reason and remedy."""


def driver_loads() -> bool:
    """Returns whether libcuda.so.1 can be loaded. Does not initialise it."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def missing() -> list[str]:
    """Returns the packages of NEEDED that this Python lacks."""
    return [package for module, package in NEEDED.items() if not _importable(module)]


def lacking(wheels: Path) -> list[str]:
    """Returns packages of NEEDED that are not installed here and not carried as wheels."""
    carried = {file.name.split("-")[0].lower().replace("_", "-") for file in wheels.glob("*.whl")}
    return [name for name in missing() if name not in carried]


def _importable(module: str) -> bool:
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(module) is not None
    return False


def packages(site: Path | None) -> dict[str, str]:
    """Returns installed and carried packages of PACKAGES with their versions."""
    found = {}
    path = [*([str(site)] if site else []), *sys.path]
    for name in PACKAGES:
        for distribution in importlib.metadata.distributions(name=name, path=path):
            found[name] = distribution.version
            break
    return found


def tools(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the paths of TOOLS; respects CC and CUDA_HOME."""
    words = {"cc": environ.get("CC", "cc").split()[0]}
    home = environ.get("CUDA_HOME") or "/usr/local/cuda"
    found = {}
    for name in TOOLS:
        path = shutil.which(words.get(name, name))
        if path is None and name == "nvcc":
            path = shutil.which(f"{home}/bin/nvcc")
        if path:
            found[name] = path
    return found


def runtime() -> str:
    """Returns the runtime that the probe detects: "bare metal", "vm" or "gvisor"."""
    try:
        return str(detect_runtime()["kind"])
    except Exception:  # not needed here; the probe's report has the details
        return "unknown"


def ask_card(environ: Mapping[str, str], command: list[str] | None = None) -> dict[str, Json]:
    """Returns the output of card_facts.py, or {"error": why there is no usable GPU}."""
    words = [*(command or []), sys.executable, str(Path(__file__).with_name("card_facts.py"))]
    try:
        done = subprocess.run(
            words,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FACTS_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"the driver did not answer within {FACTS_LIMIT_S} s"}
    if done.returncode == 0:
        with contextlib.suppress(ValueError):
            found = json.loads(done.stdout)
            if isinstance(found, dict):
                return found
    said = done.stderr.strip().splitlines()
    return {"error": said[-1] if said else f"exit status {done.returncode}"}


def decide(
    profile: str | None, loads: bool, card: Mapping[str, Json], facts: Mapping[str, Json]
) -> Machine:
    """Builds the Machine from the queries' answers. `facts`: fields that no driver knows.

    Raises NothingToRunOnError.
    """
    if profile is None and not loads:
        raise NothingToRunOnError(
            "no NVIDIA driver here (libcuda.so.1 cannot be loaded): run it on a machine with a "
            "card, or add --virtual PROFILE for the virtual GPU (--virtual a100-pcie4)"
        )
    if "error" in card:
        where = f"the virtual GPU {profile}" if profile else "the card"
        remedy = "" if profile else "; --virtual PROFILE runs on the virtual GPU"
        raise NothingToRunOnError(f"{where} cannot be used: {card['error']}{remedy}")
    if not profile and VIRTUAL_MARK in str(card.get("name", "")):
        raise NothingToRunOnError(
            "what answers here is pump's virtual GPU, not a card: call it outside of pump-run and "
            "with --virtual PROFILE, so that its figures are labelled as a model's"
        )
    return Machine(
        kind=VIRTUAL if profile else CARD,
        profile=profile or "",
        name=str(card.get("name", "")),
        uuid=str(card.get("uuid", "")),
        driver="virtual" if profile else driver_version(card),
        total_bytes=int(card.get("total_bytes", 0)),
        free_bytes=int(card.get("free_bytes", 0)),
        **facts,
    )


def driver_version(card: Mapping[str, Json]) -> str:
    """Returns NVML's driver version; without NVML, the CUDA version that the driver supports."""
    cuda = int(card.get("cuda", 0))
    return str(card.get("driver") or f"unknown, for CUDA {cuda // 1000}.{cuda % 1000 // 10}")


def facts(site: Path | None) -> dict[str, Json]:
    """Returns the fields of Machine that no driver knows."""
    return {
        "host_available_bytes": host_memory.look().available,
        "runtime": runtime(),
        "host": f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} CPUs, "
        f"Python {platform.python_version()}",
        "packages": packages(site),
        "tools": tools(os.environ),
    }
