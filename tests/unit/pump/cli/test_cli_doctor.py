"""The findings of pump doctor on made-up machines, and on this one."""

from __future__ import annotations

import json
import os
import stat
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pump.cli.doctor import examine, host, probe, switches, target
from pump.cli.doctor.finding import OK, PROBLEM, WARNING, Finding

GIB = 1 << 30
CODE = "import sys; from pump.cli.main import main; sys.exit(main())"


def doctor(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTORCH_", "LD_PRELOAD"))}
    return subprocess.run(
        [sys.executable, "-P", "-c", CODE, "doctor", *words],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def by_name(found: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in found}


@pytest.mark.lab
def test_on_the_virtual_gpu_nothing_is_a_problem_and_calls_are_intercepted() -> None:
    done = doctor("--virtual", "a100-pcie4", "--json", "--", sys.executable, "train.py")
    told = json.loads(done.stdout)
    assert next(iter(told.items())) == ("schema", "pump.doctor/1")
    found = {finding["name"]: finding for finding in told["findings"]}
    assert done.returncode == 0, done.stdout
    assert all(finding["status"] != PROBLEM for finding in found.values())
    assert "libpump.so" in found["interception"]["text"]
    assert "A100" in found["device 0"]["text"]
    assert found["command"]["status"] == OK


@pytest.mark.lab
def test_the_driver_is_asked_through_cuda_python(monkeypatch: pytest.MonkeyPatch) -> None:
    through = """
from cuda.bindings import driver
real = driver.cuDeviceGetName
def marked(length, device): return real(length, device)[0], b"through cuda-python"
driver.cuDeviceGetName = marked
"""
    monkeypatch.setattr(probe, "CHILD", through + probe.CHILD)
    found = by_name(examine("a100-pcie4", [], dict(os.environ)))
    assert found["device 0"].status == OK
    assert found["device 0"].text == "through cuda-python, 40.0 GiB, sm_80"


@pytest.mark.lab
def test_where_cuda_python_is_missing_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    without = "import sys; sys.modules['cuda'] = None\n"
    monkeypatch.setattr(probe, "CHILD", without + probe.CHILD)
    found = by_name(examine("a100-pcie4", [], dict(os.environ)))["driver"]
    assert "cuda-python" in found.text and found.remedy == "pip install --force-reinstall pump-cuda"


@pytest.mark.lab
def test_a_problem_is_one_line_with_its_remedy_and_status_1() -> None:
    env = {"CUDA_MANAGED_FORCE_DEVICE_ALLOC": "1"}
    done = doctor("--virtual", "a100-pcie4", **env)
    line, remedy = done.stdout.splitlines()[:2]
    assert line.startswith("problem  CUDA_MANAGED_FORCE_DEVICE_ALLOC: the driver keeps")
    assert remedy.strip() == "fix: unset CUDA_MANAGED_FORCE_DEVICE_ALLOC"
    assert done.returncode == 1


@pytest.mark.lab
def test_an_unknown_profile_is_a_finding_like_any_other() -> None:
    done = doctor("--virtual", "a1000")
    assert done.returncode == 1
    assert done.stdout.startswith("problem  driver") and "a1000" in done.stdout


@pytest.mark.parametrize(
    ("environ", "statuses"),
    [
        ({}, {"switches": OK}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "a:1, expandable_segments : true"}, {"switches": OK}),
        ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, {"switches": OK}),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, {"CUDA_LAUNCH_BLOCKING": WARNING}),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, {"switches": OK}),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, {"CUDA_DEVICE_MAX_CONNECTIONS": WARNING}),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "4"}, {"switches": OK}),
        ({"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": PROBLEM}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"switches": OK}),
        ({"LD_PRELOAD": "/x/libjemalloc.so /y/libpump.so"}, {"LD_PRELOAD": WARNING}),
        ({"LD_PRELOAD": "/y/libpump.so"}, {"switches": OK}),
        ({"PUMP_DISABLE": "1"}, {"PUMP_DISABLE": WARNING}),
        ({"TF_FORCE_UNIFIED_MEMORY": "1"}, {"TF_FORCE_UNIFIED_MEMORY": WARNING}),
    ],
)
def test_switches_that_are_in_the_way_are_named(
    environ: dict[str, str], statuses: dict[str, str]
) -> None:
    found = switches.findings(environ)
    assert {finding.name: finding.status for finding in found} == statuses
    assert all(finding.remedy for finding in found if finding.status != OK)


