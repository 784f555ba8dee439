"""Elementwise functions of torch, by their names in descriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  torch's own short name

DROPOUT = 0.1  # fraction set to zero, which does not affect the time
BINARY = frozenset(("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod", "remainder"))
CHOOSING = ("where", "masked_fill")  # functions of a mask, which stays in the cache
LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss")
SCALAR: dict[str, Callable[[Any], Any]] = {
    "add_scalar": lambda x: x + 1.0,
    "sub_scalar": lambda x: x - 1.0,
    "mul_scalar": lambda x: x * 0.5,
    "div_scalar": lambda x: x / 8.0,
    "pow_scalar": lambda x: torch.pow(x, 3.0),
}
_RENAMED = {"log_sigmoid_forward": "logsigmoid"}
_LEFT = frozenset(("dropout", "dropout_add", "topk", "nll_loss", "lstm_cell", "fill", "random", "sort", "cast"))


def unary(function: str, *, in_place: bool) -> Callable[[Any], Any] | None:
    """Return torch's *function* of one tensor; None where it has none of that name."""
    if function in SCALAR:
        return SCALAR[function]
    name = _RENAMED.get(function, function)
    if name in _LEFT or name in BINARY or not name.isidentifier() or name.startswith("_"):
        return None
    if in_place:
        in_places = [getattr(place, f"{name}_", None) for place in (torch, F, torch.Tensor)]
        return next((found for found in in_places if found is not None), None)
    return getattr(F, name, None) or getattr(torch, name, None)
