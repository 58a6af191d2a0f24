"""The virtual GPU of pump-run: its options, and the environment of its jobs.

pump-run imports this module for --virtual and for --help: standard library only.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pump.base import paths
from pump.cli.devices import DRIVER
from pump.cli.lab import OPTIONS, Virtual
from pump.cli.support.environment import listable
from pump.cli.support.lines import BadInputError, add_value
from pump.config.settings import JobConfig
from pump.config.values import BadValueError
from pump_lab.paths import library

if TYPE_CHECKING:  # reads TOML
    from pump_lab.profiles import Profile

# Stand-ins for CUDA's runtime libraries, in the order of preloading. libcublas calls libcublasLt,
# which calls libcudart. The second also computes its launches.
STAND_INS = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcudnn.so.9")
COMPUTING_STAND_IN = STAND_INS[1]
FOLDER = "virtual"
"""The driver's folder in pump_lab/_lib. It holds only driver libraries: programs search it."""


def add_options(group: argparse._ArgumentGroup) -> None:
    """Adds the options of a virtual GPU to a group of pump-run's."""
    gpu, setting = OPTIONS
    value = partial(add_value, group)
    value(
        f"{gpu} PROFILE",
        _not_empty,
        "run on a virtual GPU: the name of a profile (pump simulate --profiles lists them), also "
        "in another host as a100-pcie4@desktop, or a .toml file",
    )
    value(
        f"{setting} KEY=VALUE",
        _setting,
        "change the profile, e.g. memory=8GiB or mode=compute; may be repeated",
        action="append",
        default=[],
    )


def _not_empty(text: str) -> str:
    if not text.strip():
        raise BadValueError("the name is empty; pump simulate --profiles lists the profiles")
    return text


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise BadValueError(f"must be KEY=VALUE, such as memory=8GiB, not '{text}'")
    return key.strip(), value.strip()


def prepare(config: JobConfig) -> Virtual:
    """Returns the virtual GPU of a job. Raises BadInputError if a library is missing, or for an
    invalid profile, setting or device."""
    from pump_lab import profiles
    from pump_lab.profiles import duplicates

    settings = config.virtual_settings
    try:
        folder = os.path.dirname(library(f"{FOLDER}/{DRIVER}"))
        stand_ins = [library(f"{FOLDER}/runtime/{name}") for name in STAND_INS]
        computing = library(f"{FOLDER}/runtime/{COMPUTING_STAND_IN}")
        drivers = {key: text for key, text in settings.items() if key in profiles.DRIVER_KEYS}
        models = {key: text for key, text in settings.items() if key not in drivers}
        profile = profiles.load(config.virtual or "").changed(models)
        text = profile.flatten(drivers)
    except paths.MissingFileError as error:
        raise BadInputError(str(error)) from None
    except profiles.ProfileError as error:
        raise BadInputError(f"--virtual: {error}") from None
    if config.devices not in ([], ["0"]):
        asked = ",".join(config.devices)
        raise BadInputError(f"--device: the virtual GPU has one device, 0, not '{asked}'")
    if "shared" not in settings:  # a shared GPU's number follows from its name
        text += f";card={os.urandom(4).hex()}"

    def variables(environ: Mapping[str, str]) -> dict[str, str]:
        searched = listable(folder, "LD_LIBRARY_PATH", ":;")
        others = [p for p in environ.get("LD_LIBRARY_PATH", "").split(":") if p and p != searched]
        kernels = environ.get("PUMP_VIRTUAL_KERNELS", "").split(":")
        kernels = [p for p in kernels if p and os.path.basename(p) != COMPUTING_STAND_IN]
        found = {
            "LD_LIBRARY_PATH": ":".join([searched, *others]),
            "PUMP_VIRTUAL_PROFILE": text,
            "PUMP_VIRTUAL_KERNELS": ":".join([*kernels, computing]),
        }
        if "shared" not in settings:  # each process has a virtual GPU of its own
            found["PUMP_NEIGHBOURS"] = "none"
        if config.devices:
            found["CUDA_VISIBLE_DEVICES"] = "0"
        return found

    return Virtual(
        os.path.dirname(folder),
        stand_ins,
        variables,
        _facts(profile, settings.get("mode", profiles.MODES[0])),
        duplicates.pay(profile.values),
    )


def _facts(profile: Profile, mode: str) -> dict[str, str]:
    return {
        "profile": profile.name,
        "hash": profile.hash(),
        "device": str(profile.values["device.name"]),
        "mode": mode,
    }
