"""Every option of every command changes the answer, is refused, or is reported to have no effect."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.cli import COMMANDS, _app, run
from simulator.console.run import run_app
from tests.nccl_logs import as_log
from tests.unit.test_dumps import NV12
from tests.unit.test_trace import document, two_steps
from tests.without_advice import without_advice
from validate.cli import app as validate

pytestmark = pytest.mark.usefixtures("answered_once")

_P3 = "--topology p3.16xlarge --workload"
_STEP = f"{_P3} resnet18 --batch 2 --gpus 1"
_DP = f"{_P3} resnet18 --batch 2 --gpus 2"
_BERT = f"{_P3} bert-base --set layers=2 --seq-len 64 --batch 1 --gpus 1"
_SERVED = "--topology p3.8xlarge --nodes 2 --gpus 0,4 --fabric 10Gbit/s --workload alexnet --batch 2"
_SERVED += " --strategy parameter-server"
_LOST = f"{_SERVED}-sharded --servers node0.cpu0,node1.cpu0"
_FAILS = f"{_STEP} --mtbf 1h --checkpoint-time 5s"
_BEST = "--topology p3.16xlarge --gpus 2 --workload alexnet --global-batch 8 --jobs 1"
_BEST += " --parallel tp=1,pp=1 --recompute none"  # few layouts
_SCALE = "--topology p3.16xlarge --workload alexnet --gpus 2,4"
_BOUND = f"{_SCALE} --batch 2 --offload optimizer --bind-cores-to-rank"
_SCALE_BERT = _SCALE.replace("alexnet", "bert-base") + " --set layers=2 --seq-len 64 --batch 1"

# For each option: a question, and a value that changes its answer when added or replaced.
SIMULATE: dict[str, tuple[str, str]] = {
    "--topology": (f"{_P3} bytes:1MB --strategy ring", "dgx-h100"),
    "--workload": (f"{_P3} bytes:1MB --strategy ring", "bytes:2MB"),
    "--strategy": (f"{_P3} bytes:1MB --strategy ring", "tree"),
    "--gpus": (f"{_P3} bytes:1MB --strategy ring", "4"),
    "--nodes": (f"{_P3} bytes:1MB --strategy nccl --fabric infiniband-edr --nodes 2", "3"),
    "--fabric": (f"{_P3} bytes:1MB --strategy nccl --nodes 2", "10Gbit/s"),
    "--nccl": (f"{_P3} bytes:1MB --strategy nccl", "2.7"),
    "--servers": (f"{_P3} bytes:1MB --strategy parameter-server", "cpu1"),
    "--slow-link": (f"{_P3} bytes:1MB --strategy ring", "gpu0-gpu1:0.1x"),
    "--shared-network": (f"{_P3} bytes:100MB --strategy nccl --nodes 2", "40%"),
    "--neighbour": (f"{_P3} bytes:1MB --strategy ring", "gpu0-gpu1:5GB/s"),
    "--collective": (f"{_P3} bytes:1MB --strategy ring", "all-gather"),
    "--root": (f"{_P3} bytes:1MB --strategy gpu0 --collective broadcast --gpus 0,1,2,3,4", "1"),
    "--pairs": (f"{_P3} bytes:1MB --strategy nccl --collective send-recv", "0>7"),
    "--group-size": (f"{_P3} bytes:1MB --strategy nccl", "2"),
    "--gpus-per-process": (f"{_P3} bytes:64B --strategy nccl", "8"),
    "--algorithm": (f"{_P3} bytes:64MB --strategy nccl", "tree"),
    "--protocol": (f"{_P3} bytes:64MB --strategy nccl", "LL"),
    "--no-nvls": ("--topology dgx-h100 --workload bytes:64MB --strategy nccl", ""),
    "--dtype": ("--topology dgx-h100 --workload bytes:64MB --strategy nccl", "fp8"),
    "--redop": ("--topology dgx-h100 --workload bytes:64MB --strategy nccl", "max"),
    "--batch": (_STEP, "4"),
    "--global-batch": (f"{_P3} resnet18 --gpus 2 --global-batch 8", "16"),
    "--epoch": (_STEP, "100000"),
    "--input": (_STEP, "sample=4MB"),
    "--offload": (_STEP, "optimizer"),
    "--offload-to": (
        (
            "--topology dgx-2 --gpus 1 --workload resnet18 --batch 2 --framework deepspeed-zero3 "
            "--offload optimizer+parameters"
        ),
        "nvme",
    ),
    "--round-robin-gradients": (f"{_DP} --parallel zero=2 --offload optimizer --bind-cores-to-rank", ""),
    "--programs": (_STEP, "2"),
    "--micro-batches": (_STEP, "2"),
    "--micro-batch": (f"{_P3} resnet18 --gpus 2 --global-batch 8", "2"),
    "--parallel": (_DP, "fsdp"),
    "--overlap": (_DP, "none"),
    "--staleness": (_SERVED, "async"),
    "--straggler": (_DP, "gpu1:3x"),
    "--divide": ("--topology p3.16xlarge --gpus 2 --workload resnet18 --batch 64 --strategy ring", "best,cpu0"),
    "--lose": (_LOST, "node0.cpu0@1ms"),
    "--mtbf": (f"{_STEP} --checkpoint-time 5s --mtbf 1h", "2h"),
    "--checkpoint-every": (_FAILS, "10"),
    "--checkpoint-time": (_FAILS, "10s"),
    "--restart-time": (_FAILS, "60s"),
    "--reduce-fp32": (f"{_DP} --precision fp16", ""),
    "--gather-fp32": (f"{_DP} --parallel fsdp --precision amp-fp16", ""),
    "--delayed-scales": ("--topology h100-sxm5-80gb --workload gpt2 --batch 2 --precision master-fp8", ""),
    "--flat-parameters": (f"{_DP} --parallel fsdp", ""),
    "--reduce-whole": (f"{_DP} --parallel zero=2 --overlap none", ""),
    "--gather-again": (f"{_DP.replace('resnet18', 'gpt2')} --parallel fsdp --recompute", ""),
    "--no-prefetch": (f"{_DP} --parallel fsdp", ""),
    "--no-contention": (_DP, ""),
    "--mode": (_STEP, "inference"),
    "--precision": (_STEP, "amp-fp16"),
    "--optimizer": (_STEP, "adam"),
    "--ns-steps": ("--topology dgx-h100 --workload alexnet --batch 2 --gpus 1 --optimizer muon", "9"),
    "--seq-len": (_BERT, "128"),
    "--image": (_STEP, "64"),
    "--set": (_STEP, "classes=10"),
    "--compile": (_STEP, ""),
    "--cuda-graph": (_STEP, ""),
    "--cuda-graph-blocks": (_BERT, ""),
    "--launch-blocking": (_STEP, ""),
    "--expandable-segments": (_STEP, ""),
    "--gradient-as-bucket-view": (_DP, ""),
    "--accumulate": (f"{_STEP} --micro-batches 2", "product"),
    "--recompute": (_BERT, ""),
    "--recompute-attention": (_BERT, ""),
    "--recompute-operators": (_BERT, ""),
    "--recompute-parts": (_BERT, "layernorm"),
    "--recompute-blocks": (f"{_BERT} --recompute", "1"),
    "--channels-last": (f"{_STEP} --precision amp-fp16", ""),
    "--fused-optimizer": (_STEP, ""),
    "--framework": (_BERT, "megatron"),
    "--cpu-library": (f"{_P3} resnet18 --batch 2 --device cpu0", "blas"),
    "--libraries": (_STEP, "2018-06"),
    "--gpu-clock": (_STEP, "1GHz"),
    "--device": (f"{_P3} resnet18 --batch 2", "cpu0"),
    "--threads": (f"{_P3} resnet18 --batch 2 --device cpu0", "2"),
    "--calibration": (_STEP, "{here}/calibration.yaml"),
    "--launch": ("--topology dgx-h100 --batch 2 --workload resnet50", "torchrun --nproc-per-node 2 train.py"),
    "--emit": (f"{_P3} gpt2 --set layers=2 --seq-len 64 --batch 1 --gpus 2 --precision fp32", "accelerate"),
    "--show-options": (
        "--topology dgx-h100 --batch 2 --workload resnet50 --launch 'torchrun --nproc-per-node 2 train.py'",
        "",
    ),
    "--what-if": (_STEP, ""),
    "--trace": (_STEP, "{here}/out.json"),
    "--report": (_STEP, "{here}/out.html"),
    "--chakra": (_STEP, "{here}/out"),
    "--plot": (_STEP, "{here}/out.svg"),
    "--completion": (_STEP, "bash"),
    "--version": (_STEP, ""),
    "best --topology": (_BEST, "p3.8xlarge"),
    "best --emit": (
        f"{_BEST} --precision master-fp16 --set layers=2 --seq-len 128".replace("alexnet", "gpt2"),
        "deepspeed",
    ),
    "best --workload": (_BEST, "alexnet-owt"),
    "best --nodes": (f"{_BEST} --nodes 2 --fabric 10Gbit/s".replace("--gpus 2 ", "--gpus 0,8 "), "3"),
    "best --gpus": (_BEST, "4"),
    "best --fabric": (f"{_BEST} --nodes 2 --fabric 10Gbit/s".replace("--gpus 2 ", "--gpus 0,8 "), "100Gbit/s"),
    "best --shared-network": (f"{_BEST} --nodes 2 --fabric 10Gbit/s".replace("--gpus 2 ", "--gpus 0,8 "), "40%"),
    "best --global-batch": (_BEST, "16"),
    "best --micro-batch": (_BEST, "1"),
    "best --parallel": (_BEST, "tp=1,pp=1,zero=1"),
    "best --recompute": (
        _BEST.replace("alexnet", "bert-base") + " --set layers=2 --seq-len 64",
        "full",
    ),
    "best --top": (_BEST, "2"),
    "best --report": (_BEST, "{here}/out.html"),
    "best --resume": (_BEST, "{here}/out.json"),
    "best --precision": (_BEST, "amp-fp16"),
    "best --optimizer": (_BEST, "adam"),
    "best --ns-steps": (f"{_BEST.replace('p3.16xlarge', 'dgx-h100')} --optimizer muon", "9"),
    "best --seq-len": (_BEST.replace("alexnet", "bert-base") + " --set layers=2 --seq-len 64", "128"),
    "best --image": (_BEST, "64"),
    "best --set": (_BEST, "classes=10"),
    "best --compile": (_BEST, ""),
    "best --fused-optimizer": (_BEST, ""),
    "best --expandable-segments": (_BEST, ""),
    "best --gradient-as-bucket-view": (_BEST, ""),
    "best --framework": (
        _BEST.replace("alexnet", "bert-base") + " --set layers=2 --seq-len 64",
        "megatron",
    ),
    "best --nccl": (_BEST, "2.7"),
    "best --algorithm": (_BEST, "tree"),
    "best --protocol": (_BEST, "LL"),
    "best --no-nvls": (_BEST.replace("p3.16xlarge --gpus 2", "dgx-h100 --gpus 8"), ""),
    "best --calibration": (_BEST, "{here}/calibration.yaml"),
    "scale --topology": (f"{_SCALE} --batch 2", "p3.8xlarge"),
    "scale --workload": (f"{_SCALE} --batch 2", "alexnet-owt"),
    "scale --nodes": ("--topology p3.2xlarge --fabric 10Gbit/s --workload alexnet --batch 2 --nodes 1,2", "1,3"),
    "scale --gpus": (f"{_SCALE} --batch 2", "2,3"),
    "scale --shared-network": (
        "--topology p3.2xlarge --fabric 10Gbit/s --workload alexnet --batch 2 --nodes 1,2",
        "40%",
    ),
    "scale --fabric": ("--topology p3.2xlarge --fabric 10Gbit/s --workload alexnet --batch 2 --nodes 1,2", "25Gbit/s"),
    "scale --batch": (f"{_SCALE} --batch 2", "4"),
    "scale --global-batch": (f"{_SCALE} --global-batch 4", "8"),
    "scale --micro-batches": (f"{_SCALE} --batch 2", "2"),
    "scale --micro-batch": (f"{_SCALE} --global-batch 4", "1"),
    "scale --offload-to": (f"{_BOUND.replace('p3.16xlarge', 'dgx-2')} --parallel fsdp", "nvme"),
    "scale --offload": (f"{_BOUND} --parallel fsdp --framework deepspeed-zero3", "optimizer+parameters"),
    "scale --round-robin-gradients": (f"{_BOUND} --parallel zero=2", ""),
    "scale --parallel": (f"{_SCALE} --batch 2", "fsdp"),
    "scale --strategy": (f"{_SCALE} --batch 2", "tree"),
    "scale --overlap": (f"{_SCALE} --batch 2", "none"),
    "scale --precision": (f"{_SCALE} --batch 2", "amp-fp16"),
    "scale --optimizer": (f"{_SCALE} --batch 2", "adam"),
    "scale --ns-steps": (f"{_SCALE.replace('p3.16xlarge', 'dgx-h100')} --batch 2 --optimizer muon", "9"),
    "scale --seq-len": (_SCALE.replace("alexnet", "bert-base") + " --batch 1 --seq-len 64", "128"),
    "scale --image": (f"{_SCALE} --batch 2", "64"),
    "scale --set": (f"{_SCALE} --batch 2", "classes=10"),
    "scale --compile": (f"{_SCALE} --batch 2", ""),
    "scale --fused-optimizer": (f"{_SCALE} --batch 2", ""),
    "scale --recompute": (f"{_SCALE} --batch 2".replace("alexnet", "resnet18"), ""),
    "scale --recompute-attention": (_SCALE_BERT, ""),
    "scale --recompute-operators": (_SCALE_BERT, ""),
    "scale --recompute-parts": (_SCALE_BERT, "layernorm"),
    "scale --recompute-blocks": (f"{_SCALE_BERT} --recompute", "1"),
    "scale --expandable-segments": (f"{_SCALE} --batch 2", ""),
    "scale --gradient-as-bucket-view": (f"{_SCALE} --batch 2", ""),
    "scale --framework": (_SCALE_BERT, "megatron"),
    "scale --nccl": (f"{_SCALE} --batch 2 --precision fp16 --overlap none", "2.4"),
    "scale --algorithm": (f"{_SCALE} --batch 2", "tree"),
    "scale --protocol": (f"{_SCALE} --batch 2", "LL"),
    "scale --no-nvls": (f"{_SCALE} --batch 2", ""),
    "scale --calibration": (f"{_SCALE} --batch 2", "{here}/calibration.yaml"),
    "scale --report": (f"{_SCALE} --batch 2", "{here}/out.html"),
    "scale --plot": (f"{_SCALE} --batch 2", "{here}/out.svg"),
    "scenario --list": ("", ""),
    "scenario --show": ("an-intermediate-result", ""),
    "scenario --copy": ("an-intermediate-result", "{here}/copied"),
    "scenario --trace": ("an-intermediate-result", "{here}/out.json"),
    "scenario --report": ("an-intermediate-result", "{here}/out.html"),
    "scenario --plot": ("an-intermediate-result", "{here}/out.svg"),
    "machines --gpu": ("", "h100"),
    "machines --gpus": ("", "8"),
    "machines --nodes": ("", "2"),
    "networks --sample": ("", "images"),
    "parts --kind": ("", "gpu"),
}
VALIDATE: dict[str, tuple[str, str]] = {
    "score --out": ("{here}/collectives.csv", "{here}/out.csv"),
    "score --topology": ("{here}/collectives.csv", "dgx-h100"),
    "score --machine": ("{here}/collectives.csv", "p3.16xlarge=dgx-h100"),
    "score --strategy": ("{here}/collectives.csv", "ring"),
    "score --device": ("{here}/ops.csv", "t4=v100-sxm2-16gb"),
    "score --calibrate": ("{here}/ops.csv", "2"),
    "score --calibration": ("{here}/ops.csv", "{here}/calibration.yaml"),
    "score --trust": ("{here}/ops.csv", "B"),
    "score --conventions": ("{here}/ops.csv", "{here}/conventions.yaml"),
    "score --by": ("{here}/ops.csv", "dtype"),
    "score --scaling": ("{here}/collectives.csv", ""),
    "bands --judge": ("{here}/collectives.csv", ""),
    "compare --calibration": ("{here}/run", "{here}/calibration.yaml"),
    "compare --calibrate": ("{here}/run", "2"),
    "compare --with": ("{here}/run", "{here}/run"),
    "compare --report": ("{here}/run", "{here}/out.html"),
    "compare --trust": ("{here}/run", "B"),
    "design --device": ("--workload mlp --count 2", "t4"),
    "design --count": ("--workload mlp --count 2", "3"),
    "design --workload": ("--workload mlp --count 2", "alexnet"),
    "design --batch": ("--workload mlp --count 2", "64"),
    "design --out": ("--workload mlp --count 2", "{here}/out.json"),
    "describe --from": ("--gpu a100-sxm4-40gb --from {here}/topo.txt", "{here}/other.txt"),
    "describe --gpu": ("--from {here}/topo.txt --gpu a100-sxm4-40gb", "a100-sxm4-80gb"),
    "describe --nic": ("--from {here}/topo.txt --gpu a100-sxm4-40gb", "connectx-7-ndr"),
    "describe --out": ("--from {here}/topo.txt --gpu a100-sxm4-40gb", "{here}/out.yaml"),
    "check --topology": ("{here}/log.txt --topology dgx-h100", "dgx-a100-80gb"),
    "check --nodes": ("{here}/log.txt --topology dgx-h100", "2"),
    "check --fabric": ("{here}/hosts.txt --topology dgx-h100", "10Gbit/s"),
    "check --gpus": ("{here}/bare.txt --topology dgx-h100 --gpus 8", "4"),
    "check --collective": ("{here}/bare.txt --topology dgx-h100 --gpus 8", "reduce-scatter"),
    "check --nccl": ("{here}/bare.txt --topology dgx-h100 --gpus 8", "2.7"),
    "check --plot": ("{here}/log.txt --topology dgx-h100", "{here}/out.svg"),
    "trace --steps": ("{here}/trace.json --topology t4 --workload resnet18 --batch 2", "2"),
}
# Options not tried above, with the reason.
ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("--json", "--quiet", "--verbose", "--debug"), "says how things are printed"),
    "--bind-cores-to-rank": "without it, an answer is a refusal; tests of offload try it",
    "--fold": "the result is the same, which other tests say of every strategy",
    **dict.fromkeys(("--jobs", "--dask"), "say where work is done"),
    "--trust-code": "lets a file run code; tests of effects try it",
    **dict.fromkeys(("bands --trust", "compare --calibrated-by"), "need more rows than are here; tests of their own"),
    "score --baselines": "needs a published table with rows of it",
    **dict.fromkeys(("compare --topology", "compare --device"), "name what run.json names"),
    **dict.fromkeys(("bands --write", "fit --write"), "would write over the files that models read"),
    "sweep": "asks as simulate does, of which each option is tried; tests of its own",
    **dict.fromkeys(("calibrate", "certify"), "fits, which takes its time; tests of it change each option"),
    **dict.fromkeys(("check --report", "compare --report"), "writes a page; tests of pages read it"),
    "describe --force": "overwrites what was edited; a test of its own",
    "design --trust": "needs more rows than are here; a test of its own",
    **dict.fromkeys(("fit", "run", "cluster", "import"), "measures, or fits, for minutes; tests of their own"),
}
CALIBRATION = "schema_version: 1\ndevices:\n" + "".join(
    f"  {part}: {{compute: 0.5, bandwidth: 0.5, dispatch: 3.0}}\n" for part in ("v100-sxm2-16gb", "t4")
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the questions name."""
    folder = tmp_path_factory.mktemp("here")
    table = "machine,n_gpus,collective,bytes,time_s,trust\np3.16xlarge,8,all_reduce,1048576,0.0002,A\n"
    ops = "device,op,dtype,m,n,k,time_s,trust\nt4,linear,fp32,512,512,512,1e-4,A\nt4,linear,fp16,640,64,64,1e-5,B\n"
    ops += "t4,linear,fp16,64,64,64,1e-5,A\n"
    times = [(1 << 20, 1e-4), (1 << 24, 1e-3)]
    files = {
        "calibration.yaml": CALIBRATION,
        "conventions.yaml": "operators:\n  - when: {dtype: fp32}\n    set: {batch: 4}\n    source: a page\n",
        "collectives.csv": table + "p3.16xlarge,4,all_reduce,8388608,0.0004,B\n",
        "ops.csv": ops,
        "run/ops.csv": ops,
        "run/run.json": json.dumps(
            {"schema_version": 1, "finished": True, "machine": "m", "environment": {"device": "t4"}, "left": []}
        ),
        "topo.txt": NV12,
        "other.txt": "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)\nGPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)\n",
        "log.txt": as_log(times),
        "hosts.txt": as_log(times, hosts=2),
        "bare.txt": as_log(times, header=False),
        "trace.json": json.dumps(document(two_steps(marked=False))),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def options_of() -> dict[str, object]:
    """Return every option of every command, spelled as in the tables above."""
    found: dict[str, object] = {}
    for name in ("", *COMMANDS):
        command = _app([name])
        command = getattr(command, "commands", {}).get(name, command)
        found |= {f"{name} {p.opts[0]}".strip(): p for p in command.params if p.param_type_name == "option"}
    commands: Mapping[str, object] = validate.commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        found |= {f"{name} {p.opts[0]}": p for p in command.params if p.param_type_name == "option"}  # type: ignore[attr-defined]
    return found


def test_every_option_is_tried() -> None:
    """Each new option must be entered into one of the tables."""
    tried = {name.replace("--no-", "--") for name in (*SIMULATE, *VALIDATE)}
    known = options_of()
    for name in known:
        command, _, option = name.rpartition(" ")
        assert {name, command, option} & ELSEWHERE.keys() or name in tried, f"{name}: nothing says what it changes"
    assert not {name for name in tried if name not in known}


def said(program: str, words: list[str], here: Path) -> tuple[int, str]:
    """Return the exit status and everything that the command prints and writes."""
    before = set(here.rglob("*"))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(words) if program == "simulate" else run_app(validate, "validate", words)
    written = sorted(set(here.rglob("*")) - before)
    for file in written:
        if file.is_file():
            file.unlink()
    return status, out.getvalue() + "".join(map(str, written))


@functools.cache
def said_before(program: str, words: tuple[str, ...], here: Path) -> tuple[int, str]:
    """Return the same of a question that many options are tried on: it is answered once."""
    return said(program, list(words), here)


def asked(question: str, name: str, value: str, here: Path) -> tuple[list[str], list[str]]:
    """Return the words of the question, and those with the option added or its value replaced."""
    command, _, option = name.rpartition(" ")
    words = [command, *shlex.split(question)] if command else shlex.split(question)
    words = [word.replace("{here}", str(here)) for word in words]
    other = list(words)
    given = value.replace("{here}", str(here))
    if option in words and value and name != "describe --from":
        other[words.index(option) + 1] = given
    else:
        other += [option, given] if value else [option]
    return words, other


# By the log, so they are refused.
CONTRADICTED = ("check --nodes", "check --gpus", "check --collective", "check --topology")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SIMULATE, *VALIDATE])
def test_an_option_changes_the_answer(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "advised", without_advice)  # the answer itself is to change, not advice on it
    program = "validate" if name in VALIDATE else "simulate"
    question, value = {**SIMULATE, **VALIDATE}[name]
    words, other = asked(question, name, value, here)
    status, after = said(program, other, here)
    assert status in ((2,) if name in CONTRADICTED else (0, 3)), other  # 3: a log slower than healthy ones
    if name != "scenario --list":  # it makes up the question
        status, before = said_before(program, tuple(words), here)
        assert status in (0, 3) or name == "check --collective", words
        assert before != after
