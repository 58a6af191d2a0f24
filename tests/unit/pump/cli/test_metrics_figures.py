"""The text of pump service metrics: sums, series for each job, and limits on users' series."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from dataclasses import fields

import pytest
from places import ROOT
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pump.base.nvml import Identity
from pump.cli.jobs import Job
from pump.cli.metrics.families import GPUS_MOST, METRICS, OTHER, SERIES_MOST, UNNAMED_MOST, Families
from pump.cli.support import live
from pump.control import ClientState, DeviceState
from pump.service import JobState
from pump.wire.service import GpuLease

ME = os.geteuid()
GPU = "ab" * 16
UUID = "GPU-abababab-abab-abab-abab-abababababab"
N_DEVICE = len(fields(DeviceState))
N_LEASE = len(GpuLease.__struct_fields__) - 2


def registered(number: int, user: int, *gpus: str, name: str = "job", held: int = 7) -> JobState:
    leases = tuple(GpuLease(gpu, *(held,) * N_LEASE, waits=False) for gpu in gpus)
    return JobState(number, user, 1, number, name, 0, "", 1, 0, 0, held, leases)


def own(pid: int, *, operations: int, used: int = 0, ticks: int = 100) -> live.Seen:
    """Returns a job with one client on one GPU, and these counters."""
    device = DeviceState(0, GPU, 1000, 0, 10, False, True, *(pid,) * (N_DEVICE - 7))
    worker = {"blocks_used": used, "blocks_hit": used, "ticks": ticks}
    worker |= {"lost_ns": pid * 10**8, "lost_of_ns": pid * 10**9}
    client = ClientState(pid, None, "window", (device,), {"operations": operations}, worker)
    return live.Seen(Job(pid, f"/run/{pid}", f"job-{pid}", "train"), [client], "")


def parsed(families: Families, poll: live.Poll) -> dict[tuple[str, str], float]:
    """Returns values by name and labels, as Prometheus's own parser reads them."""

    class Told(Collector):
        def collect(self) -> list[Metric]:
            return families.collect(poll)

    found = {}
    for family in text_string_to_metric_families(generate_latest(Told()).decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            assert (sample.name, labels) not in found
            found[sample.name, labels] = sample.value
    return found


def poll(*seen: live.Seen, others: Sequence[JobState] = ()) -> live.Poll:
    return live.Poll(0.0, list(seen), others)


def test_sums_are_those_of_all_jobs_of_a_user_and_name_no_job() -> None:
    others = [registered(n, user, GPU, held=10 * n) for n, user in ((1, 7), (2, 7), (3, 8))]
    seen = [own(5, operations=100), own(6, operations=11)]
    found = parsed(Families(), poll(*seen, others=others))
    mine = f'UUID="{UUID}",user="{ME}"'
    assert found["pump_operations_total", f'user="{ME}"'] == 111
    assert found["pump_device_budget_bytes", mine] == 20
    assert found["pump_time_lost_seconds", f'user="{ME}"'] == pytest.approx(1.1)
    assert found["pump_time_followed_seconds", f'user="{ME}"'] == 11
    assert found["pump_device_total_bytes", mine] == 1000, "two clients of one card"
    assert found["pump_client_active", mine] == 2
    assert found["pump_job_up", f'user="{ME}"'] == 2
    for user, jobs, held in ((7, 2, 30), (8, 1, 30)):
        assert found["pump_registered_jobs", f'user="{user}"'] == jobs
        assert found["pump_registered_job_converted_bytes", f'user="{user}"'] == held
        place = f'UUID="{UUID}",kind="granted",user="{user}"'
        assert found["pump_registered_job_bytes", place] == held
    assert not [labels for _, labels in found if "job" in labels or "pid" in labels]


def test_a_gpus_labels_are_those_of_the_dcgm_exporter() -> None:
    """The UUID joins each series with NVIDIA's for the same card."""
    dcgm = {'gpu="3"', f'UUID="{UUID}"', 'device="nvidia4"', 'modelName="NVIDIA H100"'}
    known = poll(own(5, operations=1), others=[registered(1, 7, GPU)])
    known = known._replace(identities={GPU: Identity(3, 4, "NVIDIA H100")})
    for per_job in (False, True):
        found = parsed(Families(per_job=per_job), known)
        of_gpus = [labels for _, labels in found if "UUID=" in labels]
        assert of_gpus and all(dcgm < set(labels.split(",")) for labels in of_gpus)
        names = {name for name, labels in found if "UUID=" in labels}
        assert names == {
            *("pump_client_active", "pump_device_bytes", "pump_registered_job_bytes"),
            *(f"pump_device_{kind}_bytes" for kind in ("total", "budget", "allocated", "plain")),
        }
    some = known._replace(identities={GPU: Identity(None, None, 'a"b')})
    labels = {labels for _, labels in parsed(Families(), some) if "UUID=" in labels}
    assert all({f'UUID="{UUID}"', 'modelName="a"b"'} < set(one.split(",")) for one in labels)


def test_the_documented_query_asks_for_labels_and_metrics_that_there_are() -> None:
    page = (ROOT / "docs" / "guides" / "administrators.md").read_text(encoding="utf-8")
    (query,) = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
    assert set(re.findall(r"\bpump_\w+", query)) <= {name for name, _, _ in METRICS}
    assert re.findall(r"(?:by|on) \((\w+)\)", query) == ["UUID", "UUID"]


def test_each_job_has_series_on_request_with_labels_escaped() -> None:
    evil = 'a"} 1\n# HELP x\\'
    others = [registered(1, 7, GPU, name=evil), registered(2, 7, GPU)]
    found = parsed(Families(per_job=True), poll(own(5, operations=100), others=others))
    (one,) = (labels for name, labels in found if name == "pump_operations_total")
    assert one == f'client_pid="5",job_name="job-5",job_pid="5",user="{ME}"'
    leases = [labels for name, labels in found if name == "pump_registered_job_converted_bytes"]
    assert len(leases) == 2
    assert f'job_name="{evil}"' in leases[0]


@pytest.mark.parametrize("per_job", [False, True])
def test_a_user_makes_only_so_many_series_and_costs_others_none(per_job: bool) -> None:
    """The user floods with jobs and with unknown GPUs, at once and one after another."""
    source = random.Random(5)
    tells = Families(per_job=per_job, keeps=True)
    honest = registered(10**6, 8, GPU, held=9)
    named: set[str] = set()
    for turn in range(20):
        flood = [
            registered(
                1000 * turn + n,
                7,
                *(f"{source.getrandbits(128):032x}" for _ in range(8)),
                name=f"{turn}-{n}",
            )
            for n in range(300)
        ]
        found = parsed(tells, poll(others=[*flood, honest]))
        mine = [labels for _, labels in found if 'user="7"' in labels]
        assert len(mine) <= SERIES_MOST + 1
        named |= {gpu for labels in mine for gpu in re.findall(r'UUID="([\w-]+)"', labels)}
        assert found["pump_series_omitted", 'user="7"'] > 300
        assert ("pump_series_omitted", 'user="8"') not in found
        (lease,) = (
            value
            for (name, labels), value in found.items()
            if name == "pump_registered_job_bytes" and 'user="8"' in labels and "granted" in labels
        )
        assert lease == 9
        assert found["pump_registered_jobs", 'user="7"'] == 300, "all are counted"
    assert len(named) <= GPUS_MOST, "for as long as it runs"


def test_users_without_a_name_are_told_apart_up_to_a_bound() -> None:
    tells = Families()
    first = 1 << 30
    many = [registered(n, first + n, GPU, held=1) for n in range(1000)]
    for _ in range(2):
        found = parsed(tells, poll(others=[*many, registered(10**6, 0, GPU)]))
        users = {labels for name, labels in found if name == "pump_registered_jobs"}
        assert len(users) == UNNAMED_MOST + 2 and 'user="0"' in users
        left = found["pump_registered_job_converted_bytes", f'user="{OTHER}"']
        assert left == 1000 - UNNAMED_MOST


def test_sums_of_counters_never_fall_and_begin_at_zero() -> None:
    """Prometheus takes a drop for a restart, and counts the remaining value as growth."""
    tells = Families(keeps=True)
    steps: list[tuple[list[live.Seen], int]] = [
        ([own(5, operations=100), own(6, operations=50)], 0),
        ([own(5, operations=130), own(6, operations=50)], 30),
        ([own(5, operations=130)], 30),  # one job has ended
        ([own(5, operations=131), own(7, operations=9)], 40),  # one job has begun
        ([], 40),
        ([own(8, operations=2)], 42),
    ]
    for seen, total in steps:
        found = parsed(tells, poll(*seen))
        assert found["pump_operations_total", f'user="{ME}"'] == total
    assert (
        parsed(Families(), poll(own(5, operations=100)))["pump_operations_total", f'user="{ME}"']
        == 100
    ), "one poll alone tells what there is"


def test_a_worker_that_was_replaced_is_added_and_its_clients_counters_are_not() -> None:
    tells = Families(keeps=True)
    tells.collect(poll(own(5, operations=100, used=40)))
    tells.collect(poll(own(5, operations=110, used=50)))
    found = parsed(tells, poll(own(5, operations=112, used=3, ticks=1)))
    assert found["pump_operations_total", f'user="{ME}"'] == 12, "the shim's own go on"
    assert found["pump_block_uses_total", f'policy="window",user="{ME}"'] == 13


def test_a_job_that_does_not_answer_once_is_not_added_again() -> None:
    tells = Families(keeps=True)
    tells.collect(poll(own(5, operations=100)))
    silent = live.Seen(own(5, operations=0).job, [], "timed out")
    found = parsed(tells, poll(silent))
    assert found["pump_job_up", f'user="{ME}"'] == 0
    found = parsed(tells, poll(own(5, operations=104)))
    assert found["pump_operations_total", f'user="{ME}"'] == 4
