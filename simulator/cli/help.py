"""``simulate --help``: options in groups, each with an example."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from typer.core import TyperCommand

from simulator.cli import COMMANDS

__all__ = ["GROUPS", "GroupedCommand"]

GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Machine": (
        "--topology p3.16xlarge --nodes 4 --fabric 100Gbit/s",
        ("topology", "nodes", "fabric", "gpus", "device", "threads", "slow_link", "neighbour", "straggler"),
    ),
    "Question": ("--topology dgx-h100 --workload sweep:8B-8GB --strategy nccl", ("workload", "strategy", "nccl")),
    "Exchange": (
        "--topology dgx-h100 --workload bytes:1GB --strategy nccl --collective all-gather",
        ("collective", "root", "pairs", "group_size", "gpus_per_process", "algorithm", "dtype", "redop", "fold"),
    ),
    "Step": (
        "--topology p3.2xlarge --workload resnet50 --batch 64 --precision amp-fp16",
        (
            *("batch", "global_batch", "micro_batch", "micro_batches", "mode", "precision", "optimizer"),
            *(
                "seq_len",
                "image",
                "sizes",
                "compiled",
                "cuda_graph",
                "cuda_graph_blocks",
                "launch_blocking",
                "accumulate",
                "recompute",
                "recompute_attention",
                "recompute_operators",
                "recompute_parts",
                "recompute_blocks",
            ),
            *("channels_last", "fused_optimizer", "framework", "cpu_library", "libraries", "calibration"),
            *("input", "epoch", "programs", "what_if", "trust_code"),
        ),
    ),
    "Parallelism": (
        "--topology dgx-a100-80gb --nodes 2 --workload llama2-7b --batch 1 --parallel fsdp",
        (
            *("parallel", "overlap", "reduce_fp32", "prefetch", "contention", "divide"),
            *("servers", "staleness", "lose"),
        ),
    ),
    "Failures": (
        "--topology p3.16xlarge --workload resnet50 --batch 64 --mtbf 8h",
        ("mtbf", "checkpoint_every", "checkpoint_time", "restart_time"),
    ),
    "Launch line": ("--topology dgx-h100 --launch @pretrain.sh --show-options", ("launch", "show_options")),
    "Output": (
        "--topology p3.16xlarge --strategy nccl --plot links.svg",
        ("json", "trace", "plot", "quiet", "debug", "completion", "version", "help"),
    ),
}
"""Groups of options by title, each with an example and its options."""


class GroupedCommand(TyperCommand):
    """A command with its options grouped in the help."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return completions; the first word may also be a subcommand."""
        found: list[Any] = super().shell_complete(ctx, incomplete)
        if any(getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE" for name in ctx.params):
            return found
        # Typer either bundles Click or uses the installed one.
        item = import_module(f"{type(ctx).__module__.rpartition('.')[0]}.shell_completion").CompletionItem
        return [*found, *(item(name) for name in COMMANDS if name.startswith(incomplete))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options by group, ungrouped ones last."""
        records = {str(p.name): record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None}
        for title, (example, names) in GROUPS.items():
            with formatter.section(title):
                formatter.write_text(f"simulate {example}")
                self._write(formatter, [records.pop(name) for name in names if name in records])
        if records:
            with formatter.section("Options"):
                self._write(formatter, list(records.values()))

    @staticmethod
    def _write(formatter: Any, rows: list[Any]) -> None:
        formatter.write_paragraph()
        formatter.write_dl(rows)
