"""Starts a thread, and waits for its first line of Python with a timeout.

threading.Thread.start() waits without a timeout until the thread reports that it runs. If memory
runs out between the start of the system's thread and its first line of Python, the thread ends
without this report.
"""

from __future__ import annotations

import _thread
import errno
import sys
import threading
from collections.abc import Callable
from typing import Final

BEGIN_S: Final = 3.0
"""Longest wait for the start of a thread; long enough for a busy machine."""


def start(body: Callable[[], None]) -> threading.Event:
    """Runs `body` in a daemon thread; returns an event that is set when the thread ends. Raises
    OSError if no thread can be started."""
    begun, over = threading.Event(), threading.Event()
    turn = threading.Lock()  # acquired by the new thread when it starts, or here after BEGIN_S

    def run() -> None:
        if not turn.acquire(blocking=False):
            return
        begun.set()
        try:
            body()
        finally:
            over.set()

    hook = sys.unraisablehook
    sys.unraisablehook = bool  # a hook that needs no memory; the error is raised below
    try:
        _thread.start_new_thread(run, ())
        if not begun.wait(BEGIN_S) and turn.acquire(blocking=False):
            raise OSError(errno.EAGAIN, f"its thread did not start within {BEGIN_S:.0f} s")
    except RuntimeError:  # Python's error if the system cannot create a thread
        raise OSError(errno.EAGAIN, "cannot start a thread") from None
    finally:
        sys.unraisablehook = hook
    return over
