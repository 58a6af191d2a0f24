"""The sources of a job's settings, their order, and the administrator's bounds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from pump.config import layers
from pump.config.settings import JOB, JobConfig


class Sources:
    """The configuration files of a user and an administrator, below a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.named = folder / "named.toml"
        self.folder = folder / "here"
        self.user = folder / "user" / "config.toml"
        self.administrator = folder / "etc" / "config.toml"
        for path in (self.folder, self.user.parent, self.administrator.parent):
            path.mkdir()

    def resolve(
        self,
        options: dict[str, object] | None = None,
        environ: dict[str, str] | None = None,
        disabled: bool = False,
    ) -> layers.Resolved:
        named = str(self.named) if self.named.exists() else None
        where = layers.Places(named, str(self.folder), str(self.user), str(self.administrator))
        return layers.resolve(options or {}, environ or {}, where, disabled)

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path)


def test_without_any_source_nothing_is_set(sources: Sources) -> None:
    assert sources.resolve() == layers.Resolved({}, {}, {}, {}, [])


def test_each_source_counts_before_the_next(sources: Sources) -> None:
    files = [sources.administrator, sources.user, sources.folder / "pump.toml", sources.named]
    for number, path in enumerate(files):
        path.write_text(f"[job]\n# a comment\npriority = {number}\n")
        resolved = sources.resolve()
        assert resolved.values == {"priority": number}
        assert resolved.origins == {"priority": f"{path}:3"}
    resolved = sources.resolve(environ={"PUMP_PRIORITY": "8"})
    assert (resolved.values, resolved.origins["priority"]) == ({"priority": 8}, "PUMP_PRIORITY")
    resolved = sources.resolve({"priority": 9}, {"PUMP_PRIORITY": "8"})
    assert (resolved.values, resolved.origins["priority"]) == ({"priority": 9}, layers.OPTION)


def test_each_setting_is_looked_for_by_itself(sources: Sources) -> None:
    sources.user.write_text('[job]\nbudget = "1GiB"\npolicy = "demand"\n')
    sources.named.write_text('[job]\nbudget = "2GiB"\n')
    resolved = sources.resolve({"limit": "50%"}, {"PUMP_NAME": "mine"})
    assert resolved.values == {
        "limit": "50%",
        "name": "mine",
        "budget": str(2 << 30),
        "policy": "demand",
    }
    job = resolved.apply(JobConfig(command=["x"]))
    assert (job.budget, job.policy, job.granularity) == (str(2 << 30), "demand", "native")


def test_every_setting_has_its_variable(sources: Sources) -> None:
    said = {
        "name": ("a", "a"),
        "priority": ("3", 3),
        "budget": ("1GiB", str(1 << 30)),
        "limit": ("1.5x", "1.5x"),
        "report": ("limit", "limit"),
        "policy": ("demand", "demand"),
        "duplicates": ("off", "off"),
        "granularity": ("auto", "auto"),
        "keep_device": ("none,below=4MiB", ["below=4194304"]),
        "devices": ("0,1", ["0", "1"]),
        "record": ("/r", "/r"),
        "record_command": ("no", False),
        "keep_learned": ("no", False),
        "log_level": ("info", "info"),
        "log_file": ("/l", "/l"),
    }
    environ = {f"PUMP_{setting.upper()}": text for setting, (text, _) in said.items()}
    values = {setting: value for setting, (_, value) in said.items()}
    assert sources.resolve(environ=environ).values == values


def test_an_empty_variable_sets_nothing(sources: Sources) -> None:
    assert sources.resolve(environ={"PUMP_BUDGET": ""}).values == {}


def test_a_bad_variable_is_named_with_the_remedy(sources: Sources) -> None:
    with pytest.raises(layers.ConfigInputError, match=r"PUMP_POLICY: .* \(did you mean 'demand'"):
        sources.resolve(environ={"PUMP_POLICY": "demnd"})


def test_a_job_inside_of_a_job_does_not_take_the_outer_ones_variables(sources: Sources) -> None:
    environ = {"PUMP_BUDGET": "4GiB", "LD_PRELOAD": "/x/libother.so:/lib/libpump.so"}
    assert sources.resolve(environ=environ).values == {}


def test_what_switches_pump_off_does_not_stumble_over_its_files(sources: Sources) -> None:
    sources.user.write_text("[jbo]\n")
    resolved = sources.resolve({"budget": "50%"}, {"PUMP_LIMIT": "?"}, disabled=True)
    assert resolved.values == {"budget": "50%"}


def test_the_first_fault_of_a_file_is_told_and_how_to_see_the_others(sources: Sources) -> None:
    sources.user.write_text("[jbo]\n[sevice]\n")
    with pytest.raises(layers.ConfigInputError) as caught:
        sources.resolve()
    assert f"{sources.user}:1: unknown table 'jbo'" in str(caught.value)
    assert f"(and 1 more: pump config check {sources.user})" in str(caught.value)


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    where = layers.Places(str(tmp_path / "no.toml"), str(tmp_path), None, str(tmp_path / "etc"))
    with pytest.raises(layers.ConfigInputError, match="--config: there is no file"):
        layers.resolve({}, {}, where)


