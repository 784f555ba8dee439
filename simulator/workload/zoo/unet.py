"""U-Nets and V-Net: logits ``(pixels, classes)`` of pixels or voxels (docs/decisions/zoo.md)."""

from collections.abc import Callable, Sequence
from math import prod

from simulator.workload.operators import BatchNorm
from simulator.workload.zoo.builder import SizeError, Tensor, weights

_WIDTHS = (64, 128, 256, 512, 1024)
_WIDTHS_3D = (32, 64, 128, 256, 320, 320)
_WIDTHS_2D = (32, 64, 128, 256, 512, 512)
_WIDTHS_TINY = (32, 64, 128)
_DEEP = 3  # convolutions of a residual block of V-Net
Unit = Callable[[Tensor, str, int], Tensor]


def _twice(x: Tensor, name: str, width: int, unit: Unit) -> Tensor:
    return unit(unit(x, f"{name}.1", width), f"{name}.2", width)


def _beside(x: Tensor, other: Tensor, name: str) -> Tensor:
    """Return a tensor of twice the channels of *x*, copied from *x* and *other*, which may be cropped."""
    return x.gather(name, (x.shape[0], 2 * x.shape[1], *x.shape[2:]), other)


def _logits(x: Tensor, classes: int, kernel: int = 1) -> Tensor:
    x = x.conv("head", classes, kernel, pad=kernel // 2, bias=True)
    return x.view(x.elements // classes, classes)


def _check(x: Tensor, multiple: int, of: str) -> None:
    """Raise SizeError unless the sides of *x* are multiples of *multiple*."""
    if any(side % multiple for side in x.shape[2:]):
        raise SizeError(f"sides must be multiples of {multiple} {of}; got {x.shape[2:]}")


def unet(x: Tensor, classes: int) -> Tensor:
    """Return the logits after unpadded convolutions; raises SizeError if the image cannot be halved four times."""
    seen: list[Tensor] = []

    def both(x: Tensor, name: str, width: int) -> Tensor:
        for i in (1, 2):
            x = x.conv(f"{name}.{i}", width, 3, bias=True).relu(f"{name}.relu{i}")
        return x

    for i, width in enumerate(_WIDTHS):
        x = both(x.pool(f"down{i}.pool", 2) if i else x, f"down{i}", width)
        seen.append(x)
    for i, width in zip((3, 2, 1, 0), _WIDTHS[-2::-1], strict=True):
        x = x.up(f"up{i}", width, 2, 2)
        if seen[i].shape[2] < x.shape[2] or seen[i].shape[3] < x.shape[3]:
            raise SizeError(f"an image of {seen[0].shape[2] + 4} x {seen[0].shape[3] + 4} cannot be halved four times")
        joined = x.shape[0], 2 * width, *x.shape[2:]
        x = both(seen[i].gather(f"up{i}.join", joined, x), f"up{i}.conv", width)
    return _logits(x, classes)


def unet_slices(x: Tensor, classes: int) -> Tensor:
    """Return the logits of slices: nnU-Net in 2-D; raises SizeError unless sides can be halved five times."""
    places = range(len(_WIDTHS_2D))
    _check(x, 2 ** places[-1], "pixels")
    ups = [f"up{i}" for i in places[-2::-1]]
    return _logits(_normed_unet(x, _WIDTHS_2D, [f"down{i}" for i in places], ups, "leaky_relu"), classes)


def _normed_unet(x: Tensor, widths: Sequence[int], downs: Sequence[str], ups: Sequence[str], function: str) -> Tensor:
    """Return the result of levels of two convolutions, each normalised by sample, of which the first halves the sides.

    *downs* names the levels on the way down, of which the first halves nothing, *ups* those on the way up.
    """

    def unit(x: Tensor, name: str, width: int, stride: int = 1) -> Tensor:
        return _normed(x.conv(name, width, 3, stride=stride, pad=1), name, x.shape[0], function)

    seen: list[Tensor] = []
    for name, width in zip(downs, widths, strict=True):
        x = unit(unit(x, f"{name}.1", width, 2 if seen else 1), f"{name}.2", width)
        seen.append(x)
    for name, beside in zip(ups, seen[-2::-1], strict=True):
        width = beside.shape[1]
        x = _twice(_beside(x.up(name, width, 2, 2), beside, f"{name}.join"), name, width, unit)
    return x


def unet_industrial(x: Tensor, classes: int) -> Tensor:
    """Return the logits, with up-sampling before each join; raises SizeError unless sides can be halved four times."""
    _check(x, 16, "pixels")

    def unit(x: Tensor, name: str, width: int) -> Tensor:
        return x.conv(name, width, 3, pad=1, bias=True).relu(f"{name}.relu")

    seen: list[Tensor] = []
    for i, width in enumerate((_WIDTHS_TINY[0], *_WIDTHS_TINY)):
        seen.append(_twice(x, f"down{i}", width, unit))
        x = seen[-1].pool(f"down{i}.pool", 2)
    x = _twice(x, "bottleneck", 256, unit).up("bottleneck.up", 128, 2, 2).relu("bottleneck.up.relu")
    for i, width in enumerate(reversed(_WIDTHS_TINY)):
        x = unit(unit(x.concat(f"up{i}.join", seen.pop()), f"up{i}.1", width), f"up{i}.2", width // 2)
        x = x.up(f"up{i}.up", width // 2, 2, 2).relu(f"up{i}.up.relu")
    return _logits(_twice(x.concat("output.join", seen.pop()), "output", 32, unit), classes)


# -- volumes: (batch, channels, depth, height, width) -----------------------------------------


def unet3d(x: Tensor, classes: int, head: int = 1) -> Tensor:
    """Return the logits of each voxel; *head* is the side of the last kernel.

    Raises SizeError unless its sides are multiples of 32 voxels.
    """
    places = range(len(_WIDTHS_3D) - 1)
    _check(x, 2 ** len(places), "voxels")
    downs = ["input", *(f"down{i}" for i in places)]
    return _logits(_normed_unet(x, _WIDTHS_3D, downs, [f"up{i}" for i in places], "relu"), classes, head)


def vnet(x: Tensor, classes: int) -> Tensor:
    """Return the logits of each voxel: 16 to 128 channels, residual blocks of three.

    Raises SizeError unless sides are multiples of 8 voxels.
    """
    _check(x, 8, "voxels")

    def block(x: Tensor, name: str, width: int, kernel: int = 3, stride: int = 1) -> Tensor:
        pad = (kernel - 1) // 2
        return _normed(x.conv(name, width, kernel, stride=stride, pad=pad, bias=True), name, 1)

    def residual(x: Tensor, name: str) -> Tensor:
        inside = x
        for i in range(_DEEP):
            inside = block(inside, f"{name}.{i}", x.shape[1])
        return inside.add(x, f"{name}.add")

    x = block(x, "input", 16).add(x, "input.add")
    seen = [x]
    for i, width in enumerate((32, 64, 128)):
        x = residual(block(x, f"down{i}", width, 2, 2), f"down{i}")
        seen.append(x)
    for i, beside in enumerate((seen[2], seen[1])):
        x = _normed(x.up(f"up{i}", beside.shape[1], 2, 2), f"up{i}", 1)
        x = residual(_beside(x, beside, f"up{i}.join"), f"up{i}")
    return _logits(_normed(x.up("output", 16, 2, 2), "output", 1), classes, 3)


def _normed(x: Tensor, name: str, samples: int, function: str = "relu") -> Tensor:
    """Return *function* of *x* normalised over its pixels, in *samples* groups of the batch: all there are, or one."""
    batch, width, *sides, last = x.shape
    operator = BatchNorm(batch // samples, samples * width, prod(sides), last)
    x = x.layer(f"{name}.norm", operator, None, weights(f"{name}.norm", weight=width, bias=width))
    return x.apply(f"{name}.relu", function, in_place=True)
