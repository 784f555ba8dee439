"""Which shared constants are fitted to which rows (:data:`FAMILIES`); their priors are in ``families.yaml``.

Weights and exclusions have their reasons here, or in ``conventions.yaml`` if they concern single tables (column
``fit_weight``); docs/constants.md lists them.
"""

from __future__ import annotations

from simulator.questions.single import OperatorQuestion
from simulator.topology.parts import GpuPart
from simulator.workload.operators import Attention
from validate.constants.family import Family, FitStage, priors_of
from validate.kinds.row import MeasuredRow

_PRODUCTS = ("linear", "matmul", "bmm")

# Point to point moves data as Simple does, an LL128 ring has the same steps, and no recent version was measured over a
# network.  A GPU's own passes, flags beside the data and the filling of a window depend on the protocol, not on the
# version: separate figures for each version, or each protocol with a window, improve no machine.
_NVLS = ("recent.NVLS", "earlier.NVLS", "recent.NVLSTree", "earlier.NVLSTree")
_RINGS = ("earlier.Simple", "earlier.LL128", "recent.LL128")
_NCCL_TIED = {
    **{f"nccl.{v}.P2P.share": f"nccl.{v}.Simple.share" for v in ("earlier", "recent")},
    **{f"nccl.{p}.own_passes": "nccl.recent.Simple.own_passes" for p in _RINGS},
    **{f"nccl.{p}.fill": "nccl.recent.P2P.fill" for p in ("earlier.P2P", *_NVLS)},
    **{f"nccl.earlier.{name}": f"nccl.recent.{name}" for name in ("P2P.own_passes", "LL128.share")},
    **{f"nccl.{p}.{name}": f"nccl.recent.NVLS.{name}" for p in _NVLS[1:] for name in ("base_s", "head_s")},
    **{f"nccl.earlier.{p}.share": f"nccl.recent.{p}.share" for p in ("NVLS", "NVLSTree")},
    **{f"nccl.recent.{p}.net_hop_s": f"nccl.earlier.{p}.net_hop_s" for p in ("LL", "LL128", "Simple", "P2P")},
}


def _on_matrix_units(row: MeasuredRow) -> bool:
    """Whether a 16-bit product runs on NVIDIA tensor cores before Ampere, whose operands come through registers."""
    question, part = row.asks.question, row.part
    assert isinstance(question, OperatorQuestion)
    of_16_bit = question.precision in ("fp16", "bf16") and not _pipelined(row)
    return of_16_bit and isinstance(part, GpuPart) and question.precision in part.peak and part.vendor == "nvidia"


def _checked(row: MeasuredRow) -> bool:
    """Whether a row is a long pass over memory with inline ECC."""
    is_checked = isinstance(row.part, GpuPart) and row.part.inline_ecc
    return is_checked and row.cells.get("includes_dispatch") == "1" and row.time_s > 1e-3


def _pipelined(row: MeasuredRow) -> bool:
    """Whether a product runs on NVIDIA tensor cores from Ampere on, which have their own model."""
    question, part = row.asks.question, row.part
    assert isinstance(question, OperatorQuestion)
    since_ampere = isinstance(part, GpuPart) and float(part.compute_capability or 0.0) >= 8.0
    return since_ampere and question.precision not in ("fp32", "fp64")


def _mostly_device(row: MeasuredRow) -> bool:
    """Whether a convolution's time is mostly the device's; host time varies between machines."""
    return row.cells.get("includes_dispatch") != "1" or row.time_s > 1.2e-3


def _alone(row: MeasuredRow) -> bool:
    """Whether an operator was timed by itself; short ones on AMD GPUs are excluded.

    Their only host launched in half the time of the others.
    """
    is_short = row.cells.get("trust", "").upper() == "C"
    is_amd = isinstance(row.part, GpuPart) and row.part.vendor == "amd"
    return row.cells.get("includes_dispatch") == "1" and not (is_short and is_amd)


