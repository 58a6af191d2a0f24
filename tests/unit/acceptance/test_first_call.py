"""scripts/first_call: steps are bounded and independent, and results survive a kill."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance import machine, processes
from acceptance import main as acceptance_main
from acceptance.first_call import here, main, steps
from acceptance.first_call.call import Call, EarlierError, Told
from acceptance.first_call.steps import GIB
from places import ROOT

HANGS = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    work = tmp_path / "work"
    work.mkdir()
    return Call(ROOT, work, tmp_path / "out", seconds=60, managed_bytes=GIB)


def packed(call: Call) -> dict[str, bytes]:
    with tarfile.open(call.out / "results.tar.gz") as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]


def test_a_step_that_raises_hangs_or_is_missing_costs_no_other(call: Call) -> None:
    def raises(_call: Call) -> Told:
        raise RuntimeError("no luck")

    def hangs(call: Call) -> Told:
        return {"verdict": "late", "status": call.run("hangs", HANGS, 1.0)}

    def missing(call: Call) -> Told:
        return {"verdict": "fail", "status": call.run("missing", ["/nonexistent/tool"], 1.0)}

    began = time.monotonic()
    for step in (raises, hangs, missing):
        call.step(step.__name__, step)
    call.step("last", lambda _call: {"verdict": "pass"})
    assert time.monotonic() - began < 10
    assert call.steps["raises"]["why"] == "RuntimeError: no luck"
    assert call.steps["hangs"]["status"] is None and call.steps["missing"]["status"] == 127
    assert call.steps["last"]["verdict"] == "pass"
    files = packed(call)
    assert json.loads(files["steps.json"]) == call.steps
    assert b"/nonexistent/tool" in files["missing.log"]
    assert len(list(call.out.iterdir())) <= 8


def test_nothing_that_a_step_started_outlives_it(call: Call) -> None:
    """The daemon has a session and a mark of its own and ignores SIGTERM, like the pumpd of a
    program that a stage runs."""
    daemon = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    code = (
        "import os, subprocess, sys\n"
        f"os.environ[{processes.PROGRAM_MARK!r}] = 'another'\n"
        f"daemon = [sys.executable, '-c', {daemon!r}]\n"
        "started = subprocess.Popen(daemon, stdout=subprocess.PIPE, start_new_session=True)\n"
        "print(started.stdout.readline().decode(), flush=True)"
    )
    assert call.run("daemon", [sys.executable, "-c", code], 5.0) == 0
    assert not processes.title(int((call.work / "daemon.log").read_text()))


def test_without_time_a_step_is_not_begun(call: Call) -> None:
    call.seconds = 1.0
    call.step("proof", lambda _call: pytest.fail("begun"))
    assert call.steps["proof"] == {"verdict": "late", "why": "no time left in this call"}


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from acceptance.first_call.call import Call
call = Call(Path({root!r}), Path({work!r}), Path({out!r}), seconds=600, managed_bytes=0)
(call.work / "first.json").write_text("x" * 1000000)
for number in range(1000):
    call.step(f"step{{number}}", lambda _call: {{"verdict": "pass"}})
"""


def test_whenever_it_is_killed_each_file_is_whole(call: Call) -> None:
    names = {"root": ROOT, "tests": ROOT / "tests", "work": call.work, "out": call.out}
    code = KILLED.format(**{name: str(path) for name, path in names.items()})
    chance = random.Random(5)
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
        while not (call.out / "results.tar.gz").exists():
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
        process.kill()
        process.wait()
        found = json.loads((call.out / "steps.json").read_text())
        assert found and all(told["verdict"] == "pass" for told in found.values())
        assert json.loads(packed(call)["steps.json"])
        assert len(list(call.out.iterdir())) <= 8


