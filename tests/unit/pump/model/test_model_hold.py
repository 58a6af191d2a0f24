"""Whether a policy is asked or its last decision holds: what is believed is the same."""

from __future__ import annotations

from model_batch import BLOCK, Script, lib

from pump.model.client import HOST, RESIDENT
from pump.model.view import Decision

HOLDS = Decision(allowance=8, hold=4, settled=True)


def test_a_decision_does_not_outlast_the_turn_of_an_operation_larger_than_the_budget() -> None:
    """Then what is there of it is missing as well, which no view has shown."""
    script = Script(budget=20)
    giant, small = script.alloc(0, 30), script.alloc(1, 2)
    script.set_state([*giant, *small], HOST)
    script.set_state(giant[4:8], RESIDENT)
    script.copy([(1, 0, 2)])
    script.copy([(0, 0, 30)])
    script.start(lib.PUMP_TO_GPU, list(small))
    script.model.decided(0, HOLDS)
    assert not set(giant[4:8]) & set(script.model.view(0).missing.tolist()), "to look is no turn"
    assert script.model.holds(0)
    lib.pump_model_turn(script.model.raw, 0)
    assert not script.model.holds(0)
    assert set(giant[4:8]) <= set(script.model.view(0).missing.tolist())


def test_the_turn_of_an_operation_is_one_for_its_own_device() -> None:
    script = Script(budget=20, devices=2)
    giant = script.alloc(0, 30, device=1)
    script.set_state(giant, HOST)
    script.set_state(giant[:4], RESIDENT)
    script.copy([(0, 0, 30)])
    lib.pump_model_turn(script.model.raw, 0)
    assert not set(giant[:4]) & set(script.model.view(1).missing.tolist())
    lib.pump_model_turn(script.model.raw, 1)
    assert set(giant[:4]) <= set(script.model.view(1).missing.tolist())


def test_blocks_that_are_not_discarded_are_given_up_whether_a_policy_looks_or_not() -> None:
    """They go before others in the order in which that became known."""
    orders = []
    for looks in (False, True):
        script = Script(budget=8)
        blocks = script.alloc(3, 6)
        script.execute(script.copy([(3, 0, 6)]))
        freed = [(3, 1, 5 * BLOCK, BLOCK, lib.PUMP_ACCESS_WRITE)]
        script.send(lib.PUMP_EVENT_FREED, uses=freed)
        for _ in range(300):
            script.execute(script.copy([(3, 0, 1)]))
            if looks:
                script.model.view(0)
        dead = [(3, 1, 4 * BLOCK, BLOCK, lib.PUMP_ACCESS_WRITE)]
        script.send(lib.PUMP_EVENT_DEAD, uses=dead)
        orders.append(script.model.view(0).eviction_candidates.tolist())
    assert orders[0] == orders[1]
    assert orders[0][:2] == [blocks[4], blocks[5]]
