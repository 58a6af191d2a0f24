"""pump install cdi: prints a CDI specification that runs containers under pump.

CDI is the Container Device Interface 0.5 (github.com/cncf-tags/container-device-interface). podman,
containerd, CRI-O and Docker read such files in /etc/cdi and apply their edits. The edits here mount
pump's libraries, and set the environment that pump-run would set with the same options. A pumpd of
the host can serve these containers (--pumpd); then the folder of its socket is mounted, too.
Without a pumpd, the containers use demand paging.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from typing import Any

from pump.base import trust
from pump.cli.run import parts_of
from pump.cli.support import environment
from pump.cli.support import options as pump_run
from pump.cli.support.lines import BadInputError, take_options_as_words
from pump.config.settings import JobConfig

HELP = "print a CDI specification that runs containers under pump"
EXAMPLES = ("pump install cdi -- --budget 20GiB | sudo tee /etc/cdi/pump.json",)
VERSION = "0.5.0"
"""First version with names that begin with a digit, and the latest that podman 4.3 supports."""
KIND = "pump/settings"
MOUNTED = "/opt/pump-cdi"
"""Folder of pump's libraries in a container."""
MOUNTED_VIRTUAL = "/opt/pump-cdi-virtual"
"""Folder of a virtual GPU's libraries in a container."""
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
PUMPD = "/opt/pump-pumpd"
"""Folder of the socket of the host's pumpd in a container."""
OF_PUMPD = {"record": "--record", "log_file": "--log-file", "devices": "--device"}
"""Settings that do not work in a specification: the runtime controls their files and GPUs."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options. All other options belong to pump-run."""
    take_options_as_words(parser)
    parser.add_argument(
        "--as",
        dest="device",
        metavar="NAME",
        default="default",
        help=f"the device's name, after {KIND}= (default: default)",
    )
    parser.add_argument(
        "--pumpd",
        metavar="SOCKET",
        default="",
        help="the socket of a `pumpd job` of this machine that serves the containers (default: "
        "none; they use demand paging)",
    )
    parser.add_argument(
        "settings",
        nargs=argparse.REMAINDER,
        metavar="[-- option ...]",
        help="options of pump-run, such as --budget 20GiB or --virtual PROFILE",
    )


def run(asked: argparse.Namespace) -> int:
    """Prints the specification. Raises BadInputError."""
    if not NAME.fullmatch(asked.device):
        raise BadInputError(
            f"--as: must be letters and digits, with _ . : - between them, not '{asked.device}'"
        )
    words = asked.settings[1:] if asked.settings[:1] == ["--"] else asked.settings
    config = _config(words)
    found = specification(asked.device, config, dict(os.environ), _socket(asked.pumpd))
    print(json.dumps(found, indent=2))
    return 0


def specification(
    device: str, config: JobConfig, environ: dict[str, str], socket: str = ""
) -> dict[str, Any]:
    """Returns the specification for `config`, with the pumpd at `socket`, if any. Raises
    BadInputError if a library is missing, or if another user could change it."""
    parts = parts_of(config, environ)
    if parts.shim is None:
        raise BadInputError("PUMP_DISABLE is set, so pump would do nothing; unset it")
    folder = os.path.dirname(parts.shim)
    if weak := trust.weakness(os.path.realpath(parts.shim), (os.geteuid(),)):
        raise BadInputError(
            f"other users could change what containers load: {weak.path} {weak.why}; "
            "install pump in a folder that only root can write"
        )

    folders = {folder: MOUNTED}
    if parts.virtual:
        folders[parts.virtual.folder] = MOUNTED_VIRTUAL
    variables = environment.for_job(config, parts, {})
    for outside, inside in folders.items():
        variables = {k: text.replace(f"{outside}/", f"{inside}/") for k, text in variables.items()}
    mounts = [_mount(outside, inside) for outside, inside in folders.items()]
    if socket:
        variables["PUMP_SOCKET"] = os.path.join(PUMPD, os.path.basename(socket))
        mounts.append(_mount(os.path.dirname(socket), PUMPD))
    edits = {
        "env": [f"{name}={value}" for name, value in sorted(variables.items()) if value],
        "mounts": mounts,
    }
    devices = [{"name": device, "containerEdits": edits}]
    return {"cdiVersion": VERSION, "kind": KIND, "devices": devices}


def _mount(folder: str, inside: str) -> dict[str, Any]:
    options = ["ro", "nosuid", "nodev", "rbind"]
    return {"hostPath": folder, "containerPath": inside, "type": "bind", "options": options}


def _socket(path: str) -> str:
    """Returns the absolute path of a socket. Containers mount its folder, so that they also find a
    restarted pumpd. Raises BadInputError if other users could put their own socket there."""
    if not path:
        return ""
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise BadInputError(
            f"--pumpd {path}: there is no such folder; create it with: mkdir -m 700 {path}"
        )
    if weak := trust.weakness(os.path.realpath(folder), (os.geteuid(),)):
        raise BadInputError(
            f"--pumpd {path}: other users could put a socket there: {weak.path} {weak.why}"
        )
    return path


def _config(words: list[str]) -> JobConfig:
    """Returns the configuration that pump-run would resolve from these options here. Raises
    BadInputError."""
    typed = pump_run.parse([*words, "--", "container"])
    config = typed.resolve(os.environ).apply(typed.job())
    for key, option in OF_PUMPD.items():
        if getattr(config, key):
            raise BadInputError(f"{option} does not work in a specification; leave it out")
    return config
