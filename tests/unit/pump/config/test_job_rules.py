"""Rules of `pump enable`: how they are checked and compiled, and that shim and doctor agree."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from places import ROOT

from pump.config import job_rules, rule_checks
from pump.config.job_rules import RuleError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "config" / "pump" / "jobs.d"
    made.mkdir(parents=True)
    return made


def load(folder: Path, **rules: str) -> list[job_rules.Rule]:
    for name, text in rules.items():
        (folder / f"{name}.toml").write_text(text)
    environ = {"XDG_CONFIG_HOME": str(folder.parents[1])}
    assert job_rules.users_folder(environ) == str(folder)
    return job_rules.load(str(folder), environ, machine=False)


def test_rules_are_compiled_in_the_order_of_their_names(folder: Path) -> None:
    (folder.parent / "config.toml").write_text('[job]\nlimit = "2x"\n')
    rules = load(
        folder,
        b='[match]\ncgroup = "/a"\nwithout_pumpd = true\n',
        a='[match]\nexecutable = "python3*"\ncommand = "*x*"\n[job]\nbudget = "40MiB"\n',
    )
    lines = job_rules.compiled(rules).splitlines()
    assert lines[:4] == ["pump-jobs 1", "rule a", "exe python3*", "command *x*"]
    assert "set PUMP_NAME=a" in lines and "set PUMP_BUDGET=41943040" in lines
    assert lines.count("set PUMP_LIMIT=2x") == 2, "the user's configuration counts for rules, too"
    second = lines[lines.index("rule b") :]
    assert second[1:3] == ["cgroup /a", "without-pumpd"] and second[-1] == "end"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[job]\n", "[match] has no pattern"),
        ('[match]\nexe = "a"\n', "unknown key"),
        ('[match]\nexecutable = ""\n', "must be a pattern"),
        ('[match]\nexecutable = "a\\nset PUMP_X=1"\n', "must be a pattern"),
        ('[match]\nexecutable = "a"\n[limits]\nbudget = "1GiB"\n', "limits"),
        ('[match]\nexecutable = "a"\n[job]\ndevices = [0]\n', "before cuInit"),
        ('[match]\nexecutable = "a"\n[job]\npolicy = "none"\n', "policy"),
        ("[match\n", "a.toml:1"),
    ],
)
def test_a_wrong_rule_is_named(folder: Path, text: str, why: str) -> None:
    with pytest.raises(RuleError) as caught:
        load(folder, a=text, b='[match]\nexecutable = "b"\n')
    assert why in str(caught.value) and "a.toml" in str(caught.value)


def test_a_rule_that_all_users_may_write_is_refused(folder: Path) -> None:
    load(folder, a='[match]\nexecutable = "a"\n')
    (folder / "a.toml").chmod(0o666)
    with pytest.raises(RuleError, match="chmod o-w"):
        load(folder)


def test_too_many_rules_are_refused(folder: Path) -> None:
    (rule,) = load(folder, a='[match]\nexecutable = "a"\n')
    with pytest.raises(RuleError, match="64 KiB"):
        job_rules.compiled([rule] * 1000)


def test_there_may_be_no_folder(tmp_path: Path) -> None:
    assert job_rules.load(str(tmp_path / "none"), {}, machine=False) == []
    assert job_rules.compiled([]) == "pump-jobs 1\nend\n"


class Facts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("exe", "command", "cgroup")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("reader") / "rules.so"
    source = ROOT / "shim" / "life" / "job_rules.c"
    command = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


PROCESSES = (
    ("/usr/bin/python3.11", "python3 train.py --x", "/user.slice/a"),
    ("/opt/python", "python -m train", "/"),
    ("/usr/bin/true", "true", ""),
    ("/a/é", "é é", "/é"),
)
PATTERNS = (
    "python3*",
    "/usr/*",
    "*",
    "python",
    "?",
    "??",
    "*train*",
    "*a*a*",
    "/user.slice/*",
    "é",
)


@pytest.mark.parametrize("key", ["executable", "command", "cgroup"])
def test_shim_and_doctor_find_the_same_rules(folder: Path, reader: ctypes.CDLL, key: str) -> None:
    found = set()
    for pattern in PATTERNS:
        (rule,) = load(folder, a=f'[match]\n{key} = "{pattern}"\n')
        for process in PROCESSES:
            text = job_rules.compiled([rule]).encode()
            file = ctypes.create_string_buffer(text, len(text) + 1)
            out, why = ctypes.create_string_buffer(1024), ctypes.c_char_p()
            facts = Facts(*(one.encode() for one in process))
            answer = reader.pump_job_rules_find(
                file, ctypes.c_size_t(len(text)), ctypes.byref(facts), out, ctypes.byref(why)
            )
            assert why.value is None
            assert (answer == 1) == (rule.differs(*process) == ""), (pattern, process)
            found.add(answer)
    assert found == {0, 1}


def test_a_difference_is_put_into_words(folder: Path) -> None:
    (rule,) = load(folder, a='[match]\nexecutable = "python*"\ncgroup = "/b"\n')
    assert rule.differs("/bin/sh", "sh") == "executable is sh, not python*"
    assert rule.differs("/bin/python", "python", "/a") == "cgroup is /a, not /b"
    assert rule.differs("/bin/python", "python") == ""


def test_patterns_do_not_take_forever() -> None:
    assert not rule_checks.matches("*a" * 12 + "b", "a" * 60)
