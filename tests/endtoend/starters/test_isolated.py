"""Python settings of the user's program do not affect pump; the program gets all of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import pump
from pump.base import paths
from pump_lab.paths import library

BIN = Path(sys.executable).parent
GPU = ("--virtual", "a100-pcie4", "--virtual-set", "memory=128MiB")
SETTINGS = {
    "PYTHONBREAKPOINT": "none.none",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "bogus",
    "PYTHONINSPECT": "1",
    "PYTHONIOENCODING": "bogus",
    "PYTHONMALLOC": "bogus",
    "PYTHONOPTIMIZE": "2",
    "PYTHONPLATLIBDIR": "nowhere",
    "PYTHONPROFILEIMPORTTIME": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONSTARTUP": "/nonexistent",
    "PYTHONTRACEMALLOC": "bogus",
    "PYTHONUTF8": "bogus",
    "PYTHONVERBOSE": "1",
    "PYTHONWARNINGS": "error",
}
"""Variables of a user's shell that must not break pump or make it print."""
LEAVES = "print('hostile', flush=True); import os; os._exit(3)\n"
KINDS = ("PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "settings")


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, dict[str, str]]:
    """Returns the variables of each of KINDS."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    user_site = tmp_path / "base" / "lib" / version / "site-packages"
    path = tmp_path / "path"
    for folder in (path, user_site):
        folder.mkdir(parents=True)
        for name in ("sitecustomize", "usercustomize", "json", "socket", "pump", "pumpd", "cffi"):
            (folder / f"{name}.py").write_text(LEAVES)
    return {
        "PYTHONHOME": {"PYTHONHOME": "/nonexistent"},
        "PYTHONPATH": {"PYTHONPATH": str(path)},
        "PYTHONUSERBASE": {"PYTHONUSERBASE": str(tmp_path / "base")},
        "settings": SETTINGS,
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compiles a C program that needs more memory than the virtual GPU has."""
    program = tmp_path_factory.mktemp("pages") / "pages"
    source = ROOT / "packaging/release/pages.c"
    driver = library("virtual/libcuda.so.1")
    subprocess.run([os.environ.get("CC", "cc"), source, "-o", program, driver], check=True)
    return str(program)


