"""Almost valid files and command lines, made by damaging valid ones as people and faults do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz.asked import KINDS as OF_COMMANDS
from tests.fuzz.damage import WORDS, mutated
from tests.fuzz.foreign import KINDS as OF_OTHERS
from tests.hostile import ESCAPES, MESHES, REFUSED

_ROOT = Path(__file__).resolve().parents[2]
_TOPOLOGIES = ("p3.16xlarge", "dgx-h100", "4gpu-pcie", "dgx-a100-x4-hdr", "gb200-nvl72")
_NETWORK = """\
schema_version: 1
name: n
input: {features: 64}
layers:
  - {kind: linear, outputs: 128}
  - {kind: relu}
  - name: blocks
    repeat: 3
    layers:
      - {kind: linear, outputs: 128}
      - {kind: add, inputs: [previous, input]}
  - {kind: linear, outputs: 10}
"""
_TABLE = """\
machine,n_gpus,collective,bytes,time_s,software,trust,note
p3.16xlarge,8,all_reduce,1048576,0.0002,nccl 2.18,A,
dgx-h100,8,all_gather,8388608,0.0003,,B,"a, b"
p3.16xlarge,4,broadcast,1024,0.00002,,A,x
"""
_RECORD = '{"schema_version": 1, "finished": true, "machine": "m", "environment": {"device": "t4"}, "left": []}'
_OPS = "device,op,dtype,m,n,k,time_s\nt4,linear,fp32,512,512,512,1e-4\nt4,linear,fp16,64,64,64,1e-5\n"
_PARTS = """\
schema_version: 1
name: own-parts
parts:
  my-riser:
    kind: link
    of: pcie
    bandwidth: 7.877 GB/s
    efficiency: 0.8
    latency: 0.5 us
    source: "PCIe 3.0, 8 lanes"
  my-nic:
    kind: nic
    network: ethernet
    bandwidth: 40 Gbit/s
    efficiency: 0.9
    latency: 10 us
  my-gpu:
    kind: gpu
    memory_bandwidth: 900 GB/s
    memory_size: 16 GB
    sm_count: 80
    boost_clock: 1.5 GHz
    peak: {fp32: 15 TFLOP/s}
devices:
  gpu[0-3]: {part: my-gpu}
  cpu0: {part: generic-server-cpu, memory_bandwidth: 100 GB/s}
  nic0: {part: my-nic}
links:
  - {between: ["gpu[0-3]", cpu0], part: my-riser}
  - {between: [nic0, cpu0], part: pcie3-x8}
