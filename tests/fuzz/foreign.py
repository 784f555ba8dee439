"""Damaged files of other programs: machine dumps, logs, traces, configurations, launch lines."""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.workload.described import network_document
from simulator.workload.find import find_network
from tests.fuzz.damage import json_mutated, mutated, pumped
from tests.nccl_logs import as_json_log, as_log
from tests.unit.test_dumps import HWLOC, LISTED, LOG, LSPCI, NCCL_XML, NV12
from tests.unit.test_launch import LLAMA3_8B, MIXTRAL, SCRIPT, TRAINER
from tests.unit.test_trace import document, two_steps

_DUMPS = (NV12, NCCL_XML, HWLOC, LSPCI, LOG, LISTED, "0 2 3\n2 0 1\n3 1 0\n")
_TIMES = [(1 << 20, 1e-4), (1 << 24, 1e-3)]
_OLD_LOG = """\
$ CUDA_VISIBLE_DEVICES=0,1 NCCL_ALGO=Ring mpirun -x NCCL_IB_HCA=mlx5_0,mlx5_1 -np 2 ./build/all_reduce_perf -g 1
#  Rank  0 Pid 1 on n0 device  0 [0x01] A100-SXM4-40GB
#  Rank  1 Pid 2 on n0 device  1 [0x02] A100-SXM4-40GB
NCCL version 2.8.4+cuda11.2
n0:1:1 [0] NCCL INFO NCCL_PROTO set by environment to Simple.
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
   134217728      33554432   float     sum    790.0  169.90  169.90  2e-07    790.0  169.90  169.90  2e-07
# Out of bounds values : 0 OK
"""
_LOGS = (
    *(as_log(_TIMES), as_json_log(_TIMES), as_log(_TIMES, header=False), as_log(_TIMES, hosts=2), _OLD_LOG),
    "".join(f"[1,0]<stdout>:{line}\n" for line in as_log(_TIMES, hosts=2).splitlines()),
    as_log(_TIMES) + as_log(_TIMES, collective="all-gather"),
)
_TRACE = json.dumps(document(two_steps()), indent=1)
_LLAMA = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_CONFIGS = tuple(
    json.dumps(config, indent=1)
    for config in (
        *({"model_type": kind, **_LLAMA} for kind in ("mistral", "qwen2", "qwen3", "gpt_oss")),
        *({"model_type": kind, **_LLAMA, **_EXPERTS} for kind in ("qwen2_moe", "qwen3_moe")),
        {"model_type": "deepseek_v3", **_LLAMA, "n_routed_experts": 8, "num_experts_per_tok": 2,
         "first_k_dense_replace": 1, "kv_lora_rank": 64, "q_lora_rank": 64, "qk_nope_head_dim": 32},
        {"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 256, "image_size": 224, "patch_size": 16, "id2label": {"0": "a"}},
        {"model_type": "opt", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 128,
         "vocab_size": 100, "max_position_embeddings": 64, "word_embed_proj_dim": 64},
        {"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 100, "max_seq_len": 64,
         "attn_config": {"alibi": True}},
        {"model_type": "bloom", "hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100},
        {"model_type": "t5", "d_model": 64, "num_heads": 4, "num_layers": 2, "d_ff": 128, "d_kv": 16,
         "vocab_size": 100, "n_positions": 64},
        {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 128,
         "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu"},
        {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 100},
        {"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 128, "num_local_experts": 4, "num_experts_per_tok": 2,
         "vocab_size": 100, "max_position_embeddings": 64},
        {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64},
    )
)  # fmt: skip
_DEEPSPEED = json.dumps(
    {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {
            "stage": 2,
            "offload_param": {"device": "none"},
            "overlap_comm": True,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
        },
        "bf16": {"enabled": True},
        "fp16": {"enabled": False},
    },
    indent=1,
)
_SHELL = """\
cat <<'EOF' > notes
it's {
EOF
declare -i TP=2 PP="$(echo "1" ')' "a b")"
NAME=$'a\\'b' ARGS=(--bf16 "${NAME}" $((TP * 2)) `hostname`)
unset PP; [ -n "${X:-'y'}" ] && echo "${ARGS[@]}" <<< x
"""
_TABLE = """\
machine,n_gpus,collective,bytes,time_s,software,trust,note
p3.16xlarge,8,all_reduce,1048576,0.0002,nccl 2.18,A,
dgx-h100,8,all_gather,8388608,0.0003,,B,"a, b"
"""
_OPERATORS = "device,op,dtype,m,n,k,time_s,trust\nt4,linear,fp32,512,512,512,1e-4,A\nt4,linear,fp16,64,64,64,1e-5,A\n"


def _dump(rng: random.Random, folder: Path) -> list[str]:
    words = ["validate", "describe"]
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        path = folder / f"dump{number}.txt"
        text = rng.choice(_DUMPS)
        path.write_bytes((mutated if rng.random() < 0.9 else pumped)(text, rng))
        words += ["--from", str(path)]
    words += ["--gpu", rng.choice(("h100", "v100", "a100-sxm4-40gb", "x", ""))] if rng.random() < 0.6 else []
    words += ["--nic", rng.choice(("connectx-7-ndr", "x"))] if rng.random() < 0.3 else []
    return [*words, *(["--out", str(folder / "mine.yaml")] if rng.random() < 0.2 else [])]


def _log(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "nccl.log"
    text = rng.choice(_LOGS)
    is_json = text.lstrip().startswith("{") and rng.random() < 0.5
    damaged = mutated if rng.random() < 0.9 else pumped
    path.write_bytes(json_mutated(json.loads(text), rng) if is_json else damaged(text, rng))
    words = ["validate", "check", str(path), "--topology", rng.choice(("p3.16xlarge", "dgx-h100", "t4"))]
    more = (
        ["--gpus", "8"],
        ["--gpus", rng.choice(("0,1", "0-7", "1,x", "8-15"))],
        ["--nodes", "2"],
        ["--collective", "all-gather"],
        ["--nccl", "2.7"],
        ["--json"],
        [],
        [],
    )
    return [*words, *rng.choice(more), *rng.choice(more[5:])]


def _profile(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "trace.json"
    damaged = mutated if rng.random() < 0.9 else pumped
    raw = damaged(_TRACE, rng) if rng.random() < 0.5 else json_mutated(json.loads(_TRACE), rng)
    if rng.random() < 0.3:
        raw = gzip.compress(raw, mtime=0)
        raw = raw if rng.random() < 0.5 else raw[: rng.randrange(len(raw))]
    path.write_bytes(raw)
    words = ["validate", "trace", str(path), "--topology", "t4", "--workload", "resnet18", "--batch", "2"]
    return [*words, *rng.choice(([], ["--steps", "2"], ["--steps", "0"], ["--json"], ["--plot", "x"], ["--mode", "x"]))]


def _config(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "config.json"
    text = rng.choice(_CONFIGS)
    path.write_bytes(mutated(text, rng) if rng.random() < 0.4 else json_mutated(json.loads(text), rng))
    words = ["simulator", "--topology", "t4", "--workload", str(rng.choice((path, folder))), "--batch", "1"]
    return [*words, *rng.choice(([], [], ["--seq-len", "64"], ["--set", "layers=1"], ["--mode", "inference"]))]


@functools.cache
def _written_out(name: str) -> dict[str, Any]:
    return network_document(find_network(name).build(2))


def _described(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "a.network.json"
    document = _written_out(rng.choice(("lenet", "mlp")))
    path.write_bytes(
        json_mutated(document, rng) if rng.random() < 0.8 else mutated(json.dumps(document, indent=1), rng)
    )
    return ["simulator", "--topology", "t4", "--workload", str(path), "--batch", "2"]


def _launched(rng: random.Random, folder: Path) -> list[str]:
    script, config = folder / "run.sh", folder / "ds.json"
    damaged = mutated(_DEEPSPEED, rng) if rng.random() < 0.5 else json_mutated(json.loads(_DEEPSPEED), rng)
    config.write_bytes(damaged if rng.random() < 0.7 else _DEEPSPEED.encode())
    own = (
        f"deepspeed --num_gpus 8 train.py \\\n --deepspeed_config {config.name} \\\n --per_device_train_batch_size 2\n"
    )
    smaller = LLAMA3_8B.replace("--num-layers 32", "--num-layers 2").replace(" --", " \\\n --")
    text = rng.choice((own, own, smaller, MIXTRAL.replace(" --", " \\\n --"), SCRIPT, TRAINER, _SHELL + own))
    script.write_bytes(mutated(text, rng))
    shown = ["--show-options"] if text is not own or rng.random() < 0.5 else []  # large steps take long
    return ["simulator", "--topology", "dgx-h100", "--launch", f"@{script}", *shown]


def _fitted(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "t.csv"
    of_operators = rng.random() < 0.5
    path.write_bytes(mutated(_OPERATORS if of_operators else _TABLE, rng))
    if of_operators:
        return [
            "validate",
            "calibrate",
            str(path),
            *rng.choice(([], ["--device", "t4"], ["--trust", "A"], ["--device", "x"])),
        ]
    return [
        "validate",
        "bands",
        str(path),
        *rng.choice(([], ["--judge"], ["--json"], ["--trust", "A"], ["--trust", ""])),
    ]


def _report(rng: random.Random, folder: Path) -> list[str]:
    run = folder / "run"
    run.mkdir(exist_ok=True)
    record = {"schema_version": 1, "finished": True, "machine": "m", "environment": {"device": "t4"}, "left": []}
    (run / "run.json").write_bytes(json_mutated(record, rng) if rng.random() < 0.3 else json.dumps(record).encode())
    (run / "ops.csv").write_bytes(mutated(_OPERATORS, rng) if rng.random() < 0.7 else _OPERATORS.encode())
    (run / "collectives.csv").write_bytes(mutated(_TABLE, rng))
    more = (
        ["--report", str(folder / "page.html")], ["--calibrate", "1"], ["--calibrate", "1s"], ["--with", str(run)],
        ["--calibrated-by", str(run)], ["--topology", "t4"], ["--device", "t4"], ["--device", "x=t4"], ["--json"],
        ["--trust", "A,B,C"], ["--report", "/nowhere/x.html"], ["--calibration", "/dev/null"],
    )  # fmt: skip
    return ["validate", "compare", str(run), *rng.choice(more), *(rng.choice(more[8:]) if rng.random() < 0.3 else [])]


KINDS: dict[str, Callable[[random.Random, Path], list[str]]] = {
    "dump": _dump,
    "log": _log,
    "profile": _profile,
    "config": _config,
    "described": _described,
    "launched": _launched,
    "fitted": _fitted,
    "report": _report,
}
