"""The files of pump's service on a machine, and their contents.

The templates are in daemon/systemd. `root` is prepended to every path, for tests and for
packagers: nothing outside `root` changes. Starts no process.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import NamedTuple

from pump.base import folders, inputs, outputs, paths
from pump.cli.support.lines import BadInputError
from pump.config.layers import ADMINISTRATORS_FILE

UNITS = "/etc/systemd/system"
PACKAGED = {
    UNITS: "/usr/lib/systemd/system",
    "/etc/sysusers.d": "/usr/lib/sysusers.d",
    "/etc/tmpfiles.d": "/usr/lib/tmpfiles.d",
}
"""Folders of the same files in distribution packages; configuration stays below /etc."""
MARK = "written by pump "
"""Text in the first lines of each file that an upgrade may replace."""


class ServiceFile(NamedTuple):
    """One file. keep: an administrator may change the file, so an upgrade does not replace it."""

    template: str
    path: str
    keep: bool = False


SYSTEM = (
    ServiceFile("pumpd.service", f"{UNITS}/pumpd.service"),
    ServiceFile("pumpd.socket", f"{UNITS}/pumpd.socket"),
    ServiceFile("pump-metrics.service", f"{UNITS}/pump-metrics.service"),
    ServiceFile("group-only.conf", f"{UNITS}/pumpd.socket.d/group-only.conf.example", keep=True),
    ServiceFile("host-folder.conf", f"{UNITS}/user-runtime-dir@.service.d/pump.conf"),
    ServiceFile("sysusers.conf", "/etc/sysusers.d/pump.conf"),
    ServiceFile("tmpfiles.conf", "/etc/tmpfiles.d/pump.conf"),
    ServiceFile("config.toml", ADMINISTRATORS_FILE, keep=True),
)


def files_of(*, user: bool, packaged: bool = False) -> tuple[ServiceFile, ...]:
    """Returns the files of the system's service, or of a user's own. packaged: return the system's
    files with the paths that distribution packages use."""
    if packaged:
        return tuple(file._replace(path=_of_package(file.path)) for file in SYSTEM)
    if not user:
        return SYSTEM
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):
        folder = os.path.join(os.path.expanduser("~"), ".config")
    units = os.path.join(folder, "systemd/user")
    return (
        ServiceFile("user-pumpd.service", f"{units}/pumpd.service"),
        ServiceFile("user-pumpd.socket", f"{units}/pumpd.socket"),
    )


def _of_package(path: str) -> str:
    for folder, other in PACKAGED.items():
        if path.startswith(folder):
            return other + path.removeprefix(folder)
    return path


def content_of(file: ServiceFile, pumpd: str) -> str:
    """Returns the content of a file for this pumpd. Raises BadInputError."""
    try:
        text = inputs.text(paths.library(f"systemd/{file.template}"))
    except (paths.MissingFileError, OSError) as error:
        raise BadInputError(str(error)) from None
    # systemd splits the command at blanks and expands % and $.
    if any(character in pumpd for character in " \t\n\"'\\%$;"):
        raise BadInputError(f"a systemd unit cannot hold {pumpd!r}; install pump in another folder")
    pump = os.path.join(os.path.dirname(pumpd), "pump")
    for name, value in (("@PUMPD@", pumpd), ("@PUMP@", pump), ("@CONFIG@", ADMINISTRATORS_FILE)):
        text = text.replace(name, value)
    return text


def pumpd_command(asked: str) -> str:
    """Returns the pumpd that units start: `asked` if set, else the one next to this Python. Raises
    BadInputError for a relative path."""
    found = asked or os.path.join(os.path.dirname(sys.executable), "pumpd")
    if not os.path.isabs(found):
        raise BadInputError(f"--pumpd: must be an absolute path, not '{found}'")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that the verbs of pump service share."""
    add = parser.add_argument
    add("--user", action="store_true", help="your own service instead of the machine's")
    add("--root", metavar="DIR", default="", help="work below DIR instead of / (for packagers)")


def below(root: str, path: str) -> str:
    """Returns the path of a file below `root`; `path` itself without a root."""
    return os.path.join(os.path.abspath(root), path.lstrip("/")) if root else path


def is_ours(path: str, mark: str = MARK) -> bool:
    """Returns whether pump wrote a file, so that it may be replaced or removed. mark: the text to
    find in its first lines."""
    try:
        start = inputs.start(path, 400).decode("utf-8", "replace")
    except OSError:
        return False
    return mark in start.replace("\n# ", " ")  # the mark may be broken across lines


def write(path: str, text: str, root: str) -> None:
    """Writes a file atomically, and creates its folder. root: as in `below`. Raises
    BadInputError."""
    try:
        folders.make(os.path.dirname(path), below=root)
        outputs.write(path, text, outputs.UNIT, mode=0o644)
    except folders.ForeignError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from None
    except OSError as error:
        remedy = "; run it as root, or add --user" if error.errno in (1, 13) else ""
        raise BadInputError(f"cannot write {path}: {error.strerror}{remedy}") from None


def remove(path: str, root: str) -> None:
    """Removes a file that pump wrote. root: as in `below`. Raises BadInputError."""
    try:
        folders.remove(path, root)
    except OSError as error:
        raise BadInputError(f"cannot remove {path}: {error.strerror}") from None
    print(f"removed  {path}")


def systemctl(*words: str, user: bool) -> str:
    """Returns a command line for users to run."""
    return shlex.join(["systemctl", *(["--user"] if user else []), *words])
