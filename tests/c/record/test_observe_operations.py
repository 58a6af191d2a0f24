"""From hooks to events: parameters, extents, signatures, capture, loss, under a sanitizer."""

import re
from pathlib import Path

import pytest
from observe_build import build, run

SOURCES = ["event", "params", "place", "range", "launch", "copy"]
SOURCES += ["copy_nd", "globals", "stream", "graph", "graph_memory", "graph_read"]
SOURCES += ["blocks", "function", "tensor", "vmm", "array", "plain"]
PROGRAMS = [
    "observe_launches",
    "observe_operations",
    "observe_signatures",
    "observe_copies",
    "observe_graphs",
]
PROGRAMS += ["observe_array", "observe_blocks", "observe_tensor", "observe_vmm"]


def text_of(program: str) -> str:
    return (Path(__file__).parent / f"{program}.c").read_text()


def scenarios(program: str) -> list[str]:
    return re.findall(r"SCENARIO\((\w+)\),", text_of(program))


@pytest.mark.parametrize(
    ("program", "scenario"), [(name, s) for name in PROGRAMS for s in scenarios(name)]
)
def test_operations_are_reported(program: str, scenario: str) -> None:
    sources = ["block_map.c", "capture.c", "pointer_scan.c", "ranges.c"]
    sources += ["send_metadata.c", "tensor.c"]
    sources += [f"observe_{name}.c" for name in SOURCES]
    run(build("address,undefined", program, *sources, harness=True), scenario)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_scenario_is_left_out(program: str) -> None:
    functions = re.findall(r"^static void (\w+)\(void\) \{", text_of(program), re.M)
    assert functions and set(functions) == set(scenarios(program))
