"""All questions in order: the most important ones for the design come first."""

from __future__ import annotations

from probe.gpu import Gpu
from probe.questions import (
    ask_attributes,
    ask_beside,
    ask_bulk,
    ask_calls,
    ask_capture,
    ask_copies,
    ask_discard,
    ask_duplicates,
    ask_engine,
    ask_faults,
    ask_felt,
    ask_lanes,
    ask_link,
    ask_machine,
    ask_pageable,
    ask_params,
    ask_pool,
    ask_prefetch,
    ask_remote,
    ask_speed,
    ask_stream_values,
    ask_symbols,
    ask_tma,
    ask_way_back,
)
from probe.registry import Notes, Question, questions_of

FIRST = (
    "machine",
    "symbols",
    "param_info",
    "capture",
    "kernel_speed",
    "discard",
    "felt_by_others",
    "lanes",
    "tma",
)
"""The first questions: without their answers pump can be neither repaired nor trusted."""

DEFINED = (
    *questions_of(ask_machine, ask_symbols, ask_params, ask_capture, ask_speed, ask_discard),
    *questions_of(ask_felt, ask_lanes, ask_tma),
    *questions_of(ask_prefetch, ask_link, ask_faults, ask_way_back, ask_calls),
    *questions_of(
        ask_stream_values, ask_copies, ask_pool, ask_duplicates, ask_pageable, ask_engine
    ),
    *questions_of(ask_beside, ask_attributes, ask_bulk, ask_remote),
)
ORDERED = sorted(
    DEFINED, key=lambda asked: FIRST.index(asked.name) if asked.name in FIRST else len(FIRST)
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
