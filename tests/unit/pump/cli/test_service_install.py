"""Units of the service: written, checked by systemd's own tools, and started as by systemd."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervisor_client import eventually

from pump.cli.service import install as service_install
from pump.cli.support import service_files
from pump.cli.support.lines import BadInputError
from pump.config import files
from pump.service import ServiceClient
from pump.wire import service as wire

BIN = Path(sys.executable).parent
ANALYZE = shutil.which("systemd-analyze")
needs_analyze = pytest.mark.skipif(
    ANALYZE is None, reason="systemd-analyze is not installed (apt-get install systemd)"
)
SYSTEM_UNITS = "etc/systemd/system"
UNITS = ("pumpd.service", "pumpd.socket", "pump-metrics.service")
SECURITY_MOST = {"system": 2.0, "user": 6.5}
"""systemd-analyze's exposure level, 0 to 10: up to 2.5 is safe, and up to 4.5 ok. A user's own
systemd cannot meet most of its conditions, because that takes a privilege."""


def pump(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "pump"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )


def install(root: Path, *words: str, **environ: str) -> list[Path]:
    """Installs below `root`; returns the names of the written files in it."""
    done = pump("service", "install", "--root", str(root), *words, **environ)
    assert done.returncode == 0, done.stderr
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "root"
    install(found)
    return found


def test_all_files_are_written_and_removed_again(tmp_path: Path) -> None:
    written = install(tmp_path)
    assert [str(path) for path in written] == [
        "etc/pump/config.toml",
        f"{SYSTEM_UNITS}/pump-metrics.service",
        f"{SYSTEM_UNITS}/pumpd.service",
        f"{SYSTEM_UNITS}/pumpd.socket",
        f"{SYSTEM_UNITS}/pumpd.socket.d/group-only.conf.example",
        f"{SYSTEM_UNITS}/user-runtime-dir@.service.d/pump.conf",
        "etc/sysusers.d/pump.conf",
        "etc/tmpfiles.d/pump.conf",
    ]
    for name in ("pumpd.service", "pump-metrics.service"):
        text = (tmp_path / SYSTEM_UNITS / name).read_text()
        assert "@" not in text.replace("@privileged", "").replace("@system-service", ""), name
    assert install(tmp_path) == written, "once more changes nothing"
    done = pump("service", "uninstall", "--root", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_packagers_get_the_same_files_where_packages_have_them(root: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    written = install(package, "--packaged")
    folders = {
        SYSTEM_UNITS: "usr/lib/systemd/system",
        "etc/sysusers.d": "usr/lib/sysusers.d",
        "etc/tmpfiles.d": "usr/lib/tmpfiles.d",
    }
    for path in root.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(root))
            for folder, other in folders.items():
                name = name.replace(folder, other)
            assert (package / name).read_text() == path.read_text()
            written.remove(Path(name))
    assert written == []


def test_units_of_a_package_are_not_hidden_by_a_second_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = tmp_path / "pumpd.service"
    monkeypatch.setattr(
        service_files, "PACKAGED", {service_files.UNITS: str(tmp_path), "/etc/sysusers.d": "/no"}
    )
    parser = argparse.ArgumentParser()
    service_install.options(parser)
    unit.touch()
    with pytest.raises(BadInputError, match=f"a package has installed the service .{unit}"):
        service_install.run(parser.parse_args([]))


def test_what_an_administrator_changed_stays(root: Path) -> None:
    config = root / "etc/pump/config.toml"
    config.write_text("[service]\njobs_per_user = 3\n")
    drop_in = root / SYSTEM_UNITS / "pumpd.service.d" / "own.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\n")
    install(root)
    assert "jobs_per_user = 3" in config.read_text()
    assert pump("service", "uninstall", "--root", str(root)).returncode == 0
    assert config.exists() and drop_in.exists()


def test_a_unit_that_pump_did_not_write_is_not_overwritten(root: Path) -> None:
    unit = root / SYSTEM_UNITS / "pumpd.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    done = pump("service", "install", "--root", str(root))
    assert done.returncode == 2 and "pump did not write it; move it away" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert pump("service", "uninstall", "--root", str(root)).returncode == 0
    assert unit.exists()


def test_the_users_own_units_go_into_their_folder(tmp_path: Path) -> None:
    written = install(tmp_path, "--user", XDG_CONFIG_HOME="/home-of/me/.config")
    folder = "home-of/me/.config/systemd/user"
    assert [str(path) for path in written] == [f"{folder}/pumpd.service", f"{folder}/pumpd.socket"]
    assert "User=" not in (tmp_path / folder / "pumpd.service").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--pumpd", "pumpd"], "must be an absolute path"),
        (["--packaged", "--user"], "--packaged is for packagers"),
        (["--pumpd", "/a b/pumpd"], "a systemd unit cannot hold"),
        (["--root", "/dev/null/x"], "cannot write"),
    ],
)
def test_bad_input_to_the_installer_is_one_line(
    tmp_path: Path, words: list[str], reason: str
) -> None:
    done = pump("service", "install", "--root", str(tmp_path), *words)
    assert done.returncode == 2 and reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_pumpd_that_the_services_user_cannot_reach_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    pumpd = tmp_path / "pumpd"
    pumpd.write_text("")
    pumpd.chmod(0o755)
    done = pump("service", "install", "--pumpd", str(pumpd))
    assert done.returncode == 2 and "install pump for all users" in done.stderr


def test_the_configuration_that_comes_along_is_sound(root: Path) -> None:
    path = root / "etc/pump/config.toml"
    found = files.load(str(path), administrators=True)
    assert found is not None
    # The settings in comments are valid as well.
    text = re.sub(r"^# (?=\S+ = )", "", path.read_text(), flags=re.MULTILINE)
    path.write_text(text)
    found = files.load(str(path), administrators=True)
    assert found is not None and found.tables["service"]["jobs_per_user"] == 64


# ---- systemd's own checks ----


@needs_analyze
def test_systemd_finds_no_fault_in_the_units(root: Path, tmp_path: Path) -> None:
    units = [root / SYSTEM_UNITS / name for name in UNITS]
    user = tmp_path / "user"
    install(user, "--user", XDG_CONFIG_HOME="/config")
    mine = sorted((user / "config/systemd/user").iterdir())
    for where, paths in (("--system", units), ("--user", mine)):
        done = subprocess.run(
            [str(ANALYZE), where, "verify", "--man=no", "--generators=no", *map(str, paths)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )
        told = [line for line in done.stderr.splitlines() if "pump" in line]
        assert done.returncode == 0 and not told, done.stderr


@needs_analyze
@pytest.mark.parametrize(
    ("whose", "unit"),
    [("system", "pumpd.service"), ("system", "pump-metrics.service"), ("user", "pumpd.service")],
)
def test_the_service_is_exposed_to_little(
    root: Path, tmp_path: Path, whose: str, unit: str
) -> None:
    if whose == "user":
        install(root, "--user", XDG_CONFIG_HOME="/config")
    units = root / (SYSTEM_UNITS if whose == "system" else "config/systemd/user")
    command = [str(ANALYZE), f"--{whose}", "security", "--offline=true", "--no-pager"]
    command += [f"--threshold={SECURITY_MOST[whose] * 10:.0f}", str(units / unit)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed"
)
def test_sysusers_makes_the_user_and_the_group(root: Path) -> None:
    for name in ("passwd", "group"):
        (root / "etc" / name).write_text("root:x:0:0:root:/root:/bin/sh\n" * (name == "passwd"))
    command = ["systemd-sysusers", f"--root={root}", str(root / "etc/sysusers.d/pump.conf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "\npump:" in (root / "etc/passwd").read_text()
    assert "pump:" in (root / "etc/group").read_text()


@pytest.mark.skipif(
    shutil.which("systemd-tmpfiles") is None, reason="systemd-tmpfiles is not installed"
)
def test_tmpfiles_makes_the_sockets_folder(root: Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    command = ["systemd-tmpfiles", f"--root={root}", "--create"]
    command.append(str(root / "etc/tmpfiles.d/pump.conf"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if os.geteuid() != 0 and "Operation not permitted" in done.stderr:
        pytest.skip("needs root, to give the folder to root")
    assert done.returncode == 0, done.stderr
    assert (root / "run/pump").stat().st_mode & 0o777 == 0o755
    assert (root / "dev/shm/pump").stat().st_mode & 0o7777 == 0o755


@pytest.mark.skipif(
    shutil.which("systemd-tmpfiles") is None, reason="systemd-tmpfiles is not installed"
)
@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to users, which takes root")
@pytest.mark.parametrize(
    "before",
    [
        "",
        "mkdir -m 1777 /dev/shm/pump",  # as in earlier releases
        "cd /dev/shm; mkdir pump; ln -s /dev/shm/bait pump/10001; chown -hR 10001 pump",
    ],
)
def test_a_user_that_logs_in_gets_a_folder_and_nothing_else(root: Path, before: str) -> None:
    drop_in = (root / SYSTEM_UNITS / "user-runtime-dir@.service.d/pump.conf").read_text()
    (command,) = (line for line in drop_in.splitlines() if line.startswith("ExecStartPost=-"))
    words = shlex.split(command.removeprefix("ExecStartPost=-").replace("%i", "10001"))
    look = "stat -c '%n %u %a' /dev/shm/bait /dev/shm/pump /dev/shm/pump/10001"
    script = f'mount -t tmpfs -o mode=1777 t /dev/shm; mkdir /dev/shm/bait; {before}\n"$@"\n{look}'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    bait, common, *own = done.stdout.splitlines()
    assert (bait, common) == ("/dev/shm/bait 0 755", "/dev/shm/pump 0 755"), done.stderr
    if "bait" not in before:
        assert own == ["/dev/shm/pump/10001 10001 755"]


# ---- started as systemd would ----


HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Executes a command that finds its socket where systemd puts it."""


