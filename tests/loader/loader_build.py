"""Builds libpump.so, the fake driver and the client programs of this folder.

Not a test. The available C compiler compiles all files into one temporary folder per test session;
programs run in fresh processes.
"""

import functools
import os
import re
import subprocess
from pathlib import Path

import builds

HERE = Path(__file__).parent
SHIM = HERE.parents[1] / "shim"
INCLUDES = [f"-I{SHIM.parent}", f"-I{SHIM / 'include'}"]
OLD_LACKS = (
    *("cuMemcpyBatchAsync*", "cuGraphInstantiateWithParams*", "cuCtxCreate_v4", "cuMemPool*"),
    "cuMemAdvise_v2",
)
"""Functions that the driver in the folder "old" lacks."""


def compile_c(output: Path, *arguments: str | Path) -> Path:
    """Runs the C compiler; returns `output`."""
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g1"]
    command += [*INCLUDES, *map(str, arguments), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def shim_sources() -> list[Path]:
    """Returns the sources of libpump.so, as the build lists them."""
    listed = re.findall(r"^\s+([\w/]+\.c)\)?$", (SHIM / "CMakeLists.txt").read_text(), re.M)
    assert len(listed) > 20, listed
    return [SHIM / name for name in listed]


@functools.cache
def built() -> Path:
    """Returns the folder with all built files."""
    return builds.once("loader", _make)


def _make(folder: Path) -> None:
    library = ["-shared", "-fPIC", "-fvisibility=hidden"]
    compile_c(
        folder / "libpump.so",
        *library,
        "-fno-strict-aliasing",
        "-ftls-model=initial-exec",
        "-Wl,--no-undefined",
        "-Wl,-z,now",
        "-Wl,-Bsymbolic-functions",
        *shim_sources(),
        "-lpthread",
        "-ldl",
    )
    driver_parts = (
        *library,
        "-Wl,-soname,libcuda.so.1",
        "-Wl,-Bsymbolic",  # its table has its own functions, not our exports
        HERE / "fake_driver.c",
        HERE / "fake_work.c",
    )
    (folder / "driver").mkdir()
    driver = compile_c(folder / "driver" / "libcuda.so.1", *driver_parts)
    (folder / "old").mkdir()
    hidden = folder / "old" / "lacking.map"
    hidden.write_text("{ local: " + " ".join(f"{name};" for name in OLD_LACKS) + " };")
    compile_c(folder / "old" / "libcuda.so.1", *driver_parts, f"-Wl,--version-script={hidden}")
    compile_c(folder / "plugin.so", *library, HERE / "plugin.c", "-ldl")
    compile_c(folder / "constructor.so", *library, "-DCONSTRUCT", HERE / "plugin.c", "-ldl")
    compile_c(folder / "stubs.so", *library, "-DSTUBS", HERE / "plugin.c", "-ldl")
    compile_c(folder / "interposer.so", *library, HERE / "interposer.c", "-ldl")
    compile_c(folder / "client_routes", HERE / "client_routes.c", "-ldl")
    compile_c(folder / "client_direct", "-w", "-DDIRECT", HERE / "client_routes.c", driver, "-ldl")
    compile_c(folder / "client_error", HERE / "client_error.c", driver, "-ldl", "-pthread")
    compile_c(folder / "client_life", HERE / "client_life.c", "-ldl", "-pthread")
    compile_c(folder / "client_next", HERE / "client_next.c", driver)
    hook = compile_c(folder / "hook.so", *library, HERE / "hook.c", "-ldl")
    compile_c(folder / "client_hooked", HERE / "client_hooked.c", driver, "-ldl")
    compile_c(
        folder / "client_needing",
        HERE / "client_hooked.c",
        f"-Wl,-rpath,{folder}",
        hook,
        driver,
        "-ldl",
    )
    compile_c(folder / "client_memory", HERE / "client_memory.c", driver)
    compile_c(folder / "client_rules", HERE / "client_rules.c", driver, "-ldl")
    for name in ("libnccl.so.2", "libmpi.so.40", "libuct_cuda.so.0", "libother.so"):
        compile_c(folder / name, *library, HERE / "caller.c")


def environment(
    extra: dict[str, str],
    *,
    pump: bool = True,
    driver: bool | str = True,
    preload: tuple[str, ...] = (),
) -> dict[str, str]:
    """Returns a client's environment. `driver`: whether there is one, or the name of its folder."""
    folder = built()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PUMP_", "LD_", "FAKE_"))}
    before = [name for name in preload if name.startswith("<")]
    after = [name for name in preload if not name.startswith("<")]
    names = [n[1:] for n in before] + (["libpump.so"] if pump else []) + after
    env["LD_PRELOAD"] = " ".join(str(folder / name) for name in names)
    if driver:
        env["LD_LIBRARY_PATH"] = str(folder / (driver if isinstance(driver, str) else "driver"))
    env["PLUGIN"] = str(folder / "plugin.so")
    return env | extra


def run_client(
    name: str, *arguments: str, env: dict[str, str] | None = None, timeout_s: float = 30
) -> subprocess.CompletedProcess[str]:
    """Runs a client to its end; `env` comes from environment()."""
    return subprocess.run(
        [built() / name, *arguments],
        env=environment({}) if env is None else env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
