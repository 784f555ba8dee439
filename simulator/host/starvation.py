"""The demand of a CPU's vector units against the bandwidth they get, and the data reuse that makes up for it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.devices.cpu.cpu import Cpu
from simulator.units import format_bandwidth


@dataclass(frozen=True, slots=True)
class Starvation:
    """The demand of the cores, one vector register per cycle each, and the bandwidth they get."""

    cores: int
    wanted_Bps: float
    given_Bps: float

    @property
    def reuse(self) -> float:
        """Uses of each byte, while it is in a cache or a register, that keep the cores from waiting."""
        return max(1.0, self.wanted_Bps / self.given_Bps)

    def sentence(self, cpu: Cpu) -> str:
        """Return a sentence that says so."""
        head = (
            f"{self.cores} cores that load a register of {cpu.vector_bits} bits a cycle want "
            f"{format_bandwidth(self.wanted_Bps, 3)} and get {format_bandwidth(self.given_Bps, 3)}"
        )
        if self.reuse <= 1.0:
            return f"{head}: they are fed"
        return f"{head}: each byte has to be used {self.reuse:.3g} times while it is in a cache or a register"


def starvation(cpu: Cpu, given_Bps: float) -> Starvation:
    """Return the demand of *cpu*'s threads at its all-core vector clock, next to *given_Bps*."""
    cores = min(cpu.threads, cpu.core_count)
    return Starvation(cores, cores * cpu.clock_Hz * cpu.vector_bits / 8.0, given_Bps)
