"""How a tensor of one shape is seen as another: views, and parts of what several operators share.

A description says how many elements an operator reads, and a view keeps the number of what it views.  So where a
tensor is larger than what is read of it, queries of a joint projection for example, readers get the columns of it one
after the other; those that share all of it between them, by one ``split``, whose gradients are joined by one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

__all__ = ["Shape", "View", "as_heads", "part_of", "seen_as"]

Shape = tuple[int, ...]
View = Callable[[Any], Any]


def seen_as(have: Shape, want: Shape) -> View | None:
    """Return what makes *want* of *have*, which has as many elements; None where they are the same."""
    if have == want:
        return None
    if prod(have) != prod(want):
        raise ValueError(f"{'x'.join(map(str, have))} cannot be seen as {'x'.join(map(str, want))}")
    return lambda x: x.reshape(want)


def part_of(have: Shape, need: int, offset: int, width: int = 0) -> tuple[View, Shape, int]:
    """Return what takes *need* elements of a tensor of *have*, their shape, and the column that follows.

    Columns from *offset* on where so many fit, of each row, or of the last rows where they are *width*; of images
    channels; else the first rows, or simply the first elements.
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
    """Return what makes ``batch`` matrices of ``rows`` by ``cols`` of a tensor, None where they lie so.

    A tensor whose rows hold the numbers of several matrices side by side, as those of heads do, is turned and not
    copied where strides allow it.
    """
    if have == (batch, rows, cols):
        return None
    if have[-1] != cols and have[-1] % cols == 0 and batch % (have[-1] // cols) == 0:
        if have[0] * (have[-1] // cols) == batch and have[0] > 1 and len(have) == 3:
            heads = have[-1] // cols
            return lambda x: x.view(have[0], rows, heads, cols).transpose(1, 2).reshape(batch, rows, cols)
        return lambda x: x.reshape(rows, batch, cols).transpose(0, 1)
    return lambda x: x.reshape(batch, rows, cols)