class Systemd:
    """Runs a unit's ExecStart with the socket that its socket unit asks for, a notification socket
    and a watchdog."""

    def __init__(self, unit: Path, folder: Path, watchdog_us: int) -> None:
        text = unit.read_text()
        assert "Type=notify" in text and "WatchdogSec=" in text and "Requires=pumpd.socket" in text
        assert "ListenSequentialPacket=" in unit.with_suffix(".socket").read_text()
        self.path = folder / "socket"
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(folder / "notify"))
        self.notified.settimeout(15)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.path))
        self.listener.listen(16)
        self.heard: list[str] = []
        self.command = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)[0]
        self.environ = {
            **os.environ,
            "NOTIFY_SOCKET": str(folder / "notify"),
            "LISTEN_FDS": "1",
            "WATCHDOG_USEC": str(watchdog_us),
        }
        self.start()

    def start(self) -> None:
        fd = self.listener.fileno()
        words = [sys.executable, "-c", HAND_OVER, str(fd), *shlex.split(self.command)]
        self.process = subprocess.Popen(
            words, env=self.environ, pass_fds=[fd], stderr=subprocess.DEVNULL
        )

    def hear(self, line: str) -> None:
        """Waits until the service has sent `line`."""
        while line not in self.heard:
            self.heard += self.notified.recv(4096).decode().splitlines()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.notified.close()
        self.listener.close()


