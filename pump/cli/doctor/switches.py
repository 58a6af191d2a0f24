"""Checks for environment variables and servers that interfere with pageable memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pump import frameworks
from pump.cli.doctor.finding import Finding, ok, problem, warning
from pump.cli.support import environment, exports


def findings(environ: Mapping[str, str]) -> list[Finding]:
    """Returns a finding for each interfering variable, or one finding if there are none."""
    found = [finding for check in CHECKS for finding in check(environ)]
    return found or [ok("switches", "no environment variable interferes")]


def queues(environ: Mapping[str, str]) -> list[Finding]:
    """Returns a finding with the number of hardware queues for a job's streams."""
    name = environment.CONNECTIONS
    if environment.one_queue(environ):
        return []  # `_check_cuda` reports it
    if name in environ:
        return [ok("hardware queues", f"{environ[name]} ({name})")]
    most = environment.CONNECTIONS_MOST
    return [ok("hardware queues", f"pump-run sets {name}={most}, which is unset")]


def granularity(environ: Mapping[str, str]) -> list[Finding]:
    """Returns the choice of `--granularity auto` for each framework, with the reason."""
    choices = frameworks.advise("auto", environ).choices
    return [ok("granularity", f"auto: {choice}") for choice in choices]


def _check_disabled(environ: Mapping[str, str]) -> list[Finding]:
    if not environment.disabled(environ):
        return []
    return [
        warning(
            "PUMP_DISABLE",
            "is set, so pump-run only runs the command",
            "unset PUMP_DISABLE",
        )
    ]


def _check_preload(environ: Mapping[str, str]) -> list[Finding]:
    names = [p for p in re.split(r"[ :]+", environ.get("LD_PRELOAD", "")) if p]
    others = [
        name
        for name in names
        if os.path.basename(name) != environment.SHIM and not exports.hooks_driver(name)
    ]
    if not others:
        return []
    text = f"{' and '.join(others)} is preloaded after pump and may miss CUDA calls"
    return [warning("LD_PRELOAD", text, "unset LD_PRELOAD, if that library hooks CUDA calls")]


def _check_sanitizer(environ: Mapping[str, str]) -> list[Finding]:
    name, option = environment.ADDRESS_SANITIZER, environment.LINK_ORDER
    chosen = re.findall(rf"\b{option}=(\w+)", environ.get(name, ""))
    if not chosen or chosen[-1] in ("0", "no", "false"):
        return []
    text = f"{option}={chosen[-1]}: programs with a shared AddressSanitizer exit at once"
    return [problem(name, text, f"remove {option} from {name}: pump-run sets it to 0")]


def _check_pytorch(environ: Mapping[str, str]) -> list[Finding]:
    found = []
    if environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0"):
        text = "PyTorch calls the driver for every tensor, which waits for the GPU each time"
        found.append(
            warning("PYTORCH_NO_CUDA_MEMORY_CACHING", text, "unset PYTORCH_NO_CUDA_MEMORY_CACHING")
        )
    return found


def _check_cuda(environ: Mapping[str, str]) -> list[Finding]:
    found = []
    if environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        text = "each launch waits until it is done, so pump cannot prefetch for the next ones"
        found.append(warning("CUDA_LAUNCH_BLOCKING", text, "unset CUDA_LAUNCH_BLOCKING"))
    if environ.get("CUDA_MANAGED_FORCE_DEVICE_ALLOC", "0") not in ("", "0"):
        text = "the driver keeps managed memory on the GPU, so pump cannot page it"
        remedy = "unset CUDA_MANAGED_FORCE_DEVICE_ALLOC"
        found.append(problem("CUDA_MANAGED_FORCE_DEVICE_ALLOC", text, remedy))
    if environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles"):
        text = "hides every GPU"
        remedy = "unset CUDA_VISIBLE_DEVICES"
        found.append(problem("CUDA_VISIBLE_DEVICES", text, remedy))
    if environment.one_queue(environ):
        text = "all streams share one hardware queue, so kernels may wait for transfers"
        remedy = f"unset {environment.CONNECTIONS}, unless the framework needs it"
        found.append(warning(environment.CONNECTIONS, text, remedy))
    return found


MPS_FOLDER = "/tmp/nvidia-mps"
"""MPS's folder of pipes without CUDA_MPS_PIPE_DIRECTORY (NVIDIA, Multi-Process Service)."""


def mps(environ: Mapping[str, str]) -> list[Finding]:
    """Returns a warning if an MPS server may serve this user's programs."""
    named = "CUDA_MPS_PIPE_DIRECTORY" in environ
    pipe = os.path.join(environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_FOLDER, "control")
    if not named and not os.path.exists(pipe):
        return []
    there = "is running" if os.path.exists(pipe) else "is named by CUDA_MPS_PIPE_DIRECTORY"
    text = (
        f"an MPS server {there}: its clients share GPU memory and page faults, and delay each "
        "other when one pages"
    )
    return [
        warning(
            "MPS",
            text,
            "stop it: echo quit | nvidia-cuda-mps-control",
        )
    ]


def _check_frameworks(environ: Mapping[str, str]) -> list[Finding]:
    found = []
    if environ.get("TF_FORCE_UNIFIED_MEMORY", "0") not in ("", "0", "false"):
        text = "the framework uses managed memory itself, outside pump's budget and limit"
        remedy = "unset TF_FORCE_UNIFIED_MEMORY"
        found.append(warning("TF_FORCE_UNIFIED_MEMORY", text, remedy))
    return found


CHECKS = (
    _check_disabled,
    _check_preload,
    _check_sanitizer,
    _check_pytorch,
    _check_cuda,
    _check_frameworks,
)