FACTS = {"bytes": GIB, "major": 8, "minor": 0, "managed": 1, "concurrent": 1, "integrated": 0}


def answer(version: int = 13000, **device: int) -> dict[str, object]:
    facts = {**FACTS, "name": "card"}
    return {
        "version": version,
        "init": 0,
        "devices": [facts | device],
        "allocates_in": "/p/libpump.so",
        "driver": "/d/libcuda.so.1",
    }


def test_the_drivers_answers_are_judged() -> None:
    def statuses(given: object, shim: str | None = "/p/libpump.so") -> dict[str, str]:
        return {f.name: f.status for f in probe.findings(given, shim)}  # type: ignore[arg-type]

    assert statuses(answer()) == {"driver": OK, "device 0": OK, "interception": OK}
    assert statuses(answer(concurrent=0))["device 0"] == PROBLEM
    assert statuses(answer(12020))["driver"] == WARNING
    assert statuses(answer(11080))["driver"] == PROBLEM
    assert statuses(answer(), "/q/libpump.so")["interception"] == PROBLEM
    assert "interception" not in statuses(answer(), None)
    for found_in, remedy in (
        ("/d/libcuda.so.1", "LD_PRELOAD=/p/lib"),
        ("/o.so", "hides pump"),
    ):
        elsewhere = probe.findings({**answer(), "allocates_in": found_in}, "/p/libpump.so")
        assert remedy in elsewhere[-1].remedy and found_in in elsewhere[-1].text
    assert statuses({**answer(), "devices": []})["devices"] == PROBLEM
    assert statuses({**answer(), "init": 100}) == {"driver": PROBLEM}
    assert statuses("prints nothing") == {"driver": PROBLEM}


def test_a_driver_that_hangs_or_dies_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_S", 1)
    monkeypatch.setattr(probe, "CHILD", "import time; time.sleep(60)")
    assert "more than 1 s" in str(probe.ask(os.environ))
    monkeypatch.setattr(probe, "CHILD", "raise SystemExit('broken driver')")
    assert "broken driver" in str(probe.ask(os.environ))
    monkeypatch.setattr(probe, "CHILD", "print('rubbish')")
    assert "prints nothing" in str(probe.ask(os.environ))


def machine(folder: Path, *, available_gib: int, limit: str = "max", used_gib: int = 0) -> Finding:
    """Returns the finding about the memory of a machine with 64 GiB and a cgroup."""
    proc, cgroups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(
        f"MemTotal: {64 * GIB >> 10} kB\nMemFree: {GIB >> 10} kB\n"
        f"MemAvailable: {available_gib * GIB >> 10} kB\n"
    )
    (proc / "self" / "cgroup").write_text("0::/job/step\n")
    (cgroups / "job" / "step").mkdir(parents=True)
    (cgroups / "job" / "memory.max").write_text(f"{limit}\n")
    (cgroups / "job" / "memory.current").write_text(f"{used_gib * GIB}\n")
    (cgroups / "job" / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psutil, "PROCFS_PATH", str(proc))
        return host.memory(16 * GIB, str(cgroups))


def test_host_memory_is_what_the_tightest_level_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = machine(tmp_path / "a", available_gib=40)
    assert free.status == OK and "36.8 GiB" in free.text and "the host's memory" in free.text
    little = machine(tmp_path / "b", available_gib=10)
    assert little.status == WARNING and "16.0 GiB" in little.text
    bounded = machine(tmp_path / "c", available_gib=40, limit=str(20 * GIB), used_gib=10)
    assert bounded.status == WARNING and "10.0 GiB" in bounded.text and "job" in bounded.text
    assert bounded.remedy == f"raise the memory limit of cgroup {tmp_path}/c/cgroup/job"
    assert little.remedy == "end programs that use host memory: ps aux --sort -rss | head"
    full = machine(tmp_path / "d", available_gib=40, limit=str(20 * GIB), used_gib=21)
    assert full.status == PROBLEM
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "none"))
    unknown = host.memory(GIB, str(tmp_path / "none"))
    assert unknown.status == WARNING and "--limit" in unknown.remedy


