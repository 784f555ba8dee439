"""Turn the layers of a YAML file into layers of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from simulator.workload.layers_schema import InputSpec, LayerSpec
from simulator.workload.network import Parameter
from simulator.workload.zoo.attention import self_attention
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor
from simulator.workload.zoo.transformer import embed_positions

Weights = dict[str, Parameter]


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


def add_layer(b: NetworkBuilder, spec: LayerSpec, name: str, inputs: list[Tensor], tied: Tensor | None) -> Tensor:
    """Append the layer *spec* and return its result.

    *tied*: the result of the embedding whose weight the layer shares, or None.

    Raises SizeError if the layer cannot take *inputs*.
    """
    kind = str(spec.kind)
    if kind in ("add", "mul"):
        if len(inputs) < 2:
            raise SizeError(f"{kind} needs two inputs")
        return _sum(b, spec, name, inputs)
    if kind == "concat":
        _rank(kind, inputs, "images")
        return b.concat(tuple(inputs), name)
    if len(inputs) != 1:
        raise SizeError(f"{kind} has one input; got {len(inputs)}")
    if kind in ("lstm", "gru", "rnn"):
        _rank(kind, inputs, "sequences")
        assert spec.hidden is not None
        cell: Literal["lstm", "gru", "rnn"] = "lstm" if kind == "lstm" else "gru" if kind == "gru" else "rnn"
        return b.recurrent(inputs[0], name, spec.hidden, cell)
    if kind == "linear":
        return _linear(b, spec, name, inputs[0], tied)
    if kind == "flatten":
        return b.flatten(inputs[0])
    needed, make = _MAKERS.get(kind, ("", _elementwise))
    _rank(kind, inputs, needed)
    return make(b, spec, name, inputs[0])


_RANKS = {"images": 4, "sequences": 3, "tokens": 2}


def _rank(kind: str, inputs: list[Tensor], needed: str) -> None:
    for x in inputs:
        if needed and len(x.shape) != _RANKS[needed]:
            shape = " x ".join(str(side) for side in x.shape[1:])
            raise SizeError(f"{kind} works on {needed}; it gets {shape or 'one number'} a sample")


def _sum(b: NetworkBuilder, spec: LayerSpec, name: str, inputs: list[Tensor]) -> Tensor:
    shapes = {x.shape for x in inputs}
    if len(shapes) > 1:
        told = " and ".join(" x ".join(map(str, x.shape[1:])) for x in inputs)
        raise SizeError(f"{spec.kind} needs inputs of one size; got {told} a sample")
    result = inputs[0]
    for i, x in enumerate(inputs[1:]):
        step = name if i == len(inputs) - 2 else f"{name}.{i}"
        result = b.elementwise(step, str(spec.kind), result, x, in_place=bool(spec.in_place))
    return result


def _linear(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor, tied: Tensor | None) -> Tensor:
    if len(x.shape) == _RANKS["images"]:
        raise SizeError("linear works on features; put flatten before it")
    if tied is None:
        assert spec.outputs is not None
        return b.linear(x, name, spec.outputs, bias=spec.bias is not False)
    weight, vocabulary = b.embedding_of(tied)
    if weight.elements != vocabulary * x.shape[-1]:
        size = weight.elements // vocabulary
        raise SizeError(f"the tied embedding has rows of {size}, and what comes in {x.shape[-1]}")
    return b.linear(x, name, vocabulary, bias=bool(spec.bias), tied=weight)


def _elementwise(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    return b.elementwise(name, str(spec.kind), x, in_place=bool(spec.in_place))


def _conv(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    assert spec.channels is not None
    assert spec.kernel is not None
    return b.conv(
        x,
        name,
        spec.channels,
        spec.kernel,
        stride=spec.stride or 1,
        pad=spec.pad or 0,
        groups=spec.groups or 1,
        bias=bool(spec.bias),
    )


def _pool(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    assert spec.kernel is not None
    kind: Literal["max", "avg"] = "max" if spec.kind == "max-pool" else "avg"
    return b.pool(x, name, spec.kernel, kind=kind, stride=spec.stride, pad=spec.pad or 0, ceil=bool(spec.ceil))


def _norm(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    kind: Literal["layer_norm", "rms_norm"] = "rms_norm" if spec.kind == "rms-norm" else "layer_norm"
    return b.layer_norm(x, name, kind=kind, bias=spec.bias is not False)


def _embedding(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    assert spec.vocabulary is not None
    assert spec.size is not None
    return b.embedding(x, name, spec.vocabulary, spec.size)


def _positions(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    rows = spec.positions or x.shape[1]
    if rows < x.shape[1]:
        raise SizeError(f"a table of {rows} positions is too short for a sequence of {x.shape[1]}")
    return embed_positions(b, x, name, rows)


def _attention(b: NetworkBuilder, spec: LayerSpec, name: str, x: Tensor) -> Tensor:
    assert spec.heads is not None
    batch, length, hidden = x.shape
    kv_heads, bias = spec.kv_heads or spec.heads, spec.bias is not False
    if hidden % spec.heads or spec.heads % kv_heads:
        raise SizeError(f"{spec.heads} heads and {kv_heads} of keys and values do not divide {hidden} numbers")
    if kv_heads == spec.heads:
        joint = b.linear(x, f"{name}.qkv", 3 * hidden, bias=bias)
        part = b.view(joint, batch, length, hidden)
        qkv = part, part, part
    else:
        kv_hidden = hidden // spec.heads * kv_heads
        query = b.linear(x, f"{name}.q", hidden, bias=bias)
        key = b.linear(x, f"{name}.k", kv_hidden, bias=bias)
        qkv = query, key, b.linear(x, f"{name}.v", kv_hidden, bias=bias)
    y = self_attention(
        b,
        qkv,
        name,
        heads=spec.heads,
        kv_heads=kv_heads,
        kind=spec.attention or "fused",
        mask="add-causal" if spec.causal else "add-padding",
        dropout=bool(spec.dropout),
    )
    return b.linear(y, f"{name}.out", hidden, bias=bias)


Maker = Callable[[NetworkBuilder, LayerSpec, str, Tensor], Tensor]
# For each kind: the inputs that it takes ("": any), and the function that appends it.
_MAKERS: dict[str, tuple[str, Maker]] = {
    "conv": ("images", _conv),
    "max-pool": ("images", _pool),
    "avg-pool": ("images", _pool),
    "layer-norm": ("", _norm),
    "rms-norm": ("", _norm),
    "embedding": ("tokens", _embedding),
    "positions": ("sequences", _positions),
    "self-attention": ("sequences", _attention),
    "global-avg-pool": ("images", lambda b, _, name, x: b.adaptive_avg_pool(x, name)),
    "batch-norm": ("images", lambda b, _, name, x: b.batch_norm(x, name)),
    "softmax": ("", lambda b, _, name, x: b.softmax(x, name)),
    "dropout": ("", lambda b, _, name, x: b.dropout(x, name)),
}
