"""Configuration files: their contents, the messages about faults, and their owners."""

from __future__ import annotations

import os
import random
import tomllib
from pathlib import Path

import pytest

from pump.config import files, locate
from pump.config.schema import CONFIG
from pump.config.settings import settings


def faults(text: str, *, administrators: bool = True) -> list[str]:
    with pytest.raises(files.ConfigError) as caught:
        files.parse(text.encode(), "f.toml", administrators=administrators)
    assert all("\n" not in line for line in caught.value.faults)
    return caught.value.faults


# ---- accepted files ----


def test_a_file_may_say_everything_that_options_say() -> None:
    text = """
[job]
name = "mine"
priority = 7
budget = "20GiB"
limit = "1.5x"
report = "limit"
policy = "demand"
duplicates = "off"
granularity = "tensor"
keep_device = ["none", "below=8MiB"]
devices = [0, "GPU-1a"]
record = "run.pump"
record_command = false
keep_learned = false
log_level = "debug"
log_file = "~/pump.log"
"""
    found = files.parse(text.encode(), "f.toml", administrators=False)
    assert found.tables["job"] == {
        "name": "mine",
        "priority": 7,
        "budget": str(20 << 30),
        "limit": "1.5x",
        "report": "limit",
        "policy": "demand",
        "duplicates": "off",
        "granularity": "tensor",
        "keep_device": ["below=8388608"],
        "devices": ["0", "GPU-1a"],
        "record": str(Path("run.pump").absolute()),
        "record_command": False,
        "keep_learned": False,
        "log_level": "debug",
        "log_file": str(Path("~/pump.log").expanduser()),
    }
    assert found.origin("job", "policy") == "f.toml:8"


def test_an_administrators_file_holds_bounds_shares_and_service() -> None:
    text = """
[limits]
budget = "80%"
priority = 7
[shares]
alice = 4
"@students" = 1
[service]
observers = ["bob"]
lease_s = 3
"""
    assert files.parse(text.encode(), "f.toml", administrators=True).tables == {
        "limits": {"budget": "80%", "priority": 7},
        "shares": {"alice": 4, "@students": 1},
        "service": {"observers": ["bob"], "lease_s": 3.0},
    }


def test_the_schemas_defaults_and_examples_pass_its_own_checks() -> None:
    for name, table in CONFIG.items():
        for of in ("default", "example"):
            rows = {key: getattr(row, of) for key, row in settings(table).items()}
            pairs = rows.pop("", None) or rows  # [shares] is one setting
            lines = [
                f'"{key}" = {files.to_toml(value)}'
                for key, value in pairs.items()
                if value not in ("", [], {})
            ]
            text = "\n".join([f"[{name}]", *lines])
            read = files.parse(text.encode(), of, administrators=True)
            assert set(read.tables[name]) <= set(pairs)


# ---- refused files ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[job]\nbudgt = 1", "f.toml:2: unknown key 'job.budgt' (did you mean 'budget'?)"),
        ("\n[jbo]\n", "f.toml:2: unknown table 'jbo' (did you mean 'job'?)"),
        ("budget = 1", "f.toml:1: unknown table 'budget'"),
        ("job = 3", "f.toml:1: job is a table; write [job]"),
        ("[job]\n\nbudget = 'lots'", "f.toml:3: job.budget: 'lots' is not a size"),
        ("[job]\nbudget = 1.5", "f.toml:2: job.budget: expected `int | str`, got `float`"),
        ("[job]\nbudget = '20GiX'", "f.toml:2: job.budget: '20GiX' has an unknown unit; use B"),
        ("[job]\nlimit = '0.5.x'", "f.toml:2: job.limit: must be a multiple such as 1.5x"),
        ("[job]\npriority = 11", "f.toml:2: job.priority: expected `int` <= 10"),
        ("[job]\npriority = true", "write for instance priority = "),
        ("[job]\npolicy = 'windw'", "(did you mean 'window'?)"),
        ("[job]\nkeep_device = ['belw=8MiB']", "(did you mean 'below'?)"),
        ("[job]\nkeep_device = ['ipc',\n 3]", "f.toml:2: job.keep_device: expected `str`"),
        ("[job]\ndevices = [0, 0]", "names a device twice"),
        ("[job]\nrecord = ''", "f.toml:2: job.record: the file name is empty"),
        ('[job]\nname = "a\\nb"', "must be a job name"),
        ("[shares]\nalice = 0", "f.toml:1: shares: must be an integer from 1 to 1000, not '0'"),
        ("[service]\nobservers = ['@']", "must be a user, or a group as @name, not '@'"),
        ("[service]\nlease_s = nan", "f.toml:2: service.lease_s: expected `float` >= 0.5"),
        ("[service]\nlease_s = 181", "f.toml:2: service.lease_s: expected `float` <= 180.0"),
        ("[service]\nobservers = 'me'", "f.toml:2: service.observers: expected `array`"),
        ("[job\n", "f.toml:1: Expected ']'"),
        ("[job]\nname = 'a'\nname = 'b'\n", "f.toml:3: Cannot overwrite"),
    ],
)
def test_a_fault_is_told_with_path_line_and_remedy(text: str, expected: str) -> None:
    assert expected in faults(text)[0]


