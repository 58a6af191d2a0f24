"""pump report: explains from a recording why a job is slow, as a page, text or JSON."""

from __future__ import annotations

import argparse
import os
from typing import Any

from pump.base.names import quoted
from pump.cli.support.lines import BadInputError, save

HELP = "explain from a recording why a job is slow: page, text or JSON"
EXAMPLES = ("pump report run.pump", "pump report run.pump --text")


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument(
        "file",
        metavar="FILE|JOB",
        help="a recording (pump-run --record), or the process id or name of a job that is being "
        "recorded",
    )
    parser.add_argument(
        "--with",
        dest="other",
        metavar="OTHER",
        help="a recording of the same program with enough memory, to compute the time lost",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--text", action="store_true", help="write text")
    form.add_argument("--json", action="store_true", help="write all numbers as JSON")
    parser.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="the file to write (default: FILE.html for the page, else standard output)",
    )


def run(asked: argparse.Namespace) -> int:
    """Writes the report. Raises BadInputError."""
    from pump.base import outputs, schemas
    from pump.cli.jobs import recording_of
    from pump.report.advice import advise, time_lost
    from pump.report.compare import OtherProgramError, compared
    from pump.report.page import page
    from pump.report.text import text

    path = asked.file if os.path.exists(asked.file) else recording_of(asked.file)
    found = _figures(path)
    if asked.other:
        try:
            found["compared"] = compared(found, _figures(asked.other))
        except OtherProgramError as error:
            raise BadInputError(
                f"--with {quoted(asked.other)}: {error}; record the same command twice"
            ) from None
    found["advice"] = [item._asdict() for item in advise(found)]
    if asked.json:
        made = schemas.dump("report", found) + "\n"
    elif asked.text:
        made = text(found) + "\n"
    else:
        made = page(found)
    target = asked.output or ("-" if asked.json or asked.text else f"{path}.html")
    if target == "-":
        print(made, end="")
        return 0
    sources = [path, asked.other] if asked.other else [path]
    kind = outputs.REPORT if asked.json or asked.text else outputs.PAGE
    save(target, made, kind, sources=sources)
    if not (asked.json or asked.text):
        print(f"{time_lost(found)}\nwrote {quoted(target)}")
    return 0


def _figures(path: str) -> dict[str, Any]:
    """Returns the report on a recording. Raises BadInputError."""
    from pump.cli.trace import bad, left
    from pump.report import gather
    from pump.trace.format import TraceError

    try:
        return gather.report(path)
    except OSError as error:
        raise BadInputError(f"cannot read {quoted(path)}: {error.strerror}{left(path)}") from None
    except TraceError as error:
        raise bad(path, error) from None
