"""U-Nets: for images (Ronneberger et al., arXiv 1505.04597), and for volumes as MLPerf trains it; V-Net.

The first follows NVIDIA's DeepLearningExamples for medical images: without padding, so that the decoder crops the
encoder's features.  The second follows mlcommons/training, ``image_segmentation/pytorch/model/unet3d.py``, with
instance normalisation.  A 3-D convolution is modelled as a 2-D one: each output depth is an image, whose channels are
those of all depths in its kernel.

``unet_industrial`` is tinyUNet of DeepLearningExamples' TensorFlow/Segmentation/UNet_Industrial, ``vnet`` that of
TensorFlow/Segmentation/VNet (Milletari et al., arXiv 1606.04797, with fewer levels).
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import BatchNorm, Conv2d, Copy, Elementwise
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError

_WIDTHS = (64, 128, 256, 512, 1024)
_WIDTHS_3D = (32, 64, 128, 256, 320)


def unet(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of each pixel left after the unpadded convolutions, as ``(pixels, classes)``.

    Raises SizeError if the image cannot be halved four times.
    """
    seen: list[LayerOutput] = []
    for i, width in enumerate(_WIDTHS):
        x = _pair(b, b.pool(x, f"down{i}.pool", 2) if i else x, f"down{i}", width)
        seen.append(x)
    for i, width in zip((3, 2, 1, 0), _WIDTHS[-2::-1], strict=True):
        x = b.up(x, f"up{i}", width, 2, 2)
        if seen[i].shape[2] < x.shape[2] or seen[i].shape[3] < x.shape[3]:
            raise SizeError(f"an image of {seen[0].shape[2] + 4} x {seen[0].shape[3] + 4} cannot be halved four times")
        joined = x.shape[0], 2 * width, *x.shape[2:]
        x = b.add_layer(f"up{i}.join", Copy(2 * x.elements), (seen[i], x), joined)
        x = _pair(b, x, f"up{i}.conv", width)
    x = b.conv(x, "head", classes, 1, bias=True)
    return b.view(x, x.elements // classes, classes)


def _pair(b: NetworkBuilder, x: LayerOutput, name: str, width: int) -> LayerOutput:
    for i in (1, 2):
        x = b.relu(b.conv(x, f"{name}.{i}", width, 3, bias=True), f"{name}.relu{i}")
    return x


def unet3d(b: NetworkBuilder, x: LayerOutput, classes: int, head: int = 1) -> LayerOutput:
    """Return the logits of each voxel, as ``(voxels, classes)``; *x* is ``(batch, channels, depth, height, width)``.

    *head* is the side of the last kernel.

    Raises SizeError unless its sides are multiples of 32 voxels.
    """
    if any(side % 2 ** len(_WIDTHS_3D) for side in x.shape[2:]):
        raise SizeError(f"sides must be multiples of {2 ** len(_WIDTHS_3D)} voxels; got {x.shape[2:]}")
    x = _voxels(b, _voxels(b, x, "input.1", _WIDTHS_3D[0]), "input.2", _WIDTHS_3D[0])
    seen = [x]
    for i, width in enumerate((*_WIDTHS_3D[1:], _WIDTHS_3D[-1])):
        x = _voxels(b, _voxels(b, x, f"down{i}.1", width, stride=2), f"down{i}.2", width)
        seen.append(x)
    for i, width in enumerate((_WIDTHS_3D[-1], *_WIDTHS_3D[-2::-1])):
        x = _up(b, x, f"up{i}", width)
        beside = seen[-2 - i]
        x = b.add_layer(f"up{i}.join", Copy(2 * x.elements), (x, beside), (x.shape[0], 2 * width, *x.shape[2:]))
        x = _voxels(b, _voxels(b, x, f"up{i}.1", width), f"up{i}.2", width)
    x = _conv3d(b, x, "head", classes, head, 1, bias=True)
    return b.view(x, x.elements // classes, classes)


def _voxels(b: NetworkBuilder, x: LayerOutput, name: str, width: int, stride: int = 1) -> LayerOutput:
    """Return a convolution, instance normalisation and ReLU of *x*."""
    x = _conv3d(b, x, name, width, 3, stride, bias=False)
    return b.relu(_norm3d(b, x, name, x.shape[0]), f"{name}.relu")


def _norm3d(b: NetworkBuilder, x: LayerOutput, name: str, samples: int) -> LayerOutput:
    """Return *x* normalised over its voxels, in *samples* groups of the batch: as many as there are, or one."""
    batch, width, depth, height, side = x.shape
    weights = Parameter(f"{name}.norm.weight", width), Parameter(f"{name}.norm.bias", width)
    operator = BatchNorm(batch // samples, samples * width, depth * height, side)
    return b.add_layer(f"{name}.norm", operator, (x,), x.shape, weights)


def _conv3d(
    b: NetworkBuilder, x: LayerOutput, name: str, width: int, kernel: int, stride: int, *, bias: bool
) -> LayerOutput:
    batch, channels, depth, height, side = x.shape
    pad, depth_out = (kernel - 1) // 2, depth // stride
    operator = Conv2d(
        *(batch * depth_out, channels * kernel, width, height, side, kernel, kernel, stride, stride, pad, pad),
        bias=bias,
    )
    weights = [Parameter(f"{name}.weight", operator.weight_elements)]
    weights += [Parameter(f"{name}.bias", width)] if bias else []
    shape = batch, width, depth_out, operator.h_out, operator.w_out
    return b.add_layer(name, operator, (x,), shape, tuple(weights))


def _up(b: NetworkBuilder, x: LayerOutput, name: str, width: int) -> LayerOutput:
    """Return a transposed convolution that doubles each side."""
    batch, channels, depth, height, side = x.shape
    operator = Conv2d(
        *(batch * depth, 2 * width, channels, 2 * height, 2 * side, 2, 2, 2, 2), bias=True, transposed=True
    )
    weights = Parameter(f"{name}.weight", operator.weight_elements), Parameter(f"{name}.bias", width)
    return b.add_layer(name, operator, (x,), (batch, width, 2 * depth, 2 * height, 2 * side), weights)


_WIDTHS_2D = (32, 64, 128, 256, 512, 512)


def unet_slices(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of each pixel of slices, as ``(pixels, classes)``: nnU-Net in two dimensions.

    Isensee et al., arXiv 1809.10486, section 2.1; widths end at 512, as in NVIDIA's DeepLearningExamples.  The outputs
    of coarser levels, which the loss reads too, are left out.  Raises SizeError unless sides can be halved five times.
    """
    if any(side % 2 ** (len(_WIDTHS_2D) - 1) for side in x.shape[2:]):
        raise SizeError(f"sides must be multiples of {2 ** (len(_WIDTHS_2D) - 1)} pixels; got {x.shape[2:]}")
    seen: list[LayerOutput] = []
    for i, width in enumerate(_WIDTHS_2D):
        x = _pixels(b, _pixels(b, x, f"down{i}.1", width, stride=2 if i else 1), f"down{i}.2", width)
        seen.append(x)
    for i, width in reversed(list(enumerate(_WIDTHS_2D[:-1]))):
        x = b.up(x, f"up{i}", width, 2, 2)
        joined = x.shape[0], 2 * width, *x.shape[2:]
        x = b.add_layer(f"up{i}.join", Copy(2 * x.elements), (x, seen[i]), joined)
        x = _pixels(b, _pixels(b, x, f"up{i}.1", width), f"up{i}.2", width)
    x = b.conv(x, "head", classes, 1, bias=True)
    return b.view(x, x.elements // classes, classes)


def _pixels(b: NetworkBuilder, x: LayerOutput, name: str, width: int, stride: int = 1) -> LayerOutput:
    x = b.conv(x, name, width, 3, stride=stride, pad=1)
    batch, _, height, side = x.shape
    weights = Parameter(f"{name}.norm.weight", width), Parameter(f"{name}.norm.bias", width)
    x = b.add_layer(f"{name}.norm", BatchNorm(1, batch * width, height, side), (x,), x.shape, weights)
    return b.elementwise(f"{name}.relu", "leaky_relu", x, in_place=True)


_WIDTHS_TINY = (32, 64, 128)


def unet_industrial(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of each pixel, as ``(pixels, classes)``: padded, with up-sampling before each join.

    Raises SizeError unless sides can be halved four times.
    """
    if any(side % 16 for side in x.shape[2:]):
        raise SizeError(f"sides must be multiples of 16 pixels; got {x.shape[2:]}")
    seen: list[LayerOutput] = []
    for i, width in enumerate((_WIDTHS_TINY[0], *_WIDTHS_TINY)):
        x = _padded(b, _padded(b, x, f"down{i}.1", width), f"down{i}.2", width)
        seen.append(x)
        x = b.pool(x, f"down{i}.pool", 2)
    x = _padded(b, _padded(b, x, "bottleneck.1", 256), "bottleneck.2", 256)
    x = b.relu(b.up(x, "bottleneck.up", 128, 2, 2), "bottleneck.up.relu")
    for i, width in enumerate(reversed(_WIDTHS_TINY)):
        x = b.concat((x, seen.pop()), f"up{i}.join")
        x = _padded(b, _padded(b, x, f"up{i}.1", width), f"up{i}.2", width // 2)
        x = b.relu(b.up(x, f"up{i}.up", width // 2, 2, 2), f"up{i}.up.relu")
    x = b.concat((x, seen.pop()), "output.join")
    x = _padded(b, _padded(b, x, "output.1", 32), "output.2", 32)
    x = b.conv(x, "head", classes, 1, bias=True)
    return b.view(x, x.elements // classes, classes)


def _padded(b: NetworkBuilder, x: LayerOutput, name: str, width: int) -> LayerOutput:
    return b.relu(b.conv(x, name, width, 3, pad=1, bias=True), f"{name}.relu")


_DEEP = 3  # convolutions of a residual block


def vnet(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of each voxel, as ``(voxels, classes)``: 16 to 128 channels, residual blocks of three.

    Raises SizeError unless sides are multiples of 8 voxels.
    """
    if any(side % 8 for side in x.shape[2:]):
        raise SizeError(f"sides must be multiples of 8 voxels; got {x.shape[2:]}")
    first = _block3d(b, x, "input", 16)
    x = b.add_layer("input.add", Elementwise("add", first.elements, 2), (first, x), first.shape)
    seen = [x]
    for i, width in enumerate((32, 64, 128)):
        x = _residual(b, _block3d(b, x, f"down{i}", width, 2, 2), f"down{i}")
        seen.append(x)
    for i, beside in enumerate((seen[2], seen[1])):
        x = _up_block(b, x, f"up{i}", beside.shape[1])
        joined = (x.shape[0], 2 * x.shape[1], *x.shape[2:])
        x = _residual(b, b.add_layer(f"up{i}.join", Copy(2 * x.elements), (x, beside), joined), f"up{i}")
    x = _conv3d(b, _up_block(b, x, "output", 16), "head", classes, 3, 1, bias=True)
    return b.view(x, x.elements // classes, classes)


def _block3d(b: NetworkBuilder, x: LayerOutput, name: str, width: int, kernel: int = 3, stride: int = 1) -> LayerOutput:
    """Return a convolution, batch normalisation and ReLU of *x*."""
    return b.relu(_norm3d(b, _conv3d(b, x, name, width, kernel, stride, bias=True), name, 1), f"{name}.relu")


def _up_block(b: NetworkBuilder, x: LayerOutput, name: str, width: int) -> LayerOutput:
    return b.relu(_norm3d(b, _up(b, x, name, width), name, 1), f"{name}.relu")


def _residual(b: NetworkBuilder, x: LayerOutput, name: str) -> LayerOutput:
    inside = x
    for i in range(_DEEP):
        inside = _block3d(b, inside, f"{name}.{i}", x.shape[1])
    return b.add(inside, x, f"{name}.add")
