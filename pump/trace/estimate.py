"""Estimates how long each kind of operation ran: from timed samples, or from markers.

A sample (TIMED) is one operation's time on the GPU. It includes waits for memory, and waits for the
program if the GPU was idle between the sample's two events. So the own time of a kind, without
these waits, is the 12.5th percentile of its samples.

Without samples, only markers are known: once a marker has executed, all earlier operations on its
stream have. Each stretch between two markers gives one equation: the sum over kinds of (number of
operations times unknown duration) is the stretch's time. The result fits all stretches by
non-negative least squares with multiplicative updates (Lee and Seung, NIPS 2000). It is scaled so
that all operations together take as long as all stretches. Concurrent streams count in full each.

Accuracy of markers: one training on the virtual GPU, on a busy machine, had kernels of 205 us each.
They were estimated at 141 to 276 us, and all operations together within 1 %. A kind with less than
RESOLVED of the time is not resolved: its estimate may be several times too long, or zero. Users see
these numbers as estimates.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

KEYS_MAX: Final = 512
"""Kinds with estimates of their own; later kinds share the last one."""
PENDING_MAX: Final = 1 << 20
"""Most operations kept without a marker; beyond that, the older half is dropped."""
STRETCHES_AT_ONCE: Final = 1024
REACH_SHIFT: Final = 16
"""The reach of a kind is counted in units of 2^REACH_SHIFT bytes."""
WAITING_MOST: Final = 1 << 16
"""Most operations kept, the newest: timing samples of older operations are ignored."""
KINDS_MAX: Final = 1 << 16
SAMPLES_LEAST: Final = 4
"""Fewest samples of a kind; fewer may all include a wait."""
SAMPLES_MOST: Final = 256
"""Most samples kept of a kind, and of a name: the newest."""
STEPS: Final = 200
RESOLVED: Final = 0.05
"""Share of the time below which an estimate only means "little"."""

Times = NDArray[np.int64]


class Estimate:
    """Takes a recording chunk by chunk, in order; `seconds` may be called at any time."""

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}
        self._pending: dict[int, tuple[Times, Times, Times]] = {}
        self._last_ns: dict[int, int] = defaultdict(int)
        self._normal: NDArray[np.float64] = np.zeros((KEYS_MAX, KEYS_MAX))
        self._right: NDArray[np.float64] = np.zeros(KEYS_MAX)
        self._counts: NDArray[np.float64] = np.zeros(KEYS_MAX)
        self._total = 0.0

    def key(self, name: str) -> int:
        """Returns the number of a kind of operation."""
        return self._keys.setdefault(name, min(len(self._keys), KEYS_MAX - 1))

    def operations(self, stream: int, seq: Times, issued_ns: Times, key: Times) -> None:
        """Adds operations issued on a stream; all arrays of shape [n]. key: numbers from `key`."""
        before = self._pending.get(stream, (_NONE, _NONE, _NONE))
        joined = [np.concatenate(pair) for pair in zip(before, (seq, issued_ns, key), strict=True)]
        start = len(joined[0]) // 2 if len(joined[0]) > PENDING_MAX else 0
        self._pending[stream] = (joined[0][start:], joined[1][start:], joined[2][start:])

    def progress(self, stream: int, seq: Times, time_ns: Times) -> None:
        """Adds markers of a stream in order, shape [n]: executed up to `seq`, by `time_ns`."""
        if stream not in self._pending or len(seq) == 0:
            return
        op_seq, issued_ns, key = self._pending[stream]
        reached = np.maximum.accumulate(seq)
        stretch = np.searchsorted(reached, op_seq, side="left")
        done = stretch < len(seq)
        self._pending[stream] = (op_seq[~done], issued_ns[~done], key[~done])
        first_issue = np.full(len(seq), np.iinfo(np.int64).max)
        np.minimum.at(first_issue, stretch[done], issued_ns[done])
        begin = np.maximum(np.concatenate(([self._last_ns[stream]], time_ns[:-1])), first_issue)
        self._last_ns[stream] = int(time_ns[-1])
        took = (time_ns - begin).astype(np.float64)
        useful = np.zeros(len(seq), np.bool_)
        useful[stretch[done]] = True
        useful &= took > 0
        for start in range(0, len(seq), STRETCHES_AT_ONCE):
            rows = done & (stretch >= start) & (stretch < start + STRETCHES_AT_ONCE)
            rows &= useful[np.minimum(stretch, len(seq) - 1)]
            counts = np.zeros((STRETCHES_AT_ONCE, KEYS_MAX))
            np.add.at(counts, (stretch[rows] - start, key[rows]), 1)
            times = np.zeros(STRETCHES_AT_ONCE)
            part = np.where(useful, took, 0)[start : start + STRETCHES_AT_ONCE]
            times[: len(part)] = part
            self._normal += counts.T @ counts
            self._right += counts.T @ times
            self._counts += counts.sum(axis=0)
            self._total += float(part.sum())

    def seconds(self) -> dict[str, float]:
        """Returns the total seconds of each kind; leaves out kinds without a marker."""
        used = np.flatnonzero(self._counts)
        if len(used) == 0 or self._total <= 0:
            return {}
        normal, right = self._normal[np.ix_(used, used)], self._right[used]
        # Durations begin equal and are only multiplied. So none becomes negative, and kinds that
        # the stretches do not distinguish stay equal. More steps would fit the markers' noise.
        found = np.ones(len(used))
        for _ in range(STEPS):
            found *= right / np.maximum(normal @ found, 1e-300)
        whole = found * self._counts[used]
        share = dict(zip(used.tolist(), whole / whole.sum() * self._total / 1e9, strict=True))
        return {
            name: float(share[key])
            for name, key in self._keys.items()
            if key in share and (key < KEYS_MAX - 1 or len(self._keys) <= KEYS_MAX)
        }


_NONE: Final[Times] = np.zeros(0, np.int64)


class OwnTimes:
    """Own times of operations, from timed samples. Takes a recording chunk by chunk, in order.

    name: a number that the caller chooses. shape: identifies a function, grid and block.
    """

    def __init__(self) -> None:
        self._waiting = np.zeros((4, 0), np.int64)  # seq, name, shape, reach of operations
        self._graph_ends: set[int] = set()
        self._of_kind: dict[tuple[int, int], _Samples] = defaultdict(_samples)
        self._of_shape: dict[int, _Samples] = defaultdict(_samples)
        self._kinds_of_name: dict[int, deque[tuple[int, int]]] = defaultdict(_samples)
        self._found: dict[tuple[int, int], int | None] = {}  # own_ns by kind, until new samples

    def __bool__(self) -> bool:
        return bool(self._of_kind)

    def operations(self, seq: Times, name: Times, shape: Times, reach_bytes: Times) -> None:
        """Adds operations, arrays of shape [n]. reach_bytes: of all their extents."""
        added = np.stack((seq, name, shape, reach_bytes >> REACH_SHIFT))
        self._waiting = np.concatenate((self._waiting, added), axis=1)[:, -WAITING_MOST:]

    def graphs(self, seq: Times, count: Times) -> None:
        """Adds launches of graphs, of `count` operations from `seq`. A sample of the last operation
        is the whole graph's, and is not used."""
        if len(self._graph_ends) > WAITING_MOST:
            self._graph_ends.clear()
        self._graph_ends.update((seq + count - 1).tolist())

    def samples(self, seq: Times, elapsed_ns: Times) -> None:
        """Adds samples of operations that were added before, arrays of shape [n]."""
        if len(seq) == 0:
            return
        self._found.clear()
        rows = self._waiting[:, np.argsort(self._waiting[0], kind="stable")]
        places = np.searchsorted(rows[0], seq).tolist()
        for number, place, elapsed in zip(seq.tolist(), places, elapsed_ns.tolist(), strict=True):
            known = place < rows.shape[1] and rows[0, place] == number
            if not known or number in self._graph_ends or len(self._of_kind) >= KINDS_MAX:
                continue
            _, name, shape, reach = rows[:, place].tolist()
            self._of_kind[shape, reach].append(elapsed)
            self._of_shape[shape].append(elapsed)
            self._kinds_of_name[name].append((shape, reach))

    def own_ns(self, shape: int, reach_bytes: int) -> int | None:
        """Returns the own time of an operation, from samples with the same reach. If these are few,
        the median of its shape is the upper bound. None: there is no sample."""
        kind = shape, reach_bytes >> REACH_SHIFT
        if kind not in self._found:
            self._found[kind] = self._own_ns(*kind)
        return self._found[kind]

    def _own_ns(self, shape: int, reach: int) -> int | None:
        alike = self._of_shape.get(shape)
        if not alike:
            return None
        usual_ns = sorted(alike)[len(alike) // 2]
        exact = self._of_kind.get((shape, reach))
        if not exact:
            return usual_ns
        own_ns = sorted(exact)[len(exact) // 8]
        return own_ns if len(exact) >= SAMPLES_LEAST else min(own_ns, usual_ns)

    def mean_ns(self, name: int) -> float | None:
        """Returns the mean own time of a name's operations, which are sampled at random."""
        kinds = self._kinds_of_name.get(name)
        if not kinds:
            return None
        own_ns = [self.own_ns(shape, reach << REACH_SHIFT) or 0 for shape, reach in kinds]
        return sum(own_ns) / len(own_ns)


_Samples = deque[int]


def _samples() -> deque[Any]:
    return deque(maxlen=SAMPLES_MOST)
