"""Classes of answers, in which errors are collected: chains of names, the most specific class first.

If a specific class has too few measured rows, the next wider one in its chain is used.
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
_PRODUCTS = ("gemm", "convolution", "recurrence", "fusedattention")  # their time depends on the format


def kernel_chain(kernel: str, bound: str, precision: str) -> Chain:
    """Return the classes of a kernel of class *kernel*, limited by *bound*, with operands in *precision*."""
    wide = (f"kernel {kernel} {bound}", f"kernel {kernel}", "kernel")
    if kernel not in _PRODUCTS:
        return wide
    form = FORMATS.get(precision, precision)
    width = "fp32" if form == "fp32" else "narrow"
    first = f"kernel {kernel} {bound} {form}"
    return tuple(dict.fromkeys((first, f"kernel {kernel} {bound} {width}", *wide)))


def collective_chain(collective: str, size_bytes: float, *, several_nodes: bool) -> Chain:
    """Return the classes of a collective of *size_bytes*, inside a node or over several nodes."""
    size, where = ("large" if size_bytes >= LARGE_BYTES else "small"), ("nodes" if several_nodes else "node")
    return f"collective {size} {where} {collective}", f"collective {size} {where}", f"collective {size}", "collective"


def exchange_chain(*, several_nodes: bool) -> Chain:
    """Return the classes of the exchanges of a step, which are mostly large messages."""
    return collective_chain("all-reduce", LARGE_BYTES, several_nodes=several_nodes)[1:]


def step_chain(processor: str, family: str | None, form: str | None, ranks: str) -> Chain:
    """Return the classes of a step on a *processor*, for a network of *family* with matrix products in *form*.

    *ranks*: ``one`` device; ``several`` that exchange data; or ``divided``, if they divide the network.
    """
    head, of = f"step {processor}", family or "other"
    return f"{head} {ranks} {of} {form or 'mixed'}", f"{head} {ranks} {of}", f"{head} {ranks}", head


def host_chain(kind: str, what: str, size_bytes: float | None = None) -> Chain:
    """Return the classes of a host's answer of *kind* (``copy``, ``access``, ``launch``) and variety *what*."""
    size = "" if size_bytes is None else " large" if size_bytes >= LARGE_BYTES else " small"
    return tuple(dict.fromkeys((f"{kind} {what}{size}", f"{kind} {what}", kind)))
