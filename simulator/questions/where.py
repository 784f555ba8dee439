"""The machine of a question: its topology, number of nodes, links and software; what versions of NCCL can do."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from simulator.errors import InputError, mention, one_line
from simulator.questions.checks import Checked
from simulator.records import dataclass, own_data
from simulator.units import format_duration

NCCL_TODAY = (2, 30)
CpuLibrary = Literal["onednn", "blas", "torch7", "mshadow", "cntk", "eigen"]
Month = tuple[int, int]
"""A year and a month from 1 to 12."""
CPU_LIBRARIES: tuple[CpuLibrary, ...] = get_args(CpuLibrary)
_HERTZ = ((1e9, "GHz"), (1e6, "MHz"), (0.0, "Hz"))
_PASSING = "gpu0-gpu1:0x@10ms..50ms"
_MONTH = re.compile(r"\s*((?:19|20)\d\d)-(0[1-9]|1[0-2])\s*", re.ASCII)
_TORCH = re.compile(r"\s*(?:py)?torch[- =]{0,2}([12]\.\d{1,2})(?:\.\d{1,2})?\s*", re.ASCII | re.IGNORECASE)
TORCH_RELEASE_MONTHS: dict[str, Month] = {
    version: (int(month[:4]), int(month[5:]))
    for version, month in own_data("simulator.questions", "torch.json").items()
}
"""The month of each release of PyTorch, whose wheels hold the kernel libraries of that time
(github.com/pytorch/pytorch/releases)."""
MONTH_NEEDED = (
    "a month is needed, such as 2020-10, or a version of PyTorch, torch-{} to torch-{}; for later ones leave it out"
).format(*(list(TORCH_RELEASE_MONTHS)[at] for at in (0, -1)))


def month_of(text: str) -> Month | None:
    """Return the month *text*, as in 2020-05, or of a version of PyTorch, as in torch-2.1; None where it is neither."""
    torch = _TORCH.fullmatch(text)
    if torch is not None:
        return TORCH_RELEASE_MONTHS.get(torch[1])
    found = _MONTH.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def month_words(month: Month) -> str:
    """Return *month* as the command line takes it: 2020-05."""
    return f"{month[0]}-{month[1]:02d}"


@dataclass(frozen=True, slots=True)
class SlowLink:
    """The links between two devices, in both directions, at ``factor`` of their bandwidth; 0: no links.

    ``ends`` are both names joined by ``-`` (``gpu0-gpu1``).  With times, this holds from ``from_s`` to ``until_s``
    after the start, in place of a factor without times, and choices made before the start (rings, routes) do not
    change.  A link that fails in mid-run must come back, as what crosses it would never end.

    Raises InputError if the factor or the times are none of these.
    """

    ends: str
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf

    @property
    def is_passing(self) -> bool:
        """Whether the change starts or ends during the run."""
        return self.from_s > 0.0 or self.until_s < math.inf

    @property
    def when(self) -> str:
        """The times in words, after a space; empty without them."""
        until = f" to {format_duration(self.until_s)}" if self.until_s < math.inf else " on"
        return f" from {format_duration(self.from_s)}{until}" if self.is_passing else ""

    def __post_init__(self) -> None:
        said = mention("slow_links", one_line(self.ends, 60))
        if not 0.0 <= self.factor <= 1.0:
            raise InputError(f"{said}: must be between 0x (failed) and 1x; got {self.factor:g}x")
        if not 0.0 <= self.from_s < self.until_s:
            got = f"{format_duration(self.from_s)} to {format_duration(self.until_s)}; for example {_PASSING}"
            raise InputError(f"{said}: must begin at 0 s or later, and end after that; got {got}")
        if not self.factor and self.is_passing and self.until_s == math.inf:
            until = f"say until when ({_PASSING}), or leave the time out for a machine without it"
            raise InputError(f"{said}: what crosses a link that fails for good never ends; {until}")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job that moves ``rate_Bps`` between ``ends``, first to second; raises InputError unless above 0 and finite."""

    ends: str
    rate_Bps: float

    def __post_init__(self) -> None:
        if not 0.0 < self.rate_Bps < math.inf:
            said = mention("neighbours", one_line(self.ends, 60))
            raise InputError(f"{said}: must move more than 0 B/s; got {self.rate_Bps:g} B/s")


