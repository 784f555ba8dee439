"""A step as a launch line of Megatron-LM (pretrain_gpt.py): :func:`of_megatron`."""

from __future__ import annotations

from simulator.errors import refused
from simulator.launch.emit.parts import Emission, Ranks, all_sizes, check_precision
from simulator.launch.ranks import SHARDED
from simulator.launch.words import NAMES
from simulator.questions.layout import ORDER, Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.spelling import mention
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
    precision = _PRECISIONS[options.precision]
    found.options |= {
        precision: bool(precision),
        "--micro-batch-size": question.batch,
        "--global-batch-size": question.batch * question.micro_batches * (layout.dp or 1),
        "--optimizer sgd": options.optimizer == "momentum",
    }
    known = options.optimizer in ("adam", "momentum")
    found.lacks |= {f"{mention('optimizer', options.optimizer)}; Adam updates": not known}
    if ranks.whole > 1:
        _exchange(question, layout, found)
    _recomputation(question, found)
    adds = options.accumulation == "product" or question.micro_batches == 1
    found.lacks |= {
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
    found.options |= {
        "--num-layers": number("layers"),
        "--hidden-size": number("hidden"),
        "--num-attention-heads": number("heads"),
        "--ffn-hidden-size": inner,
        family: bool(family),
        "--group-query-attention": grouped,
        "--num-query-groups": number("kv_heads") if grouped else None,
        "--kv-channels": number("head_size") or None,
        "--seq-length": number("sequence_length"),
        "--max-position-embeddings": number("positions") or number("sequence_length"),
        "--vocab-size": number("vocabulary"),
        "--untie-embeddings-and-output-weights": not number("tied"),
        "--hidden-dropout 0 --attention-dropout 0": bool(family) or not number("dropout"),
    }
    if number("experts"):
        dense, code = number("dense_layers"), entry.code
        latent = code if isinstance(code, LatentAttentionMixture) else None
        found.options |= {
            "--num-experts": sizes["experts"],
            "--moe-router-topk": sizes["chosen"],
            "--moe-ffn-hidden-size": sizes["expert_inner"],
            "--moe-grouped-gemm": True,
            "--moe-shared-expert-intermediate-size": sizes.get("shared_inner") or None,
            "--mtp-num-layers": sizes.get("mtp_layers") or None,
            "--moe-layer-freq": f"[0]*{dense}+[1]*{number('layers') - dense}" if dense else None,
            "--moe-expert-capacity-factor": number("expert_capacity") / 100 or None,
            "--moe-pad-expert-input-to-capacity": bool(number("pad_capacity")),
            "--multi-latent-attention": latent is not None,
            "--kv-lora-rank": latent and latent.kv_rank,
            "--qk-head-dim": latent and latent.plain_size,
            "--qk-pos-emb-head-dim": latent and latent.rotary_size,
            "--v-head-dim": latent and latent.value_size,
            "--q-lora-rank": (latent and latent.query_rank) or None,
            "--moe-token-dispatcher-type alltoall": not question.layout.flex,
        }
    attention, loss = str(sizes.get("attention")), sizes.get("cross_entropy")
    found.options |= {
        "--attention-backend": _ATTENTIONS.get(attention, "auto"),
        "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te": loss == "in-place",
    }
    apart = name in ("gpt2", "gpt3") and number("dropout") > 0
    found.lacks |= {
        mention("sizes", f"attention={attention}"): attention not in _ATTENTIONS,
        mention("sizes", f"cross_entropy={loss}"): loss not in (None, "in-place"),
        "GELU operation by operation": sizes.get("gelu", "fused") != "fused",
        "dropout apart from the addition after it; one kernel does both": apart,
        "adapters (LoRA)": number("lora") > 0,
        "shared_overlap; no expert is shared": question.layout.shared_overlap and not number("shared_inner"),
        "a step without its loss": sizes.get("loss", 1) == 0,
    }


def _layout(layout: Layout, found: Emission) -> None:
    degrees = {
        "--tensor-model-parallel-size": layout.tp,
        "--pipeline-model-parallel-size": layout.pp,
        "--context-parallel-size": layout.cp,
        "--expert-model-parallel-size": layout.ep,
        "--num-virtual-stages-per-pipeline-rank": layout.vp,
    }
    whole, by_fsdp = layout.cp * (layout.dp or 1), layout.zero > 1
    shards = layout.shards if layout.zero and layout.shards not in (None, whole) else None
    found.options |= {
        **{name: degree if degree > 1 else None for name, degree in degrees.items()},
        "--cp-comm-type": layout.cp_comm.replace("_", "") if layout.cp_comm != "p2p" else None,
        "--expert-tensor-parallel-size": layout.etp if layout.etp != layout.tp else None,
        "--moe-token-dispatcher-type flex --moe-enable-deepep": layout.flex,
        "--overlap-moe-expert-parallel-comm": layout.ep_overlap,
        "--delay-wgrad-compute": layout.delay_wgrad,
        "--moe-shared-expert-overlap": layout.shared_overlap,
        "--sequence-parallel": layout.sp,
        "--tp-comm-overlap": layout.tp_overlap,
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
