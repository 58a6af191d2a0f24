"""Paths of the parts of the source tree, for tests in any folder.

`pythonpath` in pyproject.toml lists the folders whose files every test may import. Files in other
folders may be imported only by tests in the same folder.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "lab" / "bench"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
INCLUDE = ROOT / "shim" / "include"
SCRIPTS = ROOT / "scripts"
PROGRAMS = ROOT / "tests" / "endtoend" / "programs"
"""Programs that tests run under pump-run."""
HARD = ROOT / "tests" / "endtoend" / "hard"
