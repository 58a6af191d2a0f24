"""A job's last line has at most 100 characters, for any numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from executor_build import run

SAN = "address,undefined"
MOST = 100
MOVED = (
    *("lost about ", "lost under 1 % of ", "time lost to memory is unknown", " to memory at "),
    *(
        "x the budget",
        ">99x",
        " years ",
        " ms ",
        ": no pumpd served this process",
        ": this job thrashes",
        ": gained under a tenth over demand",
    ),
    *(": prefetches arrived too late", ": too little lookahead to prefetch"),
    *(": no free memory", ": the policy does not", ": waited ", ": timing mode, "),
    *(": pump saw no operation finish", "failed with status 255; ran at "),
)
OTHERS = (
    *("everything fitted on the GPU, so pump did nothing: peak 1023 bytes", " PiB of ", "GiB of"),
    *("this job allocated no GPU memory, so pump did nothing", ": timing mode, nothing was "),
    *("out of GPU memory: only partly intercepted, ", "pump's effect is unknown: "),
    *("cuInit failed with error 803: libcuda", "error 100: CUDA_VISIBLE_DEVICES names no"),
    *("error 100: the driver finds no GPU", "not intercepted, so pump did nothing: "),
    *(
        "no process of this job used CUDA, so pump did nothing: ",
        "failed with status 1; everything",
    ),
)


@pytest.mark.parametrize(
    ("scenario", "parts"),
    [
        ("the_last_lines_of_moved_memory", MOVED),
        ("the_last_lines_of_a_broken_worker", MOVED[:2]),
        ("the_other_last_lines", OTHERS),
    ],
)
def test_each_last_line_has_100_characters_at_most(
    tmp_path: Path, scenario: str, parts: tuple[str, ...]
) -> None:
    log = tmp_path / "log"  # a file; a pipe could be full
    run(SAN, scenario, {"PUMP_LOG_FILE": str(log)})
    lines = log.read_text().splitlines()
    assert len(lines) > 100 and all(line.startswith("pump: ") for line in lines)
    assert max(lines, key=len)[MOST:] == ""
    assert [line for line in lines if "..." in line or "nan" in line or "inf " in line] == []
    assert [part for part in parts if not any(part in line for line in lines)] == []


def test_a_gain_is_little_up_to_a_tenth_of_what_was_missed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(
        SAN,
        "a_gain_is_little_up_to_a_tenth_of_what_was_missed",
        {"PUMP_LOG_FILE": str(log), "PUMP_LOG_LEVEL": "error"},
    )
    results = [line for line in log.read_text().splitlines() if "failed with" not in line]
    assert ["gained" in line for line in results] == [True, True, False, False, True]


def test_a_name_stands_before_the_line_and_is_not_counted() -> None:
    name = "a name of 64 characters, the longest that a job of pump can have"
    assert len(name) == 64
    plain = run(SAN, "the_summary_of_an_active_job").stderr
    named = run(SAN, "the_summary_of_an_active_job", {"PUMP_NAME": name}).stderr
    assert named == plain.replace("pump: ", f"pump: [{name}] ")


def test_quiet_leaves_errors_alone_on_stderr(tmp_path: Path) -> None:
    quiet = {"PUMP_QUIET": "1", "PUMP_LOG_LEVEL": "debug"}
    assert run(SAN, "the_summary_of_an_active_job", quiet).stderr == ""
    found = run(SAN, "the_log_levels_are_respected", quiet).stderr
    assert "this is an error" in found and "warning" not in found and "info" not in found
    log = tmp_path / "log"  # gets every line of its level
    done = run(SAN, "the_summary_of_an_active_job", quiet | {"PUMP_LOG_FILE": str(log)})
    assert done.stderr == "" and "pump: lost about 52 %" in log.read_text()
