"""Convolutions on a CPU: direct (oneDNN), or as a product of unrolled images (frameworks of 2016).

Direct: vectors run over output channels; image rows and blocks of channels are divided among threads.
Unrolled (im2col): for each image, every window is copied into a column of a matrix, which is multiplied by the
filters; the gradient of the images multiplies first and then adds the columns back into the image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from simulator.constants import constants
from simulator.devices.cost import Bound, KernelCost
from simulator.devices.cpu.cpu import Cpu, cpu_compute_rate, region_time, scalar_rate
from simulator.devices.cpu.gemm import ProductCosts, gemm_product
from simulator.devices.cpu.memory import cache_bytes, transfer_time
from simulator.devices.cpu.passes import start_time
from simulator.records import dataclass
from simulator.workload.kernels import Gemm
from simulator.workload.operators import Convolution
from simulator.workload.precision import ELEMENT_BYTES


@constants("cpu_convolution")
@dataclass(frozen=True, slots=True)
class CpuConvolutionCosts:
    """Constants of convolutions, the same for all CPUs."""

    PARTS: ClassVar = {"efficiency": dict}
    efficiency: Mapping[str, float]
    channel_vectors: int
    unrolled_cycles: float


def convolution_products(cpu: Cpu, kernel: Convolution) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    return _unrolled(cpu, kernel) if cpu.library == "blas" else _direct(cpu, kernel)


def _direct(cpu: Cpu, kernel: Convolution) -> KernelCost:
    c, shape, threads = cpu.constants(CpuConvolutionCosts), kernel.shape, cpu.threads
    element = ELEMENT_BYTES[kernel.precision]
    lanes = max(1, cpu.vector_bits // (8 * max(4, element)))
    # Vectors run over the channels that are not reduced: those of the result, or of the images' gradient.
    channels = shape.c_in if kernel.direction == "bwd_data" else shape.c_out
    padded = math.ceil(channels / lanes) * lanes / channels
    blocks = math.ceil(channels / (c.channel_vectors * lanes))
    tasks = shape.batch * blocks * shape.h_out
    uneven = math.ceil(tasks / threads) * threads / tasks
    depth = (shape.c_in if kernel.direction != "bwd_data" else shape.c_out) // shape.groups
    steps = depth * shape.kernel_h * shape.kernel_w
    rate = cpu_compute_rate(cpu, kernel.precision, threads) * c.efficiency[kernel.direction]
    compute_s = kernel.flop * padded * uneven * (1.0 + cpu.constants(ProductCosts).start_depth / steps) / rate
    # Filters that fit in no core's private cache are fetched again for every image.
    weights = shape.weight_elements * element
    times = shape.batch if weights / blocks > cache_bytes(cpu, 1, 1) else 1
    moved = (shape.input_elements + shape.output_elements) * element + times * weights
    memory_s = transfer_time(cpu, moved, threads)
    if kernel.direction == "bwd_weight":
        # Each thread accumulates its images into its own copy of the filters; the copies are then summed.
        memory_s += transfer_time(cpu, 2 * min(threads, shape.batch) * weights, threads)
    start_s = start_time(cpu) + region_time(cpu, threads)
    bound: Bound = "latency" if start_s > compute_s + memory_s else "compute" if compute_s > memory_s else "memory"
    time_s = start_s + compute_s + memory_s
    return KernelCost(time_s, bound, kernel.flop, kernel.bytes, f"direct, {threads} threads")


def _unrolled(cpu: Cpu, kernel: Convolution) -> KernelCost:
    shape = kernel.shape
    pixels = shape.h_out * shape.w_out
    window = shape.c_in // shape.groups * shape.kernel_h * shape.kernel_w
    filters = shape.c_out // shape.groups
    if kernel.direction == "fwd":
        product = Gemm(filters, pixels, window, kernel.precision)
    elif kernel.direction == "bwd_data":
        product = Gemm(window, pixels, filters, kernel.precision, layout="TN")
    else:
        product = Gemm(filters, window, pixels, kernel.precision, layout="NT")
    multiplied = gemm_product(cpu, product)
    plain = shape.kernel_h * shape.kernel_w == 1 and shape.stride_h * shape.stride_w == 1
    columns_s = 0.0
    if not plain:
        n_bytes = 2 * window * pixels * ELEMENT_BYTES[kernel.precision]
        written_s = window * pixels * cpu.constants(CpuConvolutionCosts).unrolled_cycles / scalar_rate(cpu, 1)
        columns_s = max(written_s, transfer_time(cpu, n_bytes, 1))
    time_s = shape.batch * shape.groups * (multiplied.time_s + columns_s)
    bound: Bound = "memory" if columns_s > multiplied.time_s else multiplied.bound
    return KernelCost(time_s, bound, kernel.flop, kernel.bytes, f"unrolled, {multiplied.detail}")
