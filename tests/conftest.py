"""Sets up all tests: one build folder per run, and jobs that learn nothing from earlier jobs."""

import os
import signal
from collections.abc import Iterator

import builds
import pytest

SIGNALS = signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT


def pytest_configure() -> None:
    os.environ["PUMP_KEEP_LEARNED"] = "no"
    # Background jobs of a script ignore SIGINT. The programs that tests interrupt must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    builds.folder()


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Keeps Python's signal handlers. pump-run's main() resets them to the default actions for its
    command; in this process a later broken pipe would then end all tests."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, action in before.items():
        signal.signal(number, action)
