"""Zoo networks with one output per location, pixel, voxel or audio sample, rebuilt from torch's modules."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tests.oracles.torch_counting import BATCH, conv, dense, images, oracle
from tests.oracles.torch_written import Residual


class Halves(nn.Module):
    """A U-Net for images without padding: the decoder crops what it reads of the encoder."""

    def __init__(self) -> None:
        super().__init__()
        widths = [64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(
            nn.Sequential(*conv(a, b, 3), *conv(b, b, 3)) for a, b in itertools.pairwise([1, *widths])
        )
        backwards = list(itertools.pairwise(widths[::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in backwards)
        self.after = nn.ModuleList(nn.Sequential(*conv(a, b, 3), *conv(b, b, 3)) for a, b in backwards)
        self.head = nn.Conv2d(64, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = []
        for i, layer in enumerate(self.down):
            x = layer(nn.functional.max_pool2d(x, 2) if i else x)
            seen.append(x)
        for up, after, beside in zip(self.up, self.after, seen[-2::-1], strict=True):
            x = up(x)
            edge = (beside.shape[-1] - x.shape[-1]) // 2
            cropped = beside[:, :, edge : edge + x.shape[-2], edge : edge + x.shape[-1]]
            x = after(torch.cat((cropped, x), 1))
        return self.head(x)


@oracle("unet")
def halves(name: str) -> Any:
    return Halves(), images(572, 1)


class Volumes(nn.Module):
    """MLPerf's U-Net for volumes."""

    def __init__(self) -> None:
        super().__init__()

        def pair(a: int, b: int, stride: int = 1) -> nn.Sequential:
            first = [nn.Conv3d(a, b, 3, stride, 1, bias=False), nn.InstanceNorm3d(b, affine=True), nn.ReLU()]
            return nn.Sequential(
                *first, nn.Conv3d(b, b, 3, 1, 1, bias=False), nn.InstanceNorm3d(b, affine=True), nn.ReLU()
            )

        widths = [32, 64, 128, 256, 320, 320]
        self.down = nn.ModuleList([pair(1, 32), *(pair(a, b, 2) for a, b in itertools.pairwise(widths))])
        backwards = list(itertools.pairwise(widths[::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in backwards)
        self.after = nn.ModuleList(pair(2 * b, b) for _, b in backwards)
        self.head = nn.Conv3d(32, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = []
        for layer in self.down:
            x = layer(x)
            seen.append(x)
        for up, after, beside in zip(self.up, self.after, seen[-2::-1], strict=True):
            x = after(torch.cat((up(x), beside), 1))
        return self.head(x)


@oracle("unet3d")
def volumes(name: str) -> Any:
    return Volumes(), (torch.empty(BATCH, 1, 128, 128, 128),)


class Boxes(nn.Module):
    """SSD300 on three stages of a ResNet, the third without a stride."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        c_in = 64
        for planes, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 1)):
            for i in range(blocks):
                block = (
                    Residual(c_in, planes, 1 if i else stride, False)
                    if depth == 34
                    else Bottleneck(c_in, planes, 1 if i else stride)
                )
                layers.append(block)
                c_in = planes * (1 if depth == 34 else 4)
        self.levels = nn.ModuleList([nn.Sequential(*layers)])
        for inner, c_out, stride, pad in (
            (256, 512, 2, 1),
            (256, 512, 2, 1),
            (128, 256, 2, 1),
            *2 * ((128, 256, 1, 0),),
        ):
            first = [nn.Conv2d(c_in, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()]
            second = [nn.Conv2d(inner, c_out, 3, stride, pad, bias=False), nn.BatchNorm2d(c_out), nn.ReLU()]
            self.levels.append(nn.Sequential(*first, *second))
            c_in = c_out
        widths = [256 if depth == 34 else 1024, 512, 512, 256, 256, 256]
        boxes = list(zip(widths, (4, 6, 6, 6, 4, 4), strict=True))
        self.classes = nn.ModuleList(nn.Conv2d(c, 81 * n, 3, 1, 1) for c, n in boxes)
        self.places = nn.ModuleList(nn.Conv2d(c, 4 * n, 3, 1, 1) for c, n in boxes)

    def forward(self, x: torch.Tensor) -> Any:
        found: list[list[torch.Tensor]] = [[], []]
        for level, classes, places in zip(self.levels, self.classes, self.places, strict=True):
            x = level(x)
            found[0].append(classes(x).view(BATCH, 81, -1))
            found[1].append(places(x).view(BATCH, 4, -1))
        return SimpleNamespace(logits=torch.cat(found[0], 2), aux_logits=torch.cat(found[1], 2))


class Bottleneck(nn.Module):
    """A ResNet bottleneck."""

    def __init__(self, c_in: int, planes: int, stride: int) -> None:
        super().__init__()
        first = [nn.Conv2d(c_in, planes, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU()]
        second = [nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU()]
        third = [nn.Conv2d(planes, 4 * planes, 1, bias=False), nn.BatchNorm2d(4 * planes)]
        self.body = nn.Sequential(*first, *second, *third)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or c_in != 4 * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(c_in, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


@oracle("ssd-resnet34", "ssd-resnet50")
def boxes(name: str) -> Any:
    return Boxes(int(name[-2:])), images(300)


class Flows(nn.Module):
    """WaveGlow: 12 flows on groups of 8 samples, each with 8 layers of 512 channels that also read a spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(80, 80, 1024, 256)
        self.mixes, self.nets = nn.ModuleList(), nn.ModuleList()
        for flow in range(12):
            channels = 8 - 2 * (flow // 4)
            self.mixes.append(nn.Conv1d(channels, channels, 1, bias=False))
            self.nets.append(Dilated(channels // 2))

    def forward(self, spectrum: torch.Tensor, audio: torch.Tensor) -> torch.Tensor:
        heard = self.up(spectrum)[:, :, : audio.shape[1]].unfold(2, 8, 8).permute(0, 2, 1, 3)
        heard = heard.contiguous().view(BATCH, heard.size(1), -1).permute(0, 2, 1)
        x, early = audio.unfold(1, 8, 8).permute(0, 2, 1), []
        for flow, (mix, net) in enumerate(zip(self.mixes, self.nets, strict=True)):
            if flow and flow % 4 == 0:
                early.append(x[:, :2])
                x = x[:, 2:]
            first, second = mix(x).chunk(2, 1)
            shift, scale = net(first, heard).chunk(2, 1)
            x = torch.cat((first, torch.exp(scale) * second + shift), 1)
        return torch.cat((*early, x), 1)


class Dilated(nn.Module):
    """The network of one flow."""

    def __init__(self, half: int) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.start = norm(nn.Conv1d(half, 512, 1))
        self.inner = nn.ModuleList(norm(nn.Conv1d(512, 1024, 3, 1, 2**i, 2**i)) for i in range(8))
        self.heard = nn.ModuleList(norm(nn.Conv1d(640, 1024, 1)) for _ in range(8))
        self.out = nn.ModuleList(norm(nn.Conv1d(512, 1024 if i < 7 else 512, 1)) for i in range(8))
        self.end = nn.Conv1d(512, 2 * half, 1)

    def forward(self, x: torch.Tensor, heard: torch.Tensor) -> torch.Tensor:
        x, skipped = self.start(x), torch.zeros(())
        for i, (inner, condition, out) in enumerate(zip(self.inner, self.heard, self.out, strict=True)):
            a, b = (inner(x) + condition(heard)).chunk(2, 1)
            y = out(torch.tanh(a) * torch.sigmoid(b))
            if i < 7:
                x, y = x + y[:, :512], y[:, 512:]
            skipped = skipped + y
        return self.end(skipped)


@oracle("waveglow")
def flows(name: str) -> Any:
    return Flows(), (torch.empty(BATCH, 80, 32), torch.empty(BATCH, 8000))


class Masks(nn.Module):
    """Mask R-CNN with the first stage frozen; region features are zeros that depend on all levels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages, c_in = nn.ModuleList(), 64
        for planes, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            stage: list[nn.Module] = []
            for i in range(blocks):
                stage.append(Bottleneck(c_in, planes, 1 if i else stride))
                c_in = 4 * planes
            self.stages.append(nn.Sequential(*stage))
        for block in [module for module in self.stages.modules() if isinstance(module, nn.Sequential)]:
            for i, module in enumerate(block):
                if isinstance(module, nn.BatchNorm2d):
                    block[i] = nn.Identity()
        for module in (self.stem, self.stages[0]):
            module.requires_grad_(False)
        self.inner = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in (256, 512, 1024, 2048))
        self.level = nn.ModuleList(nn.Conv2d(256, 256, 3, 1, 1) for _ in range(4))
        self.rpn = nn.Sequential(*conv(256, 256, 3, 1, 1))
        self.objects, self.offsets = nn.Conv2d(256, 3, 1), nn.Conv2d(256, 12, 1)
        self.box = nn.Sequential(nn.Flatten(), *dense(256 * 49, 1024, 1024), nn.ReLU())
        self.found, self.moved = nn.Linear(1024, 91), nn.Linear(1024, 364)
        layers = [layer for _ in range(4) for layer in conv(256, 256, 3, 1, 1)]
        self.mask = nn.Sequential(*layers, nn.ConvTranspose2d(256, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 91, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, seen = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            seen.append(x)
        levels: list[torch.Tensor] = []
        above = torch.zeros(())
        for inner, level, x in zip(list(self.inner)[::-1], list(self.level)[::-1], seen[::-1], strict=True):
            above = inner(x) + (nn.functional.interpolate(above, x.shape[-2:]) if levels else 0)
            levels.insert(0, level(above))
        all_levels = [self.rpn(x) for x in (*levels, nn.functional.max_pool2d(levels[-1], 1, 2))]
        objects = torch.cat([self.objects(x).flatten() for x in all_levels])
        offsets = torch.cat([self.offsets(x).flatten() for x in all_levels])
        regions = sum(x.sum() for x in levels)
        boxes = self.box(regions + torch.zeros(BATCH * 512, 256, 7, 7))
        masks = self.mask(regions + torch.zeros(BATCH * 128, 256, 14, 14))
        return objects, offsets, self.found(boxes), self.moved(boxes), masks


@oracle("mask-rcnn")
def masks(name: str) -> Any:
    return Masks(), (torch.empty(BATCH, 3, 800, 1344),)
