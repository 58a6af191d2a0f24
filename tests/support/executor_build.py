"""Builds the executors and their dependencies with a fake driver, once per sanitizer.

Not a test. The program's argument is the name of a scenario; see executor_harness.h.
"""

import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path

import builds
from c_build import cc, compiled
from places import ROOT

SOURCES = ("progress/*.c", "execute/*.c", "link/*.c")
SOURCES += ("base/log.c", "base/mapping.c", "base/settings.c", "base/thread.c")
SOURCES += ("memory/claims_of_others.c", "memory/contexts.c", "memory/host_claims.c")
SOURCES += ("memory/drain.c", "memory/host_memory.c", "memory/limit.c", "memory/share.c")
SOURCES += ("life/threads.c", "life/summary.c", "life/summary_file.c", "life/verdict.c")
SOURCES += ("life/job_end.c", "life/last_line.c")
"""The tested parts of shim/; hooks_absent.h and the harness replace the rest."""
TESTS = ("*/case_*.c", "execute/executor_harness.c", "execute/fake_worker.c", "link/fake_pumpd.c")
ON_DESCRIPTORS = ("accept4", "close", "connect", "dup", "dup2", "fcntl", "open", "open64")
ON_DESCRIPTORS += (
    "openat",
    "openat64",
    "pipe",
    "poll",
    "read",
    "recv",
    "recvmsg",
    "send",
    "sendmsg",
)
ON_DESCRIPTORS += (
    "fstat",
    "mmap",
    "socket",
    "socketpair",
    "fopen",
    "fclose",
    "opendir",
    "closedir",
)


@functools.cache
def build(sanitizer: str) -> Path:
    """Compiles all sources with `sanitizer`; returns the program."""
    name = f"executor-{sanitizer.replace(',', '-')}"
    return builds.once(name, lambda folder: _compile(sanitizer, folder / "executor")) / "executor"


def _compile(sanitizer: str, program: Path) -> None:
    shim = ROOT / "shim"
    sources = [file for name in SOURCES for file in sorted(shim.glob(name))]
    sources += [file for name in TESTS for file in sorted((ROOT / "tests" / "c").glob(name))]
    # case_table.c waits before a close.
    cc(sanitizer, *compiled(sanitizer, sources), "-pthread", "-Wl,--wrap=close", "-o", program)
    # Attach intentionally replaces the memory while all threads use it. ThreadSanitizer treats the
    # mmap as a write. It also assumes one descriptor table per process, but the link thread has its
    # own.
    suppressed = [
        "race:^pump_attach$",
        *(f"race_top:^__interceptor_{call}$" for call in ON_DESCRIPTORS),
    ]
    program.with_name("suppressions").write_text("\n".join(suppressed) + "\n")


def run(
    sanitizer: str, scenario: str, env: dict[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Runs a scenario to its end; fails after a failed check, a sanitizer's report or a hang."""
    command = [str(build(sanitizer)), scenario]
    # With full ASLR older compilers' ThreadSanitizer cannot place its shadow memory.
    if setarch := shutil.which("setarch"):
        command = [setarch, platform.machine(), "-R", *command]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PUMP_")}
    suppressions = build(sanitizer).with_name("suppressions")
    environment |= {
        "TSAN_OPTIONS": f"halt_on_error=1 exitcode=66 suppressions={suppressions}",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    environment |= env or {}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=timeout
    )
    assert done.returncode == 0, f"{scenario}: exit {done.returncode}\n{done.stderr[-6000:]}"
    return done
