"""Networks by name: ``build_network("resnet50", batch=32)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simulator.errors import InputError, nearest, one_line
from simulator.workload.network import Network
from simulator.workload.zoo import alexnet as alexnets
from simulator.workload.zoo import small
from simulator.workload.zoo.attention import ATTENTIONS
from simulator.workload.zoo.bert import HEADS, Encoder, encoder
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor
from simulator.workload.zoo.densenet import DENSENET_SIZES, densenet
from simulator.workload.zoo.googlenet import googlenet, inception_bn
from simulator.workload.zoo.inception3 import inception3
from simulator.workload.zoo.resnet import RESNET_BLOCKS, resnet, resnet_cifar, resnet_small_image
from simulator.workload.zoo.transformer import Decoder, decoder
from simulator.workload.zoo.vgg import VGG_BLOCKS, vgg

__all__ = ["Entry", "build_network", "find_entry", "network_names"]

Outputs = Tensor | tuple[Tensor, ...]
_TOKEN_OPTIONS = (
    *("hidden", "heads", "kv_heads", "layers", "inner", "vocabulary"),
    *("positions", "attention", "head", "tied", "predicted"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A network of the zoo.

    ``defaults`` are the options that it takes, with what they are where none is given.  ``make`` writes its layers and
    returns what the loss is computed from.  ``length_known``: it is for a task whose sequences are of one length.
    """

    sample: str
    defaults: Mapping[str, Any]
    make: Callable[[NetworkBuilder, int, Mapping[str, Any]], Outputs]
    length_known: bool = False


def _images(
    model: Callable[..., Outputs], *, image: int = 224, channels: int = 3, classes: int = 1000, **fixed: Any
) -> Entry:
    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        size = options["image"]
        height, width = (size, size) if isinstance(size, int) else size
        return model(b, b.input(batch, channels, height, width), options["classes"], **fixed)

    return Entry("images", {"image": image, "classes": classes}, make)


def _tokens(model: Callable[..., Outputs], length: int, sizes: Decoder | Encoder) -> Entry:
    defaults = {key: getattr(sizes, key) for key in _TOKEN_OPTIONS if hasattr(sizes, key)}

    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        length = options["sequence_length"]
        chosen = replace(sizes, **{key: options[key] for key in defaults})
        if chosen.hidden % chosen.heads:
            raise SizeError(f"{chosen.heads} heads do not divide a hidden size of {chosen.hidden}")
        if isinstance(chosen, Decoder) and chosen.kv_heads and chosen.heads % chosen.kv_heads:
            raise SizeError(f"{chosen.kv_heads} heads of keys and values do not divide {chosen.heads} heads")
        if 0 < chosen.positions < length:
            raise SizeError(f"it has {chosen.positions} positions; a sequence of {length} is longer")
        if isinstance(chosen, Encoder) and chosen.predicted > length:
            raise SizeError(f"{chosen.predicted} tokens cannot be predicted of a sequence of {length}")
        return model(b, b.input(batch, length), chosen)

    known = isinstance(sizes, Encoder) and sizes.head == "question-answering"
    return Entry("sequences", {"sequence_length": length, **defaults}, make, length_known=known)


def _widths(default: tuple[int, ...], inputs: int, activation: str = "relu") -> Entry:
    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        widths = options["widths"]
        widths = widths if isinstance(widths, tuple) else (widths,)
        return small.perceptron(b, b.input(batch, options["inputs"]), widths, activation)

    return Entry("samples", {"inputs": inputs, "widths": default}, make)


def _words(length: int, **sizes: int) -> Entry:
    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        given = {k: v for k, v in options.items() if k != "sequence_length"}
        return small.lstm_language_model(b, b.input(batch, options["sequence_length"]), **given)

    return Entry("sequences", {"sequence_length": length, **sizes}, make, length_known=True)


_decoder = partial(_tokens, decoder)
_encoder = partial(_tokens, encoder)


def _gpt3(hidden: int, heads: int, layers: int) -> Entry:
    return _decoder(2048, Decoder("gpt2", hidden, heads, layers, 50257, 2048))


def _opt(hidden: int, heads: int, layers: int, **odd: Any) -> Entry:
    # Its table of positions has two rows more than it has positions.
    return _decoder(2048, Decoder("opt", hidden, heads, layers, 50272, 2048, spare_positions=2, **odd))


def _mpt(hidden: int, heads: int, layers: int) -> Entry:
    return _decoder(2048, Decoder("mpt", hidden, heads, layers, 50368, attention="fused"))


def _llama(
    hidden: int, heads: int, layers: int, inner: int, kv_heads: int = 0, *, words: int = 32000, length: int = 4096
) -> Entry:
    sizes = Decoder("llama", hidden, heads, layers, words, inner=inner, kv_heads=kv_heads, attention="fused", tied=0)
    return _decoder(length, sizes)


