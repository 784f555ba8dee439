"""Parts: the models of devices and links from which machines are composed.

Each part has its own YAML file, ``topologies/parts/<kind>/<name>.yaml``, whose name is the part's name.  An unknown
figure is left out, never guessed silently; if the simulator needs it, the error names it.

``source`` is the source of the part's figures; ``sources`` has those of single figures with a different source.  A
source that starts with ``UNVERIFIED`` marks a figure that was neither read in a document nor measured.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core.core_schema import CoreSchema, no_info_plain_validator_function

from simulator.errors import one_line
from simulator.units import Bandwidth, Density, Duration, FlopRate, Frequency, Length, MemorySize, Power, Rate, Size

LinkKind = Literal["nvlink", "xgmi", "pcie", "socket", "c2c", "ethernet", "infiniband", "efa", "omnipath", "storage"]
GPU_LINKS = frozenset(("nvlink", "xgmi"))
NETWORK_LINKS = frozenset(("ethernet", "infiniband", "efa", "omnipath"))
Duplex = Literal["full", "half"]


class Strict(BaseModel):
    """Base of all models: frozen, without unknown keys or infinite numbers; each is built when it is first used."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )


class Part(Strict):
    """The fields that all parts share."""

    description: str = Field("", description="What it is, in a few words")
    aliases: tuple[str, ...] = Field((), description="Other names of the same part, as tables of measurements list it")
    pci_ids: tuple[str, ...] = Field((), description="Vendor and device, as PCI names them: 10de:1eb8")
    source: str = Field("", description="Where the figures come from; starts with UNVERIFIED where nobody read it")
    sources: dict[str, str] = Field({}, description="Source of a single figure, by its key")

    @model_validator(mode="after")
    def _sources_name_figures(self) -> Self:
        known = set(type(self).model_fields)
        for key in self.sources:
            if key.split(".")[0] not in known:
                raise ValueError(f"sources names '{one_line(key, 60)}', which is no key of this part")
        return self


class GpuPart(Part):
    """A GPU (one die where a board holds several)."""

    kind: Literal["gpu"]
    vendor: Literal["nvidia", "amd", "other"] = Field("nvidia", description="Maker")
    architecture: str = Field("", description="For example Volta GV100")
    compute_capability: str | None = Field(None, pattern=r"^\d+\.\d+$", description='For example "7.0"')
    sm_count: int | None = Field(None, gt=0, description="Streaming multiprocessors or compute units")
    base_clock: Frequency | None = Field(None, description="Guaranteed clock")
    boost_clock: Frequency | None = Field(None, description="Clock that the peak rates assume")
    max_clock: Frequency | None = Field(
        None, description="Highest clock where power allows; left out: boost_clock, or as above_boost says"
    )
    above_boost: bool = Field(
        False, description="A board, for gamers most often, that runs above the boost clock as far as power allows"
    )
    peak: dict[str, FlopRate] = Field(
        {}, description="Dense peak rate by precision: fp64, fp32, tf32, fp16, bf16, fp8, int8, int4, nvfp4"
    )
    memory_size: MemorySize | None = Field(None, description="Device memory")
    memory_bandwidth: Bandwidth | None = Field(None, description="Peak of the device memory")
    inline_ecc: bool = Field(
        False, description="Check bits are kept in the device memory itself: GDDR with error correction on"
    )
    l2_size: Size | None = Field(None, description="Last-level cache")
    l1_size_per_sm: Size | None = Field(None, description="L1 and shared memory of one SM together")
    shared_memory_per_sm: Size | None = Field(None, description="Shared memory of one SM at most")
    shared_memory_latency: Duration | None = Field(None, description="One load from shared memory")
    l1_latency: Duration | None = Field(None, description="One load that the L1 serves")
    l2_latency: Duration | None = Field(None, description="One load that the last-level cache serves")
    memory_latency: Duration | None = Field(None, description="One load from device memory, its address translated")
    board_power: Power | None = Field(None, description="Board power limit")
    unified_memory: bool = Field(False, description="Its memory is its CPU's (GB10): nothing is staged between them")
    pcie_peers: bool = Field(
        True, description="Copies directly to other GPUs over PCIe; NVIDIA's driver does not for GeForce and Titan RTX"
    )
    nvlink_count: int | None = Field(None, ge=0, description="NVLink ports")


