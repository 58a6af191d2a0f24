"""Makes a device profile (TOML) from a report of scripts/gpu_probe, with its conditions.

Pure: a report and a base profile in, text out. Some of the probe's numbers are sums, which are
split. All are rounded, and every other value comes from the base. The file's [conditions.constants]
records how each constant was obtained; docs/uvm.md explains how the probe obtains its numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from pump_lab.profiles import KEYS, Profile, Value, validate

MEASURED, DERIVED, ASSUMED = "measured", "derived", "assumed"
VIRTUAL_MARK = "(pump virtual)"
NVIDIA_PCI_VENDOR = 0x10DE

DIRECT = {
    "link.prefetch_h2d_gbps": "bw_h2d_gbps",
    "link.copy_h2d_gbps": "copy_h2d_gbps",
    "link.copy_d2h_gbps": "copy_d2h_gbps",
    "link.duplex_in": "delta_in",
    "link.duplex_out": "delta_out",
    "uvm.populate_gbps": "bw_memset_gbps",
    "uvm.fault_wake_us": "t_wake_us",
    "uvm.fault_block_us": "t_blk_us",
    "uvm.fault_page_us": "t_pg_us",
    "uvm.evict_us": "t_ev_us",
    "uvm.cpu_pte_us": "t_cpupte_us",
    "uvm.host_alloc_us": "t_hostalloc_us",
    "uvm.nonreplayable_us": "t_nonreplayable_us",
    "uvm.discard_call_us": "t_discard_us",
    "uvm.discard_block_us": "t_discard_block_us",
    "uvm.advise_call_us": "t_advise_us",
    "uvm.advise_block_us": "t_advise_block_us",
    "uvm.collapse_page_us": "t_collapse_page_us",
    "kernels.default_gbps": "kernel_gbps",
    "kernels.min_us": "kernel_min_us",
    "kernels.launch_us": "kernel_launch_us",
}
"""Key of a profile -> constant of a report's "profile" that gives the value unchanged."""

SPLIT = {
    "uvm.prefetch_block_us": "t_hblk_passes_us",
    "uvm.prefetch_second_pass": "t_hblk_passes_us",
    "uvm.prefetch_call_us": "t_call_hblk_us",
    "uvm.cpu_unmap_us": "t_cpuunmap_us",
    "uvm.cpu_unmap_page_us": "t_cpuunmap_us",
}
"""Key of a profile -> constant of a report that is a sum, split in the base's proportion."""
NO_ANSWER = "not measured by the probe"

ATTRIBUTES = {
    "device.multiprocessors": "multiprocessor_count",
    "device.threads_per_multiprocessor": "max_threads_per_multiprocessor",
    "device.registers_per_block": "max_registers_per_block",
    "device.shared_bytes_per_block": "max_shared_memory_per_block",
    "device.shared_bytes_per_block_optin": "max_shared_memory_per_block_optin",
    "device.shared_bytes_per_multiprocessor": "max_shared_memory_per_multiprocessor",
    "device.l2_cache_bytes": "l2_cache_size",
    "device.clock_khz": "clock_rate",
    "device.memory_clock_khz": "memory_clock_rate",
    "device.memory_bus_bits": "global_memory_bus_width",
}


class ReportError(ValueError):
    """One line that names what the report lacks."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Text = Annotated[str, msgspec.Meta(max_length=1000)]


class _Device(msgspec.Struct):
    name: _Text
    total_bytes: _Count | None = None
    driver_version: _Count = 0
    attributes: dict[str, _Number | None] | None = None  # -1: there is no NUMA node


class _Host(msgspec.Struct):
    runtime: Any = None
    kernel: _Text = ""
    cpu_model: _Text = ""
    kernel_module: _Text = "unknown"
    nvidia_version_file: Annotated[str, msgspec.Meta(max_length=10_000)] = ""


class _Report(msgspec.Struct):
    """The types of the parts that are read of a report; other keys may hold anything."""

    device: _Device
    profile: dict[str, Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None]
    host: _Host | None = None
    not_transferable: dict[str, _Text] | None = None
    date: _Text = ""
    commit: _Text = ""


def checked(report: object) -> None:
    """Raises ReportError for a report whose parts have other types than the probe's."""
    try:
        found = msgspec.convert(report, _Report)
    except msgspec.ValidationError as error:
        raise ReportError(f"not a report of scripts/gpu_probe: {error}") from None
    for name, value in found.profile.items():
        if value is not None and not math.isfinite(value):
            raise ReportError(f"'{name[:100]}' must be finite, not {value}")
    if not found.date.isprintable():
        raise ReportError("'date' must be printable")


