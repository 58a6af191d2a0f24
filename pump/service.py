"""Asks the system service (`pumpd serve`) for its jobs and for its own counters.

Users see their own jobs, root sees all jobs. The module needs only a socket.

    with ServiceClient.find() as service:
        for job in service.jobs():
            print(job.name, job.gpus)
"""

from __future__ import annotations

import time
from typing import Any

from pump.base import paths
from pump.wire import request_reply
from pump.wire import service as wire
from pump.wire.server import UntrustedServerError
from pump.wire.service import JobState, ServiceState
from pump.wire.strict import FrameError

__all__ = [
    "JobState",
    "ServiceClient",
    "ServiceError",
    "ServiceState",
    "SilentServiceError",
    "UntrustedServiceError",
]

TIMEOUT_S = 5.0
"""Longest wait of one call."""


class ServiceError(Exception):
    """One line with the failure and its cause."""


class SilentServiceError(ServiceError):
    """A process serves the socket but does not answer within TIMEOUT_S."""


class UntrustedServiceError(ServiceError):
    """An untrusted user serves the socket (pump/wire/server.py)."""


_BY_IMPORTANCE = (ServiceError, SilentServiceError, UntrustedServiceError)
"""The errors in ascending order of importance to the user."""


class ServiceClient(request_reply.Client):
    """A connection to one service. Only one thread at a time may use it."""

    def __init__(self, path: str) -> None:
        """Connects to the socket at `path`. Raises ServiceError; SilentServiceError if the service
        does not answer in time, UntrustedServiceError if its process is not trusted."""
        super().__init__(path)
        deadline = time.monotonic() + TIMEOUT_S
        try:
            self._socket = request_reply.connect(path, deadline)
            self._version = wire.check_welcome(self._exchange(wire.pack_hello(), deadline))
        except FrameError as error:
            self.close()
            raise ServiceError(f"{path}: {error}") from None
        except UntrustedServerError as error:
            raise UntrustedServiceError(f"{path}: not a trusted service: {error}") from None
        except TimeoutError:
            raise self._silent_error() from None
        except OSError as error:
            raise ServiceError(
                f"{path}: cannot reach the service: {error.strerror or error}"
            ) from None
        except BaseException:
            self.close()
            raise

    @classmethod
    def find(cls) -> ServiceClient:
        """Returns a connection to the service that this user's jobs use. If no socket works, raises
        the most important error: UntrustedServiceError, then SilentServiceError, then
        ServiceError."""
        last = ServiceError("the service is off (PUMP_SERVICE=none)")
        for path in paths.service_sockets():
            try:
                return cls(path)
            except ServiceError as error:
                last = max(error, last, key=lambda one: _BY_IMPORTANCE.index(type(one)))
        raise last

    def __repr__(self) -> str:
        return f"<ServiceClient of {self.path}>"

    def jobs(self) -> list[JobState]:
        """Returns the user's jobs (for root, all jobs) in the order in which they joined. Raises
        ServiceError."""
        found: list[JobState] = []
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            after = found[-1].number if found else 0
            page: wire.Jobs = self._ask(wire.AskJobs(after), wire.Jobs, deadline)
            found += page.jobs
            if not page.more or not page.jobs:
                return found

    def state(self) -> ServiceState:
        """Returns counters of the service itself. Raises ServiceError."""
        deadline = time.monotonic() + TIMEOUT_S
        state: ServiceState = self._ask(wire.AskService(), ServiceState, deadline)
        return state

    def _ask(self, message: Any, kind: type, deadline: float) -> Any:
        try:
            data = self._exchange(wire.encode(message, self._version), deadline)
            answer = wire.decode(data, wire.FROM_SERVICE, self._version)
        except FrameError as error:
            raise ServiceError(f"{self.path}: {error}") from None
        if isinstance(answer, wire.Refused):
            raise ServiceError(f"{self.path}: the service closed the connection: {answer.reason}")
        if not isinstance(answer, kind):
            raise ServiceError(f"{self.path}: the service answered another question")
        return answer

    def _exchange(self, data: bytes, deadline: float) -> bytes:
        if self._socket is None:
            raise ServiceError(f"{self.path}: the connection is closed; create a new client")
        try:
            return request_reply.exchange(self._socket, data, wire.REPLY_BYTES, deadline)
        except request_reply.ClosedError:
            reason = "the service closed the connection"
        except TimeoutError:
            self.close()
            raise self._silent_error() from None
        except OSError as error:
            reason = error.strerror or str(error)
        self.close()
        raise ServiceError(f"{self.path}: {reason}")

    def _silent_error(self) -> SilentServiceError:
        reason = f"the service did not answer within {TIMEOUT_S:.0f} s; it may have stopped"
        return SilentServiceError(f"{self.path}: {reason}")
