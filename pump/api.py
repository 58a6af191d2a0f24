"""For programs and notebooks: the policy and budget of a region, counters, a summary.

    from pump import api

    with api.region(policy="planned", budget_bytes=8 << 30) as region:
        train()
    print(region.counters["moved_to_gpu_bytes"])
    api.summary()

It goes by the job's control socket (pump/control.py) and concerns this process alone. In a process
that pump does not serve a region changes nothing, so a program runs the same without pump. There
are no hints of pump's own: an early operation says what is used next (docs/start/notebooks.md).
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
    """What a region has done. served: whether pump serves this process. counters: their increase
    within the region, once it is left."""

    def __init__(self, served: bool) -> None:
        self.served = served
        self.counters: Mapping[str, int] = {}

    def __repr__(self) -> str:
        return f"<Region{'' if self.served else ', not served'}: {dict(self.counters)}>"


class Summary:
    """What pump has done for this process: one line as text, and in a notebook."""

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
        if used := done["blocks_used"]:
            parts.append(f"{100 * done['blocks_hit'] / used:.1f} % of {used} block uses found it")
        return "pump: " + "; ".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


def served() -> bool:
    """Whether this process has passed cuInit and a pumpd serves it by now. Raises ControlError
    where its pumpd does not answer."""
    return _state() is not None


def counters() -> dict[str, int]:
    """The counters of shim and worker since this process began (struct pump_shim_counters and
    pump_worker_counters of shim/include/pump_abi.h), by name; none where pump does not serve it.
    Raises ControlError."""
    state = _state()
    return {} if state is None else _counters(state)


def summary() -> Summary:
    """What pump has done for this process. As the last line of a notebook's cell it shows itself.
    Raises ControlError."""
    return Summary(_state())


@contextlib.contextmanager
def region(policy: str | None = None, budget_bytes: int | None = None) -> Iterator[Region]:
    """Run a block of the program under another policy or budget (of each device); what held before
    holds again afterwards. None: unchanged.

    Raises ControlError where pumpd refuses or does not answer. One region at a time: they nest, but
    threads share the process's policy.
    """
    with _control() as control:
        before = None if control is None else _own(control)
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
            after = _own(control)
            if after is not None:
                old, new = _counters(before), _counters(after)
                here.counters = {name: new[name] - old.get(name, 0) for name in new}
            if policy is not None:
                control.set(before.policy, client_pid=own)
            if budget_bytes is not None:
                for device in before.devices:
                    # The card's memory stands for what pump takes without a budget.
                    bytes_ = device.budget_bytes if device.emulated else device.total_bytes
                    control.set(None, bytes_, device.index, client_pid=own)


@contextlib.contextmanager
def _control() -> Iterator[Control | None]:
    """None where this process is part of no job."""
    try:
        control = Control.of_job()
    except ControlError:
        yield None
        return
    with control:
        yield control


def _state() -> ClientState | None:
    with _control() as control:
        return None if control is None else _own(control)


def _own(control: Control) -> ClientState | None:
    for client in control.state(client_pid=os.getpid()):
        if client.error is None:
            return client
    return None


def _counters(state: ClientState) -> dict[str, int]:
    return {**state.worker, **state.shim}
