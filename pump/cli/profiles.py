"""pump profiles: the GPUs that the virtual driver can play."""

from __future__ import annotations

import argparse

from pump import profiles

HELP = "list the device profiles for pump-run --virtual"


def options(parser: argparse.ArgumentParser) -> None:
    """No option of its own."""


def run(asked: argparse.Namespace) -> int:
    """Prints one line a profile: name, memory in GiB, the device's name, the profile's hash."""
    for name in profiles.names():
        profile = profiles.load(name)
        memory_gib = int(profile.values["device.memory_bytes"]) / 2**30
        device = profile.values["device.name"]
        print(f"{name:<16} {memory_gib:7.1f} GiB  {device}  {profile.hash()}")
    return 0
