"""The YAML of a machine or a cluster, as pydantic models (docs/topology.md); ranges of names, and matrices of links."""

import math
import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from simulator.errors import one_line
from simulator.records import dataclass
from simulator.topology.parts import DeviceKind, Duplex, LinkKind, OwnPart, Strict, told
from simulator.units import Bandwidth, Duration, MemorySize, Power, Share

MAX_NAMES = 65_536
_MAX_DIGITS = 9
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_RANGED = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)\[([0-9,\- ]+)\]([A-Za-z0-9_.-]*)", re.ASCII)


def expand(text: str) -> list[str]:
    """Return the names that *text*, a name or a range, denotes; raises ValueError for others, and for too many."""
    stem, ranges, tail = _read(text)
    return [f"{stem}{i}{tail}" for low, high in ranges for i in range(low, high + 1)] if ranges else [text]


def count(text: str) -> int:
    """Return the number of names that *text* denotes, without expanding them; raises as :func:`expand`."""
    _, ranges, _ = _read(text)
    return sum(high - low + 1 for low, high in ranges) or 1


def _read(text: str) -> tuple[str, list[tuple[int, int]], str]:
    """Return (text before the numbers, ranges of numbers, text after them); a plain name has no ranges."""
    if _NAME.fullmatch(text):
        return text, [], ""
    shown = one_line(repr(text), 60)
    match = _RANGED.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown} is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]")
    stem, ranges, tail = match.groups()
    found: list[tuple[int, int]] = []
    n_names = 0
    for piece in ranges.split(","):
        low, dash, high = piece.strip().partition("-")
        numbers = [each.strip() for each in ((low, high) if dash else (low,))]
        if not all(each.isascii() and each.isdigit() for each in numbers):
            read = one_line(repr(piece.strip()), 40)
            raise ValueError(f"{shown}: {read} is neither a number nor a range such as 0-7")
        if max(len(low.strip()), len(high.strip())) > _MAX_DIGITS:
            raise ValueError(f"{shown}: a number has at most {_MAX_DIGITS} digits")
        first, last = int(low), int(high or low)
        if last < first:
            raise ValueError(f"{shown}: the range {piece.strip()} runs backwards")
        n_names += last - first + 1
        if n_names > MAX_NAMES:
            raise ValueError(f"{shown} stands for more than {MAX_NAMES} names")
        found.append((first, last))
    return stem, found, tail


_GPU = re.compile(r"gpu(\d+)", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"(?:NV|XGMI)?(\d{1,4})", re.IGNORECASE | re.ASCII)
_NONE = {"SYS", "NODE", "PHB", "PXB", "PIX", "SOC", "-", "X"}


def read_matrix(text: str) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return the numbers of the GPUs with a row in a matrix, and links (a, b, count), a < b; or ValueError of all."""
    columns, rows = _table(text)
    order = columns if columns is not None else list(rows)
    if sorted(order) != sorted(rows):
        raise ValueError("matrix: the header and the rows do not name the same GPUs")
    if len(order) < 2:
        raise ValueError("matrix: needs at least two rows")
    counts: dict[tuple[int, int], int] = {}
    faults: list[str] = []
    for a in order:
        if len(rows[a]) < len(order):
            faults.append(f"matrix: row gpu{a} has {len(rows[a])} cells for {len(order)} GPUs")
        for b, cell in zip(order, rows[a], strict=False):
            try:
                counts[a, b] = _count(a, b, cell)
            except ValueError as error:
                faults.append(str(error))
        for cell in rows[a][len(order) :] if columns is None else ():
            if cell.upper().startswith(("NV", "XGMI")):
                faults.append(f"matrix: row gpu{a} has {cell} in a column for which there is no row")
    for (a, b), count_ab in counts.items():
        count_ba = counts.get((b, a), count_ab)
        if order.index(a) < order.index(b) and count_ba != count_ab:
            faults.append(f"matrix: gpu{a} to gpu{b} has {count_ab} links, but gpu{b} to gpu{a} has {count_ba}")
    if faults:
        raise ValueError(*faults)
    return sorted(order), [(a, b, n) for (a, b), n in sorted(counts.items()) if a < b and n]


def _table(text: str) -> tuple[list[int] | None, dict[int, list[str]]]:
    """Return the GPUs that the header names, None without a header, and the cells of each GPU's row."""
    rows: dict[int, list[str]] = {}
    columns: list[int] | None = None
    named = False
    for words in map(str.split, text.splitlines()):
        if not words or words[0].startswith("#"):
            continue
        numbers = [_GPU.fullmatch(word) for word in words]
        if len(words) > 1 and numbers[0] and numbers[1]:
            columns = [int(m.group(1)) for m in numbers if m]
        elif numbers[0] is not None:
            named = True
            number = int(numbers[0].group(1))
            if number in rows:
                raise ValueError(f"matrix: gpu{number} has two rows")
            rows[number] = words[1:]
        elif named:
            continue  # rows of NICs, or the legend below the matrix
        elif rows or words[0].upper() in _NONE or _COUNT.fullmatch(words[0]):
            rows[len(rows)] = words
        else:
            raise ValueError(f"matrix: a row starts with a GPU (gpu0) or a cell (X, NV1, SYS); got {words[0]!r}")
    return columns, rows


