"""A step as a launch line of Hugging Face's Trainer with Accelerate or DeepSpeed.

:func:`of_accelerate` (DDP and FSDP) and :func:`of_deepspeed` (ZeRO; its file is written by the script).
"""

from __future__ import annotations

import json
from typing import Any

from simulator.errors import refused
from simulator.launch.emit.parts import Emission, Ranks, all_sizes
from simulator.questions.layout import Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.spelling import mention
from simulator.workload.zoo import FUSED
from simulator.workload.zoo.registry import find_entry

_OPTIMS = {
    ("adam", True): "adamw_torch_fused",
    ("adam", False): "adamw_torch",
    ("sgd", False): "sgd",
    ("adam-8bit", False): "adamw_8bit",
    ("paged-adam", False): "paged_adamw_32bit",
    ("paged-adam-8bit", False): "paged_adamw_8bit",
}
_OF_FSDP = {0: ("amp-bf16", "amp-fp16", "fp32", "tf32"), 2: ("master-bf16", "master-fp16", "fp32", "tf32")}
_FILE = "ds.json"


def of_accelerate(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line; raises InputError for layouts and precisions that Accelerate's options have not."""
    options, layout = question.options, _plain_layout(question, ranks, "accelerate")
    if options.framework != "pytorch" or layout.zero == 1:
        what = "zero=1" if layout.zero == 1 else mention("framework", options.framework)
        raise refused("emit", f"has no {what}; DDP and FSDP (zero=2 and 3) of PyTorch can be said", "accelerate")
    allowed = _OF_FSDP.get(layout.zero, _OF_FSDP[0])
    if options.precision not in allowed:
        said = mention("precision", options.precision)
        raise refused("emit", f"has no {said} with {layout.words}; {', '.join(allowed)} can be said", "accelerate")
    nodes = ["--num_machines", str(ranks.nodes)] if ranks.nodes > 1 else []
    launcher = ["accelerate", "launch", *nodes, "--num_processes", str(ranks.whole)]
    if layout.zero:
        whole = layout.dp or 1
        hybrid = "" if layout.shards in (None, whole) else "HYBRID_"
        kind = {("", 3): "FULL_SHARD", ("", 2): "SHARD_GRAD_OP", ("HYBRID_", 3): "HYBRID_SHARD"}.get(
            (hybrid, layout.zero), "HYBRID_SHARD_ZERO2"
        )
        launcher += ["--use_fsdp", "--fsdp_sharding_strategy", kind]
    half = options.precision.rpartition("-")[2]
    found = Emission([*launcher, "--mixed_precision", half if half in ("bf16", "fp16") else "no"], ["train.py"])
    if layout.zero and layout.shards not in (None, layout.dp, ranks.each):
        found.cannot.append(f"shards={layout.shards}; the ranks of a node hold a full set")
    if question.offload == "optimizer+parameters":
        found.launcher += ["--fsdp_offload_params", "true"]
    found.unless(question.offload in ("none", "optimizer+parameters"), f"{mention('offload', question.offload)}")
    if options.precision == "tf32":
        found.say("--tf32", "true")
    _trainer(question, found)
    optim = _OPTIMS.get((options.optimizer, options.fused_optimizer))
    found.say("--optim", optim or "adamw_torch")
    found.unless(optim is not None, f"{mention('optimizer', options.optimizer)}; AdamW updates")
    found.say("--gradient_accumulation_steps", question.micro_batches)
    found.unless(layout.zero == 3 or question.bucket_bytes == BUCKET_BYTES, "buckets of another size than DDP's")
    found.unless(question.prefetches or layout.zero != 2, f"{mention('prefetches', False)}")
    return found


def of_deepspeed(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line and its file; raises InputError for layouts and precisions that DeepSpeed has not."""
    options, layout = question.options, _plain_layout(question, ranks, "deepspeed")
    if options.framework not in ("pytorch", "deepspeed-zero3") or (
        (options.framework == "deepspeed-zero3") != (layout.zero == 3)
    ):
        why = f"is of {mention('framework', 'pytorch')}, and of deepspeed-zero3 with {mention('layout', 'fsdp')}"
        raise refused("emit", why, "deepspeed")
    if options.precision not in ("master-bf16", "master-fp16", "fp32"):
        why = f"has no {mention('precision', options.precision)}; master-bf16, master-fp16, fp32 can be said"
        raise refused("emit", why, "deepspeed")
    nodes = ["--num_nodes", str(ranks.nodes)] if ranks.nodes > 1 else []
    found = Emission(["deepspeed", *nodes, "--num_gpus", str(ranks.each)], ["train.py"])
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": question.batch,
        "gradient_accumulation_steps": question.micro_batches,
    }
    half = options.precision.rpartition("-")[2]
    if half != "fp32":
        config[half] = {"enabled": True}
    if options.optimizer in ("adam", "adam-loop"):
        params = {"torch_adam": True} if options.optimizer == "adam-loop" else {}
        config["optimizer"] = {"type": "AdamW", "params": params}
        fused = options.fused_optimizer or options.optimizer == "adam-loop"
        found.unless(fused, "an update that is not fused; DeepSpeed's Adam is")
    elif options.optimizer in ("momentum", "sgd"):
        config["optimizer"] = {"type": "SGD", "params": {"momentum": 0.9 if options.optimizer == "momentum" else 0.0}}
    else:
        found.cannot.append(f"{mention('optimizer', options.optimizer)}")
    config["zero_optimization"] = _zero(question, layout, found)
    found.files[_FILE] = json.dumps(config, indent=2)
    _trainer(question, found)
    found.say("--deepspeed", _FILE)
    return found


def _zero(question: StepQuestion, layout: Layout, found: Emission) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": layout.zero}
    if layout.zero == 3:
        zero["overlap_comm"] = True
        if layout.shards not in (None, layout.dp):
            zero["mics_shard_size"] = layout.shards
    else:
        zero["overlap_comm"] = bool(question.bucket_bytes)
        if question.bucket_bytes:
            zero["reduce_bucket_size"] = round(
                question.bucket_bytes / (4 if question.options.precision == "fp32" else 2)
            )
        later = "parameters gathered during the next step; DeepSpeed gathers them after the update"
        found.unless(not (layout.zero and question.prefetches and question.bucket_bytes), later)
        found.unless(layout.shards in (None, layout.dp), f"shards={layout.shards} with stage {layout.zero}")
    found.unless(not question.sums_in_fp32, f"{mention('sums_in_fp32')}")
    if question.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if question.offload == "optimizer+parameters":
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
        found.unless(question.offload_to == "host", f"{mention('offload_to', question.offload_to)}")
    if question.round_robin:
        zero["round_robin_gradients"] = True
    return zero


def _plain_layout(question: StepQuestion, ranks: Ranks, framework: str) -> Layout:
    layout = question.layout.on(ranks.whole)
    if layout.divides_network:
        why = f"has no {mention('layout', layout.words)}; replicas and shards can be said"
        raise refused("emit", why, framework)
    return layout


def _trainer(question: StepQuestion, found: Emission) -> None:
    """Add what the Trainer says of the network and of the step."""
    options, sizes = question.options, all_sizes(question)
    usual = find_entry(question.workload).defaults
    found.say("--model_name_or_path", question.workload)
    found.say("--block_size", sizes["sequence_length"])
    kept = ("sequence_length", "attention", "cross_entropy")
    other = [f"{key}={size}" for key, size in sizes.items() if size != usual.get(key) and key not in kept]
    found.unless(not other, f"sizes {', '.join(other)}; the model has its own")
    own = usual.get("attention", FUSED[0])
    trained = own if own in FUSED else FUSED[0]
    attention = sizes.get("attention")
    found.unless(attention == trained, f"{mention('sizes', f'attention={attention}')}; {trained} is simulated")
    if sizes.get("cross_entropy") == "fused-linear":
        found.say("--use_liger_kernel")
    else:
        found.unless(sizes.get("cross_entropy") == "plain", f"{mention('sizes', 'cross_entropy')}")
    found.say("--per_device_train_batch_size", question.batch)
    if options.recompute == "full":
        found.say("--gradient_checkpointing")
    found.unless(options.recompute in ("none", "full"), "recomputation of parts; nothing is recomputed")
    found.unless(options.recompute_blocks is None, f"{mention('recompute_blocks', options.recompute_blocks or '')}")
    if options.compiled:
        found.say("--torch_compile")
    adds = options.accumulation == "add" or question.micro_batches == 1
    found.unless(adds, f"{mention('accumulation', options.accumulation)}")
