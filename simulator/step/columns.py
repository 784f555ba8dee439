"""Convolutions as frameworks without cuDNN computed them: image by image, by im2col and a matrix product.

Caffe's own engine (``caffe/src/caffe/layers/conv_layer.cu``, im2col) and Torch7's ``nn.SpatialConvolutionMM`` (THCUNN,
``SpatialConvolutionMM.cu``): for every image, a kernel writes the inputs of each output pixel as a column, with a row
for each channel and filter tap, and cuBLAS multiplies that by the filters.  In the backward pass, a product returns
columns, which another kernel sums into the image (col2im).  In deep layers, one image occupies few streaming
multiprocessors.
"""

from __future__ import annotations

from simulator.devices.kernels import Gemm, Kernel, Streaming
from simulator.workload.operators import Conv2d, Phase
from simulator.workload.precision import ELEMENT_BYTES, Precision


def by_columns(shape: Conv2d, phase: Phase, precision: Precision) -> tuple[Kernel, ...]:
    """Return the kernels of a convolution in *phase*, image after image."""
    places, groups = shape.h_out * shape.w_out, shape.groups
    reduction, filters = shape.c_in // groups * shape.kernel_h * shape.kernel_w, shape.c_out // groups
    columns, size = groups * reduction * places, ELEMENT_BYTES[precision]
    image = shape.input_elements // shape.batch
    result = shape.output_elements // shape.batch
    written = Streaming("copy", columns, image * size, columns * size)
    added = Streaming("add", image, columns * size, image * size)
    kernels: list[Kernel] = []
    if phase == "fwd":
        bias = (Streaming("fill", result, 0, result * size),) if shape.bias else ()
        product = Gemm(filters, places, reduction, precision, groups, "NN", epilogue_elements=result)
        kernels += [*bias, written, product]
    if phase in ("bwd", "bwd_data"):
        kernels += [Gemm(reduction, places, filters, precision, groups, "TN"), added]
    if phase in ("bwd", "bwd_weight"):
        kernels += [written, Gemm(filters, reduction, places, precision, groups, "NT")]
        if shape.bias:
            kernels.append(Streaming("sum", result, result * size, 0))
    return tuple(kernels) * shape.batch
