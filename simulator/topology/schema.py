"""The YAML of a machine or a cluster, as pydantic models.

A file describes either one node (``devices``, ``links``, ``meshes``) or a cluster (``cluster``).  ``docs/topology.md``
explains the format; editors use the JSON Schema made from these models (``topologies/topology.schema.json``).
"""

import math
import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from simulator.errors import one_line
from simulator.records import dataclass
from simulator.topology.parts import Duplex, LinkKind, OwnPart, Strict
from simulator.units import Bandwidth, Duration, MemorySize

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

    part: str | None = Field(None, description="Name of a part; instead of kind")
    kind: Literal["gpu", "cpu", "nic", "storage", "pcie-switch", "nvlink-switch", "network-switch"] | None = Field(
        None, description="What it is, where no part is named"
    )
    memory_size: MemorySize | None = Field(None, description="Of a GPU or a CPU, in place of the part's")
    memory_bandwidth: Bandwidth | None = Field(None, description="Of a GPU or a CPU, in place of the part's")
    core_count: int | None = Field(None, gt=0, description="Of a CPU, in place of the part's: what a cloud lends")
    thread_count: int | None = Field(None, gt=0, description="Of a CPU; left out: as many a core as the part has")
    latency: Duration | None = Field(None, description="Of a switch or a NIC, in place of the part's")
    bandwidth: Bandwidth | None = Field(None, description="Of a NIC, in place of the part's")
    gpudirect: bool | None = Field(None, description="Of a NIC, in place of the part's: reads and writes GPU memory")
    source: str = Field("", description="Where this comes from")


class _LinkFigures(Strict):
    part: str | None = Field(None, description="Name of a link part")
    kind: LinkKind | None = Field(None, description="Kind of link, where no part is named")
    bandwidth: Bandwidth | None = Field(None, description="Nominal, one direction, of one link")
    efficiency: float | None = Field(None, ge=0.001, le=1, description="Share of it that large transfers reach")
    latency: Duration | None = Field(None, description="One hop")
    source: str = Field("", description="Where this comes from")


class LinkSpec(_LinkFigures):
    """Links between devices: ``between: [a, b]``, each end a name or a range."""

    between: tuple[str, str] = Field(..., description="Two ends; ranges of equal length pair up, a single name repeats")
    part: str | None = Field(None, description="Name of a link part; its figures may be overridden here")
    duplex: Duplex | None = Field(None, description="half: both directions share the bandwidth")
    count: int = Field(1, ge=1, le=1024, description="Parallel links of this kind between the two ends")


class MeshSpec(_LinkFigures):
    """Links between GPUs as a matrix of counts, as ``nvidia-smi topo -m`` prints it."""

    matrix: str = Field(
        ..., description="One row a GPU: X on the diagonal, NV2 or 2 for two links, other words for none"
    )


class TransportSpec(Strict):
    """How far GPUs and NICs reach each other without the host's memory."""

    peer_to_peer: PeerLevel | None = Field(
        None,
        description="Farthest pair of GPUs that copy directly over PCIe: "
        "pix one switch, pxb several switches, phb through the CPU's root, sys across sockets; left out: pxb, none "
        "for GPUs that cannot (pcie_peers), and with NCCL sys for two GPUs beside AMD's CPUs",
    )
    gpudirect_rdma: PeerLevel = Field("pxb", description="The same for a GPU and a NIC")
    pxn: bool = Field(True, description="Whether a GPU may send over a neighbour's adapter (NCCL_PXN_DISABLE)")
    least_channels: int = Field(1, ge=1, le=64, description="The fewest channels of NCCL (NCCL_MIN_NCHANNELS)")
    peer_channels: int | None = Field(None, ge=1, le=64, description="NCCL_NCHANNELS_PER_NET_PEER; left out: by NCCL")
    most_channels: int = Field(64, ge=1, le=64, description="The most channels of NCCL (NCCL_MAX_NCHANNELS)")

    @field_validator("peer_to_peer", "gpudirect_rdma", mode="before")
    @classmethod
    def _as_nvidia_smi_says(cls, value: object) -> object:
        """Translate nvidia-smi's words: NODE is one socket, as phb; SOC is the former name of SYS."""
        return {"node": "phb", "soc": "sys"}.get(value.lower(), value.lower()) if isinstance(value, str) else value

    source: str = Field("", description="Where this comes from")


class GroupSpec(Strict):
    """Equal nodes of a cluster."""

    node: str = Field(..., description="A built-in topology, a path beside this file, or a GPU or CPU of the catalogue")
    nodes: int = Field(1, ge=1, le=MAX_NODES, description="How many")
    fabric: str | None = Field(None, description="Link part between each NIC and the network; left out: the cluster's")
    uplink: str | None = Field(
        None,
        description="Link part that joins a network of the group's own, another rack's or site's, to that of the "
        "cluster; left out: its NICs are on the cluster's",
    )


class MessagesSpec(Strict):
    """What messages between hosts cost the hosts' processors: sockets of the kernel, where no adapter does the work.

    LogP's overhead (Culler et al., 1993), with what a round costs however many messages it has.
    """

    message: Duration = Field(0.0, description="A host's processor, for each message that it sends or receives")
    round: Duration = Field(0.0, description="The same for each round: to be woken, to wait for what was posted")
    processors: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="So many that all hosts share, namespaces or virtual machines of one computer; left out: none are",
    )
    source: str = Field("", description="Where the figures come from")


NO_COSTS = MessagesSpec.model_construct()  # adapters do all the work


class ClusterSpec(Strict):
    """Nodes on one network: ``node`` and ``nodes`` where all are equal, else ``groups``."""

    node: str | None = Field(None, description="A built-in topology or a path beside this file")
    nodes: int | None = Field(None, ge=1, le=MAX_NODES, description="How many")
    groups: tuple[GroupSpec, ...] = Field((), description="In place of both: groups of equal nodes, in order")
    fabric: str | None = Field(
        None,
        description="Link part between each NIC and the network, or an Ethernet rate (25Gbit/s); "
        "left out: the NIC's own rate",
    )
    switch: str | None = Field(None, description="Switch part of the network; left out: one switch without limits")
    oversubscription: float = Field(
        1.0, ge=1, le=1000, description="Sum of the NICs over what the network carries at once"
    )
    messages: MessagesSpec = Field(NO_COSTS, description="What messages cost the hosts; left out: nothing")

    @model_validator(mode="after")
    def _says_which_nodes(self) -> Self:
        """Refuse a cluster that states its nodes twice, or not at all."""
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
    aliases: tuple[str, ...] = Field((), description="Names under which tables of measurements list this machine")
    source: str = Field("", description="Where the structure comes from; starts with UNVERIFIED where nobody read it")
    trays: int = Field(
        1, ge=1, le=1024, description="Computers whose GPUs share its NVLinks, each as many; tables call them nodes"
    )
    price_per_hour: PriceField | None = Field(
        None, description="What an hour of it costs, a cluster as a whole, for example 31.22 USD; none is built in"
    )
    parts: dict[str, OwnPart] = Field({}, description="Parts of your own, beside those of the catalogue")
    devices: dict[str, DeviceSpec] = Field({}, description="Name or range, for example gpu[0-7], and what it is")
    links: tuple[LinkSpec, ...] = ()
    meshes: tuple[MeshSpec, ...] = ()
    transport: TransportSpec = TransportSpec.model_construct()
    cluster: ClusterSpec | None = None
