"""Programs from kernel-level traces: kernels, their durations, tensors they read and write.

The format is the one of the traces converted from G10's artifact (MICRO 2023; JSON, optionally
compressed): `tensors` of {id, bytes, persistent}, `kernels` of {name, duration_us, reads, writes}.
One iteration is replayed several times, with a wait for the GPU at the end of each.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import zlib
from dataclasses import dataclass
from typing import IO, Any, Final, cast

import numpy as np

from pump.model.bounds import BLOCK_BYTES
from pump_lab.sim import deaths
from pump_lab.sim import program as form
from pump_lab.sim.allocator import BestFit
from pump_lab.sim.program import Builder, Program, ProgramError

MAPPINGS: Final = ("unique", "caching")
"""unique: each tensor has its own range. caching: a best-fit caching allocator."""

LEAST_BYTES: Final = BLOCK_BYTES // 2
"""Smaller tensors are ignored."""

ARENA_RANGE_BYTES: Final = 256 << 20
"""caching: the arena consists of ranges of this size, like a framework's segments. pump refuses to
evict from an eighth of a range that was used since its decision."""

ITERATIONS: Final = 3
LAUNCH_US: Final = 8.0

Span = deaths.Span


BYTES_MOST: Final = form.BLOCKS_MOST * BLOCK_BYTES
MOST_US: Final = form.STEP_NS_MOST / 1000
"""Limits for a tensor and for a kernel."""
JSON_BYTES_MOST: Final = 128 << 20
"""Limit for an uncompressed trace."""
UNPACKED_FREE: Final = 1 << 20
UNPACKED_PER_BYTE: Final = 64
"""Limit for the bytes of a compressed trace: a fixed number, plus some for each byte of the file.
Traces of networks have 12 per byte."""
TOUCHES_PER_BYTE: Final = 256
"""As program.TOUCHES_PER_BYTE, for compressed traces; traces of networks have 100."""
FAULT_CHARACTERS: Final = 200


@dataclass(frozen=True)
class Tensor:
    """A tensor of a trace. `persistent`: it lives through all iterations, as weights do."""

    length_bytes: int
    persistent: bool
    first: int
    """The kernel that uses the tensor first; `last` is the kernel that uses it last."""
    last: int


@dataclass(frozen=True)
class Kernel:
    """A kernel of a trace."""

    duration_ns: int
    uses: tuple[tuple[int, int], ...]
    """(tensor, access)."""
    signature: int
    """Hash of its name and its tensors' sizes, as a launch's is of function, grid, parameters."""
    pure: bool = True
    """Whether its outputs depend only on its inputs, including ignored tensors. It reads something,
    does not write its inputs or anything persistent, and no later kernel of the iteration changes
    an ignored tensor that it reads."""


@dataclass(frozen=True)
class TensorTrace:
    """One iteration."""

    name: str
    tensors: dict[int, Tensor]
    kernels: list[Kernel]

    def peak_bytes(self) -> int:
        """Returns the most bytes of tensors that live at once."""
        change = [0] * (len(self.kernels) + 1)
        lasting = 0
        for tensor in self.tensors.values():
            if tensor.persistent:
                lasting += tensor.length_bytes
                continue
            change[tensor.first] += tensor.length_bytes
            change[tensor.last + 1] -= tensor.length_bytes
        most = now = 0
        for step in change:
            now += step
            most = max(most, now)
        return lasting + most


def parse(data: bytes, source: str) -> TensorTrace:
    """Returns the trace in `data` (JSON, plain or compressed with gzip or xz).

    Raises ProgramError that names `source`.
    """
    try:
        raw = json.loads(_unpacked(data))
        return _trace(raw)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ProgramError(f"{source}: must be a recording of pump-run or a JSON trace") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ProgramError(f"{source}: unreadable trace: {error}") from None
    except KeyError as error:
        raise ProgramError(
            f"{source}: not a trace of kernels and tensors: "
            f"{str(error.args[0])[:FAULT_CHARACTERS]!r} is missing"
        ) from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        fault = " ".join(str(error)[:FAULT_CHARACTERS].split())
        raise ProgramError(f"{source}: not a trace of kernels and tensors: {fault}") from None


def _unpacked(data: bytes) -> bytes:
    """Uncompresses JSON. Raises ValueError beyond a limit, before it reads more."""
    file: IO[bytes] = io.BytesIO(data)
    most = min(JSON_BYTES_MOST, UNPACKED_FREE + UNPACKED_PER_BYTE * len(data))
    if data[:2] == b"\x1f\x8b":
        file = cast(IO[bytes], gzip.GzipFile(fileobj=file))
    elif data[:6] == b"\xfd7zXZ\0":
        file = lzma.LZMAFile(file)  # noqa: SIM115
    found = file.read(most + 1)
    if len(found) > most:
        raise ValueError(f"it exceeds {most >> 20} MiB uncompressed")
    return found


def _checked(what: str, value: float, most: float) -> float:
    if not 0 <= value <= most:
        raise ValueError(f"{what} is {value}, which is out of range")
    return value


def _trace(raw: dict[str, Any]) -> TensorTrace:
    if not isinstance(raw, dict):
        raise TypeError("it must be an object with 'tensors' and 'kernels'")
    sizes: dict[int, tuple[int, bool]] = {}
    for t in raw["tensors"]:
        number = int(t["id"])
        if number in sizes:
            raise ValueError(f"tensor {number} appears twice")
        length_bytes = _checked(f"'bytes' of tensor {number}", int(t["bytes"]), BYTES_MOST)
        sizes[number] = int(length_bytes), bool(t["persistent"])
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    kernels = []
    used = [tuple(set(map(int, k[way])) for way in ("reads", "writes")) for k in raw["kernels"]]
    changed = {tensor: number for number, (_, writes) in enumerate(used) for tensor in writes}
    for number, (kernel, (reads, writes)) in enumerate(zip(raw["kernels"], used, strict=True)):
        uses = []
        for tensor in sorted(reads | writes):
            if tensor not in sizes:
                raise ValueError(f"kernel {number} uses tensor {tensor}, which is missing")
            if sizes[tensor][0] < LEAST_BYTES:
                continue
            first.setdefault(tensor, number)
            last[tensor] = number
            access = form.READ if tensor not in writes else form.WRITE
            uses.append((tensor, access if tensor in reads else form.OVERWRITE))
        shape = kernel["name"], [(sizes[tensor][0], access) for tensor, access in uses]
        what = f"'duration_us' of kernel {number}"
        duration_ns = round(_checked(what, float(kernel["duration_us"]), MOST_US) * 1000)
        pure = bool(reads) and not reads & writes and not any(sizes[one][1] for one in writes)
        small = (one for one in reads if sizes[one][0] < LEAST_BYTES)
        pure &= all(changed.get(one, 0) <= number for one in small)
        kernels.append(Kernel(duration_ns, tuple(uses), form.signature_of(shape), pure))
    tensors = {
        tensor: Tensor(*sizes[tensor], first[tensor], last[tensor]) for tensor in sorted(first)
    }
    if not tensors:
        raise ValueError("no kernel uses a tensor of a megabyte or more")
    # For terminals and plots.
    title = "".join(c for c in f"{raw['model']} batch {raw['batch']}" if c.isprintable())
    return TensorTrace(title, tensors, kernels)


def program(
    trace: TensorTrace,
    mapping: str = "caching",
    iterations: int = ITERATIONS,
    launch_us: float = LAUNCH_US,
    *,
    discard: bool = False,
    kernels_free: int | None = None,
    touches_most: int = form.TOUCHES_MOST,
) -> Program:
    """Replays the trace.

    `mapping`: One of MAPPINGS. `launch_us`: The program's time before each launch. `discard`:
    Discards freed memory that stays free for more than `kernels_free` kernels; None:
    deaths.worth_kernels. `touches_most`: The limit of block uses in ITERATIONS iterations. Raises
    ProgramError for an unknown mapping, and as check_bounds does.
    """
    if mapping not in MAPPINGS:
        raise ProgramError(f"unknown mapping '{mapping}'; known: {', '.join(MAPPINGS)}")
    if iterations < 1:
        raise ProgramError(f"iterations must be at least 1, not {iterations}")
    layout = _unique(trace) if mapping == "unique" else _caching(trace)
    form.check_bounds(
        trace.name,
        blocks=sum(-(-length // BLOCK_BYTES) for length in layout.lengths),
        operations=len(trace.kernels) * iterations,
        # The floors take as long as ITERATIONS iterations, however few are requested.
        touches=max(iterations, ITERATIONS)
        * sum(_blocks_used(trace, kernel) for kernel in trace.kernels),
        seconds=iterations * sum(kernel.duration_ns for kernel in trace.kernels) / 1e9,
        touches_most=touches_most * max(1, -(-iterations // ITERATIONS)),
    )
    ranges, blocks = form.ranges_in_a_row(layout.lengths)
    used = [layout.uses(kernel) for kernel in trace.kernels]
    freed = {
        number: [piece for span in spans for piece in layout.pieces(span)]
        for number, spans in layout.dead.items()
        if discard
    }
    if kernels_free is None:
        kernels_free = deaths.worth_kernels(len(trace.kernels))
    if kernels_free:
        spans_used = [[use[:3] for use in uses] for uses in used]
        firsts = ranges["first_block"].tolist()
        freed = deaths.lasting(spans_used, freed, firsts, blocks, kernels_free)
    builder = Builder()
    host_ns = round(launch_us * 1000)
    for number, kernel in enumerate(trace.kernels):
        builder.operation(
            form.KERNEL,
            used[number],
            duration_ns=kernel.duration_ns,
            host_ns=host_ns,
            signature=kernel.signature,
        )
        if pieces := freed.get(number):
            builder.discard((*piece, form.OVERWRITE) for piece in pieces)
    builder.sync(mark=True)
    once, uses = builder.tables()
    start = Builder()
    for index in range(len(ranges)):
        start.alloc(index)
    start.sync()
    steps = np.concatenate((start.tables()[0], form.repeated(once, iterations)))
    facts: dict[str, Any] = {"mapping": mapping, "iterations": iterations}
    facts["steps_per_iteration"] = len(once)
    facts["bytes_mapped"] = int(ranges["length_bytes"].sum())
    return Program(trace.name, steps, uses, ranges, blocks, 1, trace.peak_bytes(), facts)


def _blocks_used(trace: TensorTrace, kernel: Kernel) -> int:
    """Returns the most blocks that a kernel can use."""
    lengths = (trace.tensors[tensor].length_bytes for tensor, _ in kernel.uses)
    return sum(length // BLOCK_BYTES + 2 for length in lengths)


@dataclass
class Layout:
    """The addresses of tensors. `dead`: by kernel, the whole spans that are free after it."""

    lengths: list[int]
    spans: dict[int, Span]
    dead: dict[int, list[Span]]
    arena: bool = False
    """Whether offsets count from the first range through all ranges."""

    def uses(self, kernel: Kernel) -> list[form.Use]:
        """Returns a kernel's uses, by ranges."""
        return [
            (*piece, access)
            for tensor, access in kernel.uses
            for piece in self.pieces(self.spans[tensor])
        ]

    def pieces(self, span: Span) -> list[Span]:
        """Returns the span, cut at the ends of an arena's ranges."""
        index, offset, length = span
        if not self.arena:
            return [span]
        found = []
        while length > 0:
            index, inside = divmod(offset, ARENA_RANGE_BYTES)
            part = min(length, ARENA_RANGE_BYTES - inside)
            found.append((index, inside, part))
            offset, length = offset + part, length - part
        return found


