"""Computes results that moving files must not change, and compares them with the kept ones.

To rewrite the results that are kept next to this file, with pump installed:

    python tests/frozen/freeze.py [NAME ...]

A commit that changes a frozen digit gives the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / name) for name in ("support", "abi", "unit/project", "../lab/bench")]

import builds  # noqa: E402
import jobs  # noqa: E402
import numpy as np  # noqa: E402
import test_layout  # noqa: E402
import test_messages_page  # noqa: E402
from places import EXAMPLES, ROOT  # noqa: E402
from study import sim_planned, studied_policies  # noqa: E402
from trace_rows import RowMaker, random_record  # noqa: E402

from pump.policy import by_name  # noqa: E402
from pump.trace import format as form  # noqa: E402
from pump.trace import records as rec  # noqa: E402
from pump.trace.writer import TraceWriter  # noqa: E402
from pump.wire.abi import ffi, lib  # noqa: E402
from pump_lab import profiles  # noqa: E402
from pump_lab.sim import tensors  # noqa: E402
from pump_lab.sim.simulation import Machine, Outcome, run  # noqa: E402

TRACES = sorted((ROOT / "lab" / "bench" / "data" / "g10" / "ten").glob("*.json.xz"))
RATIOS = 1.1, 1.5, 2.0, 4.0
POLICIES = "demand", "window", "planned"
STUDIED = "unbounded", "correlation", "g10", "autoswap-doa", "perfect", "oracle"
"""Policies that test_frozen_papers.py covers only in the long campaigns."""
ITERATIONS = 6
STREAMS = 20


def abi() -> dict[str, int]:
    """Returns sizes and offsets of the contract's structs, and its constants."""
    found = {name: getattr(lib, name) for name in test_layout.constants()}
    for struct in test_layout.STRUCTS:
        found[struct] = ffi.sizeof(f"struct {struct}")
        for name, field in ffi.typeof(f"struct {struct}").fields:
            found[f"{struct}.{name}"] = field.offset
    return found


def messages() -> list[str]:
    """Returns the lines that the shim prints, with X for names and numbers."""
    return sorted(test_messages_page.messages())


def recordings() -> dict[str, str]:
    """Returns the SHA-256 of the recording of each generated event stream, and of the worker's
    rows. The sums cover uncompressed bytes: compression differs between versions of zlib."""
    found = {str(seed): _sum(_recording(seed, _add_events)) for seed in range(STREAMS)}
    return found | {"worker": _sum(_recording(STREAMS, _add_workers_rows))}


def _sum(data: bytes) -> str:
    found, at = hashlib.sha256(data[:16]), 16
    while at < len(data):
        frame = form.unpack_frame(data[at : at + form.FRAME_BYTES])
        at += form.FRAME_BYTES
        body = form.unpack_body(frame, data[at : at + frame.stored_bytes])
        at += frame.stored_bytes
        found.update(f"{frame.kind} {frame.rows} {len(body)} ".encode() + body)
    return found.hexdigest()


def _recording(seed: int, add: Callable[[random.Random, TraceWriter], None]) -> bytes:
    with tempfile.TemporaryFile() as file:
        writer = TraceWriter(file.fileno(), {"pump": "frozen", "seed": seed})
        add(random.Random(seed), writer)
        writer.flush()
        writer.end({"whole": True})
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _add_events(dice: random.Random, writer: TraceWriter) -> None:
    maker = RowMaker()
    for _ in range(dice.randrange(1, 2000)):
        maker.add(random_record(dice))
    writer.events(maker.made())


def _add_workers_rows(dice: random.Random, writer: TraceWriter) -> None:
    def row(group: str) -> dict[str, int]:
        fields = {n: field for n, field in form.FIELDS.items() if n.startswith(f"{group}_")}
        return {
            name.removeprefix(f"{group}_"): dice.randrange(field.limit or np.iinfo(field.dtype).max)
            for name, field in fields.items()
        }

    def columns(group: str) -> dict[str, Any]:
        rows = [row(group) for _ in range(10)]
        return {name: np.array([one[name] for one in rows], np.uint64) for name in rows[0]}

    writer.device(**(row("device") | {"uuid": dice.randbytes(16)}))
    writer.sample(rec.Sample(**row("sample")))
    writer.transfers(columns("transfer"))
    writer.reads([rec.Read(**row("read")) for _ in range(10)])
    writer.threads([rec.Threads(**row("threads")) for _ in range(10)])
    writer.lost(**row("lost"))
    writer.policy(dice.getrandbits(63), "window")
    writer.resync(dice.getrandbits(63), dice.getrandbits(63), columns("range"))


