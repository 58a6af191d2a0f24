"""Jobs that only the service reports: in pump jobs, pump top and pump service metrics."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import MIB, Played, Service, closing, until

from pump.cli.metrics.families import Families
from pump.cli.support import listed, live, registered
from pump.cli.top import overview
from pump.report.words import size

BIN = Path(sys.executable).parent


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, "--beat", "5", "--settle", "0.05")
    yield made
    made.kill()


def pump(folder: Path, service: Path | str, *words: str) -> str:
    done = subprocess.run(
        [str(BIN / "pump"), *words],
        env={**os.environ, "PUMP_SERVICE": str(service), "XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_jobs_of_others_stand_under_a_heading_of_their_own(
    service: Service, tmp_path: Path
) -> None:
    with closing(Played(service, wanted_mib=300, name="theirs", job_pid=77, priority=4)) as (job,):
        job.report()
        until(lambda: job.granted, "a lease", job)
        columns, *_, row = pump(tmp_path, service.socket, "jobs").splitlines()
        assert tuple(columns.split()) == listed.COLUMNS
        cells = row.split()
        assert re.fullmatch(r"0:00:\d\d", cells.pop(4))
        assert cells == [
            *("77", listed.user(os.geteuid()), "theirs", "4", "1", "-"),
            *size(300 * MIB).split(),
            *size(job.granted or 0).split(),
            *size(300 * MIB).split(),
        ]
        (other,) = json.loads(pump(tmp_path, service.socket, "jobs", "--json"))["others"]
        assert (other["name"], other["gpus"][0]["granted_bytes"]) == ("theirs", job.granted)
        uuid = other["gpus"][0]["gpu"]
        assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
        shown = pump(tmp_path, service.socket, "top", "--once").splitlines()
        (at,) = (n for n, line in enumerate(shown) if re.match(r" *77 \w+ +theirs +4 ", line))
        assert shown[at - 2] == overview.OTHERS
        told = pump(tmp_path, service.socket, "service", "metrics")
        assert f'pump_registered_jobs{{user="{os.geteuid()}"}} 1.0\n' in told
        (granted,) = re.findall(r'kind="granted".* ([\d.e+]+)\n', told)
        assert float(granted) == job.granted


def test_ones_own_jobs_are_not_told_twice(service: Service, tmp_path: Path) -> None:
    mine = str(tmp_path / "mine")
    with (
        closing(Played(service, socket=mine), Played(service, name="other")),
        service.ask() as asked,
    ):
        (left,) = registered.others(asked.jobs(), [mine])
        assert left.name == "other"


def test_without_a_service_nothing_is_said_of_others(tmp_path: Path) -> None:
    assert not re.search(r" -?\d+ +\d+:\d\d:\d\d ", pump(tmp_path, "none", "jobs")), "a priority"
    assert json.loads(pump(tmp_path, tmp_path / "nobody", "jobs", "--json"))["others"] == []
    assert "pump_registered" not in pump(tmp_path, "none", "service", "metrics")


def test_a_service_that_goes_and_comes_back_is_found_again(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMP_SERVICE", str(service.socket))
    monkeypatch.setattr(registered, "RETRY_S", 0.0)
    asks = registered.Registered()
    with closing(Played(service, name="here")):
        assert [job.name for job in asks.jobs()] == ["here"]
    service.kill()
    assert asks.jobs() == []
    service.start()
    with closing(Played(service, name="again")):
        assert [job.name for job in asks.jobs()] == ["again"]
        found = Families(per_job=True).collect(live.Poll(0.0, [], asks.jobs()))
        assert {sample.labels.get("job_name") for one in found for sample in one.samples} == {
            *(None, "again"),
        }
    asks.close()
