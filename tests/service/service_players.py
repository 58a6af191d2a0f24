"""Users of a simulated service and the GPU that they share: honest jobs and others.

An honest job behaves like a job's pumpd and shim. It reports true numbers, acts on grants a moment
later, evicts and fetches at the speed of a link, and returns when the service returns. All other
players try to cost the honest jobs memory or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service_world import World

from pump.model.bounds import BLOCK_BYTES, without_reserve
from pump.wire import service as wire
from pump.wire.strict import FrameError

GIB = 1 << 30
MIB = 1 << 20
GPU = "ab" * 16
STEP_S = 0.5
LINK_BYTES_S = 6 * GIB
FREED_S = 0.3
"""Time until the memory of an exited job is free."""


class Card:
    """The GPU. `held`: memory that the driver can evict; `plain`: memory that it cannot."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.held: dict[Any, int] = {}
        self.plain: dict[Any, int] = {}

    @property
    def used(self) -> int:
        return sum(self.held.values()) + sum(self.plain.values())

    @property
    def free(self) -> int:
        return self.total - self.used

    def keep(self, player: Any, wished: int) -> int:
        """Gives a player that much memory; the driver evicts memory of others if necessary."""
        before = self.held.get(player, 0)
        for other in sorted(self.held, key=lambda one: -self.held[one]):
            missing = wished - before - self.free
            if missing > 0 and other is not player:
                self.held[other] -= min(missing, self.held[other])
        self.held[player] = min(wished, before + self.free)
        return self.held[player]

    def allocate(self, owner: Any, wished: int) -> None:
        """Allocates plain memory of a program that pump does not know."""
        self.plain[owner] = 0
        for other in sorted(self.held, key=lambda one: -self.held[one]):
            missing = wished - self.free
            if missing > 0:
                self.held[other] -= min(missing, self.held[other])
        self.plain[owner] = min(wished, self.free)

    def drop(self, owner: Any) -> None:
        self.held.pop(owner, None)
        self.plain.pop(owner, None)


class Player:
    """A process with at most one connection. person: the human who owns its user id."""

    def __init__(self, world: World, user: int, person: int | None = None) -> None:
        self.world = world
        self.user = user
        self.person = user if person is None else person
        self.pid = world.count()
        self.line: Any = None
        self.version = 0
        self.joined = False
        self.stopped = False
        """Whether SIGSTOP has stopped the player."""
        self.retry_s = 0.1
        self.retry_most_s = 5.0
        self.over = False

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()} {self.pid} of user {self.user}"

    def attach(self) -> None:
        """Connects to the service; retries after failures like a job's pumpd."""
        if self.over or self.line is not None:
            return
        self.version, self.joined = 0, False
        line = self.line = self.world.connect(
            self.pid, self.user, lambda data: self._told(line, data)
        )
        if self.line is None:
            self._again()
        else:
            self.line.say(wire.pack_hello())

    def detach(self) -> None:
        """Closes the connection."""
        if self.line is not None:
            self.line.leave()
            self.line, self.joined = None, False

    def end(self) -> None:
        self.over = True
        self.detach()

    def say(self, message: Any) -> bool:
        return self.line is not None and self.line.say(wire.encode(message), self.delay_s())

    def delay_s(self) -> float:
        return 0.0002

    def _again(self) -> None:
        self.world.after(self.retry_s, self.attach)
        self.retry_s = min(2 * self.retry_s, self.retry_most_s)

    def _told(self, line: Any, data: bytes) -> None:
        if line is not self.line:
            return
        try:
            if not data:
                raise FrameError("it closed the connection")
            if not self.version:
                self.version = wire.check_welcome(data)
                self.retry_s = 0.1
                self.welcomed()
                return
            message = wire.decode(data, wire.FROM_SERVICE)
        except FrameError as error:
            self.world.note(f"{self!r}: {error}")
            self.line.leave()
            self.line, self.joined = None, False
            self.lost()
            return
        if isinstance(message, wire.Refused):
            self.world.note(f"{self!r} is refused: {message.reason}")
            self.retry_s = 5.0
        else:
            self.heard(message)

    def welcomed(self) -> None:
        """Called when the player may speak."""

    def heard(self, message: Any) -> None:
        """Called for each message of the service."""

    def lost(self) -> None:
        """Called when the connection is lost."""
        self._again()


