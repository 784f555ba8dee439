"""A step as a launch line of torchtitan: :func:`of_torchtitan`."""

from __future__ import annotations

from simulator.errors import refused
from simulator.launch.emit.parts import Emission, Ranks, all_sizes, no_such_network, torchrun
from simulator.launch.torchtitan import NETWORKS
from simulator.questions.layout import ORDER, Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.spelling import mention
from simulator.workload.zoo.registry import find_entry

_PRECISIONS = {"amp-bf16": (), "fp32": (("--training.mixed_precision_param", "float32"),)}


def of_torchtitan(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line; raises InputError for networks and frameworks that torchtitan has not."""
    options, layout = question.options, question.layout.on(ranks.whole)
    model = next((key for key, name in NETWORKS.items() if find_entry(name) is find_entry(question.workload)), None)
    if model is None:
        raise no_such_network("torchtitan", question.workload, ", ".join(sorted(NETWORKS.values())))
    if options.framework != "pytorch":
        raise refused("emit", f"is of {mention('framework', 'pytorch')}, not {options.framework}", "torchtitan")
    if options.precision not in _PRECISIONS:
        allowed = ", ".join(_PRECISIONS)
        raise refused("emit", f"has no {mention('precision', options.precision)}; {allowed} can be said", "torchtitan")
    found = Emission(torchrun(ranks), ["-m", "torchtitan.train"])
    found.say("--model.name", model[0])
    found.say("--model.flavor", model[1].upper())
    sizes, usual = all_sizes(question), find_entry(question.workload).defaults
    found.say("--training.seq_len", sizes["sequence_length"])
    other = [f"{key}={size}" for key, size in sizes.items() if size != usual.get(key) and key != "sequence_length"]
    found.unless(not other, f"sizes {', '.join(other)}; the flavor has its own")
    for name, value in _PRECISIONS[options.precision]:
        found.say(name, value)
    _layout(layout, int(usual["layers"]), found)
    _batch(question, layout, found)
    _update(question, found)
    _recomputation(question, found)
    if options.compiled:
        found.say("--training.compile")
    if question.offload != "none":
        found.say("--training.enable_cpu_offload")
        found.unless(question.offload == "optimizer+parameters", f"{mention('offload', question.offload)}")
    found.unless(
        layout.zero == 3 or layout.dp == layout.cp == 1 or question.bucket_bytes == BUCKET_BYTES,
        "buckets of another size than DDP's",
    )
    found.unless(not question.sums_in_fp32 or options.precision == "amp-bf16", f"{mention('sums_in_fp32')}")
    found.unless(question.prefetches, f"{mention('prefetches', False)}")
    return found


def _layout(layout: Layout, layers: int, found: Emission) -> None:
    degrees = {"tensor": layout.tp, "pipeline": layout.pp, "context": layout.cp, "expert": layout.ep}
    for axis, degree in degrees.items():
        if degree > 1:
            found.say(f"--parallelism.{axis}_parallel_degree", degree)
    whole = layout.cp * (layout.dp or 1)
    shards = (layout.shards or whole) if layout.zero else 1
    if not layout.zero:
        found.unless(layout.cp == 1, "whole parameters with context parallelism; its ranks shard them")
    each = max(1, shards // layout.cp)
    if (layout.dp or 1) != each:
        found.say("--parallelism.data_parallel_replicate_degree", (layout.dp or 1) // each)
    found.say("--parallelism.data_parallel_shard_degree", each)
    found.unless(shards % layout.cp == 0, f"shards={shards} among parts of a sequence")
    of_pipeline = layout.pp > 1
    if layout.zero == 3 and of_pipeline:
        found.say("--parallelism.fsdp_reshard_after_forward", "always")
    elif layout.zero == 2 or (layout.zero == 1 and not of_pipeline):
        found.say("--parallelism.fsdp_reshard_after_forward", "never")
    same = layout.zero in (0, 3) or layout.zero == (1 if of_pipeline else 2)
    found.unless(same, f"zero={layout.zero}; gradients are {'whole' if of_pipeline else 'sharded'} here")
    if layout.tp > 1:
        found.unless(layout.sp, "layers without sp; the sequence is split among ranks of tp")
        if layout.tp_overlap:
            found.say("--parallelism.enable_async_tensor_parallel")
    _schedule(layout, layers, found)
    found.unless(layout.order == ORDER, f"ranks in the order {'-'.join(layout.order)}")
    found.unless(layout.etp in (None, layout.tp), f"etp={layout.etp}")
    found.unless(layout.cp_comm == "p2p", f"cp_comm={layout.cp_comm}; keys circulate among parts of a sequence")
    found.unless(not layout.flex, "flex; tokens go by an all-to-all")


def _schedule(layout: Layout, layers: int, found: Emission) -> None:
    if layout.pp == 1:
        return
    name = "Interleaved1F1B" if layout.vp > 1 else {"1f1b": "1F1B", "gpipe": "GPipe"}.get(layout.schedule, "1F1B")
    found.say("--parallelism.pipeline_parallel_schedule", name)
    found.unless(layout.schedule != "zero-bubble", f"a pipeline in the order of {layout.schedule}; 1F1B runs")
    if layout.vp > 1:
        each = -(-layers // (layout.pp * layout.vp))
        if -(-layers // each) == layout.pp * layout.vp:
            found.say("--parallelism.pipeline_parallel_layers_per_stage", each)
        else:
            found.unless(layout.vp == 2, f"vp={layout.vp} of {layers} layers; 2 is the default")


def _batch(question: StepQuestion, layout: Layout, found: Emission) -> None:
    batch, count = question.batch, question.micro_batches
    found.say("--training.local_batch_size", batch * count if layout.pp > 1 else batch)
    if layout.pp > 1:
        found.say("--parallelism.pipeline_parallel_microbatch_size", batch)
    found.say("--training.global_batch_size", batch * count * (layout.dp or 1))


def _update(question: StepQuestion, found: Emission) -> None:
    options = question.options
    how = "for-loop" if options.optimizer == "adam-loop" else "fused" if options.fused_optimizer else "foreach"
    if how != "fused":
        found.say("--optimizer.implementation", how)
    known = options.optimizer in ("adam", "adam-loop")
    found.unless(known, f"{mention('optimizer', options.optimizer)}; Adam updates")


def _recomputation(question: StepQuestion, found: Emission) -> None:
    options = question.options
    mode = {"operators": "selective"}.get(options.recompute, options.recompute)
    if options.recompute == "selective":  # of attention, which torchtitan's kernels do without
        found.cannot.append("recomputation of parts; nothing is recomputed")
        mode = "none"
    found.say("--activation_checkpoint.mode", mode)
    if options.recompute == "operators":
        found.say("--activation_checkpoint.selective_ac_option", "op")
    found.unless(options.recompute_blocks is None, f"{mention('recompute_blocks', options.recompute_blocks or '')}")
