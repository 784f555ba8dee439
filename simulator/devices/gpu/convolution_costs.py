"""What convolutions cost: constants shared by all devices.

Fitted, unless a comment says otherwise, by ``python -m validate.fit.operators.convolution`` to measured
convolutions in fp32 of Maxwell, Pascal, Volta and Turing (cuDNN 5 to 8) and of Vega (MIOpen 1.3); those of
tensor cores to fp16 of a V100 (cuDNN 7.6).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONVOLUTION", "ConvolutionCosts"]


@dataclass(frozen=True, slots=True)
class ConvolutionCosts:
    """Shares of the peak rate that inner loops reach, and what is lost around them."""

    # Blocks on SMs (simulator.devices.gpu.blocks).
    tile_intensity: float = 11.6  # multiplications per element loaded at which loads take as long
    quantisation: float = 0.885  # of a last, part-filled wave of blocks: 1 costs a whole one
    residency: float = 0.0755  # what one resident block of two loses, waiting for memory
    prologue_k: float = 13.3  # steps of the reduction that filling and draining a block costs

    # Implicit GEMM on fp32 lanes, NVIDIA.
    gemm: float = 0.746  # share of peak: Pascal, whose lanes compute the addresses too
    early: float = 0.83  # before Pascal, of that, but for gradients of filters: cuDNN 5
    kepler: float = 0.667  # of that besides: four schedulers feed 128 of its 192 lanes in a clock
    separate_integers: float = 1.2  # Volta, Turing, GA100: addresses have lanes of their own
    backward_data: float = 0.925
    backward_weight: float = 0.879
    backward_weight_1x1: float = 0.677
    split_share: float = 0.625  # of a split reduction's partial sums, what goes to memory and back

    # Other algorithms.
    winograd_fused: float = 0.772
    winograd_fused_prologue_k: float = 24.7
    winograd: float = 0.754  # its batched products
    fft: float = 0.321
    transform: float = 0.56  # share of bandwidth that transforms reach
    weight_transform: float = 0.632  # likewise, for gradients of filters
    filter_transform: float = 0.559  # likewise, of filters: their reads are scattered
    spread: float = 0.32  # share of bandwidth that col2im reaches
    # Energy of a clock of all but fused Winograd, against a large product's, where power limits the clock: lanes
    # multiply about three quarters of the time; assumed.
    energy: float = 0.75
    direct: float = 0.25  # share of peak, grouped convolutions; assumed
    direct_bandwidth: float = 0.6  # of it, depthwise convolutions; assumed

    # Tensor cores.
    tensor: float = 0.95
    tensor_tile_intensity: float = 100
    tensor_prologue_k: float = 19.1
    tensor_kernel_s: float = 8e-06  # of a kernel, its ramp included
    layout: float = 0.1  # Volta, Turing: of copies to channels-last and back, what is not hidden
    layout_late: float = 1  # from Ampere on: kernels of their own (profiles of ResNet-50 in TF32 on an H100)
    hopper: float = 0.63  # of peak: cuDNN 8's kernels issue Ampere's instructions (Luo et al., 2024, table 8)
    amd_tensor: float = 0.6  # of the above; assumed

    # AMD: MIOpen.
    amd_gemm: float = 0.542
    amd_backward_data: float = 0.721  # its products for gradients of images
    amd_winograd: float = 0.695
    amd_backward_weight: float = 0.595
    amd_backward_weight_direct: float = 0.874  # its assembly kernels, 3x3 and 5x5, stride 1
    amd_spread: float = 0.976  # share of bandwidth that its col2im reaches
    amd_image_s: float = 3.1e-06  # im2col goes image by image, a launch each

    # Launches.
    kernel_s: float = 1.2e-05  # of the first kernel, its ramp included
    next_kernel_s: float = 2.27e-06  # of each that follows
    heuristic: float = 1.08  # what a choice by heuristics loses to one by trial; assumed


CONVOLUTION = ConvolutionCosts()
