"""The GPUs that the driver lists, and the matching built-in parts."""

from __future__ import annotations

import re

from simulator.records import dataclass
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart, LinkPart, NicPart
from validate.machine.measure.host import nvidia_smi, slug
from validate.tables.names import gpu_names

_FIELDS = "name,memory.total,pcie.link.gen.max,pcie.link.width.max"
_FIGURES = 3  # besides the name
_BESIDE_CPU = frozenset(("gh200-480gb", "gb200", "gb300"))  # attached to their CPU by NVLink-C2C
# PCIe generation of data-centre GPUs by architecture; 4 is assumed for others.
_PCIE_OF = {"Kepler": 3, "Maxwell": 3, "Pascal": 3, "Volta": 3, "Turing": 3, "Hopper": 5, "Blackwell": 5, "CDNA3": 5}
_MAKERS = ("nvidia-", "amd-", "tesla-", "geforce-")


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU in the driver's listing; figures are 0 where the driver gives none."""

    name: str
    memory_bytes: int = 0
    pcie_generation: int = 0
    pcie_lanes: int = 0


def ask_driver() -> tuple[tuple[Card, ...], str, str]:
    """Return the GPUs and the output of ``nvidia-smi topo -m`` and ``topo -p2p r``; all empty without a driver."""
    listed = nvidia_smi(f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")
    cards = parse_cards(listed)
    matrix = nvidia_smi("topo", "-m") if cards else ""
    return cards, matrix, nvidia_smi("topo", "-p2p", "r") if len(cards) > 1 else ""


def parse_cards(text: str) -> tuple[Card, ...]:
    """Return the GPUs in a CSV listing with one ``name, MiB, PCIe generation, lanes`` per line."""
    found = []
    for line in text.splitlines():
        name, *figures = (cell.strip() for cell in line.split(","))
        if not name or len(figures) < _FIGURES:  # "No devices were found"
            continue
        numbers = [int(cell) if re.fullmatch(r"\d{1,7}", cell, re.ASCII) else 0 for cell in figures]
        memory, generation, lanes = [*numbers, 0, 0, 0][:3]
        found.append(Card(name, memory << 20, generation, lanes))
    return tuple(found)


def driver_part(card: Card) -> str | None:
    """Return the built-in part that the driver's name stands for; None where there is none."""
    known = {slug(name): part for name, part in gpu_names().items()}
    plain = slug(card.name)
    while plain not in known:
        maker = next((maker for maker in _MAKERS if plain.startswith(maker)), None)
        if maker is None:
            return None
        plain = plain.removeprefix(maker)
    return known[plain]


def pcie_part(card: Card) -> tuple[str, bool]:
    """Return the link part between a card and its CPU, and whether it is certain (else the architecture's usual)."""
    if driver_part(card) in _BESIDE_CPU:
        return "nvlink-c2c", True
    part = load_part(driver_part(card) or "")
    architecture = part.architecture.partition(" ")[0] if isinstance(part, GpuPart) else ""
    most = _PCIE_OF.get(architecture, 0)
    name = port_part(card.pcie_generation, card.pcie_lanes)
    if name and card.pcie_generation <= (most or card.pcie_generation):
        return name, True  # virtual machines may report a higher generation than the GPU has
    return f"pcie{most or 4}-x16", False


def port_part(generation: int, lanes: int) -> str:
    """Return the link part of a PCIe port; empty where the port is unknown or there is no such part."""
    name = f"pcie{generation}-x{lanes}"
    return name if generation and load_part(name) is not None else ""


def slot_for(nic: str) -> str:
    """Return the link part of the slowest PCIe x16 slot that feeds the adapter part *nic*."""
    part = load_part(nic)
    for generation in (3, 4, 5):
        slot = load_part(f"pcie{generation}-x16")
        if isinstance(part, NicPart) and isinstance(slot, LinkPart) and (slot.bandwidth or 0.0) >= part.bandwidth:
            return f"pcie{generation}-x16"
    return "pcie5-x16"
