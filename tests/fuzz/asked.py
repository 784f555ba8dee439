"""Damaged inputs of commands that search, list, run programs and scenarios: almost valid files and options."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz.damage import WORDS, mutated

_FILES = Path(__file__).resolve().parents[2] / "simulator" / "scenarios" / "files"
_PROGRAM = """\
schema_version: 1
name: p
software: {front_end: mxnet, cpu_queue: true, depth: 4}
program:
  - {tensor: x, shape: [64, 512], device: gpu0}
  - {tensor: w, size: 4 MB, device: cpu}
  - repeat: 20
    do:
      - {run: "op:linear,rows=64,inputs=512,outputs=512", reads: x, gives: h}
      - {run: {issue: 10 us, compute: 1 ms, return: 5 us}, reads: h, gives: y, holds: 1 MB, stream: s}
      - {copy: w, to: gpu0, gives: v, pinned: true, stream: c}
      - {record: e, stream: gpu0/c}
      - {read: y, form: numpy}
      - {python: 50 us}
  - {run: resnet18, batch: 2, mode: train, optimizer: sgd}
  - {exchange: all-reduce, size: 1 MB, gpus: 2, strategy: ring}
  - threads:
      - - {run: "op:linear,rows=8,inputs=8,outputs=8", device: gpu0, stream: a}
      - - {run: "op:linear,rows=8,inputs=8,outputs=8", device: gpu1, stream: b}
  - mark: half
  - wait: all
"""
_SCENARIO = """\
schema_version: 1
title: "A copy and a product"
chapter: "1.2"
order: 2
about: >
  Two of them.
assumed: >
  A T4
runs:
  copy: simulate --topology p3.2xlarge --workload copy:h2d,16MB
  product: simulate --topology t4 --workload op:linear,rows=64,inputs=512,outputs=512
  none: simulate --topology t4 --workload copy:h2d,16MB
answers:
  - name: copy
    value: copy.results[0].time_s
    unit: s
    measured: 0.0105 s
    within: 30 %
    source: somebody
  - name: against a product
    value: copy.results[0].time_s / product.results[0].time_s - 1
    unit: "1"
    ideal: "10 us + 1 ms"
    within: 0.1 %
    source: t1 + t2
  - name: how it ends
    value: none.exit_status
    unit: "1"
"""
# Runs of a scenario: most of them would have an effect, which is refused.
_RUNS = (
    "simulate --topology t4 --workload copy:h2d,16MB",
    "simulate best --topology p3.8xlarge --gpus 2 --workload lenet --global-batch 4 --jobs 1 --resume made-by-it",
    "simulate best --topology p3.8xlarge --workload lenet --global-batch 4 --dask tcp://127.0.0.1:9",
    "simulate --topology t4 --batch 2 --workload torch:evil:net:8",
    "simulate scale --topology p3.8xlarge --gpus 1,2 --workload lenet --batch 2 --plot made-by-it.svg",
    "simulate --topology p3.2xlarge --workload t.yaml",
)
_INPUT = """\
schema_version: 1
description: samples
source: "none"
samples: 50000
sample: 3 kB
pixels: 32x32
augment: no
disk: memory
"""
_CALIBRATION = """\
schema_version: 1
devices:
  v100-sxm2-16gb:
    compute: 0.97
    bandwidth: 1.02
    dispatch: 1.1
    by_class: {gemm: 1.05}
    host: {forward_s: 9.1e-06}