def test_an_earlier_call_is_gone_on_with(call: Call, tmp_path: Path) -> None:
    (call.work / "first.json").write_text("{}")
    call.step("facts", lambda _call: {"verdict": "info"})
    work = tmp_path / "later"
    work.mkdir()
    later = Call(ROOT, work, tmp_path / "out2", seconds=60, managed_bytes=GIB)
    later.take_over("it", (call.out / "results.tar.gz").read_bytes())
    assert later.steps["earlier.facts"]["verdict"] == "info"
    assert (work / "first.json").read_text() == "{}"


def test_the_archive_of_an_earlier_call_may_be_in_the_folder_that_is_emptied(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call.step("facts", lambda _call: {"verdict": "info"})
    monkeypatch.setattr(main, "WORK", tmp_path / "card")
    (tmp_path / "card" / "out").mkdir(parents=True)
    earlier = (call.out / "results.tar.gz").rename(tmp_path / "card" / "out" / "results.tar.gz")
    words = ["B", "--from", str(earlier), "--out", str(tmp_path / "elsewhere")]
    later = main.prepare(main.parse(words))
    assert later.steps["earlier.facts"]["verdict"] == "info"
    later.close()


def archive(path: Path, member: tarfile.TarInfo, data: bytes = b"") -> Path:
    with tarfile.open(path, "w:gz") as made:
        made.addfile(member, io.BytesIO(data))
    return path


def hostile(kind: str, path: Path) -> Path:
    member = tarfile.TarInfo("../outside" if kind == "escape" else "steps.json")
    if kind == "text":
        path.write_text("no archive")
        return path
    if kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    if kind == "list":
        data = b"[1]"
        member.size = len(data)
        return archive(path, member, data)
    if kind == "cut":
        archive(path, member)
        path.write_bytes(path.read_bytes()[:40])
        return path
    if kind == "large":
        member.size = 1 << 40
        path.write_bytes(member.tobuf() + bytes(1024))
        return path
    return archive(path, member)


@pytest.mark.parametrize("kind", ["text", "escape", "link", "list", "cut", "large", "empty"])
def test_a_hostile_archive_is_refused_with_a_line(call: Call, tmp_path: Path, kind: str) -> None:
    with pytest.raises(EarlierError, match=r"is no archive of an earlier call"):
        call.take_over("it", hostile(kind, tmp_path / "it").read_bytes())
    assert call.steps == {} and not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("free_gib", "share"),
    [
        (80.0, (1.5, True)),
        (9.0, (1.5, True)),
        (7.5, (1.125, True)),
        (6.9, (5.4, False)),
        (2.5, (1.0, False)),
        (2.4, (0.0, False)),
        (0.0, (0.0, False)),
    ],
)
def test_on_ones_own_card_others_keep_theirs_and_a_gibibyte(
    free_gib: float, share: tuple[float, bool]
) -> None:
    most, at_once = here.share(int(free_gib * GIB))
    assert (pytest.approx(most / GIB), at_once) == share
    together = (most + here.CONTEXT_BYTES) * (here.PROGRAMS_AT_ONCE if at_once else 1)
    assert not most or together <= min(8 * GIB, (free_gib - 1) * GIB)


