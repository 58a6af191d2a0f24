"""The iteration learner on real launches of PyTorch, recorded by pump."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from framework_runs import Bench
from learner_calls import CONFIRMED, DEVIATED, Access, Learner, Predicted

from pump.model.bounds import BLOCK_BYTES
from pump.trace import format as trace
from pump.trace import records as rec
from pump.trace.reader import Reader

pytestmark = pytest.mark.frameworks

WORK = (trace.KERNEL, trace.COPY, trace.MEMSET)
Blocks = set[tuple[int, int, int]]


@dataclass
class Score:
    """offered: operations that were predicted and confirmed. misled: wrongly predicted operations.
    reached: blocks that confirmed operations used. predicted: those of them that were predicted."""

    operations: int = 0
    offered: int = 0
    misled: int = 0
    reached: int = 0
    predicted: int = 0


def blocks_of(accesses: tuple[Access, ...]) -> Blocks:
    return {
        (access.slot, access.generation, block)
        for access in accesses
        if not access.missing
        for block in range(
            access.offset_bytes // BLOCK_BYTES,
            (access.offset_bytes + access.length_bytes - 1) // BLOCK_BYTES + 1,
        )
    }


class Listener:
    """Feeds a recording to the learner row by row, like a worker; scores each operation."""

    def __init__(self) -> None:
        self.learner = Learner()
        self.said: list[Score] = []
        self.live: set[tuple[int, int]] = set()

    def hear(self, path: Path) -> Score:
        """Returns the score of the last third."""
        with path.open("rb") as file:
            for record in Reader(file).records():
                match record:
                    case rec.Operation() if record.kind in WORK:
                        self.score_operation(record)
                    case rec.Params():
                        self.learner.shape(
                            record.signature, record.function, record.grid, record.block
                        )
                    case rec.RangeRow():
                        self.learn_range(record)
                    case rec.Lost():
                        self.learner.lost()
        last = self.said[len(self.said) * 2 // 3 :]
        return Score(
            *(
                sum(getattr(score, name) for score in last)
                for name in ("operations", "offered", "misled", "reached", "predicted")
            )
        )

    def learn_range(self, row: rec.RangeRow) -> None:
        key = row.slot, row.generation
        if row.kind == trace.FREE:
            self.live.discard(key)
            self.learner.free(*key)
        elif key not in self.live:
            self.live.add(key)
            self.learner.alloc(*key, row.length_bytes)

    def score_operation(self, record: rec.Operation) -> None:
        learner = self.learner
        accesses = tuple(Access(*e[:5]) for e in record.extents if e.length_bytes)
        offered = learner.ahead(1) > 0
        coming: Predicted | None = learner.next(0) if offered else None
        result = learner.see(
            record.signature,
            accesses,
            function=record.function,
            kind=record.kind,
            stream=record.stream,
        )
        score = Score(1, offered and result == CONFIRMED, offered and result == DEVIATED)
        if coming is not None and result == CONFIRMED:
            reached = blocks_of(accesses)
            score.reached = len(reached)
            score.predicted = len(reached & blocks_of(coming.accesses))
        self.said.append(score)


@pytest.mark.parametrize(
    ("kind", "granularity", "least"),
    [
        ("steady", "native", 0.99),
        ("steady", "tensor", 0.99),
        ("cycle", "native", 0.99),
        ("sizes", "native", 0.9),
    ],
)
def test_what_a_training_repeats_is_predicted(
    bench: Bench, kind: str, granularity: str, least: float
) -> None:
    bench.program("repeats", kind, pump=True, granularity=granularity)
    (folder,) = bench.folder.glob("pump-*")
    found = bench.trace(folder)
    assert not found["lost"]
    listener = Listener()
    score = listener.hear(folder / "job.trace")
    assert score.operations > 500
    assert score.offered / score.operations >= least
    assert score.misled <= score.operations // 200
    assert score.predicted / score.reached >= 0.9
