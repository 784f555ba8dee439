"""The YAML of a network's layers, as pydantic models, and what turns it into layers; the guide is ``docs/networks.md``.

Each layer is validated separately, so that a fault in one does not hide faults in others: ``layers`` holds plain
mappings, each of which is then checked as a :class:`LayerSpec`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator

from simulator.errors import one_line
from simulator.topology.parts import Strict
from simulator.workload.zoo.attention import AttentionKind, embed_positions, self_attention
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor

_LARGEST = 10**9


def _sides(least: int) -> PlainValidator:
    """Accept one integer, or two for height and width, each at least *least*."""

    def check(value: Any) -> int | tuple[int, int]:
        sides: list[Any] = value if isinstance(value, list) and len(value) == 2 else [value]
        if any(not isinstance(s, int) or isinstance(s, bool) or not least <= s <= _LARGEST for s in sides):
            shown = one_line(repr(value), 60)
            raise ValueError(f"must be a whole number from {least} on, or height and width as [3, 5]; got {shown}")
        return (int(sides[0]), int(sides[1])) if len(sides) == 2 else int(sides[0])

    return PlainValidator(check)


def _names(value: Any) -> tuple[str, ...]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"must be the name of a layer, or a list of names; got {one_line(repr(value), 60)}")
    return tuple(str(name).strip() for name in listed)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value.strip(), re.ASCII):
        raise ValueError(f"must be letters, digits, _ and -; got {one_line(repr(value), 60)}")
    return value.strip()


Size = Annotated[int, Field(strict=True, ge=1, le=_LARGEST)]
Side = Annotated[int | tuple[int, int], _sides(1)]
Pad = Annotated[int | tuple[int, int], _sides(0)]
Name = Annotated[str, PlainValidator(_name)]
Names = Annotated[tuple[str, ...], PlainValidator(_names)]
_CELLS, _FUNCTIONS = ("lstm", "gru", "rnn"), ("relu", "gelu", "silu", "sigmoid", "tanh")
# For each kind: its required keys, and its optional ones.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "linear": ((), ("outputs", "bias", "tied")),
    "conv": (("channels", "kernel"), ("stride", "pad", "groups", "bias")),
    "embedding": (("vocabulary", "size"), ()),
    "positions": ((), ("positions",)),
    "self-attention": (("heads",), ("kv_heads", "causal", "bias", "dropout", "attention")),
    "batch-norm": ((), ()),
    "layer-norm": ((), ("bias",)),
    "rms-norm": ((), ()),
    **dict.fromkeys(_CELLS, (("hidden",), ())),
    **dict.fromkeys(("max-pool", "avg-pool"), (("kernel",), ("stride", "pad", "ceil"))),
    **dict.fromkeys(("global-avg-pool", "flatten"), ((), ())),
    "relu": ((), ("in_place",)),
    **dict.fromkeys((*_FUNCTIONS[1:], "softmax", "dropout"), ((), ())),
    "add": (("inputs",), ("in_place",)),
    **dict.fromkeys(("mul", "concat"), (("inputs",), ())),
}
if TYPE_CHECKING:
    LayerKind = str
else:
    LayerKind = Literal[tuple(KINDS)]


class InputSpec(Strict):
    """The shape of one sample; exactly one key is given."""

    image: tuple[Size, Size, Size] | None = Field(None, description="Channels, height, width")
    tokens: Size | None = Field(None, description="Length of a sequence of words, to be embedded")
    sequence: tuple[Size, Size] | None = Field(None, description="Length of a sequence, and numbers in each step")
    features: Size | None = Field(None, description="Numbers in a sample")


class LayerSpec(Strict):
    """A layer, or (with ``layers``) a block of layers that may repeat."""

    kind: LayerKind | None = Field(None, description="What it computes")
    name: Name | None = Field(None, description="For inputs of others")
    inputs: Names | None = Field(
        None, description="Names of layers, previous (where it is left out), or input: what enters the block"
    )
    repeat: Annotated[int, Field(strict=True, ge=1, le=4096)] | None = Field(None, description="Of a block: how often")
    layers: tuple[dict[str, Any], ...] | None = Field(None, min_length=1, description="Of a block: its layers")
    outputs: Size | None = Field(None, description="Of a linear layer")
    tied: str | None = Field(None, description="Name of the embedding whose weight a linear layer has too")
    channels: Size | None = Field(None, description="Of a convolution's result")
    kernel: Side | None = Field(None, description="One side, or height and width")
    stride: Side | None = Field(None, description="As kernel; of a convolution 1 and of a pool its kernel if left out")
    pad: Pad | None = Field(None, description="As kernel; 0 if left out")
    groups: Size | None = Field(None, description="Of a convolution; 1 if left out")
    bias: bool | None = Field(None, description="true if left out; of a convolution false")
    ceil: bool | None = Field(None, description="Whether a pool's size is rounded up; false if left out")
    vocabulary: Size | None = Field(None, description="Rows of an embedding")
    size: Size | None = Field(None, description="Numbers of each of its rows")
    positions: Size | None = Field(None, description="Rows of a table of positions; the sequence's length if left out")
    heads: Size | None = Field(None, description="Of attention")
    kv_heads: Size | None = Field(None, description="Heads of keys and values; as many as heads if left out")
    causal: bool | None = Field(None, description="Whether later steps are masked; false if left out")
    dropout: bool | None = Field(None, description="Whether attention drops weights; false if left out")
    attention: AttentionKind | None = Field(None, description="How it runs; fused if left out")
    hidden: Size | None = Field(None, description="Of a recurrent layer")
    in_place: bool | None = Field(None, description="Whether the first input is overwritten; false if left out")


class NetworkFile(Strict):
    """A network."""

    schema_version: Literal[1] = Field(..., description="1")
    name: str = Field(..., min_length=1, max_length=200)
    description: str = ""
    source: str = Field("", description="Where the sizes come from")
    input: InputSpec
    layers: tuple[dict[str, Any], ...] = Field(..., min_length=1)


def add_input(b: NetworkBuilder, spec: InputSpec, batch: int) -> tuple[Tensor, str]:
    """Return the input tensor for *batch* samples, and the plural noun for a sample ("images")."""
    if spec.image is not None:
        return b.input(batch, *spec.image), "images"
    if spec.tokens is not None:
        return b.input(batch, spec.tokens), "sequences"
    if spec.sequence is not None:
        return b.input(batch, *spec.sequence), "sequences"
    assert spec.features is not None  # checked by the reader
    return b.input(batch, spec.features), "samples"


def add_layer(spec: LayerSpec, name: str, inputs: list[Tensor], tied: Tensor | None) -> Tensor:
    """Append the layer *spec* and return its result.

    *tied*: the result of the embedding whose weight the layer shares, or None.

    Raises SizeError if the layer cannot take *inputs*.
    """
    kind = str(spec.kind)
    if kind in ("add", "mul"):
        return _sum(kind, spec, name, inputs)
    if kind == "concat":
        _rank(kind, inputs, "images")
        return inputs[0].concat(name, *inputs[1:])
    if len(inputs) != 1:
        raise SizeError(f"{kind} has one input; got {len(inputs)}")
    x = inputs[0]
    if kind == "linear" and len(x.shape) == _RANKS["images"]:
        raise SizeError("linear works on features; put flatten before it")
    if tied is not None:
        weight, vocabulary = x.net.embedding_of(tied)
        if weight.elements != vocabulary * x.shape[-1]:
            size = weight.elements // vocabulary
            raise SizeError(f"the tied embedding has rows of {size}, and what comes in {x.shape[-1]}")
        return x.linear(name, vocabulary, bias=bool(spec.bias), tied=weight)
    _rank(kind, inputs, _NEEDS.get(kind, ""))
    if kind in _FUNCTIONS:
        return x.apply(name, kind, in_place=bool(spec.in_place))
    if kind == "flatten":
        return x.flatten()
    if kind in _OWN:
        return _OWN[kind](spec, name, x)
    method, fixed = _METHODS.get(kind, (kind.replace("-", "_"), {}))
    given = {key: getattr(spec, key) for keys in KINDS[kind] for key in keys}
    added: Tensor = getattr(x, method)(name, **fixed, **{key: v for key, v in given.items() if v is not None})
    return added


_RANKS = {"images": 4, "sequences": 3, "tokens": 2}


def _rank(kind: str, inputs: list[Tensor], needed: str) -> None:
    for x in inputs:
        if needed and len(x.shape) != _RANKS[needed]:
            shape = " x ".join(str(side) for side in x.shape[1:])
            raise SizeError(f"{kind} works on {needed}; it gets {shape or 'one number'} a sample")


def _sum(kind: str, spec: LayerSpec, name: str, inputs: list[Tensor]) -> Tensor:
    """Return the sum or the product of *inputs*, one after the other."""
    if len(inputs) < 2:
        raise SizeError(f"{kind} needs two inputs")
    if len({x.shape for x in inputs}) > 1:
        told = " and ".join(" x ".join(map(str, x.shape[1:])) for x in inputs)
        raise SizeError(f"{kind} needs inputs of one size; got {told} a sample")
    result = inputs[0]
    for i, x in enumerate(inputs[1:]):
        step = name if i == len(inputs) - 2 else f"{name}.{i}"
        result = result.apply(step, kind, x, in_place=bool(spec.in_place))
    return result


def _positions(spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    rows = spec.positions or x.shape[1]
    if rows < x.shape[1]:
        raise SizeError(f"a table of {rows} positions is too short for a sequence of {x.shape[1]}")
    return embed_positions(x, name, rows)


def _attention(spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    assert spec.heads is not None
    batch, length, hidden = x.shape
    kv_heads, bias = spec.kv_heads or spec.heads, spec.bias is not False
    if hidden % spec.heads or spec.heads % kv_heads:
        raise SizeError(f"{spec.heads} heads and {kv_heads} of keys and values do not divide {hidden} numbers")
    if kv_heads == spec.heads:
        joint = x.linear(f"{name}.qkv", 3 * hidden, bias=bias)
        part = joint.view(batch, length, hidden)
        qkv = part, part, part
    else:
        kv_hidden = hidden // spec.heads * kv_heads
        query = x.linear(f"{name}.q", hidden, bias=bias)
        key = x.linear(f"{name}.k", kv_hidden, bias=bias)
        qkv = query, key, x.linear(f"{name}.v", kv_hidden, bias=bias)
    mask: Literal["add-causal", "add-padding"] = "add-causal" if spec.causal else "add-padding"
    kind, drops = spec.attention or "fused", bool(spec.dropout)
    y = self_attention(qkv, name, heads=spec.heads, kv_heads=kv_heads, kind=kind, mask=mask, dropout=drops)
    return y.linear(f"{name}.out", hidden, bias=bias)


# What a kind works on, if not on anything; which are functions of each element; which method of a tensor with what
# appends it, if not that of its name, or which function here.
_NEEDS = {
    **dict.fromkeys(("conv", "max-pool", "avg-pool", "global-avg-pool", "batch-norm"), "images"),
    **dict.fromkeys(("positions", "self-attention", *_CELLS), "sequences"),
    "embedding": "tokens",
}
_METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "max-pool": ("pool", {}),
    "avg-pool": ("pool", {"kind": "avg"}),
    "global-avg-pool": ("adaptive_avg_pool", {}),
    **{cell: ("recurrent", {"cell": cell}) for cell in _CELLS},
}
_OWN = {"positions": _positions, "self-attention": _attention}
