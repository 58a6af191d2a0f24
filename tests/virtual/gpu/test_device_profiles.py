"""Device profiles: loading, bounds, errors, the flattened form, and its parser in C."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import gpu_model
import pytest

from pump_lab import profiles

DENSE = ("dense_forward", "dense_backward_weights", "dense_backward_input")
CARD = (profiles.FOLDER / "a100-pcie4.toml").read_text()


def whole(without: str = "^$") -> str:
    """Returns a file with all constants and without a host's name, except for the matching keys."""
    lines = []
    for key, value in profiles.load("a100-pcie4").values.items():
        if not re.search(without, key):
            lines.append(f"{key} = {json.dumps(value)}".replace("kernel.", "kernels."))
    return "\n".join(lines)


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_means_the_same_in_c_as_in_python(name: str) -> None:
    ffi, _ = gpu_model.library()
    loaded = profiles.load(name)
    parsed = gpu_model.parse(loaded.flatten())
    assert loaded.name == name
    values = loaded.on_own_host().values | {"uvm.host_factor": loaded.values["uvm.host_factor"]}
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
        assert found == values[places[field]], field
        checked += 1
    assert checked == len(profiles.KEYS) - 1
    version = f"{parsed.compute_major}.{parsed.compute_minor}"
    assert version == loaded.values["device.compute_capability"]


def test_the_cards_are_there_in_their_hosts() -> None:
    factors = {name: profiles.load(name).values["uvm.host_factor"] for name in profiles.names()}
    hosts = profiles.hosts()
    assert factors == {
        **dict.fromkeys(("a100-pcie4", "h100-pcie5", "h200-pcie5"), hosts["server"]),
        **dict.fromkeys(("rtx4090", "rtx5090"), hosts["desktop"]),
    }
    assert list(hosts) == ["desktop", "server", "vm"]
    assert hosts["desktop"] < hosts["server"] == 1 < hosts["vm"]


def test_cards_differ_in_device_and_rates_alone_and_share_the_hosts_constants() -> None:
    """The host's constants are in one list, and no card's file has any."""
    rates = {f"link.{way}_gbps" for way in ("copy_h2d", "copy_d2h", "prefetch_h2d", "remote")}
    rates |= {"uvm.populate_gbps", "kernels.default_gbps"}
    for name in profiles.names():
        own = profiles._flat(name, {
            key: value for key, value in tomllib.loads(
                (profiles.FOLDER / f"{name}.toml").read_text()).items() if key != "host"
        })  # fmt: skip
        of_card = {key for key in own if key.startswith("device.")}
        assert set(own) - of_card == {"name", *rates, *(f"kernel.{one}.gbps" for one in DENSE)}
        first, found = (profiles.load(f"{card}@vm").values for card in ("a100-pcie4", name))
        shared = set(profiles.KEYS) - set(own)
        assert {key: first[key] for key in shared} == {key: found[key] for key in shared}
        assert "uvm.fault_base_us" in shared
        assert "link.duplex_in" in shared


def test_a_host_by_name_changes_the_factor_the_name_and_the_hash_alone() -> None:
    server = profiles.load("a100-pcie4")
    assert repr(profiles.load("a100-pcie4@server")) == repr(server)
    vm = profiles.load("a100-pcie4@vm")
    changed = {key for key, value in vm.values.items() if value != server.values[key]}
    assert changed == {"name", "uvm.host_factor"}
    assert vm.name == "a100-pcie4@vm"
    factor = profiles.hosts()["vm"]
    assert vm.values["uvm.host_factor"] == factor
    first, second = (gpu_model.parse(one.flatten()).evict_us for one in (server, vm))
    assert second == factor * first


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a100-pcie4@sever", "no host 'sever' (did you mean 'server'?); known: desktop"),
        ("a100-pcie4@", "no host ''; known: desktop, server, vm"),
        ("a10-pcie4@vm", "no profile 'a10-pcie4' (did you mean 'a100-pcie4'?)"),
        ("{file}@vm", "has its own host's times; leave out '@vm'"),
    ],
)
def test_an_unknown_host_is_named_with_its_remedy(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(whole())
    with pytest.raises(profiles.ProfileError) as caught:
        profiles.load(name.format(file=tmp_path / "mine.toml"))
    assert message in str(caught.value)


def test_a_users_file_may_name_a_host_and_differ_from_it(tmp_path: Path) -> None:
    path = tmp_path / "a@b.toml"
    path.write_text(CARD.replace("[uvm]", "[uvm]\nevict_us = 40"))
    found = profiles.load(str(path))
    server = profiles.load("a100-pcie4")
    changed = {key for key, value in found.values.items() if value != server.values[key]}
    assert (changed, found.values["uvm.evict_us"]) == ({"uvm.evict_us"}, 40)
    desktop = profiles.load(f"{path}@desktop")
    assert desktop.values["uvm.host_factor"] == profiles.hosts()["desktop"]
    path.write_text(CARD.replace("[uvm]", "[uvm]\nhost_factor = 2"))
    with pytest.raises(profiles.ProfileError, match=r"host and uvm\.host_factor say the same"):
        profiles.load(str(path))
    for bad in ("3", "[1]", "{ server = 1 }"):
        with pytest.raises(profiles.ProfileError, match="no host"):
            profiles.validate("x", tomllib.loads(f"host = {bad}"))


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
        ({"locks": "all"}, "locks must be none or context or space or both or lazy, not 'all'"),
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
    path.write_text(whole("duplex") + "\nlink.duplex_factor = 0.7\n")
    values = profiles.load(str(path)).values
    assert (values["link.duplex_in"], values["link.duplex_out"]) == (0.7, 0.7)
    assert "link.duplex_factor is an old key; use link.duplex_in and" in capsys.readouterr().err


def test_a_profile_may_come_from_a_file_and_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(whole().replace('"a100-pcie4"', '"mine"'))
    assert profiles.load(str(path)).name == "mine"
    path.write_text(CARD + "surprise = 1\n")
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
    broken = tomllib.loads(CARD)
    del broken["link"]
    with pytest.raises(profiles.ProfileError, match=r"missing key 'link\.prefetch_h2d_gbps'"):
        profiles.validate("x", broken)
    broken = tomllib.loads(CARD)
    del broken["host"]
    with pytest.raises(profiles.ProfileError, match=r"missing key 'link\.duplex_in'"):
        profiles.validate("x", broken)
    broken = tomllib.loads(CARD)
    broken["device"]["multiprocessors"] = True
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
    path.write_text(whole("host_factor|cpu_unmap_page_us|fault_wake_us"))
    values = profiles.load(str(path)).values
    assert (values["uvm.host_factor"], values["uvm.cpu_unmap_page_us"]) == (1, 0)
    assert values["uvm.fault_wake_us"] == 0
