"""Uncertainty of answers: measured errors by class, ``bands.json`` (docs/decisions/bands.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from simulator.package_data import own_data
from simulator.records import dataclass, field

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
    """Return the classes of a kernel of class *kernel*, limited by *bound*.

    *precision*: the format of the operands, if the kernel's time depends on it, as that of products; else "".  Behind
    the classes of its own kernel is that of all kernels with the same limit and a format as wide.
    """
    wide = f"kernel {kernel} {bound}", f"kernel {kernel}"
    if not precision:
        return *wide, f"kernel plain {bound}", "kernel"
    form = FORMATS.get(precision, precision)
    width = "fp32" if form == "fp32" else "narrow"
    first = f"kernel {kernel} {bound} {form}"
    return tuple(dict.fromkeys((first, f"kernel {kernel} {bound} {width}", *wide, f"kernel {width} {bound}", "kernel")))


def collective_chain(collective: str, size_bytes: float, network: str, n_nodes: int = 1) -> Chain:
    """Return the classes of a collective of *size_bytes* over *network*, one of ``INSIDE`` or ``BETWEEN`` *n_nodes*.

    An empty *network* is one that no class names.  Below 1 MiB over it, or over Ethernet, there is no class: of three
    sources, one took 2 to 13 times the predicted time, and a band that holds it says nothing.
    """
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


def exchange_chain(*, several_nodes: bool) -> Chain:
    """Return the classes of the exchanges of a step, which are mostly large messages."""
    return f"collective large {'nodes' if several_nodes else 'node'}", "collective large", "collective"


def step_chain(processor: str, family: str | None, form: str | None, ranks: str, *, trains: bool = True) -> Chain:
    """Return the classes of a step on a *processor*, for a network of *family* with matrix products in *form*.

    *ranks*: ``one`` device; ``several`` that exchange data; or ``divided``, if they divide the network.  Not *trains*:
    a pass alone, forward, backward or of inference, which has no optimiser and less of the host.
    """
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
    """Errors of a class, as log(measured / predicted), from ``rows`` of ``sources`` on ``places``, devices or machines.

    80 % of the errors lie between ``low`` and ``high``.  ``shared`` is the fraction of the variance that is between
    places.

    Five factors widen or narrow the 80 % interval: ``seen`` for a left-out source on a place that other sources cover,
    ``unseen`` for a left-out place, ``outside`` for a left-out generation, ``strange`` for a left-out network, and
    ``calibrated`` after calibration, whose neighbours explain the share ``near`` of the variance of the rows behind it.

    ``of_parts`` (steps only) are the half-widths, down and up, that kernels and exchanges explain.  ``ways`` is the
    half-width of the differences between rows of one machine that do the same in different ways; ``machines`` of those
    between machines that do the same.  Either is None if there are too few rows.
    """

    name: str
    rows: int
    places: int
    low: float
    middle: float
    high: float
    shared: float
    unseen: float
    outside: float
    seen: float = 1.0
    strange: float = 1.0
    calibrated: float = 1.0
    near: float = 0.0
    of_parts: tuple[float, float] | None = None
    ways: float | None = None
    machines: float | None = None
    sources: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredCoverage:
    """The coverage of the measured rows.

    ``devices``, ``generations``: formats of operators or steps, by part or by generation.
    ``machines``: machines with measured collectives.
    ``collectives``: the largest number of ranks, by collective and ``node`` or ``nodes``.
    ``linked``: generations of GPUs with measured collectives.
    ``gpus``: the largest number of GPUs in a step, by ``several`` or ``divided``.
    ``networks``: networks of steps.
    ``kernels``: classes of kernels that these steps run.
    ``exchanging``: generations of GPUs that exchange in as many of these steps as a class needs rows.
    ``hosts``: places, by kind of a host's answer.
    """

    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    generations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    machines: tuple[str, ...] = ()
    collectives: Mapping[str, int] = field(default_factory=dict)
    linked: tuple[str, ...] = ()
    gpus: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    exchanging: tuple[str, ...] = ()
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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
