"""Containers under pump by a CDI specification: its form, and its edits in effect.

The tests apply the edits in mount namespaces, as container runtimes do; with --long an OCI runtime
applies them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs import BIN
from places import DOCS
from pumpds import wait_for

from pump.base.paths import library
from pump_lab import paths as lab_paths

USES = """
import os
from cuda.bindings import driver as cu
def ask(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else None
ask(cu.cuInit(0))
ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(0))))
blocks = [ask(cu.cuMemAlloc(32 << 20)) for _ in range(4)]
for number, block in enumerate(blocks):
    ask(cu.cuMemsetD8(block, number + 1, 32 << 20))
for number, block in enumerate(blocks):
    data = bytearray(32 << 20)
    ask(cu.cuMemcpyDtoH(data, block, len(data)))
    assert data == bytes([number + 1]) * len(data)
print("right", os.access("/opt/pump-cdi/libpump.so", os.W_OK), flush=True)
"""
"""Uses twice the GPU's memory; prints whether the container could change pump's library."""
SERVED = (
    USES.replace(
        "\nblocks =", "\nwhile '/memfd:' not in open('/proc/self/maps').read(): pass\nblocks ="
    )
    + "print(os.access('/opt/pump-pumpd', os.W_OK), flush=True)\n"
)
"""Waits first for pumpd's mapping; prints whether the container could change pumpd's folder."""
CARD = ("--virtual", "a100-pcie4", "--virtual-set=memory=64MiB", "--virtual-set=mode=compute")
TIMEOUT_S = 60


def generate(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUMP_")}
    return subprocess.run(
        [str(BIN / "pump"), "install", "cdi", *words],
        env={**kept, **env},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def specification(*words: str, **env: str) -> dict[str, Any]:
    done = generate(*words, **env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    check(found)
    return dict(found)


def check(found: dict[str, Any]) -> None:
    """Checks the rules of CDI 0.5.0 (SPEC.md and the schema of its repository)."""
    assert set(found) == {"cdiVersion", "kind", "devices"} and found["cdiVersion"] == "0.5.0"
    vendor, _, kind = found["kind"].partition("/")
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", vendor)
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", kind)
    assert len({device["name"] for device in found["devices"]}) == len(found["devices"]) > 0
    for device in found["devices"]:
        assert set(device) == {"name", "containerEdits"}
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"])
        edits = device["containerEdits"]
        assert edits and set(edits) <= {"env", "deviceNodes", "mounts", "hooks"}
        for line in edits["env"]:
            assert isinstance(line, str) and re.match(r"[A-Za-z_][A-Za-z0-9_]*=.", line)
        for mount in edits["mounts"]:
            assert set(mount) <= {"hostPath", "containerPath", "options", "type"}
            assert mount["hostPath"].startswith("/") and mount["containerPath"].startswith("/")
            assert all(isinstance(option, str) for option in mount["options"])


def edits_of(found: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the variables and mounts of the only device."""
    (device,) = found["devices"]
    return device["containerEdits"]["env"], device["containerEdits"]["mounts"]


