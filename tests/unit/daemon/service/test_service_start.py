"""How `pumpd serve` starts: its folder, its socket, the user that it becomes, and the rights of
other processes with that user's number."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from other_users import ATTACKER, VICTIM, as_user, needs_root
from service_client import PUMPD, Played, Service, closing
from supervisor_client import eventually

from pump.service import ServiceClient
from pump.wire import server
from pumpd.common import link
from pumpd.service import serve

NOBODY = 65534
"""The user that the service becomes here: it is in /etc/passwd, and pods may have its number."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yields a folder that all users can reach, and only root can change."""
    with tempfile.TemporaryDirectory(prefix="pump-start-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def asked_as(user: int, path: Path) -> str:
    """Returns the names of the jobs that a user can see."""

    def ask() -> str:
        with ServiceClient(str(path)) as client:
            return " ".join(job.name for job in client.jobs())

    return as_user(user, ask)


@needs_root
def test_under_umask_077_the_systems_service_serves_all_users(folder: Path) -> None:
    path = folder / "run/socket"
    code = (
        f"from pump.base import paths; paths.SERVICE_SOCKET = {str(path)!r}\n"
        "import sys; from pumpd.main import main; sys.exit(main(['serve']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], umask=0o077)
    try:
        eventually(lambda: link.answers(str(path)), "the service to listen")
        assert path.parent.stat().st_mode & 0o777 == 0o755
        assert path.stat().st_mode & 0o777 == 0o666, "a socket for all, from the first answer on"
        assert asked_as(VICTIM, path) == ""
    finally:
        process.kill()
        process.wait()


class Pod(Service):
    """A service that root starts and that becomes another user, as in a cluster."""

    def __init__(self, folder: Path, config: str) -> None:
        (folder / "config.toml").write_text(config)
        super().__init__(
            folder, "--open", "--run-as", "nobody", "--config", str(folder / "config.toml")
        )
        eventually(self._has_become, "the service to become another user")

    def _has_become(self) -> bool:
        return psutil.Process(self.process.pid).uids().effective == NOBODY


@needs_root
def test_pods_with_the_services_number_can_neither_take_its_socket_nor_see_all(
    folder: Path,
) -> None:
    """Two pods run as the service's user, alongside pods of others and one that runs as root."""
    service = Pod(folder, "[service]\nroot_sees_all = false\n")
    path = service.socket

    def take() -> str:
        told = []
        for attack in (path.unlink, lambda: path.rename(folder / "away"), lambda: bind(folder)):
            with contextlib.suppress(PermissionError):
                attack()
                told.append("done")
        return " ".join(told) or "nothing"

    try:
        for user in (NOBODY, ATTACKER, VICTIM, NOBODY):
            assert as_user(user, take) == "nothing"
        status = psutil.Process(service.process.pid)
        assert (set(status.uids()), set(status.gids())) == ({NOBODY}, {NOBODY})
        lines = Path(f"/proc/{service.process.pid}/status").read_text().splitlines()
        held = dict(line.split(":\t") for line in lines if line.startswith(("Cap", "Groups")))
        assert int(held["CapEff"], 16) == int(held["CapPrm"], 16) == 0
        assert not held["Groups"].strip()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            assert server.peer_of(client).uid == 0, "clients see root as the one that serves"
        with closing(Played(service, name="of-root")):
            assert asked_as(NOBODY, path) == ""
            assert asked_as(ATTACKER, path) == ""
            with service.ask() as root:
                assert [job.name for job in root.jobs()] == ["of-root"], "its own"
    finally:
        service.kill()


def bind(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mine:
        mine.bind(str(folder / "mine"))


@needs_root
def test_on_a_plain_machine_root_and_the_services_own_user_see_all(folder: Path) -> None:
    service = Pod(folder, "")
    try:
        with closing(Played(service, name="of-root")):
            assert asked_as(NOBODY, service.socket) == "of-root"
            assert asked_as(ATTACKER, service.socket) == ""
    finally:
        service.kill()


@needs_root
def test_a_socket_that_a_killed_service_left_in_roots_folder_is_replaced(folder: Path) -> None:
    service = Pod(folder, "")
    for _ in range(2):
        service.kill()
        service.start()
        assert asked_as(VICTIM, service.socket) == ""
    assert service.end() == 0


@needs_root
def test_a_service_for_all_that_others_will_not_believe_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o777)

    def begin() -> str:
        with caplog.at_level("WARNING"):
            (listener,), _ = serve._listeners(str(folder / "service"), True)
            listener.close()
        return " ".join(caplog.messages)

    monkeypatch.setattr(logging.getLogger("pumpd"), "propagate", True)
    told = as_user(VICTIM, begin)
    assert "do not trust a service of user" in told and "--run-as" in told, told


@pytest.mark.parametrize(
    ("user", "reason"),
    [("no-such-user", "there is no user no-such-user"), ("root", "root")],
)
def test_a_user_that_the_service_cannot_become_is_refused_in_one_line(
    tmp_path: Path, user: str, reason: str
) -> None:
    words = [*PUMPD, "serve", "--socket", str(tmp_path / "s"), "--run-as", user]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and f"--run-as{'' if user == 'root' else ':'}" in done.stderr
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "s").exists()
