"""The acceptance's runner, with stages that hang, crash, babble and leave daemons running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from acceptance import running
from acceptance.contract import Context
from acceptance_fakes import make_machine, stage_run

YIELD = 'yield Item("first", PASS, values={"a_ns": 1})'


def run(folder: Path, body: str, limit_s: float = 20.0) -> dict[str, Any]:
    return stage_run(folder, body, limit_s).run(make_machine())


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in result["items"]}


def alive(pid: int) -> bool:
    """Returns whether the process runs, and not as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_stage_that_ends_well_is_complete_and_its_file_says_all(tmp_path: Path) -> None:
    result = run(tmp_path, f'{YIELD}\nyield Item("second", UNAVAILABLE, "no torch")')
    assert result["complete"]
    assert [item["status"] for item in result["items"]] == ["pass", "unavailable"]
    written = json.loads((tmp_path / "out" / "fake.json").read_text())
    assert written == result
    for key in ("schema", "stage", "date", "commit", "dirty", "host", "device", "driver", "label"):
        assert key in written
    assert written["label"] == "NVIDIA H200"


def test_a_hanging_stage_is_killed_at_its_limit_and_keeps_its_items(tmp_path: Path) -> None:
    began = time.monotonic()
    result = run(tmp_path, f"{YIELD}\ntime.sleep(600)", limit_s=2)
    assert time.monotonic() - began < 30
    found = by_name(result)
    assert found["first"]["status"] == "pass"
    assert "no end within its 2 s" in found["stage"]["reason"]
    assert not result["complete"]


