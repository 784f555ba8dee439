"""GPUs and links that the driver reports, and network adapters: the matching built-in parts, and where each is placed.

``nvidia-smi topo -m`` says how GPUs and adapters are connected, pair by pair.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache

from simulator.records import dataclass
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import GpuPart, LinkPart, NicPart
from validate.machine.measure.host import nvidia_smi, slug
from validate.tables.names import gpu_names

_FIELDS = "name,memory.total,pcie.link.gen.max,pcie.link.width.max"
_FIGURES = 3  # besides the name
_BESIDE_CPU = frozenset(("gh200-480gb", "gb200", "gb300"))  # attached to their CPU by NVLink-C2C
# PCIe generation of data-centre GPUs by architecture; 4 is assumed for others.
_PCIE_OF = {"Kepler": 3, "Maxwell": 3, "Pascal": 3, "Volta": 3, "Turing": 3, "Hopper": 5, "Blackwell": 5, "CDNA3": 5}
BRANDS = ("nvidia-", "amd-", "tesla-", "quadro-", "geforce-", "instinct-")


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


@cache
def _parts_by_slug() -> dict[str, str]:
    return {slug(name): part for name, part in gpu_names().items()}


def driver_part(card: Card) -> str | None:
    """Return the built-in part that the driver's name stands for; None where there is none."""
    known, plain = _parts_by_slug(), slug(card.name)
    while plain not in known:
        brand = next((brand for brand in BRANDS if plain.startswith(brand)), None)
        if brand is None:
            return None
        plain = plain.removeprefix(brand)
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


MOST_DEVICES = 512  # GPUs and adapters of one machine

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d{1,4})", re.ASCII)
_NVLINK = re.compile(r"NV(\d{1,3})", re.ASCII)
_WORDS = frozenset(("X", "SYS", "SOC", "NODE", "PHB", "PXB", "PIX"))
_STATES = frozenset(("X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"))
_RANGE = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Matrix:
    """``between[a, b]`` is the word for two names (``GPU0``, ``mlx5_0``), in both orders.

    ``affinity`` gives the first processor listed beside each GPU; ``threads`` is the number of processors listed
    beside GPUs, all together.
    """

    gpus: int
    nics: tuple[str, ...]
    between: Mapping[tuple[str, str], str]
    affinity: Mapping[int, int]
    threads: int = 0

    def nvlinks(self, a: int, b: int) -> int:
        """Return the number of NVLinks between two GPUs."""
        found = _NVLINK.fullmatch(self.between.get((f"GPU{a}", f"GPU{b}"), ""))
        return int(found[1]) if found else 0


def parse_topo(text: str) -> Matrix:
    """Return the matrix in *text*.

    Raises ValueError, with the fault, where *text* holds no valid matrix.
    """
    columns: list[str] = []
    rows: dict[str, list[str]] = {}
    for line in _ANSI.sub("", text).splitlines():
        words = line.split()
        if not words:
            continue
        if not columns:
            if _GPU.fullmatch(words[0]) and (len(words) == 1 or words[1] not in _WORDS):
                stop = words.index("CPU") if "CPU" in words else len(words)
                columns = words[:stop]
        elif words[0] in columns and words[0] not in rows:
            rows[words[0]] = words[1:]
    if not columns:
        raise ValueError("no line names the GPUs (GPU0 GPU1 ...)")
    if len(columns) > MOST_DEVICES:
        raise ValueError(f"it names {len(columns):,} GPUs and adapters; one machine is needed")
    gpus = [name for name in columns if _GPU.fullmatch(name)]
    if gpus != [f"GPU{i}" for i in range(len(gpus))]:
        raise ValueError("the GPUs are not numbered from 0")
    between = _between(columns, rows)
    affinity: dict[int, int] = {}
    ranges: set[str] = set()
    for name, cells in rows.items():
        said = cells[len(columns) :]
        if name in gpus and said and _RANGE.fullmatch(said[0]):
            affinity[gpus.index(name)] = int(re.split("[-,]", said[0])[0])
            ranges.update(said[0].split(","))
    missing = [name for name in gpus if name not in rows]
    if missing:
        raise ValueError(f"there is no row of {missing[0]}")
    for (a, b), cell in between.items():
        if between.get((b, a), cell) != cell:
            raise ValueError(f"{a} to {b} is {cell}, but {b} to {a} is {between[b, a]}")
    nics = tuple(name for name in columns if name not in gpus)
    both = {**{(b, a): cell for (a, b), cell in between.items()}, **between}
    ends = [(int(first), int(last or first)) for first, _, last in (each.partition("-") for each in ranges if each)]
    return Matrix(len(gpus), nics, both, affinity, sum(last - first + 1 for first, last in ends))


