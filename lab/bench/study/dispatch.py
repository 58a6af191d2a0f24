"""Transfers in an order that is fixed beforehand, to compare event-driven dispatch with.

DESIGN
  pumpd's dispatch is event-driven, after TURNIP: each completion makes a tick, and what goes
  then is whatever is most urgent among what may go. A fixed timeline (G10) gives that up: its
  transfers have an order, and one that cannot go yet holds up all behind it.

  Here a policy is rehearsed without jitter. The slices that its executors begin in one steady
  iteration, in that order, are the fixed order of every later one: all together, or apart for
  each direction of the link, which is less strict. A transfer goes when those before it have
  gone and what it depends on has happened, and not before:

    to the host  the operations that use its blocks up to there have run (readers before reuse);
                 what it makes way for need not have been issued: the rehearsal knows it
    to the GPU   there is room (room before arrival), the block is away, and the operation that
                 needs it was issued; where the policy predicts, it goes when the kernel has run
                 behind which it went in the rehearsal, as in G10's schedule

  It is no timeline of moments: a transfer may go earlier than in the rehearsal. What the
  program has outrun is passed over, or nothing behind it would ever go. In the first iteration
  the driver pages, within the budget.

  A policy that predicts nothing knows less than that: it learns of a shortage when it is issued.
  "fixed-as-issued" is one order of all in which nothing leaves before the program has issued
  as much as when it left in the rehearsal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES, SLICE_BLOCKS_LEAST
from pump.model.client import DISCARDING, LEAVING, MAYBE_EVICTED, RESIDENT, TO_HOST, ClientModel
from pump.model.view import Blocks, Decision, View
from pump.policy.demand import Demand
from pump_lab.sim.program import Program, ProgramError

FIRST_FIXED: int = 1
"""Iteration from which the order is fixed."""


class Transfer(NamedTuple):
    """A block that goes. Steps count from the beginning of its iteration.

    after: to the host: the last step that has to have run; to the GPU: the one that has to
    have been issued (predicted: that has to have run). need: to the GPU: the step that needs it;
    -1: none is known. left: to the GPU: the place in the order at which it leaves before, -1:
    it does not. place: its own in the order. seen: the step in front of which all had been
    issued when it began.
    """

    to_gpu: bool
    block: int
    after: int
    need: int = -1
    left: int = -1
    place: int = 0
    seen: int = 0


@dataclass(frozen=True)
class Iterations:
    """Where the iterations of a replayed program lie."""

    first: int
    steps: int
    count: int

    @staticmethod
    def of(program: Program) -> Iterations:
        """Raises ProgramError for a program that is no replay of three iterations or more."""
        count = int(program.facts.get("iterations", 0))
        if count < 3:
            raise ProgramError(
                f"{program.name}: a fixed order needs a JSON trace with 3 iterations or more"
            )
        steps = int(program.facts["steps_per_iteration"])
        return Iterations(len(program.steps) - steps * count, steps, count)

    def begin(self, iteration: int) -> int:
        return self.first + iteration * self.steps


def order_of(program: Program, transfers: NDArray[np.void], *, predicts: bool) -> list[Transfer]:
    """What moved in the last iteration but one of a run, block by block.

    transfers: Outcome.transfers of that run. Raises ProgramError as Iterations.of does.
    """
    iterations = Iterations.of(program)
    begin, uses = iterations.begin(iterations.count - 2), _uses(program, iterations)
    step_of = np.flatnonzero(program.steps["seq"])
    left: dict[int, int] = {}
    order: list[Transfer] = []
    for seq, first, count, way, issued, run, _ in transfers.tolist():
        inside = run - begin
        if not 0 <= inside < iterations.steps:
            continue
        for block in range(first, first + count):
            place = len(order)
            if way == TO_HOST:
                left[block] = place
                after = _last_use(uses, iterations, block, inside)
                order.append(Transfer(False, block, after, place=place, seen=issued - begin))
                continue
            need = int(step_of[seq - 1]) - begin if 0 < seq <= len(step_of) else -1
            after = inside - 1 if predicts else need
            order.append(Transfer(True, block, after, need, left.get(block, -1), place))
    return order


def _last_use(uses: dict[int, Blocks], iterations: Iterations, block: int, inside: int) -> int:
    """The last step before `inside` that uses the block, negative: of the iteration before."""
    steps = uses.get(block)
    if steps is None:
        return -1
    place = int(np.searchsorted(steps, inside))
    return int(steps[place - 1]) - (iterations.steps if place == 0 else 0)


def _uses(program: Program, iterations: Iterations) -> dict[int, Blocks]:
    """By block: the steps of an iteration that use it, ascending."""
    found: dict[int, list[int]] = {}
    firsts = program.ranges["first_block"].tolist()
    uses = program.uses.tolist()
    for number, step in enumerate(program.steps[iterations.first :][: iterations.steps].tolist()):
        if step[3] == 0:
            continue
        for offset, length, index, _ in uses[step[6] : step[6] + step[7]]:
            first = firsts[index] + offset // BLOCK_BYTES
            for block in range(first, firsts[index] - (-(offset + length) // BLOCK_BYTES)):
                found.setdefault(block, []).append(number)
    return {block: np.array(steps, np.int64) for block, steps in found.items()}


class FixedOrder:
    """Sends an iteration's transfers in a fixed order.

    predicts: the policy of the rehearsal did. dispatch: "fixed": one order of all;
    "fixed-each-way": one for each direction of the link; "fixed-as-issued": one of all, by what
    had been issued.
    """

    name: ClassVar[str] = "fixed order"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False

    def __init__(
        self, program: Program, order: list[Transfer], *, predicts: bool, dispatch: str = "fixed"
    ) -> None:
        vars(self)["predicts"] = predicts  # a policy's class says so, here its own does
        self.iterations = Iterations.of(program)
        self.issued = self.run = 0
        self.model: ClientModel
        self._paging = Demand()
        self._seqs = program.steps["seq"]
        self._as_issued = dispatch == "fixed-as-issued"
        ways = [{True}, {False}] if dispatch == "fixed-each-way" else [{True, False}]
        self._queues = [Queue(self.iterations, [t for t in order if t.to_gpu in w]) for w in ways]

    def at(self, issued: int, run: int, model: ClientModel) -> None:
        """The program's steps, as pump_sim_step_now() and pump_sim_step_run()."""
        self.issued, self.run, self.model = issued, run, model

    @property
    def passed_over(self) -> int:
        """Arrivals that came too late to be sent."""
        return sum(queue.passed_over for queue in self._queues)

    def decide(self, view: View) -> Decision:
        """Return the leading transfers that may go; in the beginning what is too much."""
        if self.run < self.iterations.begin(FIRST_FIXED):
            return self._paging.decide(view._replace(emulated=True))
        room = {True: min(view.free, view.to_gpu_credit), False: view.to_host_credit}
        moving = view.arriving + view.leaving
        gone = [t for queue in self._queues for t in queue.take(room, self.may, self.run, moving)]
        return Decision(
            np.array([t.block for t in gone if t.to_gpu], np.int64),
            np.array([t.block for t in gone if not t.to_gpu], np.int64),
        )

    def may(self, transfer: Transfer, iteration: int) -> bool:
        """Whether what a transfer depends on, other than room, has happened."""
        base = self.iterations.begin(iteration)
        if not transfer.to_gpu:
            unseen = self._as_issued and self.issued < base + transfer.seen
            return self.run > base + transfer.after and not unseen
        if base + transfer.after >= (self.run if self.predicts else self.issued):
            return False
        if transfer.left >= 0 and self._queues[-1].stands_before(iteration, transfer.left):
            return False
        return not self._will_go(transfer, base)

    def _will_go(self, transfer: Transfer, base: int) -> bool:
        """The block is there, not for the operation that the transfer is for."""
        info = self.model.block(transfer.block)
        if info.state in (LEAVING, DISCARDING):
            return True
        if info.state not in (RESIDENT, MAYBE_EVICTED) or transfer.need < 0:
            return False
        step = base + transfer.need
        return step < len(self._seqs) and info.next_use < self._seqs[step]


