"""A client that the tests play, and the policies that a worker is tested under."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_client import FakeClient, MakeClient


@pytest.fixture(params=["window", "planned"])
def policy(request: pytest.FixtureRequest) -> str:
    """Of the worker, where a test is about neither."""
    return str(request.param)


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    made: list[FakeClient] = []

    def make(budget_blocks: int, **more: object) -> FakeClient:
        made.append(FakeClient(budget_blocks, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for client in made:
        client.close()
