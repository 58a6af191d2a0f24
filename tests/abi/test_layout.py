"""The Python mirror of the ABI matches the layout that the C compiler computes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from places import ROOT

from pump.config.schema import Service
from pump.model import bounds
from pump.wire.abi import HEADERS, SHM_BYTES, contract, ffi, lib

ROOMS = ("", "/extents", "/model", "/predict")
INCLUDE = [Path("shim/include"), *(Path(f"daemon/core{room}") for room in ROOMS), Path()]
STRUCTS = [
    "pump_hello",
    "pump_welcome",
    "pump_header",
    "pump_device",
    "pump_progress",
    "pump_range",
    "pump_extent",
    "pump_params",
    "pump_event",
    "pump_command",
    "pump_executors_sleep",
    "pump_entry",
    "pump_schedule",
    "pump_entry_end",
    "pump_prediction",
    "pump_shim_counters",
    "pump_worker_counters",
    "pump_shm",
    "pump_batch",
    "pump_model_bounds",
    "pump_model_device",
    "pump_model_tally",
    "pump_model_totals",
    "pump_slices",
    "pump_block_info",
    "pump_range_blocks",
    "pump_access",
    "pump_operation",
    "pump_predicted",
    "pump_learner_step",
    "pump_learner_log",
    "pump_learner_report",
    "pump_lost",
]


def constants() -> list[str]:
    """Returns the names of all constants (#define) in the parts of the headers that cffi reads."""
    names = []
    for header in HEADERS:
        folder = next(f for f in INCLUDE if (ROOT / f / header).exists())
        for line in contract(ROOT / folder / header).splitlines():
            if line.startswith("#define "):
                names.append(line.split()[1])
    return names


def ask_the_compiler(tmp_path: Path, expressions: list[str]) -> dict[str, int]:
    """Evaluates integer expressions over the headers with a compiled program."""
    prints = "\n".join(
        f'  printf("%llu\\n", (unsigned long long)({expression}));' for expression in expressions
    )
    includes = "\n".join(f'#include "{header}"' for header in HEADERS)
    source = tmp_path / "ask.c"
    source.write_text(f"#include <stdio.h>\n{includes}\nint main(void) {{\n{prints}\n}}\n")
    program = tmp_path / "ask"
    flags = [f"-I{ROOT / folder}" for folder in INCLUDE]
    subprocess.run(["cc", "-std=c11", *flags, "-o", program, source], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, output.split()), strict=True))


def test_sizes_and_offsets_of_every_struct_agree_with_the_compiler(tmp_path: Path) -> None:
    mirror: dict[str, int] = {}
    for struct in STRUCTS:
        mirror[f"sizeof(struct {struct})"] = ffi.sizeof(f"struct {struct}")
        for name, field in ffi.typeof(f"struct {struct}").fields:
            mirror[f"offsetof(struct {struct}, {name})"] = field.offset
            member = f"sizeof(((struct {struct} *)0)->{name})"
            mirror[member] = ffi.sizeof(field.type)
    assert ask_the_compiler(tmp_path, list(mirror)) == mirror


def test_constants_agree_with_the_compiler(tmp_path: Path) -> None:
    names = constants()
    assert len(names) > 50
    mirror = {name: getattr(lib, name) for name in names}
    assert ask_the_compiler(tmp_path, names) == mirror


def test_bounds_that_python_needs_without_the_library_are_those_of_c() -> None:
    assert bounds.RESERVE_PERCENT == lib.PUMP_RESERVE_PERCENT
    assert f"{bounds.RESERVE_PERCENT}%" == Service().reserve
    assert bounds.without_reserve(1000) == 970


def test_every_struct_of_the_contract_is_checked() -> None:
    text = "".join(
        contract(ROOT / folder / header)
        for header in HEADERS
        for folder in INCLUDE
        if (ROOT / folder / header).exists()
    )
    declared = {
        line.split()[1]
        for line in text.splitlines()
        if line.startswith("struct pump_") and "{" in line
    }
    assert declared == set(STRUCTS)


def test_the_mapping_is_as_large_as_the_header_says() -> None:
    assert ffi.sizeof("struct pump_shm") == SHM_BYTES
    assert SHM_BYTES % 4096 % 64 == 0


def test_a_header_without_marks_is_refused(tmp_path: Path) -> None:
    header = tmp_path / "plain.h"
    header.write_text("#define X 1\n")
    with pytest.raises(ValueError, match="no part between"):
        contract(header)