class Queue:
    """Transfers of one order, one iteration after the other."""

    def __init__(self, iterations: Iterations, order: list[Transfer]) -> None:
        self._iterations = iterations
        self._order = order
        self._waiting: deque[Transfer] = deque()
        self._iteration = FIRST_FIXED - 1
        self.passed_over = 0

    def stands_before(self, iteration: int, place: int) -> bool:
        """Whether a transfer of that place in that iteration's order has not gone yet."""
        if not self._waiting or self._iteration != iteration:
            return self._iteration < iteration
        return self._waiting[0].place <= place

    def take(
        self,
        room: Mapping[bool, int],
        may: Callable[[Transfer, int], bool],
        run: int,
        moving: int,
    ) -> list[Transfer]:
        """Return the transfers in front that go now. room: how many to the GPU and to the host
        at most. may(transfer, iteration). moving: blocks on their way, for which less than a
        slice waits."""
        self._fill(run)
        left = dict(room)
        found: list[Transfer] = []
        for transfer in self._waiting:
            if left[transfer.to_gpu] <= 0 or not may(transfer, self._iteration):
                break
            left[transfer.to_gpu] -= 1
            found.append(transfer)
        if len(found) < SLICE_BLOCKS_LEAST and moving:
            return []
        for _ in found:
            self._waiting.popleft()
        return found

    def _fill(self, run: int) -> None:
        """Goes on to the next iteration; passes over arrivals whose operation has run."""
        while True:
            if not self._waiting:
                if self._iteration + 1 == self._iterations.count or not self._order:
                    return
                self._waiting.extend(self._order)
                self._iteration += 1
            outrun = 0 <= self._waiting[0].need < run - self._iterations.begin(self._iteration)
            if not outrun:
                return
            self._waiting.popleft()
            self.passed_over += 1
