"""pump disable: removes only the files that `pump enable` wrote. Keeps the rules."""

from __future__ import annotations

import argparse
import os

from pump.cli.support import enabling, service_files

HELP = "undo pump enable; rules are kept"
EXAMPLES = ("pump disable", "sudo pump disable --machine")


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    add = parser.add_argument
    add("--machine", action="store_true", help="for all users of the machine (as root)")
    add("--root", metavar="DIR", default="", help="remove below DIR instead of / (for packagers)")


def run(asked: argparse.Namespace) -> int:
    """Removes the files and prints their names. pump still serves running processes. Raises
    BadInputError."""
    at = enabling.places(dict(os.environ), machine=asked.machine)
    for path in reversed(at.written()):  # files that preload the shim first
        place = service_files.below(asked.root, path)
        if not os.path.lexists(place):
            continue
        if not enabling.is_ours(place):
            print(f"kept     {place}: not pump's")
            continue
        service_files.remove(place, asked.root)
    if not asked.root and not asked.machine:
        print("next:")
        print(f"    {service_files.systemctl('stop', 'pump-jobs.socket', user=True)}")
        print(f'    # remove "{enabling.source_line(at)}" from your profile, if present;')
        print("    # running sessions keep the variables: unset LD_PRELOAD PUMP_JOBS")
    return 0
