"""packaging/ without a cluster: scripts run, and the other files have the right form."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from other_users import VICTIM, as_user, needs_root
from places import ROOT
from service_client import PUMPD, Service
from supervisor_client import eventually

from pump.config import files
from pump.service import ServiceError
from pumpd.main import _parser

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip install pyyaml)")

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


def shares(tmp_path: Path, gres: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs share.sh with a Slurm whose node has that Gres; pump-run prints its options."""
    for name, text in (("pump-run", 'printf "%s\\n" "$@"'), ("scontrol", f'echo "   Gres={gres}"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    return run(PACKAGING / "slurm" / "share.sh", "./train", "a b", PATH=path, **environ)


@pytest.mark.parametrize(
    ("gres", "environ", "options"),
    [
        ("gpu:1,shard:4", {"SLURM_SHARDS_ON_NODE": "1"}, ["--budget=25%"]),
        ("gpu:a100:2(S:0),shard:a100:8(S:0-1)", {"SLURM_SHARDS_ON_NODE": "1"}, ["--budget=25%"]),
        ("gpu:1,shard:4", {"SLURM_SHARDS_ON_NODE": "4"}, []),
        ("gpu:1,shard:4", {}, []),
        ("gpu:1,shard:4", {"SLURM_SHARDS_ON_NODE": "1", "PUMP_BUDGET": "9GiB"}, []),
        ("", {"SLURM_SHARDS_ON_NODE": "1", "PUMP_SHARDS": "10"}, ["--budget=10%"]),
    ],
)
def test_a_slurm_task_has_its_shards_of_a_gpu(
    tmp_path: Path, gres: str, environ: dict[str, str], options: list[str]
) -> None:
    told = shares(tmp_path, gres, SLURM_JOB_ID="9", SLURM_PROCID="2", **environ)
    words = ["--name", "slurm-9.0.2", *options, "--", "./train", "a b"]
    assert (told.returncode, told.stdout.splitlines()) == (0, words), told.stderr


@pytest.mark.parametrize("environ", [{}, {"PUMP_SHARDS": "0"}, {"PUMP_SHARDS": "x"}])
def test_shards_that_say_nothing_are_named(tmp_path: Path, environ: dict[str, str]) -> None:
    told = shares(tmp_path, "(null)", SLURM_SHARDS_ON_NODE="1", **environ)
    (line,) = told.stderr.splitlines()
    assert (told.returncode, told.stdout) == (2, "") and "shards" in line


@pytest.fixture
def stand_ins(tmp_path: Path) -> str:
    """Returns a PATH with a pump-run that prints its arguments."""
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


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((PACKAGING / "kubernetes" / name).read_text()))


def test_what_kubernetes_is_given_has_the_form_that_its_own_schemas_ask_for() -> None:
    """kubernetes-validate knows only those schemas; strict: no field that they lack."""
    version = kubernetes_validate.latest_version()
    found = [one for name in ("daemonset.yaml", "job.yaml") for one in documents(name)]
    assert len(found) == 3
    for one in found:
        kubernetes_validate.validate(one, version, strict=True)
    found[-1]["spec"]["template"]["spec"]["hostUser"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found[-1], version, strict=True)


def daemon_set() -> dict[str, Any]:
    return documents("daemonset.yaml")[0]


def test_the_daemon_set_is_one_and_keeps_no_privilege() -> None:
    found = daemon_set()
    assert (found["apiVersion"], found["kind"]) == ("apps/v1", "DaemonSet")
    template = found["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
    pod = template["spec"]
    (container,) = pod["containers"]
    (folder,) = pod["initContainers"]
    wanted = {"serve": ["SETUID", "SETGID"], "folder": ["CHOWN", "FOWNER"]}
    for one in (container, folder):
        context = one["securityContext"]
        assert not context["allowPrivilegeEscalation"] and "privileged" not in context
        assert context["capabilities"] == {"drop": ["ALL"], "add": wanted[one["name"]]}
    assert folder["command"][-1] == "chown 0:0 /run/pump && chmod 0755 /run/pump"
    assert pod["hostUsers"] is True, "the service tells users apart"
    volumes = {volume["name"] for volume in pod["volumes"]}
    for one in (container, folder):
        assert {mount["name"] for mount in one["volumeMounts"]} <= volumes


def test_no_number_of_a_user_is_believed_in_a_cluster(tmp_path: Path) -> None:
    (config,) = documents("daemonset.yaml")[1:]
    assert (config["kind"], config["metadata"]["name"]) == ("ConfigMap", "pump")
    assert config["metadata"]["namespace"] == daemon_set()["metadata"]["namespace"]
    (tmp_path / "config.toml").write_text(config["data"]["config.toml"])
    found = files.load(str(tmp_path / "config.toml"), administrators=True)
    assert found is not None and found.tables["service"]["root_sees_all"] is False
    (container,) = daemon_set()["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["configuration"]["mountPath"] == "/etc/pump"


def test_the_example_of_a_job_has_users_of_its_own_and_a_mount_to_read() -> None:
    (job,) = documents("job.yaml")
    pod = job["spec"]["template"]["spec"]
    assert (job["kind"], pod["hostUsers"]) == ("Job", False)
    (container,) = pod["containers"]
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    assert mount == {"name": volume["name"], "mountPath": "/run/pump", "readOnly": True}
    served = {
        volume["name"]: volume for volume in daemon_set()["spec"]["template"]["spec"]["volumes"]
    }
    assert volume["hostPath"]["path"] == served["socket"]["hostPath"]["path"]
    assert container["command"][0] == "pump-run"


def test_the_commands_of_container_and_cluster_are_pumpds() -> None:
    (container,) = daemon_set()["spec"]["template"]["spec"]["containers"]
    text = (PACKAGING / "container" / "Containerfile").read_text()
    command = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)[0]
    for words in (container["command"], yaml.safe_load(command)):
        assert words[0] == "pumpd"
        asked = _parser().parse_args(words[1:])
        assert asked.open and asked.run_as == "pump"
    assert "useradd --system --uid 10001 --gid 10001 --no-create-home pump" in text


@needs_root
def test_the_service_of_the_cluster_starts_with_the_capabilities_that_it_is_given(
    tmp_path: Path,
) -> None:
    """All other capabilities are removed from the bounding set, as a container runtime does."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed (apt-get install util-linux)")
    (container,) = daemon_set()["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    socket = words[words.index("--socket") + 1]
    user = words[words.index("--run-as") + 1]
    with tempfile.TemporaryDirectory(prefix="pump-cluster-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        stand_in = {socket: str(folder / "service"), user: "nobody"}
        given = ",".join(
            f"+{one.lower()}" for one in container["securityContext"]["capabilities"]["add"]
        )
        command = ["setpriv", f"--bounding-set=-all,{given}", f"--inh-caps=-all,{given}"]
        command += ["--no-new-privs", "--clear-groups"]
        service = Service(
            folder,
            command=[*command, *PUMPD, *(stand_in.get(word, word) for word in words[1:])],
        )
        try:
            assert as_user(VICTIM, lambda: str(service.ask().state().pid)) == str(
                service.process.pid
            )
        finally:
            service.kill()


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
            shlex.split(words)  # the quotes match