def test_files_in_folders_that_the_user_may_not_enter_are_not_the_users(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = [str(sources.folder / "pump.toml"), str(sources.user)]
    for path in closed:
        Path(path).write_text("[job]\npriority = 1\n")
    real = os.lstat

    def lstat(path: str) -> os.stat_result:  # root may enter every folder
        if path in closed:
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "lstat", lstat)
    assert sources.resolve().values == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_folders_file_of_another_user_is_ignored_and_may_be_named(sources: Sources) -> None:
    path = sources.folder / "pump.toml"
    path.write_text("[job]\npriority = 1\n")
    os.chown(path, 12345, 12345)
    resolved = sources.resolve({"policy": "demand"})
    assert resolved.values == {"policy": "demand"}
    (note,) = resolved.notes
    assert note.startswith("ignored: ")
    assert "belongs to user 12345, not to you" in note
    assert "--config" in note
    named = layers.Places(str(path), str(sources.folder), None, str(sources.administrator))
    assert layers.resolve({}, {}, named).values == {"priority": 1}


# ---- bounds ----


def test_an_administrators_bounds_reach_the_shim_and_the_priority_is_brought_down(
    sources: Sources,
) -> None:
    sources.administrator.write_text('[limits]\nbudget = "80%"\nlimit = "8GiB"\npriority = 6\n')
    resolved = sources.resolve({"priority": 9})
    job = resolved.apply(JobConfig(command=["x"]))
    assert (job.budget_most, job.limit_most, job.priority) == ("80%", str(8 << 30), 6)
    (note,) = resolved.notes
    assert "priority 9 is lowered to 6" in note
    assert f"{sources.administrator}:4" in note


def test_a_bound_below_the_default_priority_is_not_spoken_of(sources: Sources) -> None:
    sources.administrator.write_text("[limits]\npriority = -3\n")
    resolved = sources.resolve()
    assert resolved.notes == []
    assert resolved.apply(JobConfig(command=["x"])).priority == -3


def test_no_users_file_can_set_or_lift_bounds(sources: Sources) -> None:
    sources.administrator.write_text("[limits]\npriority = -3\n")
    sources.named.write_text("[limits]\npriority = 10\n")
    with pytest.raises(layers.ConfigInputError, match=r"only /etc/pump/config\.toml may set"):
        sources.resolve({"priority": 9})


# ---- pump-run ----


def test_pump_run_reads_no_toml_and_no_schema_where_there_is_no_file(tmp_path: Path) -> None:
    code = (
        "import sys; from pump.cli import run; from pump.cli.support import options\n"
        "config = run._resolve(options.parse(['--budget', '1GiB', 'x']), {})\n"
        "assert config.budget == str(1 << 30)\n"
        "print(sorted({'tomllib', 'msgspec', 'pump.config.files'} & set(sys.modules)))"
    )
    if Path(layers.ADMINISTRATORS_FILE).exists():
        pytest.skip(f"this machine has {layers.ADMINISTRATORS_FILE}")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_places_follow_the_environment() -> None:
    assert layers.places(None, {"HOME": "/h"}).user == "/h/.config/pump/config.toml"
    assert layers.places(None, {"HOME": "/h", "XDG_CONFIG_HOME": "/x"}).user == (
        "/x/pump/config.toml"
    )
    assert layers.places(None, {"XDG_CONFIG_HOME": "relative"}).user is None


VARIABLE = re.compile(
    r"""(?:getenv\(|environ(?:\.get\(|\[)|amount_of\()"PUMP_([A-Z_]+)\""""
    r"""|"PUMP_([A-Z_]+)" in environ"""
)


def test_each_variable_that_a_part_of_pump_reads_is_known() -> None:
    sources = [
        path
        for room in ("shim", "lab", "pump", "daemon")
        for path in (ROOT / room).rglob("*.[chp]*")
        if path.suffix in (".c", ".h", ".py") and ROOT / "lab" / "bench" not in path.parents
    ]
    read = {
        name for path in sources for pair in VARIABLE.findall(path.read_text()) for name in pair
    }
    known = {key.upper() for key in JOB} | set(layers.OTHER_VARIABLES)
    assert len(read) > 20
    assert read - {""} <= known


def test_a_variable_near_one_of_pumps_gets_a_suggestion_and_others_stay_alone() -> None:
    told = layers.unknown_variables(
        {"PUMP_BUGDET": "1", "PUMP_DISABLED": "1", "PUMP_BUDGET": "1", "PUMP_XQ": "", "HOME": "/"}
    )
    assert told == [
        "ignoring unknown variable PUMP_BUGDET (did you mean PUMP_BUDGET?)",
        "ignoring unknown variable PUMP_DISABLED (did you mean PUMP_DISABLE?)",
    ]
