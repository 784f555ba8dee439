"""A step as a launch line of torchtitan: :func:`of_torchtitan`."""

from __future__ import annotations

from simulator.errors import refused
from simulator.launch.emit.parts import Emission, Ranks, all_sizes, check_precision, other_sizes, torchrun
from simulator.launch.programs import NETWORKS
from simulator.questions.layout import ORDER, Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.spelling import mention
from simulator.workload.zoo.registry import find_entry


def of_torchtitan(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line; raises InputError for networks and frameworks that torchtitan has not."""
    options, layout = question.options, question.layout.on(ranks.whole)
    model = next((key for key, name in NETWORKS.items() if find_entry(name) is find_entry(question.workload)), None)
    if model is None:
        known = ", ".join(sorted(NETWORKS.values()))
        raise refused("emit", f"has no options for {question.workload}; {known} can be said", "torchtitan")
    if options.framework != "pytorch":
        raise refused("emit", f"is of {mention('framework', 'pytorch')}, not {options.framework}", "torchtitan")
    check_precision(question, ("amp-bf16", "fp32"), "torchtitan")
    found = Emission(torchrun(ranks), ["-m", "torchtitan.train"])
    found.options |= {
        "--model.name": model[0],
        "--model.flavor": model[1].upper(),
        "--training.seq_len": all_sizes(question)["sequence_length"],
        "--training.mixed_precision_param": "float32" if options.precision == "fp32" else None,
    }
    other = other_sizes(question, "sequence_length")
    found.lacks |= {f"sizes {other}; the flavor has its own": bool(other)}
    _layout(layout, int(find_entry(question.workload).defaults["layers"]), found)
    batch, count = question.batch, question.micro_batches
    how = "for-loop" if options.optimizer == "adam-loop" else "fused" if options.fused_optimizer else "foreach"
    # Torchtitan's kernels do without recomputation of attention.
    mode = {"operators": "selective", "selective": "none"}.get(options.recompute, options.recompute)
    found.options |= {
        "--training.local_batch_size": batch * count if layout.pp > 1 else batch,
        "--parallelism.pipeline_parallel_microbatch_size": batch if layout.pp > 1 else None,
        "--training.global_batch_size": batch * count * (layout.dp or 1),
        "--optimizer.implementation": how if how != "fused" else None,
        "--activation_checkpoint.mode": mode,
        "--activation_checkpoint.selective_ac_option op": options.recompute == "operators",
        "--training.compile": options.compiled,
        "--training.enable_cpu_offload": question.offload != "none",
    }
    blocks, sharded = options.recompute_blocks, layout.zero == 3 or layout.dp == layout.cp == 1
    found.lacks |= {
        f"{mention('optimizer', options.optimizer)}; Adam updates": options.optimizer not in ("adam", "adam-loop"),
        "recomputation of parts; nothing is recomputed": options.recompute == "selective",
        mention("recompute_blocks", blocks or ""): blocks is not None,
        mention("offload", question.offload): question.offload not in ("none", "optimizer+parameters"),
        "buckets of another size than DDP's": not sharded and question.bucket_bytes != BUCKET_BYTES,
        mention("sums_in_fp32"): question.sums_in_fp32 and options.precision != "amp-bf16",
        mention("prefetches", False): not question.prefetches,
    }
    return found


def _layout(layout: Layout, layers: int, found: Emission) -> None:
    degrees = {"tensor": layout.tp, "pipeline": layout.pp, "context": layout.cp, "expert": layout.ep}
    dp, piped = layout.dp or 1, layout.pp > 1
    shards = (layout.shards or layout.cp * dp) if layout.zero else 1
    each = max(1, shards // layout.cp)
    keeps = layout.zero == 2 or (layout.zero == 1 and not piped)
    schedules = {"1f1b": "1F1B", "gpipe": "GPipe"}
    schedule = "Interleaved1F1B" if layout.vp > 1 else schedules.get(layout.schedule, "1F1B")
    of_stage = -(-layers // (layout.pp * layout.vp))
    even = -(-layers // of_stage) == layout.pp * layout.vp
    found.options |= {
        **{f"--parallelism.{axis}_parallel_degree": n if n > 1 else None for axis, n in degrees.items()},
        "--parallelism.data_parallel_replicate_degree": dp // each if dp != each else None,
        "--parallelism.data_parallel_shard_degree": each,
        "--parallelism.fsdp_reshard_after_forward always": layout.zero == 3 and piped,
        "--parallelism.fsdp_reshard_after_forward never": keeps,
        "--parallelism.enable_async_tensor_parallel": layout.tp > 1 and layout.tp_overlap,
        "--parallelism.pipeline_parallel_schedule": schedule if piped else None,
        "--parallelism.pipeline_parallel_layers_per_stage": of_stage if piped and layout.vp > 1 and even else None,
    }
    same = layout.zero in (0, 3) or layout.zero == (1 if piped else 2)
    uneven = f"vp={layout.vp} of {layers} layers; 2 is the default"
    found.lacks |= {
        "whole parameters with context parallelism; its ranks shard them": not layout.zero and layout.cp > 1,
        f"shards={shards} among parts of a sequence": shards % layout.cp != 0,
        f"zero={layout.zero}; gradients are {'whole' if piped else 'sharded'} here": not same,
        "layers without sp; the sequence is split among ranks of tp": layout.tp > 1 and not layout.sp,
        f"a pipeline in the order of {layout.schedule}; 1F1B runs": piped and layout.schedule == "zero-bubble",
        uneven: piped and layout.vp > 2 and not even,
        f"ranks in the order {'-'.join(layout.order)}": layout.order != ORDER,
        f"etp={layout.etp}": layout.etp not in (None, layout.tp),
        f"cp_comm={layout.cp_comm}; keys circulate among parts of a sequence": layout.cp_comm != "p2p",
        "flex; tokens go by an all-to-all": layout.flex,
    }
