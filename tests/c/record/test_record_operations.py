"""From hooks to events: parameters, extents, signatures, capture, loss, under a sanitizer."""

import re
from pathlib import Path

import pytest
from c_build import build, run

SOURCES = ["event", "launch_params", "stream_ref", "range_table", "launch", "copy", "copy_nd"]
SOURCES += ["globals", "stream", "graph", "graph_memory", "graph_read", "block_map"]
SOURCES += ["allocator_blocks", "function", "tensor", "tensor_map", "vmm", "array", "plain"]
SOURCES += ["array_bytes", "physical", "graph_execs", "copy_extents", "managed_variables"]
SOURCES += ["capture", "pointer_scan", "ranges", "send_metadata", "pointer_answers"]
SOURCES += ["code_loading", "large_launches"]
PROGRAMS = ["launches", "operations", "signatures", "copies", "graphs"]
PROGRAMS += ["arrays", "first_launches", "reported_blocks", "tensor_maps", "vmm_handles"]


def text_of(program: str) -> str:
    return (Path(__file__).parent / f"{program}.c").read_text()


def scenarios(program: str) -> list[str]:
    return re.findall(r"SCENARIO\((\w+)\),", text_of(program))


@pytest.mark.parametrize(
    ("program", "scenario"), [(name, s) for name in PROGRAMS for s in scenarios(name)]
)
def test_operations_are_reported(program: str, scenario: str) -> None:
    sources = [f"{name}.c" for name in SOURCES]
    run(build("address,undefined", program, *sources, harness=True), scenario)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_scenario_is_left_out(program: str) -> None:
    functions = re.findall(r"^static void (\w+)\(void\) \{", text_of(program), re.M)
    assert functions and set(functions) == set(scenarios(program))
