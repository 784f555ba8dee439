"""Recurrent layers: products with the inputs of all steps and with the state in each (docs/decisions/kernels.md)."""

from collections.abc import Sequence

from simulator.devices import Bound, KernelCost
from simulator.devices.gpu import TILES, Gpu
from simulator.devices.gpu.convolution_algorithms import Engine, at_least, blocks_time, lane_share, tensor_engine
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.devices.gpu.rates import compute_rate, tensor_rate
from simulator.workload.operators import Recurrence
from simulator.workload.precision import ELEMENT_BYTES, Precision

_WIDE_BATCH = 24
_FULL_BATCH = 64  # fills those tiles
_FEW_SPLITS: Sequence[int] = (1, 2, 4)
_SPLITS = (1, 2, 4, 8)
_ACCUMULATOR_BYTES = 4
_TWO_KERNELS = 8  # cuDNN's version since which a step is the product and one kernel for the gates
_GROUP = 16  # states
_PERSISTENT_SMS, _PERSISTENT_WIDTH, _PERSISTENT_BATCH = 98, 1024, 128


def recurrence_cost(gpu: Gpu, kernel: Recurrence) -> KernelCost:
    """Return the cost of *kernel* on *gpu*; raises InputError where there is no figure for its precision."""
    costs, flop = gpu.constants["recurrence"], float(kernel.flop)
    gates, states = kernel.gates * kernel.hidden, kernel.batch * kernel.timesteps
    if kernel.direction == "bwd_weight":
        time_s = _all_steps(gpu, kernel, gates, kernel.inputs + kernel.hidden, states) + costs.call_s
        return KernelCost(time_s, "compute", flop, float(kernel.bytes), "all steps at once")
    backward = kernel.direction == "bwd_data"
    m, k = (kernel.hidden, gates) if backward else (gates, kernel.hidden)
    inputs, outputs = (gates, kernel.inputs) if backward else (kernel.inputs, gates)
    inputs_s = _all_steps(gpu, kernel, outputs, states, inputs) if kernel.inputs else 0.0
    if _is_persistent(gpu, kernel):
        clocks = -(-kernel.batch // _GROUP) * (costs.group_clocks + costs.k_clocks * kernel.hidden)
        time_s = kernel.timesteps * clocks / gpu.light_clock_Hz + costs.persistent_call_s + inputs_s
        return KernelCost(time_s, "latency", flop, float(kernel.bytes), "persistent")
    compute_s = _step_compute(gpu, kernel, m, k)
    weight_bytes = ELEMENT_BYTES[kernel.precision] * m * k
    memory_s = weight_bytes / achieved_bandwidth(gpu, 1.0)
    is_late = gpu.traits.cudnn >= _TWO_KERNELS and gpu.traits.operands == "warps"
    call_s, fixed_s = (costs.late_call_s, costs.late_step_s) if is_late else (costs.call_s, costs.step_s)
    if gpu.traits.kernels == "amd":
        fixed_s = kernel.gates * costs.amd_gate_s
    step_s = at_least(compute_s, memory_s) + fixed_s
    time_s = kernel.timesteps * step_s + call_s + inputs_s
    longest = max(compute_s, memory_s, fixed_s)
    bound: Bound = "latency" if longest == fixed_s else "compute" if longest == compute_s else "memory"
    return KernelCost(time_s, bound, flop, float(kernel.bytes + (kernel.timesteps - 1) * weight_bytes), "step by step")


def _is_persistent(gpu: Gpu, kernel: Recurrence) -> bool:
    """Return whether PyTorch asks for the persistent kernel (``use_persist_common_heuristics``), where SMs are many."""
    if gpu.traits.operands != "warps" or gpu.sm_count < _PERSISTENT_SMS or kernel.precision != "fp16":
        return False
    if kernel.batch % 8 or kernel.batch > _PERSISTENT_BATCH or kernel.hidden > _PERSISTENT_WIDTH:
        return False
    slow = kernel.cell == "gru" or (kernel.cell == "rnn" and kernel.batch >= 96 and kernel.hidden >= 896)
    return not slow and kernel.hidden % 128 == 0 == kernel.inputs % 128


def _rates(gpu: Gpu, precision: Precision) -> tuple[float, float]:
    """Return the rates, in FLOP/s, of fp32 lanes and of matrix units (0 where none serve *precision*)."""
    return compute_rate(gpu, "fp32") * lane_share(gpu), tensor_rate(gpu, precision)


def _step_compute(gpu: Gpu, kernel: Recurrence, m: int, k: int) -> float:
    costs, (lanes, tensor) = gpu.constants["recurrence"], _rates(gpu, kernel.precision)
    n, sms, cudnn, backward = kernel.batch, gpu.sm_count, gpu.traits.cudnn, kernel.direction == "bwd_data"
    if gpu.traits.kernels == "amd":
        share = costs.amd_backward if backward else costs.amd_forward
    else:
        late = costs.step * (costs.backward_late if backward else costs.forward_late)
        share = costs.step ** (cudnn - 4) if cudnn in (5, 6) else late
    engines = [Engine(sms, lanes * share, costs.tile_intensity, costs.prologue_k)]
    if tensor:
        engines.append(tensor_engine(sms, tensor * costs.all_steps, costs.tensor_tile_intensity, costs.prologue_k))
    split_s = 2 * _ACCUMULATOR_BYTES * m * n / achieved_bandwidth(gpu) + costs.next_kernel_s
    tiles, splits = TILES["step"], _FEW_SPLITS
    if cudnn == 6 and backward and _WIDE_BATCH <= n < _FULL_BATCH:
        tiles, splits = TILES["step_pascal"], (1,)  # what cuDNN 5 and 6 use there
    found = (blocks_time(costs.residency, each, m, n, k, tiles, splits=splits, split_s=split_s) for each in engines)
    return max(min(found), 2.0 * m * n * k / (costs.most_of_peak * max(compute_rate(gpu, "fp32"), tensor)))


def _all_steps(gpu: Gpu, kernel: Recurrence, m: int, n: int, k: int) -> float:
    costs, base = gpu.constants["recurrence"], gpu.constants["convolution"]
    (lanes, tensor), bandwidth = _rates(gpu, kernel.precision), achieved_bandwidth(gpu)
    share = costs.amd_forward if gpu.traits.kernels == "amd" else costs.all_steps
    rate = min(lanes * share, costs.most_of_peak * compute_rate(gpu, "fp32"))
    engine, tiles = Engine(gpu.sm_count, rate, base.tile_intensity, base.prologue_k), TILES["all_steps"]
    if tensor:
        rate = tensor * costs.all_steps
        engine = tensor_engine(gpu.sm_count, rate, costs.tensor_tile_intensity, base.prologue_k)
        tiles = TILES["all_steps_tensor"]
    split_s = 2 * _ACCUMULATOR_BYTES * m * n / bandwidth
    compute_s = blocks_time(base.residency, engine, m, n, k, tiles, splits=_SPLITS, split_s=split_s)
    memory_s = ELEMENT_BYTES[kernel.precision] * (m * n + k * (m + n)) / bandwidth
    return at_least(compute_s, memory_s)
