"""Parts, the models of devices and links of which machines are composed, each a file of topologies/parts."""

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
DeviceKind = Literal["gpu", "cpu", "nic", "storage", "pcie-switch", "nvlink-switch", "network-switch"]


def told(description: str, default: Any = None, **more: Any) -> Any:
    """Return a field that may be left out, with its *description* in the schema."""
    return Field(default, description=description, **more)


class Strict(BaseModel):
    """Base of all models: frozen, without unknown keys or infinite numbers; each is built when it is first used."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )


class Part(Strict):
    """The fields that all parts share."""

    description: str = told("What it is, in a few words", "")
    aliases: tuple[str, ...] = told("Other names of the same part, as tables of measurements list it", ())
    pci_ids: tuple[str, ...] = told("Vendor and device, as PCI names them: 10de:1eb8", ())
    source: str = told("Where the figures come from; starts with UNVERIFIED where nobody read it", "")
    sources: dict[str, str] = told("Source of a single figure, by its key", {})

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
    vendor: Literal["nvidia", "amd", "other"] = told("Maker", "nvidia")
    architecture: str = told("For example Volta GV100", "")
    compute_capability: str | None = told('For example "7.0"', pattern=r"^\d+\.\d+$")
    sm_count: int | None = told("Streaming multiprocessors or compute units", gt=0)
    base_clock: Frequency | None = told("Guaranteed clock")
    boost_clock: Frequency | None = told("Clock that the peak rates assume")
    max_clock: Frequency | None = told("Highest where power allows; left out: boost_clock, or as above_boost says")
    above_boost: bool = told("A board, most often for gamers, that exceeds boost_clock as far as power allows", False)
    peak: dict[str, FlopRate] = told("Dense, by precision: fp64, fp32, tf32, fp16, bf16, fp8, int8, int4, nvfp4", {})
    memory_size: MemorySize | None = told("Device memory")
    memory_bandwidth: Bandwidth | None = told("Peak of the device memory")
    inline_ecc: bool = told("Check bits are kept in the device memory itself: GDDR with error correction on", False)
    l2_size: Size | None = told("Last-level cache")
    l1_size_per_sm: Size | None = told("L1 and shared memory of one SM together")
    shared_memory_per_sm: Size | None = told("Shared memory of one SM at most")
    shared_memory_latency: Duration | None = told("One load from shared memory")
    l1_latency: Duration | None = told("One load that the L1 serves")
    l2_latency: Duration | None = told("One load that the last-level cache serves")
    memory_latency: Duration | None = told("One load from device memory, its address translated")
    board_power: Power | None = told("Board power limit")
    unified_memory: bool = told("Its memory is its CPU's (GB10): nothing is staged between them", False)
    pcie_peers: bool = told("Copies directly to GPUs over PCIe; NVIDIA's driver: not GeForce and Titan RTX", True)
    nvlink_count: int | None = told("NVLink ports", ge=0)


class CacheLevel(Strict):
    """One level of a CPU's cache."""

    size: Size
    latency: Duration
    bandwidth: Bandwidth | None = told("Of one cache of this level, for all cores that share it")
    shared_by_cores: int = told("Cores that share one cache of this level", 1, gt=0)
    ways: int = told("Lines that a set of it holds", 8, gt=0, le=1024)
    bytes_per_cycle: float | None = told("What a core draws from it in a cycle; left out: as most do", gt=0, le=1024)
    memory_bandwidth: Bandwidth | None = told("From a cache of this level, and its cores, to memory; else no limit")
    neighbours: Bandwidth | None = told("What cores that share it, and are not described, read through it meanwhile")


class TlbLevel(Strict):
    """One level of the buffer of translated addresses (TLB)."""

    entries: int = Field(..., gt=0, description="Pages of the smallest size that it knows")
    large_entries: int | None = told("Pages of 2 MiB; left out: as many as entries", ge=0)
    latency: Duration = told("What a translation found here, and not nearer, takes", 0.0)


class LineMoves(Strict):
    """What a load or a store waits for a cache line that another core has."""

    shared: Duration = Field(..., description="It lies unchanged in another core's cache of the same socket")
    modified: Duration = Field(..., description="Another core of the same socket has written it")
    remote: Duration | None = told("A core of another socket has it")


class DramSpec(Strict):
    """How the memory behind a socket is built."""

    banks: int = told("Banks, of all channels together, that work independently of each other", 1, gt=0)
    bank_cycle: Duration | None = told("How long one is busy with an address; left out: the latency to the first word")
    channels: int = told("Channels", 1, gt=0)
    interleave: Size | None = told("Bytes that lie on one channel before the next's; left out: addresses are scattered")


