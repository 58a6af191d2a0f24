"""Starts a thread without waiting for one that never begins.

threading.Thread.start() waits, without a bound, until the thread says that it runs. Where memory
runs out between the system's thread and its first line, it ends without a word.
"""

from __future__ import annotations

import _thread
import errno
import sys
import threading
from collections.abc import Callable
from typing import Final

BEGIN_S: Final = 3.0
"""Within which a thread begins, on a machine with other work as well."""


def start(body: Callable[[], None]) -> threading.Event:
    """Run `body` in a thread that ends with the process at the latest; return the event that
    tells its end. Raises OSError where there is no thread for it."""
    begun, over = threading.Event(), threading.Event()
    turn = threading.Lock()  # of the thread to begin, or of ours to give up

    def run() -> None:
        if not turn.acquire(blocking=False):
            return
        begun.set()
        try:
            body()
        finally:
            over.set()

    hook = sys.unraisablehook
    sys.unraisablehook = bool  # needs no memory; what ends it by then is told below
    try:
        _thread.start_new_thread(run, ())
        if not begun.wait(BEGIN_S) and turn.acquire(blocking=False):
            raise OSError(errno.EAGAIN, f"its thread does not begin within {BEGIN_S:.0f} s")
    except RuntimeError:  # what Python says where the system has none left
        raise OSError(errno.EAGAIN, "no thread for it") from None
    finally:
        sys.unraisablehook = hook
    return over
