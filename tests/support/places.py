"""Where the parts of the source tree are, for tests in any folder.

`pythonpath` in pyproject.toml names the folders from which every test may import. Of the other
folders, only tests that lie in them import what is there.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "lab" / "bench"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
INCLUDE = ROOT / "shim" / "include"
SCRIPTS = ROOT / "scripts"
PROGRAMS = ROOT / "tests" / "endtoend" / "programs"
"""What tests run under pump-run."""
HARD = ROOT / "tests" / "endtoend" / "hard"
