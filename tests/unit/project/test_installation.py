"""The contents of an installation: the licence, and requirements that other packages allow."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LICENCE = (ROOT / "LICENSE").read_text()

TORCH = {"2.8.0": "12.9.10", "2.9.1": "12.9.10", "2.10.0": "12.9.4", "2.11.0": "13.0.3"}
"""Versions of PyTorch, each with a version of cuda-bindings that it admits."""


def test_the_licence_is_in_what_is_installed_and_named_by_its_metadata() -> None:
    assert "Apache License" in LICENCE and "Version 2.0, January 2004" in LICENCE
    installed = metadata.distribution("pump-cuda")
    assert installed.metadata["License-Expression"] == PROJECT["license"] == "Apache-2.0"
    assert installed.metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert installed.read_text("licenses/LICENSE") == LICENCE
    assert "LICENSE" in (ROOT / "README.md").read_text()


def pip_into(folder: Path, *packages: str) -> None:
    """Installs packages next to this environment; skips the test without a package index."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"no package index gives {', '.join(packages)}: {done.stderr[-300:]}")


def test_the_licence_is_in_what_is_built_from(tmp_path: Path) -> None:
    pip_into(tmp_path / "builder", "scikit-build-core>=1.1")
    build = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, tmp_path],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "builder")},
        capture_output=True,
        timeout=120,
        check=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        (name,) = [name for name in file.getnames() if re.fullmatch(r"[^/]+/LICENSE", name)]
        member = file.extractfile(name)
        assert member is not None and member.read().decode() == LICENCE


def test_the_only_cuda_package_that_pump_needs_is_cuda_python_of_twelve_or_thirteen() -> None:
    needed = [Requirement(text) for text in PROJECT["dependencies"]]
    (python,) = [one for one in needed if one.name.startswith(("cuda", "nvidia-cuda"))]
    bounds = python.specifier
    assert python.name == "cuda-python"
    for version in {*TORCH.values(), "12.9.0", "13.0.0", "13.4.4"}:
        assert bounds.contains(version)
    assert not bounds.contains("12.8.0") and not bounds.contains("14.0.0")


def test_the_debian_package_holds_what_pump_needs_of_fixed_versions() -> None:
    text = (ROOT / "packaging/debian/requirements.txt").read_text()
    lines = [line.removesuffix(" \\") for line in text.splitlines() if re.match(r"\w", line)]
    held = [Requirement(line) for line in lines]
    assert all(re.fullmatch(r"==[\d.]+", str(one.specifier)) for one in held)
    for needed in map(Requirement, PROJECT["dependencies"]):
        versions = [str(one.specifier)[2:] for one in held if one.name == needed.name]
        assert versions and all(map(needed.specifier.contains, versions)), needed


@pytest.mark.long
@pytest.mark.parametrize("torch", TORCH)
def test_pump_with_all_its_extras_can_be_installed_beside_pytorch(
    torch: str, tmp_path: Path
) -> None:
    pip_into(tmp_path / "uv", "uv")
    extras = ",".join(set(PROJECT["optional-dependencies"]) - {"lint", "fuzz"})
    wanted = tmp_path / "wanted.txt"
    bindings = f"cuda-bindings=={TORCH[torch]}"
    wanted.write_text(f"pump-cuda[{extras}] @ file://{ROOT}\ntorch=={torch}\n{bindings}\n")
    resolve = [tmp_path / "uv/bin/uv", "pip", "compile", "--python-version", "3.11", wanted]
    done = subprocess.run(resolve, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"torch=={torch}\n" in done.stdout and f"{bindings}\n" in done.stdout
