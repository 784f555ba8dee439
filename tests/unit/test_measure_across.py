"""Steps over several ranks in torch: replicas and shards give the gradients of one device, in the same units."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

import torch.distributed as dist  # noqa: E402

from simulator.cli.written import CommandOptions  # noqa: E402
from simulator.errors import InputError  # noqa: E402
from simulator.workload.described import network_document  # noqa: E402
from simulator.workload.find import find_network  # noqa: E402
from simulator.workload.network import unit_elements  # noqa: E402
from validate.cli.asking import asked_steps, keep  # noqa: E402
from validate.kinds.steps import read_step  # noqa: E402
from validate.machine.measure.built.description import DescriptionFile, read_description  # noqa: E402
from validate.machine.measure.built.module import build_module  # noqa: E402
from validate.machine.measure.case import Unavailable  # noqa: E402
from validate.machine.measure.cases.step_shapes import MeasuredStep  # noqa: E402
from validate.machine.measure.cases.stepping import Stepper, _blocks, across  # noqa: E402
from validate.machine.measure.cases.steps import read_asked  # noqa: E402
from validate.machine.measure.ranks import RankProcesses  # noqa: E402
from validate.tables.cells import NotScored  # noqa: E402
from validate.tables.names import DeviceNames, MachineNames, RowNames  # noqa: E402

TINY: dict[str, int | str] = {"layers": 2, "hidden": 32, "heads": 4, "vocabulary": 50, "dropout": 0}
RANKS = 4
ALIKE = """
schema_version: 1
name: alike
input: {features: 8}
layers:
  - name: blocks
    repeat: 2
    layers: [{kind: linear, outputs: 8}, {kind: relu}]
"""


def written_out(folder: Path, name: str = "gpt2", **settings: int | str) -> DescriptionFile:
    sizes: dict[str, int | str] = {**TINY, **settings}
    network = find_network(name, training=True, sequence_length=8, settings=sizes).build(2)
    (folder / "x.network.json").write_text(json.dumps(network_document(network)), encoding="utf-8")
    read_description.cache_clear()
    return DescriptionFile(str(folder), "x.network.json")


# -- the units of shards ---------------------------------------------------------------


@pytest.mark.slow
def test_the_blocks_that_are_sharded_are_those_that_the_simulator_gathers(tmp_path: Path) -> None:
    found = written_out(tmp_path).read()
    module = build_module(found, torch.device("meta"), in_blocks=True).module
    network = find_network("gpt2", training=True, sequence_length=8, settings=TINY).build(2)
    theirs = Counter(count for block, count in unit_elements(network).items() if block)
    assert Counter(sum(p.numel() for p in block.parameters()) for block in _blocks(module)) == theirs
    assert len(_blocks(module)) == 2


def test_a_parameter_that_blocks_share_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(ALIKE, encoding="utf-8")
    document = network_document(find_network(str(tmp_path / "net.yaml"), training=True).build(2))
    linear = [layer for layer in document["layers"] if layer["operator"] == "Linear"]
    linear[1]["parameters"] = linear[0]["parameters"]
    (tmp_path / "x.network.json").write_text(json.dumps(document), encoding="utf-8")
    read_description.cache_clear()
    with pytest.raises(Unavailable, match="shared between blocks"):
        build_module(DescriptionFile(str(tmp_path), "x.network.json").read(), torch.device("meta"), in_blocks=True)


# -- over ranks ------------------------------------------------------------------------


def _gradients(stepper: Stepper) -> dict[int, list[Any]]:
    """Return the gradients by number of elements, which identifies a parameter whatever its name."""
    found: dict[int, list[Any]] = {}
    for parameter in stepper.example.module.parameters():
        gradient = parameter.grad
        whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        found.setdefault(whole.numel(), []).append(whole.detach().clone().flatten())
    return found


def _feed(stepper: Stepper, rank: int) -> None:
    torch.manual_seed(100 + rank)
    fed = tuple(torch.randint(8, x.shape) for x in stepper.example.inputs)
    stepper.example = stepper.example._replace(inputs=fed)


def spread_step(rank: int, count: int, shape: MeasuredStep) -> tuple[float, int, int]:
    """Return the largest deviation of gradients from one device's, and the elements that this rank and all hold."""
    torch.manual_seed(0)
    stepper = Stepper(shape, torch.device("cpu"), lambda module: across(module, shape, torch.device("cpu")))
    _feed(stepper, rank)
    stepper.train()
    found = _gradients(stepper)
    alone = replace(shape, n_gpus=1, shards=0, recompute="", sums_in_fp32=False, gathers_in_fp32=False, micro_batches=1)
    wanted: dict[int, list[Any]] = {}
    for other in range(count):
        torch.manual_seed(0)
        reference = Stepper(alone, torch.device("cpu"))
        _feed(reference, other)
        reference.clear()
        reference.forward().backward()
        for size, gradients in _gradients(reference).items():
            mean = wanted.setdefault(size, [0.0] * len(gradients))
            wanted[size] = [a + b * shape.micro_batches / count for a, b in zip(mean, gradients, strict=True)]
    assert {size: len(of) for size, of in found.items()} == {size: len(of) for size, of in wanted.items()}
    worst = max(float((a - b).abs().max()) for size, of in found.items() for a, b in zip(of, wanted[size], strict=True))
    parameters = list(stepper.example.module.parameters())
    held = sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in parameters)
    dist.barrier()
    return worst, held, sum(p.numel() for p in parameters)


