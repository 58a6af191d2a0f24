"""The readers of callgrind's dumps and perf's files (lab/bench/study/instructions.py)."""

from __future__ import annotations

import pytest
from study import instructions

DUMP = """# callgrind format
positions: line
events: Ir
ob=(1) /lib/libtorch.so
fl=(1) a.cpp
fn=(1) step
10 100
+2 50
cob=(2) /x/libcuda.so.1
cfn=(2) cuLaunchKernel
calls=3 20
+1 900
cfn=(3) other
calls=1 5
* 40
-3 7

ob=(2)
fn=(2)
30 600
cob=(3) /x/libpump.so
cfi=(9) pool.c
cfn=(4) pump_pool_piece
calls=2 1
31 280
cfn=(5) inside
calls=2 1
32 20
33 5

ob=(3)
fn=(4)
40 200
cob=(4) libc.so.6
cfn=(6) lock
calls=2 1
+1 80

ob=(4)
fn=(6)
50 80
ob=(1)
fn=(3)
60 40
"""


def test_a_dump_tells_instructions_of_libraries_and_of_what_they_call() -> None:
    dump = instructions.of_callgrind(DUMP.splitlines())
    assert dump.own == {
        "/lib/libtorch.so": 197,
        "/x/libcuda.so.1": 605,
        "/x/libpump.so": 200,
        "libc.so.6": 80,
    }
    assert dump.called["/lib/libtorch.so", "/x/libcuda.so.1"] == 900
    assert dump.called["/x/libcuda.so.1", "/x/libpump.so"] == 280
    assert dump.called["/x/libcuda.so.1", "/x/libcuda.so.1"] == 20
    assert dump.without("libcuda.so.1") == 197, "the lock was the driver's affair, too"
    assert dump.without("nothing") == 1082


def test_what_is_no_dump_is_refused() -> None:
    with pytest.raises(ValueError, match="callgrind"):
        instructions.of_callgrind(["events: Cycles", "10 5"])


def test_perfs_file_tells_one_number() -> None:
    text = "# started on Mon\n\n123456,,instructions:u,1000,100.00,,\n"
    assert instructions.of_perf(text) == 123456
    with pytest.raises(ValueError, match="nothing"):
        instructions.of_perf("<not supported>,,instructions:u,0,100.00,,\n")
