"""Processes that share a virtual GPU, for tests: each one executes commands.

Not a test. A Client is one process of card_client.c; ask() sends it a command and waits for the
answer, tell() does not wait.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builds
import virtual_driver as virtual

HERE = Path(__file__).resolve().parent
MIB = virtual.MIB
OUT_OF_MEMORY = 2
ANSWER_S = 120
"""Seconds for any answer, since the machine may be busy. A process that hangs fails."""


@functools.cache
def program() -> Path:
    """Builds the client once per test run. The environment selects the driver that it loads."""
    places = (*virtual.INCLUDES, f"-L{virtual.build()}")
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-g1", "-O1")
    source = HERE / "card_client.c"

    def make(where: Path) -> None:
        target = where / "card_client"
        virtual.compile_c(target, *flags, *places, source, "-l:libcuda.so.1", "-lpthread")

    return builds.once("card-client", make) / "card_client"


@functools.cache
def deadly_driver() -> Path:
    """Builds a driver that kills its process at the PUMP_TEST_DIE-th change of a shared card's
    state, in the middle of a step and with the card's lock; returns its folder."""
    where = virtual.folder() / "deadly"
    where.mkdir()
    probe = HERE / "card_die.c"
    places = (*virtual.INCLUDES, "-DUVM_JOURNAL_PROBE")
    target = where / "libcuda.so.1"
    virtual.compile_c(target, *virtual.FLAGS, *places, *virtual.sources(), probe, *virtual.LINK)
    return where


class EndedError(Exception):
    """The process has ended."""


class Client:
    """A process on the shared card `name`. `code`: The answer of its start; -1: none."""

    def __init__(
        self,
        name: str,
        folder: Path,
        memory_mib: int = 1024,
        driver: Path | None = None,
        env: dict[str, str] | None = None,
        *,
        words: tuple[str, ...] = (),
        **settings: str,
    ) -> None:
        driver = driver or virtual.build()
        self.report_path = folder / f"report-{time.monotonic_ns()}.json"
        text = virtual.profile("timing", memory_mib * MIB, shared=name, **settings)
        self.process = subprocess.Popen(
            [program(), *words],
            env={
                **virtual.environment("timing", memory_mib * MIB),
                "LD_LIBRARY_PATH": str(driver),
                "PUMP_VIRTUAL_PROFILE": text,
                "PUMP_VIRTUAL_CARDS": str(folder),
                "PUMP_VIRTUAL_REPORT": str(self.report_path),
                **(env or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""
        try:
            self.code = int(self._line())
        except EndedError:
            self.code = -1

    @property
    def _out(self) -> Any:
        assert self.process.stdout
        return self.process.stdout

    def _line(self) -> str:
        """Returns the next line. Raises EndedError, or AssertionError if it does not answer."""
        until = time.monotonic() + ANSWER_S
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(0, until - time.monotonic()))
            assert ready, "no answer in time"
            more = os.read(self._out.fileno(), 65536)
            if not more:
                raise EndedError(f"it ended with {self.process.wait()}")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def tell(self, *words: object) -> None:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # the caller sees the end
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())

    def ask(self, *words: object) -> list[float]:
        self.tell(*words)
        return self.hear()

    def hear(self) -> list[float]:
        return [float(word) for word in self._line().split()]

    def share(self, place: int) -> str:
        """Returns the handle for others of a new event in that place."""
        self.tell("share", place)
        code, handle = self._line().split()
        assert code == "0"
        return handle

    def must(self, *words: object) -> list[float]:
        """Sends a command whose answer begins with a code. Raises AssertionError unless it is 0."""
        answer = self.ask(*words)
        assert answer[0] == 0, (words, answer)
        return answer[1:]

    def free_mib(self) -> float:
        return self.ask("info")[0] / MIB

    def leave(self, how: str = "leave") -> dict[str, Any]:
        """Ends the process; returns its report, if it wrote one."""
        self.tell(how)
        assert self.process.wait(ANSWER_S) == 0, self.errors()
        self.close()
        if not self.report_path.exists():
            return {}
        return dict(json.loads(self.report_path.read_text()))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(ANSWER_S)

    def errors(self) -> str:
        """Returns its standard error, once it has ended."""
        assert self.process.stderr
        self.process.wait(ANSWER_S)
        return str(self.process.stderr.read().decode())

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


class Clients:
    """Makes clients of one card in one folder, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Client] = []

    def __call__(self, name: str = "card", **settings: Any) -> Client:
        for client in self.made:
            if client.process.poll() is not None:
                client.close()  # hundreds of clients would use up the descriptors
        self.made.append(Client(name, self.folder, **settings))
        return self.made[-1]

    def cards(self) -> list[str]:
        """Returns the names of existing files of cards."""
        return sorted(path.name for path in self.folder.glob("pump-card-*"))


def clients(folder: Path) -> Iterator[Clients]:
    """Yields Clients, for a fixture."""
    made = Clients(folder)
    try:
        yield made
    finally:
        for client in made.made:
            client.process.kill()
            client.process.wait()
            client.close()
