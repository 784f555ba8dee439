"""Zoo networks as implemented by torchvision and transformers."""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType
from typing import Any

import torch
from torch import nn

from simulator.workload.zoo.registry import find_entry
from tests.oracles.torch_counting import BATCH, images, oracle

_STUBS = torch.library.Library("torchvision", "FRAGMENT")


def torchvision_models() -> ModuleType:
    """Import torchvision even where its compiled part does not fit the installed torch."""
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


_EFFICIENT = {
    **{f"efficientnet-b{n}": f"efficientnet_b{n}" for n in range(8)},
    **{f"efficientnet-v2-{size}": f"efficientnet_v2_{size}" for size in "sml"},
}


@oracle(*_EFFICIENT, needs="torchvision")
def torchvision_efficientnet(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model = getattr(torchvision_models(), _EFFICIENT[name])(weights=None)
    return model, images(find_entry(name).defaults["image"])


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
    """A transformers model that is called with tokens alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> Any:
        if mask is None:
            return self.model(tokens)
        positions = torch.zeros_like(tokens)
        return self.model(tokens, attention_mask=mask, position_ids=positions, use_cache=False)


def language(model: type[nn.Module], config: Any, length: int, *, causal: bool = True) -> Any:
    """Return *model* with eager attention, and tokens; the mask is given, since computing one needs real values."""
    config._attn_implementation = "eager"
    config._experts_implementation = "batched_mm"  # one product per token and choice; loops need real values
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
    "gpt3-2.9b": (3072, 24, 24, 50257, 2048),
    "gpt3-1.3b": (2048, 16, 24, 50257, 2048),
    "gpt3-2.7b": (2560, 32, 32, 50257, 2048),
    "gpt3-6.7b": (4096, 32, 32, 50257, 2048),
    "gpt3-13b": (5120, 40, 40, 50257, 2048),
    "gpt3-175b": (12288, 96, 96, 50257, 2048),
    "megatron-1.2b": (1536, 16, 40, 51200, 1024),
    "megatron-2.5b": (1920, 20, 54, 51200, 1024),
    "megatron-4.2b": (2304, 24, 64, 51200, 1024),
    "megatron-8.3b": (3072, 32, 72, 51200, 1024),
    "megatron-1.7b": (2304, 24, 24, 51200, 2048),
    "megatron-3.6b": (3072, 32, 30, 51200, 2048),
    "megatron-7.5b": (4096, 32, 36, 51200, 2048),
    "megatron-18b": (6144, 48, 40, 51200, 2048),
    "megatron-22b": (6144, 64, 48, 51200, 2048),
    "megatron-39b": (8192, 64, 48, 51200, 2048),
    "megatron-76b": (10240, 80, 60, 51200, 2048),
    "megatron-145b": (12288, 96, 80, 51200, 2048),
    "megatron-175b": (12288, 96, 96, 51200, 2048),
    "megatron-310b": (16384, 128, 96, 51200, 2048),
    "megatron-530b": (20480, 128, 105, 51200, 2048),
    "megatron-1t": (25600, 160, 128, 51200, 2048),
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


# hidden, heads, layers, inner, key heads, vocabulary, length
_LLAMA = {
    "llama-7b": (4096, 32, 32, 11008, 32, 32000, 2048),
    "llama-13b": (5120, 40, 40, 13824, 40, 32000, 2048),
    "llama-33b": (6656, 52, 60, 17920, 52, 32000, 2048),
    "llama-65b": (8192, 64, 80, 22016, 64, 32000, 2048),
    "llama2-7b": (4096, 32, 32, 11008, 32, 32000, 4096),
    "llama2-13b": (5120, 40, 40, 13824, 40, 32000, 4096),
    "internlm-7b": (4096, 32, 32, 11008, 32, 103168, 2048),
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
        attention_bias=name == "internlm-7b",
    )
    return language(LlamaForCausalLM, config, length)


# hidden, heads, layers, inner, key heads, vocabulary
_QWEN2 = {
    "qwen-7b": (4096, 32, 32, 11008, 32, 151936),
    "qwen2-7b": (3584, 28, 28, 18944, 4, 152064),
    "qwen2.5-32b": (5120, 40, 64, 27648, 8, 152064),
    "qwen2-72b": (8192, 64, 80, 29568, 8, 152064),
}
_QWEN3 = {
    "qwen3-8b": (4096, 32, 36, 12288, 8, 151936),
    "qwen3-32b": (5120, 64, 64, 25600, 8, 151936),
    "qwen3-30b-a3b": (2048, 32, 48, 768, 4, 151936),
    "qwen3-235b-a22b": (4096, 64, 94, 1536, 4, 151936),
}


@oracle(*_QWEN2, *_QWEN3, needs="transformers")
def qwen(name: str) -> Any:
    import transformers

    hidden, heads, layers, inner, kv_heads, words = (_QWEN2 | _QWEN3)[name]
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers, "vocab_size": words}
    sizes |= {"num_key_value_heads": kv_heads, "tie_word_embeddings": False}
    if name in _QWEN2:
        config = transformers.Qwen2Config(intermediate_size=inner, **sizes)
        return language(transformers.Qwen2ForCausalLM, config, 4096)
    if not name.endswith(("a3b", "a22b")):
        config = transformers.Qwen3Config(intermediate_size=inner, head_dim=128, **sizes)
        return language(transformers.Qwen3ForCausalLM, config, 4096)
    config = transformers.Qwen3MoeConfig(
        moe_intermediate_size=inner, head_dim=128, num_experts=128, num_experts_per_tok=8, **sizes
    )
    return language(transformers.Qwen3MoeForCausalLM, config, 4096)


_MIXTRAL = {"mixtral-8x7b": (4096, 32, 32, 14336, 32000), "mixtral-8x22b": (6144, 48, 56, 16384, 32768)}


@oracle(*_MIXTRAL, needs="transformers")
def mixtral(name: str) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    hidden, heads, layers, inner, words = _MIXTRAL[name]
    config = MixtralConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=inner,
        vocab_size=words,
    )
    return language(MixtralForCausalLM, config, 4096)


_GPT_OSS = {"gpt-oss-20b": (24, 32), "gpt-oss-120b": (36, 128)}


@oracle(*_GPT_OSS, needs="transformers")
def gpt_oss(name: str) -> Any:
    from transformers import GptOssConfig, GptOssForCausalLM

    layers, experts = _GPT_OSS[name]
    return language(GptOssForCausalLM, GptOssConfig(num_hidden_layers=layers, num_local_experts=experts), 4096)


# hidden, heads, layers, inner, vocabulary, experts, chosen, expert width, shared experts, dense layers, query rank
_DEEPSEEK = {
    "deepseek-v2-lite": (2048, 16, 27, 10944, 102400, 64, 6, 1408, 2, 1, None),
    "deepseek-v2": (5120, 128, 60, 12288, 102400, 160, 6, 1536, 2, 1, 1536),
    "deepseek-v3": (7168, 128, 61, 18432, 129280, 256, 8, 2048, 1, 3, 1536),
    "kimi-k2": (7168, 64, 61, 18432, 163840, 384, 8, 2048, 1, 1, 1536),
}


@oracle(*_DEEPSEEK, needs="transformers")
def deepseek(name: str) -> Any:
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    hidden, heads, layers, inner, words, experts, chosen, width, shared, dense, rank = _DEEPSEEK[name]
    config = DeepseekV3Config(  # version 2 differs only in the scoring of experts
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=inner,
        vocab_size=words,
        n_routed_experts=experts,
        num_experts_per_tok=chosen,
        moe_intermediate_size=width,
        n_shared_experts=shared,
        first_k_dense_replace=dense,
        q_lora_rank=rank,
        n_group=1,
        topk_group=1,
    )
    return language(DeepseekV3ForCausalLM, config, 4096)


_BLOOM = {
    "bloom-560m": (1024, 16, 24),
    "bloom-1.1b": (1536, 16, 24),
    "bloom-1.7b": (2048, 16, 24),
    "bloom-3b": (2560, 32, 30),
    "bloom-7.1b": (4096, 32, 30),
    "bloom-176b": (14336, 112, 70),
}


@oracle(*_BLOOM, needs="transformers")
def bloom(name: str) -> Any:
    from transformers import BloomConfig, BloomForCausalLM

    hidden, heads, layers = _BLOOM[name]
    config = BloomConfig(hidden_size=hidden, n_head=heads, n_layer=layers)
    return BloomForCausalLM(config), (torch.zeros(BATCH, 2048, dtype=torch.int64),)


_NEMOTRON = {"nemotron4-15b": (6144, 48, 32), "nemotron4-340b": (18432, 96, 96), "nemotron3-8b": (4096, 32, 32)}


@oracle(*_NEMOTRON, needs="transformers")
def nemotron(name: str) -> Any:
    from transformers import NemotronConfig, NemotronForCausalLM

    hidden, heads, layers = _NEMOTRON[name]
    config = NemotronConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=4 * hidden,
        num_key_value_heads=32 if name == "nemotron3-8b" else 8,
        vocab_size=256000,
    )
    return language(NemotronForCausalLM, config, 4096)


class Pairs(nn.Module):
    """An encoder-decoder model, called with the tokens of both."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=source, decoder_input_ids=written, use_cache=False).logits


# hidden, heads, layers, inner, head size
_T5 = {
    "t5-small": (512, 8, 6, 2048, 64),
    "t5-base": (768, 12, 12, 3072, 64),
    "t5-large": (1024, 16, 24, 4096, 64),
    "t5-3b": (1024, 32, 24, 16384, 128),
    "t5-11b": (1024, 128, 24, 65536, 128),
}


@oracle(*_T5, needs="transformers")
def t5(name: str) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    hidden, heads, layers, inner, size = _T5[name]
    config = T5Config(d_model=hidden, num_heads=heads, num_layers=layers, d_ff=inner, d_kv=size, vocab_size=32128)
    config._attn_implementation = "eager"
    tokens = torch.zeros(BATCH, 512, dtype=torch.int64), torch.zeros(BATCH, 114, dtype=torch.int64)
    return Pairs(T5ForConditionalGeneration(config)), tokens


# patch size, hidden, heads, layers
_VIT = {
    "vit-b16": (16, 768, 12, 12),
    "vit-b32": (32, 768, 12, 12),
    "vit-l16": (16, 1024, 16, 24),
    "vit-l32": (32, 1024, 16, 24),
    "vit-h14": (14, 1280, 16, 32),
}


@oracle(*_VIT, needs="transformers")
def vit(name: str) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    patch, hidden, heads, layers = _VIT[name]
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    config = ViTConfig(patch_size=patch, intermediate_size=4 * hidden, num_labels=1000, **sizes)
    config._attn_implementation = "eager"
    return ViTForImageClassification(config), images(224)


# The zoo can run some of these with fused attention.
EAGER = frozenset((*_GPT2, *_LLAMA, *_QWEN2, *_QWEN3, *_MIXTRAL, *_GPT_OSS, *_DEEPSEEK, *_NEMOTRON, *_VIT))
