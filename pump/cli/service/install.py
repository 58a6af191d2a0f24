"""pump service install: writes systemd's files for `pumpd serve`. Starts nothing."""

from __future__ import annotations

import argparse
import os

from pump.cli.support import service_code, service_files
from pump.cli.support.lines import BadInputError

HELP = "write the systemd units of the service that shares GPUs"
EXAMPLES = ("sudo pump service install", "pump service install --user")


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    service_files.add_options(parser)
    parser.add_argument(
        "--pumpd",
        metavar="PATH",
        default="",
        help="the pumpd to start (default: this one)",
    )
    parser.add_argument(
        "--packaged",
        action="store_true",
        help="with --root: write to the folders that distribution packages use",
    )


def run(asked: argparse.Namespace) -> int:
    """Writes the files, and prints the next steps. Raises BadInputError; each file is then
    unchanged or complete."""
    if asked.packaged and (asked.user or not asked.root):
        raise BadInputError("--packaged is for packagers; it goes with --root, and not with --user")
    pumpd = service_files.pumpd_command(asked.pumpd)
    if not asked.root:  # else the files are for another machine
        if not asked.user:
            _check_no_package()
        service_code.check(pumpd, user=asked.user)
    texts = {
        file: service_files.content_of(file, pumpd)
        for file in service_files.files_of(user=asked.user, packaged=asked.packaged)
    }
    for file in texts:
        path = service_files.below(asked.root, file.path)
        if not file.keep and os.path.lexists(path) and not service_files.is_ours(path):
            raise BadInputError(f"{path} already exists, but pump did not write it; move it away")
    for file, text in texts.items():
        path = service_files.below(asked.root, file.path)
        if file.keep and os.path.lexists(path):
            print(f"kept     {path}")
            continue
        service_files.write(path, text, asked.root)
        print(f"written  {path}")
    if not asked.root:
        _print_next(user=asked.user)
    return 0


def _check_no_package() -> None:
    """Raises BadInputError if a package has installed the units. After an upgrade of one copy, the
    other could hide it."""
    for file in service_files.files_of(user=False, packaged=True):
        if not file.keep and os.path.lexists(file.path):
            raise BadInputError(
                f"a package has installed the service ({file.path}); start it: "
                f"{service_files.systemctl('enable', '--now', 'pumpd.socket', user=False)}"
            )


def _print_next(*, user: bool) -> None:
    print("next:")
    if not user:
        print("    systemd-sysusers && systemd-tmpfiles --create pump.conf")
    print(f"    {service_files.systemctl('daemon-reload', user=user)}")
    print(f"    {service_files.systemctl('enable', '--now', 'pumpd.socket', user=user)}")
    print(
        f"    {service_files.systemctl('try-restart', 'pumpd.service', user=user)}"
        "    # after an upgrade; jobs keep running"
    )
