"""pump service uninstall: removes the files of pump service install. Stops nothing."""

from __future__ import annotations

import argparse
import contextlib
import os

from pump.base import inputs
from pump.cli.support import service_files

HELP = "remove these units"
EXAMPLES = ("sudo pump service uninstall", "pump service uninstall --user")


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    service_files.add_options(parser)


def run(asked: argparse.Namespace) -> int:
    """Removes the files that pump wrote, and folders that are then empty. Keeps files that an
    administrator has changed or added. Raises BadInputError."""
    for file in service_files.files_of(user=asked.user):
        path = service_files.below(asked.root, file.path)
        if not os.path.lexists(path):
            continue
        untouched = file.keep and _is_template(file, path)
        if not untouched and (file.keep or not service_files.is_ours(path)):
            print(f"kept     {path}")
            continue
        service_files.remove(path, asked.root)
        if file.keep:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))
    if not asked.root:
        print("next:")
        print(
            f"    {service_files.systemctl('disable', '--now', 'pumpd.socket', user=asked.user)}"
            "; jobs keep their budgets"
        )
        print(f"    {service_files.systemctl('daemon-reload', user=asked.user)}")
    return 0


def _is_template(file: service_files.ServiceFile, path: str) -> bool:
    try:
        return inputs.text(path) == service_files.content_of(file, "/pumpd")
    except OSError:
        return False
