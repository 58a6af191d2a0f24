"""Paths of the laboratory's own files."""

from __future__ import annotations

from pump.base import paths


def library(name: str) -> str:
    """Returns the absolute path of a file in pump_lab/_lib, such as "virtual/libcuda.so.1".

    Raises pump.base.paths.MissingFileError.
    """
    return paths.library(name, "pump_lab")
