"""The world of a simulated service: virtual time, sockets, signals, a listener.

World plays pumpd.surroundings.Surroundings and is its own selector. When the service waits, the
world advances event by event until the service has something to read. Only the seed makes anything
random, and nothing takes real time.

As with SOCK_SEQPACKET, datagrams arrive whole and in order, or the connection ends. The world does
not play partial failures of the kernel.
"""

from __future__ import annotations

import heapq
import random
import selectors
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

FRAME_COST_S = 50e-6
"""Virtual time that the service takes for each event."""
SEND_MOST = 32
"""Most waiting datagrams in one direction of a connection."""
BACKLOG = 256


class Killed(BaseException):
    """kill -9: the service ends while it waits."""


class Connection:
    """The service's end of a connection; plays the used part of a socket."""

    def __init__(self, world: World, pid: int, user: int, notify: Callable[[bytes], None]) -> None:
        self.world = world
        self.pid, self.user = pid, user
        self.serial = world.count()
        self._notify = notify
        """Gets the service's datagrams; b"" means that the service has closed."""
        self.inbox: deque[bytes] = deque()
        self.unread = 0
        """Number of the service's datagrams that the other side has not read."""
        self.reading = True
        """Whether the other side reads its datagrams."""
        self.closed = self.left = False
        self._arrives = 0.0
        self._waiting: deque[bytes] = deque()

    # ---- actions of the service ----

    def setblocking(self, flag: bool) -> None:
        assert not flag, "the service never blocks"

    def getsockopt(self, *_option: int) -> bytes:
        return struct.pack("iII", self.pid, self.user, self.user)

    def recv(self, most: int) -> bytes:
        if self.inbox:
            data = self.inbox.popleft()
            if not (self.inbox or self.left):
                self.world.readable.discard(self)
            return data[:most]
        if self.left:
            return b""
        raise BlockingIOError

    def send(self, data: bytes, _flags: int = 0) -> int:
        if self.left:
            raise BrokenPipeError
        if self.unread >= SEND_MOST:
            raise BlockingIOError
        self.unread += 1
        self._waiting.append(data)
        self._pass_on()
        return len(data)

    def close(self) -> None:
        self.closed = True
        self.world.readable.discard(self)
        self.world.connections.discard(self)
        self._waiting.append(b"")
        self._pass_on()

    # ---- actions of the other side ----

    def say(self, data: bytes, delay_s: float = 0.0) -> bool:
        """Sends a datagram; returns False if the queue is full or the connection is closed."""
        if self.closed or self.left or len(self.inbox) >= SEND_MOST:
            return False
        self._arrives = max(self._arrives, self.world.time + delay_s)
        self.world.at(self._arrives, lambda: self._arrive(data))
        return True

    def leave(self) -> None:
        """Closes the connection; earlier datagrams still arrive."""
        self.world.at(max(self._arrives, self.world.time), self._end)

    def read_again(self) -> None:
        """Reads waiting datagrams and all later ones."""
        self.reading = True
        self._pass_on()

    def _arrive(self, data: bytes) -> None:
        if not (self.closed or self.left):
            self.inbox.append(data)
            self.world.readable.add(self)

    def _end(self) -> None:
        if not self.closed:
            self.left = True
            self.world.readable.add(self)

    def _pass_on(self) -> None:
        if self.reading and self._waiting:
            waiting, self._waiting = self._waiting, deque()
            self.unread = 0
            self.world.at(self.world.time + 1e-4, lambda: self._deliver(waiting))

    def _deliver(self, waiting: deque[bytes]) -> None:
        while waiting and not self.left:
            self._notify(waiting.popleft())


class Listener:
    """The listening socket of the service."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.backlog: deque[Connection] = deque()
        self.serial = 0

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def accept(self) -> tuple[Connection, str]:
        if not self.backlog:
            raise BlockingIOError
        one = self.backlog.popleft()
        if not self.backlog:
            self.world.readable.discard(self)
        self.world.connections.add(one)
        return one, ""

    def close(self) -> None:
        for one in self.backlog:
            one.close()
        self.backlog.clear()
        self.world.readable.discard(self)
        self.world.listener = None


class World(selectors.BaseSelector):
    """Clock, selector and signals in one. `time` is monotonic; `wall` can jump."""

    descriptors = 1 << 20

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.time = 1000.0
        self.wall = 1.7e9
        self.listener: Listener | None = None
        self.connections: set[Connection] = set()
        self.readable: set[Any] = set()
        self.trace: deque[str] = deque(maxlen=40)
        """The last events, for error messages."""
        self.after_each_step: Callable[[], None] = lambda: None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self._signals: list[int] = []
        self._notify: Callable[[int], None] = lambda _number: None
        self._busy = 0

    # ---- events ----

    def count(self) -> int:
        self._count += 1
        return self._count

    def at(self, time: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, self.count(), what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.time + seconds, what)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.time - 1000:9.3f} {text}")

    def connect(self, pid: int, user: int, notify: Callable[[bytes], None]) -> Connection | None:
        """Returns a connection to the service; None without a service or with a full backlog."""
        if self.listener is None or len(self.listener.backlog) >= BACKLOG:
            return None
        one = Connection(self, pid, user, notify)
        self.listener.backlog.append(one)
        self.readable.add(self.listener)
        return one

    def signal(self, number: int) -> None:
        self._signals.append(number)

    def idle_until(self, time: float) -> None:
        """Lets time pass without a service."""
        while self._events and self._events[0][0] <= time:
            self._next()
        self.time = max(self.time, time)

    def _next(self) -> None:
        time, _, what = heapq.heappop(self._events)
        self.time = max(self.time, time)
        what()

    # ---- pumpd.surroundings.Surroundings ----

    @property
    def selector(self) -> selectors.BaseSelector:
        return self

    def now(self) -> float:
        return self.time

    def watch_signals(self, notify: Callable[[int], None]) -> None:
        self._notify = notify

    def close(self) -> None:
        self._keys.clear()
        self._notify = lambda _number: None

    # ---- selectors.BaseSelector ----

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        assert fileobj not in self._keys
        self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def get_map(self) -> Any:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.time += self._busy * FRAME_COST_S
        self.after_each_step()
        until = self.time + timeout if timeout is not None else float("inf")
        while True:
            while self._events and self._events[0][0] <= self.time:
                self._next()
            if self._signals:
                number = self._signals.pop(0)
                key = selectors.SelectorKey(self, 0, 1, partial(self._say, number))
                return [(key, selectors.EVENT_READ)]
            ready = self._ready()
            if ready:
                self._busy = len(ready)
                self.dice.shuffle(ready)
                return ready
            self._busy = 0
            if not self._events or self._events[0][0] > until:
                assert until < float("inf"), "the world has ended before the service"
                self.time = max(self.time, until)
                return []
            self._next()

    def _say(self, number: int, _events: int) -> None:
        self._notify(number)

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        ready = []
        for one in sorted(self.readable, key=lambda one: one.serial):
            key = self._keys.get(one)
            if key is not None and key.events & selectors.EVENT_READ:
                ready.append((key, selectors.EVENT_READ))
        for key in self._keys.values():
            if key.events & selectors.EVENT_WRITE and key.fileobj.unread < SEND_MOST:  # type: ignore[union-attr]
                ready.append((key, selectors.EVENT_WRITE))
        return ready
