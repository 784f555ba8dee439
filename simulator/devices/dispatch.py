"""Host overhead: the time to issue an operator, and what issuing costs kernels (docs/decisions/kernels.md)."""

from functools import lru_cache
from typing import Literal

from simulator.constants import DEFAULT, Values
from simulator.devices.cpu import Cpu
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import near_bytes
from simulator.devices.predict import Device
from simulator.questions.options import Framework
from simulator.workload.operators import Operator, Phase


def cpu_dispatch_time(cpu: Cpu, phase: Phase) -> float:
    """Return the seconds that the framework takes before an operator's first kernel starts."""
    costs = cpu.constants["cpu_calls"]
    return (costs.forward_s if phase == "fwd" else costs.backward_s) * cpu.calibration.dispatch


def cpu_call_time(cpu: Cpu) -> float:
    """Return the seconds that a call of a framework's function takes beyond its kernels, without autograd."""
    return cpu.constants["cpu_calls"].call_s * cpu.calibration.dispatch


HOST_TIMES = tuple(name for name in vars(DEFAULT["dispatch"]) if name.endswith("_s"))
"""The constants that are times in seconds; a device's calibration may replace them for its own host."""


@lru_cache(maxsize=1024)
def host_costs(device: Gpu | Cpu) -> Values:
    """Return the constants, with the host times that the calibration of *device* replaces."""
    costs = device.constants["dispatch"]
    return costs.but(**{name: value for name, value in device.calibration.host.items() if name in HOST_TIMES})


def framework_scale(device: Gpu | Cpu, framework: Framework, *, engine: bool = False) -> float:
    """Return *framework*'s time to issue an operator over PyTorch's; *engine*: of Transformer Engine's modules."""
    if framework != "megatron" or not isinstance(device, Gpu):
        return 1.0
    costs = host_costs(device)
    return costs.engine if engine else costs.megatron


def host_time(
    device: Gpu | Cpu,
    constant: Literal["argument_s", "untaped_s", "generated_s", "gradient_s", "hook_s", "product_s", "update_s"],
    times: int = 1,
) -> float:
    """Return the host's seconds of *times* repetitions of what *constant* of dispatch.json is; 0 on a CPU."""
    if isinstance(device, Cpu):
        return 0.0
    return times * float(getattr(host_costs(device), constant)) * device.calibration.dispatch


def unit_time(device: Gpu | Cpu, parameters: int) -> float:
    """Return the host's seconds of FSDP's hooks around a unit of *parameters* tensors in one pass; 0 on a CPU."""
    if isinstance(device, Cpu):
        return 0.0
    costs = host_costs(device)
    return (costs.unit_s + parameters * costs.shard_s) * device.calibration.dispatch


def bucket_copy_time(device: Gpu | Cpu) -> float:
    """Return the host's seconds of a copy of a gradient into or out of a bucket, in C++ and without autograd."""
    if isinstance(device, Cpu):
        return cpu_dispatch_time(device, "bwd_data")
    costs = host_costs(device)
    return costs.bucket_copy * costs.backward_s * device.calibration.dispatch


def bare_launch_time(device: Gpu | Cpu) -> float:
    """Return the host time, in seconds, of one launch by generated code or in a loop over kernels of one kind."""
    return host_costs(device).bare_launch_s * device.calibration.dispatch


def graph_launch_time(device: Gpu | Cpu) -> float:
    """Return the host time of the call that launches a captured graph, in seconds."""
    return host_costs(device).graph_launch_s


def dispatch_time(gpu: Gpu | Cpu, operator: Operator, phase: Phase, *, is_taped: bool = True) -> float:
    """Return the host's seconds to issue *operator*; *is_taped*: on the tape.  A CPU issues nothing ahead."""
    if isinstance(gpu, Cpu):
        return cpu_dispatch_time(gpu, phase)
    costs = host_costs(gpu)
    besides_s = getattr(costs, operator.host_constant) if operator.host_constant else 0.0
    forward_s = costs.forward_s * (1.0 if is_taped else costs.untaped)
    each_s = (forward_s if phase == "fwd" else costs.backward_s) + operator.host_picks(phase) * besides_s
    return operator.host_calls(phase) * each_s * gpu.calibration.dispatch


# -- kernels by how they are issued ----------------------------------------------------


def in_graph(device: Device, kernel_s: float) -> float:
    """Return the seconds of a kernel when a captured graph launches it; *kernel_s* is its time otherwise."""
    if isinstance(device, Cpu) or device.vendor != "nvidia":
        return kernel_s
    saves_s = device.constants["issuing"].graph_saves_s
    return max(kernel_s - saves_s, saves_s)


def stays(gpu: Gpu, kernel_s: float) -> float:
    """Return the seconds of one pass of a persistent kernel: no start, but a grid-wide barrier after each pass."""
    costs = gpu.constants["issuing"]
    near = near_bytes(gpu) / gpu.l2_bytes if gpu.l2_bytes else 1.0  # the way to the other half is twice as long
    met_s = (costs.sync_cycles * (2.0 - near) + gpu.sm_count * costs.sync_block_cycles) / gpu.boost_clock_Hz
    return max(0.0, kernel_s - gpu.constants["memory"].start_s) + met_s
