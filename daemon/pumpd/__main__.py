"""Runs the command pumpd for `python -m pumpd`."""

import sys

from pumpd.main import main

sys.exit(main())
