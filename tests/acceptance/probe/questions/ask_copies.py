"""Question: how small and large copies affect managed memory."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from probe.driver import BLOCK, KIB, MIB, TO_HOST, call, timed
from probe.figures import Json, gbps, median, now, rounded, us
from probe.gpu import Gpu, peek
from probe.registry import Notes, question

MEMSET_BLOCKS = 32
PINNED_SIZES = (4 * KIB, MIB, 64 * MIB)


@question(40, "whether .item()-sized copies move pages; what copies on absent memory cost")
def ask_small_copies(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    blocks = MEMSET_BLOCKS
    length = blocks * BLOCK
    address, plain, sink = gpu.written(length, 4), gpu.plain(length), gpu.plain(BLOCK)
    call("cuMemsetD8Async", plain, 0, length, gpu.stream)
    gpu.sync()
    host = ctypes.create_string_buffer(64)
    targets = {"pageable": ctypes.addressof(host), "pinned": gpu.pinned(4 * KIB)}
    chain = gpu.chain(address, BLOCK, blocks, sink)

    def chain_us() -> Json:
        return {"per_block_us": rounded(gpu.kernel_ns(chain) / blocks / 1e3)}

    gpu.move(address, length, 0)
    gpu.kernel_ns(chain)
    out["chain_when_resident"] = chain_us()
    gpu.move(address, length, TO_HOST)
    out["chain_when_on_host"] = chain_us()
    for start, to in (("resident", 0), ("on_host", TO_HOST)):
        for kind, target in targets.items():
            for call_name in ("cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"):
                gpu.move(address, length, to)
                samples = []
                for block in range(blocks):
                    at = address + block * BLOCK
                    pair = (target, at) if call_name == "cuMemcpyDtoH_v2" else (at, target)
                    samples.append(timed(call_name, *pair, 4))
                out[f"{call_name.removesuffix('_v2')}_{start}_{kind}"] = {
                    "copy_us": us(samples),
                    "chain_afterwards": chain_us(),
                }
    out["cuMemcpyDtoH_plain_device"] = {
        kind: us(timed("cuMemcpyDtoH_v2", target, plain + i * BLOCK, 4) for i in range(blocks))
        for kind, target in targets.items()
    }
    gpu.move(address, length, 0)
    peek_ns = []
    for block in range(blocks):
        begin = now()
        peek(address + block * BLOCK)
        peek_ns.append(now() - begin)
    out["cpu_load_resident"] = {"load_us": us(peek_ns), "chain_afterwards": chain_us()}
    large_copies(gpu, out, address, plain, length)


@question(30, "whether copies from pinned memory are slower to managed memory that is resident")
def ask_pinned_copies(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    most = PINNED_SIZES[-1]
    host, places = gpu.pinned(most), {"managed": gpu.written(most), "plain": gpu.plain(most)}
    for size in PINNED_SIZES:
        for name in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"):
            spent: dict[str, list[int]] = {kind: [] for kind in places}
            for _ in range(8 if size == most else 60):  # alternate, so that both see the same clock
                for kind, address in places.items():
                    pair = (address, host) if "HtoD" in name else (host, address)
                    start = now()
                    call(name, *pair, size, gpu.stream)
                    gpu.sync()
                    spent[kind].append(now() - start)
            row: Json = {f"{kind}_us": us(samples[2:]) for kind, samples in spent.items()}
            managed, plain = (median(spent[kind][2:]) for kind in ("managed", "plain"))
            row["managed_over_plain"] = rounded(managed / plain)
            out[f"{name.removesuffix('Async_v2')}_{size // KIB}_kib"] = row


def large_copies(gpu: Gpu, out: Notes, address: int, plain: int, length: int) -> None:
    """Measures copies and memsets of whole buffers on resident and on absent managed memory."""
    operations: dict[str, tuple[Any, ...]] = {
        "cuMemsetD8Async": (address, 1, length, gpu.stream),
        "cuMemcpyDtoDAsync_v2": (plain, address, length, gpu.stream),
    }
    for name, args in operations.items():
        for start, to in (("resident", 0), ("on_host", TO_HOST)):
            samples = []
            for _ in range(5):
                gpu.move(address, length, to)
                samples.append(gpu.between_events(functools.partial(call, name, *args)))
            out[f"{name}_{start}"] = {"us": us(samples), "gbps": gbps(length, median(samples))}
