"""Computes how much of a reduction's scratch buffer its kernel can address. Pure.

DESIGN
  A reduction over several blocks of threads (PyTorch's reduce_kernel) gets a buffer in which its
  blocks leave partial sums for each other. The launch's parameters contain its configuration. From
  that follow both the bytes that PyTorch requested from its allocator and the highest address that
  a thread forms (Reduce.cuh: global_memory_size and staging_memory_offset). The requested bytes are
  compared with the block that the allocator recorded. The configuration's highest address counts
  only if the configuration explains that record. This module parses the bytes on its own; it uses
  nothing from the learner that is scored with it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CONFIGURATION = struct.Struct("<16i")
"""Fields: element bytes, inputs, outputs, step in, step out, blocks per output, three multipliers
of the input, two of the output, block width, block height, threads, (vectorised), outputs each."""
WITHIN_BYTES = 128
"""The configuration begins this early in the parameters, after the operation itself."""
ROUNDED_BYTES = (1 << 20) + 512
"""PyTorch's caching allocator leaves at most this much unused at the end of a block."""


class Scratch(NamedTuple):
    """`asked_bytes`: requested from the allocator. `addressed_bytes`: from the buffer's start."""

    asked_bytes: int
    addressed_bytes: int


def scratch(
    name: str, parameters: bytes, grid: tuple[int, int, int], threads: int, block_bytes: int
) -> Scratch | None:
    """Returns the scratch of a reduction's launch; None if no configuration explains it."""
    if "reduce_kernel" not in name:
        return None
    for at in range(0, min(WITHIN_BYTES, len(parameters) - CONFIGURATION.size + 1), 4):
        found = _read(CONFIGURATION.unpack_from(parameters, at), grid, threads)
        if found and 0 <= block_bytes - found.asked_bytes < ROUNDED_BYTES:
            return found
    return None


def _read(words: tuple[int, ...], grid: tuple[int, int, int], threads: int) -> Scratch | None:
    element, _, outputs, _, step, blocks, across, _, spread = words[:9]
    width, height, all_threads, _, vector = words[11:]
    if min(element, outputs, step, blocks, width, height, vector) < 1 or not spread:
        return None
    across_grid = -(-(outputs // vector) // step)
    if (across_grid, blocks) != grid[:2] or not width * height == all_threads == threads:
        return None
    each = 1 if across else width  # a block leaves one sum, or one for each column of threads
    asked = element * outputs * blocks * (1 if across else width * vector)
    return Scratch(asked, element * vector * across_grid * blocks * each)
