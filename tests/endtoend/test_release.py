"""scripts/release builds the same working wheels and packages twice."""

import os
import shutil
import subprocess
from collections import Counter

import pytest
from places import ROOT

DIST = ROOT / "build" / "release" / "dist"


@pytest.mark.long
def test_a_release_is_built_twice_alike_and_tried() -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "release"), "--changed"],
        capture_output=True,
        text=True,
        check=False,
        timeout=5400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "192 MiB written and read" in done.stdout
    summed = {line.split()[1] for line in (DIST / "SHA256SUMS").read_text().splitlines()}
    assert summed == {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
    kinds = Counter(name.rpartition(".")[2] for name in summed)
    packages = {"deb": 2} if shutil.which("dh") else {}
    assert kinds == {"gz": 2, "whl": 2, "md": 1, **packages}
    if packages and shutil.which("mmdebstrap") and os.geteuid() == 0:
        assert "upgraded under a job, removed, purged: nothing is left" in done.stdout
        if shutil.which("qemu-system-x86_64"):
            assert "boot_steps: all of it holds" in done.stdout
