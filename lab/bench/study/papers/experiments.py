"""The experiments of papers: published, reproduced in our simulator, with pump, and the bound.

DESIGN
  An experiment has four cells. A cell is a value and the command that makes it, or the reason why
  there is no value. All values except the published ones are simulated: the same command gives the
  same values. Unless the experiment differs, traces, machine and rates come from suites/sim.py
  (STUDY), iterations and floors from sim_planned.py.

  `published`      The paper's own value, on its own machine and networks.
  `reproduction`   The paper's method in our simulator (docs/papers.md).
  `pump`           The policy planned, with freed memory discarded.
  `bound`          The value of the floor of parts (pump_lab.floor.lp_floor).
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Row, Tools
from study import sim_g10, sim_planned
from study.papers import autoswap, placement

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.program import Program
    from pump_lab.sim.report import Case
    from pump_lab.sim.simulation import Machine
    from pump_lab.sim.tensors import TensorTrace

RATIOS = 1.5, 2.0
SHORT_QUEUE = 50
JITTER_SHARE = 0.25
JITTER_RATIO = 2.0
PLANNED = "planned+discard"
SHARE_MOST = 1 + autoswap.OVERHEAD_MOST
PUBLISHED = Path(__file__).parents[2] / "data" / "g10" / "published"


@dataclass(frozen=True)
class Cell:
    """`value`: None if there is none; then `text` is the reason. `text`: for a value, the words
    before it. `by_trace`: the values that `value` is the mean of."""

    value: float | None
    text: str = ""
    by_trace: dict[str, float] = field(default_factory=dict)


NO_NUMBER = Cell(None, "no number")
"""The paper has none for these networks, or pump has no such experiment."""


@dataclass(frozen=True)
class Experiment:
    """One row of the table. `name`: part of its rows' names. `unit`: "x", "%" or "GiB"."""

    name: str
    paper: str
    text: str
    unit: str
    published: Cell
    reproduction: Cell
    pump: Cell
    bound: Cell

    def rows(self, command: str) -> Iterator[Row]:
        """Yields a row for each cell."""
        for column in ("published", "reproduction", "pump", "bound"):
            cell: Cell = getattr(self, column)
            made = cell.value is not None and column != "published"
            facts = {"by_trace": cell.by_trace} if cell.by_trace else {}
            yield Row(
                f"papers.{self.name}.{column}",
                cell.value,
                self.unit,
                paper=self.paper,
                experiment=self.text,
                column=column,
                text=cell.text,
                command=command if made else None,
                simulated=made,
                **facts,
            )


def mean(by_trace: dict[str, float], *, geometric: bool = True) -> Cell:
    """Returns the mean over traces, or the reason if there are none."""
    if not by_trace:
        return Cell(None, "no trace")
    values = by_trace.values()
    if geometric:
        return Cell(math.exp(sum(map(math.log, values)) / len(values)), by_trace=by_trace)
    return Cell(sum(values) / len(values), by_trace=by_trace)


class Bench:
    """The traces with marginal durations under the study's constants. `whole`: includes more seeds,
    AutoSwap's choices by all of its scores, and G10's own networks, which take minutes each."""

    def __init__(self, traces: Sequence[TensorTrace], profile: Profile, *, whole: bool) -> None:
        self.traces, self.profile, self.whole = traces, profile, whole
        self.named = {trace.name: trace for trace in traces}
        self.case = cache(self._case)
        self.seconds = cache(self._seconds)
        self.floor = cache(self._floor)

    def _case(self, trace: str) -> Case:
        return sim_planned.case_of(self.named[trace], self.profile)

    def at(self, trace: str, ratio: float) -> Case:
        case = self.case(trace)
        return case.with_memory(int(case.program.peak_bytes / ratio))

    def _seconds(self, trace: str, ratio: float, policy: str, **changes: float) -> float:
        """Returns the seconds of the third iteration. `changes`: fields of the machine."""
        case = self.at(trace, ratio)
        changed = replace(case, machine=replace(case.machine, **changes))
        return sim_planned.steady(changed, policy).seconds

    def _floor(self, trace: str, ratio: float) -> float:
        from pump_lab.sim import report

        found = report.floor_of_parts(self.at(trace, ratio))
        assert found is not None, "scripts/bench installs scipy"
        return found

    def by_trace(self, value: Callable[[str], float]) -> dict[str, float]:
        return {trace.name: value(trace.name) for trace in self.traces}


