"""pump jobs, top and metrics on live jobs, compared with the virtual driver's own counters."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from places import ROOT
from prometheus_client.parser import text_string_to_metric_families
from watched_jobs import BIN, TIMEOUT_S, Jobs

from pump.cli.metrics.families import METRICS

BLOCK = 2 << 20
MIB = 1 << 20


def eventually(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {what}"
        time.sleep(0.2)
    return found


def settled(jobs: Jobs) -> dict[str, Any]:
    """Returns top's JSON once no transfer is in flight."""

    def still() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(jobs.pump("top", "--once", "--json"))
        clients = [client for job in found["jobs"] for client in job["clients"]]
        moving = sum(
            d["arriving_bytes"] + d["leaving_bytes"] for c in clients for d in c["devices"]
        )
        moved = sum(client["rates"]["to_gpu_bytes_per_s"] for client in clients)
        return found if clients and not moving and not moved else None

    return eventually(still, "everything to come to rest")


def near(told: float, counted: float) -> bool:
    """Returns whether the values differ by at most 5 %, or by one block."""
    return abs(told - counted) <= max(0.05 * counted, BLOCK)


def test_top_tells_what_the_virtual_driver_counts_within_five_percent(jobs: Jobs) -> None:
    reports = {"small": jobs.start("small", 4), "large": jobs.start("large", 12)}
    found = settled(jobs)
    told = {job["name"]: job["clients"][0] for job in found["jobs"]}
    assert set(told) == {"small", "large"}
    jobs.end()
    for name, report in reports.items():
        driver = json.loads(report.read_text())
        counters, shim = driver["counters"], told[name]["shim"]
        moved = shim["moved_to_gpu_bytes"] + shim["populate_bytes"]
        assert near(moved, counters["prefetch_in_blocks"] * BLOCK), name
        assert near(shim["moved_to_host_bytes"], counters["prefetch_out_blocks"] * BLOCK), name
        (device,) = told[name]["devices"]
        assert device["total_bytes"] == driver["memory_bytes"]
        assert near(device["allocated_bytes"], counters["populated_bytes"])
        assert device["resident_bytes"] <= device["budget_bytes"] + 32 * MIB
    assert not told["small"]["devices"][0]["active"]
    assert told["large"]["devices"][0]["active"]
    # Operations before the memory outgrew the budget were not reported.
    assert 120 - 12 <= told["large"]["shim"]["operations"] <= driver["operations"] == 120


@pytest.mark.parametrize("buffers", [4, 12])
def test_residency_is_the_cards_own_or_in_doubt(jobs: Jobs, buffers: int) -> None:
    """A process that joins the GPU reports the memory of all processes on it at that moment."""
    card = ["--virtual-set", "memory=256MiB", "--virtual-set", "shared=eyes"]
    jobs.environ["PUMP_VIRTUAL_CARDS"] = str(jobs.folder)
    jobs.start("worker", buffers, *card[2:])
    (device,) = settled(jobs)["jobs"][0]["clients"][0]["devices"]
    report = jobs.folder / "looker.json"
    joins = "from cuda.bindings import driver; assert int(driver.cuInit(0)[0]) == 0"
    subprocess.run(
        [BIN / "pump-run", "--virtual", "a100-pcie4", *card, sys.executable, "-c", joins],
        env={**jobs.environ, "PUMP_DISABLE": "1", "PUMP_VIRTUAL_REPORT": str(report)},
        check=True,
        timeout=TIMEOUT_S,
    )
    found = json.loads(report.read_text())["card"]
    assert found["processes"] == 2 and found["check"] == 0
    there = device["resident_bytes"] + device["host_bytes"]
    assert there == device["allocated_bytes"] == found["counters"]["populated_bytes"]
    if not device["active"]:
        assert device["resident_bytes"] == found["resident_bytes"] == buffers * 32 * MIB
    sure = device["resident_bytes"] - device["maybe_evicted_bytes"]
    assert sure <= found["resident_bytes"] * 1.05


def test_people_see_jobs_gpus_and_causes(jobs: Jobs) -> None:
    assert jobs.pump("jobs") == "No jobs are running under pump.\n"
    jobs.start("large", 12)
    settled(jobs)
    listed = jobs.pump("jobs").splitlines()
    assert re.match(rf" *{jobs.running[0].pid} \w+ +large +- \d+:\d\d:\d\d +1 planned", listed[1])
    shown = jobs.pump("top", "--once")
    assert re.search(
        r"^GPU 0  NVIDIA A100-PCIE-40GB \(pump virtual\)  GPU-70756d70-2d76(-\w{4}){2}-\w{12}\n"
        r" +\[#+\.*\] .* of 256\.0 MiB resident, budgets 248\.0 MiB",
        shown,
        re.M,
    )
    assert re.search(
        rf"^ +{jobs.running[0].pid} \w+ +large +- \S+ +0 planned +active ", shown, re.M
    )
    found = json.loads(jobs.pump("jobs", "--json"))
    assert [job["name"] for job in found["jobs"]] == ["large"]


def test_a_running_job_is_reported_by_name_if_it_is_being_recorded(jobs: Jobs) -> None:
    jobs.start("recorded", 12, "--record", str(jobs.folder / "r.pump"))
    jobs.start("other", 12)

    def reported() -> dict[str, Any] | None:
        done = jobs.run("report", "--json", "recorded")
        found: dict[str, Any] | None = json.loads(done.stdout) if done.stdout else None
        return found if found and found["sampled"] else None

    found = eventually(reported, "samples in the recording")
    assert found["state"] == "being recorded"
    assert found["file"] == str(jobs.folder / "r.pump")
    done = jobs.run("report", "other")
    assert done.returncode == 2
    assert f"job {jobs.running[1].pid} is not being recorded" in done.stderr


