"""Uncertainty of answers: measured errors by class, ``bands.json`` (docs/decisions/bands.md)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from simulator.records import dataclass, field, own_data

Chain = tuple[str, ...]
LARGE_BYTES = 1 << 20
FULL_BYTES = 1 << 26  # where messages fill all links
INSIDE = ("pcie", "nvlink")
"""Networks inside a node; nvlink stands for any direct links of GPUs."""
BETWEEN = ("infiniband", "omnipath", "efa", "roce", "tcp")
"""Networks between nodes; RoCE is Ethernet whose adapters reach GPUs' memory, TCP any other."""
_ON_ETHERNET = ("efa", "roce", "tcp")  # where too few machines with one were measured, Ethernet as a whole counts
_FEW = 8  # nodes, which share a switch or are one away from it
FORMATS = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half", "fp8": "fp8", "int8": "int8"}


def kernel_chain(kernel: str, bound: str, precision: str) -> Chain:
    """Return the classes of a kernel of class *kernel* and *precision*, limited by *bound*; last, all so limited."""
    wide = f"kernel {kernel} {bound}", f"kernel {kernel}"
    if not precision:
        return *wide, f"kernel plain {bound}", "kernel"
    form = FORMATS.get(precision, precision)
    width = "fp32" if form == "fp32" else "narrow"
    first = f"kernel {kernel} {bound} {form}"
    return tuple(dict.fromkeys((first, f"kernel {kernel} {bound} {width}", *wide, f"kernel {width} {bound}", "kernel")))


def collective_chain(collective: str, size_bytes: float, network: str, n_nodes: int = 1) -> Chain:
    """Return the classes of a collective over *network* *n_nodes*; none where sources differ too much."""
    size = "small" if size_bytes < LARGE_BYTES else "middle" if size_bytes < FULL_BYTES else "full"
    wide = "small" if size == "small" else "large"
    where = "node" if network in INSIDE else "nodes"
    near = "few" if where == "nodes" and n_nodes <= _FEW else where
    chain = [f"collective {size} {near} {network} {collective}", f"collective {size} {near} {network}"]
    if near != where:
        chain.append(f"collective {size} {where} {network}")
    if network in _ON_ETHERNET:
        chain += [each.replace(f" {network}", " ethernet") for each in chain]
    if size == "small" and where == "nodes" and (not network or network in _ON_ETHERNET):
        return ()
    if not network:
        chain = []
    chain += [f"collective {size} {where}", f"collective {wide} {where}", f"collective {wide}", "collective"]
    return tuple(dict.fromkeys(chain))


def step_chain(processor: str, family: str | None, form: str | None, ranks: str, *, trains: bool = True) -> Chain:
    """Return the classes of a step on a *processor*, of *family* in *form* on *ranks*; not *trains*: a pass alone."""
    head, of = f"step {processor}", family or "other"
    wide = f"{head} {ranks}", head
    kind = head if trains else f"pass {processor}"
    first = f"{kind} {ranks} {of} {form or 'mixed'}", f"{kind} {ranks} {of}"
    return (*first, *wide) if trains else (*first, kind, *wide)


def host_chain(kind: str, what: str, size_bytes: float | None = None) -> Chain:
    """Return the classes of a host's answer of *kind* (``copy``, ``access``, ``launch``) and variety *what*."""
    size = "" if size_bytes is None else " large" if size_bytes >= LARGE_BYTES else " small"
    return tuple(dict.fromkeys((f"{kind} {what}{size}", f"{kind} {what}", kind)))


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of a class, log(measured / predicted), and factors on the 80 % interval; None: too few rows."""

    name: str
    rows: int  # of ``sources``
    places: int  # devices or machines
    low: float  # to ``high``: 80 % of the errors
    middle: float
    high: float
    shared: float  # fraction of the variance that is between places
    unseen: float  # factor for a left-out place
    outside: float  # for a left-out generation
    seen: float = 1.0  # for a left-out source on a place that others cover
    strange: float = 1.0  # for a left-out network
    calibrated: float = 1.0  # after calibration, whose neighbours explain the share ``near`` of the rows' variance
    near: float = 0.0
    of_parts: tuple[float, float] | None = None  # of steps: half-widths, down and up, of kernels and exchanges
    ways: float | None = None  # half-width between rows of one machine that do the same in different ways
    machines: float | None = None  # of those between machines that do the same
    sources: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredCoverage:
    """The coverage of the measured rows."""

    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # formats of operators or steps, by part
    generations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # and by generation
    machines: tuple[str, ...] = ()  # with measured collectives
    collectives: Mapping[str, int] = field(default_factory=dict)  # most ranks, by collective and ``node`` or ``nodes``
    linked: tuple[str, ...] = ()  # generations of GPUs with measured collectives
    gpus: Mapping[str, int] = field(default_factory=dict)  # largest number in a step, by ``several`` or ``divided``
    networks: tuple[str, ...] = ()  # of steps
    kernels: tuple[str, ...] = ()  # classes that these steps run
    exchanging: tuple[str, ...] = ()  # generations of GPUs that do in as many of these steps as a class needs rows
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # places, by kind of a host's answer


@dataclass(frozen=True, slots=True)
class Evidence:
    """The spreads of classes by name, and the coverage of the rows."""

    spreads: Mapping[str, Spread]
    seen: MeasuredCoverage

    def spread(self, chain: Chain) -> Spread | None:
        """Return the spread of the first class of *chain* with enough rows, or None."""
        return next((self.spreads[name] for name in chain if name in self.spreads), None)

    def has_kernels(self, name: str, *, in_step: bool) -> bool:
        """Return whether kernels of class *name* were measured: alone or, for an answer about a step, in steps."""
        heads = (f"kernel {name} ", f"kernel {name}-")
        return (in_step and name in self.seen.kernels) or any(f"{each} ".startswith(heads) for each in self.spreads)


def evidence_from(document: Mapping[str, Any]) -> Evidence:
    """Return the evidence in a *document* like ``bands.json``."""
    spreads = {entry["name"]: Spread(**_frozen(entry)) for entry in document["classes"]}
    return Evidence(spreads, MeasuredCoverage(**_frozen(document["seen"])))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return tuple(value) if isinstance(value, list) else value


@lru_cache(maxsize=1)
def evidence() -> Evidence:
    """Return the evidence in the product's own file."""
    return evidence_from(own_data("simulator.bands", "bands.json"))
