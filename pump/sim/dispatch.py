"""Transfers in an order that is fixed beforehand, to compare event-driven dispatch with.

DESIGN
  pumpd's dispatch is event-driven, after TURNIP: each completion makes a tick, and what goes
  then is whatever the policy finds most urgent among what may go. A planner that fixes a
  timeline (G10) gives that up: its transfers have an order, and one that cannot go yet holds
  up all behind it.

  Here a policy is rehearsed without jitter. What it sends in one steady iteration, in that
  order, is the fixed order of every later one: all together, or apart for each direction of the
  link, which is less strict. A transfer goes when those before it have gone and what it depends
  on has happened, and not before:

    to the host  the operations that use its blocks up to there have run (readers before reuse)
    to the GPU   there is room (room before arrival), and the operation that needs it was issued;
                 what a policy foresees goes when the kernel has run behind which it went in
                 the rehearsal, as in G10's schedule

  It is no timeline of moments: a transfer may go earlier than in the rehearsal. What the
  program has outrun is passed over, or nothing behind it would ever go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from pump.model.bounds import BLOCK_BYTES, SLICE_BLOCKS_LEAST
from pump.model.client import ClientModel
from pump.model.view import Blocks, Decision, View
from pump.policy.base import Policy
from pump.sim.program import Program, ProgramError

FIRST_FIXED: int = 1
"""Iteration from which the order is fixed; the one before it runs as the policy says."""


class Transfer(NamedTuple):
    """A block that goes. Steps count from the beginning of its iteration.

    after: to the host: the last step that has to have run; to the GPU: the one that has to
    have been issued (foreseen: that has to have run). need: to the GPU: the step that needs it;
    -1: none is known.
    """

    to_gpu: bool
    block: int
    after: int
    need: int = -1


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


class _Where:
    """Follows the program for a policy that may itself want to know where it is."""

    name: ClassVar[str] = "of a policy"
    prefetches: ClassVar[bool] = True
    foresees: ClassVar[bool] = False

    def __init__(self, policy: Policy, program: Program) -> None:
        self.policy = policy
        vars(self)["foresees"] = policy.foresees  # a policy's class says so, here its own does
        self.iterations = Iterations.of(program)
        self.issued = self.run = 0
        self._at = getattr(policy, "at", None)

    def at(self, issued: int, run: int, model: ClientModel) -> None:
        self.issued, self.run = issued, run
        if self._at is not None:
            self._at(issued, run, model)


class Rehearsal(_Where):
    """The policy, and what it sends in the last iteration but one."""

    def __init__(self, policy: Policy, program: Program) -> None:
        super().__init__(policy, program)
        self.order: list[Transfer] = []
        self._uses = _uses(program, self.iterations)
        self._step_of = np.flatnonzero(program.steps["seq"])

    def decide(self, view: View) -> Decision:
        """Return the policy's decision."""
        decision = self.policy.decide(view)
        inside = self.run - self.iterations.begin(self.iterations.count - 2)
        if 0 <= inside < self.iterations.steps:
            for block in decision.to_host.tolist():
                self.order.append(Transfer(False, block, self._last_use(block, inside)))
            needs = dict(zip(view.missing.tolist(), view.missing_need.tolist(), strict=True))
            again = set(view.oldest.tolist()) - needs.keys()  # there already
            for block in decision.to_gpu.tolist():
                if block not in again:
                    need = self._need(needs.get(block))
                    after = inside - 1 if self.foresees else need
                    self.order.append(Transfer(True, block, after, need))
        return decision.for_once()

    def _last_use(self, block: int, inside: int) -> int:
        """The last step before `inside` that uses the block; -1: none in this iteration."""
        steps = self._uses.get(block)
        if steps is None:
            return -1
        place = int(np.searchsorted(steps, inside))
        return int(steps[place - 1]) if place else -1

    def _need(self, seq: int | None) -> int:
        """The step of an operation, counted from the iteration's beginning."""
        if seq is None or seq > len(self._step_of):
            return -1
        begin = self.iterations.begin(self.iterations.count - 2)
        return int(self._step_of[seq - 1]) - begin


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


class FixedOrder(_Where):
    """Sends an iteration's transfers in a fixed order; before that it is the policy.

    dispatch: "fixed": one order of all; "fixed-each-way": one for each direction of the link.
    """

    def __init__(
        self, policy: Policy, program: Program, order: list[Transfer], dispatch: str = "fixed"
    ) -> None:
        super().__init__(policy, program)
        orders = [order]
        if dispatch == "fixed-each-way":
            orders = [[t for t in order if t.to_gpu == way] for way in (True, False)]
        self._queues = [Queue(self.iterations, one) for one in orders]

    @property
    def passed_over(self) -> int:
        """Arrivals that came too late to be sent."""
        return sum(queue.passed_over for queue in self._queues)

    def decide(self, view: View) -> Decision:
        """Return the leading transfers that may go, or what the policy says in the beginning."""
        if self.run < self.iterations.begin(FIRST_FIXED):
            return self.policy.decide(view).for_once()
        arrivals = min(view.free, view.to_gpu_credit), self.run if self.foresees else self.issued
        may = {True: arrivals, False: (view.to_host_credit, self.run)}
        moving = view.arriving + view.leaving
        gone = [t for queue in self._queues for t in queue.take(may, self.run, moving)]
        return Decision(
            np.array([t.block for t in gone if t.to_gpu], np.int64),
            np.array([t.block for t in gone if not t.to_gpu], np.int64),
        )


class Queue:
    """Transfers of one order, one iteration after the other."""

    def __init__(self, iterations: Iterations, order: list[Transfer]) -> None:
        self._iterations = iterations
        self._order = order
        self._waiting: deque[Transfer] = deque()
        self._iteration = FIRST_FIXED - 1
        self.passed_over = 0

    def take(self, may: Mapping[bool, tuple[int, int]], run: int, moving: int) -> list[Transfer]:
        """Return the transfers in front that go now. may: to the GPU and to the host: how many
        at most, and the step in front of which all has happened that such a transfer waits
        for. moving: blocks on their way, for which less than a slice waits."""
        self._fill(run)
        base = self._iterations.begin(self._iteration)
        left = {way: most for way, (most, _) in may.items()}
        found: list[Transfer] = []
        for transfer in self._waiting:
            if left[transfer.to_gpu] <= 0 or base + transfer.after >= may[transfer.to_gpu][1]:
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
