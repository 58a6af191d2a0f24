"""pump install completion: copies this installation's completions to the user's folders for them.

Packages of a distribution install them in a folder that shells search; an isolated environment
(pipx, uv, venv) does not.
"""

from __future__ import annotations

import argparse
import os
import site
import sys

from pump.base import folders, inputs, outputs
from pump.base.names import quoted
from pump.base.paths import users_path
from pump.cli.support.lines import BadInputError

HELP = "install or remove completions for bash or zsh"
EXAMPLES = ("pump install completion", "pump install completion zsh")
COMMANDS = ("pump", "pump-run", "pumpd")
PLACES = {"bash": ("bash-completion/completions", ""), "zsh": ("zsh/site-functions", "_")}
"""By shell: the folder below share, both in the installation and the user's, and the prefix of file
names."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument(
        "shell", nargs="?", choices=list(PLACES), help="the shell (default: $SHELL)"
    )
    parser.add_argument("--remove", action="store_true", help="remove the completions")


def run(asked: argparse.Namespace) -> int:
    """Copies or removes the files. Raises BadInputError."""
    shell = asked.shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in PLACES:
        raise BadInputError(f"no completions for shell '{shell}'; name one: {', '.join(PLACES)}")
    below, prefix = PLACES[shell]
    target = users_path(os.environ, "XDG_DATA_HOME", ".local/share", below)
    if not target:
        raise BadInputError("HOME is not set; set it to your home folder")
    try:
        for name in (prefix + command for command in COMMANDS):
            path = os.path.join(target, name)
            if asked.remove:
                _remove(path)
            else:
                text = inputs.text(os.path.join(_completions_folder(below, prefix), name))
                folders.make(target)
                outputs.write(path, text, outputs.COMPLETION, mode=0o644)
                print(f"written  {path}")
    except OSError as error:
        raise BadInputError(f"{quoted(error.filename or target)}: {error.strerror}") from None
    if not asked.remove:
        print("next:")
        if shell == "zsh":
            print(f"    fpath=({quoted(target)} $fpath)    # in ~/.zshrc, before compinit")
        print(f"    exec {shell}")
    return 0


def _remove(path: str) -> None:
    if outputs.examine(path, outputs.COMPLETION):
        folders.remove(path)
        print(f"removed  {path}")


def _completions_folder(below: str, prefix: str) -> str:
    """Returns the folder of this installation's completions. Raises BadInputError."""
    bases = dict.fromkeys((sys.prefix, site.getuserbase(), "/usr"))
    for base in bases:
        folder = os.path.join(base, "share", below)
        if os.path.exists(os.path.join(folder, prefix + COMMANDS[0])):
            return folder
    raise BadInputError(
        f"this installation has no completions in {sys.prefix}/share/{below}; reinstall pump"
    )
