"""Switches policy and budget of this process's own job, and reads its numbers.

Covers the part of pump.control for one client with one device.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any


class SwitchError(Exception):
    """The job cannot be controlled; the text is one line with the reason."""


@dataclass(frozen=True)
class Figures:
    """Numbers of this client's device. The worker estimates resident, leaving and arriving bytes.
    Moved bytes and block uses count from the start of the job, overshoot from the last switch."""

    resident_bytes: int
    leaving_bytes: int
    arriving_bytes: int
    overshoot_bytes: int
    blocks_used: int
    blocks_hit: int
    blocks_late: int
    blocks_unseen: int
    blocks_no_room: int
    to_gpu_bytes: int
    to_host_bytes: int
    footprint_bytes: int

    def since(self, before: Figures) -> dict[str, int]:
        """Returns the differences, by name."""
        return {
            field.name: getattr(self, field.name) - getattr(before, field.name)
            for field in fields(self)
        }


class Switch:
    """Controls the job of this process. Raises SwitchError outside of a job."""

    def __init__(self) -> None:
        try:
            from pump.control import Control, ControlError
        except ImportError as error:
            raise SwitchError(f"pump.control cannot be imported: {error}") from None
        self._error = ControlError
        try:
            self._control = Control.of_job()
        except ControlError as error:
            raise SwitchError(str(error)) from None

    def to(self, policy: str, budget_bytes: int) -> None:
        """Sets the policy and the budget. Raises SwitchError."""
        try:
            self._control.set(policy=policy, budget_bytes=budget_bytes, client_pid=os.getpid())
        except self._error as error:
            raise SwitchError(str(error)) from None

    def total_bytes(self) -> int:
        """Returns the GPU's memory; as a budget this value means no limit."""
        return int(self._device(self._client()).total_bytes)

    def figures(self) -> Figures:
        """Returns the current numbers. Raises SwitchError."""
        client = self._client()
        device, shim = self._device(client), client.shim
        return Figures(
            resident_bytes=device.resident_bytes,
            leaving_bytes=device.leaving_bytes,
            arriving_bytes=device.arriving_bytes,
            overshoot_bytes=device.overshoot_bytes,
            blocks_used=device.blocks_used,
            blocks_hit=device.blocks_hit,
            blocks_late=device.blocks_late,
            blocks_unseen=device.blocks_unseen,
            blocks_no_room=device.blocks_no_room,
            to_gpu_bytes=shim["moved_to_gpu_bytes"],
            to_host_bytes=shim["moved_to_host_bytes"],
            footprint_bytes=shim["converted_bytes_peak"] + device.plain_bytes,
        )

    def _client(self) -> Any:
        try:
            found = self._control.state(client_pid=os.getpid())
        except self._error as error:
            raise SwitchError(str(error)) from None
        if not found or found[0].error:
            raise SwitchError(found[0].error if found else "pumpd does not know this process")
        return found[0]

    def _device(self, client: Any) -> Any:
        if not client.devices:
            raise SwitchError("pumpd has not seen this process use a GPU yet")
        return client.devices[0]
