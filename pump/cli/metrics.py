"""pump metrics: figures for Prometheus: of this user's jobs, and of all that the system
service tells it of.

Printed once, written to a textfile for the node exporter again and again, or answered over
HTTP at a unix socket; at a TCP port only where one is named, because whoever reaches that
reads them. Counters are the shim's and the worker's own. Bytes by place, hits and misses are
what the worker believes; hits and misses say that they are estimates.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pump.cli import live
from pump.cli.lines import BadInputError, checked
from pump.config import service_checks
from pump.control import ClientState
from pump.service import JobState

HELP = "figures of the running jobs for Prometheus: textfile, unix socket, TCP"

INTERVAL_S = 15.0
LEAST_AGE_S = 1.0
"""A look serves all who ask within that time, so that asking cannot keep jobs busy."""
REQUEST_S = 5.0
"""That a peer has to ask over HTTP, and to take the answer."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PLACES = ("resident", "doubted", "arriving", "leaving", "host")
# Name, kind, meaning, in the order in which they are told.
METRICS = (
    ("pump_jobs", "gauge", "Running jobs of this user."),
    ("pump_job_up", "gauge", "Whether a job's pumpd answered."),
    ("pump_client_active", "gauge", "Whether a client oversubscribes a device."),
    ("pump_device_total_bytes", "gauge", "Memory of the card."),
    ("pump_device_budget_bytes", "gauge", "What may be resident."),
    ("pump_device_allocated_bytes", "gauge", "Live converted memory."),
    ("pump_device_plain_bytes", "gauge", "Live memory that was not converted."),
    ("pump_device_bytes", "gauge", "Converted memory by place; doubted is part of resident."),
    (
        "pump_block_uses_total",
        "counter",
        "Blocks of 2 MiB used by executed operations, but for the first time.",
    ),
    (
        "pump_block_hits_total",
        "counter",
        "Of these, those that found their block on the GPU: an estimate.",
    ),
    (
        "pump_block_misses_total",
        "counter",
        "Of these, those that had to wait, by cause: an estimate.",
    ),
    ("pump_moved_bytes_total", "counter", "Bytes that pump asked the driver to move."),
    ("pump_operations_total", "counter", "Operations that the program issued while active."),
    ("pump_window_operations", "gauge", "Operations issued and not yet executed."),
    ("pump_events_dropped_total", "counter", "Events lost because a ring was full."),
    ("pump_registered_jobs", "gauge", "Jobs that the system service tells this user of."),
    ("pump_registered_job_bytes", "gauge", "What the service knows of a job on a GPU, by kind."),
    ("pump_registered_job_converted_bytes", "gauge", "Live converted memory of a job."),
)


def options(parser: argparse.ArgumentParser) -> None:
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--textfile", metavar="FILE", help="rewrite FILE again and again")
    way.add_argument(
        "--socket",
        metavar="PATH",
        type=checked(lambda text: service_checks.socket(os.path.abspath(text))),
        help="answer HTTP at a unix socket, for this user only",
    )
    way.add_argument(
        "--tcp",
        metavar="HOST:PORT",
        type=checked(service_checks.address),
        help="answer HTTP at an address: whoever reaches it reads the figures",
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=float,
        default=INTERVAL_S,
        help=f"seconds between two writings of the textfile (default: {INTERVAL_S:g})",
    )


def run(asked: argparse.Namespace) -> int:
    if not 1 <= asked.interval <= 3600:
        raise BadInputError(f"--interval is {asked.interval:g}; write seconds from 1 to 3600")
    watch = live.Watch()
    with contextlib.suppress(KeyboardInterrupt):
        if asked.textfile:
            _write_for_ever(watch, asked.textfile, asked.interval)
        elif asked.socket or asked.tcp:
            _serve(watch, asked.socket, asked.tcp)
        else:
            sys.stdout.write(text(watch.look()))
    watch.close()
    return 0


def _write_for_ever(watch: live.Watch, path: str, interval_s: float) -> None:
    while True:
        write(path, text(watch.look()))
        time.sleep(interval_s)


def write(path: str, content: str) -> None:
    """Put `content` into the file at once, never a part of it. Raises BadInputError."""
    part = f"{path}.{os.getpid()}.part"
    if os.path.lexists(path) and not os.path.isfile(os.path.realpath(path)):
        raise BadInputError(f"--textfile: cannot write to {path}: not a regular file")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise BadInputError(f"--textfile: cannot write to {path}: {error.strerror}") from None


# ---- the text ----


def text(look: live.Look) -> str:
    """A look in Prometheus's text format."""
    told: dict[str, list[str]] = {name: [] for name, _, _ in METRICS}
    told["pump_jobs"].append(f"pump_jobs {len(look.seen)}")
    for seen in look.seen:
        job = {"job_pid": str(seen.job.pid), "job_name": seen.job.name}
        _tell(told, "pump_job_up", job, int(not seen.error))
        for client in seen.clients:
            if client.error is None:
                _client(told, {**job, "client_pid": str(client.pid)}, client)
    _registered(told, look.registered)
    lines = []
    for name, kind, meaning in METRICS:
        if told[name]:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *told[name]]
    return "\n".join(lines) + "\n"