def test_a_specification_has_what_pump_run_would_set(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    found = specification(
        "--as=half", "--", "--budget=50%", "--keep-device=vmm", LD_LIBRARY_PATH=str(tmp_path)
    )
    assert found["devices"][0]["name"] == "half"
    variables, (mount,) = edits_of(found)
    assert "LD_PRELOAD=/opt/pump-cdi/libpump.so" in variables and "PUMP_BUDGET=50%" in variables
    assert not [one for one in variables if one.startswith(("LD_LIBRARY_PATH", "PUMP_VIRTUAL"))]
    assert "ro" in mount["options"] and (Path(mount["hostPath"]) / "libpump.so").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--as", "-a"], "--as"),
        (["--as=a b"], "--as: must be letters and digits"),
        (["--pumpd=/none/socket"], "--pumpd /none/socket: there is no such folder"),
        (["--pumpd=/tmp/socket"], "/tmp"),
        (["--", "--record=x"], "--record"),
        (["--", "--budget=x"], "--budget"),
        (["--", "--virtual=none-such"], "none-such"),
        (["--virtual=none-such"], "none-such"),
        (["--bugdet=3"], "did you mean '--budget'?"),
    ],
)
def test_what_cannot_be_specified_gets_one_line(
    tmp_path: Path, words: list[str], named: str
) -> None:
    (tmp_path / "libcuda.so.1").touch()
    done = generate(*words, LD_LIBRARY_PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert named in line


def test_libraries_that_others_could_change_are_not_given_to_containers(tmp_path: Path) -> None:
    libraries = tmp_path / "pump" / "_lib"
    shutil.copytree(Path(library("libpump.so")).parent, libraries)
    (tmp_path / "pump_lab").mkdir()
    (tmp_path / "pump_lab" / "_lib").symlink_to(Path(lab_paths.library("libpump_lab.so")).parent)
    words = ("--", *CARD)
    assert generate(*words, PUMP_LIB_DIR=str(libraries)).returncode == 0
    libraries.chmod(0o777)
    done = generate(*words, PUMP_LIB_DIR=str(libraries))
    assert done.returncode == 2 and str(libraries) in done.stderr and done.stdout == ""


def rooted(root: Path) -> list[str]:
    """Makes the root of a container and returns its folders, which are mount points for this
    machine's. Copies links, and creates an own /opt."""
    folders = []
    for path in Path("/").iterdir():
        if path.is_symlink():
            (root / path.name).symlink_to(os.readlink(path))  # noqa: PTH115
        elif path.is_dir() and path.name != "opt":
            (root / path.name).mkdir()
            folders.append(path.name)
    (root / "opt").mkdir()
    return folders


def by_namespaces(found: dict[str, Any], root: Path, command: Sequence[str]) -> Any:
    variables, mounts = edits_of(found)
    lines = [f"mount --rbind /{name} {root / name}" for name in rooted(root)]
    for mount in mounts:
        target = root / mount["containerPath"].lstrip("/")
        target.mkdir(parents=True)
        options = ",".join(option for option in mount["options"] if option != "rbind")
        lines.append(f"mount --rbind {mount['hostPath']} {target}")
        lines.append(f"mount -o remount,bind,{options} {target}")
    lines.append(shlex.join(["exec", "chroot", str(root), "env", "-i", *variables, *command]))
    script = "set -e\n" + "\n".join(lines)
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def by_runtime(found: dict[str, Any], root: Path, command: Sequence[str]) -> Any:
    variables, mounts = edits_of(found)
    bind = {"type": "bind", "options": ["rbind", "ro"]}
    folders = [name for name in rooted(root) if name not in ("proc", "sys", "dev")]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(command),
            "env": variables,
            "cwd": "/",
        },
        "root": {"path": str(root)},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            *({"destination": f"/{name}", "source": f"/{name}", **bind} for name in folders),
            *(
                {
                    "destination": mount["containerPath"],
                    "source": mount["hostPath"],
                    "type": mount["type"],
                    "options": mount["options"],
                }
                for mount in mounts
            ),
        ],
        "linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}]},
    }
    bundle = root.parent
    (bundle / "config.json").write_text(json.dumps(config))
    runtimes = [name for name in ("crun", "runc") if shutil.which(name)]
    if not runtimes:
        pytest.skip("no OCI runtime is installed (apt-get install crun runc)")
    for name in runtimes:  # the runtimes know different cgroup layouts
        done = subprocess.run(
            [name, "run", "--bundle", str(bundle), f"pump-{os.getpid()}-{name}"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode == 0:
            break
    return done


def by_podman(found: dict[str, Any], root: Path, command: Sequence[str]) -> Any:
    """Runs the command with podman, which reads the specification by itself."""
    if not shutil.which("podman") or os.geteuid() != 0:
        pytest.skip("needs root and podman (apt-get install podman runc)")
    (device,) = found["devices"]
    device["name"] = f"test-{os.getpid()}"
    file = Path("/run/cdi") / f"pump-{device['name']}.json"
    file.parent.mkdir(exist_ok=True)
    mounts = [
        f"--volume=/{name}:/{name}:ro"
        for name in rooted(root)
        if name not in ("proc", "sys", "dev", "run")
    ]
    limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"]  # this machine's are lower
    words = ["podman", "--runtime=runc", "run", "--rm", "--net=none", *limits, *mounts]
    asked = f"--device={found['kind']}={device['name']}"
    try:
        file.write_text(json.dumps(found))
        return subprocess.run(
            [*words, asked, "--rootfs", str(root), *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        file.unlink()


APPLY = pytest.mark.parametrize(
    "apply",
    [
        by_namespaces,
        *(pytest.param(one, marks=pytest.mark.long) for one in (by_runtime, by_podman)),
    ],
)


@APPLY
def test_a_container_with_the_edits_uses_more_memory_than_the_card_has(
    tmp_path: Path, apply: Any
) -> None:
    found = specification("--", *CARD)
    (tmp_path / "root").mkdir()
    done = apply(found, tmp_path / "root", [sys.executable, "-c", USES])
    assert (done.returncode, done.stdout) == (0, "right False\n"), done.stderr
    assert "no pumpd served this process" in done.stderr


def of_the_page(pattern: str) -> list[str]:
    """Returns the arguments of the page's only line that matches."""
    (line,) = re.findall(
        f"^    ({pattern})", (DOCS / "guides" / "clusters.md").read_text(), re.MULTILINE
    )
    return shlex.split(line)


@pytest.fixture
def host_pumpd(tmp_path: Path) -> Iterator[Path]:
    """Starts a pumpd as the page describes and returns its socket. Only the socket's path and the
    process that ends pumpd are different."""
    socket = tmp_path / "pumpd" / "socket"
    socket.parent.mkdir(mode=0o700)
    words = of_the_page(r"pumpd job .*(?= &$)")
    words[words.index("--socket") + 1] = str(socket)
    words[words.index("--job-pid") + 1] = str(os.getpid())
    with subprocess.Popen([str(BIN / words[0]), *words[1:]]) as pumpd:
        try:
            assert wait_for(socket.exists)
            yield socket
        finally:
            pumpd.terminate()


@APPLY
def test_the_hosts_pumpd_serves_a_container_that_cannot_change_its_folder(
    tmp_path: Path, host_pumpd: Path, apply: Any
) -> None:
    found = specification(f"--pumpd={host_pumpd}", "--", *CARD)
    (tmp_path / "root").mkdir()
    done = apply(found, tmp_path / "root", [sys.executable, "-c", SERVED])
    assert (done.returncode, done.stdout) == (0, "right False\nFalse\n"), done.stderr
    assert "no pumpd" not in done.stderr and "the budget" in done.stderr


def test_the_page_names_the_command_that_the_tests_use(tmp_path: Path) -> None:
    words = of_the_page(r"pump install cdi --(?!pumpd).*(?= > /etc/cdi/pump.json)")
    assert generate(*words[3:], *CARD).returncode == 0
    words = of_the_page(r"pump install cdi --pumpd.*(?= > /etc/cdi/pump.json)")
    words[words.index("--pumpd") + 1] = str(tmp_path / "socket")
    assert generate(*words[3:], *CARD).returncode == 0
