"""cuda-bindings: the driver API from Python, with kernels of examples/."""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
sys.path.insert(0, str(EXAMPLES))

import workload  # noqa: E402
from gpu import Gpu, GpuError  # noqa: E402

MIB = 1 << 20


def main() -> int:
    """Sweeps over buffers; may sleep between operations, so that it can be interrupted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--buffers", type=int, default=16)
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--sleep-ms", type=float, default=0.0)
    options = parser.parse_args()
    size = options.mib * MIB
    try:
        gpu = Gpu(workload.KERNELS, managed=False)
        addresses = [gpu.allocate(size) for _ in range(options.buffers)]
        values = [[ctypes.c_void_p(at), ctypes.c_int(size // 4)] for at in addresses]
        for number, pair in enumerate(values):
            fill = [*pair, ctypes.c_uint(number + 1), ctypes.c_float(1)]
            gpu.launch("init_uniform", fill, size // 4)()
        launches = [gpu.launch("sweep", [*pair, ctypes.c_int(2)], size // 4) for pair in values]
        for number in range(options.rounds):
            for launch in launches:
                launch()
                time.sleep(options.sleep_ms / 1e3)
            if number == 0:
                gpu.synchronise()
                print("running", flush=True)
        result = workload.sha256(gpu, ((at, size) for at in addresses))
        gpu.close()
    except GpuError as error:
        print(f"GpuError: {error}", file=sys.stderr)
        return 9
    print(json.dumps({"sha256": result}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
