"""pump compare: runs a command without pump and under each policy in turn, and names the best."""

from __future__ import annotations

import argparse

from pump.base import outputs, schemas
from pump.cli.support import repeated
from pump.cli.support.lines import BadInputError, checked, save, say, writing
from pump.config.values import whole_number
from pump.measure import comparison
from pump.measure.comparison import OUT_OF_MEMORY, PLAIN, ROUNDS, VARIANTS, Comparison, Variant
from pump.measure.paired import in_rounds
from pump.measure.progress import Progress
from pump.measure.runs import Stop
from pump.report.words import many

HELP = "time a command without pump and under each policy"
EXAMPLES = ("pump compare --budget 20GiB -- python train.py",)

ROUNDS_MOST = 1000


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
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
    """Returns status 0; 1 if a variant failed for a reason other than lack of memory; 128 + N
    after signal N."""
    _check(asked)
    session = repeated.Repeated(asked)
    found = Comparison(
        session.command, session.options, session.gpu(), session.times(), asked.rounds
    )
    count = many(asked.rounds * len(VARIANTS), "time")
    variants = f"{', '.join(VARIANTS[:-1])} and {VARIANTS[-1]}"
    text = f"This runs the command {count}: {variants}, {many(asked.rounds, 'time')} each."
    if not session.may_begin(text, asked.yes):
        say("pump", "nothing was run")
        return 1
    session.begin()
    try:
        with Stop() as stop:
            _measure(session, found, stop)
        plain = found.variant(PLAIN)
        if plain.failure not in ("", OUT_OF_MEMORY) and not plain.seconds:
            session.broken(f"the command fails without pump, too: {plain.failure}", plain.log)
        failed = [one for one in found.variants if one.failure not in ("", OUT_OF_MEMORY)]
        if failed:
            session.show(failed[0].log)
        _write(asked, found)
        return 128 + stop.number if stop.number else int(bool(failed))
    finally:
        session.close()


def _check(asked: argparse.Namespace) -> None:
    """Checks the output files before the runs, which may take hours."""
    if asked.json == "-" and asked.markdown == "-":
        raise BadInputError("--json and --markdown cannot both go to standard output")
    for option, name, kind in _outputs(asked):
        if name != "-":
            with writing(name, option):
                outputs.may_replace(name, kind)


def _outputs(asked: argparse.Namespace) -> list[tuple[str, str, outputs.Kind]]:
    all_of_them = (
        ("--json", asked.json, outputs.COMPARISON),
        ("--markdown", asked.markdown, outputs.COMPARISON_PAGE),
    )
    return [(option, name, kind) for option, name, kind in all_of_them if name]


def _measure(session: repeated.Repeated, found: Comparison, stop: Stop) -> None:
    progress = Progress(found.rounds * len(VARIANTS))
    for turn, name in in_rounds(VARIANTS, found.rounds):
        variant = found.variant(name)
        if variant.failure:
            continue
        with progress.step(f"{name}, round {turn + 1}") as said:
            _run_variant(session, variant, turn, stop)
            if stop.number:
                said.append("ended early")
            elif variant.failure:
                said.append(variant.failure)
            else:
                said.append(f"{variant.seconds[turn]:.3f} s")
        if stop.number:
            found.ended_early = True
            return
        if variant.failure:
            progress.total -= found.rounds - turn - 1
            if name == PLAIN and variant.failure != OUT_OF_MEMORY:
                return


def _run_variant(session: repeated.Repeated, variant: Variant, turn: int, stop: Stop) -> None:
    """Runs a variant once, and stores the time or the failure in it."""
    plain = variant.name == PLAIN
    policy = None if plain else variant.name
    ran = session.once(f"{variant.name}-{turn + 1}", session.command, policy, plain, stop)
    if stop.number:
        return
    variant.failure = session.failed(ran)
    if not variant.failure:
        variant.seconds[turn] = session.seconds(ran) or 0.0
    elif ran.out_of_memory:
        variant.failure = OUT_OF_MEMORY
    else:
        variant.log = str(ran.log)


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
