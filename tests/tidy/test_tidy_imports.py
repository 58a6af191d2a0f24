"""Imports have one direction: pumpd uses pump; cli uses everything; all use base.

The graph comes from the imports, except for imports that are only for types. Code that decides does
no I/O: model and policy import no module that could.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tidy_sources import ROOT, imports, name, python_files, text

# Each layer and the layers of pump that it may import. Layers that are missing here may not be
# imported; each new folder, and each module of pump.base, needs an entry.
LAYERS: dict[str, set[str]] = {
    "base.names": set(),
    "base.nvml": set(),
    "base.console": set(),
    "base.inputs": set(),
    "base.folders": {"base.names", "base.trust"},
    "base.outputs": {"base.names"},
    "base.processes": set(),
    "base.paths": {"base.trust"},
    "base.schemas": set(),
    "base.trust": set(),
    "config": {"base.paths", "base.names", "base.folders", "base.inputs", "base.outputs"},
    "wire": {"base.names", "base.paths", "base.trust", "base.inputs"},
    "measure": {"base.names", "report"},
    "model": {"wire"},
    "policy": {"model", "wire"},
    "trace": {"base.names", "wire", "model", "base.inputs", "base.outputs", "base.nvml"},
    "report": {"trace", "model", "config", "base.names"},
    "frameworks": {"config"},
    "api": {"control"},
    "recompute": {"api"},
    "control": {"base.paths", "wire"},
    "service": {"wire", "base.paths"},
    "start": set(),
}

IO_MODULES = {
    *("os", "io", "sys", "socket", "select", "selectors", "subprocess", "threading", "signal"),
    *("multiprocessing", "asyncio", "concurrent", "time", "mmap", "ctypes", "cffi", "fcntl"),
    *("pathlib", "shutil", "tempfile", "logging", "struct", "random", "secrets", "psutil"),
    *("pynvml", "cuda"),
}


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "pump" or parts[1:] in ([], ["base"]):
        return None
    return ".".join(parts[1:3]) if parts[1] == "base" else parts[1]


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_imports_only_what_lies_below_it(layer: str) -> None:
    allowed = LAYERS[layer] | {layer, "__version__"}
    where = f"pump/{layer.replace('.', '/')}"
    for path in python_files(f"{where}/", f"{where}.py"):
        used = {layer_of(module) for module in imports(path)} - {None}
        assert used <= allowed, f"{name(path)} imports pump.{', pump.'.join(used - allowed)}"


def test_every_folder_of_pump_has_its_layer() -> None:
    found = {layer_of(module) for module in modules("pump", "pump")}
    assert found - {None, "cli"} == set(LAYERS)


@pytest.mark.parametrize("layer", ["model", "policy"])
def test_what_decides_imports_no_io(layer: str) -> None:
    for path in python_files(f"pump/{layer}/"):
        used = {module.split(".")[0] for module in imports(path)} & IO_MODULES
        assert not used, f"{name(path)} imports {', '.join(sorted(used))}"


def test_pump_never_imports_its_daemon() -> None:
    for path in python_files("pump/"):
        used = {module for module in imports(path) if module.split(".")[0] == "pumpd"}
        assert not used, f"{name(path)} imports {used}"


def test_product_code_imports_no_test_tools_and_tests_no_scripts() -> None:
    for path in python_files("pump/", "daemon/"):
        assert {"pytest", "unittest"}.isdisjoint(imports(path)), name(path)


# Each part of pump_lab and the parts below it.
LAB: dict[str, set[str]] = {
    "paths": set(),
    "tables": set(),
    "abi": {"paths"},
    "profiles": {"tables"},
    "floor": set(),
    "sim": {"tables", "abi", "profiles", "floor"},
    "cli": {"paths", "profiles", "sim"},
    "register": {"cli"},
}


@pytest.mark.parametrize("part", LAB)
def test_each_part_of_the_laboratory_imports_only_what_lies_below_it(part: str) -> None:
    for path in python_files(f"lab/pump_lab/{part}/", f"lab/pump_lab/{part}.py"):
        used = {m.split(".")[1] for m in imports(path) if m.startswith("pump_lab.")}
        assert used <= LAB[part] | {part}, f"{name(path)} imports pump_lab.{used - LAB[part]}"


def test_every_file_of_the_laboratory_lies_in_a_part() -> None:
    places = {name(path).split("/")[2].removesuffix(".py") for path in python_files("lab/pump_lab")}
    assert places == {*LAB, "__init__"}


def test_one_file_of_the_product_knows_the_laboratory() -> None:
    """Only that file names pump_lab, without an import statement: it is loaded only on request."""
    for path in python_files("pump/", "daemon/"):
        assert "pump_lab" not in {module.split(".")[0] for module in imports(path)}, name(path)
        assert name(path) == "pump/cli/lab.py" or "pump_lab" not in text(path), name(path)


# Each part of pumpd and the parts that it may import; `main` and `__main__` may use all.
PUMPD: dict[str, set[str]] = {
    "common": set(),
    "worker": {"common"},
    "lease": {"common"},
    "job": {"common", "lease", "worker"},
    "service": {"common"},
}


@pytest.mark.parametrize("part", PUMPD)
def test_each_part_of_pumpd_imports_only_what_lies_below_it(part: str) -> None:
    for path in python_files(f"daemon/pumpd/{part}/"):
        used = {m.split(".")[1] for m in imports(path, at_run_time=True) if m.startswith("pumpd.")}
        assert used <= PUMPD[part] | {part}, f"{name(path)} imports pumpd.{used - PUMPD[part]}"


def test_every_file_of_pumpd_lies_in_a_part() -> None:
    places = {name(path).split("/")[2].removesuffix(".py") for path in python_files("daemon/pumpd")}
    assert places == {*PUMPD, "__init__", "__main__", "main"}


def modules(folder: str, package: str) -> dict[str, Path]:
    """Returns the files of a package by the full names of their modules."""
    found = {}
    for path in python_files(f"{folder}/"):
        words = (package, *path.relative_to(ROOT / folder).with_suffix("").parts)
        found[".".join(words).removesuffix(".__init__")] = path
    return found


def test_no_module_imports_itself_through_others() -> None:
    known = modules("pump", "pump") | modules("daemon/pumpd", "pumpd")
    sorter = TopologicalSorter(
        {one: imports(path, at_run_time=True) & set(known) - {one} for one, path in known.items()}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' imports '.join(reversed(error.args[1]))}") from None


def test_folders_import_each_other_in_no_circle() -> None:
    """Compares folders of two levels, such as `pump/wire`, and `pump/` for files directly in it."""
    known = modules("pump", "pump") | modules("daemon/pumpd", "pumpd")
    known |= modules("lab/pump_lab", "pump_lab")
    folders = {one: "/".join(name(path.parent).split("/")[:2]) for one, path in known.items()}
    graph: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for one, path in known.items():
        used = {folders[module] for module in imports(path) & set(known)}
        graph[folders[one]] |= used - {folders[one]}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' imports '.join(reversed(error.args[1]))}") from None


def test_only_workers_import_numpy_or_cffi_in_pumpd() -> None:
    for path in python_files("daemon/pumpd/"):
        if path.parent.name != "worker":
            heavy = {m for m in imports(path) if m.split(".")[0] in {"numpy", "cffi"}}
            assert not heavy, f"{name(path)} imports {heavy}"
            assert "pump.wire.abi" not in imports(path), name(path)
