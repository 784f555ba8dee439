"""The matrix of ``nvidia-smi topo -m``, which says pair by pair how GPUs and adapters are connected."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from simulator.records import dataclass, field

MOST_DEVICES = 512  # GPUs and adapters of one machine

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d{1,4})", re.ASCII)
_NVLINK = re.compile(r"NV(\d{1,3})", re.ASCII)
_WORDS = frozenset(("X", "SYS", "SOC", "NODE", "PHB", "PXB", "PIX"))
_LEVELS = {"pix": ("PIX",), "pxb": ("PXB",), "phb": ("PHB", "NODE"), "sys": ("SYS", "SOC")}
_STATES = frozenset(("X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"))
_LEGEND = re.compile(r"^[ \t]*(NIC\d{1,4}): (\S{1,60})[ \t\r]*$", re.MULTILINE | re.ASCII)
_RANGE = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*", re.ASCII)


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
        found = _NVLINK.fullmatch(self.between.get((f"GPU{a}", f"GPU{b}"), ""))
        return int(found[1]) if found else 0


def parse_topo(text: str) -> Matrix:
    """Return the matrix in *text*; raises ValueError, with the fault, where *text* holds no valid matrix."""
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
                if len(columns) > MOST_DEVICES:
                    raise ValueError(f"it names {len(columns):,} GPUs and adapters; one machine is needed")
        elif words[0] in columns and words[0] not in rows:
            rows[words[0]] = words[1:]
    if not columns:
        raise ValueError("no line names the GPUs (GPU0 GPU1 ...)")
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
    legend = dict(_LEGEND.findall(text))
    return Matrix(len(gpus), nics, both, affinity, sum(last - first + 1 for first, last in ends), legend)


def _between(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """Return nvidia-smi's word for the path between each two devices; raises ValueError as :func:`parse_topo`."""
    found = {}
    for name, cells in rows.items():
        if len(cells) < len(columns):
            raise ValueError(f"the row of {name} has {len(cells)} cells for {len(columns)} columns")
        for other, cell in zip(columns, cells, strict=False):
            if cell not in _WORDS and not _NVLINK.fullmatch(cell):
                raise ValueError(f"'{cell[:20]}' between {name} and {other} is no word of nvidia-smi's")
            found[name, other] = cell
    return found


def parse_peers(text: str) -> dict[tuple[int, int], str]:
    """Return each pair's state in ``nvidia-smi topo -p2p r``, OK or why not; raises ValueError without a table."""
    rows = [line.split() for line in _ANSI.sub("", text).splitlines()]
    states = {row[0]: row[1:] for row in rows if len(row) > 1 and _GPU.fullmatch(row[0]) and row[1] in _STATES}
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
    """Return how far GPUs copy directly over PCIe, by *states*; empty where all pairs may, and NCCL's rules decide.

    Pairs with NVLinks do not count.  A level is reached where all pairs up to it are OK.  Where drivers do not let such
    GPUs copy directly (not *usual*), but this one does, the level is NCCL's.
    """
    found = "none"
    over = {(a, b): word for (a, b), word in _pcie_words(matrix).items() if (a, b) in states}
    for level, words in _LEVELS.items():
        pairs = [pair for pair, word in over.items() if word in words]
        if any(states[pair] != "OK" for pair in pairs):
            return found
        found = level if pairs else found
    return "" if usual or not over else "pxb"


def has_pcie_pairs(matrix: Matrix) -> bool:
    """Return whether any two GPUs have no NVLinks between them."""
    return bool(_pcie_words(matrix))


def _pcie_words(matrix: Matrix) -> dict[tuple[int, int], str]:
    gpus = range(matrix.gpus)
    pairs = [(a, b) for a in gpus for b in gpus if a != b and not matrix.nvlinks(a, b)]
    return {(a, b): matrix.between.get((f"GPU{a}", f"GPU{b}"), "SYS") for a, b in pairs}
