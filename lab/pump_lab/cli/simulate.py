"""Implements pump simulate: replays a trace for another GPU memory or policy, without a GPU.
It also lists and writes device profiles."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pump.base import outputs, schemas
from pump.base.names import quoted
from pump.cli.support.lines import BadInputError, Once, save
from pump.config.settings import DEFAULTS
from pump.config.values import BadValueError, parse_size
from pump.measure.progress import Progress
from pump_lab.cli import device_profiles

if TYPE_CHECKING:
    from pump_lab.sim.host import Host
    from pump_lab.sim.named_policies import NamedPolicy
    from pump_lab.sim.report import Case

HELP = "simulate a recording with another GPU memory or policy, without a GPU"
EXAMPLES = (
    "pump simulate run.pump --sweep",
    "pump simulate run.pump --gpu-memory 24GiB --compare",
    "pump simulate --profiles",
    "pump simulate --profile-from probe.json --base a100-pcie4 --out mine.toml",
)

COMPARED = (*("naive", "naive+discard", "window", "window+discard", "planned", "planned+discard"),)
SWEEP_POLICIES = ("naive", DEFAULTS.policy)
TEXTS = (
    *("gpu_memory", "profile", "policy", "mapping", "host_memory", "flash", "flash_latency"),
    *("wake_ups", "json"),
    "svg",
)
TRACE_BYTES_MOST = 128 << 20
USES_MOST = 1 << 27
ITERATIONS_MOST = 100
"""Limit for a trace's iterations; after the first few all are alike."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument(
        "trace", metavar="TRACE", nargs="?", help="a recording of pump-run, or a JSON trace"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--gpu-memory", metavar="SIZE",
        help="memory of the simulated GPU, such as 24GiB (default: enough for the recording's "
        "budget; for a JSON trace, the memory of the profile)",
    )  # fmt: skip
    size.add_argument(
        "--oversubscription", type=float, metavar="X", help="peak of the trace / GPU memory"
    )
    parser.add_argument(
        "--profile", default="a100-pcie4", metavar="PROFILE",
        help="of the GPU, also in another host as a100-pcie4@desktop (default: a100-pcie4; see "
        "--profiles)",
    )  # fmt: skip
    parser.add_argument(
        "--policy", metavar="P", action=Once,
        help="such as naive, window or planned+discard; an unknown name lists all "
        f"(default: {DEFAULTS.policy}; for --sweep naive and {DEFAULTS.policy})",
    )  # fmt: skip
    parser.add_argument("--compare", action="store_true", help="compare several policies")
    parser.add_argument("--sweep", action="store_true", help="compute a curve over memory sizes")
    parser.add_argument("--svg", metavar="FILE", help="also draw the curve of --sweep to FILE")
    parser.add_argument("--json", metavar="FILE", help="write all numbers as JSON; -: stdout")
    _add_models(parser.add_argument_group("models of the machine"))
    device_profiles.add_options(parser)


def _add_models(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--mapping", metavar="M", help="JSON traces: caching (default) or unique addresses")
    add("--iterations", metavar="N", type=int, help="JSON traces: replay N times (default: 3)")
    add(
        "--queue-launches", type=int, default=1024, metavar="N",
        help="launches that may wait for the GPU, 1 to 1024 (default: 1024)",
    )  # fmt: skip
    add("--host-memory", metavar="SIZE", help="host memory for evicted blocks (default: enough)")
    add(
        "--flash", metavar="GBPS",
        help="add flash below --host-memory: rates of reads and writes, such as 3.2,3.2",
    )  # fmt: skip
    add(
        "--flash-latency", metavar="US",
        help="latencies of reads and writes in microseconds, such as 12,16 (default: none)",
    )  # fmt: skip
    add(
        "--flash-writes", type=float, metavar="TB",
        help="most TB (10^12 bytes) written to flash in a day, such as 20 (default: any)",
    )  # fmt: skip
    add(
        "--duplicates", action="store_true",
        help="simulate read duplication: clean blocks are evicted without a copy",
    )  # fmt: skip
    add(
        "--jitter", type=float, default=0.0, metavar="SHARE",
        help="vary the times of kernels and transfers at random by up to SHARE, such as 0.25",
    )  # fmt: skip
    add(
        "--wake-ups", metavar="NAME",
        help="how late pump's threads wake up, as recorded: idle, busy or FILE.toml (default: "
        "always 25 and 20 us)",
    )  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="seed of --jitter and --wake-ups")
    add(
        "--most-uses", type=int, metavar="N",
        help="simulate at most N uses of blocks, about 2 us and 110 bytes each (default: by the "
        "length of the trace)",
    )  # fmt: skip


