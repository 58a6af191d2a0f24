"""The host of a simulated GPU: its memory, and a flash tier (docs/simulator.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pump.model.bounds import BLOCK_BYTES
from pump_lab.sim.program import Program, ProgramError

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True)
class Host:
    """Limits the host memory for evicted blocks, with an optional flash tier.

    `flash_gbps`: Rates of reading and writing, in 10^9 bytes a second. None: a program that needs
    more than the host memory is refused. `flash_us`: Latencies of reading and writing.
    `writes_a_day`: Bytes that may be written to flash in a day, as a mean since the beginning;
    None: no limit. `ahead`: True: pump's policies decide what goes to flash, and when
    (lab/simulate/sim_flash.c). False: blocks go to flash when they arrive at a full host.
    """

    memory_bytes: int
    flash_gbps: tuple[float, float] | None = None
    flash_us: tuple[float, float] = (0.0, 0.0)
    writes_a_day: float | None = None
    ahead: bool = True

    @property
    def write_budget_gbps(self) -> float:
        """Returns the write limit in 10^9 bytes a second; 0: no limit."""
        return (self.writes_a_day or 0.0) / DAY_SECONDS / 1e9

    def check(self, program: Program) -> None:
        """Raises ProgramError if the host is too small for the program. Unified Memory needs host
        memory for all blocks that may be evicted."""
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
