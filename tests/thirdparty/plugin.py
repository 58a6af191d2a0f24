"""A pytest plugin for the suites: a fixture of numba-cuda's repository that its wheel lacks."""

import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config() -> None:
    """Passes options on in numba-cuda's repository; here the tests' defaults apply."""