class Honest(Player):
    """An honest job. After `since` it may expect its share."""

    def __init__(
        self, world: World, user: int, card: Card, wanted: int, *, priority: int = 0, gpu: str = GPU
    ) -> None:
        super().__init__(world, user)
        self.card, self.wanted, self.priority, self.gpu = card, wanted, priority, gpu
        self.usable = without_reserve(max(0, card.free)) // BLOCK_BYTES * BLOCK_BYTES
        attached = (one for one in card.held if isinstance(one, Honest) and one.joined)
        self.found = self.usable + sum(card.held[one] for one in attached)
        self.adopted = max(8 * MIB, self.usable)
        self.resident = 0
        """Resident memory as the job sees it, without evictions by the driver for others."""
        self.granted: int | None = None
        self.acted = 0
        self.beat_s = 2.0
        self._last: Any = None
        self._beat_due = 0.0
        card.held[self] = 0
        self.attach()
        self.world.after(STEP_S, self._step)

    def welcomed(self) -> None:
        self.retry_most_s = 0.5
        self._last, self.acted, self.granted = None, 0, None
        self.joined = self.say(wire.Join("honest", self.priority))
        self._report()

    def heard(self, message: Any) -> None:
        if isinstance(message, wire.Grant):
            self.beat_s = message.beat_ms / 1e3
            if message.gpus:
                self.granted = message.gpus[0].budget_bytes
                self.world.after(self.world.dice.uniform(0.02, 0.3), lambda: self._adopt(message))

    def _adopt(self, grant: wire.Grant) -> None:
        if self.stopped:
            self.world.after(STEP_S, lambda: self._adopt(grant))
        elif self.joined and grant.number > self.acted:
            self.adopted, self.acted = grant.gpus[0].budget_bytes, grant.number
            self._report()

    def _step(self) -> None:
        if self.over:
            return
        if not self.stopped:
            wished = min(self.adopted, self.wanted)
            most = int(LINK_BYTES_S * STEP_S)
            before = self.resident
            self.resident = (
                max(wished, before - most) if wished < before else min(wished, before + most)
            )
            self.card.keep(self, self.resident)
            if self.world.time >= self._beat_due or (wished == self.resident != before):
                self._report()
        self.world.after(STEP_S, self._step)

    def _report(self) -> None:
        if self.stopped or not self.joined:
            return
        bytes_ = self.usable, min(self.wanted, self.card.total), self.adopted, self.resident
        entry = wire.GpuReport(self.gpu, self.card.total, *bytes_, wire.USE_MOST)
        report = wire.Report(self.acted, 1, self.wanted, 0, (entry,))
        self.say(report if report != self._last else wire.Beat())
        self._last = report
        self._beat_due = self.world.time + self.beat_s

    def stop(self, seconds: float) -> None:
        """Sends SIGSTOP, and SIGCONT later."""
        self.stopped = True
        if self.line is not None:
            self.line.reading = False

        def go_on() -> None:
            self.stopped = False
            if self.line is not None:
                self.line.read_again()

        self.world.after(seconds, go_on)

    def crash(self) -> None:
        """Kills the job's processes."""
        self.end()
        self.world.after(FREED_S, lambda: self.card.drop(self))


