"""Device profiles (TOML), and changes from the command line ("key=value" after a zero byte)."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path

from pump_lab import profiles
from pump_lab.profiles import ProfileError

from . import one_line

FILE = Path(tempfile.mkdtemp(prefix="pump-fuzz-")) / "profile.toml"


def target(data: bytes) -> None:
    text, _, changes = data.partition(b"\0")
    FILE.write_bytes(text)
    pairs = (line.partition("=")[::2] for line in changes.decode("utf-8", "replace").split("\n"))
    try:
        found = profiles.load(str(FILE) if text else "a100-pcie4")
        flat = found.flatten(dict(pairs) if changes else None)
        assert "\n" not in flat and flat.startswith("name=")
    except ProfileError as error:
        one_line(error)


def seeds() -> list[bytes]:
    whole = [(profiles.FOLDER / f"{name}.toml").read_bytes() for name in profiles.names()]
    changes = [b"memory=2GiB", b"mode=compute", b"uvm.evict_us=3", b"shared=lab\ncopies=real"]
    few = [b"name = 'x'\n[device]\nmemory_bytes = 5\n", b"[kernels]\nk = { gbps = 3 }\n"]
    assert all(tomllib.loads(text.decode()) for text in few)
    return [*whole, *few, *(b"\0" + words for words in changes)]
