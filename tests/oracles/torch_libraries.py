"""Networks of the zoo as torchvision and transformers have them."""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tests.oracles.torch_counting import BATCH, images, oracle

_STUBS = torch.library.Library("torchvision", "FRAGMENT")


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


_NEMOTRON = {"nemotron4-15b": (6144, 48, 32), "nemotron4-340b": (18432, 96, 96)}


@oracle(*_NEMOTRON, needs="transformers")
def nemotron(name: str) -> Any:
    from transformers import NemotronConfig, NemotronForCausalLM

    hidden, heads, layers = _NEMOTRON[name]
    config = NemotronConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=4 * hidden,
        num_key_value_heads=8,
        vocab_size=256000,
    )
    return language(NemotronForCausalLM, config, 4096)


EAGER = frozenset((*_GPT2, *_LLAMA, *_NEMOTRON))  # the zoo runs some of these with fused attention