def _changes(trace: TensorTrace) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    allocated: dict[int, list[int]] = {}
    dead: dict[int, list[int]] = {}
    for name, tensor in trace.tensors.items():
        if not tensor.persistent:
            allocated.setdefault(tensor.first, []).append(name)
            dead.setdefault(tensor.last, []).append(name)
    return allocated, dead


def _unique(trace: TensorTrace) -> Layout:
    lengths = [tensor.length_bytes for tensor in trace.tensors.values()]
    spans = {
        name: (index, 0, tensor.length_bytes)
        for index, (name, tensor) in enumerate(trace.tensors.items())
    }
    _, dead = _changes(trace)
    whole = {
        number: [(spans[name][0], 0, -(-spans[name][2] // BLOCK_BYTES) * BLOCK_BYTES)
                 for name in names]
        for number, names in dead.items()
    }  # fmt: skip
    return Layout(lengths, spans, whole)


def _caching(trace: TensorTrace) -> Layout:
    arena = BestFit()
    spans: dict[int, Span] = {}
    for name, tensor in trace.tensors.items():
        if tensor.persistent:
            spans[name] = (0, arena.allocate(tensor.length_bytes), tensor.length_bytes)
    allocated, dead = _changes(trace)
    freed: dict[int, list[Span]] = {}
    for number in range(len(trace.kernels)):
        for name in allocated.get(number, ()):
            length = trace.tensors[name].length_bytes
            spans[name] = (0, arena.allocate(length), length)
        for name in dead.get(number, ()):
            arena.free(spans[name][1], spans[name][2])
        # Blocks at the border of a tensor are free only if their neighbours are free.
        for name in dead.get(number, ()):
            gap, size = arena.gap(spans[name][1])
            first = max(gap, spans[name][1] // BLOCK_BYTES * BLOCK_BYTES)
            end = -(-(spans[name][1] + spans[name][2]) // BLOCK_BYTES) * BLOCK_BYTES
            freed.setdefault(number, []).append((0, first, min(gap + size, end) - first))
    whole, rest = divmod(arena.end, ARENA_RANGE_BYTES)
    lengths = [ARENA_RANGE_BYTES] * whole + [rest] * (rest > 0)
    return Layout(lengths, spans, freed, arena=True)
