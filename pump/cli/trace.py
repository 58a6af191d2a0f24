"""pump trace: summarizes a recording (pump-run --record), or exports it for trace viewers."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pump.base import outputs, schemas
from pump.base.names import quoted, readable_kernel
from pump.cli.support.lines import BadInputError
from pump.report.words import many, memory, plain, seconds, size
from pump.trace import place

if TYPE_CHECKING:  # it imports numpy
    from pump.trace.format import TraceError

HELP = "summarize a recording of pump-run, or export it for a trace viewer"
EXAMPLES = (
    "pump trace info run.pump",
    "pump trace export run.pump --perfetto run.json",
)

KERNELS_SHOWN = 12


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verbs info and export."""
    verbs = parser.add_subparsers(metavar="info|export", required=True, dest="verb")
    info = verbs.add_parser("info", help="summarize a recording", allow_abbrev=False)
    info.add_argument("file", metavar="FILE", help="the recording")
    info.add_argument("--json", action="store_true", help="print the whole summary as JSON")
    export = verbs.add_parser("export", help="export it for a trace viewer", allow_abbrev=False)
    export.add_argument("file", metavar="FILE", help="the recording")
    export.add_argument(
        "--perfetto",
        metavar="OUT",
        required=True,
        help="Chrome trace (JSON) for ui.perfetto.dev or chrome://tracing; -: standard output",
    )


def run(asked: argparse.Namespace) -> int:
    """Runs the verb; returns its exit status. Raises BadInputError."""
    return _export(asked) if asked.verb == "export" else _info(asked)


def _export(asked: argparse.Namespace) -> int:
    from pump.trace.chrome import export
    from pump.trace.format import TraceError

    try:
        if asked.perfetto == "-":
            export(asked.file, sys.stdout)
            return 0
        with outputs.replacing(asked.perfetto, outputs.EXPORT, sources=[asked.file]) as out:
            count = export(asked.file, out)
    except OSError as error:
        reads = error.filename == asked.file
        what = f"read {quoted(asked.file)}" if reads else f"write to {quoted(asked.perfetto)}"
        raise BadInputError(
            f"cannot {what}: {error.strerror}{reads * left(asked.file)}", 2 if reads else 1
        ) from None
    except TraceError as error:
        raise bad(asked.file, error) from None
    print(f"wrote {count:,} events to {quoted(asked.perfetto)}")
    return 0


def _info(asked: argparse.Namespace) -> int:
    """Prints the summary. Raises BadInputError."""
    from pump.trace.format import TraceError
    from pump.trace.info import summary

    try:
        found = summary(asked.file)
    except OSError as error:
        raise BadInputError(
            f"cannot read {quoted(asked.file)}: {error.strerror}{left(asked.file)}"
        ) from None
    except TraceError as error:
        raise bad(asked.file, error) from None
    print(schemas.dump("trace", found) if asked.json else as_text(asked.file, found))
    return 0


def bad(file: str, error: TraceError) -> BadInputError:
    """Returns the error for a file that is not a valid recording."""
    return BadInputError(f"{quoted(file)}: {error}{left(file)}")


def left(file: str) -> str:
    """Returns the end of a message about an unfinished recording to `file`; "" if there is none."""
    found = place.unfinished(file)
    return f"; a recording that was not finished is {quoted(found[-1])}" if found else ""


def as_text(file: str, found: dict[str, Any]) -> str:
    """Returns the summary as text, the result first. Replaces control characters in texts of the
    file."""
    count = found["operations"]
    per = f", {found['bytes_per_operation']:.1f} bytes per operation" if count else ""
    lines = [
        _line("recording", f"{file}: {found['state']}, {size(found['file_bytes'])}{per}"),
        _line("recorded", f"{found['recorded']} by pump {found['pump']}, policy {found['policy']}"),
        _line("command", " ".join(_words(found["command"])) or "not known"),
        *_gpu_lines(found),
        _line(
            "operations",
            f"{count:,} on {many(found['streams'], 'stream')} in {found['seconds']:.3f} s: "
            f"{found['kernels']:,} kernels, {found['copies']:,} copies, "
            f"{found['memsets']:,} memsets; {many(found['hints'], 'hint')}",
        ),
        *_graph_lines(found),
        _line(
            "memory use",
            f"{many(found['extents'], 'extent')}, {size(found['extent_bytes'])} in total; "
            f"{many(found['signatures'], 'signature')}",
        ),
        _line(
            "memory",
            f"{many(found['allocations'], 'allocation')}, {many(found['frees'], 'free')}; "
            f"peak {size(found['allocated_bytes_peak'])}",
        ),
        _line(
            "waits",
            f"{many(found['synchronisations'], 'synchronization')}, "
            f"{found['waited_seconds']:.3f} s in total, "
            f"longest {seconds(found['longest_wait_seconds'], 3)}",
        ),
        _line(
            "host gaps",
            f"{found['host_gaps']:,} after a wait, {found['host_gap_seconds']:.3f} s in total, "
            f"longest {seconds(found['longest_host_gap_seconds'], 3)}; longest pause between two "
            f"launches {seconds(found['longest_pause_between_issues_seconds'], 3)}",
        ),
        _line("lost", _losses(found)),
        *(
            _line("unfinished", f"an earlier recording, {quoted(part)}")
            for part in found["unfinished"]
        ),
    ]
    return "\n".join([*lines, *_kernel_lines(found)])


def _graph_lines(found: dict[str, Any]) -> list[str]:
    if not found["graph_launches"]:
        return []
    of_them = f"{found['graph_operations']:,} of the operations"
    return [_line("graphs", f"launched {many(found['graph_launches'], 'time')}, {of_them}")]


def _gpu_lines(found: dict[str, Any]) -> list[str]:
    job = found["job"] if isinstance(found["job"], dict) else {}
    virtual = job.get("virtual")
    lines = []
    for device in found["devices"]:
        lines.append(_line("GPU", f"{device['device']}: {memory(device)}"))
    if isinstance(virtual, dict):
        words = ", ".join(f"{key} {value}" for key, value in virtual.items())
        lines.append(_line("virtual", words))
    return lines


def _kernel_lines(found: dict[str, Any]) -> list[str]:
    from pump.trace.estimate import RESOLVED

    kernels = found["kernel_list"]
    if not kernels:
        return []
    lines = ["", "   launches   time (rough estimate)   kernel"]
    whole = sum(kernel["estimated_seconds"] or 0.0 for kernel in kernels)
    by_time = sorted(kernels, key=lambda kernel: -(kernel["estimated_seconds"] or 0.0))
    for kernel in by_time[:KERNELS_SHOWN]:
        estimate = kernel["estimated_seconds"]
        text = "not known"
        if estimate is not None:
            little = estimate < RESOLVED * whole
            text = f"under {RESOLVED:.0%}" if little else f"about {estimate:.2g} s"
        name = readable_kernel(kernel["name"])
        lines.append(f"{kernel['count']:>11,}   {text:>21}   {name}")
    if len(kernels) > KERNELS_SHOWN:
        lines.append(f"            and {len(kernels) - KERNELS_SHOWN} more (--json lists all)")
    return lines


def _losses(found: dict[str, Any]) -> str:
    lost = ", ".join(f"{count:,} events ({reason})" for reason, count in found["lost"].items())
    again = found["resyncs"]
    return f"{lost or 'nothing'}; range table read {many(again, 'time')}"


def _line(name: str, text: str) -> str:
    return f"{name:<11} {plain(text, len(text))}"


def _words(found: object) -> list[str]:
    return [str(word) for word in found] if isinstance(found, list) else []
