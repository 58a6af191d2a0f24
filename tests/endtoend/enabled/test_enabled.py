"""Programs without the pump-run prefix: programs that match a rule are served, others run as
without pump (docs/guides/enable.md)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pumpds
import pytest
from job import expected
from jobs import BIN, MIB
from other_users import ATTACKER, needs_root, serving
from places import PROGRAMS, ROOT

from pump_lab import profiles
from pump_lab.paths import library

SHAPE = {"buffers": 12, "mib": 8, "steps": 90, "seed": 5}
WORDS = [f"--{name}={value}" for name, value in SHAPE.items()]
CARD_MIB = 64
OUT_OF_MEMORY = 9
"""Exit status of job.py when its 96 MiB do not fit."""
RULE = '[match]\nexecutable = "python*"\ncommand = "*job.py*"\n'


TUTORIALS_RULE = (
    (ROOT / "docs" / "guides" / "enable.md")
    .read_text()
    .partition("```toml\n")[2]
    .partition("```")[0]
)


class User:
    """A user with a home, a session, and a virtual GPU in its environment."""

    def __init__(self, home: Path, session: Path, kernels: Path) -> None:
        self.home = home
        self.session = session
        self.rules = home / ".config" / "pump" / "jobs.d"
        self.compiled = home / ".config" / "pump" / "jobs.compiled"
        self.report = home / "report.json"
        self.activator = 0
        """Process id of `pumpd jobs`, if it listens."""
        settings = {"device.memory_bytes": str(CARD_MIB * MIB), "mode": "compute"}
        driver = str(Path(library("virtual/libcuda.so.1")).parent)
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PUMP_", "XDG_")) or name == "PUMP_LIB_DIR"
        }
        self.environ = {
            **clean,
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(session),
            "LD_LIBRARY_PATH": driver,
            "PUMP_SERVICE": "none",
            "PUMP_NEIGHBOURS": "none",
            "PUMP_VIRTUAL_PROFILE": profiles.load("a100-pcie4").flatten(settings),
            "PUMP_VIRTUAL_KERNELS": str(kernels),
            "PUMP_VIRTUAL_REPORT": str(self.report),
        }

    def pump(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [str(BIN / "pump"), *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def enable(self, rule: str | None = RULE) -> None:
        """Writes a rule, enables pump, and starts a session with the snippet of `pump enable`."""
        if rule is not None:
            self.rules.mkdir(parents=True, exist_ok=True)
            (self.rules / "training.toml").write_text(rule)
        self.pump("enable")
        shell = f". {self.home}/.config/pump/profile.sh; env -0"
        told = subprocess.run(
            ["sh", "-c", shell], env=self.environ, capture_output=True, timeout=30, check=True
        )
        lines = [line for line in told.stdout.split(b"\0") if b"=" in line]
        self.environ = {
            os.fsdecode(name): os.fsdecode(value)
            for name, value in (line.split(b"=", 1) for line in lines)
        }

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command or [sys.executable, str(PROGRAMS / "job.py"), *WORDS],
            env={**self.environ, **more},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def untouched(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode == OUT_OF_MEMORY, done.stderr
        assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout

    def served(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == expected(**SHAPE)


@pytest.fixture
def user(kernels: Path, tmp_path: Path) -> Iterator[User]:
    session = Path(tempfile.mkdtemp(prefix="pump-session-"))  # short, for sockets
    yield User(tmp_path, session, kernels)
    shutil.rmtree(session, ignore_errors=True)


@pytest.fixture
def activated(user: User) -> Iterator[User]:
    """Plays the user's service manager for pump: `pumpd jobs` listens."""
    process = subprocess.Popen(
        [str(BIN / "pumpd"), "jobs"], env=user.environ, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None and "starting pumpds" in process.stderr.readline()
    user.activator = process.pid
    yield user
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert not (user.session / "pump" / "jobs").exists()


def test_a_program_whose_first_thread_has_ended_is_served(activated: User) -> None:
    activated.enable()
    job = [sys.executable, str(PROGRAMS / "job.py"), *WORDS, "--thread", "--sleep-ms=25"]
    done = activated.run(*job, PUMP_SUMMARY=str(activated.home / "summary.json"))
    activated.served(done)
    figures = json.loads((activated.home / "summary.json").read_text())
    assert figures["worker"]["operations"] > 0


def test_a_program_that_a_rule_matches_is_served_by_its_own_pumpd(activated: User) -> None:
    activated.enable(TUTORIALS_RULE)
    script = str(PROGRAMS / "region_job.py")
    done = activated.run(sys.executable, script, *WORDS)
    activated.served(done)
    facts = json.loads(done.stdout.splitlines()[-2])
    assert facts["policies"] == ["planned", "planned", "demand", "planned", "planned"]
    assert facts["operations"] > 0
    assert facts["counted"] == 1
    assert facts["summary"].startswith("pump: policy planned; GPU 0: ")
    assert json.loads(activated.report.read_text())["violations"] == 0
    folders = activated.session / "pump"
    assert pumpds.wait_for(lambda: [one.name for one in folders.iterdir()] == ["jobs"], 30)


def test_a_program_that_no_rule_matches_is_as_without_pump(activated: User) -> None:
    activated.enable('[match]\ncommand = "*other.py*"\n')
    done = activated.run()
    activated.untouched(done)
    assert done.stderr == ""
    said = activated.pump("doctor", "--virtual", "a100-pcie4", "--", sys.executable, "job.py")
    assert "no rule matches it (training: command is " in said
    said = activated.pump("doctor", "--virtual", "a100-pcie4", "--", sys.executable, "other.py")
    assert f"rule training serves {sys.executable} other.py" in said


def test_without_a_manager_a_process_is_served_only_if_its_rule_says_so(user: User) -> None:
    user.enable()
    done = user.run()
    user.untouched(done)
    assert done.stderr.count("pump: rule training matches this process, but") == 1
    said = user.pump("doctor", "--virtual", "a100-pcie4")
    assert "processes of training run without pump" in said
    user.enable(RULE + "without_pumpd = true\n")
    user.served(user.run())


@needs_root
def test_an_activator_of_another_user_is_not_asked_for_a_pumpd(user: User) -> None:
    user.enable()
    (user.session / "pump").mkdir(exist_ok=True)
    for folder in (user.session, user.session / "pump"):
        folder.chmod(0o777)
    with serving(user.session / "pump" / "jobs", ATTACKER):
        done = user.run()
        user.untouched(done)
        assert done.stderr.count("pump: rule training matches this process, but") == 1
        said = user.pump("doctor", "--virtual", "a100-pcie4")
        assert f"jobs is not trusted: user {ATTACKER} serves it" in said
        assert "processes of training run without pump" in said


def test_a_user_without_rules_or_files_gets_what_plain_cuda_gives(user: User) -> None:
    user.enable(rule=None)
    user.untouched(user.run())
    user.compiled.unlink()
    done = user.run()
    user.untouched(done)
    assert done.stderr == ""


HOSTILE = {
    "truncated": lambda text: text[:-5],
    "garbage": lambda text: b"\xff\x00" * 500,
    "another version": lambda text: text.replace(b"pump-jobs 1", b"pump-jobs 2"),
    "huge": lambda text: text + b"x" * (1 << 20),
    "endless patterns": lambda text: text.replace(
        b"rule training", (b"rule a\ncommand *" + b"a" * 900 + b"~\n") * 20 + b"rule training"
    ),
    "a setting of the loader": lambda text: text.replace(b"set PUMP_NAME", b"set LD_AUDIT"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_costs_one_line(kind: str, user: User) -> None:
    user.enable(RULE + "without_pumpd = true\n")
    user.compiled.write_bytes(HOSTILE[kind](user.compiled.read_bytes()))
    argument = "a" * 3000
    done = user.run(sys.executable, str(PROGRAMS / "job.py"), *WORDS, f"--hold=/no/{argument}")
    user.untouched(done)
    (line,) = done.stderr.splitlines()
    assert f"pump: ignoring the rules in {user.compiled}, " in line


def test_a_file_that_others_can_write_or_that_is_none_is_not_read(user: User) -> None:
    user.enable(RULE + "without_pumpd = true\n")
    user.compiled.chmod(0o666)
    assert "other users may write to it" in user.run().stderr
    assert "others can write it" in user.pump("doctor", "--virtual", "a100-pcie4", status=1)
    moved = user.compiled.rename(user.home / "moved")
    moved.chmod(0o644)
    user.compiled.symlink_to(moved)
    assert "Too many levels of symbolic links" in user.run().stderr
    user.compiled.unlink()
    os.mkfifo(user.compiled)
    done = user.run()  # does not wait for a writer
    user.untouched(done)
    assert "not a regular file" in done.stderr


def test_children_are_judged_by_themselves_and_find_their_environment(activated: User) -> None:
    activated.enable()
    inner = f"{sys.executable} {PROGRAMS / 'job.py'} {' '.join(WORDS)}"
    shell = ["sh", "-c", f"env | grep -c ^PUMP_[BJLS]; sh -c 'exec {inner}'"]
    done = activated.run(*shell)
    activated.served(done)
    mine = [name for name in activated.environ if name[:6] in ("PUMP_B", "PUMP_J", "PUMP_L")]
    mine += [name for name in activated.environ if name.startswith("PUMP_S")]
    assert int(done.stdout.split()[0]) == len(mine)
    program = (
        "import os, sys; before = dict(os.environ); sys.path.insert(0, sys.argv[1]); import job; "
        "sys.argv[1:] = ['--buffers=1']; job.Program(job.parse()); "
        "libc = __import__('ctypes').CDLL(None); libc.getenv.restype = "
        "__import__('ctypes').c_char_p; "
        "print(before == dict(os.environ), libc.getenv(b'PUMP_BUDGET'), libc.getenv(b'PUMP_NAME'))"
    )
    activated.enable('[match]\nexecutable = "python*"\n[job]\nbudget = "40MiB"\n')
    done = activated.run(sys.executable, "-c", program, str(PROGRAMS))
    assert done.stdout.split() == ["True", "None", "None"], done.stderr


def test_another_preload_stays_and_pump_run_within_a_session_is_a_job_of_its_own(
    activated: User, tmp_path: Path
) -> None:
    other = tmp_path / "other.so"
    source = tmp_path / "other.c"
    source.write_text("int other_is_here = 1;\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    activated.environ["LD_PRELOAD"] = str(other)
    activated.enable()
    assert activated.environ["LD_PRELOAD"].split(":")[0] == str(other)
    activated.served(activated.run())
    activated.enable('[match]\ncommand = "*other.py*"\n')  # a second time changes no variable
    assert activated.environ["LD_PRELOAD"].count("libpump.so") == 1
    job = [sys.executable, str(PROGRAMS / "job.py"), *WORDS]
    run = ["--virtual", "a100-pcie4", "--virtual-set", f"device.memory_bytes={CARD_MIB * MIB}"]
    run += ["--virtual-set", "mode=compute"]
    done = activated.run(str(BIN / "pump-run"), *run, *job)
    activated.served(done)
    done = activated.run(str(BIN / "pump-run"), *run, *job, PUMP_LIMIT="40MiB")
    assert done.returncode == OUT_OF_MEMORY, "pump-run takes the user's variables here, too"


def test_a_process_whose_pumpd_was_killed_asks_for_another(activated: User, tmp_path: Path) -> None:
    activated.enable()
    held = tmp_path / "hold"
    held.touch()
    command = [sys.executable, str(PROGRAMS / "job.py"), *WORDS, f"--hold={held}"]
    process = subprocess.Popen(
        command, env=activated.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers), 40)
    first = pumpds.of_job(process.pid)
    for pid in filter(None, (first.supervisor, first.warm, *first.workers)):  # 0 is our own group
        pumpds.kill(pid)

    def served_again() -> bool:
        now = pumpds.of_job(process.pid)
        return now.supervisor not in (0, first.supervisor) and bool(now.workers)

    assert pumpds.wait_for(served_again, 40)
    held.unlink()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == expected(**SHAPE)


def test_a_process_whose_activator_is_stopped_is_right_on_demand_paging(activated: User) -> None:
    activated.enable()
    folders = activated.session / "pump"
    os.kill(activated.activator, signal.SIGSTOP)
    try:
        done = activated.run()
    finally:
        os.kill(activated.activator, signal.SIGCONT)
    activated.served(done)
    assert json.loads(activated.report.read_text())["violations"] == 0
    assert pumpds.wait_for(lambda: [one.name for one in folders.iterdir()] == ["jobs"], 30)


def test_disable_removes_what_enable_wrote_and_nothing_else(user: User) -> None:
    user.enable()
    written = {line.split()[1] for line in user.pump("enable").splitlines() if "written" in line}
    assert {str(path) for path in user.home.rglob("*") if path.is_file()} == {
        *written,
        str(user.rules / "training.toml"),
    }
    unit = user.home / ".config/systemd/user/pump-jobs.service"
    unit.write_text("[Service]\n")
    assert f"kept     {unit}" in user.pump("disable")
    left = {path for path in user.home.rglob("*") if path.is_file()}
    assert left == {unit, user.rules / "training.toml"}
    assert "pump did not write it; move it away" in user.pump("enable", status=2)
