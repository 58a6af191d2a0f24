"""pump report: a recording's figures and what to do about them, as a page, text or JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys

from pump.cli.support.lines import BadInputError, save
from pump.names import quoted

HELP = "show from a recording why a job is slow: a page, text or JSON"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "file",
        metavar="FILE|JOB",
        help="a recording (pump-run --record), or the process id or name of a job that is "
        "being recorded",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--text", action="store_true", help="as text")
    form.add_argument("--json", action="store_true", help="all figures, as one JSON object")
    parser.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="where to write (default: the page to FILE.html, text and JSON to standard output)",
    )


def run(asked: argparse.Namespace) -> int:
    """Write the report. Raises BadInputError: status 2 when there is no such file, 1 when it is
    no sound recording."""
    from pump import outputs
    from pump.cli.jobs import recording_of
    from pump.cli.trace import bad, left
    from pump.report import gather
    from pump.report.page import page
    from pump.report.text import text
    from pump.trace.format import TraceError

    path = asked.file if os.path.exists(asked.file) else recording_of(asked.file)
    try:
        found = gather.report(path)
    except OSError as error:
        raise BadInputError(f"cannot read {quoted(path)}: {error.strerror}{left(path)}") from None
    except TraceError as error:
        raise bad(path, error) from None
    if asked.json:
        made = json.dumps(found, indent=1) + "\n"
    elif asked.text:
        made = text(found) + "\n"
    else:
        made = page(found)
    target = asked.output or ("-" if asked.json or asked.text else f"{path}.html")
    if target == "-":
        sys.stdout.write(made)
        return 0
    save(target, made, outputs.REPORT if asked.json or asked.text else outputs.PAGE)
    if not (asked.json or asked.text):
        print(f"wrote {quoted(target)}")
    return 0
