"""Stage "failures": kills and refusals, and what they leave on the machine.

Checks invariants 2, 3 and 4. A job whose worker, pumpd or both are killed under load ends with the
same bits. A limit appears to the program as its own out-of-memory error, and pump prints what to
change. A killed job leaves no trace, also on the GPU.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from acceptance import machine, processes, running
from acceptance.comparing import COMPUTE, LEAST_S, TORCH_NEEDS, not_here, unclean
from acceptance.contract import FAIL, MIB, PASS, UNAVAILABLE, Context, Item, Json, late
from acceptance.running import Program, Run

NAME = "failures"
LIMIT_S = 45.0
WHAT = "kill -9 of worker and pumpd under load, limits, jobs that are killed: nothing is left"

PROGRAMS = Path(__file__).with_name("programs")
BUFFERS, BUFFER_MIB = 16, 4
FOOTPRINT_BYTES = BUFFERS * BUFFER_MIB * MIB
BUDGET_BYTES = FOOTPRINT_BYTES // 2
LIMIT_BYTES = 40 * MIB
STEP_MS = 5.0
ROUNDS, ROUNDS_QUICK = 90, 50
SLOWEST = 4.0
"""The job counts as hung beyond this multiple of the time that its sleeps take."""
START_S = 20.0
RUN_LIMIT_S = 45.0
MEMORY_TOLERANCE_BYTES = 64 * MIB
"""Tolerance for the GPU's used memory: contexts of other processes come and go."""
TORCH_GREEDY = (
    "import torch\n"
    "kept = []\n"
    "try:\n"
    "    for _ in range(64): kept.append(torch.zeros(4 << 20, device='cuda'))\n"
    "except torch.cuda.OutOfMemoryError as error:\n"
    "    print('out of memory as its own exception')\n"
)
RUNTIME_BASE = "from pump.base import paths; print(paths.runtime_base())"

Killed = Callable[[str], bool]
"""Returns whether a process of that name is to be killed."""


def run(context: Context) -> Iterator[Item]:
    context.managed(4 * FOOTPRINT_BYTES)
    before = _look(context)
    pids: list[int] = []
    yield from _kills(context, pids)
    yield from _limits(context)
    yield from _signals(context, pids)
    yield from _afterwards(context, before, pids)


def _words(context: Context, sleep_ms: float) -> list[str]:
    rounds = ROUNDS_QUICK if context.quick else ROUNDS
    words = [sys.executable, str(PROGRAMS / "use_cuda_bindings.py")]
    words += [f"--buffers={BUFFERS}", f"--mib={BUFFER_MIB}", f"--rounds={rounds}"]
    return [*words, f"--sleep-ms={sleep_ms}"]


def _start(context: Context, limit_bytes: int | None = None) -> Program:
    return running.start(
        context,
        _words(context, STEP_MS),
        budget_bytes=BUDGET_BYTES,
        limit_bytes=limit_bytes,
        settings=COMPUTE,
    )


# ---- kill -9 -----------------------------------------------------------------


def _kills(context: Context, pids: list[int]) -> Iterator[Item]:
    """Runs three jobs at once and kills different processes of each."""
    victims: dict[str, Killed] = {
        "kill.worker": lambda name: name == "pumpd-worker",
        "kill.pumpd": lambda name: name.startswith(("python", "pumpd")) and name != "pumpd-worker",
        "kill.both": lambda name: name.startswith(("python", "pumpd")),
    }
    todo = [name for name in victims if name not in context.done]
    if not todo:
        return
    if context.left_s() < LEAST_S:
        yield from map(late, todo)
        return
    plain = running.plain(context, _words(context, 0.0), settings=COMPUTE, limit_s=RUN_LIMIT_S)
    if not plain.ok or plain.result() is None:
        yield from (not_here(name, plain, context.machine) for name in todo)
        return
    jobs = {name: _start(context) for name in todo}
    pids += [job.pid for job in jobs.values()]
    # Kill one job after the other while all run; a job is under load after it prints "running".
    killed = {name: _kill(context, job, victims[name]) for name, job in jobs.items()}
    for name, job in jobs.items():
        done = job.finish(RUN_LIMIT_S)
        yield kill_verdict(name, plain, done, killed[name], _longest_s(context))