def test_what_people_send_names_neither_secrets_nor_them(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do-not-tell")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    steps.facts(call)
    text = (call.work / "facts.log").read_text()
    assert "do-not-tell" not in text and "CUDA_VISIBLE_DEVICES=0" in text


def test_paths_and_the_name_of_the_machine_are_not_in_what_people_send(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "alices-desktop")
    call.virtual = "h200-pcie5"
    assert here.plan(call) == ""
    (call.work / "first.json").write_text(f'["{Path.home()}/x", "{ROOT}/y", "alices-desktop"]')
    (call.work / "run.pump").write_bytes(b"a recording with its command line")
    call.step("one", lambda _call: {"verdict": "fail", "why": f"{ROOT}/scripts"})
    files = packed(call)
    assert json.loads(files["first.json"]) == ["home/x", "checkout/y", "machine"]
    assert json.loads(files["steps.json"])["one"]["why"] == "checkout/scripts"
    assert (call.out / "first.json").read_bytes() == files["first.json"]
    assert "run.pump" not in files


class Asked:
    """Records the command that a step would run."""

    def __init__(self, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[str] = []
        monkeypatch.setattr(call, "run", self.run)

    def run(self, _name: str, words: list[str], _limit_s: float, _more: object = None) -> int:
        self.words = words
        return 0


def test_under_gvisor_what_holds_there_alone_is_left_out(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, call.gvisor = Asked(call, monkeypatch), True
    for step in (steps.decoder, steps.acceptance("speed", 60)):
        assert step(call)["verdict"] == "unavailable" and not asked.words
    steps.probe("first", steps.DECIDING, 60)(call)
    assert "symbols" in asked.words and "tma" in asked.words
    assert not set(steps.GVISOR_CHANGES) & set(asked.words)


def test_stages_leave_to_others_what_the_call_keeps(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, call.virtual = Asked(call, monkeypatch), "h200-pcie5"
    assert here.plan(call) == ""
    steps.acceptance("bits", 60)(call)
    given = asked.words[asked.words.index("--keep-free") + 1]
    assert int(given) << 20 == here.KEPT_BYTES
    card = {"name": "a GPU", "total_bytes": 4 * GIB, "free_bytes": 3 * GIB}
    monkeypatch.setattr(machine, "ask_card", lambda *_: card)
    monkeypatch.setattr(machine, "driver_loads", lambda: True)
    assert acceptance_main.look(None, call.work, 1 * GIB).free_bytes == 2 * GIB


@pytest.mark.parametrize("free_gib", [3, 80])
def test_no_program_may_have_more_than_its_share(
    call: Call, monkeypatch: pytest.MonkeyPatch, free_gib: int
) -> None:
    call.managed_bytes, call.side_by_side = here.share(free_gib * GIB)
    asked = Asked(call, monkeypatch)
    runs: list[tuple[Callable[[Call], Told], str]]
    runs = [(steps.decoder, "--limit"), (steps.probe("first", ("tma",), 60), "--max-managed")]
    for step, option in runs:
        step(call)
        given = int(asked.words[asked.words.index(option) + 1])
        assert 0 < given <= min(4 * GIB, call.managed_bytes)


def test_bad_arguments_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, said in (
        ([], "name one of A, B, --here and --adopt"),
        (["A", "--here"], "name one of"),
        (["C"], "invalid choice"),
        (["A", "--seconds", "5"], "--seconds must lie between"),
        (["B", "--from", str(tmp_path / "none")], "there is no file"),
        (["A", "--out", str(main.WORK)], "--out must not be"),
    ):
        with pytest.raises(SystemExit) as ended:
            main.main(words)
        assert ended.value.code == 2 and said in capsys.readouterr().err


def test_without_libraries_the_probe_is_asked_and_the_proof_gives_no_verdict(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PUMP_LIB_DIR", str(tmp_path))
    assert steps.proof(call)["verdict"] == "unavailable"
    asked = Asked(call, monkeypatch)
    steps.probe("first", steps.DECIDING, 60)(call)
    assert "scripts/gpu_probe" in asked.words


def test_the_driver_is_kept_awake_until_the_last_step_and_no_longer(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that has opened the device keeps the driver awake: here with a fake pynvml."""
    (tmp_path / "pynvml.py").write_text(
        "def nvmlInit(): pass\nnvmlDeviceGetHandleByIndex = print\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    kept: list[bool] = []

    def step(call: Call) -> Told:
        end = time.monotonic() + 10
        while "first_init_s" not in (call.work / "keeper.json").read_text():
            assert time.monotonic() < end
        kept.append(bool(keepers(call)))
        return {"verdict": "pass"}

    call.virtual = "h200-pcie5"
    main.run(call, (("one", step), ("two", step)))
    assert kept == [True, True] and not keepers(call)


def keepers(call: Call) -> list[int]:
    """Returns the processes that this call keeps running, found by their runtime folder."""
    return processes.marked("XDG_RUNTIME_DIR", call.runtime)
