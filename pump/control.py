"""Controls a running job through its pumpd: sets the policy and the budget, reads its counters.

The job's own program can use it, for example between iterations, and so can other processes of the
same user. The module imports neither CUDA nor numpy. A connection holds one socket.

    with Control.of_job() as control:
        control.set(policy="demand", budget_bytes=8 << 30)
        ...
        before = control.state()
"""

from __future__ import annotations

import os
import socket
import time

from pump.base import paths
from pump.wire import control as wire
from pump.wire import request_reply, server
from pump.wire.control import ClientState, DeviceState

__all__ = ["ClientState", "Control", "ControlError", "DeviceState"]

TIMEOUT_S = 6.0
"""Longest wait for one answer. pumpd itself gives up on a client earlier."""


class ControlError(Exception):
    """One line with the failure and its cause. clients: the states that were received."""

    def __init__(self, reason: str, clients: list[ClientState] | None = None) -> None:
        super().__init__(reason)
        self.clients = clients or []


class Control(request_reply.Client):
    """A connection to one job's pumpd. The connection opens when needed, also after close(). Only
    one thread at a time may use it."""

    @classmethod
    def of_job(cls, socket_path: str | None = None) -> Control:
        """Returns the control of the job with the socket `socket_path`, or of the job that this
        process is part of. Raises ControlError outside of a job."""
        path = socket_path or os.environ.get("PUMP_SOCKET") or paths.job_socket(os.getpid())
        if not path:
            raise ControlError(
                "no job to control: PUMP_SOCKET is not set, and no rule of pump enable "
                "matches this process; run it under pump-run, or name its pumpd's socket"
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
        """Switches the policy and the budget of all clients of the job, or of one client.

        `policy`: a name as in `pump-run --policy`. `budget_bytes`: the budget of `device`, or of
        every device, including devices that a client begins to use later. The GPU's total memory
        means no budget. None leaves the policy or the budget unchanged. `client_pid`: the process
        id of the client to change; None: all clients.

        Returns the clients' states once the new policy and budget apply. A smaller budget evicts
        blocks after that. Raises ControlError with the reason of the first client that failed. A
        client that did not answer in time may still switch later.
        """
        clients = self._ask(wire.Request(wire.SET, client_pid, policy, budget_bytes, device))
        if not clients:
            raise ControlError(f"{self.path}: the job has no such client, so nothing was set")
        for client in clients:
            if client.error is not None:
                raise ControlError(f"client {client.pid}: {client.error}", clients)
        return clients

    def state(self, *, client_pid: int | None = None) -> list[ClientState]:
        """Returns the states of all clients of the job, or of the client with `client_pid`. A
        client that did not answer has an `error`. Raises ControlError if pumpd does not answer."""
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
            self.close()  # a late answer must not be taken for the answer to the next request
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
    """Returns a connection after the welcome. Raises ControlError, FrameError, ClosedError,
    OSError."""
    connection = request_reply.connect(path, deadline)
    try:
        user = server.peer_of(connection).uid
        if user != os.geteuid():
            raise ControlError(
                f"{path}: its pumpd belongs to user {user}, this process to {os.geteuid()}; "
                "only the job's own user controls it"
            )
        hello, most_bytes = wire.pack_hello(), wire.WELCOME_BYTES_MAX
        wire.check_welcome(request_reply.exchange(connection, hello, most_bytes, deadline))
    except BaseException:
        connection.close()
        raise
    return connection
