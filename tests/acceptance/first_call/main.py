"""scripts/first_call: the first minutes on a GPU, as one or two commands.

Exit status: 0 whatever the steps found; 2 bad arguments; 3 no GPU to run on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from probe.transfer import is_gvisor

from acceptance import machine, processes, results
from acceptance.first_call import here, steps
from acceptance.first_call.call import ARCHIVE, SUMMARY, Call, EarlierError
from acceptance.first_call.steps import GIB

ROOT = Path(__file__).resolve().parents[3]
WORK = ROOT / "build" / "card"
PROGRAM = "scripts/first_call"
SECONDS = {"A": 225.0, "B": 440.0}
"""Time limits for two calls within the 15 minutes of a lent machine, which include its starts."""
EXIT_USAGE, EXIT_NOTHING = 2, 3
WARM_UP_S = 30.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the options; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Ask a card what decides about pump, in order of worth: docs/first-card.md. "
        "Each step is bounded, and results are packed after each one.",
    )
    add = parser.add_argument
    add("call", nargs="?", choices=sorted(SECONDS),
        help="A: is it right, and what decides; B: figures and verdicts")  # fmt: skip
    add("--here", action="store_true",
        help="on a computer of your own: both, in the memory that others leave")  # fmt: skip
    add("--adopt", type=Path, metavar="ARCHIVE",
        help="make profile, pages and a list of settings from results.tar.gz")  # fmt: skip
    add("--seconds", type=float, metavar="N", help="end after so long (A: 225, B: 440)")
    add("--from", dest="earlier", type=Path, metavar="ARCHIVE", help="go on from earlier results")
    add("--virtual", default="", metavar="PROFILE", help="a rehearsal on the virtual GPU")
    add("--quick", action="store_true", help="smallest sizes: shows that it works, no figures")
    add("--out", type=Path, metavar="DIR", help="results (default: $OUT, else build/card/out)")
    add("--program", default=sys.executable, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if (options.call is not None) + options.here + (options.adopt is not None) != 1:
        parser.error("name one of A, B, --here and --adopt ARCHIVE")
    if options.seconds is not None and not 20 <= options.seconds <= 3600:
        parser.error("--seconds must lie between 20 and 3600")
    if options.out is not None and options.out.resolve() == WORK.resolve():
        parser.error(f"--out must not be {WORK}, which has the unpacked results")
    for name in ("earlier", "adopt"):
        path = getattr(options, name)
        if path is not None and not path.is_file():
            parser.error(f"there is no file {path}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parse(given)
    if options.adopt:
        from acceptance.first_call import adopt

        return adopt.main(options.adopt, ROOT)
    if not options.virtual and not machine.driver_loads():
        print(f"{PROGRAM}: no NVIDIA driver here (libcuda.so.1); --virtual h200-pcie5 --quick "
              "rehearses it", file=sys.stderr)  # fmt: skip
        return EXIT_NOTHING
    if options.here:
        here.use_a_python_that_has_all(ROOT, given, PROGRAM)
    signal.signal(signal.SIGTERM, _interrupt)
    processes.adopt_orphans()
    call = prepare(options)
    try:
        if options.here and (why := here.plan(call)):
            print(f"{PROGRAM}: {why}", file=sys.stderr)
            return EXIT_NOTHING
        run(call, chosen(options))
    except KeyboardInterrupt:
        call.say("interrupted; what was found until then is packed")
        call.pack()
    finally:
        call.close()
    print(f"read {call.out / SUMMARY}; send or adopt {call.out / ARCHIVE}")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def prepare(options: argparse.Namespace) -> Call:
    """Returns the call, with an empty folder or the results of an earlier call."""
    work = WORK
    earlier = options.earlier.read_bytes() if options.earlier else b""  # it may be below `work`
    out = options.out or Path(os.environ.get("OUT") or work / "out")
    if work.resolve() not in out.resolve().parents:
        shutil.rmtree(work, ignore_errors=True)
    for path in work.glob("*"):  # keeps earlier results in `out` until new ones replace them
        if path.resolve() != out.resolve():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    work.mkdir(parents=True, exist_ok=True)
    commit, changed = results.commit_of(ROOT)
    call = Call(
        root=ROOT,
        work=work,
        out=out.absolute(),
        seconds=options.seconds or sum(SECONDS.values()),
        managed_bytes=GIB,
        program=options.program,
        virtual=options.virtual,
        quick=options.quick,
        gvisor=is_gvisor(platform.release(), platform.version()),
        commit=commit + (", changed" if changed and commit != "unknown" else ""),
    )
    if options.call:
        call.seconds = options.seconds or SECONDS[options.call]
    if call.gvisor:
        call.say("gVisor: questions whose answers hold there alone are left out")
    if options.earlier:
        try:
            call.take_over(str(options.earlier), earlier)
        except EarlierError as error:
            call.say(f"{error}; begins anew")
    return call


def chosen(options: argparse.Namespace) -> steps.Steps:
    """Returns the steps of the call; --here runs both A and B."""
    if options.here:
        return (*steps.A, *steps.B[len(steps.BASE) :])
    return steps.A if options.call == "A" else steps.B


def run(call: Call, wanted: steps.Steps) -> None:
    """Runs the steps while background processes keep the driver loaded and read PyTorch."""
    background = [_background(call, "keeper.json", KEEPER, call.python)]
    warm = None if call.virtual else _background(call, "warm-up.log", WARM_UP, call.program)
    background += [warm] if warm else []
    try:
        for name, step in wanted:
            if warm and name == "proof":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    warm.wait(min(WARM_UP_S, max(0.0, call.left())))
            call.step(name, step)
    finally:
        for child in background:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


KEEPER = """
import sys, time, pynvml
began = time.monotonic()
pynvml.nvmlInit()
pynvml.nvmlDeviceGetHandleByIndex(0)
print('{"first_init_s": %.3f}' % (time.monotonic() - began), flush=True)
sys.stdin.read()
"""
"""Keeps the driver loaded. Without persistence mode the kernel module shuts the GPU down when its
last client closes it (kernel-open/nvidia/nv.c, nv_close_device), and each of a hundred processes
would wait for the next start."""
WARM_UP = "import torch, triton\na = torch.zeros(64, 64, device='cuda')\n(a @ a).sum().item()"
"""Reads PyTorch's libraries from a cold disk before the first step that imports them."""


def _background(call: Call, log: str, code: str, python: str) -> subprocess.Popen[bytes]:
    """Starts Python code in the background; its output goes to the file `log`."""
    with (call.work / log).open("wb") as out:
        return subprocess.Popen(
            [python, "-c", code],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env=call.environment({}),
            start_new_session=True,
        )
