"""An answer with its reason (:class:`HostTime`), and what refuses options that a kind of question does not use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from simulator.errors import InputError
from simulator.questions.single import AccessKind, AccessQuestion, CopyKind, CopyQuestion
from simulator.records import dataclass, field


@dataclass(frozen=True, slots=True)
class HostTime:
    """The time of an operation, what bounds it, and why.

    ``of`` names what is timed: a pass, one access, a block.  ``bound`` is a few words; ``why`` holds whole sentences
    with the figures behind the time.  ``figures`` holds the same figures by name, in SI, with their unit in the name.
    """

    time_s: float
    of: str
    bound: str
    why: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


_ALWAYS = frozenset(("where", "kind", "size_bytes", "device", "threads", "in_graph"))
_ON_CPU: dict[AccessKind, frozenset[str]] = {
    "stream": frozenset(("reads", "writes", "element_bytes", "node")),
    "gather": frozenset(("rows", "row_bytes", "node")),
    "strided": frozenset(("stride_bytes", "element_bytes", "backward", "misaligned", "node", "page_bytes")),
    "random": frozenset(("each_bytes", "outstanding", "misaligned", "reads", "writes", "node", "page_bytes")),
    "chase": frozenset(("node", "page_bytes")),
    "shared": frozenset(("cores", "state", "node")),
}
_ON_GPU: dict[AccessKind, frozenset[str]] = {
    "stream": frozenset(("reads", "writes", "element_bytes", "resident", "block_threads", "persistent")),
    "gather": frozenset(("rows", "row_bytes")),
    "chase": frozenset(("level",)),
}
_OF_COPIES: dict[CopyKind, frozenset[str]] = {
    "h2d": frozenset(("src", "socket", "pinned", "both_ways", "waited")),
    "d2h": frozenset(("src", "socket", "pinned", "both_ways", "waited", "fresh")),
    "p2p": frozenset(("src", "dst", "staged", "both_ways", "waited", "pinned")),
    "d2d": frozenset(("src", "both_ways", "waited", "pinned")),
    "h2h": frozenset(("fresh", "pinned")),  # takes as long pinned or not
}


def check_access_options(question: AccessQuestion, *, on_gpu: bool) -> None:
    """Raise InputError where *question* sets options that accesses of its kind do not use."""
    read = (_ON_GPU if on_gpu else _ON_CPU).get(question.kind, frozenset())
    said = [f.name for f in fields(question) if f.name not in _ALWAYS and getattr(question, f.name) != f.default]
    unread = [name for name in said if name not in read]
    if unread:
        words = ", ".join(name.removesuffix("_bytes").replace("_", "-") for name in unread)
        known = ", ".join(sorted(name.removesuffix("_bytes").replace("_", "-") for name in read)) or "nothing more"
        place = "a GPU" if on_gpu else "a CPU"
        raise InputError(f"access:{question.kind} of {place} does not read {words}; it reads {known}")


def check_copy(question: CopyQuestion) -> None:
    """Raise InputError where *question* sets options that copies of its kind do not use."""
    kind, read = question.kind, _OF_COPIES[question.kind]
    said = [f.name for f in fields(question) if f.name not in _ALWAYS and getattr(question, f.name) != f.default]
    if kind in ("h2d", "d2h") and question.dst:
        raise InputError(f"copy:{kind} names its GPU by src; write src={question.dst}, not dst={question.dst}")
    if kind == "d2h" and question.fresh and question.pinned:
        raise InputError("fresh applies to pageable memory; add pinned=no")
    unread = [name.replace("_", "-") for name in said if name not in read]
    if unread:
        known = ", ".join(sorted(name.replace("_", "-") for name in read))
        raise InputError(f"copy:{kind} does not read {', '.join(unread)}; it reads {known}")