def test_all_faults_of_a_file_are_told_in_order_of_their_lines() -> None:
    found = faults("[job]\npolicy = 1\nbudgt = 2\n[service]\nlease_s = 0\n")
    assert [line.split(":")[1] for line in found] == ["2", "3", "5"]


@pytest.mark.parametrize("table", ["limits", "shares", "service"])
def test_a_users_file_cannot_speak_for_the_administrator(table: str) -> None:
    assert "only /etc/pump/config.toml may set" in faults(f"[{table}]\n", administrators=False)[0]


def test_bytes_that_are_no_text_are_told_with_their_line() -> None:
    with pytest.raises(files.ConfigError, match=r"f\.toml:2: not UTF-8"):
        files.parse(b"[job]\nname='\xff'", "f.toml", administrators=False)


def test_random_bytes_are_refused_or_read_but_never_break_the_reader() -> None:
    chance = random.Random(7)
    pieces = ["[job]", "name", "=", "'a'", '"""', "\n", "[[", "]]", "{", "}", ",", "1", ".", "#"]
    refused = 0
    for _ in range(3000):
        text = "".join(chance.choice(pieces) for _ in range(chance.randrange(20)))
        try:
            files.parse(text.encode(), "f", administrators=True)
        except files.ConfigError:
            refused += 1
    assert refused > 100


# ---- owners ----


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert files.load(str(tmp_path / "a")) is None


def test_a_file_that_all_users_may_write_to_is_refused_where_it_was_not_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pump.toml"
    path.write_text("[job]\n")
    path.chmod(0o666)
    assert files.load(str(path)) is not None
    with pytest.raises(files.ConfigError, match="can be written by all users"):
        files.load(str(path), own=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_refused_and_so_is_another_users_link(tmp_path: Path) -> None:
    path, link = tmp_path / "pump.toml", tmp_path / "link.toml"
    path.write_text("[job]\n")
    link.symlink_to(path)
    os.chown(link, 12345, 12345, follow_symlinks=False)
    with pytest.raises(files.ConfigError, match="belongs to user 12345, not to you; remove it"):
        files.load(str(link), own=True)
    assert files.load(str(path), own=True) is not None
    os.chown(path, 12345, 12345)
    with pytest.raises(files.ConfigError, match="belongs to user 12345"):
        files.load(str(path), own=True)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pump.toml"
    os.mkfifo(pipe)
    with pytest.raises(files.NotOursError, match="not a regular file"):
        files.load(str(pipe), own=True)
    with pytest.raises(files.ConfigError, match="not a regular file"):
        files.load(str(pipe))


def test_a_file_of_more_than_64_kib_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pump.toml"
    path.write_bytes(b"#" * (files.FILE_BYTES_MAX + 1))
    with pytest.raises(files.ConfigError, match="exceeds 64 KiB"):
        files.load(str(path))


def test_what_would_take_long_to_read_is_refused_before_it_is_read() -> None:
    dots = ".".join("a" * (files.LINE_BYTES_MAX // 2 + 2)) + " = 1"  # quadratic time in tomllib
    assert faults(dots) == ["f.toml:1: the line exceeds 2048 bytes; break it"]
    assert "nested too deeply" in faults("a = " + "[\n" * 2000)[0]
    assert len(faults("\n".join(f"[a{number}]" for number in range(9000)))) == files.FAULTS_MAX
    assert (
        "must be an amount of memory that a machine can have"
        in faults(f"[job]\nbudget = 0x{'f' * 1900}")[0]
    )
    assert len(faults(f"[job]\npolicy = '{'x' * 1900}'")[0]) < 300


# ---- lines of keys ----

HARD = r'''# [job]
a = "x # = [y]"   # comment with ' and "
'b.c' . d = """
[not.a.table]
e = 1
"""

[ t . "u v" ]
f = [ # an array over lines
  "]", { g = 1 },
  ']' ]
h = """quoted \" "" [i]
j = 1"""
k = {l = "}", m = [1, 2]}
[[list]]
n = 1979-05-27 07:32:00
[[list]]
n = -31
'''


def test_lines_are_found_past_strings_comments_and_brackets() -> None:
    tomllib.loads(HARD)
    found = locate.lines(HARD)
    assert found[("a",)] == 2
    assert found[("b.c", "d")] == 3
    assert ("not", "a", "table") not in found
    assert ("e",) not in found
    assert found[("t", "u v")] == 8
    assert found[("t", "u v", "f")] == 9
    assert found[("t", "u v", "h")] == 12
    assert ("t", "u v", "j") not in found
    assert found[("t", "u v", "k")] == 14
    assert found[("list",)] == 15
    assert found[("list", "n")] == 16


def test_every_key_of_made_up_files_is_found_on_its_line() -> None:
    chance = random.Random(3)
    values = ["1", '"a]#"', "'''\n[x]\ny = 1'''", "[1, # ]\n 2]", "{ a = '}' }", '"""\\"" """']
    for _ in range(300):
        text, expected = "", {}
        for table in range(3):
            expected[(f"t{table}",)] = text.count("\n") + 1
            text += f"[t{table}]  # ['\n"
            for key in range(chance.randrange(4)):
                text += chance.choice(["", "\n", "# k0 = 1\n"])
                expected[(f"t{table}", f"k{key}")] = text.count("\n") + 1
                text += f"k{key} = {chance.choice(values)}\n"
        tomllib.loads(text)
        assert locate.lines(text) == expected, text
