"""Options of ``simulate`` on how a step is issued: launches, accumulation of gradients, recomputation."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Accumulate",
    "CudaGraph",
    "CudaGraphBlocks",
    "Framework",
    "LaunchBlocking",
    "Recompute",
    "RecomputeAttention",
    "RecomputeBlocks",
    "RecomputeOperators",
    "RecomputeParts",
]

CudaGraph = Annotated[bool, typer.Option("--cuda-graph", help="Launch a step as one CUDA graph.")]
CudaGraphBlocks = Annotated[
    bool,
    typer.Option(
        "--cuda-graph-blocks",
        help="Launch each block, except its experts, as one CUDA graph per pass.",
    ),
]
LaunchBlocking = Annotated[
    bool,
    typer.Option("--launch-blocking", help="Wait for each kernel before the next is issued (CUDA_LAUNCH_BLOCKING=1)."),
]
Accumulate = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="What adds the gradients of micro-batches: add (a pass of its own), product (the product that "
        "makes them), or fp32 (passes into a copy in fp32, DeepSpeed's BF16_Optimizer). Default: product with "
        "--framework megatron, otherwise add.",
    ),
]
Framework = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What issues operators: pytorch, megatron (Megatron-LM), deepspeed-zero3 (its hooks around each layer), "
        "tensorflow (a kernel an operation), caffe.",
    ),
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute", help="Keep only the inputs of repeated blocks, and recompute them in the backward pass."
    ),
]
RecomputeAttention = Annotated[
    bool,
    typer.Option("--recompute-attention", help="Recompute only attention, from its inputs (selective recomputation)."),
]
RecomputeOperators = Annotated[
    bool,
    typer.Option(
        "--recompute-operators",
        help="Keep attention and every second product, and recompute the rest (torchtitan's selective).",
    ),
]
RecomputeParts = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="Recompute these parts, as --recompute-modules of Megatron-LM."),
]
RecomputeBlocks = Annotated[
    str | None,
    typer.Option(metavar="COUNT", help="Recompute only the first blocks of each pipeline stage."),
]
