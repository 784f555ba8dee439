"""What a row of a table of measured operators asks: read from its shape, never from its time.

The columns are those of ``ops.csv`` (docs/scoring.md): device, op, variant, phase, dtype,
the sizes, and includes_dispatch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from simulator.errors import one_line
from simulator.workload.operators import (
    Attention,
    BatchNorm,
    Conv2d,
    Elementwise,
    Embedding,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Phase,
    Recurrent,
    Softmax,
)
from simulator.workload.precision import PRECISIONS, Precision
from validate.operators.serving import attention_library
from validate.score.query import NotScored, number

__all__ = ["COLUMNS_ASKED", "OperatorQuery", "read_query"]

SIZES = (
    *("batch", "m", "n", "k", "c_in", "c_out", "h_in", "w_in", "kernel_h", "kernel_w", "stride", "pad", "stride_w"),
    *("pad_w", "groups", "rows", "cols", "hidden", "timesteps", "heads", "kv_heads"),
)
COLUMNS_ASKED = (
    *(
        "device",
        "op",
        "variant",
        "phase",
        "dtype",
        *SIZES,
        "includes_dispatch",
        "software",
        "cache",
        "threads",
        "issue",
    ),
    "schedule",
)
_MAX_SIZE = 1e10
_MAX_THREADS = 4096
_THREADS = re.compile(r"cpu threads=([1-9][0-9]{0,3})", re.IGNORECASE | re.ASCII)
_TIMED_ALONE = "XLA HloRunner"  # software whose tables have each kernel by itself, without saying so
_PHASES = ("fwd", "bwd_data", "bwd_weight", "bwd")
_TWO_INPUTS = frozenset(("add", "mul", "div", "pow", "sub"))


Issued = Literal["", "graph", "stream", "alone"]


@dataclass(frozen=True, slots=True)
class OperatorQuery:
    """An operator in a phase, on the device of that name.

    ``channels_last``: images lie pixel by pixel.  ``is_cold``: nothing of what it reads and writes is in a
    cache when it starts.  ``threads`` are those of a CPU, None one a core.  ``issued`` says how a GPU's kernels
    come where it is known: from a captured graph, one call after the other, the host running ahead, or by themselves.
    """

    device: str
    op: str
    operator: Operator
    phase: Phase
    precision: Precision
    includes_dispatch: bool
    software: str = ""
    channels_last: bool = False
    is_cold: bool = False
    threads: int | None = None
    issued: Issued = ""


def read_query(cell: Callable[[str], str]) -> OperatorQuery:
    """Return the query of a row, *cell* giving the text of a column.

    Raises
    ------
    NotScored
        Where the row cannot be asked; says why.

    """
    op, phase, precision = cell("op"), cell("phase") or "fwd", cell("dtype")
    if phase not in _PHASES:
        raise NotScored(f"no such phase: {one_line(phase, 20)}")
    if precision not in PRECISIONS:
        raise NotScored(f"no such dtype: {one_line(precision, 20) or 'none'}")
    if op not in _READERS:
        raise NotScored(f"no model of {one_line(op, 30) or 'an operator without a name'}")
    if cell("cache") not in ("", "warm", "cold"):
        raise NotScored(f"no such cache: {one_line(cell('cache'), 20)}; warm or cold")

    def size(column: str, default: int | None = None) -> int:
        text = cell(column)
        if not text and default is not None:
            return default
        if text == "0" and column.startswith("pad"):
            return 0
        value = number(column, text)
        if value != int(value):
            raise NotScored(f"{column} is no whole number")
        if value > _MAX_SIZE:
            raise NotScored(f"{column} is more than {_MAX_SIZE:g}")
        return int(value)

    operator = _READERS[op](size, cell)
    return OperatorQuery(
        device=cell("device"),
        op=op,
        operator=operator,
        phase=cast(Phase, phase),
        precision=precision,
        includes_dispatch=cell("includes_dispatch") == "1",
        software=cell("software"),
        channels_last=op == "conv2d" and cell("variant") == "channels_last",
        is_cold=cell("cache") == "cold",
        threads=_threads(cell),
        issued=_issued(cell),
    )


def _issued(cell: Callable[[str], str]) -> Issued:
    """Return how ``validate run`` issued it; nothing of other tables, and of what waited in the device's queue."""
    said = cell("issue") or ("alone" if cell("software").startswith(_TIMED_ALONE) else "")
    return cast(Issued, said) if said in ("graph", "stream", "alone") and cell("includes_dispatch") != "1" else ""


