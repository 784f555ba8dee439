"""The networks of the zoo as torch modules on the meta device, written anew or taken from libraries.

``build(name)`` returns a module and its inputs for a batch of 2.  torchvision and
transformers are needed for their networks alone; nothing here reads the zoo.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

BATCH = 2
_STUBS = torch.library.Library("torchvision", "FRAGMENT")
NAMES: dict[str, tuple[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]]] = {}


@dataclass(frozen=True)
class Figures:
    """What is compared: parameters, shapes of the outputs, FLOPs forward and of a training step."""

    parameters: int
    outputs: list[list[int]]
    forward_flop: int
    training_flop: int


def torchvision_models() -> ModuleType:
    """Import torchvision also where its compiled part does not fit the torch that is there."""
    for _ in range(20):
        try:
            return importlib.import_module("torchvision.models")
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            _STUBS.define(f"{missing[1]}(Tensor x) -> Tensor")
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    raise RuntimeError("torchvision cannot be imported")


def measure(name: str) -> Figures:
    """Run *name* forward, then forward and backward, under torch's counter."""
    with torch.device("meta"):
        module, inputs = NAMES[name][1]()
        with FlopCounterMode(display=False) as forward, torch.no_grad():
            outputs = _tensors(module(*inputs))
        with FlopCounterMode(display=False) as training:
            results = _tensors(module(*inputs))
            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
    return Figures(
        sum(p.numel() for p in module.parameters()),
        [list(o.shape) for o in outputs],
        forward.get_total_flops(),
        training.get_total_flops(),
    )


def _tensors(result: Any) -> list[torch.Tensor]:
    """Return what a loss would be computed from, of what libraries return."""
    if isinstance(result, torch.Tensor):
        return [result]
    keys = ("prediction_logits", "seq_relationship_logits", "start_logits", "end_logits", "logits", "aux_logits")
    found = [getattr(result, key) for key in keys if getattr(result, key, None) is not None]
    if [getattr(result, key, None) is not None for key in keys[2:4]] == [True, True]:  # one layer of two columns
        return [torch.stack(found, -1)]
    return found


def oracle(*names: str, needs: str = "torch") -> Callable[[Any], Any]:
    """Register a function that builds the networks *names*, with the library that it needs."""

    def register(function: Any) -> Any:
        for name in names:
            NAMES[name] = (needs, partial(function, name))
        return function

    return register


def images(size: int, channels: int = 3) -> tuple[torch.Tensor, ...]:
    return (torch.empty(BATCH, channels, size, size),)


# -- torchvision -----------------------------------------------------------------------

_TORCHVISION = {
    "alexnet": "alexnet",
    **{f"vgg{n}": f"vgg{n}" for n in (11, 13, 16, 19)},
    **{f"resnet{n}": f"resnet{n}" for n in (18, 34, 50, 101, 152)},
    **{f"densenet{n}": f"densenet{n}" for n in (121, 161, 169, 201)},
}


