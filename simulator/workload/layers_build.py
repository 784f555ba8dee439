"""Turn the layers of a YAML file into layers of a network."""

from __future__ import annotations

from collections.abc import Callable

from simulator.workload.layers_schema import KINDS, InputSpec, LayerSpec
from simulator.workload.network import Parameter
from simulator.workload.zoo.attention import self_attention
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError
from simulator.workload.zoo.transformer import embed_positions

Weights = dict[str, Parameter]


def add_input(b: NetworkBuilder, spec: InputSpec, batch: int) -> tuple[LayerOutput, str]:
    """Return the input tensor for *batch* samples, and the plural noun for a sample ("images")."""
    if spec.image is not None:
        return b.input(batch, *spec.image), "images"
    if spec.tokens is not None:
        return b.input(batch, spec.tokens), "sequences"
    if spec.sequence is not None:
        return b.input(batch, *spec.sequence), "sequences"
    assert spec.features is not None  # checked by the reader
    return b.input(batch, spec.features), "samples"


def add_layer(
    b: NetworkBuilder, spec: LayerSpec, name: str, inputs: list[LayerOutput], tied: LayerOutput | None
) -> LayerOutput:
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
    x = inputs[0]
    if kind == "linear" and len(x.shape) == _RANKS["images"]:
        raise SizeError("linear works on features; put flatten before it")
    if tied is not None:
        return _tied(b, spec, name, x, tied)
    needed, make, fixed = _MAKERS.get(kind, ("", "elementwise", {}))
    _rank(kind, inputs, needed)
    if make == "elementwise":
        return b.elementwise(name, kind, x, in_place=bool(spec.in_place))
    if callable(make):
        return make(b, spec, name, x)
    given = {key: getattr(spec, key) for keys in KINDS[kind] for key in keys}
    added: LayerOutput = getattr(b, make)(x, name, **fixed, **{key: v for key, v in given.items() if v is not None})
    return added


_RANKS = {"images": 4, "sequences": 3, "tokens": 2}


def _rank(kind: str, inputs: list[LayerOutput], needed: str) -> None:
    for x in inputs:
        if needed and len(x.shape) != _RANKS[needed]:
            shape = " x ".join(str(side) for side in x.shape[1:])
            raise SizeError(f"{kind} works on {needed}; it gets {shape or 'one number'} a sample")


def _sum(b: NetworkBuilder, spec: LayerSpec, name: str, inputs: list[LayerOutput]) -> LayerOutput:
    shapes = {x.shape for x in inputs}
    if len(shapes) > 1:
        told = " and ".join(" x ".join(map(str, x.shape[1:])) for x in inputs)
        raise SizeError(f"{spec.kind} needs inputs of one size; got {told} a sample")
    result = inputs[0]
    for i, x in enumerate(inputs[1:]):
        step = name if i == len(inputs) - 2 else f"{name}.{i}"
        result = b.elementwise(step, str(spec.kind), result, x, in_place=bool(spec.in_place))
    return result


def _tied(b: NetworkBuilder, spec: LayerSpec, name: str, x: LayerOutput, tied: LayerOutput) -> LayerOutput:
    weight, vocabulary = b.embedding_of(tied)
    if weight.elements != vocabulary * x.shape[-1]:
        size = weight.elements // vocabulary
        raise SizeError(f"the tied embedding has rows of {size}, and what comes in {x.shape[-1]}")
    return b.linear(x, name, vocabulary, bias=bool(spec.bias), tied=weight)


def _positions(b: NetworkBuilder, spec: LayerSpec, name: str, x: LayerOutput) -> LayerOutput:
    rows = spec.positions or x.shape[1]
    if rows < x.shape[1]:
        raise SizeError(f"a table of {rows} positions is too short for a sequence of {x.shape[1]}")
    return embed_positions(b, x, name, rows)


def _attention(b: NetworkBuilder, spec: LayerSpec, name: str, x: LayerOutput) -> LayerOutput:
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


Maker = Callable[[NetworkBuilder, LayerSpec, str, LayerOutput], LayerOutput]
# For each kind: the inputs that it takes ("": any), the builder's method or function that appends it, which takes the
# kind's keys, and what it takes besides.  The others are functions of each element.
_MAKERS: dict[str, tuple[str, str | Maker, dict[str, str]]] = {
    "linear": ("", "linear", {}),
    "conv": ("images", "conv", {}),
    "max-pool": ("images", "pool", {}),
    "avg-pool": ("images", "pool", {"kind": "avg"}),
    "global-avg-pool": ("images", "adaptive_avg_pool", {}),
    "flatten": ("", lambda b, _, __, x: b.flatten(x), {}),
    "batch-norm": ("images", "batch_norm", {}),
    "layer-norm": ("", "layer_norm", {}),
    "rms-norm": ("", "layer_norm", {"kind": "rms_norm"}),
    "embedding": ("tokens", "embedding", {}),
    "positions": ("sequences", _positions, {}),
    "self-attention": ("sequences", _attention, {}),
    **{cell: ("sequences", "recurrent", {"cell": cell}) for cell in ("lstm", "gru", "rnn")},
    "softmax": ("", "softmax", {}),
    "dropout": ("", "dropout", {}),
}
