"""Sends transfers in an order that is fixed in advance, to compare event-driven dispatch with it.

DESIGN
  pumpd's dispatch is event-driven, after TURNIP: each completion causes a tick, and the most urgent
  of the startable transfers goes next. A fixed timeline (G10) gives that up: its transfers have an
  order, and a transfer that cannot start yet blocks all later ones.

  Here a policy is rehearsed without jitter. The slices that its executors begin in one steady
  iteration are, in that order, the fixed order of every later one. There is one order for both
  directions of the link, or one for each direction, which is less strict. A transfer starts when
  all earlier ones have started and its conditions hold:

    `to the host`  The operations up to there that use its blocks have run (readers before reuse).
                   The operation that needs the memory may still be unissued, because the rehearsal
                   knows it.
    `to the GPU`   Memory is free (room before arrival), the block is away, and the operation that
                   needs it was issued. If the policy predicts, the last condition is replaced, as
                   in G10's schedule: the kernel that preceded the transfer in the rehearsal has
                   run.

  The order has no times: a transfer may start earlier than in the rehearsal. Transfers that the
  program has outrun are skipped, because they would block all later ones. In the first iteration
  the driver pages, within the budget.

  A policy without predictions knows less: it learns of a shortage when the operation is issued.
  "fixed-as-issued" is one order for all transfers in which evictions wait for the program. A block
  leaves only when as much has been issued as when it left in the rehearsal.
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
from pump_lab.sim.deciding import Blocks, Decision, View
from pump_lab.sim.program import Program, ProgramError

FIRST_FIXED: int = 1
"""First iteration with the fixed order."""


class Transfer(NamedTuple):
    """The transfer of a block. Steps count from the beginning of its iteration.

    `after`: for evictions, the last step that must have run; for arrivals, the step that must have
    been issued (if predicted, must have run). `need`: for arrivals, the step that needs the block;
    -1 if unknown. `left`: for arrivals, the place of the block's earlier eviction in the order; -1
    if there is none. `place`: its own place in the order. `seen`: for evictions, the number of
    steps that had been issued when the eviction began.
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
    """The iterations in a replayed program."""

    first: int
    steps: int
    count: int

    @staticmethod
    def of(program: Program) -> Iterations:
        """Raises ProgramError for a program that is not a replay of three iterations or more."""
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
    """Returns the transfers in the last iteration but one of a run, block by block.

    `transfers`: Outcome.transfers of that run. Raises the errors of Iterations.of.
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
    """Returns the last step before `inside` that uses the block; negative: an iteration before."""
    steps = uses.get(block)
    if steps is None:
        return -1
    place = int(np.searchsorted(steps, inside))
    return int(steps[place - 1]) - (iterations.steps if place == 0 else 0)


def _uses(program: Program, iterations: Iterations) -> dict[int, Blocks]:
    """Returns the steps of an iteration that use each block, ascending."""
    found: dict[int, list[int]] = {}
    firsts = program.ranges["first_block"].tolist()
    uses = program.uses.tolist()
    for number, step in enumerate(program.steps[iterations.first :][: iterations.steps].tolist()):
        if step[3] == 0:
            continue
        for offset, length, index, *_ in uses[step[6] : step[6] + step[7]]:
            first = firsts[index] + offset // BLOCK_BYTES
            for block in range(first, firsts[index] - (-(offset + length) // BLOCK_BYTES)):
                found.setdefault(block, []).append(number)
    return {block: np.array(steps, np.int64) for block, steps in found.items()}


class FixedOrder:
    """Sends an iteration's transfers in a fixed order.

    `predicts`: whether the rehearsed policy did. `dispatch`: "fixed" is one order for all,
    "fixed-each-way" one for each direction of the link, and "fixed-as-issued" one for all that also
    waits for the program's issue.
    """

    name: ClassVar[str] = "fixed order"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False

    def __init__(
        self, program: Program, order: list[Transfer], *, predicts: bool, dispatch: str = "fixed"
    ) -> None:
        vars(self)["predicts"] = predicts  # other policies set this in the class
        self.iterations = Iterations.of(program)
        self.issued = self.run = 0
        self.model: ClientModel
        self._seqs = program.steps["seq"]
        self._as_issued = dispatch == "fixed-as-issued"
        ways = [{True}, {False}] if dispatch == "fixed-each-way" else [{True, False}]
        self._queues = [Queue(self.iterations, [t for t in order if t.to_gpu in w]) for w in ways]

    def at(self, issued: int, run: int, model: ClientModel) -> None:
        """Records the program's steps: pump_sim_step_now() and pump_sim_step_run()."""
        self.issued, self.run, self.model = issued, run, model

    @property
    def passed_over(self) -> int:
        """Returns the number of arrivals that were too late to be sent."""
        return sum(queue.passed_over for queue in self._queues)

    def decide(self, view: View) -> Decision:
        """Returns the leading transfers that may start; in the first iteration, excess blocks."""
        if self.run < self.iterations.begin(FIRST_FIXED):
            excess = view.resident + view.arriving - view.budget
            return Decision(to_host=view.oldest[: max(0, min(excess, view.to_host_credit))])
        room = {True: min(view.free, view.to_gpu_credit), False: view.to_host_credit}
        moving = view.arriving + view.leaving
        gone = [t for queue in self._queues for t in queue.take(room, self.may, self.run, moving)]
        return Decision(
            np.array([t.block for t in gone if t.to_gpu], np.int64),
            np.array([t.block for t in gone if not t.to_gpu], np.int64),
        )

    def may(self, transfer: Transfer, iteration: int) -> bool:
        """Returns whether the conditions of a transfer, other than free memory, hold."""
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
        """Returns whether the block is leaving, or is resident for an earlier operation."""
        info = self.model.block(transfer.block)
        if info.state in (LEAVING, DISCARDING):
            return True
        if info.state not in (RESIDENT, MAYBE_EVICTED) or transfer.need < 0:
            return False
        step = base + transfer.need
        return step < len(self._seqs) and info.next_use < self._seqs[step]


class Queue:
    """The transfers of one order, iteration after iteration."""

    def __init__(self, iterations: Iterations, order: list[Transfer]) -> None:
        self._iterations = iterations
        self._order = order
        self._waiting: deque[Transfer] = deque()
        self._iteration = FIRST_FIXED - 1
        self.passed_over = 0

    def stands_before(self, iteration: int, place: int) -> bool:
        """Returns whether the transfer at `place` of that iteration's order has not started."""
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
        """Returns the leading transfers that start now. `room`: limits to the GPU and to the host.
        may(transfer, iteration). `moving`: the number of blocks in flight; while there are any,
        less than a slice waits."""
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
        """Advances to the next iteration; skips arrivals whose operation has run."""
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
