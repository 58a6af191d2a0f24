"""`pump service metrics` with hostile users. TCP does not identify users, so connections are
bounded. Each user makes as many jobs with as many GPUs as the service allows."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import MIB, Played, Service, closing
from supervisor_client import eventually
from users import ALICE, ATTACKERS, Say, as_user, needs_root, plays, public_folder, together

from pump.cli.metrics.answers import PEERS_MOST
from pump.cli.metrics.families import GPUS_MOST, SERIES_MOST
from pump.wire import service as wire

pytestmark = needs_root

GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
METRICS = (
    "import sys; from pump.cli.main import main; from pump.cli.metrics import answers\n"
    "answers.REQUEST_S = 600.0; sys.exit(main())"
)
"""With this time limit no query is answered just because another connection timed out."""
JOBS_EACH = 64
GPUS_EACH = 8
TIMEOUT_S = 20


@pytest.fixture
def service() -> Iterator[Service]:
    with public_folder() as folder:
        made = Service(folder, "--beat", "20", "--settle", "0.05")
        yield made
        made.kill()


@pytest.fixture
def port(service: Service, tmp_path: Path) -> Iterator[int]:
    """Yields the port of root's `pump service metrics` with series for each job."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = int(probe.getsockname()[1])
    words = [
        sys.executable,
        "-c",
        METRICS,
        "service",
        "metrics",
        "--tcp",
        f"127.0.0.1:{number}",
        "--per-job",
    ]
    environ = {**os.environ, "PUMP_SERVICE": str(service.socket), "XDG_RUNTIME_DIR": str(tmp_path)}
    process = subprocess.Popen(words, env=environ, cwd=tmp_path)
    try:
        eventually(lambda: answers(number), "pump service metrics to listen")
        yield number
        assert process.poll() is None, "it goes on"
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        return b"pump_jobs" in asked(port)
    return False


def scraped(port: int) -> bytes:
    """Returns an answer; queries again if it was too slow. In a crowd the server closes the oldest
    connection of any user."""
    until_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            text = asked(port)
            if text:
                return text
    raise TimeoutError


def asked(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as peer:
        peer.sendall(GET)
        return b"".join(iter(lambda: peer.recv(1 << 16), b""))


def names_gpus(say: Say, service: Service) -> None:
    """Makes many jobs on GPUs that do not exist; half of the jobs name the same ones."""
    jobs = []
    same = [os.urandom(16).hex() for _ in range(GPUS_EACH)]
    for number in range(JOBS_EACH):
        job = Played(service, name=f'{number}"}} 1 #{os.getuid()}')
        job.adopts = False  # otherwise a grant would make turn() report only the default GPU
        entries = tuple(
            wire.GpuReport(gpu, 1000 * MIB, 10 * MIB, 10 * MIB, 0, 0, 0)
            for gpu in (same if number % 2 else (os.urandom(16).hex() for _ in same))
        )
        job.say(wire.Report(0, 1, 0, 0, entries))
        jobs.append(job)
    say("named")
    plays(say, *jobs)


def crowds(say: Say, port: int) -> None:
    """Keeps many more connections than the server allows, each from its own address: silent ones,
    ones that send half a line, and ones that take no answer. Replaces each lost connection."""
    held = [crowding(port, number) for number in range(1, 2 * PEERS_MOST)]
    say("crowds")
    while True:
        for at, one in enumerate(held):
            if is_closed(one):
                one.close()
                held[at] = crowding(port, at + 1)


def crowding(port: int, number: int) -> socket.socket:
    one = socket.socket()
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        one.settimeout(TIMEOUT_S)
        one.bind((f"127.0.{os.getuid() % 250}.{number}", 0))
        one.connect(("127.0.0.1", port))
        one.sendall((b"", GET[:9], GET)[number % 3])
    return one


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def newer_figures(port: int, beginning: str) -> list[str]:
    """Returns the lines of an answer with such a line; answers within a second are equal."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        text = as_user(ALICE, scraped, port).decode()
        assert text.startswith("HTTP/1.0 200"), text[:200]
        lines = text.partition("\r\n\r\n")[2].splitlines()
        if any(one.startswith(beginning) for one in lines):
            return lines
        assert time.monotonic() < end, lines
        time.sleep(0.2)


def test_three_users_keep_no_other_from_the_figures_and_make_no_more_series_than_are_theirs(
    service: Service, port: int
) -> None:
    with closing(Played(service, name="of root", wanted_mib=7)) as (honest,):
        honest.report()
        with together(names_gpus, service), together(crowds, port):
            for _ in range(3):
                honest.turn()
                lines = newer_figures(port, 'pump_registered_jobs{user="0"')
                for user in ATTACKERS:
                    mine = [line for line in lines if f'user="{user}"' in line]
                    gpus = {gpu for line in mine for gpu in re.findall(r'UUID="([\w-]+)"', line)}
                    assert len(mine) <= SERIES_MOST + 1 and len(gpus) <= GPUS_MOST
                    assert any(line.startswith("pump_series_omitted{") for line in mine)
                assert not [one for one in lines if "omitted" in one and 'user="0"' in one]
