"""The zoo: one function per network, which builds it; its entries (:class:`ZooEntry`), and what answers call them."""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.records import dataclass
from simulator.workload.zoo.builder import NetworkBuilder, Tensor

Outputs = Tensor | tuple[Tensor, ...]
FUSED = "fused", "fused-first", "fused-native", "fused-fourth"
"""The kinds of attention (:mod:`simulator.workload.zoo.attention`) that never write the scores."""


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """A network of the zoo.

    ``defaults`` maps its options to their default values.  ``make`` adds its layers to a builder and returns the
    inputs of the loss.  ``length_known``: its task has sequences of a fixed length.  ``in_half``: usually trained in
    half precision (bf16 where available) with fused attention.  ``code`` is equal for networks that differ in their
    options alone.
    """

    sample: str
    defaults: Mapping[str, Any]
    make: Callable[[NetworkBuilder, int, Mapping[str, Any]], Outputs]
    length_known: bool = False
    in_half: bool = False
    code: object = None


_SHAPE = ("layers", "hidden", "heads", "experts", "chosen", "expert_inner", "shared_inner", "dense_layers", "tied")
# Most of a vocabulary that padding adds.  Megatron-LM pads to a multiple of 128 x tp (--make-vocab-size-divisible-by):
# with tp=8 it adds less than 1,024 words, 2 % to GPT-2's 50,257 and at most 3 % to the 32,000 of Llama 2.
_PADDED = 0.05


def called(name: str, entry: ZooEntry, sizes: Mapping[str, Any], entries: Callable[[], Mapping[str, ZooEntry]]) -> str:
    """Return *name* if *sizes* leave the shape of *entry* as it is; else the name of the network with this shape.

    It is the one of *entries* with the same code, shape and vocabulary; if there is none, the answer is a description.
    """
    shape = _shape(sizes)
    if shape == _shape(entry.defaults):
        return name
    words = sizes.get("vocabulary", 0)
    same = {
        abs(words / each.defaults["vocabulary"] - 1.0): other
        for other, each in entries().items()
        if each.code is not None and each.code == entry.code and _shape(each.defaults) == shape
    }
    if same and min(same) <= _PADDED:
        return same[min(same)]
    layers, hidden = sizes.get("layers"), sizes.get("hidden")
    count = f"{layers} layer" + "s" * (layers != 1)
    size = count if hidden is None else f"{count} of {hidden:,}"
    return f"a network of {size}, built as {name}" if layers is not None else f"{name} with other sizes"


def _shape(sizes: Mapping[str, Any]) -> tuple[Any, ...]:
    heads, hidden = sizes.get("heads") or 1, sizes.get("hidden") or 0
    shared = sizes.get("kv_heads") or heads, sizes.get("head_size") or hidden // heads, sizes.get("inner") or 4 * hidden
    return *(sizes.get(key) for key in _SHAPE), *shared