"""
_SIZES = ("0", "1", "2", "3", "8", "64", "-1", "1e3", "99999999", "x", "")
_BEST: tuple[tuple[str, Sequence[str]], ...] = (
    ("--top", _SIZES),
    ("--micro-batch", _SIZES),
    (
        "--parallel",
        ("tp=2", "pp=1", "tp=2,pp=2,zero=1", "fsdp", "dp", "tp=0", "ep=2", "vp=2", "loop", "tp=2,tp=4", "sp"),
    ),
    ("--recompute", ("none", "full", "selective", "x")),
    ("--precision", ("fp16", "amp-bf16", "int8", "x")),
    ("--optimizer", ("adam", "none", "x")),
    ("--seq-len", _SIZES),
    ("--image", _SIZES),
    ("--set", ("layers=2", "layers=0", "=", "heads=7", "classes=9999999")),
    ("--nccl", ("2.18", "x")),
    ("--calibration", ("/dev/null", "{calibration}")),
    ("--compile", ()),
    ("--fused-optimizer", ()),
    ("--json", ()),
)
_SCALE: tuple[tuple[str, Sequence[str]], ...] = (
    ("--micro-batches", _SIZES),
    ("--micro-batch", _SIZES),
    ("--global-batch", ("8", "64", "7", "0")),
    ("--strategy", ("ring", "nccl", "all", "tree,ring", "x", "parameter-server")),
    ("--overlap", ("none", "bucket:1MiB", "bucket:0", "none,bucket:1MiB")),
    ("--recompute", ()),
    *(each for each in _BEST if each[0] not in ("--top", "--micro-batch", "--recompute")),
    ("--plot", ("{here}/c.svg", "{here}/c.gif", "/nowhere/c.svg", "")),
)
_COUNTS = ("1,2", "1,2,4", "1..8", "2..8+2", "4..1", "0", "1,1", "..", "1..9999999", "3", "x", "1,2,4..16")
_LISTS: dict[str, tuple[tuple[str, Sequence[str]], ...]] = {
    "machines": (("--gpu", ("h100", "v100", "x", "")), ("--gpus", _SIZES), ("--nodes", _SIZES), ("--json", ())),
    "networks": (("--sample", ("images", "sequences", "x", "")), ("--json", ())),
    "parts": (("--kind", ("gpu", "link", "x", "")), ("--json", ())),
    "strategies": (("--json", ()),),
}
_AMISS: tuple[tuple[str, Sequence[str]], ...] = (
    (
        "--slow-link",
        ("gpu0-gpu1:0.5x", "gpu0-gpu1:0x", "gpu0-gpu1:0x@1ms..5ms", "gpu0-gpu1:2x", "gpu0-gpu1:0.5x@5ms..1ms"),
    ),
    ("--neighbour", ("gpu0-gpu1:5GB/s", "gpu0-gpu0:1GB/s", "cpu0-gpu1:1PB/s", "gpu1-gpu0:0GB/s")),
    ("--straggler", ("gpu0:1.5x", "gpu1:1e9x", "node0:2x", "gpu9:2x", "gpu0:nanx", "gpu0:2x,gpu0:3x")),
    ("--mtbf", ("10h", "1ns", "1ms", "1e9 s", "inf")),
    ("--checkpoint-time", ("5s", "1e9 s", "0s")),
    ("--checkpoint-every", _SIZES),
    ("--restart-time", ("60s", "1e9 s", "0s")),
    ("--lose", ("cpu0@1ms", "cpu0@0s", "cpu9@1ms", "cpu0@1e9s")),
    ("--servers", ("own", "workers", "cpu0", "cpu0,cpu0")),
    ("--staleness", ("2", "async", "0", "99999999999")),
    ("--divide", ("best", "best,cpu0", "even,cpu0")),
    ("--strategy", ("parameter-server", "nccl", "ring", "parameter-server-sharded")),
    ("--what-if", ()),
    ("--no-contention", ()),
    ("--parallel", ("fsdp", "tp=2", "pp=2", "dp", "loop")),
    ("--trace", ("{here}/t.json", "/nowhere/t.json", "{here}", "/dev/full")),
    ("--plot", ("{here}/t.svg", "/nowhere/t.svg", "{here}")),
    ("--json", ()),
)


def _chosen(options: Sequence[tuple[str, Sequence[str]]], rng: random.Random, folder: Path, most: int = 4) -> list[str]:
    words = []
    for name, values in rng.sample(list(options), rng.randint(0, min(most, len(options)))):
        words.append(name)
        if values:
            value = rng.choice(values) if rng.random() < 0.9 else rng.choice(WORDS).replace("\0", "")
            words.append(value.replace("{here}", str(folder)).replace("{calibration}", str(folder / "c.yaml")))
    return words


def _best(rng: random.Random, folder: Path) -> list[str]:
    (folder / "c.yaml").write_text(_CALIBRATION, encoding="utf-8")
    words = ["simulator", "best", "--topology", rng.choice(("p3.8xlarge", "t4", "dgx-h100")), "--jobs", "1"]
    words += [
        "--gpus",
        rng.choice(("2", "4", "1", "0-1", "9", "best:2")),
        "--workload",
        rng.choice(("resnet18", "gpt2")),
    ]
    return [*words, "--global-batch", rng.choice(("8", "4", "1", "7", "0", "99999999")), *_chosen(_BEST, rng, folder)]


def _scale(rng: random.Random, folder: Path) -> list[str]:
    (folder / "c.yaml").write_text(_CALIBRATION, encoding="utf-8")
    words = ["simulator", "scale", "--topology", rng.choice(("p3.8xlarge", "t4", "p3.16xlarge", "2 x t4"))]
    words += [rng.choice(("--gpus", "--gpus", "--nodes")), rng.choice(_COUNTS), "--workload", "resnet18"]
    return [
        *words,
        *(["--batch", rng.choice(("1", "2", "0"))] if rng.random() < 0.8 else []),
        *_chosen(_SCALE, rng, folder),
    ]


def _list(rng: random.Random, folder: Path) -> list[str]:
    which = rng.choice(tuple(_LISTS))
    some = rng.sample(
        ("h100", "ring", "8", "x", "\x1b[31m", "\u202e", "", "--", "a" * 500, "V100", "%s"), rng.randint(0, 2)
    )
    return ["simulator", which, *_chosen(_LISTS[which], rng, folder), *some]


def _amiss(rng: random.Random, folder: Path) -> list[str]:
    words = ["simulator", "--topology", rng.choice(("p3.8xlarge", "p3.16xlarge")), "--workload", "resnet18"]
    words += ["--batch", "2", *(["--gpus", rng.choice(("2", "4", "0,2"))] if rng.random() < 0.7 else [])]
    return [*words, *_chosen(_AMISS, rng, folder, 5)]


def _program(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "p.yaml"
    known = sorted((_FILES / "programs").glob("*.yaml"))
    text = _PROGRAM if rng.random() < 0.5 else rng.choice(known).read_text(encoding="utf-8")
    path.write_bytes(mutated(text.replace("../networks", str(_FILES / "networks")), rng))
    more = rng.choice(([], ["--json"], ["--device", "cpu0"], ["--threads", "2"], ["--compile"], ["--cuda-graph"]))
    return ["simulator", "--topology", rng.choice(("p3.8xlarge", "t4")), "--workload", str(path), *more]


def _scenario(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "s.yaml"
    text = _SCENARIO.replace("simulate --topology t4 --workload copy:h2d,16MB", rng.choice(_RUNS))
    path.write_bytes(mutated(text, rng))
    more = rng.choice(
        ([], [], ["--json"], ["--show"], ["--copy", str(folder / "c")], ["--plot", str(folder / "s.svg")])
    )
    return ["simulator", "scenario", str(path), *more]


def _loading(rng: random.Random, folder: Path) -> list[str]:
    which = rng.choice(("input", "calibration"))
    path = folder / f"{which}.yaml"
    path.write_bytes(mutated(_INPUT if which == "input" else _CALIBRATION, rng))
    more = rng.choice(("", "", ",workers=2", ",cache=memory", ",disk=ssd0", ",epochs=3")) if which == "input" else ""
    words = ["simulator", "--topology", "p3.2xlarge", "--workload", "resnet18", "--batch", "2"]
    return [*words, f"--{which}", f"{path}{more}"]


_RESUMED = (
    "best",
    "--topology",
    "p3.8xlarge",
    "--gpus",
    "2",
    "--workload",
    "resnet18",
    "--global-batch",
    "4",
    "--jobs",
    "1",
)


@functools.cache
def _search() -> str:
    """Return the file of a completed search."""
    from simulator.cli import run

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder) / "search"
        assert run([*_RESUMED, "-q", "--resume", str(file)]) == 0
        return file.read_text(encoding="utf-8")


def _resume(rng: random.Random, folder: Path) -> list[str]:
    path = folder / "search"
    path.write_bytes(mutated(_search(), rng))
    return ["simulator", *_RESUMED, "--resume", str(path)]


KINDS: dict[str, Callable[[random.Random, Path], list[str]]] = {
    "best": _best,
    "scale": _scale,
    "list": _list,
    "amiss": _amiss,
    "program": _program,
    "scenario": _scenario,
    "loading": _loading,
    "resume": _resume,
}
