"""Controls a running job through its own pumpd: sets policy and budget, reads figures.

For another process of the same user, and for the job's own program, for example between
iterations. It uses a socket only, neither CUDA nor numpy: a program that imports it holds one
more descriptor while a connection is open.

    with Control.of_job() as control:
        control.set(policy="demand", budget_bytes=8 << 30)
        ...
        before = control.state()
"""

from __future__ import annotations

import os
import socket
import time

from pump import paths
from pump.wire import control as wire
from pump.wire import request_reply, server
from pump.wire.control import ClientState, DeviceState

__all__ = ["ClientState", "Control", "ControlError", "DeviceState"]

TIMEOUT_S = 6.0
"""Longest wait for one answer; pumpd itself gives up on a client sooner."""


class ControlError(Exception):
    """One line: what could not be done, and why. clients: the states that were answered."""

    def __init__(self, reason: str, clients: list[ClientState] | None = None) -> None:
        super().__init__(reason)
        self.clients = clients or []


class Control(request_reply.Client):
    """A connection to one job's pumpd; connects when needed, also after close(). One thread at a
    time."""

    @classmethod
    def of_job(cls, socket_path: str | None = None) -> Control:
        """Control of the job with the socket `socket_path`; None: of the job that this process
        is part of. Raises ControlError outside of a job."""
        path = socket_path or os.environ.get("PUMP_SOCKET") or paths.job_socket(os.getpid())
        if not path:
            raise ControlError(
                "no job to control: PUMP_SOCKET is not set, and no rule of pump enable serves "
                "this process; run under pump-run or name the socket of its pumpd"
            )
        return cls(path)

    def __repr__(self) -> str:
        return f"<Control of {self.path}{'' if self._socket else ', not connected'}>"

    # ---- requests ----

    def set(
        self,
        policy: str | None = None,
        budget_bytes: int | None = None,
        device: int | None = None,
        *,
        client_pid: int | None = None,
    ) -> list[ClientState]:
        """Switch policy and budget of all clients of the job, or of one.

        policy: a name as in `pump-run --policy`; None: unchanged. budget_bytes: of `device` or,
        without it, of each device, also those that a client begins to use later; the card's
        memory stands for what pump takes without a budget; None: unchanged. client_pid: of
        one client; None: of all.

        Returns the clients' states once their workers use the policy and their shims the
        budgets; evictions that a smaller budget needs follow. Raises ControlError with the
        first client's reason when one could not. A client that did not answer in time may
        switch later.
        """
        clients = self._ask(wire.Request(wire.SET, client_pid, policy, budget_bytes, device))
        if not clients:
            raise ControlError(f"{self.path}: the job has no such client: nothing was set")
        for client in clients:
            if client.error is not None:
                raise ControlError(f"client {client.pid}: {client.error}", clients)
        return clients

    def state(self, *, client_pid: int | None = None) -> list[ClientState]:
        """Return the figures of all clients of the job, or of one; a client that did not
        answer has an `error`. Raises ControlError when pumpd does not answer."""
        return self._ask(wire.Request(wire.STATE, client_pid))

    # ---- inside ----

    def _ask(self, request: wire.Request) -> list[ClientState]:
        deadline = time.monotonic() + TIMEOUT_S
        try:
            data = wire.encode_request(request)
            try:
                return wire.decode_reply(self._exchange(data, deadline))
            except request_reply.ClosedError:  # pumpd closes idle connections
                return wire.decode_reply(self._exchange(data, deadline))
        except wire.FrameError as error:
            raise ControlError(f"{self.path}: {error}") from None
        except request_reply.ClosedError:
            raise ControlError(f"{self.path}: pumpd closed the connection") from None
        except TimeoutError:
            self.close()  # else a late answer would be taken for the next request's
            raise ControlError(
                f"{self.path}: pumpd did not answer within {TIMEOUT_S:.0f} s"
            ) from None
        except OSError as error:
            self.close()
            raise ControlError(
                f"{self.path}: cannot reach pumpd: {error.strerror or error}"
            ) from None

    def _exchange(self, data: bytes, deadline: float) -> bytes:
        if self._socket is None:
            self._socket = _connect(self.path, deadline)
        try:
            return request_reply.exchange(self._socket, data, wire.REPLY_BYTES, deadline)
        except request_reply.ClosedError:
            self.close()
            raise


def _connect(path: str, deadline: float) -> socket.socket:
    """A connection after the welcome. Raises ControlError, FrameError, ClosedError, OSError."""
    connection = request_reply.connect(path, deadline)
    try:
        user = server.peer_of(connection).uid
        if user != os.geteuid():
            raise ControlError(
                f"{path}: its pumpd belongs to user {user}, this process to {os.geteuid()}; "
                "only a job's own user controls it"
            )
        hello, most_bytes = wire.pack_hello(), wire.WELCOME_BYTES_MAX
        wire.check_welcome(request_reply.exchange(connection, hello, most_bytes, deadline))
    except BaseException:
        connection.close()
        raise
    return connection
