"""scripts/release builds wheels that are the same twice, and that work."""

import subprocess

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
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "192 MiB written and read" in done.stdout
    summed = {line.split()[1] for line in (DIST / "SHA256SUMS").read_text().splitlines()}
    assert summed == {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
    assert len(summed) == 3
