"""Gradient buckets: their sizes, and the cost of copying gradients in and sums out.

PyTorch's DistributedDataParallel divides each gradient by the number of ranks as it copies it into its bucket, and
copies the sums back into the gradients before the update (Reducer; Horovod's fusion buffer does the same).  Both copies
are made in C++, without autograd.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.devices.dispatch import bucket_copy_time
from simulator.devices.predict import Device
from simulator.questions.layout import Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.step.issue import Launch, work_of
from simulator.workload.kernels import Streaming

# Megatron-core's (bucket_size of its DistributedDataParallelConfig): larger with many ranks, so that the chunk of each
# rank does not become too small.
_LEAST_ELEMENTS, _ELEMENTS_A_RANK = 40_000_000, 1_000_000


def least_elements(layout: Layout) -> int:
    """Return the elements of one of Megatron-core's buckets."""
    return max(_LEAST_ELEMENTS, _ELEMENTS_A_RANK * (layout.dp or 1) * layout.cp)


def bucket_size(question: StepQuestion, layout: Layout, element_bytes: int) -> float:
    """Return the bytes of a bucket: *question*'s, or Megatron-core's if it runs with the default bucket size."""
    if question.options.framework != "megatron" or question.bucket_bytes != BUCKET_BYTES:
        return question.bucket_bytes
    return float(least_elements(layout) * element_bytes)


def copy_in(device: Device, layer: str, elements: Sequence[int], element_bytes: int) -> Launch:
    """Return the copies of *layer*'s gradients, with *elements* each, into a bucket."""
    return _copies(f"{layer} (into bucket)", device, layer, "mul_scalar", elements, element_bytes)


def copy_out(device: Device, elements: Sequence[int], element_bytes: int) -> Launch:
    """Return the copies of a bucket's sums into gradients with *elements* each."""
    return _copies("out of bucket", device, "", "copy", elements, element_bytes)


def _copies(
    name: str, device: Device, layer: str, function: str, elements: Sequence[int], element_bytes: int
) -> Launch:
    kernels = [Streaming(function, n, n * element_bytes, n * element_bytes) for n in elements]
    host_s = len(elements) * bucket_copy_time(device)
    return Launch(name, "backward", host_s, work_of(device, kernels), layer=layer)
