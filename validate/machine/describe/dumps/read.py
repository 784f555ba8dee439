"""Read one dump file, with its GPUs, links and placement: :func:`read_dump`; tables of drivers and adapters."""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, field, own_patterns
from simulator.topology.load import foreign_kind
from simulator.user_files import read_user_file
from validate.machine.describe.driver import Card
from validate.machine.describe.dumps.text_trees import log_tree, lspci_tree, lspci_verbose_tree, lstopo_tree
from validate.machine.describe.dumps.tree import BusTree
from validate.machine.describe.dumps.xml_dumps import hwloc_tree, nccl_tree, parse_xml
from validate.machine.describe.placement import MOST_DEVICES, Adapter, Matrix, parse_peers, parse_topo

_FIND = own_patterns("validate.machine.describe", "patterns.yaml", "read")
_SAME_SOCKET_HOPS = 2


def amd_matrix(text: str) -> Matrix:
    """Return the GPUs of ``rocm-smi --showtopo`` or ``amd-smi topology``, an xGMI link each; raises ValueError."""
    types, hops = _table(text, _FIND["types"]), _table(text, _FIND["hops"])
    numa, n = {int(gpu): int(node) for gpu, node in _FIND["numa"].findall(text)}, len(types)
    if not n or any(len(row) != n for row in types):
        raise ValueError("no whole table of link types; 'rocm-smi --showtopo' and 'amd-smi topology' print it")
    if n > MOST_DEVICES:
        raise ValueError(f"{n} GPUs; one machine is needed")

    def word(a: int, b: int) -> str:
        if a == b:
            return "X"
        if types[a][b].upper() == "XGMI":
            return "NV1"
        if a in numa and b in numa:
            return "NODE" if numa[a] == numa[b] else "SYS"
        far = hops[a][b] if a < len(hops) and b < len(hops[a]) else ""
        return "SYS" if far.isdecimal() and int(far) > _SAME_SOCKET_HOPS else "NODE"

    between = {(f"GPU{a}", f"GPU{b}"): word(a, b) for a in range(n) for b in range(n)}
    return Matrix(n, (), between, numa if len(numa) == n else {})


def _table(text: str, title: re.Pattern[str]) -> list[list[str]]:
    found = title.search(text)
    rows: list[list[str]] = []
    for line in text[found.end() :].splitlines()[1:] if found else ():
        words = line.split()
        if words and _FIND["named"].fullmatch(words[0]):
            rows += [] if len(words) > 1 and _FIND["named"].fullmatch(words[1]) else [words[1:]]  # none of the header
        elif rows:
            break
    return rows


def ibstat_adapters(text: str) -> dict[str, Adapter]:
    """Return ``ibstat``'s adapters by name, at the rate of their active ports; raises ValueError for none."""
    starts = [*_FIND["adapter"].finditer(text)]
    if not starts:
        raise ValueError("no adapter (CA 'mlx5_0') in it")
    found = {}
    for start, end in zip(starts, [*(each.start() for each in starts[1:]), len(text)], strict=True):
        ports = re.split(r"^[ \t]*Port \d+:", text[start.end() : end], flags=re.MULTILINE)[1:]
        active = [port for port in ports if "State: Active" in port]
        rates = [int(rate[1]) for port in active if (rate := _FIND["rate"].search(port))]
        layer = next((each[1].lower() for port in ports if (each := _FIND["layer"].search(port))), "infiniband")
        found[start[1]] = Adapter(start[1], layer, sum(rates) * 1e9 / 8)
    return found


def queried_cards(text: str) -> tuple[Card, ...]:
    """Return the GPUs of ``nvidia-smi -q``: lanes as negotiated, power and clock as set; raises ValueError for none."""
    starts = [each.start() for each in _FIND["gpu"].finditer(text)]
    if not starts:
        raise ValueError("no GPU in it")
    return tuple(_card(dict(_paths(text[a:b]))) for a, b in zip(starts, [*starts[1:], len(text)], strict=True))


