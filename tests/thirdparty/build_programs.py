"""Builds programs that no package contains: NVIDIA's CUDA samples, and RMM's C++ library and tests.

    python build_programs.py FOLDER

FOLDER is the folder that setup_thirdparty makes. All programs link the shared runtime. Samples are
built in place. A sample that does not build needs a missing library, as its build.log shows;
suites.toml has the number of built samples. RMM's programs are built in FOLDER/rmm; the exit status
is 1 if one of them fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1]).resolve()
PACKAGES = FOLDER / "site"
TOOLKIT = next((FOLDER / "frameworks/lib").glob("python3*")) / "site-packages/nvidia/cu13"
SAMPLES = FOLDER / "sources/NVIDIA/cuda-samples"
RMM = FOLDER / "sources/rapidsai/rmm/cpp"
GOOGLETEST = FOLDER / "sources/google/googletest"
BUILT = FOLDER / "rmm"
LOGGER = PACKAGES / "rapids_logger"

NVCC = [str(TOOLKIT / "bin/nvcc"), "-arch=sm_80", "-w"]
NVCC += [f"-I{PACKAGES / 'nvidia/cu13/include' / folder}" for folder in ("cccl", ".")]
LINK = ["-cudart=shared", f"-L{FOLDER / 'link'}", "-lcuda"]
SAMPLE = re.compile(r"\badd_executable\(\s*(\w+)([^)]*)\)")
TEST = re.compile(r"^ConfigureTest\((\w+)([^)]*)\)", re.MULTILINE)


def together(build: Callable[[Any], bool], parts: Iterable[Any]) -> bool:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(list(pool.map(build, parts)))


def compiled(words: list[str], folder: Path, log: Path) -> bool:
    done = subprocess.run([*NVCC, *words], cwd=folder, capture_output=True, text=True, check=False)
    with log.open("a", encoding="utf-8") as file:
        print(done.args, done.stdout, done.stderr, file=file)
    return done.returncode == 0


def samples() -> None:
    def build(lists: Path) -> bool:
        folder, text = lists.parent, lists.read_text(encoding="utf-8")
        if not (added := SAMPLE.search(text)):
            return False
        log = folder / "build.log"
        options = ["-std=c++17", f"-I{SAMPLES / 'Common'}", "-Iinc"]
        if "_kernel64.fatbin" in text:  # the sample loads this file
            for kernel in folder.glob("*_kernel.cu"):
                made = ["-fatbin", kernel.name, "-o", f"{kernel.stem}64.fatbin"]
                compiled([*options, *made], folder, log)
        options += ["-rdc=true", "-lcublas", "-lnvrtc", "-Xcompiler=-fopenmp"]
        return compiled([*options, *added[2].split(), "-o", "sample.out", *LINK], folder, log)

    together(build, SAMPLES.glob("Samples/*/*/CMakeLists.txt"))


def rmm() -> bool:
    made = BUILT / "include/rmm"
    made.mkdir(parents=True)
    macros = (LOGGER / "lib64/cmake/rapids_logger/logger_macros.hpp.in").read_text(encoding="utf-8")
    macros = macros.replace("@_RAPIDS_LOGGER_MACRO_PREFIX@", "RMM")
    macros = macros.replace("@_RAPIDS_LOGGER_DEFAULT_LOGGER@", "rmm::default_logger()")
    (made / "logger_macros.hpp").write_text(macros, encoding="utf-8")
    version = (
        "#define RMM_VERSION_MAJOR 26\n#define RMM_VERSION_MINOR 8\n#define RMM_VERSION_PATCH 0\n"
    )
    (made / "version_config.hpp").write_text(version, encoding="utf-8")
    folders = [RMM / "include", made.parent, RMM, LOGGER / "include"]
    folders += [GOOGLETEST / part for part in ("googletest", "googletest/include")]
    folders += [GOOGLETEST / part for part in ("googlemock", "googlemock/include")]
    options = ["-std=c++20", "-Xcompiler=-fPIC", *[f"-I{folder}" for folder in folders]]
    log = BUILT / "build.log"

    def piece(source: Path) -> bool:
        name = "_".join(source.relative_to(FOLDER / "sources").parts)
        return compiled([*options, "-c", str(source), "-o", f"{name}.o"], BUILT, log)

    google = ["googletest/src/gtest-all.cc", "googlemock/src/gmock-all.cc"]
    google += ["googlemock/src/gmock_main.cc"]
    library = [f"-L{LOGGER / 'lib64'}", "-lrapids_logger", *LINK]
    library += ["-Xlinker", f"-rpath={LOGGER / 'lib64'},-rpath={BUILT}"]
    if not together(piece, [*RMM.glob("src/**/*.cpp"), *(GOOGLETEST / one for one in google)]):
        return False
    parts = [str(part) for part in BUILT.glob("rapidsai_*.o")]
    if not compiled(["-shared", *parts, "-o", "librmm.so", *library], BUILT, log):
        return False
    library = ["-L.", "-lrmm", *library]

    def program(part: tuple[str, list[str]]) -> bool:
        name, words = part
        sources = [word for word in words if word.endswith((".cpp", ".cu"))]
        parts = [str(part) for part in BUILT.glob("google_*.o")]
        stream = ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"] * name.endswith("_PTDS")
        words = [*options, *stream, *(str(RMM / "tests" / one) for one in sources), *parts]
        return compiled([*words, "-o", name, *library], BUILT, log)

    lists = (RMM / "tests/CMakeLists.txt").read_text(encoding="utf-8")
    found = [(name, words.split()) for name, words in TEST.findall(lists)]
    chosen = [(name, words) for name, words in found if "STATIC" not in words]
    return together(program, [*chosen, *((f"{name}_PTDS", words) for name, words in chosen)])


samples()
sys.exit(0 if rmm() else 1)