def _count(a: int, b: int, cell: str) -> int:
    place = f"row gpu{a}, column gpu{b}"
    if (cell.upper() == "X") != (a == b) and cell != "0":
        raise ValueError(f"matrix: {place}: X belongs on the diagonal and only there; got {cell!r}")
    count = _COUNT.fullmatch(cell)
    if count is None and cell.upper() not in _NONE:
        raise ValueError(f"matrix: {place}: {cell!r} is no count such as NV2, 2 or SYS")
    return int(count.group(1)) if count else 0


_WRITTEN = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<currency>[^\W\d_]{1,8}|[$€£¥])?")


@dataclass(frozen=True, slots=True)
class Price:
    """An ``amount`` per hour in a ``currency``, which is empty if not stated."""

    amount: float
    currency: str = ""

    def times(self, count: float) -> "Price":
        """Return the price multiplied by *count*."""
        return Price(self.amount * count, self.currency)

    def words(self) -> str:
        """Return the amount, with four digits, and its currency."""
        digits = f"{self.amount:,.0f}" if self.amount >= 1000 else f"{self.amount:.4g}"
        return f"{digits} {self.currency}".rstrip()


def summed(prices: Iterable[Price | None]) -> Price | None:
    """Return the sum of *prices*; None if any is unknown, or if currencies differ."""
    known = list(prices)
    found = [price for price in known if price is not None]
    if not found or len(found) < len(known) or len({price.currency for price in found}) > 1:
        return None
    return Price(sum(price.amount for price in found), found[0].currency)


def read_price(value: object) -> "Price":
    """Return the price that *value* writes (31.22, or 31.22 USD); raises ValueError."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    match = _WRITTEN.fullmatch(text)
    if match is None or not 0 < float(match["amount"]) < math.inf:
        found = one_line(repr(value), 40)
        raise ValueError(f"needs a number above 0, with its currency if you like, for example 31.22 USD; got {found}")
    return Price(float(match["amount"]), match["currency"] or "")


PriceField = Annotated[
    Price,
    BeforeValidator(lambda value: value if isinstance(value, Price) else read_price(value)),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^\d"}]}),
]
"""A number, or text such as ``31.22 USD``."""


MAX_NODES = 16384  # 131,072 GPUs in nodes of 8
PeerLevel = Literal["none", "pix", "pxb", "phb", "sys"]


class DeviceSpec(Strict):
    """One device, or a range of equal ones (``gpu[0-7]``)."""

    part: str | None = told("Name of a part; instead of kind")
    kind: DeviceKind | None = told("What it is, where no part is named")
    memory_size: MemorySize | None = told("Of a GPU or a CPU, in place of the part's")
    memory_bandwidth: Bandwidth | None = told("Of a GPU or a CPU, in place of the part's")
    core_count: int | None = told("Of a CPU, in place of the part's: what a cloud lends", gt=0)
    numa_nodes: int | None = told("Of a CPU, in place of the part's: as its firmware is set", gt=0)
    thread_count: int | None = told("Of a CPU; left out: as many a core as the part has", gt=0)
    latency: Duration | None = told("Of a switch or a NIC, in place of the part's")
    bandwidth: Bandwidth | None = told("Of a NIC, in place of the part's")
    gpudirect: bool | None = told("Of a NIC, in place of the part's: reads and writes GPU memory")
    source: str = told("Where this comes from", "")


class _LinkFigures(Strict):
    part: str | None = told("Name of a link part")
    kind: LinkKind | None = told("Kind of link, where no part is named")
    bandwidth: Bandwidth | None = told("Nominal, one direction, of one link")
    efficiency: float | None = told("Share of it that large transfers reach", ge=0.001, le=1)
    latency: Duration | None = told("One hop")
    source: str = told("Where this comes from", "")


class LinkSpec(_LinkFigures):
    """Links between devices: ``between: [a, b]``, each end a name or a range."""

    between: tuple[str, str] = Field(..., description="Two ends; ranges of equal length pair up, a single name repeats")
    part: str | None = told("Name of a link part; its figures may be overridden here")
    duplex: Duplex | None = told("half: both directions share the bandwidth")
    count: int = told("Parallel links of this kind between the two ends", 1, ge=1, le=1024)


class MeshSpec(_LinkFigures):
    """Links between GPUs as a matrix of counts, as ``nvidia-smi topo -m`` prints it."""

    matrix: str = Field(..., description="A row a GPU: X on the diagonal, NV2 or 2 for two links, other words for none")


class TransportSpec(Strict):
    """How far GPUs and NICs reach each other without the host's memory."""

    peer_to_peer: PeerLevel | None = told(
        "Farthest pair of GPUs that copy directly over PCIe: "
        "pix one switch, pxb several switches, phb through the CPU's root, sys across sockets; left out: pxb, none "
        "for GPUs that cannot (pcie_peers), and with NCCL sys for two GPUs beside AMD's CPUs"
    )
    gpudirect_rdma: PeerLevel = told("The same for a GPU and a NIC", "pxb")
    pxn: bool = told("Whether a GPU may send over a neighbour's adapter (NCCL_PXN_DISABLE)", True)
    least_channels: int = told("The fewest channels of NCCL (NCCL_MIN_NCHANNELS)", 1, ge=1, le=64)
    peer_channels: int | None = told("NCCL_NCHANNELS_PER_NET_PEER; left out: by NCCL", ge=1, le=64)
    most_channels: int = told("The most channels of NCCL (NCCL_MAX_NCHANNELS)", 64, ge=1, le=64)

    @field_validator("peer_to_peer", "gpudirect_rdma", mode="before")
    @classmethod
    def _as_nvidia_smi_says(cls, value: object) -> object:
        """Translate nvidia-smi's words: NODE is one socket, as phb; SOC is the former name of SYS."""
        return {"node": "phb", "soc": "sys"}.get(value.lower(), value.lower()) if isinstance(value, str) else value

    source: str = told("Where this comes from", "")


