"""The parts of scripts/gpu_acceptance: one command that gets everything out of a GPU's minutes.

docs/gpu.md tells people how to run it and how to read what it writes. Standard library only
at import, since it runs from a checkout on machines that have no pump installed.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The probe; the floor of examples/ and what they share; how pairs are compared.
# pump itself may be installed or not: its pump/measure/paired.py is imported as a file.
sys.path += [str(ROOT / part) for part in ("tests/acceptance", "examples", "pump/measure")]