@pytest.fixture(params=["system", "user"])
def systemd(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Iterator[Systemd]:
    units = root / SYSTEM_UNITS
    if request.param == "user":
        install(root, "--user", XDG_CONFIG_HOME="/config")
        units = root / "config/systemd/user"
    made = Systemd(units / "pumpd.service", tmp_path, watchdog_us=600_000)
    yield made
    made.close()


def test_the_unit_starts_is_ready_reloads_and_stops(systemd: Systemd) -> None:
    systemd.hear("READY=1")
    with ServiceClient(str(systemd.path)) as client:
        assert client.state().pid == systemd.process.pid
    systemd.heard.clear()
    systemd.process.send_signal(1)
    systemd.hear("RELOADING=1")
    systemd.hear("READY=1")
    systemd.process.terminate()
    systemd.hear("STOPPING=1")
    assert systemd.process.wait(timeout=15) == 0
    assert systemd.path.exists(), "the socket is systemd's"


def test_the_unit_of_metrics_tells_of_all_that_the_service_knows(
    root: Path, systemd: Systemd, tmp_path: Path
) -> None:
    unit = (root / SYSTEM_UNITS / "pump-metrics.service").read_text()
    command = shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0])
    assert Path(command[0]).samefile(BIN / "pump")
    told = tmp_path / "pump.prom"
    command[command.index("--textfile") + 1] = str(told)
    systemd.hear("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as job:
        job.connect(str(systemd.path))
        job.send(wire.pack_hello())
        wire.check_welcome(job.recv(64))
        job.send(wire.encode(wire.Join(name="theirs", job_pid=77)))
        environ = {**os.environ, "PUMP_SERVICE": str(systemd.path)}
        writer = subprocess.Popen(command, env=environ, umask=0o027)
        try:
            eventually(told.exists, "the figures")
            mine = f'{{user="{os.geteuid()}"}}'
            assert f"pump_registered_jobs{mine} 1.0\n" in told.read_text()
            assert told.stat().st_mode & 0o777 == 0o640
        finally:
            writer.terminate()
            writer.wait(15)


def test_the_watchdog_is_fed_while_the_service_lives_and_not_when_it_hangs(
    systemd: Systemd,
) -> None:
    systemd.hear("READY=1")
    for _ in range(3):
        systemd.heard.clear()
        systemd.hear("WATCHDOG=1")
    os.kill(systemd.process.pid, 19)
    time.sleep(0.3)
    systemd.notified.setblocking(False)
    eventually(lambda: _silent(systemd.notified), "an empty mailbox")
    time.sleep(1.0)
    assert _silent(systemd.notified), "a stopped service says nothing"
    os.kill(systemd.process.pid, 18)
    systemd.notified.settimeout(15)
    systemd.heard.clear()
    systemd.hear("WATCHDOG=1")


def _silent(voice: socket.socket) -> bool:
    try:
        voice.recv(4096)
    except BlockingIOError:
        return True
    return False


def test_a_restart_keeps_the_socket_and_serves_peers_that_connect_meanwhile(
    systemd: Systemd,
) -> None:
    systemd.hear("READY=1")
    systemd.process.kill()
    systemd.process.wait()
    early = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    early.settimeout(15)
    early.connect(str(systemd.path))
    systemd.start()
    early.send(wire.pack_hello())
    assert wire.check_welcome(early.recv(64)) == wire.VERSION
    early.close()


def test_a_socket_of_another_kind_is_refused_in_one_line(root: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wrong:
        wrong.bind(str(tmp_path / "stream"))
        wrong.listen(1)
        fd = wrong.fileno()
        words = [sys.executable, "-c", HAND_OVER, str(fd), str(BIN / "pumpd"), "serve"]
        done = subprocess.run(
            words,
            env={**os.environ, "LISTEN_FDS": "1"},
            pass_fds=[fd],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 2
    assert "ListenSequentialPacket" in done.stderr and len(done.stderr.splitlines()) == 1
