"""The peak of live tensors in a training step, counted storage by storage as torch runs it; no memory is needed.

Tensors are fake ones on ``cuda``, so that CUDA's autocast and its choices of kernels apply.  What kernels allocate
inside themselves (workspaces) is not seen.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tests.oracles.pretended_cuda import autocasting, pretend
from tests.oracles.torch_losses import LOSSES

Way = Literal["fp32", "bf16", "amp-bf16"]
# A module, its inputs, and for each of its results the labels.
Built = tuple[nn.Module, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]
WAYS: tuple[Way, ...] = ("fp32", "bf16", "amp-bf16")
_CUDA = torch.device("cuda:0")
# References to a tensor that autograd alone holds, and to its storage, as a dispatch mode sees them.
_ALONE = 4, 2


@dataclass
class Tracked:
    """Bytes of live storages: at the peak by kind, and at named moments; the operator that ran at the peak."""

    peak_bytes: int = 0
    at_peak: dict[str, int] = field(default_factory=dict)
    operator: str = ""
    moments: dict[str, int] = field(default_factory=dict)


class Tracker(TorchDispatchMode):
    """Counts storages from their first sight to their end.

    ``phase`` is the kind of those that operators write.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live: Counter[str] = Counter()
        self.kinds: dict[int, str] = {}
        self.phase = "inputs"
        self.found = Tracked()

    def note(self, tensor: torch.Tensor, kind: str) -> None:
        """Count the storage of *tensor* as *kind* if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.kinds:
            self.kinds[key] = kind
            self.live[kind] += storage.nbytes()
            weakref.finalize(storage, self._end, key, storage.nbytes())

    def turn(self, tensor: torch.Tensor, kind: str) -> None:
        """Count the storage of *tensor* as *kind* from now on."""
        storage = tensor.untyped_storage()
        self.note(tensor, kind)
        self.live[self.kinds[storage._cdata]] -= storage.nbytes()
        self.live[kind] += storage.nbytes()
        self.kinds[storage._cdata] = kind

    def _end(self, key: int, size: int) -> None:
        self.live[self.kinds.pop(key)] -= size

    def total(self) -> int:
        return sum(self.live.values())

    def moment(self, name: str) -> None:
        self.found.moments[name] = self.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return func(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        sums_gradients = self.phase == "backward" and not torch.is_grad_enabled()  # else it is a block that runs again
        if func is torch.ops.aten.add.Tensor and sums_gradients and _is_alone(args[0]):
            func = torch.ops.aten.add_.Tensor
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor, self.phase)
        total = self.total() + _inside(func, result)
        if total > self.found.peak_bytes:
            where = "" if node is None else f" in {node.name()}"
            self.found.peak_bytes, self.found.operator = total, f"{self.phase}: {func}{where}"
            self.found.at_peak = {kind: n for kind, n in self.live.items() if n}
        return result


def _inside(func: Any, result: Any) -> int:
    """Return the bytes that CUDA's kernels of *func* write besides: of softmax, the product of gradient and result.

    (``softmax_backward_cuda_out`` in aten/src/ATen/native/cuda/SoftMax.cu.)
    """
    return result.nbytes if func is torch.ops.aten._softmax_backward_data.default else 0


def _is_alone(gradient: torch.Tensor) -> bool:
    """Return whether autograd adds to *gradient* in place, as it does to one that nobody else holds and no view.

    For tensors of a class of their own, and under a dispatch mode, autograd itself never does.
    """
    storage = torch._C._storage_Use_Count(gradient.untyped_storage()._cdata)
    return gradient.is_contiguous() and (gradient._use_count(), storage) == _ALONE


def fake_step(
    build: Callable[[], Built],
    way: Way,
    *,
    wide: bool = False,
    loss_way: str = "plain",
) -> Tracked:
    """Return what a step takes that computes cross-entropies of the module of *build*, and gradients, in *way*.

    *build* runs with the device ``meta``; *wide* as of :func:`loss_of`, *loss_way* one of its own or of ``LOSSES``.
    """
    pretend()
    with torch.device("meta"):
        module, inputs, labels = build()
    mode = FakeTensorMode()
    half = torch.bfloat16 if way == "bf16" else None

    def cuda(tensor: torch.Tensor) -> torch.Tensor:
        wanted = tensor.detach().to(half) if half and tensor.is_floating_point() else tensor.detach()
        return FakeTensor(mode, wanted, _CUDA)

    tracker = Tracker()
    memo: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in memo:
                made = memo[id(parameter)] = nn.Parameter(cuda(parameter), parameter.requires_grad)
                tracker.note(made, "parameters")
                if made.requires_grad:
                    made.register_post_accumulate_grad_hook(lambda p: tracker.turn(p.grad, "gradients"))
            part._parameters[name] = memo[id(parameter)]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = cuda(buffer)
                tracker.note(part._buffers[name], "buffers")
    given, right = (tuple(cuda(tensor) for tensor in tensors) for tensors in (inputs, labels))
    for tensor in (*given, *right):
        tracker.note(tensor, "inputs")
    with mode, torch.device("cuda"), tracker:
        tracker.moment("start")
        tracker.phase = "forward"
        with autocasting() if way == "amp-bf16" else nullcontext():
            if loss_way == "plain":
                loss = loss_of(module, given, right, wide=wide)
            else:
                head, module.head = module.head, nn.Identity()
                loss = LOSSES[loss_way](module(*given).flatten(0, 1), head, *right)
        tracker.moment("after forward")
        tracker.phase = "backward"
        loss.backward()
        del loss
        tracker.moment("end")
    return tracker.found


def loss_of(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], labels: tuple[torch.Tensor, ...], *, wide: bool = False
) -> torch.Tensor:
    """Return the sum of the cross-entropies of the results of *module*, of sequences one for each token.

    *wide*: of the results in fp32, as Hugging Face's ``ForCausalLMLoss`` and Megatron-LM take them.
    """
    results = module(*inputs)
    results = (results,) if isinstance(results, torch.Tensor) else results
    losses = []
    for result, right in zip(results, labels, strict=True):
        rows = result.flatten(0, 1) if result.ndim == 3 else result
        losses.append(cross_entropy(rows.float() if wide else rows, right))
    return sum(losses[1:], losses[0])