def exchanged(rank: int, count: int, shape: MeasuredStep) -> int:
    """Return the number of gradient all-reduces in a step of replicas."""
    del rank, count
    stepper = Stepper(shape, torch.device("cpu"), lambda module: across(module, shape, torch.device("cpu")))
    calls: list[int] = []

    def counted(state, bucket):  # type: ignore[no-untyped-def]  # torch wants its own annotations or none
        del state
        calls.append(bucket.index())
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    stepper.example.module.register_comm_hook(None, counted)
    stepper.train()  # torch rebuilds the buckets after the first step
    calls.clear()
    stepper.train()
    return len(calls)


@pytest.fixture(scope="module")
def ranks() -> Any:
    with closing(RankProcesses(RANKS, cuda=False)) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        {},
        {"micro_batches": 2},
        {"shards": RANKS},
        {"shards": 2},
        {"shards": RANKS, "micro_batches": 2, "recompute": "full"},
        {"shards": RANKS, "recompute": "selective", "sums_in_fp32": True},
        {"shards": RANKS, "policy": "amp-bf16", "gathers_in_fp32": True},
    ],
)
def test_replicas_and_shards_have_the_gradients_of_one_device(ranks: RankProcesses, way: Any, tmp_path: Path) -> None:
    shape = MeasuredStep("gpt2", 2, optimizer="sgd", n_gpus=RANKS, network=written_out(tmp_path), **way)
    found = ranks.run(spread_step, shape)
    assert max(worst for worst, _, _ in found) < 1e-5
    whole = found[0][2]
    for _, held, _ in found:
        assert held == pytest.approx(whole / (shape.shards or 1), rel=0.05)


def groups_made(rank: int, count: int, shape: MeasuredStep) -> list[int]:
    """Return the number of process groups of this rank after building the step once, and again."""
    found = []
    for _ in range(2):
        Stepper(shape, torch.device("cpu"), lambda module: across(module, shape, torch.device("cpu"))).train()
        found.append(len(dist.distributed_c10d._world.pg_map))
    return found


@pytest.mark.slow
def test_a_second_step_in_shards_makes_no_groups_of_its_own(ranks: RankProcesses, tmp_path: Path) -> None:
    # Each process group has NCCL communicators on its GPU, which would take memory from all later cases.
    shape = MeasuredStep("gpt2", 2, optimizer="sgd", n_gpus=RANKS, network=written_out(tmp_path), shards=2)
    once, twice = ranks.run(groups_made, shape)[0]
    assert twice == once


