"""Of all tests: one folder for what the processes of a run compile, and jobs that know nothing
of earlier ones."""

import os
import signal

import builds


def pytest_configure() -> None:
    os.environ["PUMP_KEEP_LEARNED"] = "no"
    # A script's job in the background ignores it, and so would what tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    builds.folder()
