"""The environments that pump-run makes for the job and for its pumpd."""

import pytest

from pump.cli.lab import Virtual
from pump.cli.support.environment import Parts, disabled, for_job, for_pumpd, notes
from pump.cli.support.lines import BadInputError
from pump.config.settings import JobConfig

CONFIG = JobConfig(command=["job"], budget="80%", limit="4096", log_level="info", log_file="/l")
SHIM = "/opt/pump/libpump.so"


def test_the_shim_is_told_everything_and_preloaded_first() -> None:
    job = for_job(
        CONFIG,
        Parts(SHIM, socket_path="/s", job="a1", job_pid=7),
        {"HOME": "/h", "LD_PRELOAD": "/a.so /b.so"},
    )
    assert job == {
        "HOME": "/h",
        "ASAN_OPTIONS": "verify_asan_link_order=0",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "LD_PRELOAD": f"{SHIM}:/a.so:/b.so",
        "PUMP_SOCKET": "/s",
        "PUMP_JOB": "a1",
        "PUMP_JOB_PID": "7",
        "PUMP_BUDGET": "80%",
        "PUMP_LIMIT": "4096",
        "PUMP_KEEP_DEVICE": "library=libnccl,library=libnvshmem,library=libuct,ipc",
        "PUMP_GRANULARITY": "native",
        "PUMP_REPORT": "budget",
        "PUMP_LOG_LEVEL": "info",
        "PUMP_LOG_FILE": "/l",
    }


def test_a_pump_run_inside_another_preloads_one_shim_and_forgets_the_outer_socket() -> None:
    outer = for_job(CONFIG, Parts("/elsewhere/libpump.so", socket_path="/outer"), {"A": "1"})
    inner = for_job(CONFIG, Parts(SHIM), outer)
    assert inner["LD_PRELOAD"] == SHIM
    assert "PUMP_SOCKET" not in inner


def test_hardware_queues_are_raised_where_the_user_has_not_chosen() -> None:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    assert for_job(CONFIG, Parts(SHIM), {})[name] == "32"
    for chosen in ("1", "8", ""):
        assert for_job(CONFIG, Parts(SHIM), {name: chosen})[name] == chosen
    assert name not in for_job(CONFIG, Parts(None), {})
    (note,) = notes(CONFIG, {name: "1"})
    assert note.startswith(f"{name}=1: ")
    assert notes(CONFIG, {name: "2"}) == []


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ("", "verify_asan_link_order=0"),
        ("detect_leaks=0", "detect_leaks=0:verify_asan_link_order=0"),
        ("verify_asan_link_order=1:quiet=1", "verify_asan_link_order=1:quiet=1"),
    ],
)
def test_a_sanitizer_need_not_be_the_first_library(chosen: str, found: str) -> None:
    job = for_job(CONFIG, Parts(SHIM), {"ASAN_OPTIONS": chosen})
    assert job["ASAN_OPTIONS"] == found
    assert for_job(CONFIG, Parts(SHIM), job)["ASAN_OPTIONS"] == found
    assert "ASAN_OPTIONS" not in for_job(CONFIG, Parts(None), {})


def test_the_kill_switch_removes_an_outer_shim_as_well() -> None:
    outer = for_job(CONFIG, Parts(SHIM, socket_path="/outer"), {"PUMP_DISABLE": "1"})
    inner = for_job(CONFIG, Parts(None), outer)
    assert inner == {
        "PUMP_DISABLE": "1",
        "ASAN_OPTIONS": "verify_asan_link_order=0",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",  # as if the user had set it
        "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def test_the_shim_reports_everything_only_where_a_pumpd_can_record_it() -> None:
    config = CONFIG._replace(record="/t")
    assert for_job(config, Parts(SHIM, socket_path="/s"), {})["PUMP_RECORD"] == "/t"
    for parts in (Parts(SHIM), Parts(None)):
        assert "PUMP_RECORD" not in for_job(config, parts, {"PUMP_RECORD": "/outer"})


def test_a_virtual_gpu_has_its_libraries_after_the_shim_and_its_variables() -> None:
    libraries = ["/v/libone.so", "/v/libtwo.so"]
    virtual = Virtual("/v", libraries, lambda environ: {"SEEN": environ["SEEN"] + "2"}, {}, False)
    for existing in ("/mine.so", ":".join([SHIM, *libraries, "/mine.so"])):
        job = for_job(CONFIG, Parts(SHIM, virtual), {"LD_PRELOAD": existing, "SEEN": "1"})
        assert job["LD_PRELOAD"].split(":") == [SHIM, *libraries, "/mine.so"]
        assert job["SEEN"] == "12"


def test_a_job_inside_one_with_a_virtual_gpu_keeps_that_gpu() -> None:
    outer = {"LD_PRELOAD": "/old/libpump.so:/v/libcudart.so.13", "PUMP_NEIGHBOURS": "none"}
    job = for_job(CONFIG, Parts(SHIM), outer)
    assert job["LD_PRELOAD"].split(":") == [SHIM, "/v/libcudart.so.13"]
    assert "PUMP_NEIGHBOURS" not in job


def test_without_virtual_the_library_path_is_the_users() -> None:
    environ = {"LD_LIBRARY_PATH": "::/x:", "CUDA_VISIBLE_DEVICES": "3"}
    assert for_job(CONFIG, Parts(None), environ) == environ


def test_chosen_devices_replace_the_visible_ones() -> None:
    job = for_job(CONFIG, Parts(None, visible_devices="GPU-1"), {"CUDA_VISIBLE_DEVICES": "3"})
    assert job == {"CUDA_VISIBLE_DEVICES": "GPU-1"}


@pytest.mark.parametrize("path", ["/with blank/libpump.so", "/with:colon/libpump.so"])
def test_a_path_that_the_loader_would_split_is_refused(path: str) -> None:
    with pytest.raises(BadInputError, match="LD_PRELOAD cannot hold"):
        for_job(CONFIG, Parts(path), {})


@pytest.mark.parametrize(("value", "off"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_kill_switch_is_any_value_but_nothing_and_0(value: str, off: bool) -> None:
    assert disabled({"PUMP_DISABLE": value}) is off
    assert not disabled({})


def test_pumpd_sees_nothing_of_the_job_that_could_reach_into_it() -> None:
    environ = {
        "PATH": "/bin",
        "LD_PRELOAD": "/a.so",
        "LD_LIBRARY_PATH": "/python/lib",
        "PUMP_VIRTUAL_PROFILE": "x",
        "PUMP_SOCKET": "/s",
        "PUMP_JOB_PID": "7",
        "PYTHONSTARTUP": "/x.py",
        "PYTHONHOME": "/python",
        "PYTHONPATH": "/modules:",
    }
    assert for_pumpd(environ) == {
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "/python/lib",
        "PYTHONPATH": "/modules",
    }