def test_a_job_that_ends_while_it_is_watched_is_no_error(jobs: Jobs) -> None:
    jobs.start("large", 12)
    watcher = subprocess.Popen(
        [BIN / "pump", "top", "--json", "--interval", "0.2"],
        env=jobs.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watcher.stdout is not None
        first = json.loads(watcher.stdout.readline())
        assert [job["name"] for job in first["jobs"]] == ["large"]
        jobs.end()
        last = first
        deadline = time.monotonic() + TIMEOUT_S
        while last["jobs"]:
            assert time.monotonic() < deadline
            last = json.loads(watcher.stdout.readline())
    finally:
        watcher.kill()
        watcher.wait(TIMEOUT_S)


# ---- metrics ----

NONE = {("pump_jobs", f'user="{os.geteuid()}"'): 0}


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Returns values by name and labels; asserts that the text has Prometheus's format."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[sample.name, labels] = sample.value
    return found


def test_metrics_are_tops_figures_in_prometheus_format(jobs: Jobs) -> None:
    jobs.start('la"r\\ge', 12)
    told = settled(jobs)["jobs"][0]["clients"][0]
    sums = parsed(jobs.pump("service", "metrics"))
    found = parsed(jobs.pump("service", "metrics", "--per-job"))
    of_jobs = {name for name, _, _ in METRICS if not name.startswith("pump_registered_")}
    for one in (sums, found):
        assert {name for name, _ in one} == of_jobs - {"pump_series_omitted"}, "no service"
    of_one = [labels for name, labels in found if name != "pump_jobs"]
    assert all('job_name="la"r\\ge"' in labels for labels in of_one)
    assert not any("job" in labels or "pid" in labels for _, labels in sums)
    of_gpus = [labels for one in (sums, found) for _, labels in one if "UUID=" in labels]
    model = 'modelName="NVIDIA A100-PCIE-40GB (pump virtual)"'
    assert of_gpus and all(one.startswith('UUID="GPU-70756d70-2d76-') for one in of_gpus)
    assert all(',gpu="0",' in one for one in of_gpus)
    assert all(model in one for one in of_gpus)

    def value(name: str, part: str = "") -> int:
        for one in (sums, found):
            (only,) = (v for (n, labels), v in one.items() if n == name and part in labels)
        return only

    assert value("pump_jobs") == 1
    assert value("pump_device_bytes", 'place="resident"') == told["devices"][0]["resident_bytes"]
    assert value("pump_moved_bytes_total", "to_gpu") == told["shim"]["moved_to_gpu_bytes"]
    misses = sum(v for (n, _), v in found.items() if n == "pump_block_misses_total")
    uses, hits = value("pump_block_uses_total"), value("pump_block_hits_total")
    assert uses == hits + misses > 0


def test_a_unix_socket_answers_http_for_its_user_alone(jobs: Jobs) -> None:
    path = jobs.folder / "metrics"
    command = [BIN / "pump", "service", "metrics", "--socket", path]
    server = subprocess.Popen(command, env=jobs.environ, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr
        assert server.stderr.readline() == f"pump: listening at {path}; Ctrl-C stops\n"
        eventually(path.exists, "the socket")
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(TIMEOUT_S)
            peer.connect(str(path))
            peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: peer.recv(65536), b""))
        assert answer.split()[1] == b"200"
        assert parsed(answer.partition(b"\r\n\r\n")[2].decode()) == NONE
    finally:
        server.terminate()
        server.wait(TIMEOUT_S)


def test_a_textfile_is_written_whole_and_one_that_cannot_be_is_told(jobs: Jobs) -> None:
    path = jobs.folder / "pump.prom"
    command = [BIN / "pump", "service", "metrics", "--textfile", path]
    writer = subprocess.Popen(command, env=jobs.environ, stderr=subprocess.PIPE, text=True)
    try:
        assert writer.stderr
        assert writer.stderr.readline() == f"pump: writing {path} every 15 s; Ctrl-C stops\n"
        assert parsed(path.read_text()) == NONE
    finally:
        writer.terminate()
        writer.wait(TIMEOUT_S)
    pipe = jobs.folder / "pipe"  # like /dev/null, which root could replace
    os.mkfifo(pipe)
    for refused, why in (
        (jobs.folder / "no" / "x", "the folder"),
        (pipe, "it is not a regular file"),
    ):
        done = jobs.run("service", "metrics", "--textfile", str(refused))
        assert done.returncode == 2
        assert f"--textfile: cannot write to {refused}: {why}" in done.stderr
    assert pipe.is_fifo()


def test_the_dashboard_asks_only_for_what_there_is() -> None:
    board = json.loads((ROOT / "packaging" / "grafana" / "pump.json").read_text())
    known = {name for name, _, _ in METRICS}
    asked = set()
    for panel in board["panels"]:
        assert panel["type"] == "timeseries" and panel["title"] and panel["targets"]
        for target in panel["targets"]:
            names = set(re.findall(r"\bpump_\w+", target["expr"]))
            assert names and names <= known, target["expr"]
            assert target["expr"].count("(") == target["expr"].count(")")
            asked |= names
            estimated = names & {"pump_block_hits_total", "pump_block_misses_total"}
            assert bool(estimated) == ("estimated" in panel["title"])
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert {"pump_device_bytes", "pump_block_misses_total", "pump_moved_bytes_total"} <= asked
