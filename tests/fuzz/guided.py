"""Fuzzes a target of targets.py, guided by what its code executes (Atheris, libFuzzer).

guided.py TARGET CORPUS [options of libFuzzer ...]
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pump"]):
    import targets


def main() -> None:
    target, corpus = sys.argv[1], Path(sys.argv[2])
    for number, seed in enumerate(targets.seeds(target)):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[3:]], targets.TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
