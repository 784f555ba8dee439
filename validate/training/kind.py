"""What tables of measured steps hold."""

from __future__ import annotations

from validate.score.kind import Kind
from validate.training.query import COLUMNS_ASKED

__all__ = ["TRAINING"]

TRAINING = Kind(
    name="training",
    needed=("machine", "model", "batch_per_gpu", "step_time_s"),
    asked=COLUMNS_ASKED,
    measured=("step_time_s", "throughput", "throughput_unit", "global_batch"),
    place="device",
    axes=(
        ("processor",),
        ("family",),
        ("family", "era"),
        ("processor", "family", "era", "framework_rank"),
        ("dataset",),
        ("dataset", "phase"),
        ("device",),
        ("model",),
        ("dataset", "device"),
        ("dataset", "model"),
    ),
    shown=(("family",), ("processor", "family", "era", "framework_rank"), ("dataset",), ("device",), ("model",)),
    labels=("family", "era", "framework_rank", "device", "processor"),
    baseline="roofline",
    baseline_label="roofline",
    legend=(
        "roofline: each kernel the longer of FLOPs and bytes at data sheet rates, one after the other\n"
        "era: of the software; framework_rank: best is the fastest of those that ran the same on the same machine"
    ),
)