def run(asked: argparse.Namespace) -> int:
    """Simulates and prints the numbers, or lists or writes profiles. Raises BadInputError."""
    if asked.profiles:
        device_profiles.show()
        return 0
    if asked.profile_from is not None:
        device_profiles.write(asked)
        return 0
    if asked.trace is None:
        raise BadInputError("no TRACE given; name a recording (pump-run --record run.pump ...)")
    from pump_lab.profiles import ProfileError
    from pump_lab.sim.program import ProgramError
    from pump_lab.sim.wakeups import WakeUpsError

    try:
        return _run(asked)
    except (ProgramError, ProfileError, WakeUpsError, BadValueError) as error:
        raise BadInputError(str(error)) from None


def _run(asked: argparse.Namespace) -> int:
    from pump_lab.sim import report, sweep

    _check(asked)
    case = _case(asked)
    chosen = _candidates(asked)
    if asked.sweep:
        progress = Progress(len(sweep.sizes(case)))
        found = sweep.over_memory(case, chosen, progress.step)
        text = sweep.as_text(found)
        if asked.svg:
            save(asked.svg, sweep.as_svg(found), outputs.CURVE, "--svg", sources=[asked.trace])
    else:
        found = report.compared(case, chosen)
        text = report.as_text(found)
    _write(asked, found, text)
    return 0


def _check(asked: argparse.Namespace) -> None:
    for name in ("trace", *TEXTS):
        if getattr(asked, name) == "":  # for example an unset shell variable
            option = f"--{name.replace('_', '-')}" if name in TEXTS else name.upper()
            raise BadInputError(f"{option} is empty; give it a value, or leave it out")
    if not 1 <= asked.queue_launches <= 1024:
        raise BadInputError(f"--queue-launches is {asked.queue_launches}; it must be 1 to 1024")
    if asked.oversubscription is not None and not 0.1 <= asked.oversubscription <= 100:
        raise BadInputError("--oversubscription must be from 0.1 to 100")
    if not 0 <= asked.jitter < 1:
        raise BadInputError(f"--jitter is {asked.jitter}; it must be at least 0 and less than 1")
    if not 0 <= asked.seed < 1 << 64:
        raise BadInputError(f"--seed is {asked.seed}; it must be at least 0 and below 2^64")
    if asked.iterations is not None and not 1 <= asked.iterations <= ITERATIONS_MOST:
        raise BadInputError(
            f"--iterations is {asked.iterations}; it must be 1 to {ITERATIONS_MOST}"
        )
    if asked.most_uses is not None and not 1 <= asked.most_uses <= USES_MOST:
        raise BadInputError(f"--most-uses is {asked.most_uses}; it must be 1 to {USES_MOST}")
    _check_files(asked)
    if asked.svg and not asked.sweep:
        raise BadInputError("--svg draws the curve of --sweep; add --sweep")
    if asked.sweep and (asked.gpu_memory or asked.oversubscription):
        raise BadInputError("--sweep chooses the memory sizes itself; leave --gpu-memory and "
                            "--oversubscription out")  # fmt: skip


def _check_files(asked: argparse.Namespace) -> None:
    """Checks the output files before the simulation, which may take minutes."""
    taken = {Path(asked.trace).resolve(): "TRACE"}
    for option, name in (("--json", asked.json), ("--svg", asked.svg)):
        if name is None or (name == "-" and option == "--json"):
            continue
        if name == "-":
            raise BadInputError("--svg: name a file; standard output is for the table, or --json -")
        other = taken.setdefault(Path(name).resolve(), option)
        if other != option and not name.startswith("/dev/"):
            raise BadInputError(f"{option} would write over {name}, which is {other}; name another")
        _check_writable(option, name, outputs.CURVE if option == "--svg" else outputs.SIMULATED)


def _check_writable(option: str, name: str, kind: outputs.Kind) -> None:
    try:
        outputs.may_replace(name, kind)
    except OSError as error:
        raise BadInputError(f"{option}: cannot write to {quoted(name)}: {error.strerror}") from None


