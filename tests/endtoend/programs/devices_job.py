"""Runs the repeating job of job.py on each of two devices.

Usage: devices_job.py HOW ROUNDS [--other-round=N]. `alternating` issues to both devices in turn
from one thread, `threads` uses one thread per device. In round N the second device runs other
steps. Prints "running", waits for a line, prints "other" after round N (`alternating`), and at the
end the sha256 of each device.
"""

from __future__ import annotations

import argparse
import functools
import sys
import threading
from itertools import chain

from job import Program, left_by, plan

DEVICES = 2
BUFFERS, MIB, STEPS = 24, 4, 48
SYNC_EVERY = 8

Steps = list[tuple[int, int, int]]


def steps_of(device: int, rounds: int, other_round: int | None) -> list[Steps]:
    """Returns the steps of each round."""
    usual = plan(BUFFERS, STEPS, 11 + device)
    found = [usual] * rounds
    if device == 1 and other_round is not None:
        found[other_round] = plan(BUFFERS, STEPS, 99)
    return found


@functools.cache
def expected(rounds: int, other_round: int | None = None) -> list[str]:
    """Returns the lines that the job must print after "running"."""
    return [
        left_by(BUFFERS, MIB, list(chain.from_iterable(steps_of(device, rounds, other_round))))
        for device in range(DEVICES)
    ]


def step(program: Program, number: int, which: tuple[int, int, int]) -> None:
    program.mix(*which)
    if number % SYNC_EVERY == 0:
        program.synchronise()


def alternate(programs: list[Program], work: list[list[Steps]], other_round: int | None) -> None:
    for turn, rounds in enumerate(zip(*work, strict=True)):
        for number, both in enumerate(zip(*rounds, strict=True)):
            for program, which in zip(programs, both, strict=True):
                program.enter()
                step(program, number, which)
        if turn == other_round:
            print("other", flush=True)


def in_thread(program: Program, work: list[Steps]) -> None:
    program.enter()
    for steps in work:
        for number, which in enumerate(steps):
            step(program, number, which)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("alternating", "threads"))
    parser.add_argument("rounds", type=int)
    parser.add_argument("--other-round", type=int)
    options = parser.parse_args()
    shape = argparse.Namespace(buffers=BUFFERS, mib=MIB, managed=False, load_every=0)
    programs = [Program(shape, device) for device in range(DEVICES)]
    work = [steps_of(device, options.rounds, options.other_round) for device in range(DEVICES)]
    print("running", flush=True)
    sys.stdin.readline()
    if options.how == "alternating":
        alternate(programs, work, options.other_round)
    else:
        threads = [
            threading.Thread(target=in_thread, args=pair)
            for pair in zip(programs, work, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for program in programs:
        program.enter()
        print(program.digest(), flush=True)


if __name__ == "__main__":
    main()
