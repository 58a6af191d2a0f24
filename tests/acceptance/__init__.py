"""The parts of scripts/gpu_acceptance: a command that makes full use of a few minutes on a GPU.

docs/gpu.md explains how to run it and how to read its output. Imports only the standard library at
load time, because it runs from a checkout on machines without an installed pump.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Folders of the probe, of examples/ (floor and shared code) and of the paired measurements.
# pump itself need not be installed: pump/measure/paired.py is imported as a file.
sys.path += [str(ROOT / part) for part in ("tests/acceptance", "examples", "pump/measure")]
