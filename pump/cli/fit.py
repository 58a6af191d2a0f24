"""pump fit: finds the largest batch size, or other number in a command, at a given speed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from pump.base import outputs, schemas
from pump.base.names import one_line, quoted
from pump.cli.support import repeated
from pump.cli.support.lines import BadInputError, checked, save, say, writing
from pump.config.values import BadValueError, shown, whole_number
from pump.measure.progress import Progress
from pump.measure.runs import Ran, Stop
from pump.measure.search import Search
from pump.report.words import many

HELP = "find the largest batch size, or other number in a command, at a given speed"
EXAMPLES = ("pump fit --number 64 -- python train.py --batch 64",)

MARK = "{}"
NUMBER_MOST = 1 << 40
RUNS, RUNS_MOST = 12, 1000
TIMES_LEAST = 1024
"""Default of --to, as a multiple of --from."""
SPEED = "80%"


class Speed(NamedTuple):
    """The target speed: a share of the best measured speed, or the maximum seconds of a unit."""

    share: float | None
    seconds: float | None

    def most_seconds(self, best: float) -> float:
        """Returns the maximum seconds of a unit. best: the shortest measured time of a unit."""
        return best / self.share if self.share else self.seconds or 0.0


class Tried(NamedTuple):
    """A tried number. unit_seconds: None if its run failed. problem: why it does not fit, or ""."""

    number: int
    run_seconds: float | None
    unit_seconds: float | None
    problem: str


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.epilog = (
        f"{MARK} in the command stands for the number. " + repeated.PASSED_ON % "--record"
    )

    def number(text: str) -> int:
        return whole_number(text, 1, NUMBER_MOST)

    def value(name: str, check: Callable[[str], object], text: str, usual: object = None) -> None:
        option, metavar = name.split()
        parser.add_argument(option, metavar=metavar, type=checked(check), default=usual, help=text)

    value("--number N", number, f"vary the number N in the command, starting at N; replaces "
          f"{MARK}")  # fmt: skip
    value("--from N", number, "the smallest number to try (default: 1)")
    value("--to N", number, f"the largest number to try (default: {TIMES_LEAST} times the "
          "smallest)")  # fmt: skip
    value("--step N", number, "after the smallest number, try only multiples of N "
          "(default: 1)", 1)  # fmt: skip
    value("--speed S", _speed, "the target speed: a percentage of the best speed, or a maximum "
          "time per unit (a sample of the batch) such as 0.05s "
          f"(default: {SPEED.replace('%', '%%')})", _speed(SPEED))  # fmt: skip
    parser.add_argument(
        "--same-work",
        action="store_true",
        help="compare run times instead of times per unit, because each run does the same work, "
        "such as an epoch",
    )
    value("--runs N", lambda text: whole_number(text, 2, RUNS_MOST), "maximum number of runs "
          f"(default: {RUNS})", RUNS)  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write all numbers as JSON; -: stdout")
    repeated.add_options(parser, ())


def run(asked: argparse.Namespace) -> int:
    """Returns status 0, or 128 + N after signal N. Raises BadInputError, with status 1 if the
    smallest number does not work."""
    if asked.json and asked.json != "-":
        with writing(asked.json, "--json"):
            outputs.may_replace(asked.json, outputs.FITTED)
    session = repeated.Repeated(asked)
    least, template = _template(session.command, asked.number, getattr(asked, "from"))
    most = asked.to or least * TIMES_LEAST
    if most <= least:
        raise BadInputError(f"--to is {most}; it must be above the smallest number, {least}")
    about = {
        "fitted": template,
        "gpu": session.gpu(),
        "times": session.times(),
        "same_work": asked.same_work,
    }
    text = f"This runs the command up to {many(asked.runs, 'time')}, from {least} to {most}."
    if not session.may_begin(text, asked.yes):
        say("pump", "nothing was run")
        return 1
    session.begin()
    try:
        search = Search(least, most, asked.step)
        with Stop() as stop:
            tried = _search(session, template, search, asked, stop)
        if stop.number and not tried:
            return 128 + stop.number
        found = {
            **about,
            "tried": [one._asdict() for one in tried],
            "largest": _largest(tried, asked.speed),
            "fastest": min(tried, key=_unit_seconds).number,
            "too_large": search.fails,
            "whole": not stop.number and search.next() is None,
        }
        _write(asked.json, found)
        return 128 + stop.number if stop.number else 0
    finally:
        session.close()


def _template(words: list[str], number: int | None, least: int | None) -> tuple[int, list[str]]:
    """Returns the smallest number, and the command with MARK instead of the number."""
    marked = sum(word.count(MARK) for word in words)
    if number is None:
        if not marked:
            raise BadInputError(
                f"no number is marked; replace it with {MARK}, or pass its value with --number"
            )
        return least or 1, words
    if marked:
        raise BadInputError(f"the command marks its number with {MARK}: replace --number "
                            f"{number} with --from {number}")  # fmt: skip
    if least is not None:
        raise BadInputError("the search starts at --number; remove --from")
    there = [at for at, word in enumerate(words) if str(number) in (word, word.partition("=")[2])]
    if len(there) != 1:
        raise BadInputError(
            f"--number: {number} occurs {many(len(there), 'time')} in the command; mark the number "
            f"with {MARK} instead"
        )
    at = there[0]
    front = words[at].removesuffix(str(number))
    return number, [*words[:at], front + MARK, *words[at + 1 :]]


def _search(
    session: repeated.Repeated,
    template: list[str],
    search: Search,
    asked: argparse.Namespace,
    stop: Stop,
) -> list[Tried]:
    """Returns every tried number, the smallest first. Raises BadInputError if the smallest does
    not work."""
    tried: list[Tried] = []
    progress = Progress(asked.runs)
    number: int | None = search.fits
    while number is not None and len(tried) < asked.runs:
        with progress.step(str(number)) as said:
            ran = session.once(str(number), _fill_in(template, number), None, False, stop)
            if stop.number:
                said.append("ended early")
                return tried
            one = _try(session, ran, number, asked, tried)
            said.append(one.problem or f"{one.run_seconds:.3f} s")
        if not tried and one.problem:
            _refused(session, one, ran)
        if tried:
            search.report(number, not one.problem)
        tried.append(one)
        number = search.next()
    return tried


def _refused(session: repeated.Repeated, smallest: Tried, ran: Ran) -> NoReturn:
    text = f"the smallest number, {smallest.number}, does not work"
    if smallest.run_seconds is not None:
        raise BadInputError(f"{text}: {smallest.problem}", 1)
    session.keep = True
    session.broken(f"{text}: {ran.failure() or smallest.problem}", str(ran.log))


def _try(
    session: repeated.Repeated, ran: Ran, number: int, asked: argparse.Namespace, tried: list[Tried]
) -> Tried:
    failed = session.failed(ran)
    if failed:
        output = quoted(str(ran.log))
        problem = "out of memory" if ran.out_of_memory else f"{failed}; output: {output}"
        return Tried(number, None, None, problem)
    seconds = session.seconds(ran) or 0.0
    unit = seconds if asked.same_work else seconds / number
    most = asked.speed.most_seconds(min(unit, *map(_unit_seconds, tried)) if tried else unit)
    slow = f"{unit:.4g} s per unit, the limit is {most:.4g} s" if unit > most else ""
    return Tried(number, seconds, unit, slow)


def _unit_seconds(one: Tried) -> float:
    return float("inf") if one.unit_seconds is None else one.unit_seconds


def _largest(tried: list[Tried], speed: Speed) -> int:
    """Returns the largest number at the target speed. The last run may have been the fastest."""
    most = speed.most_seconds(min(map(_unit_seconds, tried)))
    return max(one.number for one in tried if _unit_seconds(one) <= most)


def _fill_in(template: list[str], number: int) -> list[str]:
    return [word.replace(MARK, str(number)) for word in template]


def _speed(text: str) -> Speed:
    number, unit = text.strip(), ""
    if number.endswith(("%", "s")):
        number, unit = number[:-1], number[-1]
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if unit == "%" and 1 <= value <= 100:
        return Speed(value / 100, None)
    if unit == "s" and 0 < value < float("inf"):
        return Speed(None, value)
    raise BadValueError(f"must be 1% to 100%, or seconds such as 0.05s, not '{shown(text)}'")


def _write(file: str | None, found: dict[str, Any]) -> None:
    as_json = schemas.dump("fit", found) + "\n"
    print(as_json if file == "-" else _as_text(found), end="")
    if file and file != "-":
        save(file, as_json, outputs.FITTED, "--json", mode=outputs.PRIVATE)


def _as_text(found: dict[str, Any]) -> str:
    unit = "run" if found["same_work"] else "unit"
    times = {one["number"]: one["unit_seconds"] for one in found["tried"]}
    largest, fastest = found["largest"], found["fastest"]
    best = times[fastest]
    above = found["too_large"]
    at_limit = found["whole"] and not above and largest == max(times)
    limit = " (the --to limit) still" if at_limit else ""
    end = f"; {above} does not" if above else ""
    lines = [f"Largest: {largest}{limit} runs at the target speed{end}."]
    if fastest != largest:
        slower = f"{largest} takes {times[largest]:.4g} s"
        lines.append(f"Fastest: {fastest}, with {best:.4g} s per {unit}; {slower}.")
    if not found["whole"]:
        lines.append("Incomplete: larger numbers may also work. Increase --runs to try more.")
    lines += [
        "",
        f"command  {one_line(' '.join(found['fitted']))}",
        f"GPU      {found['gpu']}",
        f"times    {found['times']}; each number ran once",
        "",
        f"{'number':>10}  {'run':>10}  {'per ' + unit:>12}  {'speed':>7}",
    ]
    for one in sorted(found["tried"], key=lambda one: one["number"]):
        if one["run_seconds"] is None:
            lines.append(f"{one['number']:>10}  {one['problem']}")
            continue
        slow = "  too slow" if one["problem"] else ""
        lines.append(
            f"{one['number']:>10}  {one['run_seconds']:>8.3f} s  {one['unit_seconds']:>10.4g} s"
            f"  {best / one['unit_seconds']:>7.0%}{slow}"
        )
    return "\n".join(lines) + "\n"
