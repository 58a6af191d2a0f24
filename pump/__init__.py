"""pump: run CUDA programs that need more memory than the GPU has.

Imports nothing: pump-run loads this module and has to start fast.
"""

__version__ = "0.1.0"