def run(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        words,
        env={**clean, "PUMP_SERVICE": "none", **changes},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def without_numbers(text: str) -> str:
    return re.sub(r"[0-9.]+", "N", text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_in_c_is_served_and_gets_the_variables(
    hostile: dict[str, dict[str, str]], pages: str, tmp_path: Path, kind: str
) -> None:
    trace = tmp_path / "trace.pump"
    script = ("sh", "-c", f"env; exec {pages}")
    done = run(str(BIN / "pump-run"), *GPU, "--record", str(trace), *script, **hostile[kind])
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) > {f"{n}={text}" for n, text in hostile[kind].items()}
    assert "hostile" not in done.stdout.splitlines()
    assert [line for line in done.stderr.splitlines() if not line.startswith("pump")] == []
    assert trace.stat().st_size, "pumpd has served it"


def test_a_program_in_python_does_what_it_does_without_pump(
    hostile: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    path = Path(hostile["PYTHONPATH"]["PYTHONPATH"])
    (path / "sitecustomize.py").write_text("print('of the user')\n")
    changes = {"PYTHONPATH": str(path), "PYTHONOPTIMIZE": "2", "PYTHONUTF8": "1"}
    words = (sys.executable, "-c", "import sys; print(sys.flags, sys.path)")
    plain = run(*words, **changes)
    assert plain.stdout.startswith("of the user\n")
    assert run(str(BIN / "pump-run"), *GPU, *words, **changes).stdout == plain.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_each_command_and_each_child_of_pumps_runs_by_itself(
    hostile: dict[str, dict[str, str]], kind: str
) -> None:
    commands = [[str(BIN / name), "--version"] for name in ("pump-run", "pump", "pumpd")]
    for words in (*commands, paths.isolated("-c", "import json, pumpd; print('pump N', end='')")):
        done = run(*words, **hostile[kind])
        assert (done.returncode, done.stderr) == (0, ""), words
        assert without_numbers(done.stdout.strip()) in ("pump N", "pumpd N")


def test_pump_doctor_asks_the_driver_whatever_python_is_told(
    hostile: dict[str, dict[str, str]],
) -> None:
    done = run(str(BIN / "pump"), "doctor", *GPU[:2], **hostile["PYTHONPATH"])
    assert "device 0" in done.stdout and "hostile" not in done.stdout, done.stderr


def test_a_program_gets_no_locale_that_the_user_has_not_set() -> None:
    given = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PUMP_SERVICE": "none"}
    done = subprocess.run(
        [str(BIN / "pump-run"), *GPU, "/usr/bin/env"], env=given, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    added = {
        n
        for n in names - set(given)
        if not n.startswith(("PUMP_", "LD_", "CUDA_", "ASAN_", "XLA_"))
    }
    assert added == set()


def test_pump_is_found_by_pythonpath_where_it_is_no_package_of_the_interpreter(
    tmp_path: Path,
) -> None:
    """Modules of clusters set it this way; other files in the folder hide no module."""
    place = Path(pump.__file__).parents[1]
    (tmp_path / "json.py").write_text(LEAVES)
    start = tmp_path / "bin" / "pump-start"
    start.parent.mkdir()
    start.write_text((ROOT / "pump/start.py").read_text())
    python = getattr(sys, "_base_executable", sys.executable)
    words = (python, "-E", "-P", "-S", str(start), "pump", "--version")
    done = run(*words, PYTHONPATH=f"{tmp_path}:{place}")
    assert done.returncode == 0 and done.stdout.startswith("pump "), done.stderr


FIRST_LINES = {
    "pip": "#!{python}",
    "uv": "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''",
    "pipx": "#!{python} -E",
    "conda": "#!/usr/bin/env python",
}
"""The lines that installers make of "#!python", some only for long paths and blanks."""


@pytest.mark.parametrize("installer", FIRST_LINES)
def test_the_commands_start_whichever_way_they_were_installed(
    tmp_path: Path, installer: str
) -> None:
    env = tmp_path / "with a blank"
    (env / "bin").mkdir(parents=True)
    (env / "bin/python").symlink_to(sys.executable)
    (env / "pyvenv.cfg").write_bytes((BIN.parent / "pyvenv.cfg").read_bytes())
    (env / "lib").symlink_to(BIN.parent / "lib")
    shutil.copy(BIN / "pump", env / "bin")
    line = FIRST_LINES[installer].format(python=env / "bin/python")
    (env / "bin/pump-start").write_text(f"{line}\n{(ROOT / 'pump/start.py').read_text()}")
    (tmp_path / "linked").symlink_to(env / "bin/pump")
    done = run(str(tmp_path / "linked"), "--version", PYTHONHOME="/nonexistent")
    assert done.returncode == 0 and done.stdout.startswith("pump "), done.stderr


def test_a_command_without_its_python_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    shutil.copy(BIN / "pump", tmp_path)
    for missing in ("pump-start", "python"):
        done = run(str(tmp_path / "pump"), "--version")
        (line,) = done.stderr.splitlines()
        assert done.returncode == 127 and f"cannot start {tmp_path}/{missing}: " in line
        assert "reinstall pump" in line
        (tmp_path / "pump-start").write_text("")


def test_pump_starts_no_interpreter_but_by_the_one_way() -> None:
    starts = re.compile(r"\[\s*sys\.executable")
    found = {
        str(path.relative_to(ROOT))
        for folder in ("pump", "daemon")
        for path in (ROOT / folder).rglob("*.py")
        if starts.search(path.read_text())
    }
    assert found == {"pump/base/paths.py"}
