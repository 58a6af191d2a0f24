"""The shared-memory contract as Python sees it: one mirror of the C headers."""
