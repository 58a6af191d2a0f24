"""Swap or compute again: traces in which kernels run again for dropped tensors. Pure.

After TENSILE (arXiv:2105.13336), which computes tensors again if swaps do not suffice.

DESIGN
  After a use, a tensor of the trace may be dropped (Drop) instead of moving to the host. Before the
  next kernel that needs it, the kernel that made it runs again, for its full time, into a new
  tensor. The result is a trace like any other, so the simulator carries it out exactly. The inputs
  of the repeated kernel have to be on the GPU then, and cross the link if they are not. A tensor
  that only a later remake reads lives until then, and takes memory or is swapped.

  Only pure kernels run again (tensors.Kernel.pure): no optimiser, no update in place, no
  statistics, and no kernel without inputs. Their inputs have to hold the contents of the first run.
  A dropped input is made again first, at most DEPTH_MOST kernels deep, and stays for its own next
  use. The kernel's other outputs go to a tensor that dies at once.

  The choice knows the learned iteration, so it is made by trial. Layers repeat, so drops form kinds
  by the signatures of maker and next kernel. Kinds are added or removed one at a time: first the
  kinds that save most link time, then in orders drawn from a seed. The faster trial is kept.
  Tensors that no kernel needs again are dropped from the beginning. Dropping nothing is one of the
  trials, so the choice never loses.

  The bound is the floor of parts in which contents between two uses may be made again
  (pump_lab.floor.lp_floor). It counts bytes of tensors instead of blocks, so it holds for each
  placement of a trace with drops.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from pump.model.bounds import BLOCK_BYTES
from pump_lab.floor import Rates, lp_floor
from pump_lab.floor.lp_floor import CUTS_REMADE
from pump_lab.sim import program as form
from pump_lab.sim.tensors import Kernel, Tensor, TensorTrace

DEPTH_MOST: Final = 4
"""Most kernels that run again in a chain for one kernel that needs a tensor."""
TRIALS_MOST: Final = 60
SEED: Final = 1
COST_STEP: Final = 1.5
"""The bound rounds kernel times down to powers of this, so that it has few variables."""


class Drop(NamedTuple):
    """A tensor, and the kernel after which it is dropped."""

    tensor: int
    after: int


@dataclass(frozen=True)
class Candidate:
    """A drop that can be undone. `maker`: the kernel that made the tensor. `until`: the next kernel
    that needs it; None if only repeated kernels may. `kind`: signatures of the two; 0 for none."""

    drop: Drop
    maker: int
    until: int | None
    kind: tuple[int, int]


class UnmakeableError(ValueError):
    """A dropped tensor cannot be made again when it is needed."""

    def __init__(self, tensor: int) -> None:
        super().__init__(f"tensor {tensor} cannot be made again")
        self.tensor = tensor


class History:
    """Uses of the trace's tensors, and makers of their contents."""

    def __init__(self, trace: TensorTrace) -> None:
        self.trace = trace
        self.uses: dict[int, list[tuple[int, int]]] = {}
        """Kernel and access of each use, by tensor."""
        for number, kernel in enumerate(trace.kernels):
            for tensor, access in kernel.uses:
                self.uses.setdefault(tensor, []).append((number, access))

    def maker(self, tensor: int, before: int) -> int | None:
        """Returns the pure kernel that made the tensor's contents before a kernel, or None."""
        if self.trace.tensors[tensor].persistent:
            return None
        for number, access in reversed(self.uses[tensor]):
            if number < before and access != form.READ:
                pure = access == form.OVERWRITE and self.trace.kernels[number].pure
                return number if pure else None
        return None

    def unchanged(self, tensor: int, since: int, before: int) -> bool:
        """Returns whether no kernel between the two writes the tensor."""
        between = (access for number, access in self.uses[tensor] if since < number < before)
        return all(access == form.READ for access in between)

    def candidates(self) -> list[Candidate]:
        """Returns every drop of contents that a pure kernel made, in the order of the kernels."""
        found = []
        for tensor, uses in self.uses.items():
            for (after, _), following in zip(uses, [*uses[1:], None], strict=True):
                maker = self.maker(tensor, after + 1)
                if maker is None or (following is not None and following[1] == form.OVERWRITE):
                    continue
                until = None if following is None else following[0]
                reader = 0 if until is None else self.trace.kernels[until].signature
                kind = self.trace.kernels[maker].signature, reader
                found.append(Candidate(Drop(tensor, after), maker, until, kind))
        return sorted(found, key=lambda one: (one.drop.after, one.drop.tensor))


