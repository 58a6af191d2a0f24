"""The host of a simulated GPU: its memory, and flash behind it (docs/simulator.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pump.model.bounds import BLOCK_BYTES
from pump_lab.sim.program import Program, ProgramError

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True)
class Host:
    """A limit of host memory for blocks that leave the GPU, and flash behind it.

    flash_gbps: reading and writing, 10^9 bytes a second; None: without flash a program that
    needs more is refused. flash_us: latencies of both. writes_a_day: bytes that may be written to
    flash in a day, kept in the mean since the beginning; None: any. ahead: pump's policies say
    what goes to flash, and when (lab/simulate/sim_flash.c); False: what comes to a full host.
    """

    memory_bytes: int
    flash_gbps: tuple[float, float] | None = None
    flash_us: tuple[float, float] = (0.0, 0.0)
    writes_a_day: float | None = None
    ahead: bool = True

    @property
    def write_budget_gbps(self) -> float:
        """10^9 bytes a second that may be written; 0: any."""
        return (self.writes_a_day or 0.0) / DAY_SECONDS / 1e9

    def check(self, program: Program) -> None:
        """Raises ProgramError where the host is too small for the program: Unified Memory needs
        host memory for all blocks that may leave the GPU."""
        needed = program.mapped_peak_bytes
        if self.flash_gbps is None and needed > self.memory_bytes:
            raise ProgramError(
                f"{program.name} may need {needed / 2**30:.2f} GiB of host memory, but "
                f"has {self.memory_bytes / 2**30:.2f} GiB; raise --host-memory, or add "
                "--flash"
            )
        if self.memory_bytes < BLOCK_BYTES or min(self.flash_gbps or (1.0,)) <= 0:
            raise ProgramError("host memory and the rates of flash must be positive")
        if min(self.flash_us) < 0 or not (self.writes_a_day is None or self.writes_a_day > 0):
            raise ProgramError(
                "latencies of flash must be at least 0, and its writes a day above 0"
            )
