"""Lets the tests of several users use what those of the service have: played jobs, mutations."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
