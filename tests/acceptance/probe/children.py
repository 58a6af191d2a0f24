"""Runs each question in its own process: the child's side, and the parent's watchdog."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from probe.driver import NoDriverError, UnsupportedError
from probe.figures import Json, rounded
from probe.gpu import Gpu
from probe.questions import QUESTIONS
from probe.registry import RECORD, Notes, Question, emit

KILL_GRACE_S = 10.0


@dataclass(frozen=True)
class Terms:
    """Inputs of every child. `cache`: folder for compiled kernels, None for no cache."""

    managed_cap: int
    cache: Path | None = None


def child_main(name: str, limit_s: float, terms: Terms) -> int:
    """Answers one question in this process; the records on stdout are the answer."""
    faulthandler.enable()  # after a crash in the driver, stderr has the Python line
    asked, notes = QUESTIONS[name], Notes(limit_s)
    status, reason = "ok", ""
    try:
        gpu = Gpu(terms.managed_cap, terms.cache)
        if asked.managed:
            gpu.require_managed()
        asked.run(gpu, notes)
    except NoDriverError as error:
        status, reason = "no_driver", str(error)
    except UnsupportedError as error:
        status, reason = "unsupported", str(error)
    except Exception as error:
        import traceback

        traceback.print_exc()
        status, reason = "failed", f"{type(error).__name__}: {error}"
    emit({"status": status, "reason": reason})
    return 0


def read_records(text: str) -> Json:
    """Parses a child's records to {"status", "reason", "result"}; no status if it was cut off."""
    answer: Json = {"result": {}}
    for line in text.splitlines():
        if not line.startswith(RECORD):
            continue
        try:
            record = json.loads(line.removeprefix(RECORD))
        except ValueError:
            continue  # cut off by the watchdog
        if "note" in record:
            answer["result"][record["note"]] = record["value"]
        else:
            answer |= {"status": record["status"], "reason": record["reason"]}
    return answer


def ask(asked: Question, limit_s: float, terms: Terms) -> Json:
    """Returns the answer of one child, or of one child for each of the question's environments."""
    if not asked.environments:
        return ask_in_child(asked, limit_s, terms, {})
    answers: dict[str, Json] = {}
    end = time.monotonic() + limit_s
    for label, environ in asked.environments.items():
        share_s = (end - time.monotonic()) / (len(asked.environments) - len(answers))
        answers[label] = ask_in_child(asked, max(share_s, 1.0), terms, environ)
        if answers[label].get("stuck") or answers[label]["status"] == "no_driver":
            break
    return merged(answers)


def merged(answers: Mapping[str, Json]) -> Json:
    """Merges the answers of several environments: ok if one of them is, else the first's status."""
    first = next(iter(answers.values()))
    statuses = [answer["status"] for answer in answers.values()]
    whole: Json = {
        "status": "ok" if "ok" in statuses else first["status"],
        "reason": "; ".join(
            dict.fromkeys(
                f"{label}: {one['reason']}" for label, one in answers.items() if one["reason"]
            )
        ),
        "result": {label: answer["result"] for label, answer in answers.items()},
        "seconds": rounded(sum(answer["seconds"] for answer in answers.values())),
    }
    return whole | ({"stuck": True} if any(one.get("stuck") for one in answers.values()) else {})


def ask_in_child(asked: Question, limit_s: float, terms: Terms, environ: Mapping[str, str]) -> Json:
    """Runs a question in its own process under the watchdog. `stuck`: it could not be killed."""
    command = [
        sys.executable,
        str(Path(sys.argv[0]).resolve()),
        "--question",
        asked.name,
        "--max-managed",
        str(terms.managed_cap),
        "--time-limit",
        f"{limit_s:.1f}",
        *(["--cache", str(terms.cache)] if terms.cache else []),
    ]
    given = {**os.environ, **environ}
    begin, ended = time.monotonic(), ""
    stuck = False
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with subprocess.Popen(
            command, env=given, stdout=out, stderr=err, stdin=subprocess.DEVNULL
        ) as child:
            try:
                code = child.wait(limit_s)
                ended = f"the child ended with {code}" if code else ""
            except subprocess.TimeoutExpired:
                ended = f"no answer within {limit_s:.0f} s"
                stuck = not end_child(child)
            except BaseException:
                end_child(child)
                raise
            if stuck:
                child.returncode = -9  # keeps Popen's exit from waiting forever
        out.seek(0)
        err.seek(0, os.SEEK_END)
        err.seek(max(err.tell() - 2000, 0))
        answer, stderr_tail = read_records(out.read()), err.read().strip()
    if "status" not in answer:
        answer["status"] = "timeout" if ended.startswith("no answer") else "failed"
        answer["reason"] = ended or "the child ended without an answer"
    if answer["status"] == "failed" and stderr_tail:
        answer["stderr"] = stderr_tail
    if answer["status"] == "no_driver" and stderr_tail:
        answer["reason"] += f"; it says: {stderr_tail.splitlines()[-1]}"
    answer["seconds"] = rounded(time.monotonic() - begin)
    return answer | ({"stuck": True} if stuck else {})


def end_child(child: subprocess.Popen[bytes]) -> bool:
    """Kills our child; returns False if it still exists after the grace time."""
    child.kill()
    try:
        child.wait(KILL_GRACE_S)
    except subprocess.TimeoutExpired:
        return False
    return True
