"""Archives of first calls on fake cards, made from a report of the virtual GPU.

first_call_report.json is a report of scripts/gpu_probe on the virtual GPU h200-pcie5. A fake card
is that report with another name and with the answers that differ.
"""

from __future__ import annotations

import copy
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceptance import runner
from acceptance.contract import FAIL, INFO, PASS, Item
from acceptance_fakes import make_machine, place
from places import ROOT
from probe import questions, transfer

Json = dict[str, Any]
REPORT: Json = json.loads(Path(__file__).with_name("first_call_report.json").read_text())
DRIVER = "580.159.03"
H100, SLOW, SANDBOXED = "NVIDIA H100 80GB HBM3", "NVIDIA RTX A4000", "NVIDIA H200"
UUIDS = {H100: "0a" * 16, SLOW: "0b" * 16, SANDBOXED: "0c" * 16}
DAY = "2026-11-28"


def report_of(name: str, runtime: str = "vm", **answers: Any) -> Json:
    """Returns the report of a card. `answers`: The differing answers, by question."""
    report = copy.deepcopy(REPORT)
    report["date"], report["commit"] = f"{DAY}T10:00:00+00:00", "c0ffee" * 6
    report["device"] |= {"name": name, "uuid": UUIDS[name]}
    report["device"]["link"] = {"max_generation": 5, "max_width": 16}
    report["host"] |= {
        "runtime": {"kind": runtime, "gvisor": runtime == "gvisor"},
        "nvidia_version_file": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}",
        "libcuda": "/".join(("", "root", "driver", "libcuda.so.1")),
    }
    for question, answer in answers.items():
        report["questions"][question] |= answer
    transfer.mark(report)
    return report


def halves(report: Json) -> tuple[Json, Json]:
    """Returns the reports of both calls: the first questions, and the rest."""
    parts = []
    for first in (True, False):
        part = copy.deepcopy(report)
        for name in part["questions"]:
            if (name in questions.FIRST) != first and name != "machine":
                part["questions"][name] = {
                    "status": "skipped",
                    "reason": "not chosen",
                    "seconds": 0.0,
                    "result": {},
                }
        parts.append(part)
    return parts[0], parts[1]


def near() -> dict[str, Json]:
    """Returns the answers that pump assumes and a virtual GPU without compute cannot give."""
    discard = copy.deepcopy(REPORT["questions"]["discard"]["result"])
    discard |= {"control_valid": True, "every_write_survived": True}
    for size in ("2_mib", "8_mib"):
        row = discard[size]["write_then_prefetch_out"]
        row |= {"resident_write_us": 3.0, "discard_caller_us": 17.0, "write_after_discard_us": 60.0}
    speed = copy.deepcopy(REPORT["questions"]["kernel_speed"]["result"])
    for row in speed.values():
        row["managed_over_plain"] = 1.001
    place = {"us": 1.0, "bits_right": True}
    maps = {"on_host": place, "resident": place, "descriptor": {"address_at_byte": 0}}
    shares = {"computes": {"share": 0.5}, "faults": {"share": 0.5}, "waits": {"share": 1.0}}
    bulk = {"bulk_add_leaving": place}
    sparse = {"migrated_us": 60_000.0, "resident_us": 90.0, "in_place_us": [700.0], "gbps": 12.0}
    results = {
        "discard": discard,
        "kernel_speed": speed,
        "tma": maps,
        "engine": shares,
        "bulk": bulk,
        "remote": {"rows_of_128": sparse},
    }
    return {name: {"status": "ok", "reason": "", "result": one} for name, one in results.items()}