def _nemotron(hidden: int, heads: int, layers: int) -> Entry:
    sizes = Decoder("nemotron", hidden, heads, layers, 256000, inner=4 * hidden, kv_heads=8, attention="fused", tied=0)
    return _decoder(4096, sizes)


_LLAMA3 = {"words": 128256, "length": 8192}
_ENTRIES: dict[str, Entry] = {
    "lenet": _images(small.lenet, image=28, channels=1, classes=10),
    "lenet-d2l": _images(small.lenet_d2l, image=28, channels=1, classes=10),
    "mlp": _widths((256, 128, 2), 512),
    "alexnet": _images(alexnets.alexnet),
    "alexnet-owt": _images(alexnets.alexnet_owt),
    "overfeat-fast": _images(alexnets.overfeat_fast, image=231),
    "googlenet": _images(googlenet),
    "inception-bn": _images(inception_bn),
    "inception3": _images(inception3, image=299),
    **{f"vgg{depth}": _images(vgg, depth=depth) for depth in VGG_BLOCKS},
    **{f"resnet{depth}": _images(resnet, depth=depth) for depth in RESNET_BLOCKS},
    "resnet18-28x28": _images(resnet_small_image, image=28, channels=1, classes=10),
    "resnet18-cifar": _images(resnet_small_image, image=32, classes=10),
    **{f"resnet{d}": _images(resnet_cifar, image=32, classes=10, depth=d) for d in (20, 32, 44, 56, 110)},
    "resnext101-32x4d": _images(resnet, depth=101, groups=32, group_width=4),
    **{f"densenet{depth}": _images(densenet, depth=depth) for depth in DENSENET_SIZES},
    "fcn-s": _widths((2048, 2048, 2048, 26752), 26752, "sigmoid"),
    "fcn-r": _widths((2048, 4096, 1024, 10), 784, "sigmoid"),
    "alexnet-s": _images(small.alexnet_s),
    "alexnet-r": _images(small.alexnet_r, image=32, classes=10),
    "lstm-shi2016": _words(32, hidden=256, layers=2, vocabulary=10000),
    "bert-base": _encoder(512, Encoder(768, 12, 12, 30522)),
    "bert-large": _encoder(512, Encoder(1024, 16, 24, 30522)),
    "bert-base-squad": _encoder(384, Encoder(768, 12, 12, 30522, head="question-answering")),
    "bert-large-squad": _encoder(384, Encoder(1024, 16, 24, 30522, head="question-answering")),
    "gpt2": _decoder(1024, Decoder("gpt2", 768, 12, 12, 50257, 1024)),
    "gpt2-medium": _decoder(1024, Decoder("gpt2", 1024, 16, 24, 50257, 1024)),
    "gpt2-large": _decoder(1024, Decoder("gpt2", 1280, 20, 36, 50257, 1024)),
    "gpt2-xl": _decoder(1024, Decoder("gpt2", 1600, 25, 48, 50257, 1024)),
    "gpt": _decoder(1024, Decoder("gpt", 1024, 16, 24, 51200, attention="fused-softmax")),
    "gpt3-125m": _gpt3(768, 12, 12),
    "gpt3-350m": _gpt3(1024, 16, 24),
    "gpt3-760m": _gpt3(1536, 16, 24),
    "gpt3-xl": _gpt3(3072, 24, 24),
    "gpt3-2.7b": _gpt3(2560, 32, 32),
    "gpt3-6.7b": _gpt3(4096, 32, 32),
    "gpt3-13b": _gpt3(5120, 40, 40),
    "gpt3-175b": _gpt3(12288, 96, 96),
    "opt-125m": _opt(768, 12, 12),
    "opt-350m": _opt(1024, 16, 24, word_size=512, norm_last=True),
    "opt-1.3b": _opt(2048, 32, 24),
    "opt-2.7b": _opt(2560, 32, 32),
    "opt-6.7b": _opt(4096, 32, 32),
    "opt-13b": _opt(5120, 40, 40),
    "opt-30b": _opt(7168, 56, 48),
    "opt-66b": _opt(9216, 72, 64),
    "opt-175b": _opt(12288, 96, 96),
    "mpt-125m": _mpt(768, 12, 12),
    "mpt-350m": _mpt(1024, 16, 24),
    "mpt-760m": _mpt(1536, 12, 24),
    "mpt-1b": _mpt(2048, 16, 24),
    "mpt-3b": _mpt(2560, 20, 32),
    "mpt-7b": _mpt(4096, 32, 32),
    "mpt-13b": _mpt(5120, 40, 40),
    "mpt-30b": _mpt(7168, 56, 48),
    "mpt-70b": _mpt(8192, 64, 80),
    "llama-7b": _llama(4096, 32, 32, 11008, length=2048),
    "llama-13b": _llama(5120, 40, 40, 13824, length=2048),
    "llama-33b": _llama(6656, 52, 60, 17920, length=2048),
    "llama-65b": _llama(8192, 64, 80, 22016, length=2048),
    "llama2-70b": _llama(8192, 64, 80, 28672, 8),
    "llama3-8b": _llama(4096, 32, 32, 14336, 8, **_LLAMA3),
    "llama3-70b": _llama(8192, 64, 80, 28672, 8, **_LLAMA3),
    "llama3-405b": _llama(16384, 128, 126, 53248, 8, **_LLAMA3),
    "nemotron4-15b": _nemotron(6144, 48, 32),
    "nemotron4-340b": _nemotron(18432, 96, 96),
}
_ALIASES = {
    **{f"resnet-{depth}": f"resnet{depth}" for depth in (*RESNET_BLOCKS, 56)},
    **{f"vgg-{depth}": f"vgg{depth}" for depth in VGG_BLOCKS},
    "inception-v3": "inception3",
    "inceptionv3": "inception3",
    "lenet-5": "lenet",
    "lenet-fashion-mnist": "lenet-d2l",
    "resnet18-fashion-mnist": "resnet18-28x28",
    "densenet-161": "densenet161",
    "bert": "bert-base",
    "gpt2-small": "gpt2",
    "gpt3": "gpt3-175b",
    "llama-30b": "llama-33b",
    "llama2-7b": "llama-7b",
    "llama2-13b": "llama-13b",
    "maxtext-llama2-70b": "llama2-70b",
    "maxtext-llama3-70b": "llama3-70b",
    "llama-3.1-8b": "llama3-8b",
    **{f"llama3.1-{size}": f"llama3-{size}" for size in ("8b", "70b", "405b")},
}
_CHOICES: Mapping[str, tuple[str, ...]] = {"attention": ATTENTIONS, "head": HEADS}
_MAX_SIZE = 10**9
_MOST = {"layers": 4096, "tied": 1}
_MAY_BE_ZERO = ("positions", "inner", "kv_heads", "tied", "predicted")