class CpuPart(Part):
    """One socket (or one NUMA domain) with its caches and its memory."""

    kind: Literal["cpu"]
    vendor: Literal["intel", "amd", "arm", "ibm", "other"] = told("Maker", "other")
    architecture: str = told("For example Broadwell", "")
    core_count: int | None = told("Physical cores", gt=0)
    thread_count: int | None = told("Hardware threads", gt=0)
    clock: Frequency | None = told("Base clock")
    turbo_clock: Frequency | None = told("Highest clock of one core alone")
    vector_clock: Frequency | None = told("Of all cores while they compute with vectors; left out: the base clock")
    vector_bits: int | None = told("Width of a vector register", gt=0)
    flop_per_cycle: dict[str, Annotated[int, Field(gt=0)]] = told(
        "FLOPs of one core in a cycle by precision: fp64, fp32, fp16, bf16, int8; others it has not", {}
    )
    memory_size: MemorySize | None = told("Memory attached to this socket")
    memory_bandwidth: Bandwidth | None = told("What all channels together sustain")
    numa_nodes: int = told("NUMA nodes of the socket, which divide its channels", 1, gt=0)
    memory_latency: Duration | None = told("First word, local")
    core_bandwidth: Bandwidth | None = told("What one core alone sustains from memory")
    lines_in_flight: int | None = told("Lines of a stream that a core, with prefetchers, awaits", gt=0, le=4096)
    caches: dict[str, CacheLevel] = told("Levels by name: l1, l2, l3", {})
    tlb: dict[str, TlbLevel] = told("Buffers of translated addresses by name: l1, l2; none: no cost", {})
    nested_page: Size | None = told("Of a guest: pages in which its host maps its memory; walks go through two tables")
    dram: DramSpec | None = told("Banks and channels of its memory; left out: they bound nothing")
    line_moves: LineMoves | None = told("Of a line that another core has")
    core_latency: dict[Literal["fma", "branch-miss", "mutex"], Duration] = told(
        "Of one core: a fused multiply-add, a branch predicted wrongly, locking and unlocking a mutex", {}
    )
    pcie_lanes: int | None = told("PCIe lanes of the socket, of all its devices together", gt=0)


class SwitchPart(Part):
    """A switch: inside a node (PCIe, NVLink) or between nodes."""

    kind: Literal["switch"]
    of: Literal["pcie", "nvlink", "network"] = Field(..., description="What it switches")
    latency: Duration = told("Added to each passage", 0.0)
    forwarding: Literal["cut-through", "store-and-forward"] = told("When a packet is sent on", "cut-through")
    packet: Size = told("Packet that a store-and-forward switch holds whole", 0.0)
    fabric_bandwidth: Bandwidth | None = told("All ports together; left out: no limit")
    port_count: int | None = told("Ports", gt=0)


class NicPart(Part):
    """A network adapter."""

    kind: Literal["nic"]
    network: Literal["ethernet", "infiniband", "efa", "omnipath"] = Field(..., description="What it speaks")
    bandwidth: Bandwidth = Field(..., description="Line rate of all its ports together, per direction")
    efficiency: float = told("Share of the line rate that large messages reach", 1.0, ge=0.001, le=1)
    flow_bandwidth: Bandwidth | None = told("Bandwidth of one TCP flow over its network; left out: its own")
    latency: Duration = told("One message through the adapter, one way", 0.0)
    plugin_latency: Duration = told("What a collective library's plugin tells it to plan for a hop", 0.0)
    plugin_time: Duration = told("What that plugin takes for a message, on top of the adapter", 0.0)
    in_order: bool = told("Whether each 128 bytes arrive whole and in order, as NCCL's LL needs", True)
    algorithms: tuple[Literal["ring", "tree"], ...] = told("Those its setup leaves NCCL between nodes; else all", ())
    gpudirect: bool = told("Reads and writes GPU memory without the host", False)


class StoragePart(Part):
    """A disk, a volume, or a memory module that keeps what it holds."""

    kind: Literal["storage"]
    of: Literal["disk", "flash", "volume", "dimm"] | None = told("Turns; an SSD; lent over a network; read like memory")
    rpm: int | None = told("Turns a minute, of a disk", gt=0)
    seek: Duration | None = told("Of a disk, from one track to another on average")
    outer_track: Length | None = told("Diameter of a disk's outermost track")
    inner_track: Length | None = told("Diameter of its innermost track")
    areal_density: Density | None = told("Bits on a square inch of a platter")
    bit_aspect: float | None = told("Width of a track over the length of a bit", gt=0, le=100)
    parallel: int | None = told("Requests that it serves at once; left out: one of a disk, else as many as come", gt=0)
    write_block: Size | None = told("Of flash: what is erased at once; smaller writes in place rewrite it whole")
    burst_rate: Rate | None = told("Operations a second of a volume while its credits last")
    burst_credits: int | None = told("Operations that full credits hold", gt=0)
    size: Size | None = told("Capacity")
    read_bandwidth: Bandwidth | None = told("Large sequential reads")
    write_bandwidth: Bandwidth | None = told("Large sequential writes")
    read_latency: Duration | None = told("One small random read")
    write_latency: Duration | None = told("One small write")
    operation_rate: Rate | None = told("Operations a second at depth")


class LinkPart(Part):
    """A kind of link.  Figures are for one direction."""

    kind: Literal["link"]
    of: LinkKind = Field(..., description="Which rules of transport apply")
    bandwidth: Bandwidth = Field(..., description="Nominal, one direction")
    efficiency: float = told("Share of the nominal bandwidth that large transfers reach", 1.0, ge=0.001, le=1)
    latency: Duration = told("One hop over the link", 0.0)
    duplex: Duplex = told("half: both directions share the bandwidth", "full")
    lanes: int | None = told("Of PCIe: lanes that it takes of a CPU or a switch", gt=0)


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
