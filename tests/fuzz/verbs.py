"""Whole verbs of `pump` on multiplied files (claims.py).

For any file, a verb ends in time, takes little memory, and reports errors in one line with status 1
or 2. An input's first byte selects the verb; the rest changes the file.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import claims
from targets.tensors import made

from pump.cli import main
from pump_lab import profiles
from pump_lab.sim import wakeups

FOLDER = Path(tempfile.mkdtemp(prefix="pump-fuzz-"))
FILE = {end: str(FOLDER / f"f.{end}") for end in ("pump", "json", "toml", "out")}
PROFILE = tomllib.loads((profiles.FOLDER / "a100-pcie4.toml").read_text())
WAKE_UPS = tomllib.loads((wakeups.FOLDER / "busy.toml").read_text())
SETTINGS = {
    "job": {"name": "a", "priority": 3, "budget": "1GiB", "limit": "80%", "keep_device": ["ipc"]},
    "limits": {"budget": "80%"},
    "shares": {"alice": 4},
    "service": {"lease_s": 3.0},
}
PROBE = {
    "date": "2026-11-20",
    "commit": "0123abcd",
    "host": {"runtime": {"kind": "bare metal"}, "kernel": "6.8.0", "cpu_model": "x"},
    "device": {
        "name": "NVIDIA L40S",
        "driver_version": 13000,
        "total_bytes": 48 << 30,
        "attributes": {
            "compute_capability_major": 8,
            "compute_capability_minor": 9,
            "multiprocessor_count": 142,
            "clock_rate": 0,
            "gpu_pci_device_id": 0x26B910DE,
        },
    },
    "profile": {"bw_h2d_gbps": 24.3, "delta": 1.02, "t_call_hblk_us": 15.0, "t_ev_us": None},
}
KERNEL = {"argv": ["a"], "metadata": {"pump": True}}
RECORDING, TRACE = "pump", "json"
VERBS: tuple[tuple[str, str], ...] = (
    ("trace info FILE", RECORDING),
    ("trace info --json FILE", RECORDING),
    ("trace export --perfetto OUT FILE", RECORDING),
    ("report --output OUT FILE", RECORDING),
    ("report --text FILE", RECORDING),
    ("report --json --with FILE FILE", RECORDING),
    ("simulate --oversubscription 1.5 FILE", RECORDING),
    ("simulate FILE", RECORDING),
    ("simulate --gpu-memory 64MiB --policy planned FILE", RECORDING),
    ("simulate --oversubscription 1.5 --json - FILE", TRACE),
    ("simulate --mapping unique --iterations 1 FILE", TRACE),
    ("simulate --profile FILE JSON", "profile"),
    ("simulate --wake-ups FILE JSON", "wake-ups"),
    ("simulate --profile-from FILE --base a100-pcie4 --out OUT.toml", "probe"),
    ("config check --system FILE", "settings"),
    ("config show --config FILE", "users settings"),
    ("install kernel --remove --prefix FOLDER", "kernel"),
)


def target(data: bytes) -> None:
    if not data:
        return
    words, kind = VERBS[data[0] % len(VERBS)]
    file = written(kind, data[1:])
    names = {"FILE": file, "OUT": FILE["out"], "OUT.toml": f"{FILE['out']}.toml"}
    names |= {"JSON": FILE["json"], "FOLDER": str(FOLDER)}
    status, out, err = called([names.get(word, word) for word in words.split()])
    assert status in (0, 1, 2), status
    assert not status or err or out, "it says why"
    assert len(err.splitlines()) <= 1 and len(err) < 1000, err


def called(words: list[str]) -> tuple[int, str, str]:
    """Returns status and output of `pump` with these arguments."""
    for path in (FILE["out"], f"{FILE['out']}.toml"):
        Path(path).unlink(missing_ok=True)
    argv, out, err = sys.argv, io.StringIO(), io.StringIO()
    sys.argv = ["pump", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return main.main(), out.getvalue(), err.getvalue()
    finally:
        sys.argv = argv


def written(kind: str, data: bytes) -> str:
    """Returns the path of a file of that kind, with the changes of an input."""
    if kind == RECORDING:
        Path(FILE["pump"]).write_bytes(claims.recording(data))
        return FILE["pump"]
    data = data[1:]  # skips the number of copies
    sound: dict[str, Any] = {
        TRACE: made(3, 4 << 20), "profile": PROFILE, "wake-ups": WAKE_UPS, "probe": PROBE,
        "settings": SETTINGS, "users settings": {"job": SETTINGS["job"]}, "kernel": KERNEL,
    }  # fmt: skip
    found = claims.document(sound[kind], data)
    Path(FILE["json"]).write_text(json.dumps(sound[TRACE]))
    if kind in (TRACE, "probe"):
        Path(FILE["json"]).write_text(json.dumps(found))
        return FILE["json"]
    if kind == "kernel":
        place = FOLDER / "share/jupyter/kernels/pump"
        place.mkdir(parents=True, exist_ok=True)
        (place / "kernel.json").write_text(json.dumps(found))
        return str(place)
    text = claims.toml(found) if isinstance(found, dict) else ""
    Path(FILE["toml"]).write_text(text)
    return FILE["toml"]


def seeds() -> list[bytes]:
    """Returns every verb with its sound file, with repeated rows, and with the largest numbers."""
    plain = [bytes([verb]) for verb in range(len(VERBS))]
    tiled = [bytes([verb, len(claims.COPIES) - 1]) for verb in (2, 3, 7)]
    alike = [
        bytes([verb, 0, len(claims.NAMES) + suffix, 255, len(claims.INTEGERS) - 1])
        for verb in (3, 6)
        for suffix in range(len(claims.SUFFIXES))
    ]
    return [*plain, *tiled, *alike]


def random_input(dice: random.Random) -> bytes:
    """Returns a random command and changes of its file; half of these affect a whole column."""
    changes = dice.choice((1, 1, 2, 3, 6, 20))
    verb, copies = dice.randrange(len(VERBS)), dice.choice((0, 0, 0, 1, 2, 3, 4, 5))
    places = [
        bytes([dice.randrange(256), dice.choice((255, dice.randrange(256))), dice.randrange(256)])
        for _ in range(changes)
    ]
    return bytes([verb, copies]) + b"".join(places)
