"""Parses users' rules for memory that stays device memory. No I/O."""

from __future__ import annotations

from pump.config.values import BLOCK_BYTES, BadValueError, nearest, parse_size, shown

NONE = "none"
WORDS = ("ipc", "stream-ordered", "vmm")
KINDS = ("below", "library", *WORDS, NONE)
# Memory that stays device memory by default: buffers that NCCL, NVSHMEM and UCX register with
# network cards or with other GPUs, and allocations to be shared by IPC. Excludes UCX's libucm,
# because it wraps the allocations of all libraries.
DEFAULT = ["library=libnccl", "library=libnvshmem", "library=libuct", "ipc"]
# Bounds of the shim (memory/rules.c).
LIBRARIES_MAX = 16
NAME_MAX = 63


def parse(text: str) -> str:
    """Returns one rule in the form that the shim reads, or "none". Raises BadValueError."""
    kind, _, value = text.strip().partition("=")
    value = value.strip()
    if kind == "below":
        return f"below={_size(value)}"
    if kind == "library":
        return f"library={_library(value)}"
    if kind in (*WORDS, NONE) and not value:
        return kind
    raise BadValueError(
        f"unknown rule '{shown(text)}'{nearest(shown(kind), list(KINDS))}; write "
        "below=8MiB, library=libname, ipc, stream-ordered, vmm or none"
    )


def combine(rules: list[str]) -> list[str]:
    """Returns the default rules and `rules` in order; "none" drops all rules before it.

    Raises BadValueError for more libraries than the shim supports.
    """
    combined = list(DEFAULT)
    for rule in rules:
        if rule == NONE:
            combined = []
        elif rule not in combined:
            combined.append(rule)
    count = sum(rule.startswith("library=") for rule in combined)
    if count > LIBRARIES_MAX:
        raise BadValueError(f"must name at most {LIBRARIES_MAX} libraries, not {count}")
    return combined


def _size(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes < BLOCK_BYTES:
        raise BadValueError(
            f"must be at least 2MiB, not '{text}': smaller allocations stay device memory anyway"
        )
    return size_bytes


def _library(text: str) -> str:
    if not text or "/" in text or "," in text:
        raise BadValueError(
            f"must be the start of a library's file name, such as libnccl, not '{shown(text)}'"
        )
    if len(text.encode()) > NAME_MAX:
        raise BadValueError(f"'{text[:12]}...' exceeds {NAME_MAX} bytes")
    return text
