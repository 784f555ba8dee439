"""Which shared constants are fitted to which rows, and their priors (:data:`FAMILIES`).

Weights and exclusions have their reasons here, or in ``conventions.yaml`` if they concern single tables (column
``fit_weight``); docs/constants.md lists them.
"""

from __future__ import annotations

from simulator.questions.single import OperatorQuestion
from simulator.topology.parts import GpuPart
from simulator.workload.operators import Attention
from validate.constants.family import Family, FitStage, drawn, within
from validate.constants.least import Prior
from validate.kinds.row import MeasuredRow

_PRODUCTS = ("linear", "matmul", "bmm")

# Round figures from the names and sizes of kernels, before any measurement.
_GEMM = drawn(
    "gemm",
    {
        "fetch": (10.0, 0.17),
        "fetch_volta": (4.0, 0.33),
        "transpose": (6.0, 0.17),
        "straight_volta": (4.0, 0.25),
        "unaligned": (0.95, 0.05),
        "fetch_other": (10.0, 0.25),
        "rate_other": (0.85, 0.25),
        "alone": (8192.0, 0.25),
        "tile_clocks": (500.0, 0.25),
        "overlap": (2.0, 0.1),
        "bandwidth_share": (0.95, 0.033),
        "pages_early": (1.5, 0.25),
        "page_sharpness_early": (1.5, 0.25),
        "pages_late": (8.0, 0.25),
        "page_sharpness_late": (4.0, 0.25),
        "idle_early": (0.5, 0.25),
        "idle_late": (0.8, 0.25),
        "split_share": (0.8, 0.25),
        "walk_again": (0.2, 0.25),
        "walk_held_bytes": (2e8, 0.25),
        "walk_reach_bytes": (6e8, 0.25),
        "walk_near": (0.4, 0.25),
        "walks_early": (1.7, 0.25),
        "walks_late": (8.0, 0.25),
        "thin_share": (0.1, 0.1),
        "start_s": (4e-6, 0.025),
        "reduce_early_s": (15e-6, 0.025),
        "reduce_s": (4e-6, 0.05),
        "power.multiply_add_J": (22e-12, 0.25),
        "power.sm_lanes": (106.0, 0.1),
        "power.headroom": (1.12, 0.033),
    },
)
_MATRIX_PRODUCTS = drawn(
    "gemm",
    {
        "fetch_tensor": (4.0, 0.5),
        "alone_tensor": (8192.0, 0.25),
        "tile_clocks_tensor": (1000.0, 0.25),
        "power.tensor_16_bit": (0.2, 0.5),
    },
)
_COPIES, _WARPS = (
    drawn(
        "tensor_product",
        {
            f"tensor_product.{way}.{name}": (value, sigma)
            for name, value, sigma in (
                ("start_clocks", start, 0.2),
                ("edge_clocks", edge, 0.2),
                ("edge_32_bit_clocks", edge_32, 0.2),
                ("rate", rate, 0.005),
                ("rate_32_bit", 0.7, 0.033),
                ("fetch", fetch, 0.2),
                ("alone", 4000.0, 0.2),
                ("latency_s", 1e-9, 0.2),
                ("cached", 0.5, 0.2),
                ("overlap", 3.0, 0.2),
                ("bandwidth_share", share, 0.033),
                ("l2_rate_share", 0.7, 0.2),
                ("l2_share", l2, 0.2),
                ("l2_clock_bytes", clock, 0.2),
                ("exposed", 0.3, 0.2),
                ("reduce_clocks", 5000.0, 0.2),
                ("partial", 0.5, 0.2),
            )
        }
        # Energy of a 16-bit operation: 794.5 TFLOP/s at 626 W (STAS MAMF).
        | ({} if way == "copies" else {"power.async_16_bit_J": (8e-13, 0.033)}),
    )
    for way, start, edge, edge_32, rate, fetch, share, l2, clock in (
        ("copies", 5000.0, 1000.0, 2000.0, 0.95, 5.0, 0.9, 0.3, 40.0),
        ("warps", 6500.0, 500.0, 8000.0, 1.0, 1.0, 0.95, 0.2, 100.0),
    )
)
# Bounds: no product exceeds the peak rate, with or without separate integer lanes.
_LANES = within(
    "convolution",
    {
        "tile_intensity": (1.0, 60.0),
        "quantisation": (0.2, 1.0),
        "residency": (0.01, 2.0),
        "prologue_k": (1.0, 100.0),
        "gemm": (0.5, 0.83),
        "early": (0.5, 1.0),
        "separate_integers": (1.0, 1.2),
        "backward_data": (0.6, 1.2),
        "backward_weight": (0.4, 1.2),
        "backward_weight_1x1": (0.4, 1.2),
        "split_share": (0.05, 1.0),
        "winograd_fused": (0.3, 0.83),
        "winograd_fused_prologue_k": (1.0, 64.0),
        "fft": (0.2, 1.0),
        "transform": (0.4, 1.0),
        "weight_transform": (0.4, 1.0),
        "spread": (0.1, 1.0),
        "amd_gemm": (0.3, 1.2),
        "amd_backward_data": (0.3, 1.2),
        "amd_winograd": (0.3, 1.0),
        "amd_backward_weight": (0.3, 1.2),
        "amd_backward_weight_direct": (0.3, 1.2),
        "amd_spread": (0.1, 1.0),
        "amd_image_s": (1e-6, 5e-5),
        "kernel_s": (1e-6, 1.2e-5),
        "next_kernel_s": (2e-6, 1e-5),
    },
)
_MATRIX_UNITS = within(
    "convolution",
    {
        "tensor": (0.4, 0.95),
        "tensor_tile_intensity": (1.0, 100.0),
        "layout": (0.1, 1.0),
        "tensor_kernel_s": (2e-6, 8e-6),
    },
)
_MEMORY_BOUND = {
    name: Prior(value, sigma, max(value / 3, low), min(value * 3, high))
    for name, value, sigma, low, high in (
        ("memory.early_share", 0.8, 1.0, 0.5, 1.0),
        ("memory.late_share", 0.95, 1.0, 0.7, 1.0),
        ("memory.turnaround", 0.05, 1.0, 0.0, 1.0),
        ("streaming.pow_slots", 37.0, 1.0, 0.0, 1e3),
        ("rowwise.warp_share", 0.95, 1.0, 0.7, 1.0),
        ("rowwise.warp_slots", 20.0, 1.0, 0.0, 1e3),
        ("rowwise.softmax_slots", 40.0, 1.0, 0.0, 1e3),
        ("rowwise.reuse_share", 0.7, 1.0, 0.0, 1.0),
        ("rowwise.reuse_slope", 4.0, 1.0, 0.0, 1e3),
        ("rowwise.load_s", 0.5e-6, 1.0, 0.0, 1.0),
        ("rowwise.softmax_row_s", 5e-6, 1.0, 0.0, 1.0),
        ("rowwise.norm_row_s", 3e-6, 1.0, 0.0, 1.0),
        ("rowwise.amd_wait", 2.0, 1.0, 0.0, 1e3),
        ("timing.isolated_elementwise_s", 15e-6, 1.0, 0.0, 1.0),
        ("timing.isolated_softmax_s", 20e-6, 1.0, 0.0, 1.0),
        ("timing.isolated_norm_s", 35e-6, 1.0, 0.0, 1.0),
        ("timing.isolated_end_s", 12e-6, 1.0, 0.0, 1.0),
    )
}
_ATTENTION = drawn(
    "attention",
    {
        "products": (0.8, 0.2),
        "exponentials": (0.5, 0.2),
        "block_clocks": (3000.0, 0.2),
        "exposed_memory": (1.0, 0.2),
        "last": (0.5, 0.05),
        "timing.replay_s": (5e-6, 0.2),
    },
    10.0,
) | {"attention.alone": Prior(1.3, 0.05, 1.0, 2.0)}
_RECURRENCE = within(
    "recurrence",
    {
        "forward": (0.3, 1.2),
        "forward_pascal": (0.2, 1.2),
        "forward_late": (0.8, 2.0),
        "backward": (0.1, 1.2),
        "backward_late": (0.8, 3.0),
        "amd_forward": (0.2, 1.2),
        "amd_backward": (0.2, 1.2),
        "all_steps": (0.5, 1.2),
        "tensor": (0.2, 1.0),
        "tile_intensity": (1.0, 60.0),
        "prologue_k": (1.0, 150.0),
        "residency": (0.01, 2.0),
        "step_s": (1e-6, 6e-5),
        "amd_step_s": (1e-6, 9e-5),
        "call_s": (1e-6, 1e-4),
    },
)
# Round figures by hand; shares are fractions of a link's rate, so at most 1.
_NCCL = {
    f"nccl.{name}": Prior(value, sigma, value / 10, min(1.0, value * 10) if name.endswith("share") else value * 10)
    for name, value, sigma in (
        ("launch_s", 4e-6, 1.0),
        ("peer_launch_s", 1e-6, 1.0),
        ("pcie_share", 0.5, 0.5),
        ("network_share", 0.95, 0.1),
        ("staged_share", 0.6, 0.5),
        *(
            (f"{version}.{name}", value, sigma)
            for version in ("earlier", "recent")
            for name, value, sigma in (
                ("LL.base_s", 10e-6, 1.0),
                ("LL.hop_s", 0.5e-6, 1.0),
                ("LL.share", 0.7, 0.5),
                ("LL.channel_Bps", 3e9, 1.0),
                ("LL128.base_s", 25e-6, 1.0),
                ("LL128.hop_s", 3e-6, 1.0),
                ("Simple.base_s", 35e-6, 1.0),
                ("Simple.hop_s", 4e-6, 1.0),
                ("Simple.share", 0.95, 0.1),
                ("P2P.base_s", 15e-6, 1.0),
                ("P2P.hop_s", 4e-6, 1.0),
            )
        ),
        ("recent.NVLS.base_s", 15e-6, 1.0),
        ("recent.NVLS.head_s", 0.5e-6, 1.0),
        ("recent.NVLS.share", 0.7, 0.5),
        ("recent.NVLSTree.share", 0.7, 0.5),
        ("recent.LL128.share", 0.9, 0.1),
        ("recent.Simple.own_passes", 4.0, 0.5),
        ("recent.P2P.own_passes", 4.0, 0.5),
        ("recent.P2P.fill", 0.5, 0.5),
        ("earlier.LL.net_hop_s", 5e-6, 1.0),
        ("earlier.LL128.net_hop_s", 10e-6, 1.0),
        ("earlier.Simple.net_hop_s", 15e-6, 1.0),
        ("earlier.P2P.net_hop_s", 4e-6, 1.0),
    )
}
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
        (FitStage(_GEMM, ("device", "op", "dtype"), 100),),
        predicts=lambda row: not _pipelined(row) and not _on_matrix_units(row),
    ),
    Family(
        "matrix_product",
        "operators",
        _PRODUCTS,
        {"A": 1.0},
        (FitStage(_MATRIX_PRODUCTS, ("device",), 100),),
        predicts=_on_matrix_units,
    ),
    Family(
        "tensor_product",
        "operators",
        _PRODUCTS,
        {"A": 1.0},
        (FitStage(_COPIES, ("device", "dtype"), 200), FitStage(_WARPS, ("device", "dtype"), 200)),
        ("rows", "outputs", "inputs"),
        _pipelined,
    ),
    Family(
        "attention",
        "operators",
        ("attention",),
        {"A": 1.0, "B": 1.0},
        (FitStage(_ATTENTION, ("device",), 300, _trained_on),),
        ("batch", "query_length", "heads", "kv_heads", "head_size"),
    ),
    Family(
        "memory_bound",
        "operators",
        ("elementwise", "softmax", "layer_norm"),
        {"A": 1.0, "B": 1.0, "C": 0.25},  # C: short ones, mostly host time, which determine the cost of a call
        (FitStage(_MEMORY_BOUND, ("device", "op", "dtype"), 60, _alone),),
    ),
    Family(
        "checked_memory",
        "operators",
        ("elementwise",),
        {"A": 1.0},
        (FitStage({"memory.check_turnaround": Prior(0.2, 1.0, 0.01, 1.0)}, ("device",), 60),),
        predicts=_checked,
    ),
    Family(
        "convolution",
        "operators",
        ("conv2d",),
        {"A": 1.0},
        (
            FitStage(
                _LANES, ("device", "phase"), 70, lambda row: row.cells.get("dtype") == "fp32" and _mostly_device(row)
            ),
            FitStage(
                _MATRIX_UNITS,
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
        (FitStage(_RECURRENCE, ("device", "phase"), 200),),
    ),
    Family(
        "nccl",
        "collectives",
        (),
        {"A": 1.0, "B": 1.0},
        (FitStage(_NCCL, ("machine", "size", "collective", "n_gpus"), 40, tied=_NCCL_TIED),),
        straight=True,
    ),
)
