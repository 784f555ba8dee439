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

    # Blocks on SMs (simulator.devices.blocks).
    tile_intensity: float = 15.8  # a tile's FLOPs per element loaded at which the loads halve the rate
    quantisation: float = 1.0  # of a last, part-filled wave of blocks: 1 costs a whole one
    residency: float = 0.139  # what one resident block of two loses, waiting for memory
    prologue_k: float = 22.2  # steps of the reduction that filling and draining a block costs

    # Implicit GEMM on fp32 lanes, NVIDIA.
    gemm: float = 0.79  # share of peak: Pascal; addresses are computed in the same lanes
    early: float = 0.81  # before Pascal, of that: cuDNN 5 and smaller register files
    separate_integers: float = 1.26  # Volta, Turing, GA100: addresses have lanes of their own
    backward_data: float = 0.99
    backward_weight: float = 0.946
    backward_weight_1x1: float = 0.632
    split_share: float = 0.5  # of a split reduction's partial sums, what goes to memory and back

    # Other algorithms.
    winograd_fused: float = 0.478
    winograd_fused_prologue_k: float = 5.6
    winograd: float = 0.616  # its batched products
    fft: float = 0.353
    transform: float = 0.91  # share of bandwidth that transforms reach
    spread: float = 0.353  # share of bandwidth that col2im reaches
    direct: float = 0.25  # share of peak, grouped convolutions; assumed
    direct_bandwidth: float = 0.6  # of it, depthwise convolutions; assumed

    # Tensor cores.
    tensor: float = 0.817
    tensor_tile_intensity: float = 48.7
    tensor_prologue_k: float = 22.4
    layout: float = 0.63  # of a copy to channels-last and back, what is not hidden
    amd_tensor: float = 0.6  # of the above; assumed

    # AMD: MIOpen.
    amd_gemm: float = 0.681
    amd_winograd: float = 0.636
    amd_backward_weight: float = 0.573
    amd_backward_weight_direct: float = 0.844  # its assembly kernels, 3x3 and 5x5, stride 1
    amd_image_s: float = 3.5e-6  # im2col goes image by image, a launch each

    # Knights Landing: direct convolution of MKL-DNN and LIBXSMM.
    cpu: float = 0.75

    # Launches.
    kernel_s: float = 8e-6  # of the first kernel, its ramp included
    next_kernel_s: float = 5e-6  # of each that follows
    heuristic: float = 1.08  # what a choice by heuristics loses to one by trial; assumed


CONVOLUTION = ConvolutionCosts()
