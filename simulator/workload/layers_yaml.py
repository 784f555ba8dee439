"""Read a network from a YAML file of layers (docs/networks.md): ``load_network``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass, own_data
from simulator.topology.catalogue import validate
from simulator.topology.parts import Strict
from simulator.topology.yaml_source import YamlSource, read_yaml
from simulator.workload.network import Network
from simulator.workload.zoo.attention import AttentionKind, embed_positions, self_attention
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor

Path_ = tuple[str | int, ...]
_NEEDS = "a network needs schema_version, name, input and layers"
_INSTEAD = "write the layers again, or a block of them with repeat: 12"
_MAX_LAYERS = 100_000
_RESERVED = ("previous", "input")


@dataclass(frozen=True, slots=True)
class _Read:
    """A layer with its position in the file; for a block, with its inner layers."""

    path: Path_
    spec: "LayerSpec"
    layers: "tuple[_Read, ...]" = ()


def load_network(path: str, *, batch: int, training: bool = True, loss: bool = False) -> Network:
    """Return the network that the file at *path* describes, for a batch of *batch* samples.

    ``training`` and ``loss`` are as in :func:`simulator.workload.zoo.registry.build_network`.  Raises InputError with
    every fault of the file and its position; for sizes that do not fit together, only the first.
    """
    source = read_yaml(Path(path), path, needs=_NEEDS, instead=_INSTEAD)
    reader = _Reader(source)
    spec: NetworkFile | None = None
    try:
        spec = validate(source, NetworkFile)
    except InputError as error:
        reader.faults += error.faults
    found = source.data.get("layers") if isinstance(source.data, dict) else None
    layers = reader.layers(found, ("layers",)) if isinstance(found, list) else ()
    reader.names(found, ("layers",), [])
    entered = source.data.get("input") if isinstance(source.data, dict) else None
    if isinstance(entered, dict) and entered.keys() <= InputSpec.model_fields.keys():
        given = [key for key, value in entered.items() if value is not None]
        if len(given) != 1:
            one_of = ", ".join(InputSpec.model_fields)
            reader.fault(("input",), f"input: needs one of {one_of}; got {' and '.join(given) or 'none'}")
    if reader.faults or spec is None:
        unique = {(f.line, f.column, f.message): f for f in reader.faults}
        raise InputError([unique[place] for place in sorted(unique)])
    if batch < 1:
        raise InputError(f"batch must be 1 or more; got {batch}")
    builder = NetworkBuilder(spec.name, training=training)
    key, shape = next((key, value) for key, value in spec.input if value is not None)
    x = builder.input(batch, *(shape if isinstance(shape, tuple) else (shape,)))
    x = _Writer(source, x.number if spec.input.tokens is not None else -1).block(layers, x, "", {})
    if loss:
        x.cross_entropy()
    return builder.build(batch, _SAMPLES[key])


class _Reader:
    """Validates each layer separately, so that a fault in one hides none in others, and collects the faults."""

    def __init__(self, source: YamlSource) -> None:
        self.source = source
        self.faults: list[Fault] = []

    def fault(self, path: Path_, message: str, *, key: bool = False) -> None:
        self.faults.append(self.source.fault(path, message, key=key))

    def layers(self, found: Sequence[Any], path: Path_) -> tuple[_Read, ...]:
        """Return the valid layers of the list *found*."""
        read: list[_Read] = []
        for i, raw in enumerate(found):
            here = (*path, i)
            if not isinstance(raw, dict):
                continue  # already reported with the list
            inner: tuple[_Read, ...] = ()
            if isinstance(raw.get("layers"), list):
                inner = self.layers(raw["layers"], (*here, "layers"))
            is_one = (raw.get("kind") is None) != (raw.get("layers") is None)
            if not is_one:
                self.fault(here, "a layer needs a kind (conv, linear, ...), or layers where it is a block of them")
            try:
                spec = validate(self.source.part(here, raw), LayerSpec)
            except InputError as error:
                self.faults += error.faults
                continue
            if is_one and self._fits(here, spec):
                read.append(_Read(here, spec, inner))
        return tuple(read)

    def _fits(self, path: Path_, spec: "LayerSpec") -> bool:
        """Return whether *spec* has exactly the keys that its kind allows and needs; records faults."""
        before = len(self.faults)
        present = {key for key, value in spec if value is not None}
        required, optional = KINDS[spec.kind] if spec.kind is not None else ((), ("repeat", "layers"))
        allowed, what = {"name", "inputs", *required, *optional}, spec.kind or "a block"
        if spec.kind == "linear" and (spec.outputs is None) == (spec.tied is None):
            self.fault(path, "linear needs either outputs or tied (the name of an embedding)")
        for key in sorted(present - allowed - {"kind"}):
            takes = ", ".join(sorted(allowed - {"name", "inputs"})) or "no sizes"
            self.fault((*path, key), f"{key} does not apply to {what}, which takes {takes}", key=True)
        for key in required:
            if key not in present:
                self.fault(path, f"{what} needs the key '{key}'")
        return len(self.faults) == before

    def names(self, found: Any, path: Path_, outer: list[str]) -> None:
        """Check names and references to them, even in layers with other faults."""
        own: dict[str, int] = {}
        for i, raw in enumerate(found if isinstance(found, list) else ()):
            if not isinstance(raw, dict):
                continue
            here = (*path, i)
            known = [*_RESERVED, *outer, *own]
            for key in ("inputs", "tied"):
                value = raw.get(key)
                listed = value if isinstance(value, list) else [value]
                for j, name in enumerate(listed):
                    if isinstance(name, str) and name.strip() not in known:
                        place = (*here, key, j) if isinstance(value, list) else (*here, key)
                        hint = nearest(name, known, listed=8)
                        self.fault(place, f"no layer before this one is called '{one_line(name, 60)}'; {hint}")
            self.names(raw.get("layers"), (*here, "layers"), [*outer, *own])
            name = raw.get("name")
            if not isinstance(name, str):
                continue
            name = name.strip()
            if name in _RESERVED:
                self.fault((*here, "name"), f"'{name}' is a word of its own; take another name")
            elif name in own:
                line = self.source.place((*path, own[name], "name"))[0]
                self.fault((*here, "name"), f"the layer '{one_line(name, 60)}' is there twice; first in line {line}")
            own.setdefault(name, i)


class _Writer:
    """Appends the layers to a builder, in order; ``tokens`` is the number of the tensor that only embeddings read."""

    def __init__(self, source: YamlSource, tokens: int) -> None:
        self.source, self.tokens = source, tokens
        self.n_layers = 0

    def block(self, layers: tuple[_Read, ...], entered: Tensor, prefix: str, outer: dict[str, Tensor]) -> Tensor:
        """Append *layers* once and return the last result.  Unnamed layers are named by kind and position."""
        known = {**outer, "input": entered}
        x = entered
        for i, read in enumerate(layers):
            spec = read.spec
            name = prefix + (spec.name or f"{spec.kind or 'block'}{i}")
            known["previous"] = x
            inputs = [known[key] for key in spec.inputs or ("previous",)]
            if spec.layers is None:
                x = self._layer(read, name, inputs, known[spec.tied] if spec.tied is not None else None)
            elif len(inputs) != 1:
                raise InputError(self.source.fault((*read.path, "inputs"), f"a block has one input; got {len(inputs)}"))
            else:
                x, inside = inputs[0], {key: value for key, value in known.items() if key not in _RESERVED}
                for number in range(spec.repeat or 1):
                    x = self.block(read.layers, x, f"{name}.{number}." if spec.repeat else f"{name}.", inside)
            if spec.name is not None:
                known[spec.name] = x
        return x

    def _layer(self, read: _Read, name: str, inputs: list[Tensor], tied: Tensor | None) -> Tensor:
        self.n_layers += 1
        if self.n_layers > _MAX_LAYERS:
            raise InputError(self.source.fault(read.path, f"a network has at most {_MAX_LAYERS} layers"))
        try:
            if (read.spec.kind == "embedding") != any(x.number == self.tokens for x in inputs):
                raise SizeError("tokens go into an embedding, and nothing else does (input: {tokens: 128})")
            return add_layer(read.spec, name, inputs, tied)
        except SizeError as error:
            message = str(error).removeprefix(f"{name}: ")
            raise InputError(self.source.fault(read.path, f"{name}: {message}")) from None


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
_KINDS = own_data("simulator.workload", "layer_kinds.yaml")
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    kind: (tuple(said.get("required", ())), tuple(said.get("optional", ()))) for kind, said in _KINDS.items()
}
"""For each kind: its required keys, and its optional ones."""
if TYPE_CHECKING:
    LayerKind = str
else:
    LayerKind = Literal[tuple(KINDS)]


_SAMPLES = {"image": "images", "tokens": "sequences", "sequence": "sequences", "features": "samples"}


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


def add_layer(spec: LayerSpec, name: str, inputs: list[Tensor], tied: Tensor | None) -> Tensor:
    """Append the layer *spec* and return its result.

    *tied*: the result of the embedding whose weight the layer shares, or None.

    Raises SizeError if the layer cannot take *inputs*.
    """
    kind = str(spec.kind)
    said = _KINDS[kind]
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
    _rank(kind, inputs, said.get("takes", ""))
    if "function" in said:
        return x.apply(name, kind, in_place=bool(spec.in_place))
    if kind == "flatten":
        return x.flatten()
    if kind in ("positions", "self-attention"):
        return (_positions if kind == "positions" else _attention)(spec, name, x)
    method = getattr(x, said.get("method", kind.replace("-", "_")))
    given = {key: value for keys in KINDS[kind] for key in keys if (value := getattr(spec, key)) is not None}
    added: Tensor = method(name, **said.get("with", {}), **given)
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
