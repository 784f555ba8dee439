"""Network adapters: what a dump says of one, and the built-in part that is like it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import NicPart

__all__ = ["Adapter", "adapter_part"]

# What an adapter of such a PCIe port usually is, where nothing says its rate: as fast as its slot feeds it.
_USUAL_BPS = {3: 12.5e9, 4: 25e9, 5: 50e9, 6: 100e9}
_FULL = 0.85  # of the rate of its part, an adapter may say: two ports of 180 Gbit/s are one of 400


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter as a dump names it; ``part`` where a user or its PCI id says, ``network`` empty where unknown."""

    name: str = ""
    network: str = ""
    rate_Bps: float = 0.0
    part: str = ""


def adapter_part(adapter: Adapter, generation: int = 0) -> tuple[str, str]:
    """Return the part that *adapter*, at a PCIe port of *generation*, is like, and what of it is a guess.

    Empty where nothing says what it could be.
    """
    if adapter.part:
        return adapter.part, ""
    rate_Bps = adapter.rate_Bps or _USUAL_BPS.get(generation, 0.0)
    network = adapter.network or "infiniband"
    if not rate_Bps:
        return "", ""
    guesses = [] if adapter.rate_Bps else [f"its rate: usual at PCIe {generation}"]
    guesses += [] if adapter.network else ["its network"]
    near = []
    for name in part_names("nic"):
        part = load_part(name)
        if isinstance(part, NicPart) and part.network == network and part.bandwidth:
            enough = rate_Bps >= _FULL * part.bandwidth
            near.append((not enough, abs(part.bandwidth - rate_Bps), -(part.efficiency or 0.0), name))
    if not near:
        return "", ""
    return min(near)[3], "; ".join(guesses)