@pytest.mark.slow
def test_replicas_sum_after_the_last_micro_batch_alone_and_in_buckets_as_asked(
    ranks: RankProcesses, tmp_path: Path
) -> None:
    shape = MeasuredStep("gpt2", 2, optimizer="sgd", n_gpus=RANKS, network=written_out(tmp_path))
    small = replace(shape, bucket=1 << 14)
    buckets = ranks.run(exchanged, small)[0]
    assert buckets > 2
    assert ranks.run(exchanged, replace(small, micro_batches=3))[0] == buckets
    assert ranks.run(exchanged, replace(shape, overlaps=False))[0] == 1


# -- in the words of simulate ----------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ({"parallel": ("dp,fsdp",)}, "4"),
        ({"parallel": ("fsdp=2",), "reduce_fp32": True, "precision": "bf16"}, "4"),
        ({"overlap": "none,bucket:1MB", "micro_batches": "2"}, "8"),
        ({"parallel": ("fsdp",), "recompute": True, "nodes": "2"}, None),
        ({"parallel": ("fsdp",), "precision": "amp-bf16", "gather_fp32": True}, "4"),
    ],
)
def test_the_row_asks_what_simulate_was_asked(words: Any, gpus: str | None, tmp_path: Path) -> None:
    written = CommandOptions(
        topology="dgx-h100", workload="gpt2", seq_len="16", batch="2", gpus=gpus, sizes=("layers=2",), **words
    )
    asked = asked_steps(written, None)
    for each in asked:
        keep(each, tmp_path)
    shapes = read_asked(tmp_path)
    assert len(shapes) == len(asked)
    names = RowNames(MachineNames("dgx-h100"), DeviceNames(), folder=str(tmp_path))
    for each, shape in zip(asked, shapes, strict=True):
        nodes = each.question.where.nodes or 1
        row = {"machine": "dgx-h100", "software": "torch 2.13", **replace(shape, n_nodes=nodes).cells()}
        question: Any = read_step(lambda column, row=row: str(row.get(column, "")), names).question  # type: ignore[misc]
        assert question.layout.on(shape.n_gpus) == each.question.layout.on(shape.n_gpus)
        for name in (
            "options",
            "micro_batches",
            "batch",
            "gpus",
            "bucket_bytes",
            "sums_in_fp32",
            "gathers_in_fp32",
            "prefetches",
        ):
            assert getattr(question, name) == getattr(each.question, name), name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"parallel": ("tp=2",)}, "Megatron-LM"),
        ({"parallel": ("zero=1",)}, "zero=3"),
        ({"parallel": ("dataparallel",)}, "one process"),
        ({"reduce_fp32": True}, "sums_in_fp32"),
        ({"gpus": "1,3"}, "is measured on the first GPUs"),
        ({"gpus": "8"}, "--prepare"),
    ],
)
def test_what_torch_alone_does_not_do_is_refused_in_a_line(words: Any, said: str) -> None:
    written = CommandOptions(topology="dgx-h100", workload="gpt2", seq_len="16", batch="2", gpus="4").but(**words)
    with pytest.raises(InputError, match=said) as caught:
        asked_steps(written, 4)
    assert "\n" not in caught.value.spelt("command")


def test_ranks_that_share_the_processors_of_one_machine_are_not_predicted_as_one_device() -> None:
    row = {"machine": "x", "n_gpus": "2", "model": "lenet", "phase": "train", "dtype": "fp32", "batch_per_gpu": "2"}
    names = RowNames(MachineNames("xeon-e5-2686-v4"))
    with pytest.raises(NotScored, match="2 ranks share"):
        read_step(lambda column: {**row, "sync": "ddp"}.get(column, ""), names)
    assert read_step(lambda column: {**row, "n_gpus": "0"}.get(column, ""), names).question
