"""Zoo networks that no library has, rebuilt from torch's modules."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import nn

from tests.oracles.torch_counting import BATCH, conv, dense, images, oracle

# Smaller sizes for networks whose own size takes torch too long.
SIZES = {"tacotron2": {"frames": 12}}


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


@oracle("alexnet-s-caffe", "alexnet-s-tensorflow")
def padded_column(name: str) -> Any:
    """Without padding and with sizes rounded up (Caffe), or padded so that stride alone divides (TensorFlow)."""
    is_caffe = name == "alexnet-s-caffe"
    pool = nn.MaxPool2d(3, 2, ceil_mode=True) if is_caffe else nn.MaxPool2d(3, 2, 1)
    first, second, third = (0, 0, 0) if is_caffe else (4, 2, 1)
    layers = [*conv(3, 96, 11, 4, first), pool, *conv(96, 256, 5, 1, second), pool, *conv(256, 384, 3, 1, third)]
    layers += [*conv(384, 384, 3, 1, third), *conv(384, 256, 3, 1, third), pool, nn.Flatten()]
    return nn.Sequential(*layers, *dense(1024 if is_caffe else 12544, 4096, 4096, 1000)), images(224)


@oracle("alexnet-s-mxnet")
def cut_column(name: str) -> Any:
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    layers = [*conv(3, 96, 11, 4, 1), pool, *conv(96, 256, 5, 1, 1), pool, *conv(256, 384, 3, 1, 1), pool]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(13824, 1000)), images(224)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.AvgPool2d(3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.mean(torch.square(x)) ** -0.75


@oracle("alexnet-r-lrn")
def normalised(name: str) -> Any:
    pool = nn.MaxPool2d(3, 2)
    layers = [nn.Conv2d(3, 32, 5, padding=2), pool, nn.ReLU(), Normalised(), *conv(32, 32, 5, 1, 2), pool]
    layers += [Normalised(), *conv(32, 64, 5, 1, 2), nn.AvgPool2d(3, 2), nn.Flatten(), nn.Linear(576, 10)]
    return nn.Sequential(*layers), images(32)


@oracle("mlp", "fcn-s", "fcn-r")
def multilayer(name: str) -> Any:
    widths = {
        "mlp": (512, 256, 128, 2),
        "fcn-s": (26752, 2048, 2048, 2048, 26752),
        "fcn-r": (784, 2048, 4096, 1024, 10),
    }[name]
    return nn.Sequential(*dense(*widths)), (torch.empty(BATCH, widths[0]),)


class Residual(nn.Module):
    """A basic block; its shortcut is a convolution or, if *padded*, pads channels with zeros."""

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
    """Parallel modules, concatenated along channels."""

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


class Translation(nn.Module):
    """GNMT as in NVIDIA's DeepLearningExamples: 4 layers of 1024, a vocabulary of 32320."""

    def __init__(self) -> None:
        super().__init__()
        n = 1024
        self.embed = nn.Embedding(32320, n)
        self.both = nn.LSTM(n, n, bidirectional=True, batch_first=True)
        self.encoder = nn.ModuleList(nn.LSTM(size, n, batch_first=True) for size in (2 * n, n, n))
        self.first = nn.LSTM(n, n, batch_first=True)
        self.decoder = nn.ModuleList(nn.LSTM(2 * n, n, batch_first=True) for _ in range(3))
        self.query, self.key = nn.Linear(n, n, bias=False), nn.Linear(n, n, bias=False)
        self.attend = nn.Parameter(torch.empty(n))
        self.scalar, self.bias = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(n))
        self.classifier = nn.Linear(n, 32320)

    def forward(self, source: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        memory = self.both(self.embed(source))[0]
        for i, layer in enumerate(self.encoder):
            memory = layer(memory)[0] + (memory if i else 0)
        x = self.first(self.embed(written))[0]
        pairs = torch.tanh(self.query(x).unsqueeze(2) + self.key(memory).unsqueeze(1) + self.bias)
        weights = torch.softmax((pairs * self.attend * self.scalar).sum(-1), -1)
        context = weights @ memory
        for i, layer in enumerate(self.decoder):
            x = layer(torch.cat((x, context), -1))[0] + (x if i else 0)
        return self.classifier(x)


@oracle("gnmt")
def gnmt(name: str) -> Any:
    return Translation(), tuple(torch.zeros(BATCH, 50, dtype=torch.int64) for _ in range(2))


class Filtering(nn.Module):
    """NeuMF with 64 factors and a perceptron of 256, 128 and 64 on 256 inputs, for MovieLens 20M."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.ModuleList(nn.Embedding(rows, 64) for rows in (138493, 26744))
        self.words = nn.ModuleList(nn.Embedding(rows, 128) for rows in (138493, 26744))
        self.mlp = nn.Sequential(*dense(256, 256, 128, 64), nn.ReLU())
        self.final = nn.Linear(128, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        product = self.factors[0](user) * self.factors[1](item)
        deep = self.mlp(torch.cat((self.words[0](user), self.words[1](item)), -1))
        return self.final(torch.cat((product, deep), -1))


@oracle("ncf")
def filtering(name: str) -> Any:
    return Filtering(), tuple(torch.zeros(BATCH, dtype=torch.int64) for _ in range(2))


class Remembering(nn.Module):
    """Transformer-XL with an adaptive softmax over WikiText-103's 267,735 words, in four bands of frequency.

    *narrow*: words of a band have vectors so many times shorter than those of the band before.
    """

    bands = (19997, 20000, 160000, 67738)

    def __init__(self, d: int, heads: int, layers: int, inner: int, narrow: int) -> None:
        super().__init__()
        self.heads, words = heads, 267735
        sizes = [d // narrow**i for i in range(4)]
        of_bands = zip(self.bands, sizes, strict=True)
        self.embed = nn.ModuleList(
            [nn.Embedding(words, d)] if narrow == 1 else [nn.Embedding(n, s) for n, s in of_bands]
        )
        self.widen = nn.ModuleList(nn.Linear(s, d, bias=False) for s in sizes if narrow > 1)
        self.first = nn.Linear(d, d, bias=False) if narrow > 1 else nn.Identity()
        self.bands_too = nn.Parameter(torch.empty(3, d))
        self.content, self.place = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d, bias=False) for _ in range(layers))
        self.far = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 * layers))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(d, inner), nn.ReLU(), nn.Linear(inner, d)) for _ in self.qkv)
        self.bias = nn.Parameter(torch.empty(words + 3))

    def rows(self, tokens: torch.Tensor) -> list[int]:
        """Words of each band: 2.6 % are rarer than the 33,278th, 0.4 % than the last."""
        ranks = torch.tensor(self.bands, dtype=torch.float64, device="cpu").cumsum(0)
        power = math.log(6.5) / math.log(267735 / 33278)
        rarer = (0.026 * (33278 / ranks) ** power * tokens.numel()).tolist()
        rows = [math.ceil(a - b) for a, b in itertools.pairwise(rarer)]
        return [tokens.numel() - sum(rows), *rows]

    def forward(self, tokens: torch.Tensor, *before: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, length = tokens.shape
        rows = self.rows(tokens)
        if self.widen:
            words = (torch.zeros(r, dtype=torch.int64) for r in rows)
            parts = zip(self.embed, self.widen, words, strict=True)
            x = torch.cat([widen(embed(of_band)) for embed, widen, of_band in parts]).reshape(n, length, -1)
        else:
            x = self.embed[0](tokens)
        d = x.shape[-1]
        reach, size = length + before[0].shape[1], d // self.heads
        positions = torch.empty(reach, d)

        def split(y: torch.Tensor, rows: int) -> torch.Tensor:
            return y.reshape(n, rows, self.heads, size).transpose(1, 2)

        for i, memory in enumerate(before):
            q, k, v = self.qkv[i](torch.cat((memory, x), 1)).chunk(3, -1)
            q = q[:, -length:]
            far = self.far[i](positions).reshape(reach, self.heads, size).transpose(0, 1)
            by_content = split(q + self.content, length) @ split(k, reach).transpose(-1, -2)
            # One product per head, with the rows of all samples.
            turned = split(q + self.place, length).transpose(0, 1).reshape(self.heads, n * length, size)
            by_place = (turned @ far.transpose(-1, -2)).reshape(self.heads, n, length, reach).transpose(0, 1)
            seen = torch.softmax(by_content + by_place, -1) @ split(v, reach)
            x = self.norms[2 * i](x + self.out[i](seen.transpose(1, 2).reshape(n, length, d)))
            x = self.norms[2 * i + 1](x + self.mlp[i](x))
        tables = [e.weight for e in self.embed] if self.widen else list(self.embed[0].weight.split(self.bands))
        of_head, *biases = self.bias.split((self.bands[0] + 3, *self.bands[1:]))
        found = [nn.functional.linear(self.first(x), torch.cat((tables[0], self.bands_too)), of_head)]
        for i, bias in enumerate(biases, 1):
            y = x.reshape(-1, d)[: rows[i]]
            y = y @ self.widen[i].weight if self.widen else y
            found.append(nn.functional.linear(y, tables[i], bias))
        return tuple(found)


@oracle("transformer-xl-base", "transformer-xl-large")
def remembering(name: str) -> Any:
    base = "base" in name
    d, heads, layers, inner, length, narrow = (512, 8, 16, 2048, 192, 1) if base else (1024, 16, 18, 4096, 384, 4)
    tokens = torch.zeros(BATCH, length, dtype=torch.int64)
    memories = (torch.zeros(BATCH, length, d) for _ in range(layers))
    return Remembering(d, heads, layers, inner, narrow), (tokens, *memories)


class Speech(nn.Module):
    """Tacotron 2: three convolutions and an LSTM, a loop with location-sensitive attention, five convolutions."""

    def __init__(self) -> None:
        super().__init__()

        def conv(c: int, n: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv1d(c, n, 5, padding=2), nn.BatchNorm1d(n))

        self.embed = nn.Embedding(148, 512)
        self.encoder = nn.Sequential(*(nn.Sequential(conv(512, 512), nn.ReLU()) for _ in range(3)))
        self.lstm = nn.LSTM(512, 256, bidirectional=True, batch_first=True)
        self.prenet = nn.Sequential(*(layer for c in (80, 256) for layer in (nn.Linear(c, 256, False), nn.ReLU())))
        self.first, self.second = nn.LSTMCell(768, 1024), nn.LSTMCell(1536, 1024)
        self.memory, self.query = nn.Linear(512, 128, bias=False), nn.Linear(1024, 128, bias=False)
        self.location, self.dense = nn.Conv1d(2, 32, 31, padding=15, bias=False), nn.Linear(32, 128, bias=False)
        self.score, self.bands, self.gate = nn.Linear(128, 1, bias=False), nn.Linear(1536, 80), nn.Linear(1536, 1)
        self.postnet = nn.Sequential(conv(80, 512), *(conv(512, 512) for _ in range(3)), conv(512, 80))

    def forward(self, text: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, ...]:
        memory = self.lstm(self.encoder(self.embed(text).transpose(1, 2)).transpose(1, 2))[0]
        keys, heard, n = self.memory(memory), self.prenet(frames), len(text)
        a = b = (torch.zeros(n, 1024), torch.zeros(n, 1024))
        context, weights, total = torch.zeros(n, 512), torch.zeros(n, text.shape[1]), torch.zeros(n, text.shape[1])
        outputs, ends = [], []
        for i in range(frames.shape[1]):
            a = self.first(torch.cat((heard[:, i], context), -1), a)
            where = self.dense(self.location(torch.stack((weights, total), 1)).transpose(1, 2))
            scores = self.score(torch.tanh(self.query(a[0]).unsqueeze(1) + where + keys)).squeeze(-1)
            weights = torch.softmax(scores, -1)
            context, total = (weights.unsqueeze(1) @ memory).squeeze(1), total + weights
            b = self.second(torch.cat((a[0], context), -1), b)
            both = torch.cat((b[0], context), -1)
            outputs.append(self.bands(both))
            ends.append(self.gate(both))
        spectrum = torch.stack(outputs, 2)
        return spectrum + self.postnet(spectrum), torch.cat(ends, 1)


@oracle("tacotron2")
def speech(name: str) -> Any:
    return Speech(), (torch.zeros(BATCH, 170, dtype=torch.int64), torch.zeros(BATCH, SIZES[name]["frames"], 80))
