"""Controls pump from within a program: policy, budget, counters, summary.

    from pump import api

    with api.region(policy="planned", budget_bytes=8 << 30) as region:
        train()
    print(region.counters["moved_to_gpu_bytes"])
    api.summary()

The calls affect only this process. They use the job's control socket (pump/control.py). Without
pump a region changes nothing, so the program still runs. pump has no hint for prefetching: to
prefetch data, read it early with an operation (docs/start/notebooks.md).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from html import escape

from pump.control import ClientState, Control, ControlError

__all__ = ["ControlError", "Region", "Summary", "counters", "region", "served", "summary"]

MIB = 1 << 20


class Region:
    """The result of `region`. served: whether pump serves this process. counters: the increase of
    each counter within the region; empty until the region has ended."""

    def __init__(self, served: bool) -> None:
        self.served = served
        self.counters: Mapping[str, int] = {}

    def __repr__(self) -> str:
        return f"<Region{'' if self.served else ', not served'}: {dict(self.counters)}>"


class Summary:
    """One line about pump's work for this process: text, or HTML in a notebook."""

    def __init__(self, state: ClientState | None) -> None:
        self.state = state

    def __str__(self) -> str:
        if self.state is None:
            return "pump does not serve this process"
        done = _counters(self.state)
        parts = [f"policy {self.state.policy}"]
        for device in self.state.devices:
            parts.append(
                f"GPU {device.index}: {device.allocated_bytes // MIB} MiB allocated, "
                f"{device.resident_bytes // MIB} resident, "
                f"budget {device.budget_bytes // MIB}"
            )
        moved = done["moved_to_gpu_bytes"] // MIB, done["moved_to_host_bytes"] // MIB
        parts.append(f"moved {moved[0]} MiB to the GPU, {moved[1]} MiB back")
        if in_place := done["in_place_bytes_peak"] // MIB:
            parts.append(f"read up to {in_place} MiB in place on the host")
        if used := done["blocks_used"]:
            parts.append(f"{100 * done['blocks_hit'] / used:.1f} % of {used} block uses found it")
        return "pump: " + "; ".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


def served() -> bool:
    """Returns whether pump serves this process: cuInit has returned, and a pumpd is connected.
    Raises ControlError if pumpd does not answer."""
    return _state() is not None


def counters() -> dict[str, int]:
    """Returns the counters of the shim and of the worker by name; {} if pump does not serve this
    process. The shim counts from the start of the process, the worker from its own start. The names
    are the fields of struct pump_shim_counters and struct pump_worker_counters
    (shim/include/pump_abi.h). Raises ControlError if pumpd does not answer."""
    state = _state()
    return {} if state is None else _counters(state)


def summary() -> Summary:
    """Returns a summary of pump's work for this process. A notebook shows the summary if the call
    is the last line of a cell. Raises ControlError if pumpd does not answer."""
    return Summary(_state())


@contextlib.contextmanager
def region(policy: str | None = None, budget_bytes: int | None = None) -> Iterator[Region]:
    """Runs a block of the program under another policy or budget, then restores the previous ones.

    `policy`: a name as in `pump-run --policy`; None: unchanged. `budget_bytes`: the budget of each
    device; None: unchanged. Raises ControlError if pumpd refuses the change or does not answer.
    Regions nest, but use them in only one thread at a time: all threads share policy and budget.
    """
    with _control() as control:
        before = None if control is None else _own_client(control)
        if control is None or before is None:
            yield Region(served=False)
            return
        own = os.getpid()
        here = Region(served=True)
        if policy is not None or budget_bytes is not None:
            control.set(policy, budget_bytes, client_pid=own)
        try:
            yield here
        finally:
            after = _own_client(control)
            if after is not None:
                old, new = _counters(before), _counters(after)
                here.counters = {name: new[name] - old.get(name, 0) for name in new}
            if policy is not None:
                control.set(before.policy, client_pid=own)
            if budget_bytes is not None:
                for device in before.devices:
                    # The GPU's total memory means "no budget".
                    bytes_ = device.budget_bytes if device.emulated else device.total_bytes
                    control.set(None, bytes_, device.index, client_pid=own)


@contextlib.contextmanager
def _control() -> Iterator[Control | None]:
    """Yields a connection to the job's pumpd; None if this process is not part of a job."""
    try:
        control = Control.of_job()
    except ControlError:
        yield None
        return
    with control:
        yield control


def _state() -> ClientState | None:
    with _control() as control:
        return None if control is None else _own_client(control)


def _own_client(control: Control) -> ClientState | None:
    for client in control.state(client_pid=os.getpid()):
        if client.error is None:
            return client
    return None


def _counters(state: ClientState) -> dict[str, int]:
    return {**state.worker, **state.shim}
