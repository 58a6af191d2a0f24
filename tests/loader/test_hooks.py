"""A user's own hook of driver functions gets the same calls with and without pump, or pump reports
the hook."""

from __future__ import annotations

import subprocess

import pytest
from loader_build import environment, run_client

WORK = {"FAKE_MODE": "work"}
WAYS = ("linked", "handle", "default", "address")
HOOKED = {"linked", "default"}
"""Ways to find a function that lead to the hook; the other ways find the driver's function."""
ORIGINALS = pytest.mark.parametrize(
    "original", [{}, {"HOOK_BY_HANDLE": "1"}], ids=["next", "handle"]
)


def run(
    way: str, env: dict[str, str], program: str = "client_hooked"
) -> subprocess.CompletedProcess[str]:
    done = run_client(program, way, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@ORIGINALS
@pytest.mark.parametrize("way", WAYS)
def test_a_hook_before_pump_sees_what_it_sees_without_pump(
    way: str, original: dict[str, str]
) -> None:
    plain = run(way, environment(WORK | original, pump=False, preload=("hook.so",)))
    seen = 3 if way in HOOKED else 0
    assert plain.stdout == f"failed 0\nhook: {seen} allocated, {seen} freed\n"
    found = run(way, environment(WORK | original, preload=("<hook.so",)))
    assert (found.stdout, found.stderr) == (plain.stdout, "")


@ORIGINALS
@pytest.mark.parametrize("way", WAYS)
def test_a_hook_after_pump_is_named_and_harms_nothing(way: str, original: dict[str, str]) -> None:
    found = run(way, environment(WORK | original, preload=("hook.so",)))
    assert found.stdout == "failed 0\nhook: 0 allocated, 0 freed\n"
    (line,) = found.stderr.splitlines()
    assert (
        "hook.so hooks cuMemAlloc_v2 and 1 more but loads after pump, so its hooks are skipped"
        in line
    )


def test_a_hook_that_the_program_is_linked_to_is_named() -> None:
    (line,) = run("linked", environment(WORK), "client_needing").stderr.splitlines()
    assert "hook.so hooks cuMemAlloc_v2 and 1 more but loads after pump" in line


def test_libraries_that_hook_nothing_of_the_driver_are_not_named() -> None:
    env = environment(WORK, preload=("libother.so", "constructor.so"))
    assert run("linked", env).stderr == ""