# ---- paged without a plan ------------------------------------------------------------------


def speedups(
    bench: Bench, paper: str, published: Cell, *, policy: str, queue: int
) -> Iterator[Experiment]:
    """Yields time of naive Unified Memory / time, at each size."""
    for ratio in RATIOS:

        def naive_over(seconds: Callable[[str], float], ratio: float = ratio) -> Cell:
            return mean(bench.by_trace(lambda one: bench.seconds(one, ratio, "naive")
                                       / seconds(one)))  # fmt: skip

        yield Experiment(
            f"{paper.lower()}.speedup_{round(ratio * 10)}",
            paper,
            f"speed-up over naive Unified Memory, footprint / memory {ratio:g}",
            "x",
            published,
            naive_over(lambda one, r=ratio: bench.seconds(one, r, policy, queue_operations=queue)),
            naive_over(lambda one, r=ratio: bench.seconds(one, r, PLANNED)),
            naive_over(lambda one, r=ratio: bench.floor(one, r)),
        )


def pump_paper(bench: Bench) -> Iterator[Experiment]:
    """Yields PUMP's experiments: a window of about 50 launches, the driver's eviction."""
    about = Cell(2.0, "about")
    yield from speedups(bench, "PUMP", about, policy="unbounded", queue=SHORT_QUEUE)


def deepum(bench: Bench) -> Iterator[Experiment]:
    """Yields DeepUM's experiments: the learned chain of kernels."""
    about = Cell(3.0, "about")
    yield from speedups(bench, "DeepUM", about, policy="correlation", queue=1024)


# ---- plans for less memory -----------------------------------------------------------------


def reductions(bench: Bench) -> tuple[dict[str, dict[str, float]], Cell, Cell]:
    """Returns the percent of the peak that can be spared at OVERHEAD_MOST. The results are by
    method and trace in the method's own accounting, for planned, and for the bound."""
    from study import greedy, studied_policies

    from pump_lab.sim import tensors

    rates = studied_policies.link_rates(bench.profile)
    found: dict[str, dict[str, float]] = {}
    for trace in bench.traces:
        job = autoswap.job_of(greedy.iteration_of(tensors.program(trace, "unique")), *rates)
        shares = autoswap.Search(job.straddling()).by_weights()
        shares["largest"] = autoswap.Search(job).least(largest_of(job))
        for method, share in shares.items():
            found.setdefault(method, {})[trace.name] = 100 * (1 - share)

    planned = least_memories(bench, lambda one, ratio: bench.seconds(one, ratio, PLANNED))
    return found, planned, least_memories(bench, bench.floor)


def largest_of(job: autoswap.Job) -> autoswap.Choose:
    """Returns TENSILE's choice for a limit."""
    return lambda limit: autoswap.largest_first(job, limit)


def least_memories(bench: Bench, seconds: Callable[[str, float], float]) -> Cell:
    """Returns the percent of the peak that can be spared, as the mean over traces. A GPU with the
    rest takes at most SHARE_MOST of the time with memory for everything."""
    from pump_lab.sim import report

    def memory_spared_percent(trace: str) -> float:
        alone = report.unlimited(bench.case(trace)).stretches[sim_planned.MEASURED].seconds
        share = autoswap.bisected(lambda share: seconds(trace, 1 / share) <= SHARE_MOST * alone)
        return 100 * (1 - share)

    return mean(bench.by_trace(memory_spared_percent), geometric=False)


def swapping(bench: Bench, only: Iterable[str]) -> Iterator[Experiment]:
    """Yields AutoSwap's and TENSILE's experiments: the same transfers, other choices."""
    found, planned, bound = reductions(bench)
    text = "peak memory spared"
    if "autoswap" in only:
        for method in (autoswap.SEARCH, *autoswap.SCORES):
            cell = mean(found[method], geometric=False)
            name = f"autoswap.{method}"
            own = f"{text}: {method}, own accounting"
            theirs = Cell(34.2, "up to") if method == autoswap.SEARCH else NO_NUMBER
            yield Experiment(name, "AutoSwap", own, "%", theirs, cell, planned, bound)
        bare = least_memories(
            bench, lambda one, r: bench.seconds(one, r, PLANNED, reserve_percent=0)
        )
        name, own = "autoswap.no_reserve", f"{text}: search; pump without reserve"
        cell = mean(found[autoswap.SEARCH], geometric=False)
        yield Experiment(name, "AutoSwap", own, "%", NO_NUMBER, cell, bare, bound)
        for score in (autoswap.SEARCH, *autoswap.SCORES) if bench.whole else ("doa",):
            policy = f"autoswap-{score}"
            carried = least_memories(bench, lambda one, r, p=policy: bench.seconds(one, r, p))
            yield Experiment(
                f"autoswap.carried_{score}",
                "AutoSwap",
                f"{text}: {score}, by pump's executors",
                "%",
                NO_NUMBER,
                carried,
                planned,
                bound,
            )
    if "tensile" in only:
        yield Experiment(
            "tensile.one_job",
            "TENSILE",
            f"{text}: one job, largest tensor of the peak first, own accounting",
            "%",
            NO_NUMBER,
            mean(found["largest"], geometric=False),
            planned,
            bound,
        )


