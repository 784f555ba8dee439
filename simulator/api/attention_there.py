"""The attention kernel that runs on a device in place of one that it does not have."""

from __future__ import annotations

from simulator.topology.parts import CpuPart, GpuPart

_LIMITED = ("fused-first", "fused-native", "fused-fourth")  # kernels that some devices do not have
_AMPERE, _HOPPER = 8.0, 9.0  # compute capabilities


def attention_there(kernel: str, part: GpuPart | CpuPart) -> tuple[str, tuple[str, ...]]:
    """Return the attention that runs on *part* where ``attention=kernel`` is asked, and a note if it is another.

    FlashAttention 1 and 2 run from Ampere on, as do Transformer Engine's fused kernels, which write the scores before
    (``fused-softmax``).  FlashAttention 4 is written for Hopper and Blackwell (github.com/Dao-AILab/flash-attention,
    README).  GPUs of AMD have kernels of their own (Composable Kernel), which ``fused-native`` and ``fused-first``
    stand for.  CPUs have PyTorch's kernel alone.
    """
    if kernel not in _LIMITED:
        return kernel, ()
    runs, since = kernel, ""
    if isinstance(part, CpuPart):
        runs, since = "fused", "runs on GPUs; simulated as fused, PyTorch's kernel of CPUs"
    elif part.compute_capability is None:
        if kernel == "fused-fourth" and part.vendor != "nvidia":
            runs, since = "fused", "runs on NVIDIA's GPUs from Hopper on; simulated as fused"
    elif float(part.compute_capability) < _AMPERE:
        if kernel == "fused-first":
            runs, since = "fused", "is modelled from Ampere on; simulated as fused, PyTorch's kernel before"
        else:
            since = "runs from Ampere on; simulated as fused-softmax, which Transformer Engine runs before"
            runs = "fused-softmax"
    elif float(part.compute_capability) < _HOPPER and kernel == "fused-fourth":
        runs, since = "fused", "runs from Hopper on; simulated as fused, FlashAttention 2"
    return runs, (f"attention={kernel}: {since}",) if since else ()
