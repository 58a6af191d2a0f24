"""The learner of extents, rule by rule (docs/extents.md), and its score on recorded traffic."""

from itertools import pairwise
from pathlib import Path

import pytest
from extents_client import LEARNER, MIB, Client, ints, words
from places import ROOT
from study.extents_layout import lay_out
from study.extents_replay import ADDRESSED, TENSORS, Learner, Score, replay
from study.extents_scratch import CONFIGURATION, Scratch, scratch
from study.extents_traffic import Launch, open_lines, read_traffic

ADD, OTHER = 1, 2
MULTI = (
    "_ZN2at6native12_GLOBAL__N__25multi_tensor_apply_kernelINS1_18TensorListMetadataILi2EEE"
    "NS1_14UnaryOpFunctorI{}Li2ELi1ELi1EEEJNS0_4SqrtIfEEEEEvT_T0_DpT1_"
)
CAT = (
    "_ZN2at6native40_GLOBAL__N__Shape_cu35CatArrayBatchedCopy_contigINS1_10OpaqueTypeILj4EEEj"
    "Li3ELi128ELi1EEEvPT_NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEE"
)
ELEMENTWISE = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addI{}EESt5arrayIPcLm3EE"
    "EEviT0_T1_"
)


def add(client: Client, count: int, *offsets: int, function: int = ADD) -> list[int]:
    """Launches an elementwise fp32 kernel at these offsets of range 0; returns believed lengths."""
    parameters = ints(count, 0) + words(*(client.at(offset) for offset in offsets))
    return list(client.launch(function, parameters).values())


# ---- ranges -----------------------------------------------------------------


def test_a_range_that_is_one_tensor_is_used_as_a_whole() -> None:
    client = Client([6 * MIB, 40 * MIB])
    parameters = ints(MIB, 3) + words(client.at(0), client.at(0, 1))
    for tell in (True, False):
        believed = client.launch(ADD, parameters, (4096, 1, 1), tell=tell)
        assert believed == {8: 6 * MIB, 16: 40 * MIB}


def test_a_pointer_into_a_range_that_is_gone_or_older_reaches_nothing() -> None:
    client = Client([8 * MIB])
    assert add(client, 100, 0) == [8 * MIB]
    client.lib.pump_extents_segment(client.learner, 0, 2, client.base(0), 8 * MIB)
    assert add(client, 100, 0) == [0], "generation 1 is dead"
    client.lib.pump_extents_segment_gone(client.learner, 0)
    assert add(client, 100, 0) == [0]


def test_a_range_that_is_replaced_forgets_its_starts() -> None:
    client = Client([8 * MIB])
    add(client, 100, 0, 2 * MIB)
    client.lib.pump_extents_segment(client.learner, 0, 1, client.base(0), 8 * MIB)
    assert client.launch(OTHER, words(client.at(0)), tell=False) == {0: 8 * MIB}


def test_without_parameters_the_next_known_start_is_the_end() -> None:
    client = Client([64 * MIB])
    parameters = words(client.at(0), client.at(10 * MIB), client.at(30 * MIB))
    believed = client.launch(ADD, parameters, tell=False)
    assert believed == {0: 10 * MIB, 8: 20 * MIB, 16: 34 * MIB}


# ---- blocks that the allocator reports ---------------------------------------


def test_a_pointer_reaches_to_the_end_of_the_block_that_was_told() -> None:
    client = Client([64 * MIB], blocks={0: 8 * MIB, 8 * MIB: 3 * MIB})
    client.launch(OTHER, words(client.at(2 * MIB)), tell=False)  # inside a block: no end
    parameters = ints(2 * MIB, 0) + words(client.at(0), client.at(9 * MIB + 8))
    assert client.launch(ADD, parameters) == {8: 8 * MIB, 16: 2 * MIB - 8}


