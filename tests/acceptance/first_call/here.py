"""On a computer of one's own: how much memory a call may take, and which Python it runs in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from acceptance import machine
from acceptance.contract import GIB
from acceptance.first_call.call import Call

KEPT_BYTES = GIB
"""Of the card's free memory, for a desktop that grows meanwhile."""
MOST_BYTES = 8 * GIB
LEAST_BYTES = GIB
PROGRAMS_AT_ONCE = 4
REHEARSED_BYTES = 12 * GIB
"""Free memory that a rehearsal on the virtual GPU takes for granted."""
CONTEXT_BYTES = GIB // 2
"""That a process with PyTorch takes beside its tensors: context, cuBLAS, kernels."""


def use_a_python_that_has_all(root: Path, given: Sequence[str], program: str) -> None:
    """Becomes the Python of .venv where this one lacks what pump needs, and makes that first.

    Programs under test keep the Python that was asked: it may have PyTorch.
    """
    if not machine.missing() or Path(sys.prefix) == root / ".venv":
        return
    print(f"{program}: sets pump up in .venv first (scripts/setup examples)", flush=True)
    done = subprocess.run([str(root / "scripts" / "setup"), "examples"], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    other = str(root / ".venv" / "bin" / "python")
    script = str(root / "scripts" / "first_call")
    os.execv(other, [other, script, *given, "--program", sys.executable])


def share(free_bytes: int) -> tuple[int, bool]:
    """Managed memory of one program in bytes, and whether four of them may run at once.

    Never more than what is free less KEPT_BYTES, nor than MOST_BYTES, for all together; 0 where
    less than LEAST_BYTES would be left.
    """
    most = min(free_bytes - KEPT_BYTES, MOST_BYTES)
    at_once = most // PROGRAMS_AT_ONCE - CONTEXT_BYTES
    if at_once >= LEAST_BYTES:
        return at_once, True
    alone = most - CONTEXT_BYTES
    return (alone, False) if alone >= LEAST_BYTES else (0, False)


def plan(call: Call) -> str:
    """Sets the call's share of memory and tells people what comes; one line if it cannot be."""
    card = {"free_bytes": REHEARSED_BYTES} if call.virtual else machine.ask_card(os.environ)
    if "error" in card:
        return f"the card cannot be used: {card['error']}"
    free = int(card.get("free_bytes", 0))
    call.managed_bytes, call.side_by_side = share(free)
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
