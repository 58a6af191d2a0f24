"""`pumpd serve`: reads settings, opens the sockets, and runs the service (service.py)."""

from __future__ import annotations

import argparse
import contextlib
import gc
import grp
import logging
import os
import pwd
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from pump.base import paths
from pump.base.names import quoted
from pump.cli.support.lines import BadInputError, say
from pump.config import files, schema
from pump.config.layers import ADMINISTRATORS_FILE
from pump.config.settings import DEFAULTS
from pumpd.common import link
from pumpd.common.loglines import Formatter
from pumpd.common.process_name import name_process
from pumpd.service.cards import Cards
from pumpd.service.owners import read_owners
from pumpd.service.quota import Quotas
from pumpd.service.sdnotify import Manager, sockets_handed_over
from pumpd.service.service import BEATS_MISSED, Service
from pumpd.service.settings import ServiceSettings
from pumpd.service.surroundings import Process

COLLECTIONS = 50_000, 20, 50
"""Thresholds of Python's garbage collector. They are high, because visiting all objects takes as
long as an answer may take."""
BACKLOG = 4096
"""All users share the queue: if it were short, a flood of connects would shut other clients out.
The default of the kernel's limit (net.core.somaxconn) is the same."""

log = logging.getLogger("pumpd")


def run(asked: argparse.Namespace) -> int:
    """Runs the service until SIGTERM; returns 0. Raises BadInputError if it cannot start."""
    manager = Manager()
    _start_log(DEFAULTS.log_level)

    def settings() -> ServiceSettings:
        return read_settings(asked)

    try:
        first = settings()
    except ValueError as error:
        raise BadInputError(str(error)) from None
    log.setLevel(first.table.log_level.upper())
    account = _account(asked.run_as) if asked.run_as else None
    listeners, path = _listeners(asked.socket, asked.open)
    if account is not None:
        _become(account)
    name_process("pumpd-serve")
    own = link.SocketFile(path) if path else None
    gc.set_threshold(*COLLECTIONS)
    say("pumpd", f"serving at {quoted(path) if path else 'the socket from systemd'}, until SIGTERM")
    try:
        Service(listeners, settings, Cards(), manager, Process()).run()
    finally:
        if own is not None:
            own.remove()
    return 0


def _account(name: str) -> pwd.struct_passwd:
    """Returns the user that the service will run as. Raises BadInputError."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise BadInputError(
            f"--run-as: there is no user {name}; name a user of /etc/passwd"
        ) from None
    if os.geteuid() != 0:
        raise BadInputError(f"--run-as {name}: only root can become another user; leave it out")
    if account.pw_uid == 0:
        raise BadInputError(
            "--run-as: must not be root, because the service needs no privileges; name another user"
        )
    return account


def _become(account: pwd.struct_passwd) -> None:
    """Gives up root's privileges. Peers still see root as the server, because the kernel shows
    them the user that called listen (unix(7)). Raises BadInputError."""
    try:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    except OSError as error:
        raise BadInputError(f"--run-as {account.pw_name}: {error.strerror}") from None


def read_settings(asked: argparse.Namespace) -> ServiceSettings:
    """Returns the settings of the command line and the administrator's file; the command line has
    precedence. Raises ValueError, with one line."""
    try:
        found = files.load(asked.config, administrators=True)
    except files.ConfigError as error:
        raise ValueError(str(error)) from None
    if found is None and asked.config != ADMINISTRATORS_FILE:
        log.warning("--config: there is no file %s; using defaults", asked.config)
    tables = found.tables if found else {}
    table = schema.Service(**tables.get("service", {}))
    limits = schema.Limits(**tables.get("limits", {}))
    return ServiceSettings(
        quotas=Quotas(user_jobs=table.jobs_per_user, priority_most=limits.priority),
        beat_s=asked.beat or max(0.05, table.lease_s / BEATS_MISSED),
        settle_s=asked.settle or ServiceSettings.settle_s,
        weights=_weights(tables.get("shares", {})),
        observers=frozenset(user for name in table.observers for user in _ids("observers", name)),
        owners=read_owners(),
        table=table._replace(log_level=asked.log_level or table.log_level),
    )


def _weights(shares: Mapping[str, int]) -> dict[int, float]:
    """Returns weights by user ID. A user's own weight takes precedence over a group's weight.
    Ignores unknown names, with a warning."""
    found: dict[int, float] = {}
    groups_first = sorted(shares.items(), key=lambda item: (not item[0].startswith("@"), item[0]))
    for name, weight in groups_first:
        for user in _ids("[shares]", name):
            found[user] = float(weight)
    return found


def _ids(where: str, name: str) -> list[int]:
    """Returns the ID of a user, or of a "@group"'s members; none, with a warning, if unknown."""
    try:
        if not name.startswith("@"):
            return [pwd.getpwnam(name).pw_uid]
        entry = grp.getgrnam(name[1:])
    except KeyError:
        kind = "group" if name.startswith("@") else "user"
        log.warning("%s: there is no %s %s", where, kind, name.removeprefix("@"))
        return []
    primary = [user.pw_uid for user in pwd.getpwall() if user.pw_gid == entry.gr_gid]
    return primary + [user for member in entry.gr_mem for user in _ids(where, member)]


def _listeners(path: str, for_all: bool) -> tuple[list[socket.socket], str]:
    """Returns the sockets to listen on, and the path to remove at the end ("" for none)."""
    try:
        handed_over = sockets_handed_over()
    except OSError as error:
        raise BadInputError(
            f"systemd passed a descriptor that is not a socket: {error.strerror}"
        ) from None
    if handed_over:
        for one in handed_over:
            if (one.family, one.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
                raise BadInputError(
                    "systemd passed the wrong kind of socket; write "
                    "ListenSequentialPacket= in the socket unit"
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
                "--open: other users' jobs do not trust a service of user %d; start it as "
                "root, with --run-as",
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
            folder.mkdir(0o755)
            if folder.stat().st_mode & 0o777 != 0o755:  # mkdir masks the mode by the umask
                folder.chmod(0o755)
    else:
        paths.make_private(str(folder))


def _start_log(level: str) -> None:
    log.propagate = False
    log.setLevel(level.upper())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter("pumpd[%(process)d] %(levelname)s %(message)s"))
    log.addHandler(handler)