@pytest.mark.parametrize(
    ("large", "available_gib", "status"),
    [(9 * 512, 40, OK), (2 * 512, 40, WARNING), (2 * 512, 3, OK)],
)
def test_free_host_memory_in_small_pieces_is_told(
    large: int, available_gib: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU of 16 GiB. `large`: free pieces of 2 MiB; as many bytes again are in single pages."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert host.fragmentation(16 * GIB) == []
    zeros = "0 " * 8
    (tmp_path / "buddyinfo").write_text(
        "Node 0, zone      DMA      1      0      0      0\n"
        f"Node 0, zone   Normal {large * 512} {zeros} {large}      0\n"
    )
    (tmp_path / "meminfo").write_text(
        f"MemTotal: {64 * GIB >> 10} kB\nMemFree: {GIB >> 10} kB\n"
        f"MemAvailable: {available_gib * GIB >> 10} kB\n"
    )
    (told,) = host.fragmentation(16 * GIB)
    assert told.status == status and f"{large / 512:.1f} GiB" in told.text
    assert (told.remedy != "") == (status == WARNING)


def test_under_wsl_the_gpu_has_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "dxg"
    there.touch()
    monkeypatch.setattr(host, "WSL_FILES", (str(there),))
    monkeypatch.setattr(host, "NVIDIA_FILES", (str(tmp_path / "nvidiactl"),))
    assert host.device_files() == Finding("device files", OK, str(there))
    there.unlink()
    assert host.device_files().status == PROBLEM


def test_wsl2_and_a_jetson_are_called_unsupported(tmp_path: Path) -> None:
    none, there = str(tmp_path / "none"), tmp_path / "there"
    there.write_text("NVIDIA Jetson AGX Orin\0")
    assert host.platform(none, none, none) == []
    (wsl,) = host.platform(str(there), none, none)
    assert wsl.status == PROBLEM and wsl.text.startswith("WSL2 ")
    for found in (host.platform(none, str(there), none), host.platform(none, none, str(there))):
        assert [one.status for one in found] == [PROBLEM]
        assert found[0].text.startswith("Jetson ")


@pytest.mark.parametrize(
    ("name", "integrated", "status"),
    [
        ("NVIDIA A100-PCIE-40GB", 0, OK),
        ("NVIDIA H100 80GB HBM3", 0, OK),
        ("NVIDIA A40-48Q", 0, PROBLEM),
        ("NVIDIA A100-4-20C", 0, PROBLEM),
        ("GRID V100D-8Q", 0, PROBLEM),
        ("Orin", 1, PROBLEM),
    ],
)
def test_a_vgpu_and_a_gpu_without_memory_of_its_own_are_unsupported(
    name: str, integrated: int, status: str
) -> None:
    device = {**FACTS, "name": name, "integrated": integrated}
    found = probe.findings({"version": 12080, "init": 0, "devices": [device]}, None)
    assert by_name(found)["device 0"].status == status
    assert ("does not support" in by_name(found)["device 0"].text + by_name(found)[
        "device 0"].remedy) is (status == PROBLEM)  # fmt: skip


def test_a_server_of_mps_gets_a_warning_where_it_runs_or_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switches, "MPS_FOLDER", str(tmp_path))
    assert switches.mps({}) == []
    (named,) = switches.mps({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "other")})
    (tmp_path / "control").touch()
    (runs,) = switches.mps({})
    assert (named.status, runs.status) == (WARNING, WARNING)
    assert "is named by" in named.text and "is running" in runs.text


@pytest.mark.lab
def test_the_last_line_says_ready_or_what_is_in_the_way() -> None:
    ready = doctor("--virtual", "a100-pcie4", PUMP_DISABLE="")
    assert ready.stdout.splitlines()[-1].startswith("Ready")
    warned = doctor("--virtual", "a100-pcie4", CUDA_LAUNCH_BLOCKING="1")
    last = warned.stdout.splitlines()[-1]
    assert last.startswith("Ready, with warnings: ")
    assert "CUDA_LAUNCH_BLOCKING" in last
    broken = doctor("--virtual", "a100-pcie4", CUDA_VISIBLE_DEVICES="-1")
    last = broken.stdout.splitlines()[-1]
    assert broken.returncode == 1
    assert last.startswith("Not ready: ") and "CUDA_VISIBLE_DEVICES" in last


