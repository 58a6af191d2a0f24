"""The probe's question about memory of the system allocator, without a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from probe.driver import CudaError, UnsupportedError
from probe.questions import ask_pageable
from probe.registry import Notes


class Fake:
    """Acts as a GPU that reaches such memory, and refuses to prefetch it."""

    def __init__(self, access: int) -> None:
        self.access = access

    def attribute(self, name: str) -> int:
        assert name.startswith("PAGEABLE_MEMORY_ACCESS")
        return self.access if name == "PAGEABLE_MEMORY_ACCESS" else 0

    def warm_up(self) -> None:
        assert self.access, "measures a GPU that cannot reach pageable memory"

    def plain(self, _length: int) -> int:
        return 1

    def free(self, address: int) -> None:
        assert address == 1

    def read(self, address: int, length: int, _sink: int) -> tuple[int, int, int]:
        return address, length, 0

    def fill(self, address: int, length: int, value: int) -> tuple[int, int, int]:
        return address, length, value

    def kernel_ns(self, read: tuple[int, int, int]) -> float:
        assert ctypes.string_at(read[0] + read[1] - 1, 1) == bytes([ask_pageable.VALUE])
        return 5000.0

    def launch(self, fill: tuple[int, int, int]) -> None:
        for at in range(fill[0], fill[0] + fill[1], 4096):
            ctypes.memset(at, 0, 4096)
            ctypes.c_uint32.from_address(at + 4092).value = fill[2]

    def sync(self) -> None:
        pass

    def move(self, _address: int, _length: int, _to: int) -> Any:
        raise CudaError("cuMemPrefetchAsync", 1)


def test_a_gpu_that_does_not_reach_such_memory_is_not_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ask_pageable, "swap_kib", lambda: 0)
    out = Notes()
    with pytest.raises(UnsupportedError, match="PAGEABLE_MEMORY_ACCESS is 0"):
        ask_pageable.ask_pageable.run(Fake(0), out)  # type: ignore[arg-type]
    assert out == {"swap_kib": 0, "access": 0, "host_page_tables": 0}


def test_reads_writes_and_a_refused_prefetch_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ask_pageable, "swap_kib", lambda: 0)
    out = Notes()
    ask_pageable.ask_pageable.run(Fake(1), out)  # type: ignore[arg-type]
    assert out["read"]["seen"]
    assert out["read"]["first_us"] == out["read"]["second_us"]
    assert "cuMemPrefetchAsync" in out["read_prefetched"]["failed"]
    assert out["swapped"] == "no swap is on"


def test_with_swap_it_tells_which_share_is_left_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without swap nothing leaves the memory, which is an answer, too."""
    monkeypatch.setattr(ask_pageable, "swap_kib", lambda: 1 << 20)
    out = Notes()
    ask_pageable.ask_pageable.run(Fake(1), out)  # type: ignore[arg-type]
    assert 0.0 <= out["swapped"]["in_memory"] <= 1.0
    assert "failed" in out["swapped_prefetched"]
