"""The command `pump` and its verbs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import pump
from pump.cli import main
from pump.cli.support import options

CODE = "import sys; from pump.cli.main import main; sys.exit(main())"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_reader_that_goes_away_ends_it_without_a_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-c", CODE, "config", "show"],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout == f"pump {pump.__version__}\n"
    pyproject = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.*)"', pyproject, re.MULTILINE)
    assert found
    assert found[1] == pump.__version__


def test_help_lists_every_verb_once_in_its_group() -> None:
    done = run("--help")
    assert done.returncode == 0
    listed = re.findall(r"^  (\w+) +\w", done.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(main.verbs_below(""))
    assert list(main.GROUPS) == re.findall(r"^(everyday|admin\w+|develop\w+):$", done.stdout, re.M)
    for name in ("service", "install"):
        below = run(name, "--help").stdout
        listed = re.findall(r"^  (\w+) +\w", below, re.MULTILINE)
        assert listed == main.verbs_below(name)


@pytest.mark.parametrize("name", main.verbs())
def test_a_verbs_help_ends_in_examples_that_it_accepts(name: str) -> None:
    parser = main.verb_parser(name)
    assert parser.format_help().endswith(f"  {parser.examples[-1]}\n")
    for example in parser.examples:
        words = re.split(r" [|>] ", example.removeprefix("sudo "))[0].split()
        if words[0] == "pump-run":
            assert options.parse(words[1:]).command
        else:
            assert " ".join(words[1:]).startswith(name)
            main.verb_parser(name).parse_args(words[1 + len(name.split()) :])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(old, new, marks=[pytest.mark.lab] if "simulate" in new else [])
        for old, new in main.RENAMED.items()
    ],
)
def test_an_old_name_works_and_its_one_line_gives_the_new_one(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pump", *old.split(), "--wrong"])
    assert main.main() == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"pump: 'pump {old}' is now 'pump {new}'; use the new name"
    verb = " ".join(word for word in new.split() if not word.startswith("-"))
    helps = (f"see pump {verb} --help", "see pump-run --help", "expected one argument")
    assert any(text in second for text in helps)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (["sh", "-c", "exit 7"], 7, ""),
        (["/no/such/program"], 127, "pump-run: /no/such/program: No such file or directory\n"),
    ],
)
def test_pump_run_is_the_command_pump_run(
    command: list[str], status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMP_DISABLE", "1")
    done = run("run", "--", *command)
    assert (done.returncode, done.stderr) == (status, said)


def test_completions_are_copied_to_where_the_users_shell_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/zsh")
    monkeypatch.setattr(sys, "argv", ["pump", "install", "completion"])
    assert main.main() == 0
    folder = tmp_path / "zsh" / "site-functions"
    assert {path.name for path in folder.iterdir()} == {"_pump", "_pump-run", "_pumpd"}
    assert f"fpath=({folder} $fpath)" in capsys.readouterr().out
    (folder / "_pump").write_text("my own")
    monkeypatch.setattr(sys, "argv", ["pump", "install", "completion", "zsh", "--remove"])
    assert main.main() == 2
    assert (folder / "_pump").read_text() == "my own"
    monkeypatch.setenv("SHELL", "/bin/dash")
    monkeypatch.setattr(sys, "argv", ["pump", "install", "completion"])
    assert main.main() == 2
    assert "no completions for shell 'dash'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "no verb given"),
        (["comprae"], "did you mean 'compare'"),
        (["stop"], "unknown verb 'stop'; pump knows"),
        (["service", "instal"], "did you mean 'install'"),
        pytest.param(["simulate"], "no TRACE given", marks=pytest.mark.lab),
        pytest.param(["simulate", "--profile-from", "x"], "needs --base", marks=pytest.mark.lab),
        (["--wrong"], "--wrong"),
        (["jobs", "x"], "unexpected argument 'x'"),
    ],
)
def test_bad_input_gets_one_line_and_status_2(words: list[str], expected: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


@pytest.mark.parametrize("verb", ["config show", "jobs", "top --once"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_and_a_closed_output_end_it_without_a_traceback(
    unbuffered: str, verb: str
) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = f"'{sys.executable}' -c '{CODE}' {verb}"
    full, closed = (
        subprocess.run(
            ["sh", "-c", f"{command} {where}"],
            env=environ, capture_output=True, text=True, timeout=60, check=False,
        )
        for where in (">/dev/full", ">&-")
    )  # fmt: skip
    assert full.returncode == 1
    assert full.stderr == "pump: cannot write all of the output: No space left on device\n"
    assert (closed.returncode, closed.stderr) == (0, "")


def test_a_library_that_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, "explain", "no-room"],
        env={**os.environ, "PUMP_LIB_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"pump: .* is missing from .*\n", done.stderr)


@pytest.mark.parametrize(
    ("verb", "text", "least"),
    [
        ("top", "0.05", "0.1"),
        ("top", "soon", "0.1"),
        ("service metrics", "nan", "1"),
        ("service metrics", "4e3", "1"),
    ],
)
def test_an_interval_out_of_bounds_is_refused_with_the_bounds(
    verb: str, text: str, least: str
) -> None:
    done = run(*verb.split(), "--interval", text)
    assert done.returncode == 2
    assert f"--interval: must be a time from {least} to 3600 seconds, not '{text}'" in done.stderr