"""
_OPTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("--topology", (*_TOPOLOGIES, "t4", "2 x xeon-gold-6230", "p3.16xlarge,dgx-h100", "/dev/null", "-")),
    (
        "--strategy",
        (
            "ring",
            "nccl",
            "tree",
            "all",
            "sharded,ring",
            "gpu0",
            "gloo",
            "parameter-server",
            "hierarchical",
            "parameter-server-sharded",
        ),
    ),
    (
        "--workload",
        (
            "resnet50",
            "resnet18",
            "gpt2",
            "alexnet",
            "bytes:1MB",
            "sweep:8B-8MB:64",
            "launch:stream",
            "copy:h2d,1MB",
            "op:linear,rows=8",
        ),
    ),
    ("--gpus", ("1", "2", "0-3", "3,1,0", "7", "99", "0,0")),
    ("--nodes", ("1", "2", "16", "16384", "99999", "x")),
    ("--fabric", ("infiniband-edr", "ethernet-10g", "pcie3-x16")),
    ("--batch", ("1", "16", "0", "1e3", "9999999999")),
    ("--collective", ("all-reduce", "broadcast", "all-to-all", "send-recv", "reduce")),
    ("--root", ("0", "3", "-1", "99")),
    ("--parallel", ("dp", "fsdp", "tp=2", "tp=8,pp=2", "zero=2", "loop", "dataparallel", "pp=0")),
    ("--precision", ("fp16", "bf16", "amp-fp16", "fp8", "x")),
    ("--slow-link", ("gpu0-gpu1:0.5x", "gpu0-gpu1:0x", "a-b:infx")),
    ("--neighbour", ("gpu0-gpu1:5GB/s", "gpu0-gpu0:1GB/s", "cpu0-gpu1:1e9GB/s")),
    ("--dtype", ("fp16", "int8", "fp4")),
    ("--redop", ("avg", "max", "xor")),
    ("--algorithm", ("tree", "nvls", "pat", "collnet")),
    ("--pairs", ("0>1", "1>0,0>1", "0>0", "9>1", "0>1>2")),
    ("--group-size", ("2", "3", "0", "99")),
    ("--gpus-per-process", ("8", "0", "99")),
    ("--servers", ("own", "workers", "cpu0", "cpu9")),
    ("--global-batch", ("64", "7", "0")),
    ("--micro-batches", ("2", "0", "99999")),
    ("--micro-batch", ("2", "0")),
    ("--overlap", ("none", "bucket:1MiB", "bucket:0", "bucket:9PB")),
    ("--staleness", ("2", "async", "-1")),
    ("--straggler", ("gpu0:1.5x", "gpu9:2x", "gpu0:0x", "node0:1e9x")),
    ("--divide", ("best", "best,cpu0", "odd")),
    ("--lose", ("cpu0@1ms", "cpu0@1e9s")),
    ("--mtbf", ("10h", "1ns", "0s")),
    ("--checkpoint-time", ("5s", "1e9 s", "0s")),
    ("--checkpoint-every", ("10", "0")),
    ("--restart-time", ("60s", "0s")),
    ("--epoch", ("100000", "1", "0", "9" * 30)),
    ("--input", ("imagenet", "sample=4KB", "sample=4KB,workers=0", "sample=1PB,disk=ssd0", "imagenet,cache=memory")),
    ("--programs", ("2", "64", "65")),
    ("--mode", ("inference", "forward", "backward")),
    ("--optimizer", ("adam", "sgd", "none", "lamb", "adam-loop", "bert-adam", "adam-8bit", "paged-adam", "x")),
    ("--offload", ("optimizer", "optimizer+parameters", "parameters", "x")),
    ("--seq-len", ("64", "1", "0", "9999999")),
    ("--image", ("64", "1", "9999999")),
    ("--set", ("layers=2", "layers=0", "attention=fused", "attention=x", "classes=9999999", "=", "heads=7")),
    ("--set", ("lora=4", "lora_weights=nf4", "cross_entropy=chunked", "cross_entropy=fused-linear", "cross_entropy=x")),
    ("--device", ("gpu0", "cpu0", "cpu", "gpu99")),
    ("--threads", ("4", "0", "9999")),
    ("--framework", ("megatron",)),
    ("--cpu-library", ("blas", "torch7", "eigen", "mkl")),
    ("--gpu-clock", ("1GHz", "562MHz", "9GHz", "0", "fast")),
    ("--launch", ("torchrun --nproc-per-node 2 train.py", "@/dev/null", "pretrain_gpt.py --num-layers 2", "'", "$(x)")),
    *(
        (option, ())
        for option in (
            *(
                "--compile",
                "--cuda-graph",
                "--recompute",
                "--recompute-attention",
                "--recompute-operators",
                "--channels-last",
                "--reduce-fp32",
                "--gather-fp32",
                "--gather-again",
                "--reduce-whole",
            ),
            *("--no-prefetch", "--no-contention", "--fused-optimizer", "--round-robin-gradients", "--what-if"),
            "--show-options",
        )
    ),
    ("--json", ()),
    ("--no-fold", ()),
    ("--nccl", ("2.18", "9.9", "x")),
)


def _topology(rng: random.Random, folder: Path) -> list[str]:
    base = rng.random()
    if base < 0.6:
        text = (_ROOT / "topologies" / f"{rng.choice(_TOPOLOGIES)}.yaml").read_text(encoding="utf-8")
    else:
        short = [t for t in (*MESHES.values(), *(text for text, _ in REFUSED.values()), ESCAPES) if len(t) < 20_000]
        text = rng.choice(short)
    text = _PARTS if rng.random() < 0.2 else text
    path = folder / "t.yaml"
    path.write_bytes(mutated(text, rng))
    return [
        "simulator",
        "--topology",
        str(path),
        "--strategy",
        rng.choice(("ring", "nccl", "tree", "halving-doubling")),
    ]


def _network(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "n.yaml"
    path.write_bytes(mutated(_NETWORK, rng))
    return ["simulator", "--topology", "t4", "--workload", str(path), "--batch", rng.choice(("1", "8"))]


def _table(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "t.csv"
    path.write_bytes(mutated(_TABLE, rng))
    return ["validate", "score", str(path), *rng.choice(([], ["--json"], ["--by", "machine"]))]


def _folder(rng: random.Random, folder: Path) -> list[str]:
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / "run.json").write_bytes(mutated(_RECORD.replace(", ", ",\n"), rng))
    (folder / "run" / "ops.csv").write_bytes(mutated(_OPS, rng) if rng.random() < 0.5 else _OPS.encode())
    return ["validate", "compare", str(folder / "run")]


def _steps_and_others(rng: random.Random) -> list[tuple[str, tuple[str, ...]]]:
    """Return random options; half include a batch, since most options concern a step."""
    chosen = rng.sample(_OPTIONS, rng.randint(1, 6))
    if rng.random() < 0.5:
        chosen = [("--topology", _TOPOLOGIES[:3]), ("--batch", ("1", "8")), *chosen]
    return list(dict(chosen).items())


def _options(rng: random.Random, folder: Path) -> list[str]:
    words = ["simulator"]
    for name, values in _steps_and_others(rng):
        words.append(name)
        if values:
            words.append(rng.choice(values) if rng.random() < 0.8 else rng.choice(WORDS).replace("\0", ""))
    return words


KINDS: dict[str, Callable[[random.Random, Path], list[str]]] = {
    "topology": _topology,
    "network": _network,
    "table": _table,
    "folder": _folder,
    "options": _options,
    **OF_COMMANDS,
    **OF_OTHERS,
}


def command(seed: int, folder: Path, kinds: Sequence[str] = tuple(KINDS)) -> list[str]:
    """Return the program and arguments that *seed* stands for, writing their files into *folder*."""
    rng = random.Random(seed)
    return KINDS[kinds[seed % len(kinds)]](rng, folder)