def test_device_files_that_are_missing_or_closed_are_named(tmp_path: Path) -> None:
    there = tmp_path / "nvidiactl"
    there.touch()
    assert host.device_files((str(there),)).status == OK
    assert "missing" in host.device_files((str(there), str(tmp_path / "uvm"))).text
    if os.geteuid() != 0:  # root may open every file
        there.chmod(0)
        assert "may not be opened" in host.device_files((str(there),)).text


def elf(kinds: list[int], machine_number: int | None = None, bits: int = 2) -> bytes:
    own = {"x86_64": 62, "aarch64": 183}.get(os.uname().machine, 62)
    number = own if machine_number is None else machine_number
    header = bytearray(64)
    header[:5] = b"\x7fELF" + bytes([bits])
    struct.pack_into("<H", header, 18, number)
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HH", header, 54, 56, len(kinds))
    return bytes(header) + b"".join(struct.pack("<I", kind).ljust(56, b"\0") for kind in kinds)


def placed(path: Path, content: bytes, mode: int = 0o755) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests run as another user, because a setuid bit gives a file's owner nothing."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)


@pytest.mark.parametrize(
    ("content", "mode", "status", "words"),
    [
        (elf([1, 3]), 0o755, OK, "intercepts the CUDA calls"),
        (elf([1, 1]), 0o755, PROBLEM, "statically linked"),
        (elf([1, 3]), 0o4755, PROBLEM, "setuid"),
        (elf([1, 3], bits=1), 0o755, PROBLEM, "64-bit"),
        (elf([1, 3], machine_number=8), 0o755, PROBLEM, "CPU architecture"),
        (b"#!/no/such/interpreter\n", 0o755, PROBLEM, "No such file"),
        (b"#!/usr/bin/env -S A=1 sh\n", 0o755, OK, "is a script"),
        (b"#!/bin/sh\n", 0o755, OK, "is a script"),
        (b"echo\n", 0o755, OK, "shell"),
        (b"", 0o755, OK, "shell"),
        (b"\x7fELF", 0o755, PROBLEM, "64-bit"),
        (elf([1, 3]), 0o644, PROBLEM, "Permission denied"),
    ],
)
@pytest.mark.usefixtures("another_user")
def test_a_command_is_judged_by_its_file(
    tmp_path: Path, content: bytes, mode: int, status: str, words: str
) -> None:
    path = placed(tmp_path / "program", content, mode)
    if stat.S_IMODE(Path(path).stat().st_mode) != mode:
        pytest.skip("this file system keeps no setuid bit")
    (found,) = target.findings([path], os.environ)
    assert found.status == status and words in found.text, found


def test_programs_that_start_others_elsewhere_are_named(tmp_path: Path) -> None:
    placed(tmp_path / "docker", elf([1, 3]))
    (found,) = target.findings(["docker", "run", "image"], {"PATH": str(tmp_path)})
    assert found.status == PROBLEM and "pump-run" in found.remedy
    (found,) = target.findings(["no-such-program"], {"PATH": str(tmp_path)})
    assert found.status == PROBLEM and "not found" in found.text


def test_a_script_whose_interpreter_is_itself_is_examined_in_bounded_time(tmp_path: Path) -> None:
    path = tmp_path / "loop"
    placed(path, f"#!{path}\n".encode())
    (found,) = target.findings([str(path)], {})
    assert found.status == WARNING


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "pump-run sets CUDA_DEVICE_MAX_CONNECTIONS=32"),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "16"}, "16 (CUDA_DEVICE_MAX_CONNECTIONS)"),
    ],
)
def test_the_number_of_hardware_queues_is_told(environ: dict[str, str], words: str) -> None:
    (finding,) = switches.queues(environ)
    assert finding.status == OK
    assert words in finding.text


def test_how_auto_would_choose_is_told_for_each_framework() -> None:
    found = switches.granularity({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"})
    assert {finding.name for finding in found} == {"granularity"}
    torch, jax = (finding.text for finding in found[:2])
    assert torch.startswith("auto: PyTorch: tensor (")
    assert jax.startswith("auto: JAX: native, because XLA_PYTHON_CLIENT_ALLOCATOR=platform")
