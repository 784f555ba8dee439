"""What a question says and its kind does not read: refused, so that nothing goes unread."""

from __future__ import annotations

from dataclasses import fields

from simulator.errors import InputError
from simulator.questions.access import AccessKind, AccessQuestion

__all__ = ["check_read"]

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


def check_read(question: AccessQuestion, *, on_gpu: bool) -> None:
    """Raise InputError where *question* says what accesses of its kind do not depend on."""
    read = (_ON_GPU if on_gpu else _ON_CPU).get(question.kind, frozenset())
    said = [f.name for f in fields(question) if f.name not in _ALWAYS and getattr(question, f.name) != f.default]
    unread = [name for name in said if name not in read]
    if unread:
        words = ", ".join(name.removesuffix("_bytes").replace("_", "-") for name in unread)
        known = ", ".join(sorted(name.removesuffix("_bytes").replace("_", "-") for name in read)) or "nothing more"
        place = "a GPU" if on_gpu else "a CPU"
        raise InputError(f"access:{question.kind} of {place} does not read {words}; it reads {known}")
