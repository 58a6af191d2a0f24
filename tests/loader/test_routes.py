"""Every way to a driver function leads to our wrapper, and through it to the same variant.

The oracle is the same client without pump. Each function of the fake driver returns its own code.
So equal output means that every call reached the variant that the driver itself would return.
"""

import re

import pytest
from loader_build import SHIM, built, environment, run_client

TWINS = {"NONE": "", "SZ": "_ptsz", "DS": "_ptds", "EZ": "_ptsz"}


def hooked_names() -> set[str]:
    text = "".join(path.read_text() for path in (SHIM / "driver").glob("functions_*.h"))
    names = set()
    for twin, symbol in re.findall(r"^PUMP_DRIVER\(HOOK, \w+, (\w+), (\w+),", text, re.M):
        names |= {symbol, symbol + TWINS[twin]}
    assert len(names) > 90
    return names


def routes(program: str, *way: str, **env: str) -> list[list[str]]:
    done = run_client(program, *way, env=environment(env))
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def routes_without_pump(program: str, *way: str, **env: str) -> list[list[str]]:
    done = run_client(program, *way, env=environment(env, pump=False))
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def codes(rows: list[list[str]]) -> list[tuple[str, str]]:
    return [(row[0], row[2]) for row in rows]


WAYS = [
    ("client_routes", "dlsym"),
    ("client_routes", "default"),
    ("client_routes", "gpa1"),
    ("client_routes", "gpa2"),
    ("client_direct",),
]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_every_call_reaches_the_variant_that_it_would_reach_without_pump(
    way: tuple[str, ...], live: bool
) -> None:
    env = {"FAKE_INIT": "1"} if live else {}
    expected = routes_without_pump(*way, **env)
    seen = routes(*way, **env)
    assert codes(seen) == codes(expected)
    assert len({row[2] for row in expected}) > 100


@pytest.mark.parametrize("way", [w for w in WAYS if len(w) == 1 or not w[1].startswith("gpa")])
def test_exactly_the_hooked_names_lead_to_a_wrapper(way: tuple[str, ...]) -> None:
    hooked = hooked_names()
    seen = routes(*way)
    assert {library for _, library, _ in seen} == {"libpump.so", "libcuda.so.1"}
    for name, library, _ in seen:
        assert library == ("libpump.so" if name in hooked else "libcuda.so.1"), name


@pytest.mark.parametrize("way", ["gpa1", "gpa2"])
def test_get_proc_address_substitutes_by_address_and_not_by_name(way: str) -> None:
    hooked = hooked_names()
    code_of = {name: code for name, _, code in routes_without_pump("client_direct")}
    hooked_codes = {code_of[name] for name in hooked if not name.startswith("cuGetProcAddress")}
    wrapped = 0
    for question, library, code in routes("client_routes", way):
        if library == "-" or question.startswith("cuGetProcAddress/"):
            continue
        assert (library == "libpump.so") == (code in hooked_codes), question
        wrapped += library == "libpump.so"
    assert wrapped > 1000


def test_a_driver_that_hides_its_addresses_is_matched_by_name_version_and_flags() -> None:
    """Each look-up gives the right variant, by its return code; hooked functions have wrappers."""
    expected = routes_without_pump("client_routes", "gpa2", FAKE_HIDDEN="1")
    seen = routes("client_routes", "gpa2", FAKE_HIDDEN="1")
    assert codes(seen) == codes(expected)
    plain = routes("client_routes", "gpa2")
    assert [row[1] for row in seen] == [row[1] for row in plain]


def test_disabled_pump_hands_out_the_drivers_own_addresses() -> None:
    for way in ("dlsym", "gpa1", "gpa2"):
        rows = routes("client_routes", way, PUMP_DISABLE="1")
        assert {row[1] for row in rows} <= {"libcuda.so.1", "-"}
    rows = routes("client_direct", PUMP_DISABLE="1", FAKE_INIT="1")
    assert codes(rows) == codes(routes_without_pump("client_direct", FAKE_INIT="1"))


def test_the_exported_symbols_are_the_hooks_dlsym_dlerror_and_two_more() -> None:
    import subprocess

    listing = subprocess.run(
        ["nm", "-D", "--defined-only", built() / "libpump.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    # pump_pool_piece is for tools that check the pool (shim/pool/pool.h). The other name replaces
    # PyTorch's function for reports of the allocator (shim/record/allocator_blocks.c).
    reports = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
    assert exported == hooked_names() | {"dlsym", "dlerror", "pump_pool_piece", reports}


def test_the_shim_needs_no_driver_library_and_versions_nothing() -> None:
    import subprocess

    dynamic = subprocess.run(
        ["readelf", "-d", built() / "libpump.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "libcuda" not in dynamic
    assert "VERDEF" not in dynamic


@pytest.mark.parametrize("way", ["dlsym", "default"])
def test_what_an_old_driver_lacks_is_not_found(way: str) -> None:
    def asked(pump: bool) -> list[list[str]]:
        done = run_client("client_routes", way, env=environment({}, pump=pump, driver="old"))
        assert done.returncode == 0, done.stdout[-500:] + done.stderr
        return [line.split() for line in done.stdout.splitlines()]

    seen, expected = asked(True), asked(False)
    assert codes(seen) == codes(expected)
    lacking = {row[0] for row in expected if row[1] == "-"}
    assert len(lacking & hooked_names()) >= 8
    assert {row[0] for row in seen if row[1] == "libpump.so"} == hooked_names() - lacking


@pytest.mark.parametrize("way", ["pending", "told", "forgotten", "newer", "thread", "report"])
def test_an_error_of_the_programs_outlives_our_look_ups(way: str) -> None:
    seen = run_client("client_error", way, env=environment({}))
    expected = run_client("client_error", way, env=environment({}, pump=False))
    assert expected.returncode == 0
    assert "libfirst.so" in expected.stdout or way in ("forgotten", "newer")
    assert (seen.returncode, seen.stdout) == (0, expected.stdout), seen.stderr
