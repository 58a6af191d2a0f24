"""The progress of a graph, estimated from its last run."""

from __future__ import annotations

from model_batch import Script
from test_model_expect import add_expected

from pump.wire.abi import lib

NODES = 10
STREAM = 1
MS = 1_000_000


class Graphs(Script):
    """Has a range with a block for each node of a graph; each node uses its block."""

    def __init__(self) -> None:
        super().__init__()
        self.alloc(0, NODES)

    def launch(self, executable: int = 7) -> None:
        self.send(
            lib.PUMP_EVENT_GRAPH,
            seq=self.seq + 1,
            stream=STREAM,
            function=executable,
            signature=NODES,
        )
        for node in range(NODES):
            self.copy([(0, node, 1)], stream=STREAM)

    def look(self, now_ms: float) -> int:
        """Returns the number of operations in the window after an update at that time."""
        self.model.progress(self.executed, 1)
        lib.pump_model_graphs(self.model.raw, self.executed, 1, int(now_ms * MS))
        return int(self.model.totals().window_depth)

    def run(self, begin_ms: float, end_ms: float, executable: int = 7) -> None:
        self.launch(executable)
        self.look(begin_ms)
        self.executed[STREAM] = self.seq
        assert self.look(end_ms) == 0


def test_the_first_run_is_not_guessed_at() -> None:
    graphs = Graphs()
    graphs.launch()
    assert [graphs.look(now) for now in (1, 5, 1000)] == [NODES] * 3


def test_operations_execute_as_in_the_last_run_but_the_last_one() -> None:
    graphs = Graphs()
    graphs.run(1, 11)
    graphs.launch()
    # The estimate is a tenth ahead, because both ends of a run are seen late.
    assert [graphs.look(now) for now in (20, 23, 25, 29, 1000)] == [NODES, 7, 5, 1, 1]
    graphs.execute(graphs.seq, stream=STREAM)
    assert graphs.look(1001) == 0


def test_a_run_that_took_longer_is_the_measure_of_the_next() -> None:
    graphs = Graphs()
    graphs.run(1, 11)
    graphs.run(20, 60)
    graphs.launch()
    assert [graphs.look(now) for now in (70, 80, 90)] == [NODES, 8, 5]


def test_each_graph_has_its_own_time_and_a_launch_waits_for_the_one_before() -> None:
    graphs = Graphs()
    graphs.run(1, 11, executable=7)
    graphs.run(20, 120, executable=8)
    graphs.launch(executable=7)
    graphs.launch(executable=8)
    assert [graphs.look(now) for now in (200, 205, 300)] == [20, 15, 11]
    graphs.executed[STREAM] = graphs.seq - NODES
    assert [graphs.look(now) for now in (301, 351)] == [10, 5]


def test_a_node_that_was_expected_weighs_what_it_uses_itself() -> None:
    """The newest expected operation, which is far larger, must not count."""
    graphs = Graphs()
    graphs.alloc(1, 64)
    graphs.run(1, 11)
    for node in range(NODES):
        add_expected(graphs, [(0, node, 1)], stream=STREAM)
    add_expected(graphs, [(1, 0, 64)], stream=STREAM)
    graphs.launch()
    assert graphs.model.totals().expected == 1
    assert [graphs.look(now) for now in (20, 23, 25, 29, 1000)] == [NODES, 7, 5, 1, 1]