def _between(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """Return nvidia-smi's word for the way between each two devices; raises ValueError as :func:`parse_topo`."""
    found = {}
    for name, cells in rows.items():
        if len(cells) < len(columns):
            raise ValueError(f"the row of {name} has {len(cells)} cells for {len(columns)} columns")
        for other, cell in zip(columns, cells, strict=False):
            if cell not in _WORDS and not _NVLINK.fullmatch(cell):
                raise ValueError(f"'{cell[:20]}' between {name} and {other} is no word of nvidia-smi's")
            found[name, other] = cell
    return found


def lacks_peers(matrix: Matrix, text: str) -> bool:
    """Return whether no pair of GPUs may copy directly over PCIe, by ``nvidia-smi topo -p2p r`` in *text*.

    Pairs with NVLinks do not count.  False where any pair may, no pair remains, or *text* is something else.
    """
    rows = [line.split() for line in _ANSI.sub("", text).splitlines()]
    states = {row[0]: row[1:] for row in rows if len(row) == matrix.gpus + 1 and _STATES.issuperset(row[1:])}
    if len(states) != matrix.gpus:
        return False
    pairs = [(a, b) for a in range(matrix.gpus) for b in range(matrix.gpus) if a != b and not matrix.nvlinks(a, b)]
    return bool(pairs) and all(states.get(f"GPU{a}", ["OK"] * matrix.gpus)[b] != "OK" for a, b in pairs)


_APART = frozenset(("SYS", "SOC"))
_BY_GENERATION = {"Pascal": "nvlink1", "Volta": "nvlink2", "Ampere": "nvlink3", "Hopper": "nvlink4",
                  "Blackwell": "nvlink5", "CDNA1": "xgmi-mi100", "CDNA2": "xgmi-mi200",
                  "CDNA3": "xgmi-mi300"}  # fmt: skip
_SWITCHES = {"Volta": "nvswitch1", "Ampere": "nvswitch2", "Hopper": "nvswitch3", "Blackwell": "nvswitch4"}


@dataclass(frozen=True, slots=True)
class AttachedAdapter:
    """An adapter and where it is attached: to PCIe switch number ``switch``, or directly to a socket.

    ``generation`` and ``lanes`` describe its PCIe port, 0 where unknown.
    """

    adapter: Adapter
    switch: int | None
    socket: int
    generation: int = 0
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class Attachments:
    """Where the GPUs and adapters of a machine are attached."""

    socket: tuple[int, ...]  # of each GPU
    switches: tuple[tuple[int, ...], ...] = ()  # GPUs of each PCIe switch; none where only adapters share it
    upper: tuple[tuple[int, ...], ...] = ()  # numbers of the switches below each upper switch
    guessed: bool = False  # whether the GPUs' sockets are guesses
    adapters: tuple[AttachedAdapter, ...] = ()
    switch_sockets: tuple[int, ...] = ()  # socket of each switch; empty: that of its first GPU
    ports: tuple[tuple[int, int], ...] = ()  # generation and lanes of each switch's upstream port, where known

    def socket_of(self, switch: int) -> int:
        """Return the socket of switch number *switch*."""
        if self.switch_sockets:
            return self.switch_sockets[switch]
        return self.socket[self.switches[switch][0]]


def place_gpus(
    matrix: Matrix, sockets: int, socket_of: Mapping[int, int], adapters: Mapping[str, Adapter] | None = None
) -> Attachments:
    """Return where the GPUs of *matrix* are attached; *socket_of* gives the socket of each logical processor.

    *adapters* are the known adapters by their names in *matrix*; others are left out.
    """
    known = adapters or {}
    gpus = range(matrix.gpus)
    names = [f"GPU{i}" for i in gpus] + list(matrix.nics)
    socket, guessed = _sockets(matrix, sockets, socket_of)
    switches: list[tuple[int, ...]] = []
    at: dict[str, int] = {}
    for group in _joined(names, matrix, frozenset(("PIX",))):
        members = tuple(i for i in gpus if f"GPU{i}" in group)
        its = [name for name in matrix.nics if name in group and name in known]
        if members and len(members) + len(its) > 1:
            at |= dict.fromkeys(its, len(switches))
            switches.append(members)
    upper = []
    for group in _joined(names, matrix, frozenset(("PIX", "PXB"))):
        below = tuple(n for n, members in enumerate(switches) if f"GPU{members[0]}" in group)
        if len(below) > 1:
            upper.append(below)
    hung = tuple(
        AttachedAdapter(known[name], at.get(name), _nearest_socket(name, matrix, socket))
        for name in matrix.nics
        if name in known
    )
    return Attachments(socket, tuple(switches), tuple(upper), guessed, hung)


def _nearest_socket(nic: str, matrix: Matrix, socket: Sequence[int]) -> int:
    """Return the socket of the GPU nearest to the adapter *nic*; of equally near GPUs, the first."""
    order = ("PIX", "PXB", "PHB", "NODE")
    words = [matrix.between.get((nic, f"GPU{i}"), "") for i in range(matrix.gpus)]
    near = min(range(matrix.gpus), key=lambda i: order.index(words[i]) if words[i] in order else len(order))
    return socket[near]


def _joined(names: Sequence[str], matrix: Matrix, words: Collection[str]) -> list[frozenset[str]]:
    """Return *names* in groups connected by *words*, ordered by their first members."""
    group = {name: frozenset((name,)) for name in names}
    for a in names:
        for b in names:
            if matrix.between.get((a, b)) in words and group[a] is not group[b]:
                both = group[a] | group[b]
                group.update(dict.fromkeys(both, both))
    return list(dict.fromkeys(group[name] for name in names))


def _sockets(matrix: Matrix, sockets: int, socket_of: Mapping[int, int]) -> tuple[tuple[int, ...], bool]:
    """Return the socket of each GPU, and whether it is a guess: by CPU affinity, else by which pairs are far apart."""
    n = matrix.gpus
    if sockets == 1:
        return (0,) * n, False
    if len(matrix.affinity) == n:
        beside = [matrix.affinity[i] for i in range(n)]
        known = [socket_of.get(processor, -1) for processor in beside]
        if all(0 <= socket < sockets for socket in known) and len(set(known)) == min(sockets, len(set(beside))):
            return tuple(known), False
        return _shared_out([sorted(set(beside)).index(processor) for processor in beside], sockets), False
    near = frozenset(("PIX", "PXB", "PHB", "NODE"))
    groups = _joined([f"GPU{i}" for i in range(n)], matrix, near)
    apart = any(word in _APART for word in matrix.between.values())
    if apart and 1 < len(groups) < n:
        rank = [next(k for k, group in enumerate(groups) if f"GPU{i}" in group) for i in range(n)]
        return _shared_out(rank, sockets), False
    return _shared_out(list(range(n)), sockets), True


def _shared_out(ranks: Sequence[int], sockets: int) -> tuple[int, ...]:
    """Return the socket of each member of groups ranked *ranks*, the groups spread evenly over *sockets* in order."""
    count = max(ranks) + 1
    return tuple(rank * sockets // count if count >= sockets else rank for rank in ranks)


def nvlink_parts(name: str) -> tuple[str, str]:
    """Return the link part of the NVLinks of the GPU part *name* and the part of its switches; empty where unknown."""
    part = load_part(name)
    if not isinstance(part, GpuPart):
        return "", ""
    generation = part.architecture.partition(" ")[0]
    chip = part.architecture.rpartition(" ")[2]
    if chip == "GA102":
        return "nvlink3-bridge-ga102", ""
    if generation == "Turing":
        return "nvlink2-bridge", ""
    if "pcie" in name and generation == "Ampere":
        return "nvlink3-bridge", ""
    return _BY_GENERATION.get(generation, ""), _SWITCHES.get(generation, "")
