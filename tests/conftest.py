"""Of all tests: one folder for what the processes of a run compile, and jobs that know nothing
of earlier ones."""

import os

import builds


def pytest_configure() -> None:
    os.environ["PUMP_KEEP_LEARNED"] = "no"
    builds.folder()
