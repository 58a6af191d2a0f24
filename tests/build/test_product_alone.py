"""The product works without the laboratory (PUMP_WITHOUT_LAB=1) and reports what is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from places import ROOT

OURS = ("pump", "pumpd", "pump_lab", "pump_cuda")
TIMEOUT_S = 560


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes an environment like this one, but with only the product instead of all of pump."""
    made = tmp_path_factory.mktemp("alone") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True, timeout=60)
    packages = made / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if re.split(r"\W", entry.name)[0] not in OURS:
            (packages / entry.name).symlink_to(entry)
    pip = [sys.executable, "-m", "pip", "--python", str(made / "bin" / "python")]
    subprocess.run(
        [*pip, "install", "-q", "--disable-pip-version-check", "--no-deps", str(ROOT)],
        env={**os.environ, "PUMP_WITHOUT_LAB": "1"},
        check=True,
        timeout=300,
    )
    return made


def run(product: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [product / "bin" / words[0], *words[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_nothing_of_the_laboratory_is_installed_or_offered(product: Path) -> None:
    files = [path.name for path in product.rglob("*")]
    assert "libpump_core.so" in files and "libpump.so" in files
    assert not {"libpump_lab.so", "libcuda.so.1", "pump_lab", "simulate.py"} & set(files)
    assert "--virtual" not in run(product, "pump-run", "--help").stdout
    assert "simulate" not in run(product, "pump", "--help").stdout


@pytest.mark.parametrize("words", ["pump-run --virtual a100-pcie4 true", "pump simulate x"])
def test_what_needs_the_laboratory_ends_with_one_line(product: Path, words: str) -> None:
    done = run(product, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "not part of this installation" in done.stderr or "unknown verb" in done.stderr


def test_the_products_unit_tests_pass(product: Path) -> None:
    folders = [str(ROOT / "tests/unit" / name) for name in ("pump", "daemon")]
    options = ["-q", "-p", "no:cacheprovider", "-m", "not lab and not alone", "--tb=short"]
    options += ["-n", "2", "--dist", "loadfile"]
    options += ["--ignore=tests/unit/pump/model"]  # looks at the model through pump_lab
    done = subprocess.run(
        [product / "bin" / "python", "-P", "-m", "pytest", *options, *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
