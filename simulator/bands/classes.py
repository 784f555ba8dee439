"""The classes that errors are collected in: what an answer is of, the most special class first.

A class is a few words.  Where a special one has too few measured rows, the next wider one of its chain stands for it.
"""

from __future__ import annotations

__all__ = [
    "FORMATS",
    "LARGE_BYTES",
    "Chain",
    "collective_chain",
    "exchange_chain",
    "host_chain",
    "kernel_chain",
    "step_chain",
]

Chain = tuple[str, ...]
LARGE_BYTES = 1 << 20
FORMATS = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half", "fp8": "fp8", "int8": "int8"}
_PRODUCTS = ("gemm", "convolution", "recurrence", "fusedattention")  # whose time is a matter of the format


def kernel_chain(kernel: str, bound: str, precision: str) -> Chain:
    """Return the classes of a kernel of the class *kernel* that *bound* bounds, with operands in *precision*."""
    wide = (f"kernel {kernel} {bound}", f"kernel {kernel}", "kernel")
    if kernel not in _PRODUCTS:
        return wide
    form = FORMATS.get(precision, precision)
    width = "fp32" if form == "fp32" else "narrow"
    first = f"kernel {kernel} {bound} {form}"
    return tuple(dict.fromkeys((first, f"kernel {kernel} {bound} {width}", *wide)))


def collective_chain(collective: str, size_bytes: float, *, several_nodes: bool) -> Chain:
    """Return the classes of a collective of *size_bytes*, inside a node or over several."""
    size, where = ("large" if size_bytes >= LARGE_BYTES else "small"), ("nodes" if several_nodes else "node")
    return f"collective {size} {where} {collective}", f"collective {size} {where}", f"collective {size}", "collective"


def exchange_chain(*, several_nodes: bool) -> Chain:
    """Return the classes of what a step exchanges, most of it in large messages."""
    return collective_chain("all-reduce", LARGE_BYTES, several_nodes=several_nodes)[1:]


def step_chain(processor: str, family: str | None, form: str | None, ranks: str) -> Chain:
    """Return the classes of a step of a network of *family* on a *processor*, its products in the format *form*.

    *ranks*: ``one`` device, ``several`` that exchange, or ``divided``, which divide the network between them.
    """
    head, of = f"step {processor}", family or "other"
    return f"{head} {ranks} {of} {form or 'mixed'}", f"{head} {ranks} {of}", f"{head} {ranks}", head


def host_chain(kind: str, what: str, size_bytes: float | None = None) -> Chain:
    """Return the classes of an answer about a host: ``copy``, ``access``, ``launch``; *what* it is of that kind."""
    size = "" if size_bytes is None else " large" if size_bytes >= LARGE_BYTES else " small"
    return tuple(dict.fromkeys((f"{kind} {what}{size}", f"{kind} {what}", kind)))