def _trained_on(row: MeasuredRow) -> bool:
    """Whether a row is attention as in training: SGLang's, whose kernels are one family on all GPUs before Blackwell.

    vLLM gathers keys page by page, and TensorRT-LLM has its own kernels.  Training uses at least 128 tokens.
    With fewer blocks than multiprocessors, keys are split among blocks, which kernels for training do not do.
    Up to Ada, SGLang packs heads that share keys into one tile, which FlashAttention 2 does not do.
    """
    question, part = row.asks.question, row.part
    if not row.cells.get("software", "").startswith("sglang") or not isinstance(part, GpuPart):
        return False
    assert isinstance(question, OperatorQuestion)
    operator = question.operator
    assert isinstance(operator, Attention)
    packs = float(part.compute_capability or 0.0) >= 9.0
    kv_heads = operator.kv_heads or operator.heads
    group = operator.heads // kv_heads if packs else 1
    blocks = operator.batch * operator.heads // group * -(-operator.query_length * group // 128)
    is_whole = operator.key_length <= 256 or blocks >= (part.sm_count or 0)
    return operator.query_length >= 128 and (packs or kv_heads == operator.heads) and is_whole


FAMILIES: tuple[Family, ...] = (
    Family(
        "gemm",
        "operators",
        _PRODUCTS,
        {"A": 1.0},
        (FitStage(priors_of("gemm"), ("device", "op", "dtype"), 100),),
        predicts=lambda row: not _pipelined(row) and not _on_matrix_units(row),
    ),
    Family(
        "matrix_product",
        "operators",
        _PRODUCTS,
        {"A": 1.0},
        (FitStage(priors_of("matrix_product"), ("device",), 100),),
        predicts=_on_matrix_units,
    ),
    Family(
        "tensor_product",
        "operators",
        _PRODUCTS,
        {"A": 1.0},
        (
            FitStage(priors_of("tensor_product.copies"), ("device", "dtype"), 200),
            FitStage(priors_of("tensor_product.warps"), ("device", "dtype"), 200),
        ),
        ("rows", "outputs", "inputs"),
        _pipelined,
    ),
    Family(
        "attention",
        "operators",
        ("attention",),
        {"A": 1.0, "B": 1.0},
        (FitStage(priors_of("attention"), ("device",), 300, _trained_on),),
        ("batch", "query_length", "heads", "kv_heads", "head_size"),
    ),
    Family(
        "memory_bound",
        "operators",
        ("elementwise", "softmax", "layer_norm"),
        {"A": 1.0, "B": 1.0, "C": 0.25},  # C: short ones, mostly host time, which determine the cost of a call
        (FitStage(priors_of("memory_bound"), ("device", "op", "dtype"), 60, _alone),),
    ),
    Family(
        "checked_memory",
        "operators",
        ("elementwise",),
        {"A": 1.0},
        (FitStage(priors_of("checked_memory"), ("device",), 60),),
        predicts=_checked,
    ),
    Family(
        "convolution",
        "operators",
        ("conv2d",),
        {"A": 1.0},
        (
            FitStage(
                priors_of("convolution.lanes"),
                ("device", "phase"),
                70,
                lambda row: row.cells.get("dtype") == "fp32" and _mostly_device(row),
            ),
            FitStage(
                priors_of("convolution.matrix_units"),
                ("device", "phase"),
                70,
                lambda row: row.cells.get("dtype") == "fp16" and _mostly_device(row),
            ),
        ),
    ),
    Family(
        "recurrence",
        "operators",
        ("rnn", "lstm", "gru"),
        {"A": 1.0},
        (FitStage(priors_of("recurrence"), ("device", "phase"), 200),),
    ),
    Family(
        "nccl",
        "collectives",
        (),
        {"A": 1.0, "B": 1.0},
        (FitStage(priors_of("nccl"), ("machine", "size", "collective", "n_gpus"), 40, tied=_NCCL_TIED),),
        straight=True,
    ),
)
