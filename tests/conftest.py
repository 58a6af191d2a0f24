"""Of all tests: one folder for what the processes of a run compile, and jobs that know nothing
of earlier ones."""

import os
import signal
from collections.abc import Iterator

import builds
import pytest

SIGNALS = signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT


def pytest_configure() -> None:
    os.environ["PUMP_KEEP_LEARNED"] = "no"
    # A script's job in the background ignores it, and so would what tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    builds.folder()


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Keeps what Python does at signals: pump-run's main() gives them their default action for
    its command. Called in this process, it would let a later broken pipe end all tests."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, action in before.items():
        signal.signal(number, action)
