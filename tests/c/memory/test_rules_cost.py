"""Measures the cost of the rules for allocations that they do not cover."""

from c_build import build, run


def test_a_look_at_the_stack_costs_microseconds() -> None:
    """A real driver needs tens of microseconds to allocate whole blocks."""
    program = build("undefined", "rules_cost", "memory/rules.c", "base/settings.c")
    unloaded_ns, walked_ns = map(float, run(program).split())
    assert unloaded_ns < 2_000
    assert walked_ns < 30_000