def simulated(trace: Path) -> dict[str, Any]:
    """Returns time and counters of a trace's iterations, by policy and oversubscription."""
    name = trace.name
    program = tensors.program(
        tensors.parse(trace.read_bytes(), name), "caching", ITERATIONS, discard=False
    )
    found = {}
    for ratio in RATIOS:
        machine = Machine(profiles.load("a100-pcie4"), int(program.peak_bytes / ratio))
        for policy in POLICIES:
            found[f"{policy} at {ratio}x"] = _figures(run(program, machine, by_name(policy)))
    return found


def studied() -> dict[str, Any]:
    """Returns the metrics of one trace at half of its memory under policies that were studied."""
    trace = tensors.parse(TRACES[0].read_bytes(), TRACES[0].name)
    case = sim_planned.case_of(trace, profiles.load("a100-pcie4"))
    case = case.with_memory(case.program.peak_bytes // 2)
    found = {}
    for name in STUDIED:
        policy = studied_policies.by_name(name)
        program = case.of(policy)
        assert program is not None
        found[name] = _figures(studied_policies.simulate(policy, program, case.machine))
    return found


def _figures(outcome: Outcome) -> dict[str, float]:
    counters = {key: value for key, value in outcome.whole.counters.items() if value}
    return {"seconds": outcome.whole.seconds, **counters}


PROGRAMS = {
    "mix": ("job.py", "--steps=50", "--rounds=2"),
    "churn": ("job.py", "--steps=50", "--churn"),
    "graph": ("job.py", "--steps=50", "--replays=3"),
    "sweep": (
        str(EXAMPLES / "cyclic_sweep.py"),
        "--buffers=24",
        "--buffer-mib=4",
        "--iterations=4",
    ),
}
"""Programs of 96 MiB, with arguments."""
MEMORY_MIB = 64
CALLS = re.compile(r"cu(Mem(Alloc|Free|cpy|set)|Launch|GraphLaunch)")
"""The program's own calls; pump adds no call of this kind."""


def host_kernels(folder: Path) -> None:
    """Compiles the programs' kernels so that each CPU rounds alike."""
    jobs.host_kernels("mix_kernels.c", folder)
    command = [sys.executable, str(EXAMPLES / "host_build.py"), str(folder)]
    env = {**os.environ, "CC": "cc -ffp-contract=off"}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)


def program(words: tuple[str, ...]) -> dict[str, Any]:
    """Returns a program's result in compute mode, on naive Unified Memory and under pump."""
    kernels = ":".join(str(file) for file in builds.once("frozen", host_kernels).glob("*.so"))
    with tempfile.TemporaryDirectory() as folder:
        job = jobs.Job(Path(kernels), Path(folder), words[0])

        def made(*more: str, **how: Any) -> dict[str, Any]:
            done = job.run(*words[1:], *more, memory_mib=MEMORY_MIB, **how)
            assert done.returncode == 0, done.stderr
            report = json.loads(job.report.read_text())
            calls = {call: n for call, n in report["calls"].items() if CALLS.match(call)}
            (result,) = re.findall(r"\b[0-9a-f]{64}\b", done.stdout)
            same = {key: report[key] for key in ("kernels", "operations", "graphs", "violations")}
            counters = report["counters"]
            # This counter depends on the launch times: an idle fault handler must first be woken.
            del counters["stall_fault_ns"]
            return {"result": result, "calls": calls, "counters": counters, **same}

        found = {"naive": made("--managed", env={"PUMP_DISABLE": "1"})}
        for policy in POLICIES:
            found[policy] = made(run=("--policy", policy))
            del found[policy]["counters"]  # they depend on the timing of pump
        return found


SMALL: dict[str, Callable[[], Any]] = {
    "abi": abi,
    "messages": messages,
    "recordings": recordings,
    "studied": studied,
    **{f"program_{name}": lambda words=words: program(words) for name, words in PROGRAMS.items()},
}
ALL: dict[str, Callable[[], Any]] = SMALL | {
    trace.name.removesuffix("_marginal.json.xz"): lambda trace=trace: simulated(trace)
    for trace in TRACES
}


def kept(name: str) -> Any:
    """Returns the frozen results of this name."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def as_kept(found: Any) -> Any:
    """Returns `found` after a round trip through JSON."""
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        text = json.dumps(ALL[name](), indent=1, sort_keys=True)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
