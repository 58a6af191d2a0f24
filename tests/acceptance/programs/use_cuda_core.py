"""cuda-core: NVIDIA's object interface, its default memory resource and launcher."""

from __future__ import annotations

from typing import Any

import common
import numpy as np

SOURCE = f"""
extern "C" __global__ void mix(int *values, int count) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned old = at < count ? (unsigned)values[at] : 0u;
  if (at < count) values[at] = (int)(old * {common.MULTIPLIER}u + {common.ADDEND}u);
}}
"""
THREADS = 256


def module() -> Any:
    try:
        from cuda import core

        if hasattr(core, "Device"):
            return core
    except ImportError:
        pass
    from cuda.core import experimental

    return experimental


def main() -> None:
    core = module()
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    options = core.ProgramOptions(arch=f"sm_{device.arch}")
    mix = core.Program(SOURCE, "c++", options).compile("cubin").get_kernel("mix")
    resource = core.LegacyPinnedMemoryResource()
    config = core.LaunchConfig(grid=-(-common.COUNT // THREADS), block=THREADS)
    buffers, hosts = [], []
    for number in range(common.ARRAYS):
        host = resource.allocate(common.COUNT * 4, stream=stream)
        view = np.from_dlpack(host).view(np.int32)
        view[:] = common.start(number)
        buffer = device.allocate(common.COUNT * 4, stream=stream)
        buffer.copy_from(host, stream=stream)
        buffers.append(buffer)
        hosts.append((host, view))
    for _ in range(common.rounds()):
        for buffer in buffers:
            core.launch(stream, config, mix, buffer, np.int32(common.COUNT))
    for buffer, (host, _) in zip(buffers, hosts, strict=True):
        buffer.copy_to(host, stream=stream)
    stream.sync()
    common.tell(common.sha256(view for _, view in hosts))


if __name__ == "__main__":
    main()
