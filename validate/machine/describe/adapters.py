"""Network adapters: what a dump says of them, and the matching built-in parts."""

from __future__ import annotations

from simulator.records import dataclass
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import NicPart

# Usual rate of an adapter at a PCIe port of each generation, where no rate is given: as much as the slot feeds.
_USUAL_BPS = {3: 12.5e9, 4: 25e9, 5: 50e9, 6: 100e9}
_FULL = 0.85  # least reported fraction of a part's rate: two ports of 180 Gbit/s are one adapter of 400 Gbit/s


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter in a dump.  ``part`` is set where the user or the PCI ID names it; unknown fields are empty or 0."""

    name: str = ""
    network: str = ""
    rate_Bps: float = 0.0
    part: str = ""


def adapter_part(adapter: Adapter, generation: int = 0) -> tuple[str, str]:
    """Return the built-in part nearest to *adapter*, at a PCIe port of *generation*, and what of it is a guess.

    Both are empty where neither the adapter nor its port says anything.
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
