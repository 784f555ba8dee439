"""The YAML schema of a network, as pydantic models; the user guide is ``docs/networks.md``.

Each layer is validated separately, so that a fault in one does not hide faults in others: ``layers`` holds plain
mappings, each of which is then checked as a :class:`LayerSpec`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator

from simulator.errors import one_line
from simulator.topology.parts import Strict
from simulator.workload.zoo.attention import AttentionKind

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
    **dict.fromkeys(("lstm", "gru", "rnn"), (("hidden",), ())),
    **dict.fromkeys(("max-pool", "avg-pool"), (("kernel",), ("stride", "pad", "ceil"))),
    **dict.fromkeys(("global-avg-pool", "flatten"), ((), ())),
    "relu": ((), ("in_place",)),
    **dict.fromkeys(("gelu", "silu", "sigmoid", "tanh", "softmax", "dropout"), ((), ())),
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
