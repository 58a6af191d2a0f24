"""G10's artifact: its machine, and the trace of its compiler's output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from study.papers import artifact, convert

MIB = 1 << 20


def layers(depth: int, mib: int) -> artifact.Trace:
    """Returns a trace that writes layers forward and reads them backward, 10 ms each."""
    forth = [((i - 1,) if i else (), (i,)) for i in range(depth)]
    back = [((i,), (depth,)) for i in reversed(range(depth))]
    kernels = [artifact.Kernel(0.01, 0.01, 0.01, *uses) for uses in forth + back]
    return artifact.Trace(kernels, dict.fromkeys(range(depth + 1), mib * MIB), frozenset([depth]))


def test_what_fits_is_never_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "MEMORY_BYTES", 1024 * MIB)
    trace = layers(8, 64)
    for found in (artifact.unified_memory(trace)[1], artifact.scheduled(trace)[1]):
        assert found == artifact.Result(pytest.approx(trace.seconds, rel=0.05), 0, 0, 0, 0)


def test_unified_memory_moves_dead_contents_and_the_schedule_hides_what_it_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(artifact, "MEMORY_BYTES", 384 * MIB)
    trace = layers(8, 64)
    cold, warm = artifact.unified_memory(trace)
    _, planned = artifact.scheduled(trace)
    assert cold.from_host < cold.to_host  # starts empty: some blocks left and never returned
    assert warm.from_host == warm.to_host > planned.from_host
    assert warm.from_flash == warm.to_flash == 0
    moved = warm.from_host * artifact.GIB / artifact.LINK_GBPS / 1e9
    assert warm.seconds == pytest.approx(trace.seconds + moved, rel=0.1)
    assert trace.seconds <= planned.seconds < (trace.seconds + warm.seconds) / 2


def test_a_full_host_sends_to_flash_at_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "MEMORY_BYTES", 384 * MIB)
    monkeypatch.setattr(artifact, "HOST_BYTES", 64 * MIB)
    trace = layers(8, 64)
    warm = artifact.unified_memory(trace)[1]
    assert warm.from_flash == warm.to_flash > 0
    assert warm.seconds > trace.seconds + warm.to_flash * artifact.GIB / artifact.FLASH_GBPS / 1e9


def test_the_compilers_lists_become_a_trace(tmp_path: Path) -> None:
    folder = tmp_path / "Net" / "8-prefetch_lru" / "statistics"
    folder.mkdir(parents=True)
    weight = "tensor1 Is weight (global)?: 1, Size in byte: 4096, Range:0--4096"
    activation = "tensor0 Is weight (global)?: 0, Size in byte: 8192, Range:0--8192"
    lists = ["Kernel ID: 0, Name: Conv2d_Forward", "(8,3)", "Input Tensors:", weight]
    (folder / "kernels.config").write_text("\n".join([*lists, "Output Tensors:", activation]))
    for name, milliseconds in (("", 1), ("InputPF", 2), ("PF", 3)):
        (tmp_path / "Net" / f"cudnn8{name}.txt").write_text(f"0 {milliseconds}.5 ms\n")
    made = convert.trace(tmp_path, "Net", 8)
    trace = artifact.read(json.dumps(made))
    assert trace == artifact.Trace(
        [artifact.Kernel(0.0015, 0.0025, 0.0035, (1,), (0,))], {0: 8192, 1: 4096}, frozenset([1])
    )
    (tmp_path / "Net" / "cudnn8.txt").write_text("")
    with pytest.raises(ValueError, match="shorter"):
        convert.trace(tmp_path, "Net", 8)
