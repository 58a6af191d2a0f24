"""Sound inputs of fuzz_host.c, fuzz_ledger.c and fuzz_jobs.c: files about host memory, claims, and
compiled rules."""

from __future__ import annotations

import struct

MEMINFO = "MemTotal:       65536000 kB\nMemFree: 1 kB\nMemAvailable:   60000000 kB\n"
LIMIT, USED = "8589934592\n", "5368709120\n"
STAT = "anon 1\nfile 2\ninactive_file 3221225472\nactive_file 7\n"

HOST = {
    "machine": [MEMINFO, "0::/\n"],
    "version-2": [MEMINFO, "0::/a\n", "max\n", "1\n", STAT, LIMIT, USED],
    "version-1": [MEMINFO, "5:hugetlb,memory:/b\n", "", "", "", "", "", LIMIT, USED, LIMIT, USED],
    "hybrid": [MEMINFO, "4:memory:/b\n0::/a\n", *[LIMIT] * 10],
    "elsewhere": [MEMINFO, "4:memory:/docker/../../b\n0::/../a\n", *[LIMIT] * 10],
    "odd": ["MemTotal 5\nMemAvailable: 9 kB\n", ":::\n0:\n0::\n", "-1\n", "max\n", "file\n"],
}
"""Texts of the files that fuzz_host.c names, in the same order."""

LOCKED, SUMMED, LINKED, PIPED = 1, 2, 4, 8
LEVELS = (1, 1 << 63 | 2)
CARDS_BYTES = 16 + 16 * 40


def _claim(claimed: int, pending: int = 0, levels: tuple[int, ...] = LEVELS) -> bytes:
    ids = [*levels, *[0] * 8][:8]
    words = [0, 0, 7, 4026531836, claimed, pending, 1, len(levels)]
    for level in ids:
        words += [level, 60 << 30]
    return struct.pack("<24Q", *words)


def _of_job(number: int, total_bytes: int) -> bytes:
    """Returns the bytes after a claim: no cards, then a job with 16 GPUs of the same size."""
    gpus = b"".join(struct.pack("<16sQ", bytes([i]), total_bytes) for i in range(16))
    return bytes(CARDS_BYTES) + struct.pack("<4Q", 0, 0, number, 60 << 30) + gpus


def _entry(slot: int, flags: int, content: bytes) -> bytes:
    """Encodes an entry of the ledger for fuzz_ledger.c."""
    return bytes([slot, flags]) + len(content).to_bytes(2, "big") + content


LEDGER = {
    "one": _entry(0, LOCKED | SUMMED, _claim(40 << 30)),
    "dead": _entry(0, SUMMED, _claim(40 << 30)),
    "unsummed": _entry(0, LOCKED, _claim(40 << 30)),
    "lies": b"".join(_entry(i, LOCKED | SUMMED, _claim((1 << 64) - 1, 1 << 63)) for i in range(12)),
    "levels": _entry(3, LOCKED | SUMMED, _claim(1, 2, (1,) * 8)),
    "many-levels": _entry(3, LOCKED | SUMMED, _claim(1, 2, (1,) * 9)),
    "job": _entry(0, LOCKED | SUMMED, _claim(1 << 30) + _of_job(0x51, 80 << 30)),
    "other-job": _entry(0, LOCKED | SUMMED, _claim(1 << 30) + _of_job(0x52, 80 << 30)),
    "job-lies": b"".join(
        _entry(i, LOCKED | SUMMED, _claim((1 << 64) - 1) + _of_job(0x51, (1 << 64) - 1))
        for i in range(8)
    ),
    "rubbish": _entry(0, LOCKED, b"\xff" * 500) + _entry(1, LINKED, b"") + _entry(2, PIPED, b""),
    "short": _entry(255, LOCKED, _claim(1)[:40]) + _entry(9, LOCKED | SUMMED, _claim(1) + b"more"),
}


def host_inputs() -> dict[str, bytes]:
    return {name: "\0".join(texts).encode() for name, texts in HOST.items()}


RULES = (
    "pump-jobs 1\nrule train\nexe python3*\ncommand *tra?n.py*\nset PUMP_BUDGET=80%\n"
    "rule all\ncgroup /user.slice/*\nwithout-pumpd\nset PUMP_NAME=a\nend\n"
)


def jobs_inputs() -> dict[str, bytes]:
    facts = "/usr/bin/python3.11\0python3 train.py --x\0/user.slice/a\0"
    other = "/bin/true\0true\0/\0"
    stars = f"pump-jobs 1\nrule a\ncommand *{'a' * 1000}b\nend\n"
    return {
        "matches": (facts + RULES).encode(),
        "other": (other + RULES).encode(),
        "truncated": (facts + RULES[:-5]).encode(),
        "stars": f"/a\0{'a' * 3000}\0/\0{stars}".encode(),
    }


SEEDS = {"host": host_inputs(), "jobs": jobs_inputs(), "ledger": LEDGER}
"""Seeds by target."""
