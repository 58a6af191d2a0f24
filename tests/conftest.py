"""Of all tests: one folder for what the processes of a run compile."""

import builds


def pytest_configure() -> None:
    builds.folder()
