"""Networks by name: ``build_network("resnet50", batch=32)``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from simulator.errors import InputError, nearest, one_line
from simulator.workload.network import Network
from simulator.workload.zoo import Outputs, ZooEntry, called
from simulator.workload.zoo.builder import NetworkBuilder, SizeError

__all__ = ["ZooEntry", "build_entry", "build_network", "find_entry", "nearest_network", "network_names"]


def _model(where: str) -> Any:
    """Return the function of a file of this folder, such as ``alexnet.vgg``; it is loaded when it builds."""
    module, _, name = where.partition(".")
    return getattr(import_module(f"simulator.workload.zoo.{module}"), name)


def _images(
    model: str,
    *,
    image: int | tuple[int, int] = 224,
    channels: int = 3,
    classes: int = 1000,
    **fixed: Any,
) -> ZooEntry:
    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        size = options["image"]
        height, width = (size, size) if isinstance(size, int) else size
        found: Outputs = _model(model)(b, b.input(batch, channels, height, width), options["classes"], **fixed)
        return found

    return ZooEntry("images", {"image": image, "classes": classes}, make)


def _volumes(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
    side = options["image"]
    if not isinstance(side, int):
        raise SizeError("a volume has one side; got height and width")
    from simulator.workload.zoo.unet import unet3d

    return unet3d(b, b.input(batch, 1, side, side, side), options["classes"])


def _samples(model: str, **sizes: Any) -> ZooEntry:
    """Return the entry of *model*, which makes inputs of its own from the batch and *sizes*."""

    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        found: Outputs = _model(model)(b, batch, **options)
        return found

    return ZooEntry("samples", sizes, make)


def _sequences(model: str, length: int, *, length_known: bool = False, **sizes: Any) -> ZooEntry:
    """Return the entry of *model* of sequences of *length* tokens."""

    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        given = {name: value for name, value in options.items() if name != "sequence_length"}
        found: Outputs = _model(model)(b, b.input(batch, options["sequence_length"]), **given)
        return found

    return ZooEntry("sequences", {"sequence_length": length, **sizes}, make, length_known=length_known)


def _with_memory(hidden: int, heads: int, layers: int, inner: int, length: int) -> ZooEntry:
    sizes: dict[str, Any] = {"hidden": hidden, "heads": heads, "layers": layers, "inner": inner}
    return _sequences("transformer_xl.transformer_xl", length, **sizes, memory=length, vocabulary=267735)


def _widths(default: tuple[int, ...], inputs: int, activation: str = "relu") -> ZooEntry:
    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        from simulator.workload.zoo.small import perceptron

        widths = options["widths"]
        widths = widths if isinstance(widths, tuple) else (widths,)
        return perceptron(b, b.input(batch, options["inputs"]), widths, activation)

    return ZooEntry("samples", {"inputs": inputs, "widths": default}, make)


_VGG = (11, 13, 16, 19)
_RESNET = (18, 34, 50, 101, 152, 200)
_OWN: dict[str, ZooEntry] = {
    "lenet": _images("small.lenet", image=28, channels=1, classes=10),
    "lenet-d2l": _images("small.lenet_d2l", image=28, channels=1, classes=10),
    "mlp": _widths((256, 128, 2), 512),
    "alexnet": _images("alexnet.alexnet"),
    "alexnet-owt": _images("alexnet.alexnet_owt"),
    "overfeat-fast": _images("alexnet.overfeat_fast", image=231),
    "googlenet": _images("googlenet.googlenet"),
    "inception-bn": _images("googlenet.inception_bn"),
    "inception3": _images("inception3.inception3", image=299),
    **{f"vgg{depth}": _images("alexnet.vgg", depth=depth) for depth in _VGG},
    **{f"resnet{depth}": _images("resnet.resnet", depth=depth) for depth in _RESNET},
    "resnet18-28x28": _images("resnet.resnet_small_image", image=28, channels=1, classes=10),
    "resnet18-cifar": _images("resnet.resnet_small_image", image=32, classes=10),
    **{f"resnet{d}": _images("resnet.resnet_cifar", image=32, classes=10, depth=d) for d in (20, 32, 44, 56, 110)},
    "resnext101-32x4d": _images("resnet.resnet", depth=101, groups=32, group_width=4),
    **{f"densenet{depth}": _images("resnet.densenet", depth=depth) for depth in (121, 161, 169, 201)},
    "mask-rcnn": _images("maskrcnn.mask_rcnn", image=(800, 1344), classes=91),
    "unet": _images("unet.unet", image=572, channels=1, classes=2),
    "unet3d": ZooEntry("images", {"image": 128, "classes": 3}, _volumes),
    **{f"ssd-resnet{depth}": _images("maskrcnn.ssd300", image=300, classes=81, depth=depth) for depth in (34, 50)},
    "fcn-s": _widths((2048, 2048, 2048, 26752), 26752, "sigmoid"),
    "fcn-r": _widths((2048, 4096, 1024, 10), 784, "sigmoid"),
    "alexnet-s": _images("small.alexnet_s"),
    "alexnet-r": _images("small.alexnet_r", image=32, classes=10),
    "lstm-shi2016": _sequences(
        *("small.lstm_language_model", 32), length_known=True, hidden=256, layers=2, vocabulary=10000
    ),
}
_OTHERS: dict[str, ZooEntry] = {
    "gnmt": _sequences("gnmt.gnmt", 50, hidden=1024, layers=4, vocabulary=32320),
    "tacotron2": _samples("tacotron2.tacotron2", characters=170, frames=860),
    "transformer-xl-base": _with_memory(512, 8, 16, 2048, 192),
    "transformer-xl-large": _with_memory(1024, 16, 18, 4096, 256),
    "waveglow": _samples("waveglow.waveglow", samples=8000, channels=512),
    "ncf": _samples("small.neumf", users=138493, items=26744, factors=64, widths=(256, 256, 128, 64)),
}
_OWN_ALIASES = {
    **{f"resnet-{depth}": f"resnet{depth}" for depth in (*_RESNET, 56)},
    **{f"vgg-{depth}": f"vgg{depth}" for depth in _VGG},
    "inception-v3": "inception3",
    "inceptionv3": "inception3",
    "lenet-5": "lenet",
    "lenet-fashion-mnist": "lenet-d2l",
    "resnet18-fashion-mnist": "resnet18-28x28",
    "densenet-161": "densenet161",
}
_OTHER_ALIASES = {
    **{f"vit-{x}-{n}": f"vit-{x}{n}" for x, n in (("b", 16), ("b", 32), ("l", 16), ("l", 32), ("h", 14))},
    "neumf": "ncf",
    "maskrcnn": "mask-rcnn",
    **{f"ssd300-resnet{depth}": f"ssd-resnet{depth}" for depth in (34, 50)},
    "unet-medical": "unet",
    "3d-unet": "unet3d",
}
_WORDED = ("attention", "cross_entropy", "gelu", "head", "lora_layers", "lora_weights")
_WIDTHS = re.compile(r"\s*\d{1,18}\s*(,\s*\d{1,18}\s*)*", re.ASCII)
_MAX_SIZE = 10**9
_MOST = {"layers": 1024, "frames": 1024, "tied": 1, "dropout": 1, "mtp_layers": 64}
_MAY_BE_ZERO = (
    *("positions", "inner", "kv_heads", "tied", "predicted", "shared_inner", "dense_layers", "lora", "head_size"),
    *("dropout", "mtp_layers"),
)


@cache
def _entries() -> Mapping[str, ZooEntry]:
    """Return all networks by name, for which transformers are loaded."""
    from simulator.workload.zoo.language import LANGUAGE
    from simulator.workload.zoo.vit import VIT

    return {**_OWN, **LANGUAGE, **VIT, **_OTHERS}


@cache
def _aliases() -> Mapping[str, str]:
    from simulator.workload.zoo.language import LANGUAGE_ALIASES

    return {**_OWN_ALIASES, **LANGUAGE_ALIASES, **_OTHER_ALIASES}


@cache
def _choices() -> Mapping[str, tuple[str, ...]]:
    """Return the words that options of transformers may have."""
    from simulator.workload.variants import LORA_LAYERS, LORA_WEIGHTS, LOSS_WAYS
    from simulator.workload.zoo.attention import ATTENTIONS
    from simulator.workload.zoo.bert import HEADS
    from simulator.workload.zoo.sizes import GELUS

    of_lora = {"lora_layers": LORA_LAYERS, "lora_weights": LORA_WEIGHTS}
    return {"attention": ATTENTIONS, "cross_entropy": LOSS_WAYS, "gelu": GELUS, "head": HEADS, **of_lora}


def network_names() -> list[str]:
    """Return the names of the zoo, without aliases."""
    return list(_entries())


def find_entry(name: str) -> ZooEntry:
    """Return the entry for *name* or an alias; raises InputError, with the nearest name, if there is none."""
    lowered = name.lower().replace("_", "-")
    entry = _OWN.get(_OWN_ALIASES.get(lowered, lowered)) or _entries().get(_aliases().get(lowered, lowered))
    if entry is None:
        raise InputError(f"no network is called '{one_line(name, 60)}'; {nearest_network(name, listed=8)}")
    return entry


def nearest_network(name: str, listed: int) -> str:
    """Return a hint at the networks of the zoo in place of *name*, as :func:`simulator.errors.nearest` does."""
    return nearest(name, _entries(), listed, aliases=_aliases())


def build_network(name: str, *, batch: int, training: bool = True, loss: bool = False, **options: Any) -> Network:
    """Return the network called *name* for a batch of *batch* samples.

    *name*: one of :func:`network_names`, or an alias.
    *batch*: images or sequences.
    *training*: include dropout and layers that exist only in training.
    *loss*: append the cross-entropy.
    *options*: ``image`` (a side, or height and width) and ``classes`` for image networks; ``sequence_length``,
        ``hidden``, ``heads``, ``layers``, ``vocabulary``, ``attention``, ... for sequence networks; ``inputs`` and
        ``widths`` for perceptrons.  None stands for the network's own value.

    Raises InputError if there is no such network, if an option does not apply to it, or if a size does not fit.
    """
    return build_entry(name, find_entry(name), batch=batch, training=training, loss=loss, **options)


def build_entry(
    name: str, entry: ZooEntry, *, batch: int, training: bool = True, loss: bool = False, **options: Any
) -> Network:
    """Return the network of *entry*, under the name *name*; otherwise as :func:`build_network`."""
    given = {key: _numbers(key, value) for key, value in options.items() if value is not None}
    for key, value in {"batch": batch, **given}.items():
        if key != "batch" and key not in entry.defaults:
            hint = nearest(key, ["batch", *entry.defaults])
            raise InputError(f"{name}: {one_line(key, 60)} does not apply to this network; {hint}")
        _check(name, key, value)
    sizes = {**entry.defaults, **given}
    builder = NetworkBuilder(name, training=training)
    try:
        outputs = entry.make(builder, batch, sizes)
    except SizeError as error:
        raise InputError(f"{name}: {error}") from None
    if loss:
        for i, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
            builder.cross_entropy(output, f"loss{i or ''}")
    network = replace(builder.build(batch, entry.sample), own_name=called(name, entry, sizes, _entries))
    if given.get("lora"):
        from simulator.workload.variants import with_lora

        network = with_lora(network, given["lora"], sizes["lora_layers"], sizes["lora_weights"])
    elif given.get("lora_weights", "plain") != "plain":
        raise InputError(f"{name}: lora_weights is about the frozen weights beside adapters; add lora=16")
    if loss and given.get("cross_entropy", "plain") != "plain":
        from simulator.workload.variants import with_losses

        network = with_losses(network, given["cross_entropy"])
    return network


def _numbers(key: str, value: Any) -> Any:
    """Return *value*, with the command line's ``2048,512,1`` for widths parsed into a tuple."""
    if key == "widths" and isinstance(value, str) and _WIDTHS.fullmatch(value):
        return tuple(map(int, value.split(",")))
    return value


def _check(name: str, key: str, value: Any) -> None:
    """Raise InputError if *value* is neither a valid size nor a valid choice for the option *key*."""
    if key in _WORDED:
        allowed = _choices()[key]
        if value not in allowed:
            raise InputError(f"{name}: {key} '{one_line(value, 60)}'; {nearest(str(value), allowed)}")
        return
    least, most = 0 if key in _MAY_BE_ZERO else 1, _MOST.get(key, _MAX_SIZE)
    sizes = value if isinstance(value, tuple) else (value,)
    if key == "image" and len(sizes) not in (1, 2):
        raise InputError(f"{name}: image is a side, or height and width; got {one_line(value, 60)}")
    for size in sizes or (None,):
        if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= most:
            raise InputError(f"{name}: {key} must be a whole number, {least} to {most}; got {one_line(value, 60)}")
