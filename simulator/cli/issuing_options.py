"""Options of ``simulate`` on how a step's operators are launched and its gradients accumulated."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Accumulate", "CudaGraph", "CudaGraphBlocks", "Framework", "LaunchBlocking"]

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
