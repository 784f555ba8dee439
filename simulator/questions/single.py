"""Questions about one operation on a machine (an operator, launch, copy, access, ...), or about a program of them."""

from typing import Annotated, ClassVar, Literal, get_args

from simulator.questions.checks import Checked, From
from simulator.questions.where import Where
from simulator.records import dataclass
from simulator.workload.operator import Operator, Phase
from simulator.workload.precision import Precision

Issued = Literal["", "graph", "stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorQuestion(Checked):
    """The time of an operator's kernels in one phase.

    - ``device``: a device of the machine, by its name or its part's; by default its first GPU, or its CPUs.
    - ``channels_last``: images lie in memory pixel by pixel.
    - ``is_cold``: no input or output is in a cache at the start.
    - ``issued``: how a GPU's kernels are launched: ``graph``, from a captured graph; ``stream``, one call after the
      other, so that the host may be slower; empty: without waiting for launches.
    - ``calls``: on a CPU, include the framework's call.
    - ``threads``: threads of a CPU; by default one per core.
    """

    topic: ClassVar[Literal["operator"]] = "operator"

    where: Where
    operator: Operator
    phase: Phase = "fwd"
    precision: Precision = "fp32"
    device: str | None = None
    channels_last: bool = False
    is_cold: bool = False
    issued: Issued = ""
    calls: bool = False
    threads: int | None = None


Launched = Literal["host", "stream", "graph", "device", "staying"]
Call = Literal["", "view", "record", "hold", "wait", "read", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchQuestion(Checked):
    """The time to launch something, and to run it.

    What is launched: an ``operator`` in ``phases``, by a framework that records its tape if ``is_taped``, with
    gradients for ``parameters`` tensors; a captured graph of ``kernels`` such operators; or, without an operator, an
    update of ``parameters`` tensors.  ``timed`` is what counts: the ``host``, until it is free again; one launch after
    the other in a ``stream``, or within a captured ``graph``; the ``device`` alone, with the launch of the captured
    work; or one pass of a kernel ``staying`` on the device, which waits for all its blocks.

    ``call`` is a call without an operator that occupies the host: a ``view``; to ``record`` an event; to make a stream
    wait for one (``hold``); to ``wait`` for a device; to ``read`` one number from an idle device; or to launch an
    ``empty`` kernel, and with ``timed=device`` to wait for it too.
    """

    topic: ClassVar[Literal["launch"]] = "launch"

    where: Where
    timed: Launched
    device: str | None = None
    operator: Operator | None = None
    phases: tuple[Phase, ...] = ("fwd",)
    is_taped: bool = False
    parameters: int = 0
    kernels: int = 0
    precision: Precision = "fp32"
    call: Call = ""


CopyKind = Literal["h2d", "d2h", "d2d", "h2h", "p2p"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQuestion(Checked):
    """The time of a copy of ``size_bytes``, with a simultaneous copy in the other direction if ``both_ways``.

    docs/memory.md tells the kinds and fields.  ``staged``: GPUs copy through host memory even if they could copy
    directly.  ``threads`` copy within the host; None means all.  ``socket``: by default the nearest.  ``fresh`` is for
    pageable memory only.
    """

    topic: ClassVar[Literal["copy"]] = "copy"

    where: Where
    kind: CopyKind
    size_bytes: Annotated[float, From(0, above=True)]
    src: int = 0
    dst: int = 0
    both_ways: bool = False
    pinned: bool = True
    staged: bool = False
    waited: bool = False
    threads: int | None = None
    fresh: bool = False
    socket: str = ""


AccessKind = Literal["stream", "strided", "random", "gather", "chase", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessQuestion(Checked):
    """The time of memory accesses: one pass over ``size_bytes``, or one of many accesses within that much memory.

    docs/memory.md tells the kinds and fields.  ``node``: ``local`` to the core, ``remote`` (of the next socket), or a
    device of the machine.  ``resident`` threads of a GPU run at once; 0: as many as it holds.  ``in_graph``: the calls
    come from a captured graph; ``persistent``: one kernel stays on the device and waits for all its blocks between
    passes.
    """

    topic: ClassVar[Literal["access"]] = "access"

    where: Where
    kind: AccessKind
    size_bytes: Annotated[float, From(0, above=True)]
    device: str | None = None
    reads: int = 1
    writes: int = 0
    element_bytes: int = 8
    rows: int = 0
    row_bytes: int = 0
    stride_bytes: Annotated[float, From(0, above=True)] = 64.0
    each_bytes: Annotated[float, From(0, above=True)] = 8.0
    outstanding: int = 1
    cores: int = 2
    state: Literal["modified", "unchanged"] = "modified"
    node: str = "local"
    page_bytes: Annotated[float, From(0, above=True)] = 4096.0
    level: Literal["global", "scratchpad"] = "global"
    resident: int = 0
    block_threads: int = 0
    backward: bool = False
    misaligned: bool = False
    threads: int | None = None
    in_graph: bool = False
    persistent: bool = False


DiskAccess = Literal["read_sequential", "read_random", "write_sequential", "write_random"]
Track = Literal["", "outer", "inner"]
DISK_ACCESSES: tuple[DiskAccess, ...] = get_args(DiskAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskQuestion(Checked):
    """The time of one block if each of ``threads`` reads or writes blocks one after the other (docs/memory.md).

    ``cached``: memory serves all blocks; ``hit_percent``: this percentage of them.
    """

    topic: ClassVar[Literal["disk"]] = "disk"

    where: Where
    kind: DiskAccess
    block_bytes: Annotated[float, From(0, above=True)]
    threads: int = 1
    cached: bool = False
    hit_percent: int = 0
    sustained: bool = False
    disk: str = ""
    track: Track = ""


Protocol = Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuestion(Checked):
    """The time of a message of ``size_bytes`` from node ``src`` to ``dst``, and back if ``round_trip``.

    ``protocol`` sets the headers on Ethernet, ``mtu_bytes`` the packet size (0: 1500 or 9000, from the link's payload
    fraction).  The path has ``switches`` switches and ``distance_km`` of glass fibre, or of air and space if
    ``in_vacuum``.
    """

    topic: ClassVar[Literal["message"]] = "message"

    where: Where
    size_bytes: Annotated[float, From(0, above=True)]
    protocol: Protocol = "tcp"
    src: int = 0
    dst: int = 1
    mtu_bytes: float = 0.0
    switches: int = 1
    distance_km: int = 0
    in_vacuum: bool = False
    round_trip: bool = False


Operation = Literal["fma", "branch-miss", "mutex"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreQuestion(Checked):
    """The time of ``count`` dependent operations, each of which needs the result of the one before.

    A fused multiply-add, a mispredicted branch, or locking and unlocking an uncontended mutex.
    """

    topic: ClassVar[Literal["core"]] = "core"

    where: Where
    operation: Operation
    device: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramQuestion:
    """The time of the program in the file ``workload``, or in ``text``, and the timeline of its parts.

    ``device`` runs everything that names no device; by default the machine's first GPU, or its CPUs.  ``threads`` are a
    CPU's.  ``compiled`` and ``captured`` apply to all its networks, whatever the file says.
    ``trust_code``: the file may run code (``run: torch:...``).
    """

    topic: ClassVar[Literal["program"]] = "program"

    where: Where
    workload: str
    text: str = ""
    device: str | None = None
    threads: int | None = None
    compiled: bool = False
    captured: bool = False
    trust_code: bool = False


Single = (
    OperatorQuestion | CopyQuestion | AccessQuestion | LaunchQuestion | DiskQuestion | MessageQuestion | CoreQuestion
)
