"""Starts a thread, and waits for its beginning with a bound.

threading.Thread.start() waits without a bound until the thread reports that it runs. Where memory
runs out between the start of the system's thread and its first line of Python, it ends without
a report.
"""

from __future__ import annotations

import _thread
import errno
import sys
import threading
from collections.abc import Callable
from typing import Final

BEGIN_S: Final = 3.0
"""Longest wait for the beginning of a thread, also on a busy machine."""


def start(body: Callable[[], None]) -> threading.Event:
    """Run `body` in a daemon thread; return an event that is set when it ends. Raises OSError
    where no thread can be started."""
    begun, over = threading.Event(), threading.Event()
    turn = threading.Lock()  # taken by the new thread when it begins, or here after BEGIN_S

    def run() -> None:
        if not turn.acquire(blocking=False):
            return
        begun.set()
        try:
            body()
        finally:
            over.set()

    hook = sys.unraisablehook
    sys.unraisablehook = bool  # needs no memory; the error is raised below
    try:
        _thread.start_new_thread(run, ())
        if not begun.wait(BEGIN_S) and turn.acquire(blocking=False):
            raise OSError(errno.EAGAIN, f"its thread did not start within {BEGIN_S:.0f} s")
    except RuntimeError:  # Python's error where the system has no thread left
        raise OSError(errno.EAGAIN, "cannot start a thread") from None
    finally:
        sys.unraisablehook = hook
    return over
