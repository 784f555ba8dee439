"""Networks by name: ``build_network("resnet50", batch=32)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from simulator.errors import InputError, nearest, one_line
from simulator.workload.network import Network
from simulator.workload.zoo import alexnet as alexnets
from simulator.workload.zoo.attention import ATTENTIONS
from simulator.workload.zoo.bert import HEADS, Encoder, encoder
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor
from simulator.workload.zoo.resnet import RESNET_BLOCKS, resnet
from simulator.workload.zoo.transformer import Decoder, decoder
from simulator.workload.zoo.vgg import VGG_BLOCKS, vgg

__all__ = ["Entry", "build_network", "find_entry", "network_names"]

Outputs = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A network of the zoo.

    ``defaults`` are the options that it takes, with what they are where none is given.
    ``make`` writes its layers and returns what the loss is computed from.
    """

    sample: str
    defaults: Mapping[str, Any]
    make: Callable[[NetworkBuilder, int, Mapping[str, Any]], Outputs]


def _images(
    model: Callable[..., Outputs], *, image: int = 224, channels: int = 3, classes: int = 1000, **fixed: Any
) -> Entry:
    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        size = options["image"]
        height, width = (size, size) if isinstance(size, int) else size
        return model(b, b.input(batch, channels, height, width), options["classes"], **fixed)

    return Entry("images", {"image": image, "classes": classes}, make)


def _tokens(kind: type, model: Callable[..., Outputs], length: int, sizes: Any) -> Entry:
    given = {f.name: getattr(sizes, f.name) for f in fields(kind)}
    family = {"family": given.pop("family")} if "family" in given else {}

    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        chosen = kind(**family, **{k: v for k, v in options.items() if k != "sequence_length"})
        if chosen.hidden % chosen.heads:
            raise SizeError(f"{chosen.heads} heads do not divide a hidden size of {chosen.hidden}")
        if 0 < chosen.positions < options["sequence_length"]:
            raise SizeError(
                f"it has {chosen.positions} positions; a sequence of {options['sequence_length']} is longer"
            )
        return model(b, b.input(batch, options["sequence_length"]), chosen)

    return Entry("sequences", {"sequence_length": length, **given}, make)


_decoder = partial(_tokens, Decoder, decoder)
_encoder = partial(_tokens, Encoder, encoder)

_ENTRIES: dict[str, Entry] = {
    "alexnet": _images(alexnets.alexnet),
    "alexnet-owt": _images(alexnets.alexnet_owt),
    "overfeat-fast": _images(alexnets.overfeat_fast, image=231),
    **{f"vgg{depth}": _images(vgg, depth=depth) for depth in VGG_BLOCKS},
    **{f"resnet{depth}": _images(resnet, depth=depth) for depth in RESNET_BLOCKS},
    "resnext101-32x4d": _images(resnet, depth=101, groups=32, group_width=4),
    "bert-base": _encoder(512, Encoder(768, 12, 12, 30522)),
    "bert-large": _encoder(512, Encoder(1024, 16, 24, 30522)),
    "gpt2": _decoder(1024, Decoder("gpt2", 768, 12, 12, 50257, 1024)),
    "gpt2-medium": _decoder(1024, Decoder("gpt2", 1024, 16, 24, 50257, 1024)),
    "gpt2-large": _decoder(1024, Decoder("gpt2", 1280, 20, 36, 50257, 1024)),
    "gpt2-xl": _decoder(1024, Decoder("gpt2", 1600, 25, 48, 50257, 1024)),
}
_ALIASES = {"resnet-50": "resnet50"}
_CHOICES: Mapping[str, tuple[str, ...]] = {"attention": ATTENTIONS, "head": HEADS}
_MAX_SIZE = 10**9


def network_names() -> list[str]:
    """Return the names of the zoo, without aliases."""
    return list(_ENTRIES)


def find_entry(name: str) -> Entry:
    """Return the network called *name*.

    Raises
    ------
    InputError
        Where there is none; names the nearest.

    """
    lowered = name.lower()
    entry = _ENTRIES.get(_ALIASES.get(lowered, lowered))
    if entry is None:
        hint = nearest(name, [*_ENTRIES, *_ALIASES], listed=8)
        raise InputError(f"no network is called '{one_line(name, 60)}'; {hint}")
    return entry


def build_network(name: str, *, batch: int, training: bool = True, loss: bool = False, **options: Any) -> Network:
    """Return the network called *name* for *batch* samples at once.

    Parameters
    ----------
    name : str
        One of :func:`network_names`, or an alias.
    batch : int
        Images or sequences.
    training : bool
        Whether dropout is there, and layers that are trained with alone.
    loss : bool
        Whether the cross-entropy comes last.
    **options : int, str or tuple
        ``image`` (a side, or height and width) and ``classes`` of networks for images;
        ``sequence_length``, ``hidden``, ``heads``, ``layers``, ``vocabulary``, ``attention``, ...
        of those for sequences.  None stands for the network's own.

    Raises
    ------
    InputError
        Where there is no such network, an option that it does not take, or a size that it
        cannot work with.

    """
    entry = find_entry(name)
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in {"batch": batch, **given}.items():
        if key != "batch" and key not in entry.defaults:
            hint = nearest(key, ["batch", *entry.defaults])
            raise InputError(f"{name}: {one_line(key, 60)} does not apply to this network; {hint}")
        _check(name, key, value)
    builder = NetworkBuilder(name, training=training)
    try:
        outputs = entry.make(builder, batch, {**entry.defaults, **given})
    except SizeError as error:
        raise InputError(f"{name}: {error}") from None
    if loss:
        for i, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
            builder.cross_entropy(output, f"loss{i or ''}")
    return builder.build(batch, entry.sample)


def _check(name: str, key: str, value: Any) -> None:
    """Raise where *value* is no size, or no choice, of the option *key*."""
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise InputError(f"{name}: {key} '{one_line(value, 60)}'; {nearest(str(value), _CHOICES[key])}")
        return
    least = 0 if key in ("positions", "inner", "kv_heads") else 1
    for size in value if isinstance(value, tuple) else (value,):
        if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= _MAX_SIZE:
            raise InputError(f"{name}: {key} must be a whole number from {least} on; got {one_line(value, 60)}")
