"""Checks the machine: kernel features, files and host memory that pump needs."""

from __future__ import annotations

import importlib.util
import os
import resource
import warnings

import psutil

from pump.base import inputs, paths
from pump.cli.doctor.finding import REINSTALL, Finding, ok, problem, warning
from pump.report.words import size

GIB = 1 << 30
UNLIMITED = 1 << 62
# The share of host memory that the shim leaves to other programs (shim/memory/host_memory.c).
RESERVE_SHARE, RESERVE_LEAST, RESERVE_MOST = 20, GIB // 2, 4 * GIB
PAGE_BYTES, BLOCK_ORDER = 4096, 9  # of /proc/buddyinfo; a block of 2 MiB is 2^9 pages
NVIDIA_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
WSL_FILES = ("/dev/dxg",)


def kernel() -> list[Finding]:
    """Checks that the kernel supports memfd and pidfd (memfd_create(2), pidfd_open(2))."""
    found = []
    try:
        os.close(os.memfd_create("pump-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        found.append(ok("memfd", "shared memory works"))
    except OSError as error:
        text = f"memfd_create fails ({error.strerror})"
        found.append(
            problem(
                "memfd",
                f"{text}: jobs run without prefetching",
                "allow memfd_create in the container's seccomp profile",
            )
        )
    try:
        os.close(os.pidfd_open(os.getpid()))
        found.append(ok("pidfd", "the end of a job is noticed at once"))
    except OSError as error:
        text = f"pidfd_open fails ({error.strerror}): the end of a job is noticed within a second"
        found.append(warning("pidfd", text, "allow pidfd_open in the seccomp profile (Linux 5.3)"))
    return found


def daemon() -> list[Finding]:
    """Checks that a job's pumpd can start: its packages and its folder."""
    missing = [
        name for name in ("pumpd", "numpy", "cffi") if importlib.util.find_spec(name) is None
    ]
    found = []
    if missing:
        text = f"{' and '.join(missing)} cannot be imported: jobs run without prefetching"
        found.append(problem("pumpd", text, REINSTALL))
    else:
        found.append(ok("pumpd", "its packages can be imported"))
    try:
        base = paths.runtime_base()
        os.rmdir(paths.make_job_directory(base, os.getpid()))
        found.append(ok("sockets", f"in {base}"))
    except (paths.UnsafeDirectoryError, OSError) as error:
        remedy = 'mkdir -m 700 "$HOME/.run"; export XDG_RUNTIME_DIR="$HOME/.run"'
        text = f"each job uses its own folder in {paths.TEMPORARY}: {error}"
        found.append(warning("sockets", text, remedy))
    return found


def platform(
    microsoft: str = WSL_FILES[0],
    tegra: str = "/etc/nv_tegra_release",
    model: str = "/proc/device-tree/model",
) -> list[Finding]:
    """Returns a problem on WSL2 and on a Jetson, which pump does not support. Identifies them by
    files: WSL's GPU device, NVIDIA's release file of Jetson, the name of the board."""
    if os.path.exists(microsoft):
        text = "WSL2 is not supported: its driver cannot page managed memory"
        return [problem("platform", text, "boot Linux on this machine, without Windows")]
    board = (_lines_of(model) or [""])[0].strip("\0")
    if os.path.exists(tegra) or "jetson" in board.lower():
        text = (
            "Jetson is not supported: the GPU uses the host's memory, so there is nothing to page"
        )
        return [problem("platform", text, "use a machine whose GPU has its own memory")]
    return []


def device_files(files: tuple[str, ...] | None = None) -> Finding:
    """Checks that this user may open the device files of a real GPU. files: None: NVIDIA's, or
    on WSL, WSL's."""
    if files is None:
        files = WSL_FILES if os.path.exists(WSL_FILES[0]) else NVIDIA_FILES
    for file in files:
        if not os.path.exists(file):
            remedy = "sudo nvidia-modprobe -u -c 0; in a container, start it with --gpus all"
            return problem("device files", f"{file} is missing", remedy)
        if not os.access(file, os.R_OK | os.W_OK):
            remedy = "sudo usermod -aG video,render $USER, then log in again"
            return problem("device files", f"no permission to open {file}", remedy)
    return ok("device files", " and ".join(files))


def memory(largest_device_bytes: int, cgroups: str = "/sys/fs/cgroup") -> Finding:
    """Compares the host memory that is available for pageable memory with a device's memory."""
    room, total, where = headroom(cgroups)
    if total == 0:
        remedy = "bound each job: pump-run --limit 8GiB ..."
        return warning("host memory", "the kernel does not report free memory", remedy)
    reserve = min(max(total // RESERVE_SHARE, RESERVE_LEAST), RESERVE_MOST)
    usable = max(room - reserve, 0)
    text = f"{size(usable)} for memory that does not fit on the GPU ({where})"
    remedy = (
        f"raise the memory limit of {where}"
        if where.startswith("cgroup")
        else "end programs that use host memory: ps aux --sort -rss | head"
    )
    if usable == 0:
        return problem("host memory", text, remedy)
    if usable < largest_device_bytes:
        text += f", less than the GPU's {size(largest_device_bytes)}: "
        text += "larger jobs run out of memory"
        return warning("host memory", text, remedy)
    return ok("host memory", text)


def fragmentation(largest_device_bytes: int) -> list[Finding]:
    """Checks whether free host memory is in pieces as large as a block of 2 MiB.

    For each block that leaves the GPU, nvidia-uvm allocates a piece of 2 MiB, else of 64 KiB, else
    of 4 KiB, without reclaim or compaction (uvm_pmm_sysmem.c). Programs that page take up to 1.5
    times as long with pieces of 4 KiB, by the model (docs/uvm.md).
    """
    whole_bytes = pages = 0
    for line in _lines_of(f"{psutil.PROCFS_PATH}/buddyinfo"):
        counts = line.split()[4:]  # Node 0, zone Normal 5 3 ...: free pieces of 2^n pages
        pieces = [int(count) << order for order, count in enumerate(counts) if count.isdigit()]
        pages += sum(pieces)
        whole_bytes += sum(pieces[BLOCK_ORDER:]) * PAGE_BYTES
    host = _whole_host()
    if pages == 0 or host is None:
        return []
    text = f"{size(whole_bytes)} of free host memory in pieces of 2 MiB or larger"
    if whole_bytes >= min(largest_device_bytes, host[0]) // 2:
        return [ok("host pages", text)]
    remedy = "as root: echo 1 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory"
    return [warning("host pages", f"only {text}: transfers may be slower", remedy)]


def headroom(cgroups: str) -> tuple[int, int, str]:
    """Returns (free bytes, total bytes, name) of the host or a cgroup, whichever has the least free
    memory; (0, 0, "") if unknown."""
    levels = [level for level in (_whole_host(), *_cgroup_levels(cgroups)) if level]
    return min(levels, default=(0, 0, ""))


def address_space() -> Finding:
    """Checks that address space is unlimited: managed memory reserves it at allocation."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    except OSError as error:
        text = f"cannot read its limit: {error.strerror}"
        return warning("address space", text, "allow prlimit in the seccomp profile")
    if soft == resource.RLIM_INFINITY:
        return ok("address space", "unlimited")
    text = f"limited to {size(soft)}: CUDA and pageable memory reserve more than they use"
    return problem("address space", text, "ulimit -v unlimited")


def _whole_host() -> tuple[int, int, str] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # psutil warns about metrics that pump does not need
            found = psutil.virtual_memory()
    except (OSError, KeyError):  # /proc is hidden or incomplete
        return None
    return found.available, found.total, "the host's memory"


def _cgroup_levels(root: str) -> list[tuple[int, int, str]]:
    """Returns the limits of this process's cgroups (cgroups(7)), which psutil does not read."""
    levels = []
    for line in _lines_of(f"{psutil.PROCFS_PATH}/self/cgroup"):
        parts = line.split(":", 2)
        if len(parts) != 3 or ".." in parts[2]:
            continue
        if parts[1] == "":
            mount, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in parts[1].split(","):
            mount = f"{root}/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = parts[2].rstrip("/")
        while True:
            levels.append(_cgroup_limit(mount + group, *names))
            if not group:
                break
            group = group.rpartition("/")[0]
    return [level for level in levels if level]


def _cgroup_limit(folder: str, most: str, used: str, kept: str) -> tuple[int, int, str] | None:
    limit, usage = (next(iter(_lines_of(f"{folder}/{name}")), "") for name in (most, used))
    if not limit.isdigit() or not usage.isdigit() or int(limit) >= UNLIMITED:
        return None
    stat = dict(line.split(" ", 1) for line in _lines_of(f"{folder}/memory.stat") if " " in line)
    busy = max(int(usage) - int(stat.get(kept, "0")), 0)
    return max(int(limit) - busy, 0), int(limit), f"cgroup {folder}"


def _lines_of(path: str) -> list[str]:
    try:
        return inputs.text(path).splitlines()
    except OSError:
        return []
