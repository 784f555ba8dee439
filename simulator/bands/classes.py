"""Classes of answers, in which errors are collected: chains of names, the most specific class first.

If a specific class has too few measured rows, the next wider one in its chain is used.
"""

from __future__ import annotations

Chain = tuple[str, ...]
LARGE_BYTES = 1 << 20
FULL_BYTES = 1 << 26  # where messages fill all links
INSIDE = ("pcie", "nvlink")
"""Networks inside a node; nvlink stands for any direct links of GPUs."""
BETWEEN = ("infiniband", "omnipath", "ethernet")
"""Networks between nodes.  RoCE, EFA and TCP are Ethernet: of each alone, too few machines were measured."""
_FEW = 8  # nodes, which share a switch or are one away from it
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


def collective_chain(collective: str, size_bytes: float, network: str, n_nodes: int = 1) -> Chain:
    """Return the classes of a collective of *size_bytes* over *network*, one of ``INSIDE`` or ``BETWEEN`` *n_nodes*.

    An empty *network* is one that no class names.
    """
    size = "small" if size_bytes < LARGE_BYTES else "middle" if size_bytes < FULL_BYTES else "full"
    wide = "small" if size == "small" else "large"
    where = "node" if network in INSIDE else "nodes"
    near = "few" if where == "nodes" and n_nodes <= _FEW else where
    chain = [f"collective {size} {near} {network} {collective}", f"collective {size} {near} {network}"]
    if near != where:
        chain.append(f"collective {size} {where} {network}")
    if not network or (size, network) == ("small", "ethernet"):
        chain = []  # of four machines, one is 2 to 50 times as slow as predicted: a band that holds it says nothing
    chain += [f"collective {size} {where}", f"collective {wide} {where}", f"collective {wide}", "collective"]
    return tuple(dict.fromkeys(chain))


def exchange_chain(*, several_nodes: bool) -> Chain:
    """Return the classes of the exchanges of a step, which are mostly large messages."""
    return f"collective large {'nodes' if several_nodes else 'node'}", "collective large", "collective"


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
