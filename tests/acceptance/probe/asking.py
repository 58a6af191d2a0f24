"""Runs the probe: selects and orders the questions, and keeps the report on disk."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from probe.carry import commit
from probe.children import Terms, ask
from probe.constants import derive_profile
from probe.driver import EXIT_NO_DRIVER
from probe.figures import Json, rounded
from probe.questions import FIRST, QUESTIONS
from probe.registry import Question
from probe.transfer import mark

SCHEMA = 1
TOTAL_LIMIT_S = 345.0  # the whole run, below six minutes


def selected(only: Sequence[str] | None, skip: Sequence[str]) -> Iterator[tuple[Question, bool]]:
    """Yields all questions in order and whether to ask each; `machine` is always included."""
    for asked in QUESTIONS.values():
        chosen = (not only or asked.name in only) and asked.name not in skip
        yield asked, chosen or asked.name == "machine"


def write_report(report: Json, target: str) -> None:
    text = json.dumps(report, indent=1, sort_keys=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    path = Path(target)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, prefix=".probe") as file:
        file.write(text)
    os.chmod(file.name, 0o644)  # noqa: PTH101
    os.replace(file.name, path)  # noqa: PTH105


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


Ask = Callable[[Question, float, Terms], Json]


def limit_s(asked: Question, later: Sequence[Question], left_s: float) -> float:
    """Returns how many of the run's remaining `left_s` seconds a question may take. Pure.

    Usually this is the question's own limit. If the first questions together may take longer than
    `left_s`, all of them are shortened by the same factor. Later questions share the rest.
    """
    wanted_s = asked.limit_s
    if asked.name in FIRST:
        wanted_s += sum(other.limit_s for other in later if other.name in FIRST)
    return asked.limit_s * min(1.0, left_s / wanted_s)


def probe(
    args: argparse.Namespace, ask: Ask = ask, clock: Callable[[], float] = time.monotonic
) -> int:
    """Runs the parent: asks every chosen question and keeps the report on disk up to date."""
    with tempfile.TemporaryDirectory(prefix="gpu-probe-") as cache:
        return ask_all(args, Terms(args.max_managed, Path(cache)), ask, clock)


def ask_all(args: argparse.Namespace, terms: Terms, ask: Ask, clock: Callable[[], float]) -> int:
    begin = clock()
    report: Json = {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "host": {},
        "device": {},
        "questions": {},
        "profile": {},
    }
    stuck = ""
    every = list(selected(args.only, args.skip))
    for turn, (asked, chosen) in enumerate(every):
        left = args.time_limit - (clock() - begin)
        reason = (
            "not chosen"
            if not chosen
            else asked.not_asked
            or stuck
            or ("" if left > 5 else f"the time limit of {args.time_limit:.0f} s is spent")
        )
        if reason:
            answer: Json = {"status": "skipped", "reason": reason, "seconds": 0.0, "result": {}}
        else:
            say(f"gpu_probe: {asked.name} ...")
            later = [other for other, wanted in every[turn + 1 :] if wanted]
            answer = ask(asked, limit_s(asked, later, left), terms)
            say(
                f"gpu_probe: {asked.name} {answer['status']} in {answer['seconds']:.1f} s"
                + (f" ({answer['reason']})" if answer["reason"] else "")
            )
        if answer["status"] == "no_driver":
            say(f"gpu_probe: {answer['reason']}")
            return EXIT_NO_DRIVER
        if answer.pop("stuck", False):
            stuck = f"the child of {asked.name} could not be killed, the GPU may hang"
        report["questions"][asked.name] = answer
        if asked.name == "machine":
            report["host"] = answer["result"].pop("host", {})
            report["device"] = answer["result"].pop("device", {})
        report["profile"] = derive_profile(report["questions"])
        mark(report)
        report["seconds"] = rounded(clock() - begin)
        if args.out != "-":
            write_report(report, args.out)
    if args.out == "-":
        write_report(report, "-")
    return 0