# ---- placement ----------------------------------------------------------------------------


def smartpool(_bench: Bench) -> Iterator[Experiment]:
    """Yields SmartPool's experiments: bytes against PyTorch's allocator and the requests."""
    spared: dict[str, dict[str, float]] = {}
    over: dict[str, dict[str, float]] = {}
    for path in sorted(placement.TRAFFIC.glob("*.txt.xz")):
        name = path.name.partition(".")[0]
        found = placement.recorded(path)
        items = placement.last_iteration(found)
        pool = placement.pool_bytes(found, Tools())
        needs = {
            "offline": placement.height(items, placement.placed(items)) / placement.load(items),
            "best fit": placement.best_fit(found) / found.peak_bytes(),
            "pool": pool.placed / found.peak_bytes(),
            "most": pool.most / found.peak_bytes(),
        }
        for method, share in needs.items():
            over.setdefault(method, {})[name] = share
        if found.reserved_bytes:
            theirs = found.reserved_bytes / found.peak_bytes()
            over.setdefault("PyTorch", {})[name] = theirs
            for method, share in {**needs, "load": 1.0}.items():
                spared.setdefault(method, {})[name] = 100 * (1 - share / theirs)
    percents = {name: mean(values, geometric=False) for name, values in spared.items()}
    yield Experiment(
        "smartpool.spared",
        "SmartPool",
        "memory spared against the framework's own allocator (recorded PyTorch)",
        "%",
        Cell(13.3, "up to"),
        percents["offline"],
        percents["pool"],
        percents["load"],
    )
    texts = {
        "offline": "placed by lifetimes",
        "best fit": "best fit as requests come",
        "PyTorch": "PyTorch's caching allocator",
        "most": "pump's pool before it knows the cycle",
    }
    for method, text in texts.items():
        yield Experiment(
            f"smartpool.{method.lower().replace(' ', '_')}",
            "SmartPool",
            f"reserved / peak requested: {text}",
            "x",
            NO_NUMBER,
            mean(over[method]),
            mean(over["pool"]),
            Cell(1.0),
        )


# ---- G10, TURNIP, MSched -------------------------------------------------------------------


def g10(bench: Bench) -> Iterator[Experiment]:
    """Yields G10's own networks on its artifact's machine: traces with published durations."""
    from study.papers import artifact

    shares: dict[str, float] = {}
    published: dict[str, float] = {}
    missing = Cell(None, "takes minutes: --whole")
    for name, theirs in sim_g10.PUBLISHED.items():
        short = name.replace("_b", " batch ").replace("_", " ")
        lower = name.lower()
        published[name] = 100 * theirs.ideal / theirs.scheduled
        cells = dict.fromkeys(("scheduled", "uvm", "flash", "host", "pump", "bound"), missing)
        if bench.whole:
            file = PUBLISHED / f"{name}.json.xz"
            trace = artifact.read(lzma.decompress(file.read_bytes()))
            found = artifact.scheduled(trace)[1]
            naive = artifact.unified_memory(trace)[theirs.uvm_iteration]
            shares[name] = 100 * trace.seconds / found.seconds
            values = {
                "scheduled": shares[name],
                "uvm": naive.seconds / trace.seconds,
                "flash": naive.from_flash + naive.to_flash,
                "host": naive.from_host + naive.to_host,
            }
            cells = {one: Cell(value) for one, value in values.items()}
            cells |= g10_pump(file)
        text = f"{short}: relative speed"
        yield Experiment(
            f"g10.{lower}", "G10", text, "%",
            Cell(float(f"{published[name]:.4g}")),
            cells["scheduled"], cells["pump"], cells["bound"],
        )  # fmt: skip
        gib = [pages * 4096 / 2**30 for pages in theirs.uvm_pages]
        for part, text, unit, value in (
            ("uvm", "relative time", "x", theirs.uvm / theirs.ideal),
            ("flash", "GiB from and to flash", "GiB", gib[0] + gib[1]),
            ("host", "GiB from and to the host", "GiB", gib[2] + gib[3]),
        ):
            row, cell = f"g10.{lower}_{part}", Cell(float(f"{value:.4g}"))
            full = f"{short}, the artifact's Unified Memory: {text}"
            yield Experiment(row, "G10", full, unit, cell, cells[part], NO_NUMBER, NO_NUMBER)
    theirs_all = Cell(float(f"{mean(published).value:.3g}"))
    ours = mean(shares) if bench.whole else missing
    text = "relative speed, geometric mean of the five"
    yield Experiment("g10.mean", "G10", text, "%", theirs_all, ours, NO_NUMBER, NO_NUMBER)


