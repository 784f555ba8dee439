"""Passes over memory on a CPU: element by element, reductions over rows, pooling, rows picked from a table.

Each is as long as its bytes take from where they lie, or as its instructions take, whichever is longer.
The cycles are those of PyTorch 2 on one core of a Zen 4 server, timed with tensors that lie in its caches;
they are facts of the library's code, and scale to other CPUs by the width of their vectors.
"""

from __future__ import annotations

import math

from simulator.devices.cost import Bound, KernelCost
from simulator.devices.cpu.cpu import Cpu
from simulator.devices.cpu.memory import transfer_time
from simulator.devices.cpu.threads import region_time, scalar_rate, vector_rate
from simulator.devices.kernels import Gather, Pooling, Rowwise, Streaming

__all__ = ["exp_cycles", "gather_pass", "pass_threads", "pooling_pass", "rowwise_pass", "streaming_pass"]

GRAIN_ELEMENTS = 32768  # below which PyTorch gives no further thread a part (at::internal::GRAIN_SIZE)
START_CYCLES = 1500.0  # a kernel's own start: shapes checked, iterators made

# Cycles for each element, on a core with two vector units of 256 bits.  Those not named take SIMPLE_CYCLES.
SIMPLE_CYCLES = 0.15
VECTOR_CYCLES = {
    "div": 0.5,
    "div_scalar": 0.5,
    "elu": 3.0,
    "erf": 4.7,
    "exp": 3.0,
    "gelu": 1.6,
    "gelu_bwd": 2.9,
    "log": 3.7,
    "pow": 9.1,
    "sigmoid": 1.5,
    "sigmoid_bwd": 0.4,
    "silu": 1.5,
    "silu_bwd": 2.0,
    "sin": 4.5,
    "cos": 4.5,
    "sqrt": 1.5,
    "tanh": 9.2,
    "tanh_bwd": 0.4,
}
SCALAR_CYCLES = {"dropout": 45.0}  # a random number for each element, one after the other
TRANSPOSED_CYCLES = 2.1  # no vectors where one side jumps
ROW_CYCLES = 80.0  # a row's own start
ROW_ELEMENT_CYCLES = {
    "softmax": 2.1,
    "log_softmax": 2.0,
    "softmax_bwd": 0.6,
    "log_softmax_bwd": 1.5,
    "layer_norm": 1.0,
    "layer_norm_bwd": 0.8,
    "layer_norm_weight_bwd": 0.7,
    "rms_norm": 0.8,
    "rms_norm_bwd": 0.8,
    "rms_norm_weight_bwd": 0.7,
    "batch_norm": 6.6,
    "batch_norm_bwd": 1.7,
}
# Pooling looks at elements one by one: cycles for each output, and for each element of its window.
POOL_CYCLES = {"max": (60.0, 4.5), "avg": (20.0, 1.2)}
POOL_BWD_MAX_CYCLES = 3.2
GATHER_ROW_CYCLES = 60.0

# Frameworks of 2016 ran passes on one thread, element by element, with the C library's functions: cycles for
# each element, fitted by eye to the serial part that arXiv 1608.07249, Table 7 shows at every number of threads.
SERIAL_SIMPLE_CYCLES = 6.0
SERIAL_FUNCTION_CYCLES = 40.0
_FUNCTIONS = frozenset(("elu", "erf", "exp", "gelu", "gelu_bwd", "log", "pow", "sigmoid", "silu", "tanh", "sin", "cos"))


def exp_cycles() -> float:
    """Return the cycles for each element of a softmax within a fused kernel."""
    return ROW_ELEMENT_CYCLES["softmax"]


def pass_threads(cpu: Cpu, elements: int) -> int:
    """Return how many threads a pass over *elements* is given."""
    if cpu.library == "blas":
        return 1
    return max(1, min(cpu.threads, math.ceil(elements / GRAIN_ELEMENTS)))


def streaming_pass(cpu: Cpu, kernel: Streaming) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    n, name = kernel.elements, kernel.function
    threads = pass_threads(cpu, n)
    if name in SCALAR_CYCLES:
        compute_s = n * SCALAR_CYCLES[name] / scalar_rate(cpu, threads)
    elif cpu.library == "blas":
        cycles = SERIAL_FUNCTION_CYCLES if name in _FUNCTIONS else SERIAL_SIMPLE_CYCLES
        compute_s = n * cycles / scalar_rate(cpu, threads)
    elif kernel.transposed:
        compute_s = n * TRANSPOSED_CYCLES / scalar_rate(cpu, threads)
    else:
        compute_s = n * VECTOR_CYCLES.get(name, SIMPLE_CYCLES) / vector_rate(cpu, threads)
    return _pass(cpu, compute_s, kernel.bytes, threads)


def rowwise_pass(cpu: Cpu, kernel: Rowwise) -> KernelCost:
    """Return the cost of *kernel* on *cpu*; rows are what threads share out."""
    n = kernel.rows * kernel.cols
    threads = min(pass_threads(cpu, n), kernel.rows)
    rows_each = math.ceil(kernel.rows / threads)
    cycles = ROW_ELEMENT_CYCLES.get(kernel.kind, SIMPLE_CYCLES)
    if cpu.library == "blas":
        passes = 1 if kernel.kind == "sum" else 3 if kernel.kind.endswith("_bwd") else 2
        cycles = SERIAL_FUNCTION_CYCLES if "softmax" in kernel.kind else passes * SERIAL_SIMPLE_CYCLES
        element_s = cycles / scalar_rate(cpu, threads)
    else:
        element_s = cycles / vector_rate(cpu, threads)
    compute_s = rows_each * threads * (kernel.cols * element_s + ROW_CYCLES / scalar_rate(cpu, threads))
    return _pass(cpu, compute_s, kernel.bytes, threads)


def pooling_pass(cpu: Cpu, kernel: Pooling) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    if kernel.kind == "max" and kernel.direction == "bwd":
        cycles = POOL_BWD_MAX_CYCLES
    else:
        each, window = POOL_CYCLES[kernel.kind]
        cycles = each + window * kernel.window
    # Both libraries give each thread its channels.
    threads = max(1, min(cpu.threads, math.ceil(kernel.input_elements / GRAIN_ELEMENTS)))
    compute_s = kernel.output_elements * cycles / scalar_rate(cpu, threads)
    return _pass(cpu, compute_s, kernel.bytes, threads)


def gather_pass(cpu: Cpu, kernel: Gather) -> KernelCost:
    """Return the cost of *kernel* on *cpu*."""
    threads = pass_threads(cpu, kernel.rows * kernel.cols)
    compute_s = kernel.rows * GATHER_ROW_CYCLES / scalar_rate(cpu, threads)
    return _pass(cpu, compute_s, kernel.bytes, threads)


def _pass(cpu: Cpu, compute_s: float, n_bytes: int, threads: int) -> KernelCost:
    memory_s = transfer_time(cpu, n_bytes, threads)
    start_s = START_CYCLES / cpu.core_clock(1) + region_time(cpu, threads)
    longer_s = max(compute_s, memory_s)
    bound: Bound = "latency" if start_s > longer_s else "compute" if compute_s > memory_s else "memory"
    return KernelCost(start_s + longer_s, bound, 0.0, n_bytes, f"{threads} threads")