def test_a_stage_that_ignores_signals_and_closes_its_pipe_is_killed_too(tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.closerange(3, 256)
while True: time.sleep(600)
yield
"""
    assert not run(tmp_path, body, limit_s=2)["complete"]


def test_a_crash_keeps_the_items_before_it_and_names_the_signal(tmp_path: Path) -> None:
    found = by_name(run(tmp_path, f"{YIELD}\nos.kill(os.getpid(), signal.SIGSEGV)"))
    assert found["first"]["status"] == "pass"
    assert "-11" in found["stage"]["reason"]


def test_an_exception_becomes_a_failed_item_that_names_it(tmp_path: Path) -> None:
    found = by_name(run(tmp_path, f'{YIELD}\nraise RuntimeError("the card is gone")'))
    assert found["stage"]["status"] == "fail"
    assert "the card is gone" in found["stage"]["reason"]
    assert "the card is gone" in (tmp_path / "out" / "fake.log").read_text()


def test_asking_for_more_memory_than_there_is_fails_nothing(tmp_path: Path) -> None:
    found = by_name(run(tmp_path, f"context.managed(5 << 30)\n{YIELD}"))
    assert found["stage"]["status"] == "unavailable"
    assert "5120 MiB of managed memory asked for" in found["stage"]["reason"]
    assert "first" not in found


def test_what_a_stage_prints_is_never_taken_for_an_item(tmp_path: Path) -> None:
    body = 'print(\'{"name": "liar", "status": "pass"}\', flush=True)\n' + YIELD
    assert list(by_name(run(tmp_path, body))) == ["first"]


@pytest.mark.parametrize("line", ["garbage", "[1]", '{"name": "x", "status": "great"}', "\\xff"])
def test_garbage_on_the_pipe_fails_and_takes_nothing_with_it(tmp_path: Path, line: str) -> None:
    body = f"""
import json
pipe = json.load(open(sys.argv[2]))["pipe"]
os.write(pipe, b'''{line}''' + b"\\n")
{YIELD}
"""
    found = by_name(run(tmp_path, body))
    assert found["stage.protocol"]["status"] == "fail"
    assert found["first"]["status"] == "pass"


def test_a_figure_that_json_cannot_carry_fails_that_item_alone(tmp_path: Path) -> None:
    body = f'yield Item("bad", INFO, values={{"a": float("nan")}})\n{YIELD}'
    result = run(tmp_path, body)
    assert by_name(result)["bad"]["status"] == "fail"
    assert by_name(result)["first"]["status"] == "pass"
    assert result["complete"]


def test_nothing_that_a_stage_started_survives_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"""
middle = os.fork()
if middle == 0:
    os.setsid()
    orphan = os.fork()
    if orphan == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execvp("sleep", ["sleep", "600"])
    open({str(pids)!r}, "a").write(f"{{orphan}}\\n")
    os._exit(0)
os.waitpid(middle, 0)
child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! >> {pids}; wait"])
time.sleep(0.5)
{YIELD}
open({str(pids)!r}, "a").write(f"{{child.pid}}\\n")
"""
    run(tmp_path, body)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 3
    assert not any(alive(pid) for pid in started)


def test_what_hides_behind_an_empty_environment_does_not_survive_either(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"""
words = ["sh", "-c", "echo $$ > {pid}; exec sleep 600"]
if os.fork() == 0:
    subprocess.Popen(words, env={{}}, start_new_session=True)
    os._exit(0)
os.wait()
time.sleep(0.5)
{YIELD}
"""
    program = f"""
import sys
sys.path[:] = {sys.path!r}
from pathlib import Path
from acceptance import processes
from acceptance_fakes import make_machine, stage_run
processes.adopt_orphans()
result = stage_run(Path({str(tmp_path)!r}), {body!r}).run(make_machine())
assert result["complete"], result
assert not processes.children()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert not alive(int(pid.read_text()))


def test_a_stage_dies_with_the_command_that_runs_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = f"""
import sys
sys.path[:] = {sys.path!r}
from pathlib import Path
from acceptance_fakes import make_machine, stage_run
body = "open({str(pid)!r}, 'w').write(str(os.getpid()))\\ntime.sleep(600)\\nyield"
stage_run(Path({str(tmp_path)!r}), body, 600).run(make_machine())
"""
    command = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    stage = int(pid.read_text())
    command.send_signal(signal.SIGKILL)
    command.wait(10)
    deadline = time.monotonic() + 60
    while alive(stage) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(stage)


def test_resuming_keeps_what_was_finished_and_asks_for_the_rest(tmp_path: Path) -> None:
    body = """
for name in ("first", "second", "third"):
    if name not in context.done:
        if name == "third" and "second" not in context.done:
            yield late("third")
        elif name == "second" and not context.done:
            yield Item(name, FAIL, "wrong")
        else:
            yield Item(name, PASS)
"""
    before = run(tmp_path, body)
    assert not before["complete"]
    again = stage_run(tmp_path, body)
    again.keep(before)
    after = again.run(make_machine())
    assert [(item["name"], item["status"]) for item in after["items"]] == [
        ("first", "pass"),
        ("second", "fail"),
        ("third", "pass"),
    ]
    assert after["complete"]
    assert after["seconds"] > before["seconds"]


def test_a_program_is_cut_off_before_its_stage_is_and_told_from_one_that_hangs(
    tmp_path: Path,
) -> None:
    def sleep(left_s: float, limit_s: float) -> running.Run:
        deadline = time.monotonic() + left_s
        context = Context(tmp_path, tmp_path, tmp_path, make_machine(), deadline=deadline)
        program = running.Program(context, ["sleep", "60"], {"PATH": os.environ["PATH"]})
        return program.finish(limit_s)

    began = time.monotonic()
    cut = sleep(running.END_S + 0.3, 60.0)
    assert cut.returncode is None
    assert cut.late
    assert time.monotonic() - began < running.END_S + 10
    hung = sleep(3600.0, 0.3)
    assert hung.returncode is None
    assert not hung.late


def test_results_do_not_tell_where_the_checkout_lies(tmp_path: Path) -> None:
    result = run(tmp_path, 'yield Item("a", FAIL, f"{context.root}/x is missing")')
    assert by_name(result)["a"]["reason"].startswith(str(tmp_path))
    assert "<checkout>/x is missing" in (tmp_path / "out" / "fake.json").read_text()