class GroupSpec(Strict):
    """Equal nodes of a cluster."""

    node: str = Field(..., description="A built-in topology, a path beside this file, or a GPU or CPU of the catalogue")
    nodes: int = told("How many", 1, ge=1, le=MAX_NODES)
    fabric: str | None = told("Link part between each NIC and the network; left out: the cluster's", None)
    uplink: str | None = told("Link part from a network of the group's own to the cluster's; left out: none", None)


class MessagesSpec(Strict):
    """Processor time of messages without adapters that do the work: LogP's overhead (Culler, 1993), and rounds."""

    message: Duration = told("A host's processor, for each message that it sends or receives", 0.0)
    round: Duration = told("The same for each round: to be woken, to wait for what was posted", 0.0)
    processors: int | None = told("So many that all hosts share, as virtual machines do; left out: none", ge=1, le=4096)
    source: str = told("Where the figures come from", "")


NO_COSTS = MessagesSpec.model_construct()  # adapters do all the work


class ClusterSpec(Strict):
    """Nodes on one network: ``node`` and ``nodes`` where all are equal, else ``groups``."""

    node: str | None = told("A built-in topology or a path beside this file")
    nodes: int | None = told("How many", ge=1, le=MAX_NODES)
    groups: tuple[GroupSpec, ...] = told("In place of both: groups of equal nodes, in order", ())
    fabric: str | None = told("Link part from each NIC to the network, or an Ethernet rate; left out: the NIC's own")
    switch: str | None = told("Switch part of the network; left out: one switch without limits")
    oversubscription: float = told("Sum of the NICs over what the network carries at once", 1.0, ge=1, le=1000)
    messages: MessagesSpec = told("What messages cost the hosts; left out: nothing", NO_COSTS)

    @model_validator(mode="after")
    def _says_which_nodes(self) -> Self:
        if self.groups and (self.node is not None or self.nodes is not None):
            raise ValueError("groups say which nodes there are; leave out node and nodes")
        if not self.groups and (self.node is None or self.nodes is None):
            raise ValueError("needs node and nodes, or groups, for example [{node: p3.16xlarge, nodes: 8}]")
        return self


class TopologyFile(Strict):
    """A machine or a cluster."""

    schema_version: Literal[1] = Field(..., description="1")
    name: str = Field(..., min_length=1, max_length=200)
    description: str = ""
    aliases: tuple[str, ...] = told("Names under which tables of measurements list this machine", ())
    source: str = told("Where the structure comes from; starts with UNVERIFIED where nobody read it", "")
    trays: int = told("Computers whose GPUs share its NVLinks, each as many; tables call them nodes", 1, ge=1, le=1024)
    price_per_hour: PriceField | None = told("What all of it costs, for example 31.22 USD; none is built in")
    power_budget: Power | None = told("What all GPUs of the machine may draw together, each an equal share")
    shared_network: Share | None = told("Other jobs use the network between machines: how much lower its rates may be")
    parts: dict[str, OwnPart] = told("Parts of your own, beside those of the catalogue", {})
    devices: dict[str, DeviceSpec] = told("Name or range, for example gpu[0-7], and what it is", {})
    links: tuple[LinkSpec, ...] = ()
    meshes: tuple[MeshSpec, ...] = ()
    transport: TransportSpec = TransportSpec.model_construct()
    cluster: ClusterSpec | None = None
