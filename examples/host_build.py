"""Compiles kernels.cu into host functions for the virtual GPU's compute mode.

    python examples/host_build.py [FOLDER]      prints the path of the library

It needs only a C compiler ($CC, or cc). A library is reused while the sources, the compiler and
the CPU stay the same. On a real GPU, NVRTC compiles the same kernels.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_FOLDER = HERE.parent / "build" / "examples"

# No -ffast-math: it would reorder sums, and results would not be bit-identical.
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC")


class BuildError(RuntimeError):
    """The C compiler is missing or refused the kernels; the message names the reason."""


def entry_points(source: str) -> str:
    """Returns the C source of `pump_host_<kernel>` for each `KERNEL void name(...)`."""
    out = []
    for name, parameters in re.findall(r"^KERNEL void (\w+)\(([^)]*)\)", source, re.MULTILINE):
        values = []
        for i, parameter in enumerate(parameters.split(",")):
            kind = re.sub(r"\w+\s*$", "", parameter.replace("__restrict__", " ")).strip()
            values.append(f"*({' '.join(kind.split())} *)params[{i}]")
        out.append(
            f"void pump_host_{name}(void **params, const unsigned grid[3],"
            f" const unsigned block[3]);\n"
            f"void pump_host_{name}(void **params, const unsigned grid[3],"
            f" const unsigned block[3]) {{\n"
            f"  (void)grid;\n  (void)block;\n  {name}({', '.join(values)});\n}}\n"
        )
    return "\n".join(out)


def _processor() -> str:
    """Returns the CPU features that -march=native depends on."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    return "".join(line for line in text.splitlines() if line.startswith(("flags", "Features")))


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(
            f"the C compiler '{command[0]}' cannot be started ({error.strerror}): "
            "install one (Debian: apt install gcc libc6-dev) or set CC"
        ) from error
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr}")
    return done.stdout


def build(folder: Path = DEFAULT_FOLDER) -> Path:
    """Builds the library of host kernels in `folder` if needed; returns its path. Raises
    BuildError."""
    kernels = (HERE / "kernels.cu").read_text()
    header = (HERE / "host_kernels.h").read_text()
    touches = (HERE / "host_touches.c").read_text()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    state = "\0".join((kernels, header, touches, entry_points(kernels), *FLAGS))
    state += _run([*compiler, "--version"]) + _processor()
    name = f"host_kernels-{hashlib.sha256(state.encode()).hexdigest()[:16]}.so"
    library = folder / name
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        source = Path(work) / "kernels.c"
        source.write_text("\n".join((kernels, entry_points(kernels), touches)))
        made = Path(work) / name
        include = ["-include", str(HERE / "host_kernels.h"), "-x", "c", str(source)]
        _run([*compiler, *FLAGS, *include, "-o", str(made), "-lm"])
        made.rename(library)  # atomic: a concurrent build never sees a partial file
    return library


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    try:
        print(build(folder))
    except BuildError as error:
        print(f"host_build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
