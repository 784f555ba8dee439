"""Views of tensors: one shape as another, and the parts of a tensor that several operators share.

A description says how many elements an operator reads, and a view keeps the number of the tensor it views.  Where a
tensor is larger than what its readers need, as with a joint projection of queries, keys and values, the readers get
its columns in turn.  Readers that together cover the tensor share one ``split``, whose gradients one kernel joins.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

Shape = tuple[int, ...]
View = Callable[[Any], Any]


def seen_as(have: Shape, want: Shape) -> View | None:
    """Return the view of a tensor of shape *have* as *want*; None where they are equal.

    Raises ValueError where the numbers of elements differ.
    """
    if have == want:
        return None
    if prod(have) != prod(want):
        raise ValueError(f"{'x'.join(map(str, have))} cannot be seen as {'x'.join(map(str, want))}")
    return lambda x: x.reshape(want)


def part_of(have: Shape, need: int, offset: int, width: int = 0) -> tuple[View, Shape, int]:
    """Return a view of *need* elements of a tensor of shape *have*, the view's shape, and the next free column.

    The part consists of columns from *offset* on, where they fit: of all rows, or of the last rows if they are *width*
    wide.  Of images it consists of channels.  Otherwise it is the first rows, or the first elements.
    """
    cols, lead = have[-1], prod(have[:-1])
    if width and width <= cols and need % width == 0 and need < width * lead:
        first = offset if offset + width <= cols else 0
        rows = need // width
        return lambda x: x.reshape(-1, cols)[-rows:].narrow(-1, first, width), (rows, width), first + width
    if len(have) == 4 and need % (prod(have) // have[1]) == 0:
        channels = need // (prod(have) // have[1])
        first = offset if offset + channels <= have[1] else 0
        return lambda x: x.narrow(1, first, channels), (have[0], channels, *have[2:]), first + channels
    if need % lead == 0:
        width = need // lead
        first = offset if offset + width <= cols else 0
        return lambda x: x.narrow(-1, first, width), (*have[:-1], width), first + width
    if need % cols == 0:
        rows = need // cols
        return lambda x: x.reshape(-1, cols)[:rows], (rows, cols), offset
    return lambda x: x.reshape(-1)[:need], (need,), offset


def as_heads(have: Shape, batch: int, rows: int, cols: int) -> View | None:
    """Return the view of a tensor as ``batch`` matrices of ``rows`` by ``cols``; None where it has that shape.

    Rows that hold several matrices side by side, such as attention heads, are transposed without a copy where the
    strides allow it.
    """
    if have == (batch, rows, cols):
        return None
    if have[-1] != cols and have[-1] % cols == 0 and batch % (have[-1] // cols) == 0:
        if have[0] * (have[-1] // cols) == batch and have[0] > 1 and len(have) == 3:
            heads = have[-1] // cols
            return lambda x: x.view(have[0], rows, heads, cols).transpose(1, 2).reshape(batch, rows, cols)
        return lambda x: x.reshape(rows, batch, cols).transpose(0, 1)
    return lambda x: x.reshape(batch, rows, cols)
