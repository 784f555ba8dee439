"""How a step is run: what it does, in which precision, with which optimiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = [
    "ACCUMULATIONS",
    "FRAMEWORKS",
    "MODES",
    "OPTIMIZERS",
    "POLICIES",
    "QUANTISED",
    "USUAL",
    "Accumulation",
    "Framework",
    "Mode",
    "Optimizer",
    "Policy",
    "StepOptions",
]

Mode = Literal["train", "inference", "forward", "backward"]
Framework = Literal["pytorch", "megatron", "tensorflow", "caffe"]
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)
Optimizer = Literal["none", "sgd", "momentum", "adam", "lamb", "bert-adam"]
Policy = Literal[
    "fp32",
    "tf32",
    "fp16",
    "bf16",
    "fp64",
    "amp-fp16",
    "amp-bf16",
    "graph-fp16",
    "graph-bf16",
    "master-fp16",
    "master-bf16",
    "master-fp8",
    "nvfp4",
    "int8",
    "int4",
    "torch",
]
Accumulation = Literal["product", "add", "fp32"]
ACCUMULATIONS: tuple[Accumulation, ...] = get_args(Accumulation)
MODES: tuple[Mode, ...] = get_args(Mode)
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
POLICIES: tuple[Policy, ...] = get_args(Policy)
QUANTISED: tuple[Policy, ...] = ("int8", "int4")  # of inference alone


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What one step does.

    ``mode``: ``train`` is forward, backward and update; ``forward`` and ``backward`` are these parts
    of it alone (what forward saves is counted in both); ``inference`` is forward with nothing saved.
    ``precision`` is a policy (:mod:`simulator.step.precision`): ``torch`` is what PyTorch does when nothing is
    set.  ``compiled``: pointwise operators are fused as compilers do.  ``cuda_graph``: all kernels are
    launched by one call; ``cuda_graph_blocks``: in either pass those of each repeated block but its experts
    (Transformer Engine's ``make_graphed_callables``).  ``recompute``: of repeated blocks only the inputs are kept,
    and their forward pass runs again; ``recompute_attention``: of attention alone, from queries, keys and values
    (selective).
    ``channels_last``: images lie in memory pixel by pixel, as tensor cores read them, and are not copied
    around each convolution (TensorFlow's way in half precision; PyTorch's ``memory_format``).
    ``fused_optimizer``: the update is one kernel over all parameters (PyTorch's ``fused=True``), not one for each
    of its operations; a compiled model leaves it as it is.
    ``framework``: what issues operators, plain modules of PyTorch, or Megatron-LM's, which do more for each; or
    TensorFlow, whose kernels do one operation each unless the step is ``compiled`` (XLA); or Caffe and its kin without
    cuDNN, whose convolutions go image by image.
    ``launch_blocking``: the host issues nothing before the device has done all before it (``CUDA_LAUNCH_BLOCKING=1``).
    ``accumulation``: what adds gradients of a micro-batch to those before: the ``product`` that makes them
    (Megatron-LM's fusion; or there is nothing to add), a pass that reads both (``add``, PyTorch's), or passes into a
    copy in fp32 besides (``fp32``, DeepSpeed's ``BF16_Optimizer``).
    """

    mode: Mode = "train"
    precision: Policy = "torch"
    optimizer: Optimizer = "momentum"
    compiled: bool = False
    cuda_graph: bool = False
    cuda_graph_blocks: bool = False
    recompute: bool = False
    recompute_attention: bool = False
    channels_last: bool = False
    fused_optimizer: bool = False
    framework: Framework = "pytorch"
    launch_blocking: bool = False
    accumulation: Accumulation = "product"

    @property
    def trains(self) -> bool:
        """Whether what the backward pass needs is kept."""
        return self.mode != "inference"


USUAL = StepOptions()
