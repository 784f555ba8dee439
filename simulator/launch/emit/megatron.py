"""A step as a launch line of Megatron-LM (pretrain_gpt.py): :func:`of_megatron`."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.errors import refused
from simulator.launch.emit.parts import Emission, Ranks, all_sizes, family_of_sizes, no_such_network, torchrun
from simulator.launch.layout import SHARDED
from simulator.questions.layout import ORDER, Layout
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.spelling import mention
from simulator.workload.zoo.registry import find_entry
from simulator.workload.zoo.sizes import LatentAttentionMixture

_ROTARY = "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear"
_FAMILIES: Mapping[str, str] = {
    **dict.fromkeys(("megatron", "gpt2", "gpt3"), ""),
    **dict.fromkeys(("llama", "llama2", "llama3", "mixtral", "deepseek-v2", "deepseek-v3"), _ROTARY),
    "qwen2": f"{_ROTARY} --add-qkv-bias",
    **dict.fromkeys(("qwen3", "qwen3-experts"), f"{_ROTARY} --qk-layernorm"),
    "nemotron": "--squared-relu --position-embedding-type rope --rotary-percent 0.5 --disable-bias-linear",
}
_PRECISIONS: Mapping[str, str] = {
    "fp32": "",
    "master-bf16": "--bf16",
    "master-fp16": "--fp16",
    "master-fp8": "--bf16 --fp8-format hybrid",
    "nvfp4": "--bf16 --fp4-format e2m1",
}
_ATTENTIONS: Mapping[str, str] = {"fused-native": "fused", "fused": "flash", "fused-softmax": "unfused"}
_FAR = ("tp", "cp", "pp", "dp")


def of_megatron(question: StepQuestion, ranks: Ranks) -> Emission:
    """Return the launch line; raises InputError for networks, precisions and frameworks that Megatron-LM has not."""
    options, layout = question.options, question.layout.on(ranks.whole)
    if options.framework != "megatron":
        raise refused("emit", f"is of {mention('framework', 'megatron')}; add it", "megatron")
    if options.precision not in _PRECISIONS:
        allowed = ", ".join(_PRECISIONS)
        raise refused("emit", f"has no {mention('precision', options.precision)}; {allowed} can be said", "megatron")
    found = Emission(torchrun(ranks), ["pretrain_gpt.py"])
    _network(question, found)
    _layout(layout, found)
    if _PRECISIONS[options.precision]:
        found.arguments.append(_PRECISIONS[options.precision])
    found.say("--micro-batch-size", question.batch)
    found.say("--global-batch-size", question.batch * question.micro_batches * (layout.dp or 1))
    if options.optimizer == "momentum":
        found.say("--optimizer", "sgd")
    found.unless(options.optimizer in ("adam", "momentum"), f"{mention('optimizer', options.optimizer)}; Adam updates")
    if ranks.whole > 1:
        _exchange(question, layout, found)
    _recomputation(question, found)
    found.unless(not options.compiled, f"{mention('compiled')}")
    found.unless(question.offload == "none", f"{mention('offload', question.offload)}")
    adds = options.accumulation == "product" or question.micro_batches == 1
    found.unless(adds, f"{mention('accumulation', options.accumulation)}")
    return found


def _network(question: StepQuestion, found: Emission) -> None:
    name = family_of_sizes(question.workload)
    sizes = {key: size for key, size in all_sizes(question).items() if size != "plain"}
    if name not in _FAMILIES:
        raise no_such_network(
            "megatron", question.workload, "networks of Megatron-LM's GPT, Llama, Qwen, Mixtral, DeepSeek"
        )

    def number(key: str) -> int:
        return int(sizes.get(key) or 0)

    found.say("--num-layers", number("layers"))
    found.say("--hidden-size", number("hidden"))
    found.say("--num-attention-heads", number("heads"))
    inner = number("inner") or (number("expert_inner") if number("experts") else 4 * number("hidden"))
    found.say("--ffn-hidden-size", inner)
    if _FAMILIES[name]:
        found.arguments.append(_FAMILIES[name])
    kv_heads = number("kv_heads")
    if kv_heads and kv_heads != number("heads"):
        found.say("--group-query-attention")
        found.say("--num-query-groups", kv_heads)
    if number("head_size"):
        found.say("--kv-channels", number("head_size"))
    length = number("sequence_length")
    found.say("--seq-length", length)
    found.say("--max-position-embeddings", number("positions") or length)
    found.say("--vocab-size", number("vocabulary"))
    if not number("tied"):
        found.say("--untie-embeddings-and-output-weights")
    if _FAMILIES[name] or not number("dropout"):
        found.arguments.append("--hidden-dropout 0 --attention-dropout 0")
    if number("experts"):
        _experts(question, sizes, found)
    attention = str(sizes.get("attention"))
    found.say("--attention-backend", _ATTENTIONS.get(attention, "auto"))
    found.unless(attention in _ATTENTIONS, f"{mention('sizes', f'attention={attention}')}")
    if sizes.get("cross_entropy") == "in-place":
        found.arguments.append("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te")
    else:
        found.unless(
            "cross_entropy" not in sizes, f"{mention('sizes', 'cross_entropy=' + str(sizes.get('cross_entropy')))}"
        )
    found.unless(sizes.get("gelu", "fused") == "fused", "GELU operation by operation")
    apart = name in ("gpt2", "gpt3") and number("dropout")
    found.unless(not apart, "dropout apart from the addition after it; one kernel does both")
    found.unless(not number("lora"), "adapters (LoRA)")
    found.unless(sizes.get("loss", 1) != 0, "a step without its loss")


def _experts(question: StepQuestion, sizes: Mapping[str, int | str], found: Emission) -> None:
    found.say("--num-experts", sizes["experts"])
    found.say("--moe-router-topk", sizes["chosen"])
    found.say("--moe-ffn-hidden-size", sizes["expert_inner"])
    found.say("--moe-grouped-gemm")
    if sizes.get("shared_inner"):
        found.say("--moe-shared-expert-intermediate-size", sizes["shared_inner"])
    if sizes.get("mtp_layers"):
        found.say("--mtp-num-layers", sizes["mtp_layers"])
    dense, layers = int(sizes.get("dense_layers") or 0), int(sizes["layers"])
    if dense:
        found.say("--moe-layer-freq", f"[0]*{dense}+[1]*{layers - dense}")
    code = find_entry(question.workload).code
    if isinstance(code, LatentAttentionMixture):
        found.say("--multi-latent-attention")
        found.say("--kv-lora-rank", code.kv_rank)
        found.say("--qk-head-dim", code.plain_size)
        found.say("--qk-pos-emb-head-dim", code.rotary_size)
        found.say("--v-head-dim", code.value_size)
        if code.query_rank:
            found.say("--q-lora-rank", code.query_rank)
    if not question.layout.flex:
        found.say("--moe-token-dispatcher-type", "alltoall")


def _layout(layout: Layout, found: Emission) -> None:
    degrees = {
        "--tensor-model-parallel-size": layout.tp,
        "--pipeline-model-parallel-size": layout.pp,
        "--context-parallel-size": layout.cp,
        "--expert-model-parallel-size": layout.ep,
        "--num-virtual-stages-per-pipeline-rank": layout.vp,
    }
    for name, degree in degrees.items():
        if degree > 1:
            found.say(name, degree)
    if layout.cp_comm != "p2p":
        found.say("--cp-comm-type", layout.cp_comm.replace("_", ""))
    if layout.etp not in (None, layout.tp):
        found.say("--expert-tensor-parallel-size", layout.etp)
    if layout.flex:
        found.arguments.append("--moe-token-dispatcher-type flex --moe-enable-deepep")
    if layout.sp:
        found.say("--sequence-parallel")
    if layout.tp_overlap:
        found.say("--tp-comm-overlap")
    if layout.order == _FAR:
        found.say("--use-tp-pp-dp-mapping")
    found.unless(layout.order in (ORDER, _FAR), f"ranks in the order {'-'.join(layout.order)}")
    found.unless(layout.schedule == "1f1b", f"a pipeline in the order of {layout.schedule}; 1F1B runs")
    if layout.zero == 1:
        found.say("--use-distributed-optimizer")
    elif layout.zero:
        found.say("--use-megatron-fsdp")
        found.say("--data-parallel-sharding-strategy", next(n for n, zero in SHARDED.items() if zero == layout.zero))
    whole = layout.cp * (layout.dp or 1)
    if layout.zero and layout.shards not in (None, whole):
        found.say("--num-distributed-optimizer-instances", whole // (layout.shards or whole))


def _exchange(question: StepQuestion, layout: Layout, found: Emission) -> None:
    options = question.options
    wide = question.sums_in_fp32
    if options.precision == "master-fp16" and wide:
        found.say("--accumulate-allreduce-grads-in-fp32")
    elif options.precision not in ("fp32", "master-fp16") and not wide:
        found.say("--grad-reduce-in-bf16")
    if layout.zero == 3 or not question.bucket_bytes or layout.dp == layout.cp == 1:
        return
    found.say("--overlap-grad-reduce")
    if layout.zero and question.prefetches:
        found.say("--overlap-param-gather")
    if question.bucket_bytes != BUCKET_BYTES:
        element_bytes = 4 if wide or options.precision == "fp32" else 2
        found.say("--ddp-bucket-size", round(question.bucket_bytes / element_bytes))
        whole = question.bucket_bytes % element_bytes == 0
        found.unless(whole, f"buckets of {question.bucket_bytes:g} bytes, which are no whole number of gradients")


def _recomputation(question: StepQuestion, found: Emission) -> None:
    options = question.options
    blocks = options.recompute_blocks
    if options.recompute == "none":
        return
    if options.recompute == "operators":
        found.cannot.append(f"{mention('recompute_operators')}; nothing is recomputed")
        return
    found.say("--recompute-granularity", options.recompute)
    if options.recompute == "full":
        found.say("--recompute-method", "uniform" if blocks is None else "block")
        found.say("--recompute-num-layers", blocks or 1)
        return
    found.unless(blocks is None, f"{mention('recompute_blocks', blocks or '')} of what is selected")
    if options.recompute_parts != ("core_attn",):
        found.arguments.append(f"--recompute-modules {' '.join(options.recompute_parts)}")