def _kill(context: Context, job: Program, victim: Killed) -> list[str]:
    """Kills as soon as pumpd's worker exists; returns the names of the killed processes."""
    deadline = time.monotonic() + min(START_S, context.left_s())
    job.wait_for_output("running", START_S)
    while time.monotonic() < deadline and job.popen.poll() is None:
        there = _names(job)
        if "pumpd-worker" in there.values():
            victims = {pid: name for pid, name in there.items() if victim(name)}
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            return sorted(victims.values())
        time.sleep(0.02)
    return []


def _names(job: Program) -> dict[int, str]:
    """Returns the kernel's names of the job's other processes, by process id."""
    found = {}
    for pid in job.processes():
        if pid != job.pid:
            try:
                found[pid] = (processes.PROC / str(pid) / "comm").read_text().strip()
            except OSError:
                continue
    return found


def _longest_s(context: Context) -> float:
    rounds = ROUNDS_QUICK if context.quick else ROUNDS
    return START_S + SLOWEST * rounds * BUFFERS * STEP_MS / 1e3


def kill_verdict(name: str, plain: Run, done: Run, killed: list[str], longest_s: float) -> Item:
    """Returns PASS for the same bits in bounded time, if pump reports the loss of its worker."""
    losses = (done.summary or {}).get("worker_losses", 0)
    attaches = (done.summary or {}).get("shim", {}).get("attaches", 0)
    values: dict[str, Json] = {
        "killed": killed,
        "run_s": round(done.seconds, 3),
        "worker_losses": losses,
        "attaches": attaches,
    }
    before, after = plain.result(), done.result()
    lost_worker = "pumpd-worker" in killed
    if done.late:
        reason = done.trouble()
    elif not killed:
        reason = "no worker of pumpd ever served the job: nothing was killed"
    elif not done.ok or after is None:
        reason = f"the job did not survive: {done.trouble() or 'it told no result'}"
    elif before is None or before["sha256"] != after["sha256"]:
        reason = "other bits than without pump"
    elif done.seconds > longest_s:
        reason = f"it took {done.seconds:.1f} s, {longest_s:.1f} are enough"
    elif lost_worker and (losses == 0 or "worker died" not in done.stderr):
        reason = "its worker was killed and pump's line does not say so"
    else:
        reason = unclean(done)
    if reason:
        return Item(name, FAIL, reason, {**values, **done.evidence()})
    return Item(name, PASS, values=values)


# ---- limits ------------------------------------------------------------------


def _limits(context: Context) -> Iterator[Item]:
    if "limit.driver" not in context.done:
        if context.left_s() < LEAST_S:
            yield late("limit.driver")
        else:
            done = _start(context, LIMIT_BYTES).finish(RUN_LIMIT_S)
            yield limit_verdict("limit.driver", done, 9, "CUDA_ERROR_OUT_OF_MEMORY")
    if "limit.torch" not in context.done:
        yield _limit_torch(context)


def _limit_torch(context: Context) -> Item:
    name = "limit.torch"
    if "torch" not in context.machine.packages:
        return Item(name, UNAVAILABLE, "torch is not installed here")
    if context.left_s() < LEAST_S:
        return late(name)
    words = [sys.executable, "-c", TORCH_GREEDY]
    plain = running.plain(context, words, environ=TORCH_NEEDS, limit_s=RUN_LIMIT_S)
    if not plain.ok:
        return not_here(name, plain, context.machine)
    done = running.pumped(
        context,
        words,
        budget_bytes=BUDGET_BYTES,
        limit_bytes=LIMIT_BYTES,
        environ=TORCH_NEEDS,
        limit_s=RUN_LIMIT_S,
    )
    return limit_verdict(name, done, 0, "out of memory as its own exception")