def _paths(text: str) -> Iterator[tuple[str, str]]:
    """Yield (titles from the outermost one, joined by slashes; value) of the indented lines of *text*."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _FIND["line"].match(line)
        if found is None:
            continue
        above = [*(each for each in above if each[0] < len(found[1])), (len(found[1]), found[2])]
        if found[3] is not None:
            yield "/".join(title for _, title in above), found[3].strip()


def _card(said: dict[str, str]) -> Card:
    def number(*ends: str) -> float:
        values = [value for end in ends for path, value in said.items() if path.endswith(end)]
        words = [found[0] for value in values if (found := re.match(r"\d{1,7}(?:\.\d+)?", value, re.ASCII))]
        return float(words[0]) if words else 0.0

    generations = [number("PCIe Generation/Max"), number("PCIe Generation/Host Max")]
    return Card(
        next((value for path, value in said.items() if path.endswith("Product Name")), ""),
        int(number("FB Memory Usage/Total")) << 20,
        int(min((each for each in generations if each), default=0)),
        int(number("Link Width/Current", "Link Width/Max")),
        number("Power Readings/Current Power Limit", "Power Readings/Power Limit"),
        1e6 * number("Applications Clocks/Graphics"),
        1e6 * number("Max Clocks/Graphics"),
    )


MAX_BYTES = 20_000_000
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Dump:
    """The content of one file: a tree, a matrix, names of GPUs, or by pair whether they copy directly."""

    shown: str
    kind: str
    tree: BusTree | None = None
    matrix: Matrix | None = None
    names: tuple[str, ...] = ()
    peers: Mapping[tuple[int, int], str] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    remarks: tuple[str, ...] = field(default=())

    @property
    def gpus(self) -> int:
        """Return the number of GPUs shown."""
        if self.tree is not None:
            return len(self.tree.gpus())
        if self.matrix is not None:
            return self.matrix.gpus
        return len(self.names) or len(self.cards) or 1 + max((a for a, _ in self.peers), default=-1)


def read_text(path: str) -> str:
    """Return the text of *path*, in UTF-8 or PowerShell's UTF-16; raises InputError if unreadable or over 20 MB."""
    raw = read_user_file(path, MAX_BYTES)
    unmarked = {0: "utf-16-be", 1: "utf-16-le"}.get(raw[:2].find(b"\0"), "utf-8-sig")
    return raw.decode("utf-16" if raw.startswith(_UTF_16) else unmarked, "replace")


def read_dump(path: str) -> Dump:
    """Return the content of the file *path*; raises InputError if its format is not in ``KINDS`` or it is damaged."""
    shown, text = one_line(path, 1000), read_text(path)
    kind = foreign_kind(text)
    if kind is None:
        raise InputError(Fault(f"is none of: {', '.join(KINDS.values())}", shown, 1, 1))
    found: Any
    if kind in ("nccl-xml", "hwloc-xml", "xml"):
        root = parse_xml(text, shown)
        if root.tag not in ("system", "topology"):
            told = f"'{one_line(root.tag, 40)}' is not the root of NCCL's XML (system) or hwloc's (topology)"
            raise InputError(Fault(told, shown, root.line, 1))
        holds, found = "tree", nccl_tree(root, shown) if root.tag == "system" else hwloc_tree(root)
    else:
        _, holds, read = _READERS[kind]
        try:
            found = read(text)
        except ValueError as error:
            raise InputError(Fault(one_line(error, 200), shown, 1, 1)) from None
    if holds != "tree":
        return Dump(shown, kind, remarks=(_CLASSES,) if kind == "link-classes" else (), **{holds: found})
    names = [device.name for device in (*found.gpus(), *found.nics())]
    if len(names) > MOST_DEVICES:
        raise InputError(Fault(f"has {len(names):,} GPUs and adapters; one machine is needed", shown))
    for name, count in Counter(names).items():
        if count > 1:  # they could not be told apart
            raise InputError(Fault(f"two devices have the bus id '{one_line(name, 40)}'", shown))
    return Dump(shown, kind, found, remarks=tuple(found.remarks))


def _of_classes(text: str) -> Matrix:
    """Return the matrix in a table of MXNet's link classes, which are CUDA's performance ranks plus one."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = [" ".join(f"GPU{i}" for i in range(len(rows)))]
    for i, row in enumerate(rows):
        cells = ["X" if a == i else f"NV{int(cell) - 1}" if int(cell) > 1 else "SYS" for a, cell in enumerate(row)]
        words.append(f"GPU{i} {' '.join(cells)}")
    return parse_topo("\n".join(words))


def _listed(text: str) -> tuple[str, ...]:
    listed = sorted({int(number): name for number, name in _FIND["listed"].findall(text)}.items())
    if [number for number, _ in listed] != list(range(len(listed))):
        raise ValueError("the GPUs are not numbered from 0")
    return tuple(name for _, name in listed)


_CLASSES = "a square of numbers with 0 on its diagonal: MXNet's classes, 2 for one NVLink and 3 for two"
_Reader = tuple[str, str, Callable[[str], Any]]
_READERS: Mapping[str, _Reader] = {  # what makes it, and the field of a dump that it fills
    "topo": ("nvidia-smi topo -m", "matrix", parse_topo),
    "peers": ("nvidia-smi topo -p2p r", "peers", parse_peers),
    "query": ("nvidia-smi -q", "cards", queried_cards),
    "amd": ("rocm-smi --showtopo or amd-smi topology", "matrix", amd_matrix),
    "ibstat": ("ibstat", "adapters", ibstat_adapters),
    "lspci": ("lspci -tv", "tree", lspci_tree),
    "lspci-vv": ("lspci -vv", "tree", lspci_verbose_tree),
    "lstopo": ("lstopo's text", "tree", lstopo_tree),
    "nccl-log": ("NCCL's log", "tree", log_tree),
    "gpu-list": ("nvidia-smi -L", "names", _listed),
    "link-classes": ("MXNet's classes of links", "matrix", _of_classes),
}
KINDS = {"nccl-xml": "NCCL's topology XML", "hwloc-xml": "hwloc's XML", **{k: of[0] for k, of in _READERS.items()}}
