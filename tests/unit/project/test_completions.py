"""Shell completions offer each verb, option and value, and none for the command's own words."""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import completions
import pytest
from places import ROOT

from pump.cli.main import verbs_below

FOLDER = ROOT / "packaging" / "completions"
COMMANDS = completions.commands()
EVERY = [(name, verb) for name, command in COMMANDS.items() for verb in completions._all(command)]
BASH = """
compopt() { :; }
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"_${1//-/_}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def bash(*words: str, folder: Path = ROOT) -> set[str]:
    """Returns bash's offers for the last of these words, split as bash splits them."""
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", str(FOLDER / "bash" / words[0]), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=folder,
    )
    assert done.stderr == ""
    return set(done.stdout.splitlines()) - {""}


@pytest.mark.parametrize(("name", "verb"), EVERY, ids=lambda v: " ".join(getattr(v, "path", [v])))
def test_bash_offers_all_verbs_and_options(name: str, verb: completions.Verb) -> None:
    assert bash(name, *verb.path, "-") == {
        option
        for action in completions.option_actions(verb)
        for option in action.option_strings
        if action.help != argparse.SUPPRESS
    }
    if verb.verbs:
        assert bash(name, *verb.path, "") == set(verb.verbs)


def test_the_verbs_are_those_of_pump_and_options_are_in_the_help() -> None:
    assert set(COMMANDS["pump"].verbs) == set(verbs_below(""))
    assert {"--budget", "--virtual-set", "-v"} <= bash("pump-run", "-")
    assert {"--rounds", "--virtual"} <= bash("pump", "compare", "-")
    assert "--policy" not in bash("pump", "compare", "-"), "compare decides it"
    assert bash("pump", "config", "") == {"show", "check", "example", "trust"}
    assert bash("pump", "service", "") == {"install", "uninstall", "metrics"}
    assert bash("pump", "run", "--policy", "d") == {"demand"}


def test_bash_offers_the_values_of_an_option(tmp_path: Path) -> None:
    assert bash("pump-run", "--policy", "") == {"demand", "window", "planned"}
    assert bash("pump-run", "--policy", "p") == {"planned"}
    assert bash("pump-run", "--policy", "=") == {"demand", "window", "planned"}
    assert bash("pump-run", "--policy", "=", "w") == {"window"}
    assert bash("pump-run", "--budget", "") == set(), "no word can be guessed"
    assert "a100-pcie4" in bash("pump-run", "--virtual", "a")
    (tmp_path / "my card.toml").touch()
    assert bash("pump-run", "--virtual", "my", folder=tmp_path) == {"my card.toml"}
    assert bash("pump", "trace", "info", "my", folder=tmp_path) == {"my card.toml"}
    (tmp_path / "runs").mkdir()
    assert bash("pump", "compare", "--folder", "", folder=tmp_path) == {"runs"}


def test_bash_goes_on_behind_an_option_with_its_value() -> None:
    options = bash("pump-run", "-")
    assert bash("pump-run", "--budget", "=", "4GiB", "-") == options
    assert bash("pump-run", "--budget", "4GiB", "-v", "-") == options


def test_bash_leaves_the_words_of_the_command_to_it(tmp_path: Path) -> None:
    (tmp_path / "--data").touch()
    assert "bash" in bash("pump-run", "--budget", "4GiB", "bas")
    for words in (["pump-run"], ["pump-run", "--"], ["pump", "compare", "--yes", "--"]):
        assert bash(*words, "bash", "--", folder=tmp_path) == {"--data"}


# ---- zsh ----

START = "stty -echo rows 200 cols 250; PS1= RPS1=; fpath=({} $fpath); autoload -Uz compinit; "
START += "compinit -D -u; print REA''DY\n"


class Zsh:
    """An interactive zsh in a terminal, without any settings of the user."""

    def __init__(self) -> None:
        self.terminal, side = pty.openpty()
        self.process = subprocess.Popen(
            ["zsh", "-f", "-i"],
            stdin=side,
            stdout=side,
            stderr=side,
            env={"TERM": "dumb", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        os.close(side)
        self.type(START.format(FOLDER / "zsh"))
        self.wait_for("READY")

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait_for(self, *expected: str) -> None:
        """Reads until all of these were shown."""
        seen, end = "", time.monotonic() + 30
        while not all(word in seen for word in expected):
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            assert ready, f"not {expected}: {seen}"
            seen += os.read(self.terminal, 65536).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture
def zsh() -> Iterator[Zsh]:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh: apt-get install zsh")
    found = Zsh()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pump ", ("compare", "service", "time a command without pump")),
        ("pump service ", ("install", "uninstall", "metrics")),
        ("pump config ", ("show", "trust", "print a file with every setting")),
        ("pump config show --", ("--origin", "add the source of each setting")),
        ("pump compare --", ("--rounds", "--virtual-set", "--keep-device")),
        ("pump-run --", ("--budget", "GPU memory that each process may keep resident", "--config")),
        ("pump-run --policy ", ("demand", "planned", "window")),
        ("pumpd ", ("job", "serve")),
    ],
)
def test_zsh_offers_verbs_options_and_values(
    zsh: Zsh, line: str, expected: tuple[str, ...]
) -> None:
    zsh.type(f"{line}\t\t")
    zsh.wait_for(*expected)


def test_zsh_leaves_the_words_of_the_command_to_it(zsh: Zsh) -> None:
    zsh.type("_mine() { compadd its-own-word }; compdef _mine mine; print REA''DY\n")
    zsh.wait_for("READY")
    zsh.type("pump-run --budget 4GiB -v mine its-\t")
    zsh.wait_for("its-own-word")