def g10_pump(file: Path) -> dict[str, Cell]:
    """Returns planned and the floor on such a machine."""
    from study import studied_policies

    from pump_lab import profiles
    from pump_lab.sim import report, tensors

    profile = profiles.load(sim_g10.PROFILE).changed(sim_g10.SETTINGS)
    trace = tensors.parse(file.read_bytes(), file.name)
    case = sim_planned.case_of(trace, profile)
    machine = sim_g10.machine_of(profile)
    case = replace(case, machine=machine)
    candidate = studied_policies.by_name(PLANNED)
    program = case.of(candidate)
    assert program is not None
    alone = report.unlimited(case).steady.seconds
    found = studied_policies.simulate(candidate, program, machine).steady.seconds
    floor = report.floor_of_parts(case)
    assert floor is not None, "scripts/bench installs scipy"
    return {"pump": Cell(100 * alone / found), "bound": Cell(100 * alone / floor)}


def turnip(bench: Bench) -> Iterator[Experiment]:
    """Yields TURNIP's experiment: fixed order of transfers / event order, with varying times."""
    from study import studied_policies

    from pump_lab.sim import report, tensors
    from pump_lab.sim.simulation import Jitter, Machine

    found: dict[str, dict[str, float]] = {}
    for trace in bench.traces:
        programs = {
            name: tensors.program(trace, iterations=4, discard=True)
            for name in ("window+discard", PLANNED)
        }
        plain = tensors.program(trace, iterations=4)
        calm = Machine(bench.profile, int(plain.peak_bytes / JITTER_RATIO))
        for seed in range(5 if bench.whole else 1):
            jitter = Jitter(JITTER_SHARE, seed)
            machine = replace(calm, jitter=jitter)
            # The floor for exactly the durations of the measured iteration.
            case = report.Case(plain, calm, jitter.of(programs[PLANNED]))
            floor = report.floor_of_parts(case)
            assert floor is not None

            def seconds(name: str, dispatch: str, machine: Machine = machine,
                        programs: dict[str, Program] = programs) -> float:  # fmt: skip
                candidate = studied_policies.by_name(name)
                run = studied_policies.simulate
                return run(candidate, programs[name], machine, dispatch=dispatch).steady.seconds

            fixed = seconds("window+discard", "fixed")
            others = {
                "window": seconds("window+discard", "event"),
                "planned": seconds(PLANNED, "event"),
                "floor": floor,
            }
            for name, other in others.items():
                found.setdefault(name, {})[f"{trace.name}, seed {seed}"] = fixed / other
    yield Experiment(
        "turnip.fixed_over_event",
        "TURNIP",
        f"time in a fixed order / event-driven time, {JITTER_SHARE:.0%} jitter, "
        f"footprint / memory {JITTER_RATIO:g}",
        "x",
        NO_NUMBER,
        *(mean(found[name]) for name in ("window", "planned", "floor")),
    )


def msched(_bench: Bench) -> Iterator[Experiment]:
    """Yields MSched's experiment, which has no value without a GPU."""
    gpu = Cell(None, "needs a GPU: `docs/first-card.md`")
    virtual = Cell(None, "virtual GPU: `scripts/bench shared -- --only together`")
    bound = Cell(None, "not simulated")
    text = "several jobs on one GPU: speed-up over demand paging"
    yield Experiment("msched.jobs", "MSched", text, "x", Cell(11.0, "up to"), gpu, virtual, bound)
