"""Computes what moving files must not change, and compares it with what is kept beside this file.

    python tests/frozen/freeze.py [NAME ...]     (in an environment where pump is installed)

rewrites what is kept. A commit that changes a frozen digit says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / name) for name in ("support", "abi", "unit/project")]

import test_layout  # noqa: E402
import test_messages_page  # noqa: E402
from places import ROOT  # noqa: E402
from trace_rows import RowMaker, random_record  # noqa: E402

from pump.policy import by_name  # noqa: E402
from pump.trace import format as form  # noqa: E402
from pump.trace.writer import TraceWriter  # noqa: E402
from pump.wire.abi import ffi, lib  # noqa: E402
from pump_lab import profiles  # noqa: E402
from pump_lab.sim import tensors  # noqa: E402
from pump_lab.sim.simulation import Machine, run  # noqa: E402

TRACES = sorted((ROOT / "benchmarks" / "data" / "g10" / "ten").glob("*.json.xz"))
RATIOS = 1.1, 1.5, 2.0, 4.0
POLICIES = "demand", "window", "planned"
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
    """Returns the SHA-256 of the recording of each made-up event stream, before compression, which
    differs between versions of zlib."""
    return {str(seed): _sum(_recording(seed)) for seed in range(STREAMS)}


def _sum(data: bytes) -> str:
    found, at = hashlib.sha256(data[:16]), 16
    while at < len(data):
        frame = form.unpack_frame(data[at : at + form.FRAME_BYTES])
        at += form.FRAME_BYTES
        body = form.unpack_body(frame, data[at : at + frame.stored_bytes])
        at += frame.stored_bytes
        found.update(f"{frame.kind} {frame.rows} {len(body)} ".encode() + body)
    return found.hexdigest()


def _recording(seed: int) -> bytes:
    dice, maker = random.Random(seed), RowMaker()
    for _ in range(dice.randrange(1, 2000)):
        maker.add(random_record(dice))
    with tempfile.TemporaryFile() as file:
        writer = TraceWriter(file.fileno(), {"pump": "frozen", "seed": seed})
        writer.events(maker.made())
        writer.flush()
        writer.end({"whole": True})
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


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
            outcome = run(program, machine, by_name(policy))
            counters = {key: value for key, value in outcome.whole.counters.items() if value}
            found[f"{policy} at {ratio}x"] = {"seconds": outcome.whole.seconds, **counters}
    return found


SMALL: dict[str, Callable[[], Any]] = {
    "abi": abi,
    "messages": messages,
    "recordings": recordings,
}
ALL: dict[str, Callable[[], Any]] = SMALL | {
    trace.name.removesuffix("_marginal.json.xz"): lambda trace=trace: simulated(trace)
    for trace in TRACES
}


def kept(name: str) -> Any:
    """Returns what is frozen under this name."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def as_kept(found: Any) -> Any:
    """Returns `found` as it is when it has been written and read again."""
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        text = json.dumps(ALL[name](), indent=1, sort_keys=True)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
