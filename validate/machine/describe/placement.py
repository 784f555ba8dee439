"""The matrix of ``nvidia-smi topo -m``; where GPUs and adapters are attached: at which switch, at which socket."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import product

from simulator.records import dataclass, field, own_patterns

_FIND = own_patterns("validate.machine.describe", "patterns.yaml", "placement")
MOST_DEVICES = 512  # GPUs and adapters of one machine

_WORDS = frozenset(("X", "SYS", "SOC", "NODE", "PHB", "PXB", "PIX"))
_LEVELS = {"pix": ("PIX",), "pxb": ("PXB",), "phb": ("PHB", "NODE"), "sys": ("SYS", "SOC")}
_STATES = frozenset(("X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"))


@dataclass(frozen=True, slots=True)
class Matrix:
    """``between[a, b]`` is the word for two names (``GPU0``, ``mlx5_0``), in both orders.

    ``affinity`` gives the first processor listed beside each GPU; ``threads`` is the number of processors listed
    beside GPUs, all together; ``legend`` the names of adapters that are numbered (``NIC0``).
    """

    gpus: int
    nics: tuple[str, ...]
    between: Mapping[tuple[str, str], str]
    affinity: Mapping[int, int]
    threads: int = 0
    legend: Mapping[str, str] = field(default_factory=dict)

    def nvlinks(self, a: int, b: int) -> int:
        """Return the number of NVLinks between two GPUs."""
        found = _FIND["nvlink"].fullmatch(self.between.get((f"GPU{a}", f"GPU{b}"), ""))
        return int(found[1]) if found else 0


def parse_topo(text: str) -> Matrix:
    """Return the matrix in *text*; raises ValueError, with the fault, where *text* holds no valid matrix."""
    columns: list[str] = []
    rows: dict[str, list[str]] = {}
    for line in _FIND["ansi"].sub("", text).splitlines():
        words = line.split()
        if not words:
            continue
        if not columns:
            if _FIND["gpu"].fullmatch(words[0]) and (len(words) == 1 or words[1] not in _WORDS):
                columns = words[: (words.index("CPU") if "CPU" in words else len(words))]
                if len(columns) > MOST_DEVICES:
                    raise ValueError(f"it names {len(columns):,} GPUs and adapters; one machine is needed")
        elif words[0] in columns and words[0] not in rows:
            rows[words[0]] = words[1:]
    if not columns:
        raise ValueError("no line names the GPUs (GPU0 GPU1 ...)")
    gpus = [name for name in columns if _FIND["gpu"].fullmatch(name)]
    if gpus != [f"GPU{i}" for i in range(len(gpus))]:
        raise ValueError("the GPUs are not numbered from 0")
    between = _between(columns, rows)
    affinity: dict[int, int] = {}
    ranges: set[str] = set()
    for name, cells in rows.items():
        said = cells[len(columns) :]
        if name in gpus and said and _FIND["range"].fullmatch(said[0]):
            affinity[gpus.index(name)] = int(re.split("[-,]", said[0])[0])
            ranges.update(said[0].split(","))
    for name in gpus:
        if name not in rows:
            raise ValueError(f"there is no row of {name}")
    for (a, b), cell in between.items():
        if between.get((b, a), cell) != cell:
            raise ValueError(f"{a} to {b} is {cell}, but {b} to {a} is {between[b, a]}")
    nics = tuple(name for name in columns if name not in gpus)
    both = {**{(b, a): cell for (a, b), cell in between.items()}, **between}
    ends = (each.partition("-") for each in ranges if each)
    threads = sum(int(last or first) - int(first) + 1 for first, _, last in ends)
    return Matrix(len(gpus), nics, both, affinity, threads, dict(_FIND["legend"].findall(text)))


def _between(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    found = {}
    for name, cells in rows.items():
        if len(cells) < len(columns):
            raise ValueError(f"the row of {name} has {len(cells)} cells for {len(columns)} columns")
        for other, cell in zip(columns, cells, strict=False):
            if cell not in _WORDS and not _FIND["nvlink"].fullmatch(cell):
                raise ValueError(f"'{cell[:20]}' between {name} and {other} is no word of nvidia-smi's")
            found[name, other] = cell
    return found


def parse_peers(text: str) -> dict[tuple[int, int], str]:
    """Return each pair's state in ``nvidia-smi topo -p2p r``, OK or why not; raises ValueError without a table."""
    rows = [line.split() for line in _FIND["ansi"].sub("", text).splitlines()]
    states = {row[0]: row[1:] for row in rows if len(row) > 1 and _FIND["gpu"].fullmatch(row[0]) and row[1] in _STATES}
    names = [f"GPU{i}" for i in range(len(states))]
    if not names or list(states) != names:
        raise ValueError("the GPUs of peer-to-peer states are not numbered from 0")
    found = {}
    for a, name in enumerate(names):
        if len(states[name]) < len(names) or not _STATES.issuperset(states[name][: len(names)]):
            raise ValueError(f"the row of {name} is not {len(names)} of nvidia-smi's states of peer-to-peer copies")
        found.update({(a, b): states[name][b] for b in range(len(names)) if a != b})
    return found


