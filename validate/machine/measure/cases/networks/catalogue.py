"""Networks by name, with the inputs and the loss of a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.cases.networks.decoder import Gpt, Llama
from validate.machine.measure.cases.networks.encoder import Encoder
from validate.machine.measure.cases.networks.joined import densenet121, inception3
from validate.machine.measure.cases.networks.plain import Words, alexnet, lenet, perceptron, vgg
from validate.machine.measure.cases.networks.residual import resnet, resnet_small_image

Sample = Literal["images", "samples", "sequences"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a sequence network; 0 stands for the network's default."""

    length: int = 0
    hidden: int = 0
    heads: int = 0
    layers: int = 0
    vocabulary: int = 0

    def over(self, own: Sizes) -> Sizes:
        """Return these sizes, with zeros replaced by those of *own*."""
        return Sizes(*(getattr(self, name) or getattr(own, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Entry:
    """A network: the kind of its samples, its default sizes, and the function that makes the module.

    ``make`` takes the sizes and whether the module is trained.  ``shape`` is that of one sample, except for sequences;
    ``classes`` is the number of classes of its labels.
    """

    sample: Sample
    make: Callable[[Sizes, bool], Any]
    shape: tuple[int, ...] = ()
    classes: int = 1000
    own: Sizes = Sizes()


def _images(make: Callable[[], Any], image: int = 224, channels: int = 3, classes: int = 1000) -> Entry:
    return Entry("images", lambda _sizes, _training: make(), (channels, image, image), classes)


def _bert(hidden: int, heads: int, layers: int) -> Entry:
    def make(s: Sizes, training: bool) -> Any:
        return Encoder(s.hidden, s.heads, s.layers, s.vocabulary, s.length, training=training)

    return Entry("sequences", make, own=Sizes(512, hidden, heads, layers, 30522))


def _gpt(hidden: int, heads: int, layers: int, *, fused: bool = False) -> Entry:
    def make(s: Sizes, training: bool) -> Any:
        del training
        positions = 0 if fused else 1024
        return Gpt(s.hidden, s.heads, s.layers, s.vocabulary, s.length, positions=positions, fused=fused)

    own = Sizes(2048, hidden, heads, layers, 50368) if fused else Sizes(1024, hidden, heads, layers, 50257)
    return Entry("sequences", make, own=own)


def _llama(s: Sizes, training: bool) -> Any:
    del training
    return Llama(s.hidden, s.heads, s.layers, 11008, s.vocabulary, s.length)


def _words(s: Sizes, training: bool) -> Any:
    del training
    return Words(s.hidden, s.layers, s.vocabulary)


ENTRIES: Mapping[str, Entry] = {
    "lenet": _images(lenet, 28, 1, 10),
    "mlp": Entry("samples", lambda _sizes, _training: perceptron(512, 256, 128, 2), (512,), 2),
    "alexnet": _images(alexnet),
    "vgg16": _images(partial(vgg, 16)),
    **{f"resnet{depth}": _images(partial(resnet, depth)) for depth in (18, 50, 152)},
    "resnet18-28x28": _images(partial(resnet_small_image, 1), 28, 1, 10),
    "inception3": Entry("images", lambda _sizes, training: inception3(training), (3, 299, 299)),
    "densenet121": _images(densenet121),
    "lstm-shi2016": Entry("sequences", _words, own=Sizes(32, 256, 0, 2, 10000)),
    "bert-base": _bert(768, 12, 12),
    "bert-large": _bert(1024, 16, 24),
    "gpt2": _gpt(768, 12, 12),
    "gpt2-medium": _gpt(1024, 16, 24),
    "mpt-125m": _gpt(768, 12, 12, fused=True),
    "mpt-350m": _gpt(1024, 16, 24, fused=True),
    "llama-7b": Entry("sequences", _llama, own=Sizes(2048, 4096, 32, 32, 32000)),
}

WITHOUT_BLOCKS = ("densenet121", "inception3")
"""Networks without repeated parts as the simulator shards them; their numbered parts are not units."""


@dataclass(frozen=True, slots=True)
class Example:
    """A module with a batch of random inputs and labels."""

    module: Any
    inputs: tuple[Any, ...]
    labels: tuple[Any, ...]

    def forward(self) -> tuple[Any, ...]:
        """Return the outputs."""
        outputs = self.module(*self.inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def loss(self) -> Any:
        """Return the sum of the cross-entropies of all outputs."""
        losses = [
            F.cross_entropy(output.reshape(-1, output.shape[-1]), labels)
            for output, labels in zip(self.forward(), self.labels, strict=True)
        ]
        return sum(losses[1:], losses[0])


def build_example(
    name: str, batch: int, device: Any, *, training: bool = True, sizes: Sizes | None = None, dtype: Any = None
) -> Example:
    """Return the network *name* on *device*; parameters and images have *dtype* (fp32 where None).

    Without *training*, dropout is off and training-only layers are absent.  The values are random because they affect a
    device's power draw and thereby its clock.
    """
    entry = ENTRIES[name]
    asked = (sizes or Sizes()).over(entry.own)
    dtype = dtype or torch.float32
    with torch.device(device):
        module = entry.make(asked, training).train(training).to(dtype)
        if entry.sample != "sequences":
            inputs = (torch.randn(batch, *entry.shape, dtype=dtype),)
            outputs = 2 if name == "inception3" and training else 1
            return Example(module, inputs, tuple(torch.randint(entry.classes, (batch,)) for _ in range(outputs)))
        tokens = torch.randint(asked.vocabulary, (batch, asked.length))
        words = torch.randint(asked.vocabulary, (batch * asked.length,))
        if not name.startswith("bert"):
            return Example(module, (tokens,), (words,))
        segments, following = torch.randint(2, (batch, asked.length)), torch.randint(2, (batch,))
        return Example(module, (tokens, segments), (words, following) if training else (following,))
