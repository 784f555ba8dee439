"""What the driver reports, and the built-in parts that it stands for: GPUs, their links and slots, adapters."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from simulator.records import dataclass, own_data
from simulator.topology.catalogue import builtin_folder, load_part, part_names
from simulator.topology.parts import GpuPart, NicPart
from validate.machine.describe.placement import Adapter
from validate.machine.measure.host import nvidia_smi, slug
from validate.tables.names import names_of

_FIELDS = "name,memory.total,pcie.link.gen.max,pcie.link.width.max"
_SLOT = re.compile(r"pcie(\d)-")
_FIGURES = 3  # besides the name
BRANDS = ("nvidia-", "amd-", "tesla-", "quadro-", "geforce-", "instinct-")
GENERATIONS = own_data("validate.machine.describe", "generations.yaml")


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU in the driver's listing; figures are 0 where the driver gives none."""

    name: str
    memory_bytes: int = 0
    pcie_generation: int = 0
    pcie_lanes: int = 0
    power_limit_W: float = 0.0
    clock_Hz: float = 0.0  # that applications are given
    max_clock_Hz: float = 0.0


def ask_driver() -> tuple[tuple[Card, ...], str, str]:
    """Return the GPUs and the output of ``nvidia-smi topo -m`` and ``topo -p2p r``; all empty without a driver."""
    cards = parse_cards(nvidia_smi(f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"))
    return cards, nvidia_smi("topo", "-m") if cards else "", nvidia_smi("topo", "-p2p", "r") if len(cards) > 1 else ""


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


@cache
def _parts_by_slug() -> dict[str, str]:
    return {slug(name): part for name, part in names_of("gpu").items()}


def driver_part(card: Card) -> str | None:
    """Return the built-in part that the driver's name stands for; None where there is none."""
    known, plain = _parts_by_slug(), slug(card.name)
    while plain not in known:
        brand = next((brand for brand in BRANDS if plain.startswith(brand)), None)
        if brand is None:
            return None
        plain = plain.removeprefix(brand)
    return known[plain]


def slot_generation(cards: Sequence[Card]) -> int:
    """Return the PCIe generation of the slots of *cards*: as listed, else the usual one of the first."""
    said = max((card.pcie_generation for card in cards), default=0)
    found = _SLOT.match(pcie_part(cards[0])[0]) if cards else None
    return said or (int(found[1]) if found else 0)


_LIMITED = 0.98  # of a board's usual power


def limited_part(card: Card) -> tuple[str, list[str]]:
    """Return name and lines of the part of *card* at its power limit (W); empty for usual power, unknown boards."""
    name = driver_part(card) or ""
    usual_W = getattr(load_part(name), "board_power", None)
    if not usual_W or not 0 < card.power_limit_W < _LIMITED * usual_W:
        return "", []
    limit_W = f"{card.power_limit_W:.0f}"
    text = (builtin_folder() / "parts" / "gpu" / f"{name}.yaml").read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if not line.startswith(("#", "aliases:", "pci_ids:"))]
    lines = [f"board_power: {limit_W} W" if line.startswith("board_power:") else line for line in kept]
    return f"{name}-{limit_W}w", lines


def are_peers(cards: Sequence[Card]) -> bool:
    """Return whether drivers let all *cards* copy to each other over PCIe, if the machine does."""
    return all(getattr(load_part(driver_part(card) or ""), "pcie_peers", True) for card in cards)


def pcie_part(card: Card) -> tuple[str, bool]:
    """Return the link part between a card and its CPU, and whether it is certain (else the architecture's usual)."""
    if driver_part(card) in GENERATIONS["beside_cpu"]:
        return "nvlink-c2c", True
    part = load_part(driver_part(card) or "")
    most = _generation(part).get("pcie", 0) if isinstance(part, GpuPart) else 0
    name = port_part(card.pcie_generation, card.pcie_lanes)
    if name and card.pcie_generation <= (most or card.pcie_generation):
        return name, True  # virtual machines may report a higher generation than the GPU has
    return f"pcie{most or 4}-x16", False


def _generation(part: GpuPart) -> dict[str, Any]:
    return dict(GENERATIONS["gpus"].get(part.architecture.partition(" ")[0], {}))


def port_part(generation: int, lanes: int) -> str:
    """Return the link part of a PCIe port; empty where the port is unknown or there is no such part."""
    name = f"pcie{generation}-x{lanes}"
    return name if generation and load_part(name) is not None else ""


def slot_for(nic: str) -> str:
    """Return the link part of the slowest PCIe x16 slot that feeds the adapter part *nic*."""
    needs_Bps = getattr(load_part(nic), "bandwidth", float("inf"))
    fitting = (name for name in ("pcie3-x16", "pcie4-x16") if getattr(load_part(name), "bandwidth", 0.0) >= needs_Bps)
    return next(fitting, "pcie5-x16")


_FULL = 0.85  # least reported fraction of a part's rate: two ports of 180 Gbit/s are one adapter of 400 Gbit/s


def adapter_part(adapter: Adapter, generation: int = 0) -> tuple[str, str]:
    """Return the built-in part nearest to *adapter* on a port of *generation*, and what is a guess; "" if unknown."""
    if adapter.part:
        return adapter.part, ""
    rate_Bps = adapter.rate_Bps or GENERATIONS["usual_Bps"].get(generation, 0.0)
    guesses = [] if adapter.rate_Bps else [f"its rate: usual at PCIe {generation}"]
    guesses += [] if adapter.network else ["its network"]
    near = []
    for name in part_names("nic") if rate_Bps else ():
        part = load_part(name)
        if isinstance(part, NicPart) and part.network == (adapter.network or "infiniband") and part.bandwidth:
            enough = rate_Bps >= _FULL * part.bandwidth
            near.append((not enough, abs(part.bandwidth - rate_Bps), -(part.efficiency or 0.0), name))
    return (min(near)[3], "; ".join(guesses)) if near else ("", "")


def nvlink_parts(name: str) -> tuple[str, str]:
    """Return the link part of the NVLinks of the GPU part *name* and the part of its switches; empty where unknown."""
    part = load_part(name)
    if not isinstance(part, GpuPart):
        return "", ""
    design, said = part.architecture, _generation(part)
    if design.endswith("GA102"):
        return "nvlink3-bridge-ga102", ""
    if design.startswith("Turing"):
        return "nvlink2-bridge", ""
    if "pcie" in name and design.startswith("Ampere"):
        return "nvlink3-bridge", ""
    return said.get("link", ""), said.get("switch", "")


_OF_AMD = own_data("validate.machine", "tools.yaml")


def named_for(words: str, vendors: Iterable[str]) -> str:
    """Return *words* with AMD's tools in place of NVIDIA's where all GPUs are AMD's, as *vendors* say."""
    if {*vendors} != {"amd"}:
        return words
    for nvidia, amd in _OF_AMD.items():
        words = words.replace(nvidia, amd)
    return words
