"""Unusual processes: no driver, forks, exec, threads, constructors, pipelines, DEEPBIND."""

import subprocess

import pytest
from loader_build import built, environment, run_client

WORK = {"FAKE_MODE": "work", "FAKE_CONCURRENT": "1"}


def check(command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = run_client("client_life", command, env=env)
    assert done.stdout.splitlines()[-1:] == ["ok"], done.stdout + done.stderr
    assert done.returncode == 0
    return done


def test_the_empty_name_and_other_odd_questions_are_answered_as_by_the_driver() -> None:
    check("empty", environment({}))


@pytest.mark.parametrize("extra", [{}, {"PUMP_SOCKET": "/nonexistent/socket"}])
def test_a_missing_driver_stays_missing(extra: dict[str, str]) -> None:
    done = check("missing", environment(extra, driver=False))
    assert "not intercepted" not in done.stderr


def test_errno_and_dlerror_stay_the_programs_own() -> None:
    check("traces", environment(WORK))


def test_many_threads_may_look_up_and_start_at_the_same_time() -> None:
    check("threads", environment(WORK | {"EXPECT_WRAPPER": "1"}))


@pytest.mark.parametrize("active", ["", "always"])
def test_children_before_and_after_init_work_and_so_does_a_second_init(active: str) -> None:
    check("forks", environment(WORK | {"PUMP_ACTIVE": active}))


def test_a_child_that_exits_is_not_taken_for_one_that_bypassed_pump() -> None:
    done = check("fork_exit", environment(WORK | {"PUMP_SOCKET": "/nonexistent/socket"}))
    assert "not intercepted" not in done.stderr


def test_a_program_may_replace_itself() -> None:
    check("exec", environment(WORK))


def test_a_library_constructor_may_reach_the_driver() -> None:
    env = environment(WORK, preload=("constructor.so",))
    check("use", env)
    env = environment(WORK, preload=("<constructor.so",))
    check("use", env)
    check("plugin", environment(WORK) | {"PLUGIN": str(built() / "constructor.so")})


def test_a_library_with_driver_stubs_of_its_own_finds_the_driver() -> None:
    env = environment(WORK | {"PLUGIN": str(built() / "stubs.so")})
    check("plugin", env)
    without = environment(WORK | {"PLUGIN": str(built() / "stubs.so")}, driver=False)
    assert run_client("client_life", "plugin", env=without).returncode == 1


def test_a_library_behind_deepbind_works_and_pump_says_that_it_was_bypassed() -> None:
    done = check("deepbind", environment(WORK | {"PUMP_SOCKET": "/nonexistent/socket"}))
    assert "not intercepted" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    named = {"PUMP_SOCKET": "/nonexistent/socket", "PUMP_LOG_LEVEL": "info"}
    assert "RTLD_DEEPBIND" in check("deepbind", environment(WORK | named)).stderr
    done = check("plugin", environment(WORK | {"PUMP_SOCKET": "/nonexistent/socket"}))
    assert "not intercepted" not in done.stderr


def test_a_context_made_behind_deepbind_after_our_init_is_noticed_too() -> None:
    env = environment(WORK | {"PLUGIN_RETAINS": "1"})
    done = check("init_deepbind", env)
    assert done.stderr.count("not intercepted") == 1
    assert "not intercepted" not in check("init_plugin", env).stderr


@pytest.mark.parametrize("order", ["<interposer.so", "interposer.so"])
def test_dlsym_next_of_another_preloaded_library_leads_to_what_follows_it(order: str) -> None:
    expected = run_client("client_next", env=environment({}, pump=False, preload=(order,)))
    assert expected.returncode == 0
    assert expected.stdout.startswith("1 1")
    seen = run_client("client_next", env=environment({}, preload=(order,)))
    assert (seen.returncode, seen.stdout) == (0, expected.stdout), seen.stderr


def test_a_pipeline_of_a_shell_ends_and_carries_every_byte() -> None:
    script = f"{built() / 'client_life'} chatter | cat | tail -n 2"
    done = subprocess.run(
        ["sh", "-c", script],
        env=environment(WORK),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == "line 999\nok\n"


def test_helpers_of_a_job_run_as_without_pump() -> None:
    script = "echo a | tr a b; false || exit 7"
    done = subprocess.run(
        ["sh", "-c", script],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "b\n", "")