def _threads(cell: Callable[[str], str]) -> int | None:
    """Return the threads of a CPU, from a column of their own or as tables of steps say them."""
    said = _THREADS.fullmatch(cell("schedule"))
    text = cell("threads") or (said[1] if said else "")
    if not text:
        return None
    value = number("threads", text)
    if value != int(value) or value > _MAX_THREADS:
        raise NotScored(f"threads is no whole number up to {_MAX_THREADS}")
    return int(value)


Size = Callable[..., int]
Cell = Callable[[str], str]


def _linear(size: Size, cell: Cell) -> Operator:
    return Linear(size("batch", 1) * size("m"), size("k"), size("n"), bias=cell("variant") != "lm_head")


def _matmul(size: Size, cell: Cell) -> Operator:
    m, n, k, batch = size("m"), size("n"), size("k"), size("batch", 1)
    letters = cell("variant")
    if letters in ("NN", "NT", "TN", "TT"):
        # A call of BLAS, in column-major order: the same in row-major order is C^T = B^T A^T.
        return MatMul(n, m, k, batch, letters[::-1])  # type: ignore[arg-type]
    return MatMul(m, n, k, batch)


def _conv2d(size: Size, cell: Cell) -> Operator:
    del cell
    stride, pad = size("stride", 1), size("pad", 0)
    found = Conv2d(
        batch=size("batch"),
        c_in=size("c_in"),
        c_out=size("c_out"),
        h_in=size("h_in"),
        w_in=size("w_in"),
        kernel_h=size("kernel_h"),
        kernel_w=size("kernel_w"),
        stride_h=stride,
        stride_w=size("stride_w", stride),
        pad_h=pad,
        pad_w=size("pad_w", pad),
        groups=size("groups", 1),
    )
    if found.h_out < 1 or found.w_out < 1:
        raise NotScored("the kernel is larger than the image")
    if found.c_in % found.groups or found.c_out % found.groups:
        raise NotScored("groups do not divide the channels")
    return found


def _elementwise(size: Size, cell: Cell) -> Operator:
    function = cell("variant").lower()
    return Elementwise(function, size("rows") * size("cols"), 2 if function in _TWO_INPUTS else 1)


def _softmax(size: Size, cell: Cell) -> Operator:
    del cell
    return Softmax(size("rows"), size("cols"))


def _layer_norm(size: Size, cell: Cell) -> Operator:
    del cell
    return LayerNorm(size("rows"), size("cols"))


def _batch_norm(size: Size, cell: Cell) -> Operator:
    del cell
    return BatchNorm(size("batch"), size("c_in"), size("h_in"), size("w_in"))


def _embedding(size: Size, cell: Cell) -> Operator:
    del cell
    return Embedding(size("rows"), size("cols"))


def _recurrent(size: Size, cell: Cell) -> Operator:
    """Read a layer as wide at its input as inside.

    As DeepBench times it, what comes in is added to the state; a layer of torch multiplies it first.
    """
    hidden = size("hidden")
    inputs = hidden if cell("software").startswith("torch") else 0
    return Recurrent(cell("op"), size("batch"), size("timesteps"), inputs, hidden)  # type: ignore[arg-type]


def _attention(size: Size, cell: Cell) -> Operator:
    """Read attention of ``batch`` heads in all: ``m`` queries of ``k`` numbers each, ``n`` keys.

    ``heads`` of them are of one sequence, and share the keys of ``kv_heads``.
    """
    causal = cell("variant") == "causal"
    if cell("variant") not in ("", "causal"):
        raise NotScored(f"attention '{one_line(cell('variant'), 20)}' is not modelled; causal, or empty")
    if cell("dtype") in ("fp8", "int8"):
        raise NotScored("attention of 8 bits is not modelled")
    batch, heads = size("batch"), size("heads", 1)
    kv_heads = size("kv_heads", heads)
    if batch % heads:
        raise NotScored("heads do not divide batch, which counts those of all sequences")
    if heads % kv_heads:
        raise NotScored("kv_heads do not divide heads")
    shared = kv_heads if kv_heads != heads else 0
    library = attention_library(cell("software"))
    queries, keys = size("m"), size("n")
    if queries == 1 < keys:
        raise NotScored("attention of one query (decode) is not modelled")
    return Attention(batch // heads, heads, queries, keys, size("k"), shared, causal, library)


_READERS: dict[str, Callable[[Size, Cell], Operator]] = {
    "linear": _linear,
    "matmul": _matmul,
    "bmm": _matmul,
    "conv2d": _conv2d,
    "elementwise": _elementwise,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "rnn": _recurrent,
    "lstm": _recurrent,
    "gru": _recurrent,
    "attention": _attention,
}
