"""Networks of speech, faces, slices, and pairs of transformers, rebuilt from torch's and transformers' modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tests.oracles.torch_counting import BATCH, images, oracle
from tests.oracles.torch_libraries import language

GROK = frozenset({"grok-1"})  # which transformers has as a Mixtral, with attention as written

# By transformers' family: hidden, heads, layers, inner, key heads, size of a head, vocabulary, length, whether tied.
DECODERS: dict[str, dict[str, tuple[int, int, int, int, int, int, int, int, bool]]] = {
    "Llama": {
        "llama3.2-1b": (2048, 32, 16, 8192, 8, 64, 128256, 8192, True),
        "llama3.2-3b": (3072, 24, 28, 8192, 8, 128, 128256, 8192, True),
        "tinyllama-1.1b": (2048, 32, 22, 5632, 4, 64, 32000, 2048, False),
        "yi-34b": (7168, 56, 60, 20480, 8, 128, 64000, 4096, False),
    },
    "Mistral": {
        "mistral-7b": (4096, 32, 32, 14336, 8, 128, 32000, 4096, False),
        "mistral-nemo-12b": (5120, 32, 40, 14336, 8, 128, 131072, 4096, False),
        "mistral-small-24b": (5120, 32, 40, 32768, 8, 128, 131072, 4096, False),
        "mistral-large-123b": (12288, 96, 88, 28672, 8, 128, 32768, 4096, False),
    },
    "Phi3": {
        "phi-3-mini": (3072, 32, 32, 8192, 32, 96, 32064, 4096, False),
        "phi-4": (5120, 40, 40, 17920, 10, 128, 100352, 4096, False),
    },
    "Gemma": {
        "gemma-2b": (2048, 8, 18, 16384, 1, 256, 256000, 8192, True),
        "gemma-7b": (3072, 16, 28, 24576, 16, 256, 256000, 8192, True),
    },
    "Qwen2": {
        "qwen2.5-0.5b": (896, 14, 24, 4864, 2, 64, 151936, 4096, True),
        "qwen2.5-1.5b": (1536, 12, 28, 8960, 2, 128, 151936, 4096, True),
        "qwen2.5-3b": (2048, 16, 36, 11008, 2, 128, 151936, 4096, True),
        "qwen2.5-14b": (5120, 40, 48, 13824, 8, 128, 152064, 4096, False),
    },
    "Qwen3": {
        "qwen3-0.6b": (1024, 16, 28, 3072, 8, 128, 151936, 4096, True),
        "qwen3-1.7b": (2048, 16, 28, 6144, 8, 128, 151936, 4096, True),
        "qwen3-4b": (2560, 32, 36, 9728, 8, 128, 151936, 4096, True),
        "qwen3-14b": (5120, 40, 40, 17408, 8, 128, 151936, 4096, False),
    },
}
_SIZES = {name: (kind, sizes) for kind, named in DECODERS.items() for name, sizes in named.items()}


@oracle(*_SIZES, needs="transformers")
def decoder(name: str) -> Any:
    import transformers

    kind, (hidden, heads, layers, inner, kv_heads, head, words, length, tied) = _SIZES[name]
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=inner,
        num_key_value_heads=kv_heads,
        head_dim=head,
        vocab_size=words,
        max_position_embeddings=length,
        tie_word_embeddings=tied,
        pad_token_id=0,
    )
    return language(getattr(transformers, f"{kind}ForCausalLM"), config, length)


# -- images ------------------------------------------------------------------------------


class _Squeezed(nn.Module):
    """A bottleneck of ResNeXt whose channels are weighted by their means."""

    def __init__(self, c_in: int, planes: int, stride: int) -> None:
        super().__init__()
        width, c_out = planes * 4 // 64 * 32, 4 * planes
        self.body = nn.Sequential(
            *(nn.Conv2d(c_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, groups=32, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, c_out, 1, bias=False), nn.BatchNorm2d(c_out)),
        )
        self.weigh = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_out, c_out // 16), nn.ReLU()),
            *(nn.Linear(c_out // 16, c_out), nn.Sigmoid()),
        )
        is_same = c_in == c_out and stride == 1
        other = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))
        self.beside = nn.Identity() if is_same else other

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return torch.relu(y * self.weigh(y)[..., None, None] + self.beside(x))


@oracle("se-resnext101-32x4d")
def squeezed(name: str) -> Any:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    c_in = 64
    for stage, blocks in enumerate((3, 4, 23, 3)):
        for i in range(blocks):
            layers.append(_Squeezed(c_in, 64 << stage, 2 if stage and not i else 1))
            c_in = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), images(224)


class _Face(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.BatchNorm2d(c_in), nn.Conv2d(c_in, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out)),
            *(nn.PReLU(c_out), nn.Conv2d(c_out, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out)),
        )
        other = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))
        self.beside = other if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.beside(x)


@oracle("iresnet100")
def faces(name: str) -> Any:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)]
    c_in = 64
    for width, blocks in ((64, 3), (128, 13), (256, 30), (512, 3)):
        layers += [_Face(width if i else c_in, width, 1 if i else 2) for i in range(blocks)]
        c_in = width
    layers += [nn.BatchNorm2d(512), nn.Dropout(), nn.Flatten(), nn.Linear(512 * 49, 512), nn.BatchNorm1d(512)]
    return nn.Sequential(*layers, nn.Linear(512, 85742, bias=False)), images(112)


class _Slices(nn.Module):
    widths = (32, 64, 128, 256, 512, 512)

    def __init__(self) -> None:
        super().__init__()

        def pair(c_in: int, width: int, stride: int) -> nn.Module:
            norms = [nn.InstanceNorm2d(width, affine=True) for _ in "12"]
            first = (nn.Conv2d(c_in, width, 3, stride, 1, bias=False), norms[0], nn.LeakyReLU())
            return nn.Sequential(*first, nn.Conv2d(width, width, 3, 1, 1, bias=False), norms[1], nn.LeakyReLU())

        ins = (4, *self.widths[:-1])
        self.down = nn.ModuleList(
            pair(c_in, width, 2 if i else 1) for i, (c_in, width) in enumerate(zip(ins, self.widths, strict=True))
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(self.widths[i + 1], self.widths[i], 2, 2) for i in range(5))
        self.joined = nn.ModuleList(pair(2 * self.widths[i], self.widths[i], 1) for i in range(5))
        self.head = nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = []
        for down in self.down:
            x = down(x)
            seen.append(x)
        for i in reversed(range(5)):
            x = self.joined[i](torch.cat((self.up[i](x), seen[i]), 1))
        return self.head(x).permute(0, 2, 3, 1).reshape(-1, 4)


@oracle("nnunet-2d")
def slices(name: str) -> Any:
    return _Slices(), (torch.empty(BATCH, 4, 192, 160),)


# -- speech ------------------------------------------------------------------------------


def _along(
    c_in: int, c_out: int, kernel: int, stride: int = 1, dilation: int = 1, *, separable: bool
) -> list[nn.Module]:
    pad = (kernel - 1) // 2 * dilation
    if separable:
        deep = nn.Conv1d(c_in, c_in, kernel, stride, pad, dilation, groups=c_in, bias=False)
        return [deep, nn.Conv1d(c_in, c_out, 1, bias=False), nn.BatchNorm1d(c_out)]
    return [nn.Conv1d(c_in, c_out, kernel, stride, pad, dilation, bias=False), nn.BatchNorm1d(c_out)]


class _Speech(nn.Module):
    def __init__(
        self, blocks: Sequence[tuple[int, int]], first: int, last: tuple[int, int], *, separable: bool
    ) -> None:
        super().__init__()
        self.dense = not separable
        self.first = nn.Sequential(*_along(64, 256, first, 2, separable=separable), nn.ReLU())
        self.blocks, self.beside = nn.ModuleList(), nn.ModuleList()
        widths = [256]
        for width, kernel in blocks:
            layers = []
            for i in range(5):
                layers += [*_along(width if i else widths[-1], width, kernel, separable=separable), nn.ReLU()]
            self.blocks.append(nn.Sequential(*layers[:-1]))
            read = widths if self.dense else widths[-1:]
            ways = [nn.Sequential(nn.Conv1d(w, width, 1, bias=False), nn.BatchNorm1d(width)) for w in read]
            self.beside.append(nn.ModuleList(ways))
            widths.append(width)
        self.last = nn.Sequential(
            *(*_along(widths[-1], last[0], last[1], 1, 2, separable=separable), nn.ReLU()),
            *(*_along(last[0], 1024, 1, separable=False), nn.ReLU(), nn.Conv1d(1024, 29, 1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = [self.first(x)]
        for block, ways in zip(self.blocks, self.beside, strict=True):
            read = seen if self.dense else seen[-1:]
            y = block(seen[-1]) + sum(way(each) for way, each in zip(ways, read, strict=True))
            seen.append(torch.relu(y))
        return self.last(seen[-1])


@oracle("jasper", "quartznet")
def speech(name: str) -> Any:
    spectrum = (torch.empty(BATCH, 64, 1232),)
    if name == "jasper":
        blocks = [each for each in ((256, 11), (384, 13), (512, 17), (640, 21), (768, 25)) for _ in "12"]
        return _Speech(blocks, 11, (896, 29), separable=False), spectrum
    blocks = [each for each in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)) for _ in "123"]
    return _Speech(blocks, 33, (512, 87), separable=True), spectrum


# -- pairs of transformers ---------------------------------------------------------------


class _Electra(nn.Module):
    """Generator and discriminator that read the same tables; 15 % of the tokens are predicted."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

        sizes = {"embedding_size": 768, "num_hidden_layers": 12, "attn_implementation": "eager"}
        whole = ElectraConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072, **sizes)
        narrow = ElectraConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024, **sizes)
        self.judge, self.writer = ElectraForPreTraining(whole), ElectraForMaskedLM(narrow)
        self.writer.electra.embeddings = self.judge.electra.embeddings
        self.writer.generator_lm_head.weight = self.judge.electra.embeddings.word_embeddings.weight

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.writer.electra(tokens, attention_mask=mask)[0]
        masked = hidden[:, : tokens.shape[1] * 15 // 100].reshape(-1, hidden.shape[-1])
        words = self.writer.generator_lm_head(self.writer.generator_predictions(masked))
        return words, self.judge(tokens, attention_mask=mask).logits[..., None]


@oracle("electra-base", needs="transformers")
def electra(name: str) -> Any:
    tokens = torch.zeros(BATCH, 512, dtype=torch.long)
    return _Electra(), (tokens, torch.zeros(BATCH, 1, 512, 512))


class _Bart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import BartConfig, BartForConditionalGeneration

        self.model = BartForConditionalGeneration(BartConfig(attn_implementation="eager", use_cache=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=tokens, decoder_input_ids=tokens).logits
        return logits


@oracle("bart-large", needs="transformers")
def bart(name: str) -> Any:
    return _Bart(), (torch.zeros(BATCH, 512, dtype=torch.long),)


@oracle(*GROK, needs="transformers")
def grok(name: str) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=6144,
        num_attention_heads=48,
        num_hidden_layers=64,
        intermediate_size=32768,
        vocab_size=131072,
        tie_word_embeddings=True,
    )
    return language(MixtralForCausalLM, config, 8192)
