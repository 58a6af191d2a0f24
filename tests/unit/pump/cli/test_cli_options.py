"""pump-run's command line, parsed in this process."""

import re
from pathlib import Path

import pytest

from pump.base.outputs import TRACE_MAGIC
from pump.cli.support import options
from pump.cli.support.lines import BadInputError
from pump.config.settings import JOB, JobConfig


def parse(argv: list[str]) -> JobConfig:
    """Returns the job that only the options make."""
    asked = options.parse(argv)
    return asked.job()._replace(**asked.settings)


def test_without_options_everything_has_its_default() -> None:
    assert parse(["train"]) == JobConfig(command=["train"])


def test_options_end_where_the_command_begins() -> None:
    config = parse(["--budget", "4GiB", "python", "--policy", "x", "--help", "--", "-v"])
    assert config.command == ["python", "--policy", "x", "--help", "--", "-v"]
    assert config.budget == str(4 << 30)
    assert config.policy == "planned"


def test_two_dashes_end_the_options_and_are_not_passed_on() -> None:
    assert parse(["-v", "--", "--odd-name", "--"]).command == ["--odd-name", "--"]
    assert parse(["--budget=80%", "--", "x"]).budget == "80%"


@pytest.mark.lab
def test_every_option_reaches_the_configuration(tmp_path: Path) -> None:
    log, trace = tmp_path / "log", tmp_path / "job.trace"
    gpu = "--virtual a100-pcie4 --virtual-set memory=8GiB --virtual-set mode=compute"
    rest = f"--policy demand --device 0,GPU-1a --log-file {log} --verbose -v"
    rest += f" --record {trace} --name mine --priority -7 --granularity tensor job"
    config = parse(f"--budget=1G --limit 50% {gpu} {rest}".split())
    assert config == JobConfig(
        command=["job"],
        budget=str(1 << 30),
        limit="50%",
        policy="demand",
        devices=["0", "GPU-1a"],
        virtual="a100-pcie4",
        virtual_settings={"memory": "8GiB", "mode": "compute"},
        log_level="debug",
        log_file=str(log),
        record=str(trace),
        granularity="tensor",
        name="mine",
        priority=-7,
    )


@pytest.mark.lab
def test_options_that_help_leaves_out_work_and_are_settings_of_files() -> None:
    words = "--report limit --no-duplicates --log-level debug --record-command=no"
    asked = options.parse(f"{words} --keep-learned=no --virtual-runtime job".split())
    left_out = {
        "report": "limit",
        "duplicates": "off",
        "log_level": "debug",
        "record_command": False,
        "keep_learned": False,
    }
    assert asked.settings == left_out
    assert set(left_out) <= set(JOB)
    helped = options.parser().format_help()
    assert not [key for key in left_out if f"--{key.replace('_', '-')}" in helped]


DOCUMENTED = (
    "budget config device granularity help keep-device limit log-file name policy priority quiet "
    "record verbose version virtual virtual-set"
)


@pytest.mark.lab
def test_help_has_the_documented_options_in_groups_and_ends_in_an_example() -> None:
    helped = options.parser().format_help()
    assert set(re.findall(r"^  (?:-\w, )?--([\w-]+)", helped, re.M)) == set(DOCUMENTED.split())
    groups = re.findall(r"^([a-zA-Z ]+):$", helped, re.M)
    assert groups[:4] == ["everyday", "sharing GPUs", "recording and output", "without a GPU"]
    assert helped.splitlines()[-1].startswith("  pump-run --")


def test_what_no_option_says_is_left_to_other_sources() -> None:
    asked = options.parse(["--budget", "1G", "--config", "a.toml", "job"])
    assert asked.settings == {"budget": str(1 << 30)}
    assert asked.config == str(Path("a.toml").absolute())


@pytest.mark.parametrize(
    ("words", "level"), [(["-v"], "info"), (["-vv"], "debug"), ([], "warning")]
)
def test_v_raises_the_log_level(words: list[str], level: str) -> None:
    assert parse([*words, "job"]).log_level == level


def test_a_spelled_out_log_level_wins_over_v() -> None:
    assert parse(["-v", "--log-level", "error", "job"]).log_level == "error"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "no command given"),
        (["--"], "no command given"),
        (["-v"], "no command given"),
        (["--", ""], "the command is an empty word"),
        (["--bugdet", "4GiB", "job"], "'--bugdet' (did you mean '--budget'?)"),
        (["--bugdet=4GiB", "job"], "'--bugdet' (did you mean '--budget'?)"),
        (["--budge", "4GiB", "job"], "'--budge' (did you mean '--budget'?)"),
        (["-x", "job"], "unknown option '-x'"),
        (["--budget"], "--budget: expected one argument"),
        (["--budget", "lots", "job"], "--budget: 'lots' is not a size"),
        (["--limit", "0", "job"], "--limit: '0' is less than one block"),
        (["--policy", "demnad", "job"], "(did you mean 'demand'?)"),
        (["--policy", "demand", "--policy", "demand", "job"], "--policy is given twice"),
        (
            ["--device", "gpu0", "job"],
            "must be an index such as 0 or a UUID such as GPU-..., not 'gpu0'",
        ),
        (["--device", "0,", "job"], "must be an index such as 0 or a UUID such as GPU-..., not ''"),
        (["--device", "1,1", "job"], "names a device twice"),
        (["--priority", "-11", "job"], "--priority: must be an integer from -10 to 10, not '-11'"),
        (["--name", " ", "job"], "must be a job name"),
        (["--report", "all", "job"], "unknown kind of report 'all'"),
        (["--limit", "0x", "job"], "--limit: must be a multiple from 0.001x"),
        (["--log-level", "loud", "job"], "unknown log level 'loud'"),
        (["--log-file", "/nonexistent/log", "job"], "cannot write to '/nonexistent/log'"),
        (["--record", "", "job"], "--record: the file name is empty"),
        (
            ["--record", "/nonexistent/t", "job"],
            "--record: cannot write to '/nonexistent/t': the folder",
        ),
        (["--record", "/", "job"], "--record: cannot write to '/': it is a folder"),
        (["--record", "/dev/null", "job"], "--record: cannot write to '/dev/null': it is not a"),
        (["--version=3", "job"], "--version"),
    ],
)
def test_bad_input_names_the_thing_and_the_remedy_in_one_line(
    argv: list[str], expected: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        parse(argv)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.status == 2


@pytest.mark.lab
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--virtual", ""], "--virtual: the name is empty"),
        (["--virtual", "p", "--virtual-set", "memory"], "must be KEY=VALUE, such as memory=8GiB"),
        (["--virtual-set", "memory=1G"], "--virtual-set needs a virtual GPU"),
    ],
)
def test_a_bad_option_of_the_virtual_gpu_is_named(words: list[str], expected: str) -> None:
    with pytest.raises(BadInputError, match=expected):
        parse([*words, "job"])


@pytest.mark.parametrize("option", ["--record", "--log-file", "--config"])
def test_a_relative_name_in_a_deleted_folder_is_named(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(
        BadInputError, match=f"{option}: 't' starts in .* deleted; write an absolute"
    ):
        parse([option, "t", "job"])


def test_looking_at_the_options_keeps_an_older_recording(tmp_path: Path) -> None:
    trace = tmp_path / "job.trace"
    trace.write_bytes(TRACE_MAGIC)
    assert parse(["--record", str(trace), "job"]).record == str(trace)
    assert trace.read_bytes() == TRACE_MAGIC
