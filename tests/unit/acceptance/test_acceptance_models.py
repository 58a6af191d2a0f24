"""The acceptance's PyTorch models on the CPU, if PyTorch is installed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed here")

import floor  # noqa: E402
from acceptance import models  # noqa: E402
from acceptance.models import sizes, torch_touches  # noqa: E402

NAMES = [spec.name for spec in models.MODELS.values() if spec.family == models.TORCH]
MIB_FLOATS = (1 << 20) // 4


@pytest.fixture(autouse=True)
def two_threads():
    """Limits PyTorch to as many threads as CI has; more would disturb other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_trains_to_the_same_bits_and_training_changes_them(name: str) -> None:
    def trained(iterations: int) -> str:
        model = models.build(name, 3, quick=True, device="cpu")
        for _ in range(iterations):
            model.step()
        return model.state_hash()

    assert trained(2) == trained(2) != trained(1)


@pytest.mark.parametrize(("name", "shape"), [("gpt2", sizes.gpt), ("resnet50", sizes.resnet)])
def test_the_arithmetic_of_the_sizes_counts_the_models_parameters(name: str, shape) -> None:
    model = models.build(name, 3, quick=True, device="cpu")
    assert model.facts["parameters"] == shape(True).parameters


def test_the_state_that_lives_on_is_read_in_every_iteration() -> None:
    model = models.build("gpt2", 3, quick=True, device="cpu")
    model.step()  # creates the optimiser's moments
    touches = model.touches()
    updated = {block for touch in touches for block in touch.updates}
    # Each weight of at least 2 MiB and its two moments count, in whole blocks.
    assert len(updated) * floor.BLOCK_BYTES > 0.4 * model.facts["persistent_bytes"]
    everything = {b for t in touches for b in (*t.reads, *t.updates, *t.overwrites)}
    least = floor.least_traffic(touches, 3, len(everything) * floor.BLOCK_BYTES // 2)
    assert least.h2d_bytes > 0
    assert floor.least_traffic(touches, 3, len(everything) * floor.BLOCK_BYTES).h2d_bytes == 0


def touches_of(step) -> list[floor.Touch]:
    return torch_touches.of_iteration(step)


def whole_blocks(tensor) -> set[int]:
    begin, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    return set(range(-(-begin // floor.BLOCK_BYTES), (begin + size) // floor.BLOCK_BYTES))


def test_operators_that_are_known_read_update_and_overwrite_whole_blocks() -> None:
    a, b = torch.ones(8 * MIB_FLOATS), torch.ones(8 * MIB_FLOATS)
    touch = touches_of(lambda: a.add_(b))
    assert len(touch) == 1
    assert set(touch[0].updates) == whole_blocks(a) and len(whole_blocks(a)) >= 3
    assert set(touch[0].reads) == whole_blocks(b)
    assert touch[0].overwrites == ()
    copied = touches_of(lambda: a.copy_(b))
    assert set(copied[0].overwrites) == whole_blocks(a)
    assert copied[0].updates == ()


def test_a_look_up_and_a_view_read_nothing_for_certain() -> None:
    table = torch.ones(8 * MIB_FLOATS).view(-1, 64)
    rows = torch.tensor([1, 5])
    assert touches_of(lambda: table.index_select(0, rows)) == []
    assert touches_of(lambda: table.view(-1).detach()) == []
    # A scatter may have written any block. Each block is a touch of its own, not needed before.
    touches = touches_of(lambda: table.index_put_((rows,), torch.ones(2, 64), accumulate=True))
    assert {touch.overwrites for touch in touches} == {(b,) for b in whole_blocks(table)}
    assert all(touch.reads == touch.updates == () for touch in touches)
