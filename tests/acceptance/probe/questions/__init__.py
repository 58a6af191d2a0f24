"""All questions, in the order in which they are asked. The destructive one comes last."""

from __future__ import annotations

from probe.gpu import Gpu
from probe.questions import (
    ask_calls,
    ask_capture,
    ask_copies,
    ask_discard,
    ask_faults,
    ask_felt,
    ask_gates,
    ask_link,
    ask_machine,
    ask_params,
    ask_pool,
    ask_prefetch,
    ask_speed,
    ask_symbols,
    ask_way_back,
)
from probe.registry import Notes, Question, questions_of

ORDERED = (
    *questions_of(ask_machine, ask_symbols, ask_calls, ask_prefetch, ask_link, ask_felt),
    *questions_of(ask_faults, ask_way_back, ask_gates, ask_params, ask_capture, ask_pool),
    *questions_of(ask_copies, ask_speed, ask_discard),
)


def never(gpu: Gpu, out: Notes) -> None:
    raise AssertionError("a question that is not asked was asked")


NOT_ASKED = tuple(
    Question(name, decides, 0, never, True, "not asked: would need real oversubscription")
    for name, decides in (
        ("eviction_order", "whether re-prefetching a resident block refreshes the eviction order"),
        ("eviction_cost", "t_ev: what a driver eviction adds to a fault or a prefetch"),
    )
)
QUESTIONS: dict[str, Question] = {asked.name: asked for asked in (*ORDERED, *NOT_ASKED)}