@dataclass(frozen=True, slots=True)
class Where:
    """A machine: ``topology`` is a path, a built-in name, or a single GPU or CPU of the catalogue.

    ``nodes`` of it are joined by links of the part ``fabric``, or by default of the adapters' own.  ``slow_links``
    change the bandwidth given by the file, and ``neighbours`` take bandwidth away.  ``shared_network``: the share by
    which other jobs may lower the rates between nodes, by default the file's; ``congested``: they do so all the time.
    """

    topology: str
    nodes: int | None = None
    fabric: str | None = None
    slow_links: tuple[SlowLink, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    shared_network: float | None = None
    congested: bool = False


@dataclass(frozen=True, slots=True)
class Software(Checked):
    """Libraries and their versions; current ones by default.

    ``cpu_library`` provides the kernels of CPUs (:mod:`simulator.devices.cpu`).  ``libraries``: the month of
    the GPUs' kernel libraries (cuBLAS, cuDNN) and of the compiler; None: mature ones, and today's compiler.
    ``gpu_clock_Hz``: a clock that the driver holds GPUs to (``nvidia-smi --lock-gpu-clocks`` or
    ``--applications-clocks``, which a Tesla without auto boost keeps to); 0: their own.
    """

    nccl: tuple[int, int] = NCCL_TODAY
    cpu_library: CpuLibrary = "onednn"
    libraries: Month | None = None
    gpu_clock_Hz: float = 0.0

    def _faults(self) -> Iterator[str]:
        if self.nccl < (2, 0):
            yield f"{mention('nccl', '.'.join(map(str, self.nccl)))}: a version such as 2.18 is needed, from 2.0 on"
        if self.libraries is not None and month_of(month_words(self.libraries)) is None:
            yield f"{mention('libraries', month_words(self.libraries))}: {MONTH_NEEDED}"
        if (clock_Hz := self.gpu_clock_Hz) and not 100e6 <= clock_Hz <= 10e9:
            scale, unit = next((each for each in _HERTZ if clock_Hz >= each[0]), _HERTZ[-1])
            yield f"{mention('gpu_clock_Hz', f'{clock_Hz / (scale or 1.0):g}{unit}')}: from 100MHz to 10GHz"


TODAY = Software()


Version = tuple[int, int]
"""Major and minor version, such as (2, 18)."""
_Algorithm = Literal["tree", "ring", "nvls", "nvls_tree", "pat"]
_Transport = Literal["send-recv", "pxn", "cumem", "lazy", "peers", "sockets", "amd_sockets"]
Feature = Literal[_Algorithm, _Transport, "ll128", "search", "strict"]
OLDEST_RULES: Version = (2, 6)  # the oldest version whose planning tables are known


class VersionNote(str):
    """What an answer says of the version of NCCL that it assumes."""

    __slots__ = ()


def _first(kind: str) -> Mapping[Any, Version]:
    told = own_data("simulator.questions", "nccl.yaml")[kind]
    return {name: (major, minor) for name, (major, minor, _) in told.items()}


FEATURES: Mapping[Feature, Version] = _first("features")
"""The first version with each feature."""
CHIPS: Mapping[int, Version] = _first("chips")
"""By the least compute capability of a generation: the first version made for it."""


def has(version: Version, feature: Feature) -> bool:
    """Return whether *version* has *feature*."""
    return version >= FEATURES[feature]


def chip_since(capability: int) -> Version:
    """Return the first version made for GPUs of a compute *capability*, such as 90 for 9.0."""
    return next((since for least, since in CHIPS.items() if capability >= least), (2, 0))


def version_words(version: Version) -> str:
    """Return *version* as people write it: 2.18."""
    return ".".join(map(str, version))
