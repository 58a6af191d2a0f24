"""Connects the laboratory, if installed: a virtual GPU for pump-run, and verbs for development.

Only this file of pump names the package pump_lab. It loads the package only for help, or for an
option or a verb of the laboratory. In all other files a virtual GPU is text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from pump.cli.support.lines import BadInputError

if TYPE_CHECKING:
    import argparse

    from pump.config.settings import JobConfig

PACKAGE = "pump_lab"
OPTIONS = ("--virtual", "--virtual-set")
"""The laboratory's options of pump-run. Both take a value."""


class Virtual(NamedTuple):
    """The virtual GPU of a job.

    `folder`: the folder that contains its libraries, also in subfolders.
    `libraries`: paths of the libraries to preload after libpump.so, in this order.
    `variables`: computes its environment variables from the user's environment.
    `facts`: its description for recordings.
    `duplicates`: whether to evict unmodified memory without a copy.
    """

    folder: str
    libraries: Sequence[str]
    variables: Callable[[Mapping[str, str]], dict[str, str]]
    facts: Mapping[str, str]
    duplicates: bool


class Lab(NamedTuple):
    """The interface of the laboratory (pump_lab.register.LAB).

    `verbs`: modules by verb, as in pump/cli/main.py.
    `options`: adds OPTIONS to a group of pump-run's options. They set `virtual` and `virtual_set`,
        a list of pairs.
    `prepare`: returns the virtual GPU of a job. Raises BadInputError.
    """

    verbs: Mapping[str, str]
    options: Callable[[argparse._ArgumentGroup], None]
    prepare: Callable[[JobConfig], Virtual]


@functools.cache
def find() -> Lab | None:
    """Returns the laboratory, None if it is not installed."""
    import importlib.util

    if importlib.util.find_spec(PACKAGE) is None:
        return None
    return cast(Lab, importlib.import_module(f"{PACKAGE}.register").LAB)


def get(option: str) -> Lab:
    """Returns the laboratory, which `option` needs. Raises BadInputError if it is not installed."""
    if found := find():
        return found
    raise BadInputError(
        f"{option}: the virtual GPU is not part of this installation; install pump-cuda with it"
    )