def _case(asked: argparse.Namespace) -> Case:
    from pump_lab import profiles
    from pump_lab.sim import recording, tensors, wakeups
    from pump_lab.sim.program import touches_allowed
    from pump_lab.sim.report import Case, with_reserve
    from pump_lab.sim.simulation import Daemon, Jitter, Machine

    profile = profiles.load(asked.profile)
    data = _read(asked.trace)
    discarding = None
    if recording.is_recording(data):
        if asked.mapping or asked.iterations:
            raise BadInputError("--mapping and --iterations are for JSON traces; a recording has "
                                "its addresses and iterations")  # fmt: skip
        most = asked.most_uses or touches_allowed(len(data))
        program = recording.program(data, Path(asked.trace).name, most)
    else:
        most = asked.most_uses or touches_allowed(len(data), tensors.TOUCHES_PER_BYTE)
        trace = tensors.parse(data, asked.trace)
        how = asked.mapping or "caching", asked.iterations or tensors.ITERATIONS
        program = tensors.program(trace, *how, touches_most=most)
        discarding = tensors.program(trace, *how, discard=True, touches_most=most)
    memory_bytes = profile.values["device.memory_bytes"]
    assert isinstance(memory_bytes, int)
    if asked.gpu_memory:
        memory_bytes = _size("--gpu-memory", asked.gpu_memory)
    elif asked.oversubscription:
        memory_bytes = int(program.peak_bytes / asked.oversubscription)
    elif recorded := program.facts.get("recorded_budget_bytes"):
        enough = max(memory_bytes, 2 * program.peak_bytes)
        memory_bytes = with_reserve(min(int(recorded), enough))
    jitter = Jitter(asked.jitter, asked.seed) if asked.jitter else None
    late = wakeups.load(asked.wake_ups) if asked.wake_ups else None
    daemon = Daemon(wake_ups=late, seed=asked.seed)
    machine = Machine(
        profile, memory_bytes, asked.queue_launches, daemon,
        host=_host(asked), jitter=jitter, duplicates=asked.duplicates,
    )  # fmt: skip
    return Case(program, machine, discarding)


def _read(trace: str) -> bytes:
    from pump.base import inputs
    from pump.trace.info import opened

    try:
        with opened(trace) as (file, _):
            data = inputs.all_of(file, TRACE_BYTES_MOST + 1)
    except OSError as error:
        raise BadInputError(f"cannot read {trace}: {error.strerror}") from None
    if len(data) > TRACE_BYTES_MOST:
        raise BadInputError(
            f"{trace} is longer than {TRACE_BYTES_MOST >> 20} MiB; record a shorter run"
        )
    return data


def _size(option: str, text: str) -> int:
    try:
        return parse_size(text)
    except BadValueError as error:
        raise BadInputError(f"{option}: {error}") from None


def _host(asked: argparse.Namespace) -> Host | None:
    from pump_lab.sim.host import Host

    if not asked.flash and (asked.flash_latency or asked.flash_writes is not None):
        raise BadInputError("--flash-latency and --flash-writes need flash; add --flash GBPS")
    if not asked.host_memory:
        if asked.flash:
            raise BadInputError("--flash needs a limit of host memory; add --host-memory SIZE")
        return None
    memory_bytes = _size("--host-memory", asked.host_memory)
    if not asked.flash:
        return Host(memory_bytes)
    rates = _pair(asked.flash, 0.001, 1e5)
    if rates is None:
        raise BadInputError(
            f"--flash is '{asked.flash}'; write READ,WRITE in GB/s, such as 3.2,3.2"
        )
    latencies = _pair(asked.flash_latency or "0", 0, 1e6)
    if latencies is None:
        raise BadInputError(
            f"--flash-latency is '{asked.flash_latency}'; write READ,WRITE in us, such as 12,16"
        )
    writes = asked.flash_writes
    if writes is not None and not 0.001 <= writes <= 1e6:
        raise BadInputError(f"--flash-writes is {writes:g}; write TB a day, such as 20")
    return Host(memory_bytes, rates, latencies, None if writes is None else writes * 1e12)


def _pair(text: str, least: float, most: float) -> tuple[float, float] | None:
    """Parses READ,WRITE, or one number for both; returns None for any other text."""
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        return None
    if not 1 <= len(values) <= 2 or not all(least <= value <= most for value in values):
        return None
    return values[0], values[-1]


def _candidates(asked: argparse.Namespace) -> list[NamedPolicy]:
    from pump_lab.sim.named_policies import by_name

    names = COMPARED if asked.compare else SWEEP_POLICIES if asked.sweep else (DEFAULTS.policy,)
    if asked.policy:
        names = (*names, asked.policy) if asked.compare else (asked.policy,)
    return [by_name(name) for name in dict.fromkeys(names)]


def _write(asked: argparse.Namespace, found: dict[str, Any], text: str) -> None:
    as_json = schemas.dump("simulate", found)
    print(as_json if asked.json == "-" else text)
    if asked.json and asked.json != "-":
        save(asked.json, f"{as_json}\n", outputs.SIMULATED, "--json", sources=[asked.trace])