def test_a_table_still_says_which_slots_are_unused_and_what_is_shorter() -> None:
    """Old pointers are in a live block, as in a training loop for some time."""
    client = Client([512 * MIB], blocks={0: 512 * MIB})
    client.name(ADD, MULTI.format("f"))
    table, blocks = multi_table(client, [2 * MIB, 100_000], 500 * MIB)
    believed = client.launch(ADD, table, (blocks, 1, 1), threads=512)
    used = {argument: length for argument, length in believed.items() if length}
    assert used == {0: 8 * MIB, 8: 400_000, 512: 8 * MIB, 520: 400_000}


def test_padding_that_is_a_live_block_is_believed() -> None:
    client = Client([64 * MIB], blocks={4 * MIB: MIB})
    client.launch(ADD, ints(7, 1) + ints(8, 1))
    assert client.launch(ADD, ints(7, 1) + words(client.at(4 * MIB))) == {8: MIB}


# ---- integers ---------------------------------------------------------------


def test_an_end_that_an_integer_confirms_is_believed_over_a_nearer_one() -> None:
    client = Client([64 * MIB])
    client.launch(OTHER, words(client.at(3 * MIB)), tell=False)  # an old start
    first, _ = add(client, 2 * MIB, 0, 8 * MIB)
    assert first == 8 * MIB


def test_a_product_of_two_integers_confirms_as_well() -> None:
    client = Client([64 * MIB])
    client.launch(OTHER, words(client.at(3 * MIB)), tell=False)
    parameters = ints(1500, 2048) + words(client.at(0), client.at(1500 * 2048 * 2))
    assert client.launch(ADD, parameters)[8] == 1500 * 2048 * 2


def test_the_grid_counts_as_integers() -> None:
    client = Client([64 * MIB])
    client.launch(OTHER, words(client.at(3 * MIB)), tell=False)
    parameters = ints(1024, 0) + words(client.at(0), client.at(8 * MIB))
    assert client.launch(ADD, parameters, (2048, 1, 1))[8] == 8 * MIB


def test_what_some_shapes_confirmed_is_believed_of_a_shape_never_seen() -> None:
    client = Client([512 * MIB])
    for count in (2 * MIB, 3 * MIB, 5 * MIB):
        add(client, count, 0, 4 * count)
    lone = add(client, 7 * MIB, 100 * MIB)
    assert lone == [28 * MIB], "nothing begins behind it"


def test_two_tensors_of_one_size_side_by_side_are_not_taken_for_one() -> None:
    client = Client([512 * MIB])
    for count in (2 * MIB, 3 * MIB, 5 * MIB, 6 * MIB):
        size = 4 * count
        add(client, count, 0, size, 2 * size)
        client.copied(0, 400 * MIB)  # forgets the tensor starts in these bytes
    assert add(client, 7 * MIB, 100 * MIB, 100 * MIB + 56 * MIB) == [28 * MIB, 28 * MIB]


def test_a_guess_is_no_longer_than_the_longest_sure_tensor_of_the_launch() -> None:
    client = Client([64 * MIB, 512 * MIB])
    client.launch(OTHER, words(client.at(256 * MIB, 1)), tell=False)
    parameters = ints(2 * MIB, 0)
    parameters += words(client.at(0), client.at(8 * MIB), client.at(300 * MIB, 1))
    assert client.launch(ADD, parameters)[24] == 8 * MIB


