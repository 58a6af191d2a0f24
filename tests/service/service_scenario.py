"""A scenario of the service from one seed: its users, events, and conditions that must always hold.

The checks are external. They compare grants and answers with the players' knowledge of the GPU.
Only the sizes of the service's own tables are checked inside the service.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from service_players import GIB, GPU, MIB, Asker, Card, Crowd, Flood, Honest, Liar
from service_world import Killed, Listener, World

from pump.model.bounds import BLOCK_BYTES, without_reserve
from pump.policy.arbiter import LEAST_BLOCKS, Claim, arbitrate, less_spill
from pump.policy.leases import GRAIN_SHARE
from pump.wire import service as wire
from pumpd.service.cards import ASK_S, Cards
from pumpd.service.quota import Quotas
from pumpd.service.service import Service
from pumpd.service.settings import ServiceSettings

LEAST = LEAST_BLOCKS * BLOCK_BYTES
ACCESS_S = 3.0
"""Time limit of answers to root, observers and users without a connection."""
REJOIN_S = 8.0
"""Time limit until an honest job is attached again."""
FAIR_S = 15.0
FAIR_EACH_S = 10.0
FAIR_NVML_S = 15.0
"""Time limits until an honest job has its share: FAIR_S, plus FAIR_EACH_S per hostile person, plus
FAIR_NVML_S with NVML. NVML's samples are seconds apart, and up to LOST_MOST samples in a row are
lost. During longer silence of NVML its last sample counts, and nothing is promised."""
LOST_MOST = 2
FOREIGN_S = 30.0
"""Time after which, with NVML, no job is granted the memory of a program without pump."""
CHECK_S = 0.5
QUOTAS = Quotas(
    connections=48,
    reserved=4,
    user_connections=24,
    user_jobs=20,
    handshakes=12,
    user_handshakes=6,
    connection_rate=6.0,
    user_rate=20.0,
    connect_rate=80.0,
    user_connect_rate=20.0,
)
ROOT, OBSERVER = 0, 900
FRAMES = wire.Beat(), wire.AskJobs(), wire.AskService(), wire.Report(0, 1, 0, 0)


class QuietManager:
    """A stand-in for systemd that does nothing."""

    due = None

    def on_time(self, _now: float) -> None: ...

    def notify(self, *_lines: str) -> None: ...

    def reloading(self) -> None: ...


class PlayedCards:
    """Plays pumpd.service.cards.Cards for this GPU: answers are late, some never arrive."""

    def __init__(self, world: World, card: Card) -> None:
        self.world, self.card = world, card
        self.total_bytes = {GPU: card.total}
        self.due: float | None = None
        self._ask_due = 0.0
        self._lost = 0
        self._told: Callable[[dict[str, int]], None] = lambda _used: None

    def watch(self, _selector: Any, told: Callable[[dict[str, int]], None]) -> None:
        self._told = told

    def on_time(self, now: float, beat_s: float, wanted: bool) -> None:
        if wanted and now >= self._ask_due:
            self._ask_due = now + max(ASK_S, 1.5 * beat_s)
            late = self.world.dice.choice((0.01, 0.01, 0.01, 0.5, 2.0, None))
            if late is None and self._lost == LOST_MOST:
                late = 2.0
            self._lost = self._lost + 1 if late is None else 0
            if late is not None:
                used = self.card.used
                self.world.after(late, lambda: self._told({GPU: used}))
        self.due = self._ask_due if wanted else None

    def close(self) -> None:
        self._told = lambda _used: None


class Scenario:
    """A world with a GPU, a service that restarts after a kill, and checks."""

    def __init__(
        self, seed: int, *, total: int = 8 * GIB, nvml: bool = False, settle_s: float = 1.0
    ) -> None:
        self.seed = seed
        self.world = World(seed)
        self.card = Card(total)
        self.nvml = nvml
        self.settings = ServiceSettings(
            quotas=QUOTAS, settle_s=settle_s, observers=frozenset({OBSERVER})
        )
        self.honest: list[Honest] = []
        self.liars: list[Liar] = []
        self.others: list[Any] = []
        self.askers: list[Asker] = []
        self.subordinates: dict[int, int] = {}
        """Person by subordinate user id."""
        self.service: Service | None = None
        self.up_since = 0.0
        self.restarts = 0
        self._foreign_since: dict[Any, float] = {}
        self._short: dict[Honest, float] = {}
        self._away: dict[Honest, float] = {}
        self._kill_due = False
        self._down_s = 0.5
        self._too_much_since: float | None = None

    # ---- events ----

    def job(self, user: int, wanted_share: float, **more: Any) -> Honest:
        one = Honest(self.world, user, self.card, int(wanted_share * self.card.total), **more)
        self.honest.append(one)
        self.world.note(f"{one!r} begins and wants {one.wanted // MIB} MiB")
        return one

    def liar(self, user: int, says: dict[str, int], **more: Any) -> Liar:
        one = Liar(self.world, user, self.card, says, **more)
        self.liars.append(one)
        self.world.note(f"{one!r} says {says}, {more}")
        return one

    def flood(self, user: int, *, deaf: bool, frames: Sequence[Any] = FRAMES) -> None:
        self.others.append(Flood(self.world, user, frames, deaf=deaf))
        self.world.note(f"{self.others[-1]!r} floods")

    def crowd(self, users: list[int], words: list[bytes], most: int, pause_s: float) -> None:
        self.others.append(Crowd(self.world, users, words, most, pause_s))
        self.world.note(f"{self.others[-1]!r}: {most} connections that say {words}")

    def asker(self, user: int, every_s: float = 5.0) -> Asker:
        self.askers.append(Asker(self.world, user, every_s))
        return self.askers[-1]

    def foreign(self, name: str, size: int) -> None:
        """Starts a program without pump, or ends it if size is 0."""
        self.world.note(f"the program {name} takes {size // MIB} MiB")
        if size:
            self.card.allocate(name, size)
            self._foreign_since[name] = self.world.time
        else:
            self.card.drop(name)
            self._foreign_since.pop(name, None)

    def kill(self, down_s: float) -> None:
        """Kills the service with SIGKILL; it is restarted after `down_s`."""
        self.world.note(f"the service is killed for {down_s:.1f} s")
        self._kill_due, self._down_s = True, down_s
        self.restarts += 1

    def cards(self) -> Any:
        """Returns NVML's side of this scenario."""
        return PlayedCards(self.world, self.card) if self.nvml else Cards()

    # ---- running ----

    def run(self, seconds: float) -> None:
        """Runs the scenario. Raises AssertionError with the seed and the last events."""
        end = self.world.time + seconds
        self.world.at(end, lambda: self.world.signal(signal.SIGTERM))
        self.world.after(CHECK_S, self._check_again)
        self.world.after_each_step = self._after_step
        try:
            with mock.patch.object(time, "time", lambda: self.world.wall + self.world.time):
                while self.world.time < end:
                    self._serve_until_killed()
        except Exception as error:
            trace = "\n".join(self.world.trace)
            raise AssertionError(
                f"seed {self.seed}, {self.world.time - 1000:.3f} s: {error}\n{trace}"
            ) from error

    def _serve_until_killed(self) -> None:
        listener = self.world.listener = Listener(self.world)
        self.service = made(self, listener)
        self.up_since = self.world.time
        try:
            self.service.run()
        except Killed:
            self.service = None
            self.world.idle_until(self.world.time + self._down_s)

    def _after_step(self) -> None:
        if self._kill_due:
            self._kill_due = False
            raise Killed
        registry = self.service._registry  # type: ignore[union-attr]
        if not registry.stale:
            for gpu, memory in registry.memory_bytes().items():
                granted = [
                    job.granted.get(gpu, 0) for job in registry.jobs.values() if gpu in job.gpus
                ]
                over = sum(granted) - memory - LEAST * len(granted)
                assert over <= 0, f"{over // MIB} MiB more are granted than there are"

    # ---- checks ----

    def _check_again(self) -> None:
        self.world.after(CHECK_S, self._check_again)
        if self.service is None:
            self._short.clear()
            self._away.clear()
            self._too_much_since = None
            return
        self._check_access()
        self._check_shares()
        self._check_foreign()
        self._check_tables()

    def _check_access(self) -> None:
        now = self.world.time
        for asker in self.askers:
            if asker.waits_since is not None:
                waited = now - max(asker.waits_since, self.up_since)
                assert waited <= ACCESS_S, f"{asker!r} waits for an answer for {waited:.1f} s"
        for job in self.honest:
            if job.joined or job.over or job.stopped:
                self._away.pop(job, None)
            else:
                away = now - max(self._away.setdefault(job, now), self.up_since)
                assert away <= REJOIN_S, f"{job!r} could not rejoin for {away:.1f} s"

    def hostile_persons(self) -> set[int]:
        return {one.person for one in self.liars}

    def guaranteed(self) -> dict[Honest, int]:
        """Returns the memory that honest jobs must have even if all others want everything."""
        here = [one for one in [*self.honest, *self.liars] if one.joined]
        whole = self.card.total
        claims = []
        for number, one in enumerate(here):
            wanted = one.wanted if isinstance(one, Honest) else whole
            claims.append(
                Claim(
                    number,
                    GPU,
                    one.priority,
                    wanted,
                    1.0,
                    self.settings.weights.get(one.person, 1.0),
                    user=one.person,
                )
            )
        memory = {GPU: self.memory_for_sure()}
        targets = arbitrate(less_spill(memory, claims), claims)
        return {
            one: targets[number, GPU] for number, one in enumerate(here) if isinstance(one, Honest)
        }

    @property
    def name(self) -> str:
        """Returns the GPU's name for a service without NVML."""
        return f"{GPU} of {self.card.total}"

    def memory_for_sure(self) -> int:
        """Returns the memory that jobs can share regardless of hostile reports."""
        taken = sum(self.card.plain.values())
        for liar in self.liars:
            taken += max(0, self.card.held.get(liar, 0) - liar.granted * liar.joined)
        there = without_reserve(max(0, self.card.total - taken))
        here = [job for job in self.honest if job.joined]
        if not self.nvml and here:
            sure = min(job.found for job in self.honest)  # includes jobs that have left
            if self.restarts or self.hostile_persons():  # honest jobs can be outvoted
                said = self.service._registry.memory_bytes().get(self.name, 0)  # type: ignore[union-attr]
                sure = min(sure, said)
            there = min(there, sure)
        return there // BLOCK_BYTES * BLOCK_BYTES

    def _check_shares(self) -> None:
        now = self.world.time
        allowed = FAIR_S + FAIR_EACH_S * len(self.hostile_persons())
        allowed += FAIR_NVML_S if self.nvml else 0.0
        slack = 2 * (self.card.total // GRAIN_SHARE) + LEAST
        due = self.guaranteed()
        for job in self.honest:
            if job not in due or job.stopped or (job.granted or 0) >= due[job] - slack:
                self._short.pop(job, None)
                continue
            short = now - max(self._short.setdefault(job, now), self.up_since)
            assert short <= allowed, (
                f"{job!r} has {(job.granted or 0) // MIB} MiB and not {due[job] // MIB} "
                f"for {short:.1f} s"
            )

    def _check_foreign(self) -> None:
        """Checks that the grants of honest jobs fit next to programs without pump."""
        if not self.nvml:
            return
        there = self.card.total - sum(self.card.plain.values())
        granted = sum(job.granted or 0 for job in self.honest if job.joined)
        if granted <= there + 2 * (self.card.total // GRAIN_SHARE):
            self._too_much_since = None
            return
        since = self._too_much_since = self._too_much_since or self.world.time
        short = self.world.time - since
        assert short <= FOREIGN_S, (
            f"{granted // MIB} MiB are granted and {there // MIB} are there for {short:.1f} s"
        )

    def _check_tables(self) -> None:
        service = self.service
        assert service is not None
        assert len(service._peers) <= QUOTAS.connections + 4
        assert len(self.world._keys) <= QUOTAS.connections + 8
        assert len(service._registry.jobs) <= len(service._peers)


def made(scenario: Scenario, listener: Listener) -> Service:
    """Makes the service as in production, in this world."""
    parts: Any = [listener], lambda: scenario.settings, scenario.cards(), QuietManager()
    return Service(*parts, scenario.world)
