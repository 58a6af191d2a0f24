"""Parses the probe's arguments.

Exit status: 0 questions asked (each has its own status), 2 bad arguments, 3 no usable driver.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from probe import carry
from probe.asking import TOTAL_LIMIT_S, probe, say
from probe.children import Terms, child_main
from probe.driver import EXIT_NO_DRIVER, EXIT_USAGE, GIB, KIB, MIB, NoDriverError, load_libcuda
from probe.gpu import MANAGED_CAP
from probe.questions import QUESTIONS


def parse_size(text: str) -> int:
    """Parses bytes with an optional suffix K, M or G (powers of 1024)."""
    factor = {"K": KIB, "M": MIB, "G": GIB}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor != 1 else text
    if not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write bytes, or 512M, or 2G")
    value = int(digits) * factor
    if value > MANAGED_CAP:
        raise argparse.ArgumentTypeError(
            f"{value} bytes are above the probe's hard cap of {MANAGED_CAP} (4 GiB)"
        )
    return value


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_probe", description="Ask a real GPU the questions on which pump's design rests."
    )
    names = {"choices": tuple(QUESTIONS), "metavar": "NAME", "nargs": "+"}
    parser.add_argument("--out", default="-", metavar="FILE", help="the JSON report; - is stdout")
    parser.add_argument("--list", action="store_true", help="list the questions and stop")
    parser.add_argument("--only", help="ask these only", **names)  # type: ignore[arg-type]
    parser.add_argument("--skip", default=[], help="leave these out", **names)  # type: ignore[arg-type]
    parser.add_argument(
        "--max-managed",
        type=parse_size,
        default=MANAGED_CAP,
        metavar="BYTES",
        help="managed memory held at once, at most 4G (default)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=TOTAL_LIMIT_S,
        metavar="SECONDS",
        help="stop asking after this time (default %(default).0f)",
    )
    parser.add_argument(
        "--carry",
        type=Path,
        metavar="FILE",
        help="write all of the probe to one file, to be run on another machine, and stop",
    )
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--question", choices=tuple(QUESTIONS), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.out != "-" and not args.question:
        path = Path(args.out)
        if path.is_dir() or not path.parent.is_dir():
            parser.error(f"--out {args.out}: not a file in an existing folder")
    return args


def carried(target: Path) -> int:
    """Writes the single-file probe; returns the exit status."""
    try:
        carry.write(target)
    except OSError as error:
        say(f"gpu_probe: --carry {target}: {error}")
        return EXIT_USAGE
    return 0


def main() -> int:
    args = parse_arguments()
    if args.list:
        for asked in QUESTIONS.values():
            bound = asked.not_asked or f"at most {asked.limit_s:.0f} s"
            print(f"{asked.name:18} {asked.decides} [{bound}]")
        return 0
    if args.carry:
        return carried(args.carry)
    if args.question:
        return child_main(args.question, args.time_limit, Terms(args.max_managed, args.cache))
    try:
        load_libcuda()
        return probe(args)
    except NoDriverError as error:
        say(f"gpu_probe: {error}")
        return EXIT_NO_DRIVER
    except KeyboardInterrupt:
        say("gpu_probe: interrupted")
        return 130
