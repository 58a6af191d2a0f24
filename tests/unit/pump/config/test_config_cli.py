"""pump config, and the pages that are made from the schema."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pump.config import files, reference
from pump.config.schema import ADMINISTRATORS, CONFIG

PUMP = [sys.executable, "-c", "import sys; from pump.cli.main import main; sys.exit(main())"]


def pump(*words: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PUMP, "config", *words],
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_show_tells_each_setting_and_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "pump.toml").write_text('[job]\nbudget = "1GiB"\nkeep_device = ["none"]\n')
    done = pump("show", "--origin", folder=tmp_path, PUMP_POLICY="demand")
    lines = [re.split(r" +# ", line) for line in done.stdout.splitlines()]
    assert ['budget = "1073741824"', "pump.toml:2"] in lines
    assert ["keep_device = []", "pump.toml:3"] in lines
    assert ['policy = "demand"', "PUMP_POLICY"] in lines
    assert ["priority = 0", "default"] in lines
    assert ["# limit: the memory that the host can spare", "default"] in lines
    assert '""' not in done.stdout
    assert " # " not in pump("show", folder=tmp_path).stdout


def test_what_show_tells_is_a_sound_file_itself(tmp_path: Path) -> None:
    (tmp_path / "pump.toml").write_text('[job]\ndevices = [0]\nname = "x\\"y"\n')
    told = {"PUMP_LOG_FILE": "/l", "PUMP_RECORD": "a\nb"}
    text = pump("show", "--origin", folder=tmp_path, **told).stdout
    read = files.parse(text.encode(), "shown", administrators=False)
    assert read.tables["job"]["record"] == str(tmp_path / "a\nb")


def test_names_are_shown_as_they_were_typed(tmp_path: Path) -> None:
    done = pump("show", folder=tmp_path, PUMP_NAME="größe-模型", PUMP_RECORD="läuft.pump")
    assert 'name = "größe-模型"' in done.stdout
    assert f'record = "{tmp_path}/läuft.pump"' in done.stdout


def test_check_tells_all_faults_and_status_1(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[job]\nbudgt = 1\npolicy = 'w'\n[limits]\n")
    done = pump("check", str(path), folder=tmp_path)
    assert done.returncode == 1
    assert [line.split(":")[1] for line in done.stdout.splitlines()] == ["2", "3", "4"]
    path.write_text("[job]\nbudget = 4194304\n[limits]\npriority = 1\n")
    done = pump("check", "--system", str(path), folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{path}: valid, 2 settings\n")


def test_check_of_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    done = pump("check", "none.toml", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, "pump: there is no file none.toml\n")


@pytest.mark.parametrize("administrators", [False, True])
def test_an_example_is_sound_as_it_is_and_with_every_line_in_force(
    tmp_path: Path, administrators: bool
) -> None:
    words = ["example", *(["--system"] if administrators else [])]
    text = pump(*words, folder=tmp_path).stdout
    files.parse(text.encode(), "example", administrators=administrators)
    in_force = re.sub(r'^# ("?@?[a-z_]+"? = )', r"\1", text, flags=re.M)
    read = files.parse(in_force.encode(), "example", administrators=administrators)
    assert set(read.tables) == {
        name for name in CONFIG if (name in ADMINISTRATORS) == administrators
    }
    set_ones = {(table, key) for table, keys in read.tables.items() for key in keys}
    known = {(s.table, s.key) for s in reference.entries() if s.key and s.table in read.tables}
    assert known <= set_ones
