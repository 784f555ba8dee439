"""Batch normalisation in training: sums over each channel, then the result from a second reading.

Where images are stored channel by channel (NCHW), one thread block handles one channel.  It reads again what it cannot
keep: 3 arrays move forward and 5 backward, or 2 and 3 where a channel fits in the registers of an SM.  It processes one
element at a time and computes an index into images and planes for each, so that instructions bound it rather than
bytes: elements of half the size take as long.  Few channels leave SMs idle; many are limited by the SM's schedulers.
Where images are stored pixel by pixel (NHWC), blocks divide the pixels and read whole lines of channels: memory bounds
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.constants import constants
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth, memory_time
from simulator.devices.kernels import Rowwise
from simulator.workload.precision import ELEMENT_BYTES


@constants("batch_norm")
@dataclass(frozen=True, slots=True)
class BatchNormCosts:
    """Constants of batch normalisation, the same for all GPUs."""

    share: float
    block_per_clock: float
    block_half_per_clock: float
    block_bwd_per_clock: float
    sm_per_clock: float
    kept_words_per_clock: float
    kept_bytes: float


@dataclass(frozen=True, slots=True)
class ChannelPass:
    """The time of the kernel's memory accesses and that of its threads' instructions, in seconds; the bytes moved."""

    memory_s: float
    threads_s: float
    bytes: float


def channel_pass(gpu: Gpu, kernel: Rowwise, found_again: float) -> ChannelPass:
    """Return the memory and instruction times of *kernel* on *gpu*.

    *found_again* is the share of a second reading that the last-level cache serves.
    """
    costs = gpu.constants(BatchNormCosts)
    size = ELEMENT_BYTES[kernel.precision]
    n_bytes = float(kernel.rows * kernel.cols * size)
    backward = kernel.kind.endswith("_bwd")
    first = 2 if backward else 1  # arrays read: the images; backward, their gradient too
    if kernel.channels_last:
        kept, share = False, 1.0
    else:
        kept, share = first * kernel.cols * size <= costs.kept_bytes, costs.share
    again = 0.0 if kept else first * n_bytes
    memory_s = memory_time(gpu, first * n_bytes, n_bytes)
    memory_s += again * (1.0 - found_again) / achieved_bandwidth(gpu, 1.0)
    moved = (first + 1) * n_bytes + again
    if kernel.channels_last:
        return ChannelPass(memory_s / share, 0.0, moved)
    on_an_sm = kernel.rows / gpu.sm_count
    if kept:
        words = moved / ELEMENT_BYTES["fp32"] / kernel.rows
        clocks = words * max(1.0, on_an_sm) / costs.kept_words_per_clock
        return ChannelPass(memory_s / share, clocks / gpu.light_clock_Hz, moved)
    if backward:
        block_per_clock = costs.block_bwd_per_clock
    else:
        block_per_clock = costs.block_per_clock if size >= ELEMENT_BYTES["fp32"] else costs.block_half_per_clock
    looked_at = moved / size / kernel.rows  # by the block of one channel
    clocks = looked_at * max(1.0 / block_per_clock, on_an_sm / costs.sm_per_clock)
    return ChannelPass(memory_s / share, clocks / gpu.light_clock_Hz, moved)
