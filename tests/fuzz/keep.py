"""Fuzzes targets for a while and keeps inputs of all lengths that reached new code.

Usage: keep.py SECONDS [TARGET ...]. Starts with all existing inputs, writes corpus/TARGET.zip.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import fuzz_targets

INPUTS_MOST = {"schedule": 40, "sessions": 20}
INPUTS_MOST_USUAL = 150
"""Kept inputs per target; a short run executes them in seconds."""
BYTES_MOST = 100_000
WHEN = (2026, 1, 1, 0, 0, 0)
"""A fixed date, so that the same inputs make the same file."""


def keep(target: str, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        begun_with = fuzz_targets.all_inputs(target)
        fuzz_targets.as_files(begun_with, corpus)
        print(fuzz_targets.guided(target, corpus, seed=1, seconds=seconds).splitlines()[-1])
        made = {path.read_bytes() for path in corpus.iterdir()} - set(begun_with.values())
    made |= set(fuzz_targets.kept(target).values())
    target_file = fuzz_targets.HERE / "corpus" / f"{target}.zip"
    target_file.parent.mkdir(exist_ok=True)
    step = -(-len(made) // INPUTS_MOST.get(target, INPUTS_MOST_USUAL))
    whole = 0
    with zipfile.ZipFile(target_file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        by_length = sorted(made, key=lambda data: (len(data), data))
        for number, data in enumerate(by_length[::step] if step else []):
            whole += len(data)
            if whole <= BYTES_MOST:
                file.writestr(zipfile.ZipInfo(f"{number:03}", WHEN), data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    for name in sys.argv[2:] or fuzz_targets.TARGETS:
        keep(name, int(sys.argv[1]))
