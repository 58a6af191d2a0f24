"""A plugin for pytest inside the suites: what numba-cuda's repository has and its wheel lacks."""

import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config() -> None:
    """There it passes options on; the tests have defaults for them."""