def limit_verdict(name: str, done: Run, returncode: int, said: str) -> Item:
    """Returns PASS if the program saw its own out-of-memory error and pump printed the remedy."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("pump: out of memory")]
    values: dict[str, Json] = {"returncode": done.returncode, "pump_said": lines[:1]}
    if done.returncode != returncode or said not in done.stdout + done.stderr:
        reason = (
            f"not refused as the program's own out of memory: {done.trouble() or 'it ended well'}"
        )
    elif not lines:
        reason = "refused without a line of pump's"
    elif "--limit" not in lines[0] and "PUMP_LIMIT" not in lines[0]:
        reason = f"the line names no remedy: {lines[0]}"
    elif f"{LIMIT_BYTES // MIB} MiB" not in lines[0]:
        reason = f"the line does not name the limit: {lines[0]}"
    else:
        reason = unclean(done)
    if reason:
        return Item(name, FAIL, reason, {**values, **done.evidence()})
    return Item(name, PASS, values=values)


# ---- the job itself is killed ------------------------------------------------


def _signals(context: Context, pids: list[int]) -> Iterator[Item]:
    for number in (signal.SIGTERM, signal.SIGKILL):
        name = f"signal.{number.name.lower()}"
        if name in context.done:
            continue
        if context.left_s() < LEAST_S:
            yield late(name)
            continue
        job = _start(context)
        pids.append(job.pid)
        running_now = job.wait_for_output("running", START_S)
        if running_now:
            os.kill(job.pid, number)
        done = job.finish(RUN_LIMIT_S)
        yield signal_verdict(name, done, -number, running_now)


def signal_verdict(name: str, done: Run, returncode: int, was_running: bool) -> Item:
    """Returns PASS if that signal ended the job and the job left no trace."""
    if not was_running:
        reason = f"the job never ran: {done.trouble()}"
    elif done.returncode != returncode:
        how = done.trouble() if done.returncode is None else f"it ended with {done.returncode}"
        reason = f"{how}, not by the signal"
    else:
        reason = unclean(done)
    values: dict[str, Json] = {"returncode": done.returncode, "run_s": round(done.seconds, 3)}
    if reason:
        return Item(name, FAIL, reason, {**values, **done.evidence()})
    return Item(name, PASS, values=values)


# ---- afterwards --------------------------------------------------------------


def _look(context: Context) -> dict[str, Json]:
    """Returns the GPU's used memory (None on the virtual GPU) and the files of shared memory."""
    used: int | None = None
    if not context.machine.virtual:
        card = machine.ask_card(running.environment(context, {}))
        if "error" not in card:
            used = card.get("used_bytes", card["total_bytes"] - card["free_bytes"])
    shm = Path("/dev/shm")
    names = sorted(path.name for path in shm.iterdir()) if shm.is_dir() else []
    return {"used_bytes": used, "shared_memory": names}


def _afterwards(context: Context, before: dict[str, Json], pids: list[int]) -> Iterator[Item]:
    # A killed pumpd could not clean up; the next pumpd does when it starts.
    facts = Path(__file__).with_name("card_facts.py")
    running.pumped(context, [sys.executable, str(facts)], limit_s=START_S)
    after = _look(context)
    command = running.pump_command(context.root, "-c", RUNTIME_BASE)
    asked = running.tool(context, command, limit_s=20)
    base = Path(asked.stdout.strip() or "/nonexistent")
    folders = [path.name for path in base.iterdir()] if asked.ok and base.is_dir() else []
    left = [name for name in folders if name.partition("-")[0] in map(str, pids)]
    new = sorted(set(after["shared_memory"]) - set(before["shared_memory"]))
    new = [name for name in new if "pump" in name]
    reason = f"left behind: {', '.join([*left, *new])}" if left or new else ""
    values = {"jobs": len(pids), "sockets_left": left, "shared_memory_left": new}
    yield Item("clean.files", FAIL if reason else PASS, reason, values)
    yield memory_verdict(before["used_bytes"], after["used_bytes"])


def memory_verdict(before: int | None, after: int | None) -> Item:
    """Returns PASS if the GPU's used memory grew by at most MEMORY_TOLERANCE_BYTES."""
    name = "clean.memory"
    if before is None or after is None:
        why = "the virtual GPU's memory is its process's own, or the card does not tell"
        return Item(name, UNAVAILABLE, why)
    values = {"before_bytes": before, "after_bytes": after}
    grown = after - before
    if grown > MEMORY_TOLERANCE_BYTES:
        return Item(name, FAIL, f"{grown >> 20} MiB more are used than before", values)
    return Item(name, PASS, values=values)
