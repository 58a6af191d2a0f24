"""A simulated client, and the policies that a worker is tested under."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_client import FakeClient, MakeClient, Serve

from pump.policy import by_name
from pumpd.worker.worker import Worker


@pytest.fixture(params=["window", "planned"])
def policy(request: pytest.FixtureRequest) -> str:
    """Returns the worker's policy, for tests that do not depend on it."""
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


@pytest.fixture
def serve(make_client: MakeClient, policy: str) -> Serve:
    """Makes a client, and a worker of this policy that has not ticked."""

    def make(budget_blocks: int, **more: object) -> tuple[FakeClient, Worker]:
        client = make_client(budget_blocks, **more)
        return client, Worker(client.mapping, by_name(policy))

    return make
