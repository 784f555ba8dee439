"""Vision transformers (Dosovitskiy et al., arXiv 2010.11929, table 1), as in torchvision and Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.workload.network import Parameter
from simulator.workload.operators import Copy, Elementwise
from simulator.workload.zoo import Outputs, ZooEntry
from simulator.workload.zoo.attention import AttentionKind, self_attention
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError

Sizes = tuple[int, int, int, int]
# Side of a patch, hidden size, heads, layers; the feed-forward layer is 4 x hidden wide.
_SIZES: dict[str, Sizes] = {
    "vit-b16": (16, 768, 12, 12),
    "vit-b32": (32, 768, 12, 12),
    "vit-l16": (16, 1024, 16, 24),
    "vit-l32": (32, 1024, 16, 24),
    "vit-h14": (14, 1280, 16, 32),
}


def vit(
    b: NetworkBuilder,
    images: LayerOutput,
    classes: int,
    *,
    sizes: Sizes,
    attention: AttentionKind,
    dropout: bool = False,
) -> LayerOutput:
    """Return the logits of *images*; each patch is a token, and a class token is added.

    *dropout*: as the paper trains; torchvision, Hugging Face and timm have a rate of 0, for which PyTorch runs nothing.
    Raises SizeError if the patches do not divide the image.
    """
    patch, hidden, heads, layers = sizes
    batch, _, height, width = images.shape
    if height % patch or width % patch:
        raise SizeError(f"patches of {patch} do not divide an image of {height} x {width}")
    x = b.conv(images, "patches", hidden, patch, stride=patch, bias=True)
    length = x.shape[2] * x.shape[3] + 1
    shape = batch, length, hidden
    joined = Copy(batch * length * hidden, transposed=True)
    x = b.add_layer("class_token", joined, (x,), shape, (Parameter("class_token", hidden),))
    positions = Parameter("positions", length * hidden)
    x = b.add_layer("positions", Elementwise("add", x.elements, summed=1), (x,), shape, (positions,))
    x = b.dropout(x, "dropout") if dropout else x
    for i in range(layers):
        x = _block(b, x, f"layers.{i}", heads, attention, dropout)
    first = b.view(b.layer_norm(x, "norm"), batch, hidden)
    return b.linear(first, "head", classes)


def _block(
    b: NetworkBuilder, x: LayerOutput, name: str, heads: int, attention: AttentionKind, dropout: bool
) -> LayerOutput:
    def dropped(y: LayerOutput, of: str) -> LayerOutput:
        return b.dropout(y, f"{name}.{of}_dropout") if dropout else y

    hidden = x.shape[-1]
    y = b.layer_norm(x, f"{name}.norm1")
    with b.part("attention"):
        query, key, value = (b.linear(y, f"{name}.{c}", hidden, split="columns") for c in "qkv")
        qkv = query, key, value
        y = self_attention(b, qkv, name, heads=heads, kind=attention, mask="none", dropout=False)
        y = b.linear(y, f"{name}.out", hidden, split="rows")
    x = b.add(dropped(y, "out"), x, f"{name}.add1")
    y = b.layer_norm(x, f"{name}.norm2")
    with b.part("feed-forward"):
        y = b.elementwise(f"{name}.gelu", "gelu", b.linear(y, f"{name}.up", 4 * hidden, split="columns"))
        y = b.linear(dropped(y, "gelu"), f"{name}.down", hidden, split="rows")
    return b.add(dropped(y, "down"), x, f"{name}.add2")


def vit_entry(sizes: Sizes, image: int = 224, channels: int = 3, classes: int = 1000, dropout: int = 0) -> ZooEntry:
    """Return the vision transformer of *sizes* for images of *image* x *image*; *dropout*: 1 if its rate is above 0."""

    def make(b: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        image = options["image"]
        height, width = (image, image) if isinstance(image, int) else image
        x = b.input(batch, channels, height, width)
        given = {"attention": options["attention"], "dropout": bool(options["dropout"])}
        return vit(b, x, options["classes"], sizes=sizes, **given)

    defaults = {"image": image, "classes": classes, "attention": "fused", "dropout": dropout}
    return ZooEntry("images", defaults, make)


VIT: dict[str, ZooEntry] = {name: vit_entry(sizes) for name, sizes in _SIZES.items()}
