"""Sizes a call for a desktop computer, and finds a Python that has pump's dependencies."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from acceptance import machine
from acceptance.contract import GIB
from acceptance.first_call.call import Call

KEPT_BYTES = GIB
"""Free GPU memory that a call leaves for the desktop."""
MOST_BYTES = 8 * GIB
LEAST_BYTES = GIB
PROGRAMS_AT_ONCE = 4
REHEARSED_BYTES = 12 * GIB
"""Free GPU memory that a rehearsal on the virtual GPU assumes."""
NAME_LEAST = 4
"""Shorter host names are left in the results, because they are parts of other words."""
CONTEXT_BYTES = GIB // 2
"""GPU memory of a PyTorch process in addition to its tensors: context, cuBLAS, kernels."""


def use_a_python_that_has_all(root: Path, given: Sequence[str], program: str) -> None:
    """Replaces this process by .venv's Python if this one lacks a dependency of pump.

    Runs scripts/setup first. The programs under test keep this Python, which may have PyTorch.
    """
    if not machine.lacking(root / ".wheels") or Path(sys.prefix) == root / ".venv":
        return
    print(f"{program}: sets pump up in .venv first (scripts/setup examples)", flush=True)
    done = subprocess.run([str(root / "scripts" / "setup"), "examples"], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    other = str(root / ".venv" / "bin" / "python")
    script = str(root / "scripts" / "first_call")
    os.execv(other, [other, script, *given, "--program", sys.executable])


def share(free_bytes: int) -> tuple[int, bool]:
    """Returns the managed memory of one program in bytes, and whether four may run at once.

    All programs together get at most MOST_BYTES, and leave KEPT_BYTES of `free_bytes` free.
    Returns 0 if a program would get less than LEAST_BYTES.
    """
    most = min(free_bytes - KEPT_BYTES, MOST_BYTES)
    at_once = most // PROGRAMS_AT_ONCE - CONTEXT_BYTES
    if at_once >= LEAST_BYTES:
        return at_once, True
    alone = most - CONTEXT_BYTES
    return (alone, False) if alone >= LEAST_BYTES else (0, False)


def plan(call: Call) -> str:
    """Sets the memory limits of the call and announces it; returns why it cannot run, or ""."""
    card = {"free_bytes": REHEARSED_BYTES} if call.virtual else machine.ask_card(os.environ)
    if "error" in card:
        return f"the card cannot be used: {card['error']}"
    free = int(card.get("free_bytes", 0))
    call.managed_bytes, call.side_by_side = share(free)
    call.kept_bytes = KEPT_BYTES
    call.private = ((str(call.root), "checkout"), (str(Path.home()), "home"))
    if len(platform.node()) >= NAME_LEAST:
        call.private += ((platform.node(), "machine"),)
    if not call.managed_bytes:
        least = KEPT_BYTES + CONTEXT_BYTES + LEAST_BYTES
        return (
            f"{free / GIB:.1f} GiB of the GPU are free and {least / GIB:.1f} are needed: end "
            "programs that use it, and try again"
        )
    call.say(
        f"takes about {call.seconds / 60:.0f} minutes and at most "
        f"{min(MOST_BYTES, free - KEPT_BYTES) / GIB:.1f} GiB of the GPU; changes no setting. "
        "Ctrl-C ends it; what was found until then is kept."
    )
    return ""