@oracle(*_TORCHVISION, needs="torchvision")
def torchvision_network(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return getattr(torchvision_models(), _TORCHVISION[name])(weights=None), images(224)


@oracle("inception3", needs="torchvision")
def torchvision_inception(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return torchvision_models().inception_v3(weights=None, init_weights=False), images(299)


@oracle("resnet200", "resnext101-32x4d", needs="torchvision")
def torchvision_residual(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    resnet = torchvision_models().resnet
    if name == "resnet200":
        return resnet.ResNet(resnet.Bottleneck, [3, 24, 36, 3]), images(224)
    return resnet.ResNet(resnet.Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4), images(224)


# -- transformers ----------------------------------------------------------------------


class Tokens(nn.Module):
    """A model of transformers that is called with tokens alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> Any:
        if mask is None:
            return self.model(tokens)
        positions = torch.zeros_like(tokens)
        return self.model(tokens, attention_mask=mask, position_ids=positions, use_cache=False)


def language(model: type[nn.Module], config: Any, length: int, *, causal: bool = True) -> Any:
    """Return *model* with eager attention, and tokens; a ready mask, as checks of one need its values."""
    config._attn_implementation = "eager"
    tokens = torch.zeros(BATCH, length, dtype=torch.int64)
    mask = torch.zeros(BATCH, 1, length, length) if causal else None
    return Tokens(model(config)), (tokens, mask)


_BERT = {"bert-base": (768, 12, 12), "bert-large": (1024, 16, 24)}


@oracle("bert-base", "bert-large", "bert-base-squad", "bert-large-squad", needs="transformers")
def bert(name: str) -> Any:
    from transformers import BertConfig, BertForPreTraining, BertForQuestionAnswering

    hidden, heads, layers = _BERT[name.removesuffix("-squad")]
    config = BertConfig(
        hidden_size=hidden, num_attention_heads=heads, num_hidden_layers=layers, intermediate_size=4 * hidden
    )
    if name.endswith("squad"):
        return language(BertForQuestionAnswering, config, 384, causal=False)
    return language(BertForPreTraining, config, 512, causal=False)


# hidden, heads, layers, vocabulary, length
_GPT2 = {
    "gpt2": (768, 12, 12, 50257, 1024),
    "gpt2-medium": (1024, 16, 24, 50257, 1024),
    "gpt2-large": (1280, 20, 36, 50257, 1024),
    "gpt2-xl": (1600, 25, 48, 50257, 1024),
    "gpt": (1024, 16, 24, 51200, 1024),
    "gpt3-125m": (768, 12, 12, 50257, 2048),
    "gpt3-350m": (1024, 16, 24, 50257, 2048),
    "gpt3-760m": (1536, 16, 24, 50257, 2048),
    "gpt3-xl": (3072, 24, 24, 50257, 2048),
    "gpt3-2.7b": (2560, 32, 32, 50257, 2048),
    "gpt3-6.7b": (4096, 32, 32, 50257, 2048),
    "gpt3-13b": (5120, 40, 40, 50257, 2048),
    "gpt3-175b": (12288, 96, 96, 50257, 2048),
    "mpt-125m": (768, 12, 12, 50368, 2048),
    "mpt-350m": (1024, 16, 24, 50368, 2048),
    "mpt-760m": (1536, 12, 24, 50368, 2048),
    "mpt-1b": (2048, 16, 24, 50368, 2048),
    "mpt-3b": (2560, 20, 32, 50368, 2048),
    "mpt-7b": (4096, 32, 32, 50368, 2048),
    "mpt-13b": (5120, 40, 40, 50368, 2048),
    "mpt-30b": (7168, 56, 48, 50368, 2048),
    "mpt-70b": (8192, 64, 80, 50368, 2048),
}


@oracle(*_GPT2, needs="transformers")
def gpt2(name: str) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    hidden, heads, layers, words, length = _GPT2[name]
    config = GPT2Config(n_embd=hidden, n_head=heads, n_layer=layers, vocab_size=words, n_positions=length)
    return language(GPT2LMHeadModel, config, length)


_OPT = {
    "opt-125m": (768, 12, 12),
    "opt-350m": (1024, 16, 24),
    "opt-1.3b": (2048, 32, 24),
    "opt-2.7b": (2560, 32, 32),
    "opt-6.7b": (4096, 32, 32),
    "opt-13b": (5120, 40, 40),
    "opt-30b": (7168, 56, 48),
    "opt-66b": (9216, 72, 64),
    "opt-175b": (12288, 96, 96),
}


@oracle(*_OPT, needs="transformers")
def opt(name: str) -> Any:
    from transformers import OPTConfig, OPTForCausalLM

    hidden, heads, layers = _OPT[name]
    odd = {"word_embed_proj_dim": 512, "do_layer_norm_before": False} if name == "opt-350m" else {}
    config = OPTConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        ffn_dim=4 * hidden,
        **{"word_embed_proj_dim": hidden, **odd},
    )
    return language(OPTForCausalLM, config, 2048)


# hidden, heads, layers, inner, heads of keys, vocabulary, length
_LLAMA = {
    "llama-7b": (4096, 32, 32, 11008, 32, 32000, 2048),
    "llama-13b": (5120, 40, 40, 13824, 40, 32000, 2048),
    "llama-33b": (6656, 52, 60, 17920, 52, 32000, 2048),
    "llama-65b": (8192, 64, 80, 22016, 64, 32000, 2048),
    "llama2-70b": (8192, 64, 80, 28672, 8, 32000, 4096),
    "llama3-8b": (4096, 32, 32, 14336, 8, 128256, 8192),
    "llama3-70b": (8192, 64, 80, 28672, 8, 128256, 8192),
    "llama3-405b": (16384, 128, 126, 53248, 8, 128256, 8192),
}


@oracle(*_LLAMA, needs="transformers")
def llama(name: str) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, heads, layers, inner, kv_heads, words, length = _LLAMA[name]
    config = LlamaConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=inner,
        num_key_value_heads=kv_heads,
        vocab_size=words,
        max_position_embeddings=length,
    )
    return language(LlamaForCausalLM, config, length)


# -- written here ----------------------------------------------------------------------


def conv(c_in: int, c_out: int, kernel: int, stride: int = 1, pad: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(c_in, c_out, kernel, stride, pad), nn.ReLU()]


def dense(*widths: int, activation: type[nn.Module] = nn.ReLU) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), activation()]
    return layers[:-1]


@oracle("lenet", "lenet-d2l", "alexnet-owt", "overfeat-fast", "alexnet-s", "alexnet-r")
def column(name: str) -> Any:
    pool, pool2, half, flat = nn.MaxPool2d(3, 2), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten()
    if name == "lenet":
        first = [nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), half, nn.Conv2d(6, 16, 5), nn.Sigmoid(), half, flat]
        return nn.Sequential(*first, *dense(400, 120, 84, 10, activation=nn.Sigmoid)), images(28, 1)
    if name == "lenet-d2l":
        first = [*conv(1, 20, 3), half, *conv(20, 50, 5), half, flat]
        return nn.Sequential(*first, *dense(800, 128, 10)), images(28, 1)
    if name == "alexnet-r":
        layers = [nn.Conv2d(3, 32, 5, padding=2), pool, nn.ReLU(), *conv(32, 32, 5, 1, 2), pool]
        layers += [*conv(32, 64, 5, 1, 2), nn.AvgPool2d(3, 2), flat, nn.Linear(576, 10)]
        return nn.Sequential(*layers), images(32)
    if name == "overfeat-fast":
        layers = [*conv(3, 96, 11, 4), pool2, *conv(96, 256, 5), pool2, *conv(256, 512, 3, 1, 1)]
        layers += [*conv(512, 1024, 3, 1, 1), *conv(1024, 1024, 3, 1, 1), pool2, flat]
        return nn.Sequential(*layers, *dense(36864, 3072, 4096, 1000)), images(231)
    a, b, c, d, e = (64, 192, 384, 256, 256) if name == "alexnet-owt" else (96, 256, 384, 384, 256)
    layers = [*conv(3, a, 11, 4, 2), pool, *conv(a, b, 5, 1, 2), pool, *conv(b, c, 3, 1, 1), *conv(c, d, 3, 1, 1)]
    layers += [*conv(d, e, 3, 1, 1), pool, flat]
    return nn.Sequential(*layers, *dense(9216, 4096, 4096, 1000)), images(224)


@oracle("mlp", "fcn-s", "fcn-r")
def multilayer(name: str) -> Any:
    widths = {
        "mlp": (512, 256, 128, 2),
        "fcn-s": (26752, 2048, 2048, 2048, 26752),
        "fcn-r": (784, 2048, 4096, 1024, 10),
    }[name]
    return nn.Sequential(*dense(*widths)), (torch.empty(BATCH, widths[0]),)


class Residual(nn.Module):
    """A basic block; its shortcut a convolution or, padded, channels of zeros."""

    def __init__(self, c_in: int, c_out: int, stride: int, padded: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )
        self.padding = c_out - c_in if padded else 0
        self.stride = stride
        self.shortcut: nn.Module | None = None
        if not padded and (stride > 1 or c_in != c_out):
            self.shortcut = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self.padding:
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.padding))
        return torch.relu(x + y)


@oracle("resnet18-28x28", "resnet18-cifar", *(f"resnet{n}" for n in (20, 32, 44, 56, 110)))
def small_residual(name: str) -> Any:
    small = name.startswith("resnet18-")
    width, stages, blocks = (64, 4, 2) if small else (16, 3, (int(name.removeprefix("resnet")) - 2) // 6)
    channels, size = (1, 28) if name.endswith("28x28") else (3, 32)
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    c_in = width
    for stage in range(stages):
        for i in range(blocks):
            layers.append(Residual(c_in, width << stage, 2 if stage and not i else 1, not small))
            c_in = width << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_in, 10)]
    return nn.Sequential(*layers), images(size, channels)


class Branches(nn.Module):
    """Modules side by side, joined by channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


@oracle("googlenet")
def first_inception(name: str) -> Any:
    down = nn.MaxPool2d(3, 2, ceil_mode=True)

    def block(c: int, a: int, b1: int, b2: int, d1: int, d2: int, p: int) -> nn.Module:
        return Branches(
            nn.Sequential(*conv(c, a, 1)),
            nn.Sequential(*conv(c, b1, 1), *conv(b1, b2, 3, 1, 1)),
            nn.Sequential(*conv(c, d1, 1), *conv(d1, d2, 5, 1, 2)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), *conv(c, p, 1)),
        )

    layers = [*conv(3, 64, 7, 2, 3), down, *conv(64, 64, 1), *conv(64, 192, 3, 1, 1), down]
    layers += [block(192, 64, 96, 128, 16, 32, 32), block(256, 128, 128, 192, 32, 96, 64), down]
    layers += [block(480, 192, 96, 208, 16, 48, 64), block(512, 160, 112, 224, 24, 64, 64)]
    layers += [block(512, 128, 128, 256, 24, 64, 64), block(512, 112, 144, 288, 32, 64, 64)]
    layers += [block(528, 256, 160, 320, 32, 128, 128), down]
    layers += [block(832, 256, 160, 320, 32, 128, 128), block(832, 384, 192, 384, 48, 128, 128)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers), images(224)


@oracle("inception-bn")
def second_inception(name: str) -> Any:
    def step(c: int, n: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(c, n, kernel, stride, kernel // 2), nn.BatchNorm2d(n), nn.ReLU())

    def keep(c: int, a: int, b1: int, b2: int, d1: int, d2: int, p: int, pool: type[nn.Module]) -> nn.Module:
        return Branches(
            step(c, a),
            nn.Sequential(step(c, b1), step(b1, b2, 3)),
            nn.Sequential(step(c, d1), step(d1, d2, 3), step(d2, d2, 3)),
            nn.Sequential(pool(3, 1, 1), step(c, p)),
        )

    def halve(c: int, b1: int, b2: int, d1: int, d2: int) -> nn.Module:
        return Branches(
            nn.Sequential(step(c, b1), step(b1, b2, 3, 2)),
            nn.Sequential(step(c, d1), step(d1, d2, 3), step(d2, d2, 3, 2)),
            nn.MaxPool2d(3, 2, 1),
        )

    mean, most, down = nn.AvgPool2d, nn.MaxPool2d, nn.MaxPool2d(3, 2)
    layers = [step(3, 64, 7, 2), down, step(64, 64), step(64, 192, 3), down]
    layers += [keep(192, 64, 64, 64, 64, 96, 32, mean), keep(256, 64, 64, 96, 64, 96, 64, mean)]
    layers += [halve(320, 128, 160, 64, 96), keep(576, 224, 64, 96, 96, 128, 128, mean)]
    layers += [keep(576, 192, 96, 128, 96, 128, 128, mean), keep(576, 160, 128, 160, 128, 160, 128, mean)]
    layers += [keep(608, 96, 128, 192, 160, 192, 128, mean), halve(608, 128, 192, 192, 256)]
    layers += [keep(1056, 352, 192, 320, 160, 224, 128, mean), keep(1024, 352, 192, 320, 192, 224, 128, most)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers), images(224)


class Words(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2, batch_first=True)
        self.decoder = nn.Linear(256, 10000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.lstm(self.embed(tokens))[0])


@oracle("lstm-shi2016")
def words(name: str) -> Any:
    return Words(), (torch.zeros(BATCH, 32, dtype=torch.int64),)


def options(name: str) -> Mapping[str, Any]:
    """Return how the zoo is asked for the same."""
    decoders = (*_GPT2, *_LLAMA)
    return {"attention": "eager"} if name in decoders else {}
