"""The laboratory of pump: models of GPUs, device profiles, the simulator.

It uses the package pump. pump finds it through register.py and works without it.
"""

from pump import __version__ as __version__
