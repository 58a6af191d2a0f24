"""The run: which questions are asked in which order, and the report on disk."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from probe.carry import commit
from probe.children import ask_in_child
from probe.constants import derive_profile
from probe.driver import EXIT_NO_DRIVER
from probe.figures import Json, rounded
from probe.questions import QUESTIONS
from probe.registry import Question

SCHEMA = 1
TOTAL_LIMIT_S = 345.0  # the whole run, below six minutes


def selected(only: Sequence[str] | None, skip: Sequence[str]) -> Iterator[tuple[Question, bool]]:
    """All questions in order, each with whether it is asked; `machine` always is."""
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


def probe(args: argparse.Namespace) -> int:
    """The parent: ask every chosen question, keep the report on disk up to date."""
    begin = time.monotonic()
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
    for asked, chosen in selected(args.only, args.skip):
        left = args.time_limit - (time.monotonic() - begin)
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
            answer = ask_in_child(asked, min(asked.limit_s, left), args.max_managed)
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
        report["seconds"] = rounded(time.monotonic() - begin)
        if args.out != "-":
            write_report(report, args.out)
    if args.out == "-":
        write_report(report, "-")
    return 0