def test_nothing_is_believed_that_the_integers_cannot_count() -> None:
    client = Client([512 * MIB])
    client.launch(OTHER, words(client.at(0)), tell=False)
    parameters = ints(1000, 3000) + words(client.at(100 * MIB))
    believed = client.launch(ADD, parameters)[8]
    assert 0 < believed <= -(-3000 * 3000 * 4 // 512) * 512


# ---- non-pointer words -------------------------------------------------------


def test_a_word_that_was_a_number_in_another_launch_is_padding() -> None:
    client = Client([64 * MIB])
    live = ints(5, 0) + words(client.at(0), client.at(20 * MIB))
    assert client.launch(ADD, live)[16] != 0
    client.launch(ADD, ints(5, 0) + words(client.at(0), 7))
    assert client.launch(ADD, live)[16] == 0


def test_half_of_an_overwritten_pointer_marks_padding() -> None:
    client = Client([64 * MIB])
    client.launch(ADD, ints(5, 0) + words(client.at(0), (0x7F12 << 32) + 32))
    live = ints(5, 0) + words(client.at(0), client.at(20 * MIB))
    assert client.launch(ADD, live)[16] == 0


def test_an_optional_pointer_that_was_null_is_still_a_pointer() -> None:
    client = Client([64 * MIB])
    client.launch(ADD, ints(5, 0) + words(client.at(0), 0))
    live = ints(5, 0) + words(client.at(0), client.at(20 * MIB))
    assert client.launch(ADD, live)[16] != 0


def test_a_pointer_to_memory_that_is_not_ours_does_not_make_padding() -> None:
    client = Client([64 * MIB])
    client.launch(ADD, ints(5, 0) + words(client.at(0), 0x7F5512345600))
    live = ints(5, 0) + words(client.at(0), client.at(20 * MIB))
    assert client.launch(ADD, live)[16] != 0


def test_an_argument_that_keeps_being_confirmed_is_no_padding() -> None:
    client = Client([512 * MIB])
    for count in (2 * MIB, 3 * MIB, 5 * MIB):
        add(client, count, 0, 4 * count)
    client.launch(ADD, ints(5, 0) + words(7, client.at(20 * MIB)))
    assert add(client, 7 * MIB, 0) == [28 * MIB]


# ---- starts -----------------------------------------------------------------


def test_a_copy_tells_the_length_of_what_begins_there() -> None:
    client = Client([512 * MIB])
    client.copied(100 * MIB, 30 * MIB)
    assert client.launch(ADD, words(client.at(100 * MIB)), tell=False) == {0: 30 * MIB}


def test_a_tensor_forgets_the_starts_that_it_covers() -> None:
    client = Client([64 * MIB])
    client.launch(OTHER, words(*(client.at(i * MIB) for i in range(0, 64, 2))), tell=False)
    client.copied(8 * MIB, 40 * MIB)
    assert client.launch(ADD, words(client.at(6 * MIB)), tell=False) == {0: 2 * MIB}
    believed = client.launch(OTHER, words(client.at(10 * MIB)), tell=False)
    assert believed == {0: 38 * MIB}, "nothing is known between it and the copy's end"


def test_a_view_ends_where_the_tensor_that_it_lies_in_ends() -> None:
    client = Client([512 * MIB])
    size = 4 * 3 * MIB
    parameters = ints(3 * MIB, 0)
    parameters += words(client.at(0), client.at(4096), client.at(8192), client.at(size))
    believed = client.launch(ADD, parameters)
    assert believed[8] == size
    assert (believed[16], believed[24]) == (size - 4096, size - 8192)


# ---- tables by value --------------------------------------------------------


def multi_table(
    client: Client, elements: list[int], stale: int, *, depth: int = 2, first_chunk: int = 0
) -> tuple[bytes, int]:
    """Returns a TensorListMetadata of this depth, and the blocks of its launch. Tensors of list d
    begin at d * 64 MiB, 8 MiB apart; all other slots hold the address of offset `stale`."""
    slots = (110, 64, 48, 36, 30)[depth - 1]
    table = b""
    for number in range(depth):
        used = [client.at(number * 64 * MIB + i * 8 * MIB) for i in range(len(elements))]
        table += words(*used, *[client.at(stale)] * (slots - len(used)))
    table += words(*elements, *[12345] * (slots - len(elements)))
    blocks = [
        (tensor, chunk)
        for tensor, count in enumerate(elements)
        for chunk in range(first_chunk if tensor == 0 else 0, -(-count // 65536))
    ]
    assert len(blocks) <= 320
    table += bytes(tensor for tensor, _ in blocks).ljust(320, b"\xff")
    table += ints(*(chunk for _, chunk in blocks), *[99] * (320 - len(blocks)))
    return table + ints(0, 0) + bytes(16), len(blocks)


@pytest.mark.parametrize("name", ["", MULTI.format("f")])
def test_only_slots_that_a_block_works_on_are_used_with_exact_sizes(name: str) -> None:
    client = Client([512 * MIB])
    if name:
        client.name(ADD, name)
    table, blocks = multi_table(client, [2 * MIB, 100_000, 7], 500 * MIB)
    believed = client.launch(ADD, table, (blocks, 1, 1), threads=512)
    used = {argument: length for argument, length in believed.items() if length}
    assert used == {0: 8 * MIB, 8: 400_000, 16: 28, 512: 8 * MIB, 520: 400_000, 528: 28}


def test_a_table_may_begin_inside_a_tensor_and_end_inside_one() -> None:
    client = Client([512 * MIB])
    client.name(ADD, MULTI.format("f"))
    table, blocks = multi_table(client, [2 * MIB, 2 * MIB], 500 * MIB, first_chunk=20)
    believed = client.launch(ADD, table, (blocks - 5, 1, 1), threads=512)
    used = {argument: length for argument, length in believed.items() if length}
    assert used == {0: 8 * MIB, 8: 8 * MIB, 512: 8 * MIB, 520: 8 * MIB}


def test_the_name_tells_the_size_of_elements() -> None:
    client = Client([512 * MIB])
    client.name(ADD, MULTI.format("N3c108BFloat16E"))
    table, blocks = multi_table(client, [2 * MIB], 500 * MIB)
    assert client.launch(ADD, table, (blocks, 1, 1), threads=512)[0] == 4 * MIB


@pytest.mark.parametrize("broken", ["tensor", "chunk", "blocks", "elements"])
def test_a_table_that_makes_no_sense_is_not_believed(broken: str) -> None:
    client = Client([512 * MIB])
    client.name(ADD, MULTI.format("f"))
    table, blocks = multi_table(client, [2 * MIB, 100_000], 500 * MIB)
    made = bytearray(table)
    if broken == "tensor":
        made[1536 + 3] = 5
    elif broken == "chunk":
        made[1856 + 8] = 77
    elif broken == "elements":
        made[1024:1032] = bytes(8)
    believed = client.launch(ADD, bytes(made), (400 if broken == "blocks" else blocks, 1, 1))
    assert believed[504 - 496] != 400_000 or believed[0] != 8 * MIB


def test_a_concatenation_uses_the_inputs_of_its_batch() -> None:
    client = Client([512 * MIB])
    client.name(ADD, CAT)
    inputs = [client.at(100 * MIB), client.at(200 * MIB), *[client.at(300 * MIB)] * 126]
    parameters = words(client.at(0), *inputs)
    parameters += ints(*[0, 512, *[9] * 126], *[512] * 128, *[MIB, 2 * MIB, *[3 * MIB] * 126])
    parameters += bytes(128) + bytes(32) + bytes(32) + ints(1, 512)
    believed = client.launch(ADD, parameters, (64, 2, 1))
    assert believed == {0: 12 * MIB, 8: 4 * MIB, 16: 8 * MIB, 24: 0}


def test_a_reduction_uses_its_last_pointers_and_little_of_its_scratch() -> None:
    client = Client([512 * MIB])
    client.launch(OTHER, words(client.at(3 * MIB)), tell=False)
    config = ints(4, 8192, 1024, 512, 32, 128, 0, 4, 1, 0, 32, 32, 4, 128, 1, 4)
    inside = ints(0, 0) + config
    inside += words(client.at(400 * MIB)) * ((984 - len(inside)) // 8)  # old pointers
    tail = words(client.at(0), client.at(200 * MIB), 0, 0, client.at(32 * MIB))
    parameters = inside + tail + words(client.at(210 * MIB), 0, 0)
    believed = client.launch(ADD, parameters, (8, 128, 1))
    assert believed[984] == 32 * MIB
    assert believed[1016] == 8 * 128 * 32 * 4 * 4
    assert believed[len(ints(0, 0) + config)] == 0, "an old pointer between the numbers"


def test_reductions_with_old_numbers_in_their_padding_are_remembered_by_the_thousand() -> None:
    client = Client([512 * MIB])
    client.launch(OTHER, words(client.at(3 * MIB)), tell=False)
    config = ints(4, 8192, 1024, 512, 32, 128, 0, 4, 1, 0, 32, 32, 4, 128, 1, 4)

    def launch(number: int, begin: int, *, tell: bool) -> int:
        inside = ints(0, 0) + config + ints(number, 7)
        inside += words(0) * ((984 - len(inside)) // 8)
        tail = words(client.at(begin), client.at(begin + 200 * MIB), 0, 0)
        tail += words(client.at(begin + 32 * MIB), 0, 0, 0)
        return client.launch(ADD, inside + tail, (8, 128, 1), tell=tell)[1016]

    told = [launch(number, 0, tell=True) for number in range(3000)]
    assert set(told) == {8 * 128 * 32 * 4 * 4}
    assert [launch(number, 256 * MIB, tell=False) for number in range(3000)] == told


def test_every_pointer_of_an_elementwise_kernel_has_its_count_of_elements() -> None:
    client = Client([512 * MIB])
    for function, code, size in ((ADD, "f", 4), (OTHER, "N3c108BFloat16E", 2)):
        client.name(function, ELEMENTWISE.format(code))
        parameters = ints(MIB, 0) + words(client.at(100 * MIB), client.at(300 * MIB))
        believed = client.launch(function, parameters, (2048, 1, 1))
        assert believed == {8: size * MIB, 16: size * MIB}


# ---- names and signatures ---------------------------------------------------


def test_a_handle_that_names_another_kernel_forgets_what_it_learned() -> None:
    client = Client([512 * MIB])
    client.name(ADD, "_Z3addPfS_i")
    client.launch(ADD, ints(5, 0) + words(7))
    assert add(client, 5, 20 * MIB) == [0], "the word was a number"
    client.name(ADD, "_Z3addPfS_i")
    assert add(client, 6, 20 * MIB) == [0], "the same name again changes nothing"
    client.name(ADD, "_Z5otherPfS_i")
    assert add(client, 5, 20 * MIB) != [0]


def test_what_was_learned_is_used_when_parameters_are_told_no_more() -> None:
    client = Client([512 * MIB])
    client.launch(OTHER, words(client.at(3 * MIB)), tell=False)
    parameters = ints(2 * MIB, 0) + words(client.at(0), client.at(8 * MIB))
    told = client.launch(ADD, parameters)
    for _ in range(20):
        assert client.launch(ADD, parameters, tell=False)[8] == told[8] == 8 * MIB


# ---- recorded traffic -------------------------------------------------------

TRAFFIC = ROOT / "lab" / "bench" / "data" / "pytorch_traffic"
PRECISION, RECALL = 0.88, 0.92


def lines_of(name: str) -> list[str]:
    with open_lines(TRAFFIC / f"{name}.txt.xz") as lines:
        return list(lines)


@pytest.mark.parametrize("name", ["gpt", "gpt_bf16", "gpt_fused", "mlp"])
def test_transformers_are_believed_well_from_the_third_iteration_on(name: str) -> None:
    result = replay(read_traffic(iter(lines_of(name))), Learner(*LEARNER))
    assert result.steady.launches > 400
    assert result.steady.precision >= PRECISION, result
    assert result.steady.recall >= RECALL, result
    assert result.first.precision >= 0.9 and result.first.recall >= 0.9, result.first


@pytest.mark.parametrize("name", ["gpt", "gpt_bf16", "gpt_fused", "mlp"])
def test_with_the_allocators_reports_tensors_are_believed_from_the_first_iteration_on(
    name: str,
) -> None:
    events = read_traffic(iter(lines_of(name)))
    for against in (TENSORS, ADDRESSED):
        told = replay(events, Learner(*LEARNER, blocks=True), against)
        for score in (told.first, told.steady):
            assert min(score.precision, score.recall) >= 0.995, (against, score)
    every = replay(events, Learner(*LEARNER, blocks=True)).steady
    assert every.precision >= 0.995 and every.recall >= 0.96, "scratch is used in part"


@pytest.mark.parametrize("name", ["gpt", "gpt_bf16", "gpt_fused", "mlp"])
def test_most_of_a_reductions_scratch_is_out_of_its_kernels_reach(name: str) -> None:
    """Each buffer is as long as the launch's configuration requires, so the reach is known."""
    launches = [e for e in read_traffic(iter(lines_of(name))) if isinstance(e, Launch)]
    buffers = [buffer for launch in launches for buffer in launch.scratch]
    assert len(buffers) >= 50
    assert sum(reach for _, reach in buffers) < 0.02 * sum(handed for handed, _ in buffers)
    assert all(reach <= handed for handed, reach in buffers)


def test_a_configuration_that_does_not_explain_its_buffer_tells_no_reach() -> None:
    # 4 bytes; 4096 outputs, four per thread, of 1024 x 4 blocks of 1 x 64 threads
    words = (4, 8192, 4096, 1, 1, 4, 0, 1, 1, 0, 0, 1, 64, 64, 0, 4)
    parameters = bytes(8) + CONFIGURATION.pack(*words) + bytes(64)
    asked = 4 * 4096 * 4 * 4
    launch = ("reduce_kernel", parameters, (1024, 4, 1), 64)
    assert scratch(*launch, asked) == Scratch(asked, 4 * 4 * 1024 * 4)
    assert scratch(*launch, asked - 512) is None, "shorter than it would have asked for"
    assert scratch(*launch, asked + (2 << 20)) is None, "longer"
    assert scratch("reduce_kernel", parameters, (1024, 2, 1), 64, asked) is None, "another grid"
    assert scratch("other", *launch[1:], asked) is None


@pytest.mark.parametrize(
    ("name", "layout"),
    [("gpt_async", "native"), ("gpt_fused", "large"), ("mlp", "arena"), ("gpt_fused", "first_fit")],
)
def test_the_rule_holds_for_tensors_laid_out_by_other_allocators(name: str, layout: str) -> None:
    moved = lay_out(lines_of(name), layout)
    result = replay(read_traffic(moved), Learner(*LEARNER))
    assert result.steady.precision >= PRECISION, result.steady
    assert result.steady.recall >= RECALL, result.steady


def test_tensors_that_are_ranges_of_their_own_need_no_learning() -> None:
    result = replay(read_traffic(iter(lines_of("gpt_async"))), Learner(*LEARNER))
    for score in (result.first, result.steady):
        assert min(score.precision, score.recall) > 0.97, score


def test_the_same_traffic_gets_the_same_answers() -> None:
    events = read_traffic(iter(lines_of("mlp")))
    one, other = Learner(*LEARNER), Learner(*LEARNER)
    assert [one.tell(event) for event in events] == [other.tell(event) for event in events]


def test_the_score_would_notice_a_learner_that_believes_to_the_segments_end() -> None:
    """The simplest belief fails, so the bars mean something."""

    class Plain(Learner):
        def launch(self, event: Launch) -> list[int]:
            return [self.ends[p.slot] - p.value for p in event.pointers]

        ends: dict[int, int] = {}  # noqa: RUF012

    events = read_traffic(iter(lines_of("gpt_fused")))
    for event in events:
        if type(event).__name__ == "Range":
            Plain.ends[event.slot] = event.base + event.length_bytes  # type: ignore[union-attr]
    score: Score = replay(events, Plain(*LEARNER)).steady
    assert score.precision < PRECISION


def test_traffic_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("A 7f0000000000 4194304\nL 3 1 1\n", encoding="utf-8")
    with open_lines(path) as lines, pytest.raises(ValueError, match="line 2 is no traffic"):
        read_traffic(lines)


def test_other_layouts_never_overlap_blocks() -> None:
    for layout in ("native", "arena"):
        live: dict[int, int] = {}
        for line in lay_out(lines_of("gpt_fused"), layout):
            words_ = line.split()
            if words_[0] != "B":
                continue
            base, length = int(words_[1], 16), int(words_[2])
            if length > 0:
                live[base] = length
            else:
                del live[base]
        spans = sorted(live.items())
        assert all(base + size <= after for (base, size), (after, _) in pairwise(spans))