def _client(told: dict[str, list[str]], labels: dict[str, str], client: ClientState) -> None:
    for device in client.devices:
        mine = {**labels, "gpu": device.uuid, "device": str(device.index)}
        _tell(told, "pump_client_active", mine, int(device.active))
        for name in ("total", "budget", "allocated", "plain"):
            _tell(told, f"pump_device_{name}_bytes", mine, getattr(device, f"{name}_bytes"))
        for place in PLACES:
            value = getattr(device, f"{place}_bytes")
            _tell(told, "pump_device_bytes", {**mine, "place": place}, value)
    worker, shim = client.worker, client.shim
    mine = {**labels, "policy": client.policy}
    _tell(told, "pump_block_uses_total", mine, worker.get("blocks_used", 0))
    _tell(told, "pump_block_hits_total", mine, worker.get("blocks_hit", 0))
    for cause in ("late", "unseen", "no_room", "policy"):
        value = worker.get(f"miss_{cause}", 0)
        _tell(told, "pump_block_misses_total", {**mine, "cause": cause}, value)
    for direction in ("to_gpu", "to_host"):
        value = shim.get(f"moved_{direction}_bytes", 0)
        _tell(told, "pump_moved_bytes_total", {**labels, "direction": direction}, value)
    _tell(told, "pump_operations_total", labels, shim.get("operations", 0))
    _tell(told, "pump_window_operations", labels, worker.get("window_depth", 0))
    _tell(told, "pump_events_dropped_total", labels, shim.get("events_dropped", 0))


def _registered(told: dict[str, list[str]], jobs: Sequence[JobState]) -> None:
    if jobs:
        told["pump_registered_jobs"].append(f"pump_registered_jobs {len(jobs)}")
    for job in jobs:
        labels = {"user": str(job.user), "job_pid": str(job.job_pid), "job_name": job.name}
        mine = {"job": str(job.number), **labels}
        _tell(told, "pump_registered_job_converted_bytes", mine, job.converted_bytes)
        for gpu in job.gpus:
            for kind in ("granted", "adopted", "resident", "wanted"):
                place = {**mine, "gpu": gpu.gpu, "kind": kind}
                value = getattr(gpu, f"{kind}_bytes")
                _tell(told, "pump_registered_job_bytes", place, value)


def _tell(told: dict[str, list[str]], name: str, labels: dict[str, str], value: int) -> None:
    words = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
    told[name].append(f"{name}{{{words}}} {value}")


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# ---- over HTTP ----


def _serve(watch: live.Watch, path: str | None, address: str | None) -> None:
    server = make_server(watch, path, address)
    try:
        with _removed(path):
            server.serve_forever()
    finally:
        server.server_close()


@contextlib.contextmanager
def _removed(path: str | None) -> Iterator[None]:
    try:
        yield
    finally:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)


def make_server(watch: live.Watch, path: str | None, address: str | None) -> Any:
    """A server (socketserver) that answers GET /metrics, one request at a time. Its peer has
    REQUEST_S to ask, and as much to take the answer. Raises BadInputError where it cannot
    listen."""
    from http.server import BaseHTTPRequestHandler
    from socketserver import TCPServer

    latest = [(0.0, "")]

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            super().setup()
            self._end = _hang_up_later(self.connection)

        def finish(self) -> None:
            self._end.cancel()
            super().finish()

        def do_GET(self) -> None:
            self._end.cancel()
            if self.path.partition("?")[0] not in ("/", "/metrics"):
                self.send_error(404)
                return
            now = time.monotonic()
            if not latest[0][1] or now - latest[0][0] > LEAST_AGE_S:
                latest[0] = now, text(watch.look())
            body = latest[0][1].encode()
            self._end = _hang_up_later(self.connection)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "peer"

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    class Server(TCPServer):
        allow_reuse_address = True

        def handle_error(self, *_: object) -> None:
            """A peer that breaks off is its own business."""

    server = Server(("", 0), Handler, bind_and_activate=False)
    server.socket.close()
    try:
        server.socket = _listener(path, address)
    except OSError as error:
        raise BadInputError(f"cannot listen at {path or address}: {error.strerror}") from None
    return server


def _hang_up_later(connection: socket.socket) -> threading.Timer:
    """After REQUEST_S; a socket's own timeout would begin anew with every byte."""

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(REQUEST_S, hang_up)
    timer.daemon = True
    timer.start()
    return timer


def _listener(path: str | None, address: str | None) -> socket.socket:
    if path is None:
        host, _, port = (address or "").rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        return socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            _clear(path)
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    return listener


def _clear(path: str) -> None:
    """Removes a socket that nobody listens on any more, and nothing else."""
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(REQUEST_S)
            probe.connect(path)
        return  # somebody answers: bind says so
    import stat

    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