class _Remaking:
    """Builds the kernels of a trace with drops."""

    def __init__(self, history: History, drops: Collection[Drop]) -> None:
        self.history, self.trace = history, history.trace
        self.dropped_after: dict[int, list[int]] = {}
        for tensor, after in drops:
            self.dropped_after.setdefault(after, []).append(tensor)
        self.kernels: list[Kernel] = []
        self.originals: dict[int, int] = {}  # new name -> the trace's name
        self.now: dict[int, int | None] = {}  # the trace's name -> new name; None: dropped
        self.next_name = 1 + max(self.trace.tensors)

    def go(self) -> None:
        for number, kernel in enumerate(self.trace.kernels):
            for tensor, access in kernel.uses:
                if not self._dropped(tensor):
                    continue
                if access == form.OVERWRITE:
                    self._fresh(tensor, keep=True)
                else:
                    self._make(tensor, number, 1)
            self._emit(kernel, {tensor: self._name(tensor) for tensor, _ in kernel.uses})
            self.now.update(dict.fromkeys(self.dropped_after.get(number, ())))

    def _dropped(self, tensor: int) -> bool:
        return self.now.get(tensor, tensor) is None

    def _make(self, tensor: int, before: int, depth: int) -> None:
        maker = self.history.maker(tensor, before)
        if maker is None or depth > DEPTH_MOST:
            raise UnmakeableError(tensor)
        kernel = self.trace.kernels[maker]
        inputs = [one for one, access in kernel.uses if access == form.READ]
        for one in inputs:
            if not self.history.unchanged(one, maker, before):
                raise UnmakeableError(tensor)
            if self._dropped(one):
                self._make(one, before, depth + 1)
        names = {one: self._name(one) for one in inputs}
        for one, access in kernel.uses:
            if access == form.OVERWRITE:
                same = self._dropped(one) and self.history.maker(one, before) == maker
                names[one] = self._fresh(one, keep=same)
        self._emit(kernel, names)

    def _name(self, tensor: int) -> int:
        name = self.now.setdefault(tensor, tensor)
        assert name is not None, "what was dropped has been made again"
        self.originals[name] = tensor
        return name

    def _fresh(self, tensor: int, *, keep: bool) -> int:
        """Returns a new tensor of the same size. `keep`: later uses of the old one go there."""
        name, self.next_name = self.next_name, self.next_name + 1
        self.originals[name] = tensor
        if keep:
            self.now[tensor] = name
        return name

    def _emit(self, kernel: Kernel, names: dict[int, int]) -> None:
        uses = tuple((names[tensor], access) for tensor, access in kernel.uses)
        self.kernels.append(replace(kernel, uses=uses))


def remade(history: History, drops: Iterable[Drop]) -> tuple[TensorTrace, frozenset[Drop]]:
    """Returns the trace with these drops, and the drops that were kept. A tensor is not dropped at
    all if its maker lacks an input when the tensor is needed."""
    kept = frozenset(drops)
    while True:
        remaking = _Remaking(history, kept)
        try:
            remaking.go()
            break
        except UnmakeableError as error:
            kept = frozenset(drop for drop in kept if drop.tensor != error.tensor)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, kernel in enumerate(remaking.kernels):
        for tensor, _ in kernel.uses:
            first.setdefault(tensor, number)
            last[tensor] = number
    tensors = {}
    for name in sorted(first):
        old = history.trace.tensors[remaking.originals[name]]
        tensors[name] = Tensor(old.length_bytes, old.persistent, first[name], last[name])
    return replace(history.trace, tensors=tensors, kernels=remaking.kernels), kept


# ---- the choice ----------------------------------------------------------------------------


class Choice(NamedTuple):
    """`seconds`: an iteration with these drops, by trial. `alone_s`: with only swaps."""

    drops: frozenset[Drop]
    seconds: float
    alone_s: float
    trials: int