@dataclass(frozen=True)
class Constant:
    """A value, how it was obtained (MEASURED, DERIVED, ASSUMED) and the reason in one line."""

    value: Value
    kind: str
    why: str


def text_of(
    report: Mapping[str, Any], base: Profile, name: str, *, keep_kernels: bool = False
) -> str:
    """Returns the profile `name` as TOML.

    `base`: The source of values that were not measured; with `keep_kernels` also of its tables of
    single kernels. Raises ReportError if the report is not the probe's or has no device,
    ProfileError (of pump_lab.profiles) if a value is out of its bounds.
    """
    constants = constants_of(report, base, name)
    tables: dict[str, Any] = {}
    for key, constant in constants.items():
        _put(tables, key, constant.value)
    kernels = {key: value for key, value in base.values.items() if key.startswith("kernel.")}
    for key, value in kernels.items() if keep_kernels else ():
        kernel, _, what = key.removeprefix("kernel.").rpartition(".")
        tables["kernels"].setdefault(kernel, {})[what] = value
    validate(name, tables)
    lines = _heading(report, base)
    for section, content in tables.items():
        if not isinstance(content, dict):
            lines.append(f"{section} = {_toml(content)}")
            continue
        lines += ["", f"[{section}]"]
        for key, value in content.items():
            if not isinstance(value, dict):
                kind = constants[f"{section}.{key}"].kind
                lines.append(f"{key} = {_toml(value)}  # {kind}")
        for key, value in content.items():
            if isinstance(value, dict):
                lines += ["", f"[{section}.{_toml(key)}]  # {ASSUMED}"]
                lines += [f"{what} = {_toml(number)}" for what, number in value.items()]
    return "\n".join([*lines, *_conditions(report, base, constants)]) + "\n"


def constants_of(report: Mapping[str, Any], base: Profile, name: str) -> dict[str, Constant]:
    """Returns every key of a profile with its constant. Raises ReportError."""
    device = report.get("device")
    if not isinstance(device, dict) or not device.get("name") or "profile" not in report:
        raise ReportError("not a report of scripts/gpu_probe, or it found no device")
    checked(report)
    found = {"name": Constant(name, DERIVED, "chosen"), **_device(device)}
    base = base.on_own_host()
    barred = _not_transferable(report)
    held = {name: value for name, value in report["profile"].items() if name not in barred}
    found |= _measured(held, base)
    found["uvm.host_factor"] = Constant(1.0, DERIVED, "times are those of this host")
    found["uvm.host_page_kib"] = Constant(2048.0, DERIVED, "smaller pages are in what was measured")
    for key in KEYS:
        if key not in found:
            why = barred.get(DIRECT.get(key) or SPLIT.get(key, ""), NO_ANSWER)
            found[key] = Constant(base.values[key], ASSUMED, f"from {base.name}: {why}")
    return {key: found[key] for key in KEYS}