class Liar(Player):
    """A job that sends false reports in its own interest and never releases memory.

    `says`: false values by field; "acted" is the grant that the job claims to have followed.
    `physical`: memory that it keeps on the GPU regardless of grants. `every_s`: time until it
    leaves and joins again; 0: never. `priority`: the requested priority.
    """

    def __init__(
        self,
        world: World,
        user: int,
        card: Card,
        says: dict[str, int],
        *,
        person: int | None = None,
        physical: int = 0,
        every_s: float = 0.0,
        priority: int = 0,
    ) -> None:
        super().__init__(world, user, person)
        self.card, self.says, self.physical = card, says, physical
        self.every_s, self.priority = every_s, priority
        self.granted = self.number = 0
        self.retry_most_s = 0.5
        self.attach()
        self.world.after(STEP_S, self._step)
        if every_s:
            self.world.after(every_s, self._leave)

    def welcomed(self) -> None:
        self.granted = 0
        self.joined = self.say(wire.Join("liar", self.priority))
        self._report()

    def heard(self, message: Any) -> None:
        if isinstance(message, wire.Grant) and message.gpus:
            self.granted, self.number = message.gpus[0].budget_bytes, message.number

    def _leave(self) -> None:
        if not self.over:
            self.detach()
            self.world.after(0.01, self.attach)
            self.world.after(self.every_s, self._leave)

    def _step(self) -> None:
        if self.over:
            self.card.drop(self)
            return
        if self.physical:
            self.card.keep(self, self.physical)
        if self.world.dice.random() < 0.3:
            self._report()
        self.world.after(STEP_S, self._step)

    def _report(self) -> None:
        if not self.joined:
            return
        held = self.card.held.get(self, 0)
        true = {"usable": self.card.total // 2, "wanted": held, "adopted": held, "resident": held}
        bytes_ = [self.says.get(name, value) for name, value in true.items()]
        entry = wire.GpuReport(GPU, self.card.total, *bytes_, self.says.get("use", wire.USE_MOST))
        acted = self.says.get("acted", self.number)
        self.say(wire.Report(acted, 1, 0, 0, (entry,)))


class Asker(Player):
    """A peer that sends queries from time to time and expects an answer soon."""

    def __init__(self, world: World, user: int, every_s: float) -> None:
        super().__init__(world, user)
        self.every_s = every_s
        self.retry_most_s = 0.1
        self.waits_since: float | None = None
        self.answers = 0
        self.world.after(world.dice.uniform(0, every_s), self._ask)

    def _ask(self) -> None:
        self.waits_since = self.world.time
        self.attach()

    def welcomed(self) -> None:
        self.say(wire.AskService())

    def heard(self, message: Any) -> None:
        if isinstance(message, wire.ServiceState):
            self.answers += 1
            self.waits_since = None
            self.detach()
            self.world.after(self.every_s, self._ask)


class Flood(Player):
    """Sends as many frames as possible, and may or may not read the answers."""

    def __init__(self, world: World, user: int, frames: Sequence[Any], *, deaf: bool) -> None:
        super().__init__(world, user)
        self.retry_most_s = 0.1
        self.frames, self.deaf = frames, deaf
        self.attach()

    def welcomed(self) -> None:
        self.joined = self.say(wire.Join("flood"))
        self.line.reading = not self.deaf
        self._more(self.line)

    def _more(self, line: Any) -> None:
        if line is self.line and not self.over:
            while self.line is not None and self.say(self.world.dice.choice(self.frames)):
                if self.world.dice.random() < 0.1:
                    break
            self.world.after(0.2, lambda: self._more(line))


class Crowd:
    """As many connections as the service accepts, from several user ids; each sends only `words`.

    words: the messages of each connection, in bytes. A closed connection is opened again.
    """

    def __init__(
        self, world: World, users: list[int], words: list[bytes], most: int, pause_s: float
    ) -> None:
        self.world, self.users, self.words, self.most, self.pause_s = (
            world,
            users,
            words,
            most,
            pause_s,
        )
        self.lines: set[Any] = set()
        self.over = False
        self.pid = world.count()
        self.attempts = 0
        self._more()

    def __repr__(self) -> str:
        return f"crowd {self.pid} of users {self.users[0]} to {self.users[-1]}"

    def _more(self) -> None:
        if self.over:
            return
        for _ in range(4):
            if len(self.lines) < self.most:
                self._one()
        self.world.after(self.pause_s, self._more)

    def _one(self) -> None:
        line: Any = None

        def told(data: bytes) -> None:
            if not data and line in self.lines:
                self.lines.discard(line)
                line.leave()

        self.attempts += 1
        user = self.world.dice.choice(self.users)
        line = self.world.connect(self.pid, user, told)
        if line is not None:
            self.lines.add(line)
            for data in self.words:
                line.say(data)

    def end(self) -> None:
        self.over = True
        for line in self.lines:
            line.leave()
        self.lines.clear()
