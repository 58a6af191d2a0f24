"""pump compare: runs a command without pump and under each policy in turn, and names the best."""

from __future__ import annotations

import argparse

from pump import outputs, schemas
from pump.cli.support import repeated
from pump.cli.support.lines import BadInputError, checked, save, say
from pump.config.values import whole_number
from pump.measure import comparison
from pump.measure.comparison import OUT_OF_MEMORY, PLAIN, ROUNDS, WAYS, Comparison, Way
from pump.measure.paired import in_rounds
from pump.measure.progress import Progress
from pump.measure.runs import Stop
from pump.names import quoted
from pump.report.words import many

HELP = "time a command without pump and under each policy"
EXAMPLES = ("pump compare --budget 20GiB -- python train.py",)

ROUNDS_MOST = 1000


def options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.epilog = repeated.PASSED_ON % "--policy and --record"
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=checked(lambda text: whole_number(text, 1, ROUNDS_MOST)),
        default=ROUNDS,
        help=f"runs without pump, and under each policy (default: {ROUNDS}, the fewest for 95 %% "
        "confidence)",
    )
    parser.add_argument("--markdown", metavar="FILE", help="write a Markdown page; -: stdout")
    parser.add_argument("--json", metavar="FILE", help="write all numbers as JSON; -: stdout")
    repeated.add_options(parser, ("--policy",))


def run(asked: argparse.Namespace) -> int:
    """Status 0; 1 where a way failed otherwise than for lack of memory; 128 + N after signal N."""
    _check(asked)
    session = repeated.Repeated(asked)
    found = Comparison(
        session.command, session.options, session.gpu(), session.times(), asked.rounds
    )
    count = many(asked.rounds * len(WAYS), "time")
    ways = f"{', '.join(WAYS[:-1])} and {WAYS[-1]}"
    text = f"This runs the command {count}: {ways}, {many(asked.rounds, 'time')} each."
    if not session.may_begin(text, asked.yes):
        say("pump", "nothing was run")
        return 1
    session.begin()
    try:
        with Stop() as stop:
            _measure(session, found, stop)
        plain = found.way(PLAIN)
        if plain.failure not in ("", OUT_OF_MEMORY) and not plain.seconds:
            session.broken(f"the command fails without pump, too: {plain.failure}", plain.log)
        _write(asked, found)
        return 128 + stop.number if stop.number else _status(found)
    finally:
        session.close()


def _check(asked: argparse.Namespace) -> None:
    """Checks the output files before the runs, which may take hours."""
    if asked.json == "-" and asked.markdown == "-":
        raise BadInputError("--json and --markdown cannot both go to standard output")
    for option, name, kind in _outputs(asked):
        try:
            if name != "-":
                outputs.may_replace(name, kind)
        except OSError as error:
            raise BadInputError(
                f"{option}: cannot write to {quoted(name)}: {error.strerror}"
            ) from None


def _outputs(asked: argparse.Namespace) -> list[tuple[str, str, outputs.Kind]]:
    all_of_them = (
        ("--json", asked.json, outputs.COMPARISON),
        ("--markdown", asked.markdown, outputs.COMPARISON_PAGE),
    )
    return [(option, name, kind) for option, name, kind in all_of_them if name]


def _measure(session: repeated.Repeated, found: Comparison, stop: Stop) -> None:
    progress = Progress(found.rounds * len(WAYS))
    for turn, name in in_rounds(WAYS, found.rounds):
        way = found.way(name)
        if way.failure:
            continue
        with progress.step(f"{name}, round {turn + 1}") as said:
            _one(session, way, turn, stop)
            if stop.number:
                said.append("ended early")
            elif way.failure:
                said.append(way.failure)
            else:
                said.append(f"{way.seconds[turn]:.3f} s")
        if stop.number:
            found.ended_early = True
            return
        if way.failure:
            progress.total -= found.rounds - turn - 1
            if name == PLAIN and way.failure != OUT_OF_MEMORY:
                return


def _one(session: repeated.Repeated, way: Way, turn: int, stop: Stop) -> None:
    """One run of a way; its time or its failure goes into the way."""
    plain = way.name == PLAIN
    policy = None if plain else way.name
    ran = session.once(f"{way.name}-{turn + 1}", session.command, policy, plain, stop)
    if stop.number:
        return
    way.failure = session.failed(ran)
    if not way.failure:
        way.seconds[turn] = session.seconds(ran) or 0.0
    elif ran.out_of_memory:
        way.failure = OUT_OF_MEMORY
    else:
        way.log = str(ran.log)


def _write(asked: argparse.Namespace, found: Comparison) -> None:
    texts = {
        "--json": schemas.dump("compare", comparison.as_json(found)) + "\n",
        "--markdown": comparison.as_markdown(found),
    }
    to_stdout = [option for option, name, _ in _outputs(asked) if name == "-"]
    print(texts[to_stdout[0]] if to_stdout else comparison.as_text(found) + "\n", end="")
    for option, name, kind in _outputs(asked):
        if name != "-":
            save(name, texts[option], kind, option, mode=outputs.PRIVATE)


def _status(found: Comparison) -> int:
    failed = [way for way in found.ways if way.failure and way.failure != OUT_OF_MEMORY]
    for way in failed:
        say("pump", f"{way.name} failed: {way.failure}; output: {quoted(way.log)}")
    return int(bool(failed))