def peer_level(matrix: Matrix, states: Mapping[tuple[int, int], str], *, usual: bool = True) -> str:
    """Return how far GPUs without NVLinks copy directly over PCIe, by *states*; empty where NCCL's rules decide."""
    found = "none"
    over = {pair: word for pair, word in pcie_pairs(matrix).items() if pair in states}
    for level, words in _LEVELS.items():
        pairs = [pair for pair, word in over.items() if word in words]
        if any(states[pair] != "OK" for pair in pairs):
            return found
        found = level if pairs else found
    return "" if usual or not over else "pxb"


def pcie_pairs(matrix: Matrix) -> dict[tuple[int, int], str]:
    """Return the words of any two GPUs that have no NVLinks between them."""
    gpus = range(matrix.gpus)
    pairs = [(a, b) for a in gpus for b in gpus if a != b and not matrix.nvlinks(a, b)]
    return {(a, b): matrix.between.get((f"GPU{a}", f"GPU{b}"), "SYS") for a, b in pairs}


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter in a dump.  ``part`` is set where the user or the PCI ID names it; unknown fields are empty or 0."""

    name: str = ""
    network: str = ""
    rate_Bps: float = 0.0
    part: str = ""


@dataclass(frozen=True, slots=True)
class AttachedAdapter:
    """An adapter at PCIe switch ``switch`` or a socket; ``generation`` and ``lanes`` of its port, 0 where unknown."""

    adapter: Adapter
    switch: int | None
    socket: int
    generation: int = 0
    lanes: int = 0


@dataclass(slots=True)
class DrawnSwitch:
    """A PCIe switch: its GPUs, the switch above (None: the CPU), its socket, its port (generation, lanes)."""

    gpus: tuple[int, ...]
    above: int | None
    socket: int
    port: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Attachments:
    """Where the GPUs and adapters of a machine are attached."""

    socket: tuple[int, ...]  # of each GPU
    switches: tuple[DrawnSwitch, ...] = ()
    guessed: bool = False  # whether the GPUs' sockets are guesses
    adapters: tuple[AttachedAdapter, ...] = ()

    def gpus_below(self, switch: int) -> list[int]:
        """Return the GPUs at switch number *switch* and at those below it, in order."""
        inner = [gpu for n, each in enumerate(self.switches) if each.above == switch for gpu in self.gpus_below(n)]
        return sorted([*self.switches[switch].gpus, *inner])


Adapters = Mapping[str, Adapter]


def place_gpus(
    matrix: Matrix, sockets: int, socket_of: Mapping[int, int], adapters: Adapters | None = None, *, generation: int = 3
) -> Attachments:
    """Return where the GPUs of *matrix* are attached; *socket_of* gives the socket of each logical processor.

    Devices that PIX joins share a switch.  PXB, several bridges but no host, joins those switches, and devices alone,
    below one more, except where all can be one chip: switches of PCIe *generation* 4 and later show two levels, but
    are none (:func:`_is_one_chip`).  *adapters* are the known adapters by their names in *matrix*; others are left out.
    """
    known = adapters or {}
    names = [f"GPU{i}" for i in range(matrix.gpus)] + [name for name in matrix.nics if name in known]
    socket, guessed = _sockets(matrix, sockets, socket_of)
    drawn: list[tuple[list[str], int | None]] = []  # devices directly at each switch, and the switch above it
    every = [*names, *(name for name in matrix.nics if name not in known)]
    for group in _joined(every, matrix, frozenset(("PIX", "PXB"))):
        within = [name for name in names if name in group]
        subs = [[name for name in within if name in sub] for sub in _joined(every, matrix, frozenset(("PIX",)))]
        lower = [] if _is_one_chip(subs, generation) else [sub for sub in subs if len(sub) > 1]
        alone = [name for name in within if not any(name in sub for sub in lower)]
        first, has_upper = len(drawn), len(lower) + bool(alone) > 1 or (not lower and len(alone) > 1)
        up = first + len(lower) if has_upper else None
        drawn += [(sub, up) for sub in lower]
        drawn += [(alone, None)] if has_upper else []
    at = {name: n for n, (members, _) in enumerate(drawn) for name in members}
    near = {name: _nearest_socket(name, matrix, socket) for name in names}
    switches = []
    for n, (members, up) in enumerate(drawn):
        first_below = (members or next(under for under, above in drawn if above == n))[0]
        gpus = tuple(int(name[3:]) for name in members if name not in known)
        switches.append(DrawnSwitch(gpus, up, near[first_below]))
    hung = (AttachedAdapter(known[name], at.get(name), near[name]) for name in matrix.nics if name in known)
    return Attachments(socket, tuple(switches), guessed, tuple(hung))


_CHIP_PORTS = 8  # devices with 16 lanes, besides the port to the host: a PEX89144 has 144 lanes


def _is_one_chip(levels: Sequence[Sequence[str]], generation: int) -> bool:
    """Return whether PIX groups within PXB are sub-switches of one chip (topo.cc's ncclTopoFlattenBcmSwitches)."""
    boards = sum(sum(name.startswith("GPU") for name in level) > 1 for level in levels)
    return generation > 3 and boards < 2 and sum(map(len, levels)) <= _CHIP_PORTS


def _nearest_socket(name: str, matrix: Matrix, socket: Sequence[int]) -> int:
    order = ("X", "PIX", "PXB", "PHB", "NODE")
    words = [matrix.between.get((name, f"GPU{i}"), "") for i in range(matrix.gpus)]
    return socket[min(range(matrix.gpus), key=lambda i: order.index(words[i]) if words[i] in order else len(order))]


def _joined(names: Sequence[str], matrix: Matrix, words: Collection[str]) -> list[frozenset[str]]:
    group = {name: frozenset((name,)) for name in names}
    for a, b in product(names, repeat=2):
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
    groups = _joined([f"GPU{i}" for i in range(n)], matrix, frozenset(("PIX", "PXB", "PHB", "NODE")))
    if any(word in ("SYS", "SOC") for word in matrix.between.values()) and 1 < len(groups) < n:
        rank = [next(k for k, group in enumerate(groups) if f"GPU{i}" in group) for i in range(n)]
        return _shared_out(rank, sockets), False
    return _shared_out(list(range(n)), sockets), True


def _shared_out(ranks: Sequence[int], sockets: int) -> tuple[int, ...]:
    """Return the socket of each member of groups ranked *ranks*, the groups spread evenly over *sockets* in order."""
    count = max(ranks) + 1
    return tuple(rank * sockets // count if count >= sockets else rank for rank in ranks)
