"""Opens pages that pump writes in a headless browser. Reports if there is no browser."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=950,1900",
)


def opened(page: Path, *words: str) -> str:
    """Returns the browser's standard output when it opens `page`; skips without a browser."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no headless browser: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="pump-browser-") as profile:
        done = subprocess.run(
            [found, *OPTIONS, f"--user-data-dir={profile}", *words, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
    return done.stdout