def slow_link() -> dict[str, Json]:
    """Returns the answers of a card on a slow link, whose discard keeps mappings, without tensor
    maps."""
    answers = copy.deepcopy(REPORT["questions"])
    copies, idle = answers["copy_engine"]["result"], answers["prefetch_idle"]["result"]
    for way in ("h2d", "d2h"):
        copies[f"{way}_gbps"] /= 5
    for row in (idle["256_mib"]["in"], idle["256_mib"]["in_after_a_fault_each"]):
        row["gbps"] /= 5
    idle["fit_in_total"]["per_block_us"] *= 5
    longer_us = 2**21 / copies["d2h_gbps"] / 1e3 * 4 / 5  # for a block's copy to the host
    caller = idle["2_mib"]["out"]["caller_us"]
    idle["2_mib"]["out"]["caller_us"] = {key: value + longer_us for key, value in caller.items()}
    answers["faults"]["result"]["sequential_read"]["gbps"] /= 5
    for row in answers["prefetch_threads"]["result"].values():
        row["in_gbps"] = {key: value / 5 for key, value in row["in_gbps"].items()}
    discard = answers["discard"]["result"]
    discard |= {"control_valid": True, "every_write_survived": False}
    for size in ("2_mib", "8_mib"):
        row = discard[size]["write_then_prefetch_out"]
        row |= {"resident_write_us": 3.0, "discard_caller_us": 5.0, "write_after_discard_us": 3.0}
    tma = {"status": "unsupported", "reason": "needs compute capability 9.0", "result": {}}
    changed = ("copy_engine", "prefetch_idle", "prefetch_threads", "discard", "faults")
    return {**{name: answers[name] for name in changed}, "tma": tma}


def stage(folder: Path, card: str, name: str, items: list[Item], runtime: str = "vm") -> Json:
    """Returns the result of a stage as the runner writes it."""
    digits = UUIDS[card]
    uuid = "GPU-" + "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
    machine = make_machine(name=card, uuid=uuid, driver=DRIVER, runtime=runtime)
    found = runner.absent(place(folder, machine), name, FAIL, "")
    found |= {"items": [item.as_json() for item in items], "complete": True}
    return found | {"date": f"{DAY}T11:00:00+00:00"}


STEPS: Json = {
    "facts": {"MemTotal": 128000, "step_s": 1.2},
    "proof": {
        "plain": {"code": 0, "seconds": 9.1, "sha": "ab", "peak": 1 << 30},
        "window": {"code": 0, "seconds": 11.0, "sha": "ab", "peak": 1 << 30},
        "same_bits": {"plain": True, "window": True},
        "step_s": 20.4,
    },
}
DECODER = "".join(
    json.dumps(
        {
            "kind": "phase",
            "phase": {"ratio": 1.5, "round": turn, "policy": policy},
            "iterations": 10,
            "seconds": seconds,
        }
    )
    + "\n"
    for turn in range(2)
    for policy, seconds in (("unlimited", 0.5), ("demand", 2.0), ("window", 0.8))
)


def parts(folder: Path, report: Json, card: str, runtime: str = "vm") -> dict[str, bytes]:
    """Returns the members of the archive of both calls, by name."""
    first, rest = halves(report)
    bits = [Item("torch.window", PASS), Item("torch.demand", PASS)]
    speed = [Item("gpt2.1_5x.window", INFO, values={"budget_bytes": 1 << 30})]
    found: dict[str, Any] = {
        "steps.json": STEPS,
        "first.json": first,
        "rest.json": rest,
        "acceptance/bits.json": stage(folder, card, "bits", bits, runtime),
        "acceptance/speed.json": stage(folder, card, "speed", speed, runtime),
        "proof.window.json": {"sha256": "ab"},
    }
    members = {name: json.dumps(content).encode() for name, content in found.items()}
    return {
        **members,
        "decoder.lines": DECODER.encode(),
        "console.log": b"[   0.1] facts\n",
        "acceptance/summary.md": b"# GPU acceptance\n",
    }


def pack(file: Path, members: Mapping[str, bytes]) -> Path:
    """Packs an archive with those members."""
    with tarfile.open(file, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def checkout(folder: Path) -> Path:
    """Returns a tree with the files that adopting reads from the checkout; docs/ may be changed."""
    root = folder / "checkout"
    (root / "docs").mkdir(parents=True)
    for page in ("uvm.md", "first-card.md"):
        (root / "docs" / page).write_text((ROOT / "docs" / page).read_text())
    (root / "lab").mkdir()
    for name in ("lab/gpu", "lab/pump_lab", "pump", "shim"):
        (root / name).symlink_to(ROOT / name)
    return root