class CacheLevel(Strict):
    """One level of a CPU's cache."""

    size: Size
    latency: Duration
    bandwidth: Bandwidth | None = Field(None, description="Of one cache of this level, for all cores that share it")
    shared_by_cores: int = Field(1, gt=0, description="Cores that share one cache of this level")
    ways: int = Field(8, gt=0, le=1024, description="Lines that a set of it holds")
    bytes_per_cycle: float | None = Field(
        None, gt=0, le=1024, description="What one core draws from it in a cycle; left out: as most cores"
    )
    memory_bandwidth: Bandwidth | None = Field(
        None, description="The way from one cache of this level, and its cores, to memory; left out: no limit"
    )
    neighbours: Bandwidth | None = Field(
        None, description="What cores that share it with these, and are not described, read through it meanwhile"
    )


class TlbLevel(Strict):
    """One level of the buffer of translated addresses (TLB)."""

    entries: int = Field(..., gt=0, description="Pages of the smallest size that it knows")
    large_entries: int | None = Field(None, ge=0, description="Pages of 2 MiB; left out: as many as entries")
    latency: Duration = Field(0.0, description="What a translation found here, and not nearer, takes")


class LineMoves(Strict):
    """What a load or a store waits for a cache line that another core has."""

    shared: Duration = Field(..., description="It lies unchanged in another core's cache of the same socket")
    modified: Duration = Field(..., description="Another core of the same socket has written it")
    remote: Duration | None = Field(None, description="A core of another socket has it")


class DramSpec(Strict):
    """How the memory behind a socket is built."""

    banks: int = Field(1, gt=0, description="Banks, of all channels together, that work independently of each other")
    bank_cycle: Duration | None = Field(
        None, description="How long one is busy with an address; left out: the latency to the first word"
    )
    channels: int = Field(1, gt=0, description="Channels")
    interleave: Size | None = Field(
        None, description="Bytes that lie on one channel before the next one's; left out: addresses are scattered"
    )


class CpuPart(Part):
    """One socket (or one NUMA domain) with its caches and its memory."""

    kind: Literal["cpu"]
    vendor: Literal["intel", "amd", "arm", "ibm", "other"] = Field("other", description="Maker")
    architecture: str = Field("", description="For example Broadwell")
    core_count: int | None = Field(None, gt=0, description="Physical cores")
    thread_count: int | None = Field(None, gt=0, description="Hardware threads")
    clock: Frequency | None = Field(None, description="Base clock")
    turbo_clock: Frequency | None = Field(None, description="Highest clock of one core alone")
    vector_clock: Frequency | None = Field(
        None, description="Clock of all cores while they compute with vectors; left out: the base clock"
    )
    vector_bits: int | None = Field(None, gt=0, description="Width of a vector register")
    flop_per_cycle: dict[str, Annotated[int, Field(gt=0)]] = Field(
        {}, description="FLOPs of one core in a cycle by precision: fp64, fp32, fp16, bf16, int8; others it has not"
    )
    memory_size: MemorySize | None = Field(None, description="Memory attached to this socket")
    memory_bandwidth: Bandwidth | None = Field(None, description="What all channels together sustain")
    memory_latency: Duration | None = Field(None, description="First word, local")
    core_bandwidth: Bandwidth | None = Field(None, description="What one core alone sustains from memory")
    lines_in_flight: int | None = Field(
        None, gt=0, le=4096, description="Lines of a stream that one core awaits at once, its prefetchers' among them"
    )
    caches: dict[str, CacheLevel] = Field({}, description="Levels by name: l1, l2, l3")
    tlb: dict[str, TlbLevel] = Field({}, description="Buffers of translated addresses by name: l1, l2; none: no cost")
    nested_page: Size | None = Field(
        None, description="Of a guest: the pages in which its host maps its memory; walks then go through two tables"
    )
    dram: DramSpec | None = Field(None, description="Banks and channels of its memory; left out: they bound nothing")
    line_moves: LineMoves | None = Field(None, description="Of a line that another core has")
    core_latency: dict[Literal["fma", "branch-miss", "mutex"], Duration] = Field(
        {}, description="Of one core: a fused multiply-add, a branch predicted wrongly, locking and unlocking a mutex"
    )
    pcie_lanes: int | None = Field(None, gt=0, description="PCIe lanes of the socket, of all its devices together")


class SwitchPart(Part):
    """A switch: inside a node (PCIe, NVLink) or between nodes."""

    kind: Literal["switch"]
    of: Literal["pcie", "nvlink", "network"] = Field(..., description="What it switches")
    latency: Duration = Field(0.0, description="Added to each passage")
    forwarding: Literal["cut-through", "store-and-forward"] = Field(
        "cut-through", description="Whether a packet is received whole before it is sent on"
    )
    packet: Size = Field(0.0, description="Packet that a store-and-forward switch holds whole")
    fabric_bandwidth: Bandwidth | None = Field(None, description="All ports together; left out: no limit")
    port_count: int | None = Field(None, gt=0, description="Ports")


