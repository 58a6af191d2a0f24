"""Lets `python -m pumpd` do what the command pumpd does."""

import sys

from pumpd.main import main

sys.exit(main())
