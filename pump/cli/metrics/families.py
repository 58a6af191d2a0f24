"""Computes the metrics of `pump service metrics` for prometheus_client.

DESIGN
  The metrics are sums for each user or, on request, series for each job. Other users choose the
  number and names of their jobs and the reported GPUs, and Prometheus keeps a series for each new
  label. So a user has at most SERIES_MOST series and GPUS_MOST GPUs (the first that it reports).
  At most UNNAMED_MOST users without a name on this machine have their own series; further users
  are summed as user "other". `pump_series_omitted` counts the omitted series.

  A sum of counters must not fall when a job ends. With `keeps`, for repeated polls, a sum starts
  at zero and adds the growth between polls. Otherwise it sums the counters of one poll.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from prometheus_client import Metric

from pump.base.nvml import Identity, gpu_uuid
from pump.cli.support import live
from pump.control import ClientState
from pump.service import JobState

GPUS_MOST = 16
SERIES_MOST = 1024
UNNAMED_MOST = 64
OTHER = "other"

PLACES = ("resident", "maybe_evicted", "arriving", "leaving", "host")
JOB_LABELS = frozenset(("job", "job_pid", "job_name", "client_pid"))
"""Labels that sums omit."""
# Name, kind, meaning, in the order of the output.
METRICS = (
    ("pump_jobs", "gauge", "Running jobs of this user."),
    ("pump_job_up", "gauge", "Jobs whose pumpd responded."),
    ("pump_client_active", "gauge", "Clients that oversubscribe a device."),
    ("pump_device_total_bytes", "gauge", "Memory of the GPU."),
    ("pump_device_budget_bytes", "gauge", "Maximum memory that may be resident."),
    ("pump_device_allocated_bytes", "gauge", "Allocated converted memory."),
    ("pump_device_plain_bytes", "gauge", "Allocated memory that was not converted."),
    ("pump_device_bytes", "gauge", "Converted memory by place; maybe_evicted is part of resident."),
    (
        "pump_block_uses_total",
        "counter",
        "Blocks of 2 MiB used by executed operations, without first uses.",
    ),
    (
        "pump_block_hits_total",
        "counter",
        "Block uses that found the block on the GPU (estimate).",
    ),
    (
        "pump_block_misses_total",
        "counter",
        "Block uses that had to wait, by cause (estimate).",
    ),
    (
        "pump_time_lost_seconds",
        "gauge",
        "Time that running clients have lost to memory (estimate).",
    ),
    ("pump_time_lost_least_seconds", "gauge", "Lower bound of pump_time_lost_seconds."),
    ("pump_time_lost_most_seconds", "gauge", "Upper bound of pump_time_lost_seconds."),
    ("pump_time_followed_seconds", "gauge", "Time that pump_time_lost_seconds covers."),
    ("pump_moved_bytes_total", "counter", "Bytes that pump asked the driver to move."),
    ("pump_operations_total", "counter", "Operations that active programs issued."),
    ("pump_window_operations", "gauge", "Operations issued but not yet executed."),
    ("pump_events_dropped_total", "counter", "Events lost because a ring was full."),
    ("pump_registered_jobs", "gauge", "Jobs that the service shows to this user."),
    ("pump_registered_job_bytes", "gauge", "Memory of jobs on a GPU, by kind."),
    ("pump_registered_job_converted_bytes", "gauge", "Allocated converted memory of jobs."),
    ("pump_series_omitted", "gauge", "Series omitted because a user has too many."),
)
COUNTERS = frozenset(name for name, kind, _ in METRICS if kind == "counter")
OF_THE_CARD = frozenset(("pump_device_total_bytes",))
"""Metrics that are the same for all clients of a GPU, and are not summed."""

Labels = tuple[tuple[str, str], ...]


class Families:
    """Computes the metrics of each poll.

    per_job: series for each job instead of sums. keeps: sums of counters never fall.
    """

    def __init__(self, *, per_job: bool = False, keeps: bool = False) -> None:
        self._per_job = per_job
        self._keeps = keeps and not per_job
        self._reported: dict[str, dict[Labels, float]] = {}
        self._kept: dict[str, dict[Labels, float]] = {}
        """Sums of counters over all polls."""
        self._series: Counter[str] = Counter()
        self._omitted: Counter[str] = Counter()
        self._before: dict[tuple[str, int], ClientState] = {}
        """Clients in the last poll, by their job's socket and their process id."""
        self._begun = False
        self._gpus: dict[str, set[str]] = {}
        """First UUIDs that each user has reported, at most GPUS_MOST."""
        self._identities: Mapping[str, Identity] = {}
        self._named: dict[int, str] = {}
        """The label of each user, by number."""
        self._unnamed = 0

    def collect(self, poll: live.Poll) -> list[Metric]:
        """Returns the metrics of a poll, each with all its series. Omits metrics without series."""
        self._reported = {name: dict(self._kept.get(name, ())) for name, _, _ in METRICS}
        self._omitted.clear()
        self._series.clear()
        self._series.update(dict(labels)["user"] for kept in self._kept.values() for labels in kept)
        self._identities = poll.identities
        me = {"user": str(os.geteuid())}
        self._add("pump_jobs", me, len(poll.seen))
        for seen in poll.seen:
            job = {**me, "job_pid": str(seen.job.pid), "job_name": seen.job.name}
            self._add("pump_job_up", job, int(not seen.error))
            for client in seen.clients:
                if client.error is None:
                    self._client({**job, "client_pid": str(client.pid)}, client, seen.job.socket)
        there = {seen.job.socket for seen in poll.seen}
        self._before = {key: was for key, was in self._before.items() if key[0] in there}
        self._begun = True
        self._registered(poll.registered)
        for user, count in self._omitted.items():
            self._reported["pump_series_omitted"][("user", user),] = count
        found = []
        for name, kind, meaning in METRICS:
            metric = Metric(name.removesuffix("_total"), meaning, kind)
            for labels, value in self._reported[name].items():
                metric.add_sample(name, dict(labels), value)
            found += [metric] if metric.samples else []
        return found

    def _client(self, labels: Mapping[str, str], client: ClientState, socket: str) -> None:
        for device in client.devices:
            mine = {**labels, **self._gpu(device.uuid)}
            self._add("pump_client_active", mine, int(device.active))
            for name in ("total", "budget", "allocated", "plain"):
                value = getattr(device, f"{name}_bytes")
                self._add(f"pump_device_{name}_bytes", mine, value)
            for place in PLACES:
                value = getattr(device, f"{place}_bytes")
                self._add("pump_device_bytes", {**mine, "place": place}, value)
        before = self._before.get((socket, client.pid))
        if before is None and self._keeps and not self._begun:
            before = client  # ignore counts from before the first poll
        since = before if self._keeps else None
        self._before[socket, client.pid] = client

        def count(name: str, part: str, counter: str, **more: str) -> None:
            self._add(name, {**labels, **more}, live.grown(since, client, part, counter))

        for name in ("lost", "lost_least", "lost_most", "followed"):
            counter = "lost_of_ns" if name == "followed" else f"{name}_ns"
            value = client.worker.get(counter, 0) / 1e9
            self._add(f"pump_time_{name}_seconds", labels, value)
        count("pump_block_uses_total", "worker", "blocks_used", policy=client.policy)
        count("pump_block_hits_total", "worker", "blocks_hit", policy=client.policy)
        for cause in ("late", "unseen", "no_room", "policy"):
            more = {"policy": client.policy, "cause": cause}
            count("pump_block_misses_total", "worker", f"miss_{cause}", **more)
        for direction in ("to_gpu", "to_host"):
            moved = f"moved_{direction}_bytes"
            count("pump_moved_bytes_total", "shim", moved, direction=direction)
        count("pump_operations_total", "shim", "operations")
        self._add("pump_window_operations", labels, client.worker.get("window_depth", 0))
        count("pump_events_dropped_total", "shim", "events_dropped")

    def _registered(self, jobs: Sequence[JobState]) -> None:
        for job in jobs:
            mine = {"user": self._name(job.user)}
            self._add("pump_registered_jobs", mine, 1)
            mine |= {"job": str(job.number), "job_pid": str(job.job_pid), "job_name": job.name}
            self._add("pump_registered_job_converted_bytes", mine, job.converted_bytes)
            for gpu in job.gpus:
                for kind in ("granted", "adopted", "resident", "wanted"):
                    place = {**mine, **self._gpu(gpu.gpu), "kind": kind}
                    value = getattr(gpu, f"{kind}_bytes")
                    self._add("pump_registered_job_bytes", place, value)

    def _gpu(self, uuid: str) -> dict[str, str]:
        """Returns the labels of the GPU with this plain UUID."""
        number, minor, model = self._identities.get(uuid, Identity(None, None, ""))
        return {
            **({} if number is None else {"gpu": str(number)}),
            "UUID": gpu_uuid(uuid),
            **({} if minor is None else {"device": f"nvidia{minor}"}),
            **({"modelName": model} if model else {}),
        }

    def _add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Adds a value to the series of these labels."""
        user = labels["user"]
        if not self._has_room_for(user, labels.get("UUID", "")):
            self._omitted[user] += 1
            return
        key = tuple(one for one in labels.items() if self._per_job or one[0] not in JOB_LABELS)
        reported = self._reported[name]
        if key not in reported:
            if self._series[user] >= SERIES_MOST:
                self._omitted[user] += 1
                return
            self._series[user] += 1
        before = reported.get(key, 0)
        reported[key] = max(before, value) if name in OF_THE_CARD else before + value
        if self._keeps and name in COUNTERS:
            self._kept.setdefault(name, {})[key] = reported[key]

    def _has_room_for(self, user: str, gpu: str) -> bool:
        known = self._gpus.setdefault(user, set())
        if gpu and len(known) < GPUS_MOST:
            known.add(gpu)
        return not gpu or gpu in known

    def _name(self, user: int) -> str:
        """Returns a user's number; "other" beyond UNNAMED_MOST users without a name here."""
        if user not in self._named:
            import pwd

            try:
                pwd.getpwuid(user)
            except KeyError:
                if self._unnamed >= UNNAMED_MOST:
                    return OTHER
                self._unnamed += 1
            self._named[user] = str(user)
        return self._named[user]