def network_names() -> list[str]:
    """Return the names of the zoo, without aliases."""
    return list(_ENTRIES)


def find_entry(name: str) -> Entry:
    """Return the network called *name*.  Raises InputError where there is none; names the nearest."""
    lowered = name.lower()
    entry = _ENTRIES.get(_ALIASES.get(lowered, lowered))
    if entry is None:
        hint = nearest(name, [*_ENTRIES, *_ALIASES], listed=8)
        raise InputError(f"no network is called '{one_line(name, 60)}'; {hint}")
    return entry


def build_network(name: str, *, batch: int, training: bool = True, loss: bool = False, **options: Any) -> Network:
    """Return the network called *name* for *batch* samples at once.

    *name*: one of :func:`network_names`, or an alias.
    *batch*: images or sequences.
    *training*: whether dropout is there, and layers that are trained with alone.
    *loss*: whether the cross-entropy comes last.
    *options*: ``image`` (a side, or height and width) and ``classes`` of networks for images; ``sequence_length``,
        ``hidden``, ``heads``, ``layers``, ``vocabulary``, ``attention``, ... of those for sequences; ``inputs`` and
        ``widths`` of perceptrons.  None stands for the network's own.

    Raises InputError where there is no such network, an option that it does not take, or a size that it cannot work
    with.
    """
    entry = find_entry(name)
    given = {key: _numbers(key, value) for key, value in options.items() if value is not None}
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


def _numbers(key: str, value: Any) -> Any:
    """Return the widths that the command line writes as ``2048,512,1``."""
    if key == "widths" and isinstance(value, str) and all(part.strip().isdecimal() for part in value.split(",")):
        return tuple(int(part) for part in value.split(","))
    return value


def _check(name: str, key: str, value: Any) -> None:
    """Raise where *value* is no size, or no choice, of the option *key*."""
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise InputError(f"{name}: {key} '{one_line(value, 60)}'; {nearest(str(value), _CHOICES[key])}")
        return
    least, most = 0 if key in _MAY_BE_ZERO else 1, _MOST.get(key, _MAX_SIZE)
    sizes = value if isinstance(value, tuple) else (value,)
    if key == "image" and len(sizes) not in (1, 2):
        raise InputError(f"{name}: image is a side, or height and width; got {one_line(value, 60)}")
    for size in sizes or (None,):
        if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= most:
            raise InputError(f"{name}: {key} must be a whole number, {least} to {most}; got {one_line(value, 60)}")
