"""Constants of convolutions, shared by all devices."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants


@constants("convolution")
@dataclass(frozen=True, slots=True)
class ConvolutionCosts:
    """Shares of the peak rate that inner loops reach, and the overheads around them."""

    tile_intensity: float
    quantisation: float
    residency: float
    prologue_k: float
    gemm: float
    early: float
    kepler: float
    separate_integers: float
    backward_data: float
    backward_weight: float
    backward_weight_1x1: float
    split_share: float
    winograd_fused: float
    winograd_fused_prologue_k: float
    fft: float
    transform: float
    weight_transform: float
    spread: float
    energy: float
    direct: float
    direct_bandwidth: float
    tensor: float
    tensor_tile_intensity: float
    tensor_kernel_s: float
    layout: float
    layout_late: float
    hopper: float
    amd_tensor: float
    amd_gemm: float
    amd_backward_data: float
    amd_winograd: float
    amd_backward_weight: float
    amd_backward_weight_direct: float
    amd_spread: float
    amd_image_s: float
    kernel_s: float
    next_kernel_s: float
