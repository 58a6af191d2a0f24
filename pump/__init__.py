"""pump: run CUDA programs that need more memory than the GPU has.

Kept empty of imports: pump-run passes through here and has to start fast.
"""

__version__ = "0.1.0"
