"""`pumpd serve`: from the command line and systemd to a running service (service.py)."""

from __future__ import annotations

import argparse
import contextlib
import grp
import logging
import os
import pwd
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from pump import paths
from pump.cli.support.lines import BadInputError
from pump.config import files
from pump.config.job import DEFAULT_LOG_LEVEL
from pump.config.layers import ADMINISTRATORS_FILE
from pump.config.schema import ConfigFile
from pumpd.common import link
from pumpd.common.loglines import Formatter
from pumpd.common.process_name import name_process
from pumpd.service.cards import Cards
from pumpd.service.owners import read_owners
from pumpd.service.quota import Quotas
from pumpd.service.sdnotify import Manager, sockets_handed_over
from pumpd.service.service import BEATS_MISSED, Service, ServiceSettings
from pumpd.service.surroundings import Process

BACKLOG = 4096
"""The queue is one for all users: beside a flood of connects a short one refuses other clients.
The kernel's own bound (net.core.somaxconn) is as high by default."""

log = logging.getLogger("pumpd")


def run(asked: argparse.Namespace) -> int:
    """Serve until SIGTERM. Raises BadInputError when it cannot begin."""
    manager = Manager()
    _start_log(DEFAULT_LOG_LEVEL)

    def settings() -> ServiceSettings:
        return read_settings(asked)

    try:
        first = settings()
    except ValueError as error:
        raise BadInputError(str(error)) from None
    log.setLevel(first.log_level.upper())
    account = _account(asked.run_as) if asked.run_as else None
    listeners, path = _listeners(asked.socket, asked.open)
    if account is not None:
        _become(account)
    name_process("pumpd-serve")
    inode = _inode(path)
    try:
        Service(listeners, settings, Cards(), manager, Process()).run()
    finally:
        if inode is not None and _inode(path) == inode:
            with contextlib.suppress(OSError):
                Path(path).unlink()
    return 0


def _account(name: str) -> pwd.struct_passwd:
    """The user that the service shall run as. Raises BadInputError."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise BadInputError(f"--run-as: there is no user {name}; name one of /etc/passwd") from None
    if os.geteuid() != 0:
        raise BadInputError(f"--run-as {name}: only root can become another user; leave it out")
    if account.pw_uid == 0:
        raise BadInputError("--run-as: the service needs no privilege; name another user than root")
    return account


def _become(account: pwd.struct_passwd) -> None:
    """Give up root for good. Peers go on to see root as the one that serves: the kernel tells
    them the user that called listen. Raises BadInputError."""
    try:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    except OSError as error:
        raise BadInputError(f"--run-as {account.pw_name}: {error.strerror}") from None


def read_settings(asked: argparse.Namespace) -> ServiceSettings:
    """Return the settings of the administrator's file and the command line, which goes
    first. Raises ValueError, one line."""
    try:
        found = files.load(asked.config, administrators=True)
    except files.ConfigError as error:
        raise ValueError(str(error)) from None
    if found is None and asked.config != ADMINISTRATORS_FILE:
        log.warning("--config %s is not there: the defaults count", asked.config)
    content = found.checked if found else ConfigFile()
    table = content.service
    reserve = str(table.reserve)
    return ServiceSettings(
        quotas=Quotas(user_jobs=table.jobs_per_user, priority_most=content.limits.priority),
        beat_s=asked.beat or max(0.05, table.lease_s / BEATS_MISSED),
        settle_s=asked.settle or ServiceSettings.settle_s,
        weights=_weights(content.shares),
        observers=frozenset(user for who in table.observers for user in _people("observers", who)),
        root_sees_all=table.root_sees_all,
        owners=read_owners(),
        reserve=reserve,
        log_level=asked.log_level or (table.log_level if found else DEFAULT_LOG_LEVEL),
    )


def _weights(shares: Mapping[str, int]) -> dict[int, float]:
    """Weights by user number. A user's own goes before that of a group; who or what is not
    known on this machine is left out, and told."""
    found: dict[int, float] = {}
    for who, weight in sorted(shares.items(), reverse=True):  # "@group" before any name
        for user in _people("[shares]", who):
            found[user] = float(weight)
    return found


def _people(where: str, who: str) -> list[int]:
    """Numbers of a user, or of the members of a "@group"; none, and told, of who is unknown."""
    try:
        if not who.startswith("@"):
            return [pwd.getpwnam(who).pw_uid]
        entry = grp.getgrnam(who[1:])
    except KeyError:
        kind = "group" if who.startswith("@") else "user"
        log.warning("%s: there is no %s %s", where, kind, who.removeprefix("@"))
        return []
    primary = [user.pw_uid for user in pwd.getpwall() if user.pw_gid == entry.gr_gid]
    return primary + [user for name in entry.gr_mem for user in _people(where, name)]


def _listeners(path: str, for_all: bool) -> tuple[list[socket.socket], str]:
    """The sockets to listen on, and the path that is ours to remove ("" for none)."""
    try:
        handed_over = sockets_handed_over()
    except OSError as error:
        raise BadInputError(f"what systemd hands over is no socket: {error.strerror}") from None
    if handed_over:
        for one in handed_over:
            if (one.family, one.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
                raise BadInputError(
                    "systemd hands over another kind of socket; write ListenSequentialPacket= "
                    "in the socket unit"
                )
        return handed_over, ""
    root = os.geteuid() == 0
    chosen = path
    try:
        chosen = path or (paths.SERVICE_SOCKET if root else paths.user_service_socket())
        if not path:
            _make_folder(Path(chosen).parent, root)
        mode = 0o666 if root or for_all else 0o600  # credentials decide what a user may do
        listener = link.bind_listener(chosen, BACKLOG, mode)
        if for_all and not root:
            log.warning(
                "--open: jobs of other users believe no service of user %d; start it as root, "
                "with --run-as",
                os.geteuid(),
            )
        return [listener], chosen
    except paths.UnsafeDirectoryError as error:
        raise BadInputError(str(error)) from None
    except OSError as error:
        raise BadInputError(f"--socket {chosen}: {error.strerror}") from None


def _make_folder(folder: Path, root: bool) -> None:
    if root:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o755)  # whatever the umask has taken away
    else:
        paths.make_private(str(folder))


def _inode(path: str) -> tuple[int, int] | None:
    if not path:
        return None
    try:
        status = Path(path).lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _start_log(level: str) -> None:
    log.propagate = False
    log.setLevel(level.upper())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter("pumpd[%(process)d] %(levelname)s %(message)s"))
    log.addHandler(handler)
