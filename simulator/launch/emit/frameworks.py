"""A step as a launch line of Megatron-LM, torchtitan, or the Trainer with Accelerate or DeepSpeed."""

import json
from collections.abc import Mapping
from typing import Any

from simulator.errors import mention, refused
from simulator.launch.emit.parts import Emission, Ranks, all_sizes, check_precision, other_attention, other_sizes
from simulator.launch.programs import NETWORKS
from simulator.launch.ranks import SHARDED
from simulator.launch.stages import titan_starts
from simulator.launch.words import NAMES
from simulator.questions.layout import ORDER, Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.workload.zoo.language import LANGUAGE, LANGUAGE_FAMILIES, WITH_BIASES
from simulator.workload.zoo.registry import find_entry
from simulator.workload.zoo.sizes import LatentAttentionMixture

_MEGATRON = NAMES["megatron"]
_FAMILIES, _PRECISIONS, _ATTENTIONS = (_MEGATRON[name] for name in ("families", "formats", "attention"))
_BY_FSDP = {zero: name for name, zero in SHARDED.items() if zero > 1}
_FAR = ("tp", "cp", "pp", "dp")


def of_megatron(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line; raises InputError for networks, precisions and frameworks that Megatron-LM has not."""
    options, layout = question.options, question.layout.on(ranks.whole)
    if options.framework != "megatron":
        raise refused("emit", f"is of {mention('framework', 'megatron')}; add it", "megatron")
    check_precision(question, _PRECISIONS, "megatron")
    found = Emission(ranks.torchrun, ["pretrain_gpt.py"])
    _network(question, found)
    _layout(layout, found)
    sizes = all_sizes(question)
    found.take_stages(layout, int(sizes.get("layers") or 0), int(sizes.get("mtp_layers") or 0))
    precision = _PRECISIONS[options.precision]
    found.options |= {
        precision: bool(precision),
        "--micro-batch-size": question.batch,
        "--global-batch-size": question.batch * question.micro_batches * (layout.dp or 1),
        "--optimizer": _MEGATRON["optimizers"].get(options.optimizer),
        "--muon-num-ns-steps": options.ns_steps,
    }
    if ranks.whole > 1:
        _exchange(question, layout, found)
    if options.optimizer == "muon" and layout.zero == 1:  # whole matrices, not shards of the flat buffer
        found.options |= {"--optimizer": "dist_muon", "--use-distributed-optimizer": False}
    _recomputation(question, found)
    adds = options.accumulation == "product" or question.micro_batches == 1
    found.lacks |= {
        f"{mention('optimizer', options.optimizer)}; Adam updates": options.optimizer not in _MEGATRON["optimizers"],
        mention("compiled"): options.compiled,
        mention("offload", question.offload): question.offload != "none",
        mention("accumulation", options.accumulation): not adds,
    }
    return found


def _network(question: StepQuestion, found: Emission) -> None:
    entry = find_entry(question.workload)
    named = next((name for name, each in LANGUAGE.items() if each is entry), "")
    name = "" if named in WITH_BIASES else LANGUAGE_FAMILIES.get(named, "")
    sizes = {key: size for key, size in all_sizes(question).items() if size != "plain"}
    if name not in _FAMILIES:
        known = "networks of Megatron-LM's GPT, Llama, Qwen, Mixtral, DeepSeek"
        raise refused("emit", f"has no options for {question.workload}; {known} can be said", "megatron")

    def number(key: str) -> int:
        return int(sizes.get(key) or 0)

    inner = number("inner") or (number("expert_inner") if number("experts") else 4 * number("hidden"))
    grouped = number("kv_heads") not in (0, number("heads"))
    family = _FAMILIES[name]
    values: dict[str, Any] = sizes | {
        "inner": inner,
        "grouped": grouped,
        "kv_heads": grouped and number("kv_heads"),
        "positions": number("positions") or number("sequence_length"),
        "untied": not number("tied"),
    }
    found.options |= _written("network", values) | {family: bool(family)} | _written("sizes", values)
    found.options["--hidden-dropout 0 --attention-dropout 0"] = bool(family) or not number("dropout")
    if number("experts"):
        dense, code = number("dense_layers"), entry.code
        dispatcher = "allgather" if question.layout.gathers_tokens else None if question.layout.flex else "alltoall"
        values |= {
            "grouped_product": True,
            "places": f"[0]*{dense}+[1]*{number('layers') - dense}" if dense else None,
            "capacity": number("expert_capacity") / 100,
            "pad_capacity": bool(number("pad_capacity")),
            "latent": isinstance(code, LatentAttentionMixture),
            **{name: getattr(code, name, None) for name in _MEGATRON["of_latent"]},
            "dispatcher": dispatcher,
        }
        found.options |= _written("experts", values)
    attention, loss = str(sizes.get("attention")), sizes.get("cross_entropy")
    window = number("window")
    found.options |= {
        "--window-size": f"({window - 1},0)" if window else None,
        "--window-attn-skip-freq": (number("window_skip") or None) if window else None,
        "--attention-backend": _ATTENTIONS.get(attention, "auto"),
        "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te": loss == "in-place",
    }
    apart = name in ("gpt2", "gpt3") and number("dropout") > 0
    found.lacks |= {
        mention("sizes", f"attention={attention}"): attention not in _ATTENTIONS,
        mention("sizes", f"cross_entropy={loss}"): loss not in (None, "in-place"),
        "documents packed into a sequence": bool(sizes.get("documents")),
        "GELU operation by operation": sizes.get("gelu", "fused") != "fused",
        "dropout apart from the addition after it; one kernel does both": apart,
        "adapters (LoRA)": number("lora") > 0,
        "shared_overlap; no expert is shared": question.layout.shared_overlap and not number("shared_inner"),
        "ep_comm=all_gather; the network has no experts": question.layout.gathers_tokens and not number("experts"),
        "a step without its loss": sizes.get("loss", 1) == 0,
    }


def _written(part: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return the options of *part*, each with its value; one of 0 is left out."""
    return {option: values.get(name) or None for option, name in _MEGATRON["options"][part].items()}


def _layout(layout: Layout, found: Emission) -> None:
    degrees = {option: getattr(layout, name) for option, name in _MEGATRON["options"]["degrees"].items()}
    whole, by_fsdp = layout.cp * (layout.dp or 1), layout.zero > 1
    shards = layout.shards if layout.zero and layout.shards not in (None, whole) else None
    comm = "a2a+p2p" if layout.cp_a2a > 1 else layout.cp_comm.replace("_", "")
    found.options |= {
        **{name: degree if degree > 1 else None for name, degree in degrees.items()},
        "--cp-comm-type": comm if comm != "p2p" else None,
        f"--hierarchical-context-parallel-sizes {layout.cp_a2a} {layout.cp // layout.cp_a2a}": layout.cp_a2a > 1,
        "--expert-tensor-parallel-size": layout.etp if layout.etp != layout.tp else None,
        **{option: getattr(layout, name) for name, option in _MEGATRON["switches"].items()},
        "--use-tp-pp-dp-mapping": layout.order == _FAR,
        "--use-distributed-optimizer": layout.zero == 1,
        "--use-megatron-fsdp": by_fsdp,
        "--data-parallel-sharding-strategy": _BY_FSDP.get(layout.zero),
        "--num-distributed-optimizer-instances": whole // shards if shards else None,
    }
    found.lacks |= {
        f"ranks in the order {'-'.join(layout.order)}": layout.order not in (ORDER, _FAR),
        f"a pipeline in the order of {layout.schedule}; 1F1B runs": layout.schedule != "1f1b",
    }


def _exchange(question: StepQuestion, layout: Layout, found: Emission) -> None:
    precision, wide = question.options.precision, question.sums_in_fp32
    overlaps = not (layout.zero == 3 or not question.bucket_bytes or layout.dp == layout.cp == 1)
    element_bytes = 4 if wide or precision == "fp32" else 2
    own_buckets = overlaps and question.bucket_bytes != BUCKET_BYTES
    found.options |= {
        "--accumulate-allreduce-grads-in-fp32": precision == "master-fp16" and wide,
        "--grad-reduce-in-bf16": precision not in ("fp32", "master-fp16") and not wide,
        "--overlap-grad-reduce": overlaps,
        "--overlap-param-gather": overlaps and bool(layout.zero) and question.prefetches,
        "--ddp-bucket-size": round(question.bucket_bytes / element_bytes) if own_buckets else None,
    }
    why = f"buckets of {question.bucket_bytes:g} bytes, which are no whole number of gradients"
    found.lacks |= {why: own_buckets and question.bucket_bytes % element_bytes != 0}


def _recomputation(question: StepQuestion, found: Emission) -> None:
    how, blocks, parts = (getattr(question.options, f"recompute{part}") for part in ("", "_blocks", "_parts"))
    if how == "operators":
        found.lacks[f"{mention('recompute_operators')}; nothing is recomputed"] = True
    elif how == "full":
        found.options |= {"--recompute-granularity": how, "--recompute-method": "block" if blocks else "uniform"}
        found.options["--recompute-num-layers"] = blocks or 1
    elif how != "none":
        found.lacks |= {f"{mention('recompute_blocks', blocks or '')} of what is selected": blocks is not None}
        modules = f"--recompute-modules {' '.join(parts)}"
        found.options |= {"--recompute-granularity": how, modules: parts != ("core_attn",)}


_OPTIMS: Mapping[str, Mapping[bool, str]] = NAMES["optims"]  # by the rule, and whether it is fused
_OF_FSDP = {0: ("amp-bf16", "amp-fp16", "fp32", "tf32"), 2: ("master-bf16", "master-fp16", "fp32", "tf32")}
_OF_ZERO = {3: "FULL_SHARD", 2: "SHARD_GRAD_OP"}
_FILE = "ds.json"


def of_accelerate(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line; raises InputError for layouts and precisions that Accelerate's options have not."""
    options, layout = question.options, _plain_layout(question, ranks, "accelerate")
    if options.framework != "pytorch" or layout.zero == 1:
        what = "zero=1" if layout.zero == 1 else mention("framework", options.framework)
        raise refused("emit", f"has no {what}; DDP and FSDP (zero=2 and 3) of PyTorch can be said", "accelerate")
    check_precision(question, _OF_FSDP.get(layout.zero, _OF_FSDP[0]), "accelerate", f" with {layout.words}")
    launcher = ["accelerate", "launch", *_counted("--num_machines", ranks), "--num_processes", str(ranks.whole)]
    if layout.zero:
        hybrid = layout.shards not in (None, layout.dp or 1)
        kind = _OF_ZERO[layout.zero] if not hybrid else "HYBRID_SHARD" if layout.zero == 3 else "HYBRID_SHARD_ZERO2"
        launcher += ["--use_fsdp", "--fsdp_sharding_strategy", kind]
        launcher += ["--fsdp_version", "1"] * question.flat_parameters
    half = options.precision.rpartition("-")[2]
    launcher += ["--mixed_precision", half if half in ("bf16", "fp16") else "no"]
    found = Emission(launcher, ["train.py"])
    over_nodes = layout.zero > 0 and layout.shards not in (None, layout.dp, ranks.each)
    found.lacks |= {
        f"shards={layout.shards}; the ranks of a node hold a full set": over_nodes,
        mention("offload", question.offload): question.offload != "none",
    }
    found.options |= {"--tf32 true": options.precision == "tf32"}
    _trainer(question, ranks, found)
    optim = _OPTIMS.get(options.optimizer, {}).get(options.fused_optimizer)
    found.options |= {"--optim": optim or "adamw_torch", "--gradient_accumulation_steps": question.micro_batches}
    found.options |= {"--gradient_checkpointing_kwargs": '{"use_reentrant":true}' if question.gathers_again else None}
    found.lacks |= {
        f"{mention('optimizer', options.optimizer)}; AdamW updates": optim is None,
        "buckets of another size than DDP's": layout.zero != 3 and question.bucket_bytes != BUCKET_BYTES,
        mention("prefetches", False): layout.zero == 2 and not question.prefetches,
    }
    return found


def of_deepspeed(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line and its file; raises InputError for layouts and precisions that DeepSpeed has not."""
    options, layout = question.options, _plain_layout(question, ranks, "deepspeed")
    if options.framework != ("deepspeed-zero3" if layout.zero == 3 else "pytorch"):
        why = f"is of {mention('framework', 'pytorch')}, and of deepspeed-zero3 with {mention('layout', 'fsdp')}"
        raise refused("emit", why, "deepspeed")
    check_precision(question, ("master-bf16", "master-fp16", "fp32"), "deepspeed")
    found = Emission(["deepspeed", *_counted("--num_nodes", ranks), "--num_gpus", str(ranks.each)], ["train.py"])
    found.launcher += ["--bind_cores_to_rank"] * question.bind_cores
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": question.batch}
    config["gradient_accumulation_steps"] = question.micro_batches
    if options.precision != "fp32":
        config[options.precision.removeprefix("master-")] = {"enabled": True}
    if options.optimizer in ("adam", "adam-loop"):
        loops = options.optimizer == "adam-loop"
        config["optimizer"] = {"type": "AdamW", "params": {"torch_adam": True} if loops else {}}
        found.lacks |= {"an update that is not fused; DeepSpeed's Adam is": not (options.fused_optimizer or loops)}
    elif options.optimizer in ("momentum", "sgd"):
        config["optimizer"] = {"type": "SGD", "params": {"momentum": 0.9 if options.optimizer == "momentum" else 0.0}}
    else:
        found.lacks[mention("optimizer", options.optimizer)] = True
    config["zero_optimization"] = _zero(question, layout, found)
    found.files[_FILE] = json.dumps(config, indent=2)
    _trainer(question, ranks, found)
    found.options |= {"--deepspeed": _FILE}
    return found


def _counted(name: str, ranks: Ranks) -> list[str]:
    return [name, str(ranks.nodes)] if ranks.nodes > 1 else []


def _zero(question: StepQuestion, layout: Layout, found: Emission) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": layout.zero, "overlap_comm": layout.zero == 3 or bool(question.bucket_bytes)}
    whole = layout.shards in (None, layout.dp)
    zero |= {"use_multi_rank_bucket_allreduce": False} if layout.zero in (1, 2) and not question.sums_whole else {}
    if layout.zero == 3:
        zero |= {} if whole else {"mics_shard_size": layout.shards}
    elif question.bucket_bytes:
        zero["reduce_bucket_size"] = round(question.bucket_bytes / (4 if question.options.precision == "fp32" else 2))
    later = "parameters gathered during the next step; DeepSpeed gathers them after the update"
    to_disk = question.offload != "none" and question.offload_to != "host"
    found.lacks |= {
        later: layout.zero in (1, 2) and question.prefetches and question.bucket_bytes > 0,
        f"shards={layout.shards} with stage {layout.zero}": layout.zero != 3 and not whole,
        mention("sums_in_fp32"): question.sums_in_fp32,
        **{mention(name): getattr(question, name) for name in ("gathers_again", "flat_parameters")},
        mention("offload_to", question.offload_to): to_disk,
    }
    for name, held in (("optimizer", question.offload != "none"), ("param", question.offload.endswith("parameters"))):
        zero |= {f"offload_{name}": {"device": "cpu", "pin_memory": True}} if held else {}
    return zero | ({"round_robin_gradients": True} if question.round_robin else {})


def _plain_layout(question: StepQuestion, ranks: Ranks, framework: str) -> Layout:
    layout = question.layout.on(ranks.whole)
    if layout.divides_network:
        raise refused("emit", f"has no {mention('layout', layout.words)}; replicas and shards can be said", framework)
    return layout


def _trainer(question: StepQuestion, ranks: Ranks, found: Emission) -> None:
    options, sizes = question.options, all_sizes(question)
    other = other_sizes(question, "sequence_length", "attention", "cross_entropy")
    loss, blocks = sizes.get("cross_entropy"), options.recompute_blocks
    found.options |= {
        "--model_name_or_path": question.workload,
        "--block_size": sizes["sequence_length"],
        "--use_liger_kernel": loss == "fused-linear",
        "--per_device_train_batch_size": question.batch,
        "--gradient_checkpointing": options.recompute == "full",
        "--torch_compile": options.compiled,
    }
    adds = options.accumulation == "add" or question.micro_batches == 1
    found.lacks |= {
        f"sizes {other}; the model has its own": bool(other),
        **other_attention(question, ranks),
        mention("sizes", "cross_entropy"): loss not in ("plain", "fused-linear"),
        "recomputation of parts; nothing is recomputed": options.recompute not in ("none", "full"),
        mention("recompute_blocks", blocks or ""): blocks is not None,
        mention("accumulation", options.accumulation): not adds,
    }


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
    found = Emission(ranks.torchrun, ["-m", "torchtitan.train"])
    found.options |= {
        "--model.name": model[0],
        "--model.flavor": model[1].upper(),
        "--training.seq_len": all_sizes(question)["sequence_length"],
        "--training.mixed_precision_param": "float32" if options.precision == "fp32" else None,
    }
    other = other_sizes(question, "sequence_length", "attention")
    found.lacks |= {f"sizes {other}; the flavor has its own": bool(other), **other_attention(question, ranks)}
    _titan_layout(layout, int(find_entry(question.workload).defaults["layers"]), found)
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
    }
    blocks, sharded = options.recompute_blocks, layout.zero == 3 or layout.dp == layout.cp == 1
    found.lacks |= {
        f"{mention('optimizer', options.optimizer)}; Adam updates": options.optimizer not in ("adam", "adam-loop"),
        "recomputation of parts; nothing is recomputed": options.recompute == "selective",
        mention("recompute_blocks", blocks or ""): blocks is not None,
        mention("offload", question.offload): question.offload != "none",
        "buckets of another size than DDP's": not sharded and question.bucket_bytes != BUCKET_BYTES,
        mention("sums_in_fp32"): question.sums_in_fp32 and options.precision != "amp-bf16",
        **{mention(name): getattr(question, name) for name in ("gathers_again", "flat_parameters")},
        mention("prefetches", False): not question.prefetches,
    }
    return found


def _titan_layout(layout: Layout, layers: int, found: Emission) -> None:
    degrees = {"tensor": layout.tp, "pipeline": layout.pp, "context": layout.cp, "expert": layout.ep}
    dp, piped = layout.dp or 1, layout.pp > 1
    shards = (layout.shards or layout.cp * dp) if layout.zero else 1
    each = max(1, shards // layout.cp)
    keeps = layout.zero == 2 or (layout.zero == 1 and not piped)
    schedules = NAMES["torchtitan_schedules"]
    schedule = "Interleaved1F1B" if layout.vp > 1 else schedules.get(layout.schedule, "1F1B")
    of_stage = -(-layers // (layout.pp * layout.vp))
    even = -(-layers // of_stage) == layout.pp * layout.vp
    virtual = piped and layout.vp > 1 and not layout.blocks
    found.options |= {
        **{f"--parallelism.{axis}_parallel_degree": n if n > 1 else None for axis, n in degrees.items()},
        "--parallelism.data_parallel_replicate_degree": dp // each if dp != each else None,
        "--parallelism.data_parallel_shard_degree": each,
        "--parallelism.fsdp_reshard_after_forward": "always" if layout.zero == 3 and piped else keeps and "never",
        "--parallelism.enable_async_tensor_parallel": layout.tp > 1 and layout.tp_overlap,
        "--parallelism.pipeline_parallel_schedule": schedule if piped else None,
        "--parallelism.pipeline_parallel_split_points": titan_starts(layout.blocks),
        "--parallelism.pipeline_parallel_layers_per_stage": of_stage if virtual and even else None,
    }
    same = layout.zero in (0, 3) or layout.zero == (1 if piped else 2)
    uneven = f"vp={layout.vp} of {layers} layers; 2 is the default"
    found.lacks |= {
        "whole parameters with context parallelism; its ranks shard them": not layout.zero and layout.cp > 1,
        f"shards={shards} among parts of a sequence": shards % layout.cp != 0,
        f"zero={layout.zero}; gradients are {'whole' if piped else 'sharded'} here": not same,
        "layers without sp; the sequence is split among ranks of tp": layout.tp > 1 and not layout.sp,
        f"a pipeline in the order of {layout.schedule}; 1F1B runs": piped and layout.schedule not in schedules,
        uneven: virtual and layout.vp > 2 and not even,
        f"ranks in the order {'-'.join(layout.order)}": layout.order != ORDER,
        f"etp={layout.etp}": layout.etp not in (None, layout.tp),
        f"cp_comm={layout.cp_comm}; keys circulate among parts of a sequence": layout.cp_comm != "p2p",
        f"cp_a2a={layout.cp_a2a}; keys circulate among parts of a sequence": layout.cp_a2a > 1,
        f"ep_comm={layout.ep_comm}; tokens go by an all-to-all": layout.gathers_tokens,
        **{f"{word}; {instead}": getattr(layout, word) for word, instead in NAMES["torchtitan_lacks"].items()},
    }
