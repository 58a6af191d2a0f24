"""Fuzzes a Python target, guided by the executed code (Atheris, libFuzzer).

Usage: guided.py TARGET [options of libFuzzer ...] CORPUS
"""

import sys

import atheris
from bounds import bounded

with atheris.instrument_imports(include=["pump", "pumpd"]):
    import targets

    module = targets.load(sys.argv.pop(1))


def one_input(data: bytes) -> None:
    with bounded():
        module.target(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
