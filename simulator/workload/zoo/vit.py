"""Vision transformers (Dosovitskiy et al., arXiv 2010.11929, table 1), as in torchvision and Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from simulator.workload.network import Parameter
from simulator.workload.operators import Copy
from simulator.workload.zoo import Outputs, ZooEntry
from simulator.workload.zoo.attention import attended, feed_forward
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, pair

Sizes = tuple[int, int, int, int]
# Side of a patch, hidden size, heads, layers; the feed-forward layer is 4 x hidden wide.
_SIZES: dict[str, Sizes] = {
    "vit-b16": (16, 768, 12, 12),
    "vit-b32": (32, 768, 12, 12),
    "vit-l16": (16, 1024, 16, 24),
    "vit-l32": (32, 1024, 16, 24),
    "vit-h14": (14, 1280, 16, 32),
}


def vit_entry(sizes: Sizes, image: int = 224, channels: int = 3, classes: int = 1000, dropout: int = 0) -> ZooEntry:
    """Return the vision transformer of *sizes* for images of *image* x *image*; *dropout*: 1 if its rate is above 0.

    Each patch is a token, and a class token is added.  The paper trains with dropout; torchvision, Hugging Face and
    timm have a rate of 0, for which PyTorch runs nothing.  It raises SizeError if the patches do not divide the image.
    """
    patch, hidden, heads, layers = sizes

    def make(net: NetworkBuilder, batch: int, options: Mapping[str, Any]) -> Outputs:
        height, width = pair(options["image"])
        if height % patch or width % patch:
            raise SizeError(f"patches of {patch} do not divide an image of {height} x {width}")
        drops = bool(options["dropout"])
        x = net.input(batch, channels, height, width).conv("patches", hidden, patch, stride=patch, bias=True)
        shape = batch, x.shape[2] * x.shape[3] + 1, hidden
        tokens = Copy(prod(shape), transposed=True)
        x = x.layer("class_token", tokens, shape, (Parameter("class_token", hidden),))
        x = x.add_small("positions", parameters=(Parameter("positions", shape[1] * hidden),))
        x = x.dropout("dropout") if drops else x
        for i in range(layers):
            name = f"layers.{i}"
            y = attended(x.layer_norm(f"{name}.norm1"), name, heads, "none", options["attention"], dropout=False)
            x = (y.dropout(f"{name}.out_dropout") if drops else y).add(x, f"{name}.add1")
            y = feed_forward(x.layer_norm(f"{name}.norm2"), name, 4 * hidden, "gelu", dropped=drops)
            x = (y.dropout(f"{name}.down_dropout") if drops else y).add(x, f"{name}.add2")
        return x.layer_norm("norm").view(batch, hidden).linear("head", options["classes"])

    defaults = {"image": image, "classes": classes, "attention": "fused", "dropout": dropout}
    return ZooEntry("images", defaults, make)


VIT: dict[str, ZooEntry] = {name: vit_entry(sizes) for name, sizes in _SIZES.items()}
