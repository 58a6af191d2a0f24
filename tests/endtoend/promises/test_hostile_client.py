"""Invariant 7 for the job's own pumpd: a client can break only its own worker."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pumpds
import pytest
from jobs import BIN, BOTH_POLICIES

from pump.wire.abi import SHM_BYTES, lib
from pumpd.common.link import answers

HELLO = struct.Struct("<QIIQ40x")
WELCOME = struct.Struct("<QIIQ40x")


@pytest.fixture
def pumpd(tmp_path: Path, policy: str) -> Iterator[Path]:
    """Starts a pumpd for this test as its job, with workers of that policy; yields its socket."""
    path = tmp_path / "socket"
    log = (tmp_path / "pumpd.log").open("w")
    command = [str(BIN / "pumpd"), "job", "--socket", str(path)]
    process = subprocess.Popen(
        [*command, "--job-pid", str(os.getpid()), "--policy", policy, "--log-level", "debug"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    assert pumpds.wait_for(lambda: answers(str(path)))
    yield path
    assert process.poll() is None, "pumpd has survived"
    process.terminate()
    assert process.wait(timeout=10) == 0


def greet(path: Path, version: int = lib.PUMP_ABI_VERSION) -> tuple[socket.socket, int, int]:
    """Says hello; returns the connection, the status and the memfd (-1 without one)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(str(path))
    connection.send(HELLO.pack(lib.PUMP_HELLO_MAGIC, version, os.getpid(), SHM_BYTES))
    data, descriptors, _, _ = socket.recv_fds(connection, WELCOME.size, 4)
    magic, _, status, _ = WELCOME.unpack(data)
    assert magic == lib.PUMP_HELLO_MAGIC
    return connection, status, descriptors[0] if descriptors else -1


def greet_patiently(path: Path) -> tuple[socket.socket, mmap.mmap]:
    """Says hello until a worker is free to serve (the warm process may still import)."""
    for _ in range(100):
        connection, status, memfd = greet(path)
        if status == lib.PUMP_WELCOME_OK:
            mapping = mmap.mmap(memfd, SHM_BYTES)
            os.close(memfd)
            return connection, mapping
        connection.close()
        time.sleep(0.1)
    raise AssertionError("no worker within 10 s")


def heartbeat(mapping: mmap.mmap) -> int:
    return int(struct.unpack_from("<Q", mapping, 56)[0])


def scribble(mapping: mmap.mmap, seed: int, rounds: int) -> None:
    """Writes random bytes everywhere, mostly to parts that the worker reads; sometimes pauses."""
    random_ = random.Random(seed)
    for _ in range(rounds):
        limit = random_.choice((400, 3_000, 700_000, SHM_BYTES - 600))
        where = random_.randrange(limit)
        noise = random_.randbytes(random_.choice((1, 4, 8, 64, 512)))
        mapping[where : where + len(noise)] = noise
        if random_.random() < 0.05:
            time.sleep(0.001)


@BOTH_POLICIES
def test_three_clients_that_scribble_over_their_mappings_harm_no_other(pumpd: Path) -> None:
    honest, clean = greet_patiently(pumpd)
    hostile = [greet_patiently(pumpd) for _ in range(3)]
    fork = multiprocessing.get_context("fork")
    scribblers = [
        fork.Process(target=scribble, args=(dirty, seed, 20_000))
        for seed, (_, dirty) in enumerate(hostile)
    ]
    for one in scribblers:
        one.start()
    for one in scribblers:
        one.join()
    before = heartbeat(clean)
    assert pumpds.wait_for(lambda: heartbeat(clean) > before, 10), "the other one is served"
    late, another = greet_patiently(pumpd)
    assert pumpds.wait_for(lambda: heartbeat(another) > before, 10)
    for connection in (honest, late, *(connection for connection, _ in hostile)):
        connection.close()


def test_a_client_of_another_version_is_told_so(pumpd: Path) -> None:
    connection, status, memfd = greet(pumpd, version=lib.PUMP_ABI_VERSION + 1)
    assert (status, memfd) == (lib.PUMP_WELCOME_VERSION, -1)
    connection.close()


def test_clients_that_come_and_go_leave_no_worker_behind(pumpd: Path) -> None:
    for _ in range(10):
        connection, mapping = greet_patiently(pumpd)
        connection.close()
        mapping.close()
    assert pumpds.wait_for(lambda: pumpds.of_job(os.getpid()).workers == [], 10)