class NicPart(Part):
    """A network adapter."""

    kind: Literal["nic"]
    network: Literal["ethernet", "infiniband", "efa", "omnipath"] = Field(..., description="What it speaks")
    bandwidth: Bandwidth = Field(..., description="Line rate of all its ports together, per direction")
    efficiency: float = Field(1.0, ge=0.001, le=1, description="Share of the line rate that large messages reach")
    flow_bandwidth: Bandwidth | None = Field(
        None, description="Bandwidth of one TCP flow over its network; left out: its own"
    )
    latency: Duration = Field(0.0, description="One message through the adapter, one way")
    plugin_latency: Duration = Field(0.0, description="What a collective library's plugin tells it to plan for a hop")
    plugin_time: Duration = Field(0.0, description="What that plugin takes for a message, on top of the adapter")
    in_order: bool = Field(True, description="Whether each 128 bytes arrive whole and in order, as NCCL's LL needs")
    algorithms: tuple[Literal["ring", "tree"], ...] = Field(
        (), description="Algorithms that its setup leaves NCCL between nodes; left out: all"
    )
    gpudirect: bool = Field(False, description="Reads and writes GPU memory without the host")


class StoragePart(Part):
    """A disk, a volume, or a memory module that keeps what it holds."""

    kind: Literal["storage"]
    of: Literal["disk", "flash", "volume", "dimm"] | None = Field(
        None, description="disk: turns; flash: an SSD; volume: lent over a network; dimm: read like memory"
    )
    rpm: int | None = Field(None, gt=0, description="Turns a minute, of a disk")
    seek: Duration | None = Field(None, description="Of a disk, from one track to another on average")
    outer_track: Length | None = Field(None, description="Diameter of a disk's outermost track")
    inner_track: Length | None = Field(None, description="Diameter of its innermost track")
    areal_density: Density | None = Field(None, description="Bits on a square inch of a platter")
    bit_aspect: float | None = Field(None, gt=0, le=100, description="Width of a track over the length of a bit")
    parallel: int | None = Field(
        None,
        gt=0,
        description="Requests that it serves at the same time; left out: one of a disk, else as many as come",
    )
    write_block: Size | None = Field(
        None, description="Of flash: what is erased at once; a smaller write in place reads, erases and writes it whole"
    )
    burst_rate: Rate | None = Field(None, description="Operations a second of a volume while its credits last")
    burst_credits: int | None = Field(None, gt=0, description="Operations that full credits hold")
    size: Size | None = Field(None, description="Capacity")
    read_bandwidth: Bandwidth | None = Field(None, description="Large sequential reads")
    write_bandwidth: Bandwidth | None = Field(None, description="Large sequential writes")
    read_latency: Duration | None = Field(None, description="One small random read")
    write_latency: Duration | None = Field(None, description="One small write")
    operation_rate: Rate | None = Field(None, description="Operations a second at depth")


class LinkPart(Part):
    """A kind of link.  Figures are for one direction."""

    kind: Literal["link"]
    of: LinkKind = Field(..., description="Which rules of transport apply")
    bandwidth: Bandwidth = Field(..., description="Nominal, one direction")
    efficiency: float = Field(
        1.0, ge=0.001, le=1, description="Share of the nominal bandwidth that large transfers reach"
    )
    latency: Duration = Field(0.0, description="One hop over the link")
    duplex: Duplex = Field("full", description="half: both directions share the bandwidth")
    lanes: int | None = Field(None, gt=0, description="Of PCIe: lanes that it takes of a CPU or a switch")


AnyPart = Annotated[GpuPart | CpuPart | SwitchPart | NicPart | StoragePart | LinkPart, Field(discriminator="kind")]


@cache
def any_part() -> TypeAdapter[Part]:
    """Return what makes a part of any kind of the keys of a file."""
    return TypeAdapter(AnyPart)


class _WhenThereIsOne:
    """Marks parts whose models are built when the first is there: most machines describe none of their own."""

    @staticmethod
    def __get_pydantic_core_schema__(_: object, __: object) -> CoreSchema:
        return no_info_plain_validator_function(lambda value: any_part().validate_python(value))

    @staticmethod
    def __get_pydantic_json_schema__(
        _schema: object, handler: Callable[[CoreSchema], dict[str, Any]]
    ) -> dict[str, Any]:
        return handler(any_part().core_schema)


OwnPart = Annotated[AnyPart, _WhenThereIsOne()]
