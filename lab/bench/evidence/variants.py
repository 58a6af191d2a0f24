"""Libraries of the worker and the simulator with edited sources.

Each variant has its own folder, which PUMP_LIB_DIR can name. Only files whose text or headers
differ from earlier variants are compiled.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from evidence.mechanisms import Edit, TableError
from harness import ROOT, UnavailableError, child

CORE: Final = ("daemon/core/**/*.c",)
LAB: Final = ("lab/gpu/*.c", "lab/simulate/*.c", "shim/execute/adapt.c")
HEADERS: Final = (
    "daemon/core/**/*.h",
    "lab/**/*.h",
    "lab/**/*.def",
    "shim/**/*.h",
)
READ: Final = {
    "pump": ("pump_abi.h", "pump_core.h", "operation.h", "learner.h", "model.h", "extents.h"),
    "pump_lab": ("uvm_profile.h", "gpu_engine.h", "sim.h"),
}
"""Headers that Python reads (pump/wire/abi.py, lab/pump_lab/abi.py)."""
FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing",
                "-fno-math-errno", "-D_GNU_SOURCE", "-DPUMP_LAB_EXPORT")  # fmt: skip


class Builder:
    """Builds variants below a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises UnavailableError if there is no C compiler."""
        self.folder = folder
        self.compiler = shlex.split(os.environ.get("CC", "cc"))
        if shutil.which(self.compiler[0]) is None:
            raise UnavailableError(f"no C compiler '{self.compiler[0]}'")
        self.core, self.lab = texts(CORE), texts(LAB)
        self.headers = texts(HEADERS)

    def key(self, edits: Iterable[Edit]) -> str:
        """Returns a name for a variant, made from its sources. Raises TableError."""
        core, lab, headers = self._edited(edits)
        return name_of(FLAGS, *({**core, **lab, **headers}).items())

    def _edited(self, edits: Iterable[Edit]) -> tuple[dict[str, str], ...]:
        found = tuple(map(dict, (self.core, self.lab, self.headers)))
        for edit in edits:
            holders = [texts for texts in found if edit.file in texts]
            if not holders:
                raise TableError(f"{edit.file} is no source of the simulator")
            holders[0][edit.file] = edit.apply(holders[0][edit.file])
        return found

    def built(self, edits: Iterable[Edit]) -> Path:
        """Returns pump/_lib of the variant, which is built if needed. Raises TableError and
        MeasurementError."""
        core, lab, headers = self._edited(edits)
        made = self.folder / "libs" / self.key(edits)
        if made.is_dir():
            return made / "pump" / "_lib"
        draft = made.with_name(f".{made.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        here = {name: draft / name / "_lib" for name in READ}
        for name, wanted in READ.items():
            (here[name] / "include").mkdir(parents=True)
            for path, text in headers.items():
                if Path(path).name in wanted:
                    (here[name] / "include" / Path(path).name).write_text(text)
        library = here["pump"] / "libpump_core.so"
        self._link(library, self._objects(core, headers), "-lm")
        rpath = "-Wl,-rpath,$ORIGIN/../../pump/_lib"
        lab_library = here["pump_lab"] / "libpump_lab.so"
        self._link(lab_library, self._objects(lab, headers), str(library), "-lm", rpath)
        try:
            draft.rename(made)
        except OSError:  # another process has built it in the meantime
            shutil.rmtree(draft)
        return made / "pump" / "_lib"

    def _objects(self, sources: Mapping[str, str], headers: Mapping[str, str]) -> list[Path]:
        common = name_of(FLAGS, self.compiler, *headers.items())
        objects = self.folder / "objects"
        tree = self.folder / f"tree.{os.getpid()}"
        objects.mkdir(parents=True, exist_ok=True)
        found = []
        try:
            for path, text in sources.items():
                made = objects / f"{name_of(common, path, text)}.o"
                found.append(made)
                if made.exists():
                    continue
                if not tree.is_dir():
                    _write(tree, {**headers, **sources})
                draft = made.with_suffix(f".{os.getpid()}")
                includes = ["-I", str(tree), "-I", str(tree / "shim" / "include")]
                source = str(tree / path)
                child([*self.compiler, *FLAGS, *includes, "-c", source, "-o", str(draft)])
                draft.rename(made)
        finally:
            shutil.rmtree(tree, ignore_errors=True)
        return found

    def _link(self, made: Path, objects: Iterable[Path], *more: str) -> None:
        name = f"-Wl,-soname,{made.name}"
        child([*self.compiler, "-shared", name, *map(str, objects), *more, "-o", str(made)])


def texts(patterns: Iterable[str]) -> dict[str, str]:
    """Returns the text of the repository's matching files, by path."""
    paths = sorted({path for pattern in patterns for path in ROOT.glob(pattern)})
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def _write(tree: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)


def name_of(*parts: object) -> str:
    """Returns a name that depends only on these parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
