"""Read one dump file, with its GPUs, links and placement: :func:`read_dump`."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping

from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, field
from simulator.topology.foreign import foreign_kind
from simulator.user_files import read_user_file
from validate.machine.describe.driver import Adapter, Card
from validate.machine.describe.dumps.lists import lspci_verbose_tree, lstopo_tree
from validate.machine.describe.dumps.lspci import lspci_tree
from validate.machine.describe.dumps.nccl_log import log_tree
from validate.machine.describe.dumps.tables import amd_matrix, ibstat_adapters, queried_cards
from validate.machine.describe.dumps.tree import BusTree
from validate.machine.describe.dumps.xml_dumps import hwloc_tree, nccl_tree, parse_xml
from validate.machine.describe.matrix import MOST_DEVICES, Matrix, parse_peers, parse_topo

MAX_BYTES = 20_000_000
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
KINDS = {
    "nccl-xml": "NCCL's topology XML",
    "hwloc-xml": "hwloc's XML",
    "topo": "nvidia-smi topo -m",
    "peers": "nvidia-smi topo -p2p r",
    "query": "nvidia-smi -q",
    "amd": "rocm-smi --showtopo or amd-smi topology",
    "ibstat": "ibstat",
    "lspci": "lspci -tv",
    "lspci-vv": "lspci -vv",
    "lstopo": "lstopo's text",
    "nccl-log": "NCCL's log",
    "gpu-list": "nvidia-smi -L",
    "link-classes": "MXNet's classes of links",
}
_LISTED = re.compile(r"^GPU (\d{1,4}): (.{1,200}?) \(UUID:", re.MULTILINE | re.ASCII)


_TREES = {"lspci": lspci_tree, "lspci-vv": lspci_verbose_tree, "lstopo": lstopo_tree, "nccl-log": log_tree}


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

    def said(self) -> tuple[str, ...]:
        """Return remarks for the reader."""
        return (*self.remarks, *(self.tree.remarks if self.tree is not None else ()))

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
    if kind in ("nccl-xml", "hwloc-xml", "xml"):
        root = parse_xml(text, shown)
        if root.tag not in ("system", "topology"):
            told = f"'{one_line(root.tag, 40)}' is not the root of NCCL's XML (system) or hwloc's (topology)"
            raise InputError(Fault(told, shown, root.line, 1))
        tree = nccl_tree(root, shown) if root.tag == "system" else hwloc_tree(root)
        return Dump(shown, kind, _checked(tree, shown))
    try:
        if kind == "topo":
            return Dump(shown, kind, matrix=parse_topo(text))
        if kind == "peers":
            return Dump(shown, kind, peers=parse_peers(text))
        if kind == "link-classes":
            guess = "a square of numbers with 0 on its diagonal: MXNet's classes, 2 for one NVLink and 3 for two"
            return Dump(shown, kind, matrix=_of_classes(text), remarks=(guess,))
        if kind == "amd":
            return Dump(shown, kind, matrix=amd_matrix(text))
        if kind == "ibstat":
            return Dump(shown, kind, adapters=ibstat_adapters(text))
        if kind == "query":
            return Dump(shown, kind, cards=queried_cards(text))
        if kind in _TREES:
            return Dump(shown, kind, _checked(_TREES[kind](text), shown))
    except ValueError as error:
        raise InputError(Fault(one_line(error, 200), shown, 1, 1)) from None
    listed = {int(number): name for number, name in _LISTED.findall(text)}
    if sorted(listed) != list(range(len(listed))):
        raise InputError(Fault("the GPUs are not numbered from 0", shown, 1, 1))
    return Dump(shown, kind, names=tuple(listed[number] for number in sorted(listed)))


def _checked(tree: BusTree, shown: str) -> BusTree:
    """Return *tree*; raises InputError where two devices have the same bus ID and so could not be told apart."""
    seen: set[str] = set()
    devices = (*tree.gpus(), *tree.nics())
    if len(devices) > MOST_DEVICES:
        raise InputError(Fault(f"has {len(devices):,} GPUs and adapters; one machine is needed", shown))
    for device in devices:
        if device.name in seen:
            raise InputError(Fault(f"two devices have the bus id '{one_line(device.name, 40)}'", shown))
        seen.add(device.name)
    return tree


def _of_classes(text: str) -> Matrix:
    """Return the matrix in a table of MXNet's link classes, which are CUDA's performance ranks plus one."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = [" ".join(f"GPU{i}" for i in range(len(rows)))]
    for i, row in enumerate(rows):
        cells = ["X" if a == i else f"NV{int(cell) - 1}" if int(cell) > 1 else "SYS" for a, cell in enumerate(row)]
        words.append(f"GPU{i} {' '.join(cells)}")
    return parse_topo("\n".join(words))