def choose(
    history: History,
    seconds: Callable[[TensorTrace], float],
    link_gbps: float,
    memory_bytes: int,
    *,
    trials_most: int = TRIALS_MOST,
    seed: int = SEED,
) -> Choice:
    """Returns the fastest drops of at most trials_most trials. `seconds`: times an iteration of a
    trace, by trial. `link_gbps`: rate of a tensor that leaves and then returns."""
    known: dict[TensorTrace | frozenset[Drop], float] = {}

    def timed(drops: frozenset[Drop]) -> tuple[float, frozenset[Drop]]:
        made, kept = remade(history, drops)
        if kept not in known:
            known[kept] = seconds(made)
        return known[kept], kept

    alone_s, _ = timed(frozenset())
    kinds = _kinds(history, link_gbps, memory_bytes)
    dead = frozenset[Drop]().union(*(drops for (_, reader), drops in kinds.items() if not reader))
    best = alone_s, dead
    shuffled = random.Random(seed)
    order = [kind for kind in kinds if kind[1]]
    while len(known) < trials_most:
        before = best
        for kind in order:
            if len(known) >= trials_most:
                break
            own, now = kinds[kind], best[1]
            best = min(best, timed(now - own if now & own else now | own), key=lambda one: one[0])
        if best == before and len(order) == len(kinds):
            break
        order = sorted(kinds)
        shuffled.shuffle(order)
    return Choice(best[1], best[0], alone_s, len(known))


def _kinds(
    history: History, link_gbps: float, memory_bytes: int
) -> dict[tuple[int, int], frozenset[Drop]]:
    """Returns candidates by kind, starting with the kinds that save most link time. They are away
    for so long that kernels use the memory once in between, or no kernel needs them again."""
    trace = history.trace
    sizes = {name: one.length_bytes for name, one in trace.tensors.items()}
    used = (sum(sizes[one] for one, _ in kernel.uses) for kernel in trace.kernels)
    before = [0, *accumulate(used)]
    found: dict[tuple[int, int], set[Drop]] = {}
    worth: dict[tuple[int, int], float] = {}
    for one in history.candidates():
        if one.until is not None and before[one.until] - before[one.drop.after + 1] < memory_bytes:
            continue
        found.setdefault(one.kind, set()).add(one.drop)
        link_ns = sizes[one.drop.tensor] / link_gbps
        spared = link_ns - trace.kernels[one.maker].duration_ns
        worth[one.kind] = worth.get(one.kind, 0.0) + spared
    return {kind: frozenset(found[kind]) for kind in sorted(found, key=lambda kind: -worth[kind])}


def smaller(trace: TensorTrace, share: float) -> TensorTrace:
    """Scales tensors and kernel times by `share`; the best drops stay about the same."""
    tensors = {
        name: replace(one, length_bytes=max(BLOCK_BYTES, int(one.length_bytes * share)))
        for name, one in trace.tensors.items()
    }
    kernels = [replace(one, duration_ns=round(one.duration_ns * share)) for one in trace.kernels]
    return replace(trace, tensors=tensors, kernels=kernels)


# ---- the bound -----------------------------------------------------------------------------


def bound(history: History, memory_bytes: int, rates: Rates, cuts: int = CUTS_REMADE) -> float:
    """Returns the least seconds of an iteration with swaps and repeated pure kernels. Raises
    ArithmeticError if the solver gives up."""
    kernels = history.trace.kernels
    kinds: dict[float | None, dict[tuple[int, int], float]] = {}
    for tensor, uses in history.uses.items():
        facts = history.trace.tensors[tensor]
        around = [(uses[0][0] + len(kernels), uses[0][1])] if facts.persistent else []
        for (first, _), (later, access) in pairwise([*uses, *around]):
            if access == form.OVERWRITE:
                continue
            maker = history.maker(tensor, first + 1)
            seconds = None if maker is None else _share_s(history, maker)
            stays = kinds.setdefault(seconds, {})
            stay = first, later - first
            stays[stay] = stays.get(stay, 0) + facts.length_bytes / BLOCK_BYTES
    found = [(stays, seconds) for seconds, stays in kinds.items()]
    durations_ns = [kernel.duration_ns for kernel in kernels]
    return lp_floor.least_seconds_remade(found, durations_ns, memory_bytes, rates, cuts)


def _share_s(history: History, maker: int) -> float:
    """Returns a kernel's seconds for one block of output, rounded down to a power of COST_STEP."""
    kernel, sizes = history.trace.kernels[maker], history.trace.tensors
    made = sum(sizes[one].length_bytes for one, way in kernel.uses if way == form.OVERWRITE)
    seconds = kernel.duration_ns / 1e9 * BLOCK_BYTES / made
    return float(COST_STEP ** math.floor(math.log(seconds, COST_STEP))) if seconds else 0.0