def _not_transferable(report: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the constants that hold only in the report's container runtime, with the reasons.

    Raises ReportError for a report from gVisor that does not list them.
    """
    barred = report.get("not_transferable")
    if barred is None and _runtime(report) == "gvisor":
        raise ReportError(
            "the report is from gVisor and does not list the answers that hold elsewhere"
        )
    return barred or {}


def _device(device: Mapping[str, Any]) -> dict[str, Constant]:
    attributes = device.get("attributes") or {}
    name = str(device["name"])
    values: dict[str, Value] = {
        "device.name": name if VIRTUAL_MARK in name else f"{name} {VIRTUAL_MARK}"
    }
    major, minor = (attributes.get(f"compute_capability_{part}") for part in ("major", "minor"))
    if major is not None and minor is not None:
        values["device.compute_capability"] = f"{major}.{minor}"
    if device.get("total_bytes"):
        values["device.memory_bytes"] = int(device["total_bytes"])
    values |= {key: int(attributes[at]) for key, at in ATTRIBUTES.items() if attributes.get(at)}
    identity = int(attributes.get("gpu_pci_device_id") or 0)
    halves = (identity >> 16, identity & 0xFFFF)
    pci = next((half for half in halves if half not in (0, NVIDIA_PCI_VENDOR)), 0)
    if pci:
        values["device.pci_device"] = pci
    return {key: Constant(value, MEASURED, "from the driver") for key, value in values.items()}


def _measured(profile: Mapping[str, Any], base: Profile) -> dict[str, Constant]:
    """Returns the values from the probe's constants; sums are split in the base's proportion."""
    known = {name: float(value) for name, value in profile.items() if value is not None}
    found = {
        key: Constant(_rounded(key, known[name]), MEASURED, f"{name} of the probe")
        for key, name in DIRECT.items()
        if name in known
    }

    def split(key: str, value: float, why: str) -> None:
        found[key] = Constant(_rounded(key, max(value, 0.0)), DERIVED, why)

    def assumed(key: str) -> float:
        return float(base.values[key])

    if "t0_replay_us" in known:
        both = known["t0_replay_us"]
        first, second = assumed("uvm.fault_base_us"), assumed("uvm.fault_replay_us")
        share = first / (first + second) if first + second > 0 else 0.5
        why = f"base + replay is {both:g} us; split as in {base.name}"
        split("uvm.fault_base_us", both * share, why)
        split("uvm.fault_replay_us", both * (1 - share), why)
    if "t_cpuunmap_us" in known:
        both = known["t_cpuunmap_us"]
        call, page = assumed("uvm.cpu_unmap_us"), assumed("uvm.cpu_unmap_page_us")
        scale = both / (call + 32 * page) if call + 32 * page > 0 else 0.0
        why = f"a block takes {both:g} us; split between call and 32 pages as in {base.name}"
        split("uvm.cpu_unmap_us", call * scale, why)
        split("uvm.cpu_unmap_page_us", page * scale, why)
    if "t_hblk_passes_us" in known:
        passes = 1 + assumed("uvm.prefetch_second_pass")
        both = known["t_hblk_passes_us"]
        each = both / passes
        why = f"the two passes together take {both:g} us a block; split as in {base.name}"
        split("uvm.prefetch_block_us", each, why)
        if "t_call_hblk_us" in known:
            why = f"a call of one block takes {known['t_call_hblk_us']:g} us, less the block"
            split("uvm.prefetch_call_us", known["t_call_hblk_us"] - each, why)
    return found


def _rounded(key: str, value: float) -> float:
    """Rounds to the digits that a measurement supports, within the key's bounds."""
    rule = KEYS[key]
    digits = 4 if key.endswith("gbps") else 3
    return min(max(float(f"{value:.{digits}g}"), rule.minimum), rule.maximum)


def _runtime(report: Mapping[str, Any]) -> str:
    runtime = (report.get("host") or {}).get("runtime")
    return str(runtime.get("kind", "unknown")) if isinstance(runtime, dict) else "unknown"


def _put(tables: dict[str, Any], key: str, value: Value) -> None:
    section, dot, rest = key.partition(".")
    if dot:
        tables.setdefault(section, {})[rest] = value
    else:
        tables[section] = value


def _heading(report: Mapping[str, Any], base: Profile) -> list[str]:
    lines = [
        f"# Written from a report of scripts/gpu_probe of {report.get('date', 'an unknown date')}.",
        f'# "gbps" is 10^9 bytes a second. Values marked as assumed are from {base.name}.',
    ]
    if VIRTUAL_MARK in str(report["device"]["name"]):
        lines.append("# These values are simulated: the report is from the virtual GPU.")
    return lines


def _conditions(
    report: Mapping[str, Any], base: Profile, constants: Mapping[str, Constant]
) -> list[str]:
    host, device = report.get("host") or {}, report["device"]
    facts = {
        "card": device["name"],
        "virtual_gpu": VIRTUAL_MARK in str(device["name"]),
        "driver": str(host.get("nvidia_version_file", "")).partition("\n")[0],
        "cuda_driver_version": device.get("driver_version", 0),
        "kernel_module": host.get("kernel_module", "unknown"),
        "runtime": _runtime(report),
        "kernel": host.get("kernel", ""),
        "cpu": host.get("cpu_model", ""),
        "date": report.get("date", ""),
        "commit": report.get("commit", ""),
        "base": base.name,
        "base_hash": base.hash(),
    }
    lines = ["", "[conditions]", *(f"{key} = {_toml(value)}" for key, value in facts.items())]
    lines += ["", "[conditions.constants]"]
    for key, constant in constants.items():
        if key != "name":
            lines.append(f"{_toml(key)} = {_toml(f'{constant.kind}: {constant.why}')}")
    return lines


def _toml(value: object) -> str:
    """Returns a TOML value; JSON's strings, numbers and truth values are valid in TOML."""
    return json.dumps(value, ensure_ascii=False)
