"""Builds the executors and what they rest on with a fake driver, once per sanitizer.

Not a test. The program takes the name of a scenario; see executor_harness.h.
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
"""What of shim/ is under test; hooks_absent.h and the harness stand for the rest."""
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
    """Compiles everything under `sanitizer`; returns the program."""
    name = f"executor-{sanitizer.replace(',', '-')}"
    return builds.once(name, lambda folder: _compile(sanitizer, folder / "executor")) / "executor"


def _compile(sanitizer: str, program: Path) -> None:
    shim = ROOT / "shim"
    sources = [file for name in SOURCES for file in sorted(shim.glob(name))]
    sources += [file for name in TESTS for file in sorted((ROOT / "tests" / "c").glob(name))]
    # case_table.c waits in front of a close.
    cc(sanitizer, *compiled(sanitizer, sources), "-pthread", "-Wl,--wrap=close", "-o", program)
    # Attach replaces the memory while all threads use it, on purpose, and ThreadSanitizer
    # takes the mmap itself for a write. It also takes a number for one descriptor of the process,
    # but the link thread has a table of its own.
    suppressed = [
        "race:^pump_attach$",
        *(f"race_top:^__interceptor_{call}$" for call in ON_DESCRIPTORS),
    ]
    program.with_name("suppressions").write_text("\n".join(suppressed) + "\n")


def run(
    sanitizer: str, scenario: str, env: dict[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Runs one scenario to its end; fails on a failed check, a sanitizer's report or a hang."""
    command = [str(build(sanitizer)), scenario]
    # ThreadSanitizer of older compilers cannot place its shadow under full ASLR.
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
