"""Device profiles: loading, bounds, errors, the flattened form, and what C makes of it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import gpu_model
import pytest

from pump_lab import profiles


def table(name: str = "a100-pcie4") -> dict[str, object]:
    return tomllib.loads((profiles.FOLDER / f"{name}.toml").read_text())


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_means_the_same_in_c_as_in_python(name: str) -> None:
    ffi, _ = gpu_model.library()
    loaded = profiles.load(name)
    parsed = gpu_model.parse(loaded.flatten())
    assert loaded.name == name
    places = {key.rpartition(".")[2]: key for key in profiles.KEYS if key != "device.name"}
    places |= {
        "device_name": "device.name",
        "kernel_gbps": "kernels.default_gbps",
        "kernel_min_us": "kernels.min_us",
    }
    checked = 0
    for field, _ in ffi.typeof("struct uvm_profile").fields:
        if field not in places:
            assert field in ("compute_major", "compute_minor", "kernel_count", "kernels")
            continue
        found = getattr(parsed, field)
        if not isinstance(found, int | float):
            found = ffi.string(found).decode()
        assert found == loaded.values[places[field]], field
        checked += 1
    assert checked == len(profiles.KEYS) - 1
    version = f"{parsed.compute_major}.{parsed.compute_minor}"
    assert version == loaded.values["device.compute_capability"]


def test_the_two_profiles_of_the_first_release_are_there() -> None:
    assert {"a100-pcie4", "h200-pcie5"} <= set(profiles.names())


def test_c_refuses_unknown_repeated_missing_and_bad_keys_by_name() -> None:
    good = profiles.load("a100-pcie4").flatten()
    for text, message in (
        (good + ";uvm.colour=3", "unknown key 'uvm.colour'"),
        (good + ";kernel.x.speed=3", "unknown key 'kernel.x.speed'"),
        (good + ";name=b", "given twice: 'name'"),
        (good + ";kernel.x.gbps=3;kernel.x.gbps=4", "given twice: 'kernel.x.gbps'"),
        (good + ";kernel.x.gbps=0", "bad value of key 'kernel.x.gbps'"),
        (good + ";kernel.x.gbps=100001", "bad value of key 'kernel.x.gbps'"),
        (good + ";loose", "missing '=' in 'loose'"),
        (good.replace("uvm.evict_us=25.0", ""), "missing key 'uvm.evict_us'"),
        (good.replace("uvm.evict_us=25.0", "uvm.evict_us=-1"), "bad value of key 'uvm.evict_us'"),
        (good.replace("uvm.evict_us=25.0", "uvm.evict_us=2x"), "bad value of key 'uvm.evict_us'"),
        (good.replace("uvm.evict_us=25.0", "uvm.evict_us="), "bad value of key 'uvm.evict_us'"),
        (good.replace("multiprocessors=108", "multiprocessors=1.5"), "device.multiprocessors"),
        ("", "missing key 'name'"),
    ):
        with pytest.raises(ValueError, match="device profile: ") as caught:
            gpu_model.parse(text)
        assert message in str(caught.value)


def test_numbers_of_every_notation_survive_the_way_to_c() -> None:
    for text, value in (("1e-05", 1e-05), ("1e+05", 1e5), ("0.25", 0.25), ("7", 7.0)):
        settings = {"uvm.evict_us": text}
        flat = profiles.load("a100-pcie4").changed(settings).flatten()
        assert gpu_model.parse(flat).evict_us == pytest.approx(value, rel=1e-12)


def test_a_kernel_has_its_own_speed_or_the_default_and_a_least_time() -> None:
    _, lib = gpu_model.library()
    settings = {"kernel.slow.gbps": "10", "kernel.name.with.dots.min_us": "50"}
    flat = profiles.load("a100-pcie4").changed(settings).flatten()
    parsed = gpu_model.parse(flat)
    length = 1_300_000_000
    assert lib.uvm_profile_kernel_ns(parsed, b"other", length) == 1_000_000
    assert lib.uvm_profile_kernel_ns(parsed, b"slow", length) == 130_000_000
    assert lib.uvm_profile_kernel_ns(parsed, b"other", 0) == 3_000
    assert lib.uvm_profile_kernel_ns(parsed, b"name.with.dots", 0) == 50_000


def test_settings_change_a_profile_and_its_hash() -> None:
    profile = profiles.load("a100-pcie4")
    changed = profile.changed({"memory": "8GiB", "uvm.evict_us": "30"})
    assert changed.values["device.memory_bytes"] == 8 << 30
    assert changed.hash() != profile.hash() == profiles.load("a100-pcie4").hash()
    assert profile.flatten({"mode": "compute"}).endswith(";mode=compute")
    assert "mode" not in profile.flatten()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memry": "8GiB"}, "unknown key 'memry' (did you mean 'memory'?)"),
        ({"memory": "lots"}, "memory: 'lots' is not a size"),
        ({"memory": "1"}, "device.memory_bytes must be from"),
        ({"mode": "fast"}, "mode must be timing or compute, not 'fast'"),
        ({"copies": "none"}, "copies must be real or modelled, not 'none'"),
        ({"locks": "all"}, "locks must be none or context or space or both, not 'all'"),
        ({"locks": "space", "shared": "lab"}, "a shared card cannot have locks"),
        ({"queues": "few"}, "queues must be apart or shared, not 'few'"),
        ({"copies": "modelled", "mode": "compute"}, "mode=compute needs copies=real"),
        ({"uvm.evict_us": "soon"}, "uvm.evict_us must be a number, not 'soon'"),
        ({"uvm.evict_us": "nan"}, "uvm.evict_us must be from 0 to"),
        ({"link.duplex_in": "1.5"}, "must be from 0.1 to 1, not"),
        ({"name": "a;b"}, "must not contain"),
        ({"device.compute_capability": "eight"}, 'must be like "8.0"'),
        ({"kernel.x;y.gbps": "1"}, "unknown key"),
    ],
)
def test_a_bad_setting_is_named_with_its_remedy(settings: dict[str, str], message: str) -> None:
    with pytest.raises(profiles.ProfileError) as caught:
        profiles.load("a100-pcie4").flatten(settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_profile_with_old_keys_loads_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.toml"
    text = (profiles.FOLDER / "a100-pcie4.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("duplex_")]
    path.write_text("\n".join(lines).replace("[link]", "[link]\nduplex_factor = 0.7"))
    values = profiles.load(str(path)).values
    assert (values["link.duplex_in"], values["link.duplex_out"]) == (0.7, 0.7)
    assert "link.duplex_factor is an old key; use link.duplex_in and" in capsys.readouterr().err


def test_a_profile_may_come_from_a_file_and_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = (profiles.FOLDER / "a100-pcie4.toml").read_text()
    path.write_text(text.replace('"a100-pcie4"', '"mine"'))
    assert profiles.load(str(path)).name == "mine"
    path.write_text(text + "surprise = 1\n")
    with pytest.raises(profiles.ProfileError, match=r"unknown key 'kernel\.\w+\.surprise'"):
        profiles.load(str(path))
    path.write_text("name = ")
    with pytest.raises(profiles.ProfileError, match="is not valid TOML"):
        profiles.load(str(path))
    with pytest.raises(profiles.ProfileError, match="cannot read"):
        profiles.load(str(tmp_path / "none.toml"))
    with pytest.raises(profiles.ProfileError, match=r"no profile 'a100'.*a100-pcie4"):
        profiles.load("a100")


def test_missing_keys_and_wrong_kinds_are_errors() -> None:
    broken = table()
    del broken["link"]
    with pytest.raises(profiles.ProfileError, match=r"missing key 'link\.prefetch_h2d_gbps'"):
        profiles.validate("x", broken)
    broken = table()
    broken["device"]["multiprocessors"] = True  # type: ignore[index]
    with pytest.raises(profiles.ProfileError, match="must be an integer"):
        profiles.validate("x", broken)


def test_the_hosts_factor_multiplies_the_times_of_the_processor_and_no_rate() -> None:
    base = profiles.load("a100-pcie4")
    one, twice = (
        gpu_model.parse(base.changed({"uvm.host_factor": factor}).flatten()) for factor in "12"
    )
    for key in profiles.KEYS:
        name = key.rpartition(".")[2]
        if key.startswith("uvm.") and name.endswith("_us"):
            assert getattr(twice, name) == 2 * getattr(one, name) > 0, name
    assert (twice.populate_gbps, twice.launch_us) == (one.populate_gbps, one.launch_us)


def test_a_profile_without_a_hosts_factor_is_of_its_own_host(tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    text = (profiles.FOLDER / "a100-pcie4.toml").read_text()
    added = ("host_factor", "cpu_unmap_page_us", "fault_wake_us")
    kept = [line for line in text.splitlines() if not line.startswith(added)]
    path.write_text("\n".join(kept))
    values = profiles.load(str(path)).values
    assert (values["uvm.host_factor"], values["uvm.cpu_unmap_page_us"]) == (1, 0)
    assert values["uvm.fault_wake_us"] == 0
