"""packaging/: what can be checked of it without a cluster. Scripts run; the rest has its shape."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from service_client import Service
from supervisor_client import eventually

from pump.service import ServiceError
from pumpd.main import _parser

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip install pyyaml)")

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SCRIPTS = sorted(PACKAGING.rglob("*.sh"))


def run(script: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUMP_")}
    return subprocess.run(
        [str(script), *words],
        env={**kept, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound_for_every_shell(script: Path) -> None:
    for shell in ("sh", "bash"):
        if shutil.which(shell):
            subprocess.run([shell, "-n", str(script)], check=True, timeout=20)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(script)], check=True, timeout=60)
    assert os.access(script, os.X_OK)


def test_the_readme_names_every_file() -> None:
    there = {
        path.relative_to(PACKAGING).as_posix()
        for path in PACKAGING.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert there == set(re.findall(r"^\| `([^`]+)`", (PACKAGING / "README.md").read_text(), re.M))


def test_the_task_prolog_names_jobs_and_leaves_a_users_name() -> None:
    script = PACKAGING / "slurm" / "task-prolog.sh"
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}
    assert run(script, **slurm).stdout == "export PUMP_NAME=slurm-77.0.3\n"
    assert run(script, **slurm, PUMP_NAME="mine").stdout == ""
    outside = run(script)
    assert (outside.returncode, outside.stdout) == (0, "")


@pytest.fixture
def stand_ins(tmp_path: Path) -> str:
    """A folder with a pump-run that tells how it was started."""
    program = tmp_path / "pump-run"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_mpi_ranks_are_jobs_with_their_numbers(stand_ins: str) -> None:
    script = PACKAGING / "launch" / "mpi.sh"
    for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        told = run(script, "./solver", "a b", PATH=stand_ins, **{variable: "5"})
        assert told.stdout.splitlines() == ["--name", "rank-5", "--", "./solver", "a b"]
    more = run(script, "./solver", PATH=stand_ins, PUMP_RUN_OPTIONS="--budget 80%")
    assert more.stdout.splitlines() == ["--name", "rank-0", "--budget", "80%", "--", "./solver"]
    assert run(script, PATH=stand_ins).returncode == 2


def test_torchrun_is_one_job(stand_ins: str) -> None:
    script = PACKAGING / "launch" / "torchrun.sh"
    told = run(script, "--nproc-per-node", "2", "train.py", PATH=stand_ins, SLURM_JOB_ID="9")
    words = told.stdout.splitlines()
    assert words[:4] == ["--name", "torchrun-9", "--", "torchrun"]
    assert words[4:] == ["--nproc-per-node", "2", "train.py"]
    assert run(script, PATH=stand_ins).returncode == 2


# ---- container and cluster ----


def daemon_set() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        (PACKAGING / "kubernetes" / "daemonset.yaml").read_text()
    )
    return found


def test_the_daemon_set_is_one_and_asks_for_no_privilege() -> None:
    found = daemon_set()
    assert (found["apiVersion"], found["kind"]) == ("apps/v1", "DaemonSet")
    template = found["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
    pod = template["spec"]
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["runAsNonRoot"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]} and "privileged" not in context
    volumes = {volume["name"] for volume in pod["volumes"]}
    for one in (*pod["containers"], *pod["initContainers"]):
        assert {mount["name"] for mount in one["volumeMounts"]} <= volumes


def test_the_commands_of_container_and_cluster_are_pumpds() -> None:
    (container,) = daemon_set()["spec"]["template"]["spec"]["containers"]
    text = (PACKAGING / "container" / "Containerfile").read_text()
    command = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)[0]
    for words in (container["command"], yaml.safe_load(command)):
        assert words[0] == "pumpd"
        assert _parser().parse_args(words[1:]).open
    user = container["securityContext"]["runAsUser"]
    assert f"--uid {user}" in text, "the image has the user that the pod runs as"


def test_the_readiness_probe_tells_a_service_from_none(tmp_path: Path) -> None:
    (container,) = daemon_set()["spec"]["template"]["spec"]["containers"]
    words = container["readinessProbe"]["exec"]["command"]
    probe = words[-1].replace("/run/pump/socket", str(tmp_path / "service"))
    assert probe != words[-1] and words[:2] == ["python", "-c"]
    line = [sys.executable, "-c", probe]
    assert subprocess.run(line, capture_output=True, timeout=60, check=False).returncode != 0
    service = Service(tmp_path, "--open")
    try:
        eventually(lambda: _state(service), "an answer")
        subprocess.run(line, check=True, timeout=60)
        assert (tmp_path / "service").stat().st_mode & 0o777 == 0o666
    finally:
        service.kill()


def _state(service: Service) -> bool:
    try:
        with service.ask() as client:
            return client.state().pid == service.process.pid
    except ServiceError:
        return False


def test_the_containerfile_has_stages_a_user_and_an_init() -> None:
    lines = (PACKAGING / "container" / "Containerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in lines.splitlines() if line and line[0] != "#"]
    names = [step[0] for step in steps]
    known = {"FROM", "RUN", "COPY", "ENV", "USER", "ENTRYPOINT", "CMD"}
    assert set(names) <= known and names[0] == "FROM"
    stages = [words[-1] for name, words in ((s[0], s[1].split()) for s in steps) if name == "FROM"]
    assert "build" in stages and "--from=build" in lines
    assert dict(steps)["USER"] == "pump" and "tini" in dict(steps)["ENTRYPOINT"]
    for name, words in steps:
        if name == "RUN":
            shlex.split(words)  # quotes that match
