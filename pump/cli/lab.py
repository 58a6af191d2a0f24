"""The laboratory, where it is installed: a virtual GPU for pump-run, and verbs for development.

The only file of pump that names the package pump_lab, which is loaded when an option of it, help
or a verb of it is asked for. Everywhere else a virtual GPU is text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from pump.cli.support.lines import BadInputError

if TYPE_CHECKING:
    import argparse

    from pump.config.job import JobConfig

PACKAGE = "pump_lab"
OPTIONS = ("--virtual", "--virtual-set")
"""Of pump-run, both with a value."""


class Virtual(NamedTuple):
    """A virtual GPU as a job gets it.

    folder: of its libraries, which lie below it.
    libraries: paths, preloaded after libpump.so, in this order.
    variables: of the environment, computed from the user's.
    facts: what a recording says of it.
    duplicates: whether memory that was only read had better leave it without a copy.
    """

    folder: str
    libraries: Sequence[str]
    variables: Callable[[Mapping[str, str]], dict[str, str]]
    facts: Mapping[str, str]
    duplicates: bool


class Lab(NamedTuple):
    """What pump_lab.register.LAB offers.

    verbs: modules by verb, as in pump/cli/main.py.
    options: adds OPTIONS to a group of pump-run's options: `virtual` and `virtual_set`, a list
        of pairs.
    prepare: the virtual GPU of a job. Raises BadInputError.
    """

    verbs: Mapping[str, str]
    options: Callable[[argparse._ArgumentGroup], None]
    prepare: Callable[[JobConfig], Virtual]


@functools.cache
def find() -> Lab | None:
    """The laboratory, or None where it is not installed."""
    import importlib.util

    if importlib.util.find_spec(PACKAGE) is None:
        return None
    return cast(Lab, importlib.import_module(f"{PACKAGE}.register").LAB)


def get(option: str) -> Lab:
    """The laboratory, for `option`. Raises BadInputError where it is not installed."""
    if found := find():
        return found
    raise BadInputError(
        f"{option}: the virtual GPU is not part of this installation; install pump-cuda with it"
    )
