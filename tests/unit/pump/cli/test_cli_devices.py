"""The GPUs that a job gets; a module of this test acts as NVML."""

import sys
import types
from pathlib import Path

import pytest

from pump.cli import devices
from pump.cli.support.lines import BadInputError

UUIDS = ["GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333"]


class NVMLError(Exception):
    """Has the name of pynvml's error."""


def play_nvml(monkeypatch: pytest.MonkeyPatch, *, works: bool = True) -> None:
    nvml = types.ModuleType("pynvml")

    def init() -> None:
        if not works:
            raise NVMLError("Driver Not Loaded")

    def by_uuid(uuid: bytes) -> bytes:
        if uuid != b"MIG-good":
            raise NVMLError("Not Found")
        return uuid

    for name, value in {
        "NVMLError": NVMLError,
        "nvmlInit": init,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(UUIDS),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: UUIDS[handle],
        "nvmlDeviceGetHandleByUUID": by_uuid,
    }.items():
        setattr(nvml, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


@pytest.mark.parametrize(
    ("asked", "visible"),
    [
        (["0"], "GPU-aaaa1111"),
        (["2", "0"], "GPU-bbbb3333,GPU-aaaa1111"),
        (["gpu-b"], "GPU-bbbb3333"),
        (["MIG-good", "1"], "MIG-good,GPU-aaaa2222"),
    ],
)
def test_devices_become_uuids(
    asked: list[str], visible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_nvml(monkeypatch)
    assert devices.resolve(asked) == visible


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["3"], "there is no GPU 3; this machine has 3 GPUs"),
        (["GPU-a"], "several UUIDs start with"),
        (["GPU-zz"], "no GPU has the UUID 'GPU-zz'"),
        (["0", "GPU-aaaa1"], "names a GPU twice"),
        (["MIG-bad"], "NVML refuses 'MIG-bad'"),
    ],
)
def test_a_device_that_is_not_there_is_named(
    asked: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_nvml(monkeypatch)
    with pytest.raises(BadInputError, match=expected):
        devices.resolve(asked)


def test_without_nvml_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    play_nvml(monkeypatch, works=False)
    with pytest.raises(BadInputError, match=r"Driver Not Loaded.*CUDA_VISIBLE_DEVICES"):
        devices.resolve(["0"])
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(BadInputError, match="CUDA_VISIBLE_DEVICES"):
        devices.resolve(["0"])


def test_a_driver_on_the_library_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    assert devices.driver_found({"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}"}, "/no/cache")


def test_a_driver_in_the_loader_cache_counts_only_if_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_driver_loads", lambda: False)
    driver = tmp_path / "libcuda.so.1"
    cache = tmp_path / "cache"
    cache.write_bytes(b"\0libcuda.so.1\0" + bytes(driver) + b"\0/lib/libm.so.6\0")
    assert not devices.driver_found({}, str(cache))
    driver.touch()
    assert devices.driver_found({}, str(cache))


def test_the_loader_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for loads in (True, False):
        monkeypatch.setattr(devices, "_driver_loads", lambda loads=loads: loads)
        assert devices.driver_found({}, "/no/cache") is loads
