"""Contracts between processes: the shared memory, read from the C headers, and frames."""
