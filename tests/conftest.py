"""Sets up all tests: one build folder per run, and jobs that learn nothing from earlier jobs."""

import os
import signal
import time
from collections.abc import Iterator

import builds
import pytest

BEGAN_S = time.monotonic()
SIGNALS = signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "seconds after which no further test starts (scripts/test --quick)"
    parser.addoption("--stop-after", type=float, metavar="SECONDS", help=about)


def pytest_runtest_setup(item: pytest.Item) -> None:
    most = item.config.getoption("--stop-after")
    if most is not None and time.monotonic() - BEGAN_S > most:
        pytest.skip("not started: the time of scripts/test --quick is over")


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
