"""Muon: momentum of matrices, orthogonalised in bf16, and Adam for the other parameters."""

from __future__ import annotations

import re
import shlex
import weakref
from math import prod
from pathlib import Path
from typing import Any

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.cli import run
from simulator.devices.predict import Device
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.questions.layout import Layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.search.parts import RankWork
from simulator.step.issue import launches_of
from simulator.step.memory import memory_need, state_bytes
from simulator.step.muon import WeightMatrix, calls, matrices_of, orthogonalised, working_bytes
from simulator.workload.kernels import Gemm
from simulator.workload.network import Network

MUON = StepOptions(precision="amp-bf16", optimizer="muon")
MEGATRON = StepOptions(precision="master-bf16", optimizer="muon", framework="megatron")
SIZES = (("layers", 2), ("hidden", 512), ("heads", 8), ("sequence_length", 64))
PRETRAIN = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 "
    "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 --bf16 "
    "--vocab-size 50257 "
)


def network(workload: str = "llama2-7b", options: StepOptions = MUON, **sizes: int | str) -> Network:
    asked = (*SIZES, *sizes.items())
    return Session().network(
        StepQuestion(where=Where("dgx-h100"), workload=workload, batch=1, options=options, sizes=asked, gpus=(0,))
    )


@pytest.fixture(scope="module")
def device() -> Device:
    return Session().device(Where("dgx-h100"))


def flop(matrix: WeightMatrix, options: StepOptions = MUON) -> float:
    return sum(kernel.flop for _, kernel in calls(matrix, options) if isinstance(kernel, Gemm))


def other_elements(net: Network) -> int:
    return sum(p.elements for p in net.parameters if p.name not in orthogonalised(net))


@pytest.mark.parametrize(("steps", "iterations"), [(None, 5), (1, 1), (7, 7)])
def test_products_of_a_step_have_the_flops_of_the_iterations(
    steps: int | None, iterations: int, device: Device
) -> None:
    net, options = network(), StepOptions(precision="amp-bf16", optimizer="muon", ns_steps=steps)
    matrices = [matrix for _, matrix in matrices_of(net, options)]
    per_iteration = sum(x.batch * (4 * x.rows**2 * x.columns + 2 * x.rows**3) for x in matrices)
    assert sum(flop(matrix, options) for matrix in matrices) == iterations * per_iteration
    assert all(x.rows <= x.columns for x in matrices)
    updates = [each for each in launches_of(device, net, options) if each.name.startswith("muon step of")]
    assert len(updates) == len(matrices) == 2 * 7  # queries, keys, values, output; gate, up, down
    assert sum(cost.flop for each in updates for cost in each.work.costs) >= iterations * per_iteration


@pytest.mark.parametrize("shape", [(96, 96), (64, 160), (160, 64)])
def test_flops_and_bytes_of_a_matrix_are_those_of_torch(shape: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    if not hasattr(torch.optim, "Muon"):
        pytest.skip("torch has Muon since 2.9")

    class Live(TorchDispatchMode):
        now = most = 0

        def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = call(*args, **kwargs or {})
            for storage in (x.untyped_storage() for x in tree_leaves(result) if isinstance(x, torch.Tensor)):
                if storage.nbytes() > 8 and storage._cdata not in known:
                    known[storage._cdata] = storage.nbytes()
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.freed, storage._cdata)
            self.most = max(self.most, self.now)
            return result

        def freed(self, place: int) -> None:
            self.now -= known.pop(place)

    weight = torch.nn.Parameter(torch.randn(shape))
    weight.grad = torch.randn(shape)
    update = torch.optim.Muon([weight])
    update.step()
    state = update.state[weight]["momentum_buffer"]
    known = {x.untyped_storage()._cdata: 0 for x in (weight, weight.grad, state)}
    with Live() as live:
        update.step()
    with FlopCounterMode(display=False) as counted:
        update.step()
    matrix = WeightMatrix(*sorted(shape))
    assert counted.get_total_flops() == flop(matrix)
    assert live.most == 8 * prod(shape) + 4 * matrix.rows**2
    net = network(layers=1)
    largest = max((x for _, x in matrices_of(net, MUON)), key=lambda x: x.elements)
    of_matrix, of_others = 8 * largest.elements + 4 * largest.rows**2, 4 * other_elements(net)
    assert working_bytes(net, MUON) == max(of_matrix, of_others)


def test_states_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("torch has Muon since 2.9")
    hidden, inner, vocabulary = 64, 192, 1000
    net = network(hidden=hidden, heads=4, inner=inner, vocabulary=vocabulary)
    block = [(hidden, hidden)] * 4 + [(inner, hidden)] * 2 + [(hidden, inner)]
    by_muon = [torch.nn.Parameter(torch.zeros(shape)) for shape in block * 2]
    by_adam = [torch.nn.Parameter(torch.zeros(n)) for n in [vocabulary * hidden] * 2 + [hidden] * 5]
    assert sum(p.numel() for p in by_muon + by_adam) == net.trained_count
    rules = torch.optim.Muon(by_muon), torch.optim.AdamW(by_adam)
    for rule, parameters in zip(rules, (by_muon, by_adam), strict=True):
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        rule.step()
    kept = [x for rule in rules for state in rule.state.values() for x in state.values() if x.numel() > 1]
    assert state_bytes(net, MUON) == sum(x.numel() * x.element_size() for x in kept)
    shapes = sorted(tuple(sorted(p.shape)) for p in by_muon)
    assert sorted((x.rows, x.columns) for _, x in matrices_of(net, MUON)) == shapes


def test_embeddings_output_layer_and_norms_are_adams() -> None:
    net = network()
    hidden = sum(x.elements for _, x in matrices_of(net, MUON))
    assert hidden + other_elements(net) == net.trained_count
    assert other_elements(net) == 2 * 32000 * 512 + (2 * 2 + 1) * 512


def test_a_step_holds_weights_gradients_one_moment_and_casts(device: Device) -> None:
    """Of 69 billion parameters on a GPU of eight, which all hold the same; DDP has its gradients again in buckets."""
    net = Session().network(StepQuestion(where=Where("dgx-h100"), workload="llama2-70b", batch=1, options=MUON))
    need = memory_need(net, MUON, device)
    n, others = net.trained_count, 2 * 32000 * 8192 + 161 * 8192
    assert need.peak == "in the update"
    assert (need.parameters_bytes, need.gradients_bytes) == (4 * n, 4 * n)
    assert need.optimizer_bytes == 4 * n + 4 * others
    assert need.working_bytes == 8 * 28672 * 8192 + 4 * 8192**2


def test_a_matrix_keeps_one_moment_less_than_adam(device: Device) -> None:
    net, adam = network(), StepOptions(precision="amp-bf16", optimizer="adam")
    hidden = net.trained_count - other_elements(net)
    assert state_bytes(net, adam) - state_bytes(net, MUON) == 4 * hidden
    assert memory_need(net, adam, device).optimizer_bytes - memory_need(net, MUON, device).optimizer_bytes == 4 * hidden


def test_megatron_splits_queries_from_keys_and_joins_a_gate_with_its_product() -> None:
    net = network(options=MEGATRON, kv_heads=2)
    shapes = [(x.rows, x.columns) for _, x in matrices_of(net, MEGATRON)][:5]
    inner = matrices_of(net, MUON)[-1][1].columns
    assert shapes == [(512, 512), (128, 512), (128, 512), (512, 512), (512, 2 * inner)]
    fused = network("gpt2", options=MEGATRON)
    assert [(x.rows, x.columns) for _, x in matrices_of(fused, MEGATRON)][:4] == [(512, 512)] * 4
    assert [(x.rows, x.columns) for _, x in matrices_of(fused, MUON)][:2] == [(512, 1536), (512, 512)]


def test_experts_are_a_batch_or_one_matrix_each() -> None:
    net = network("mixtral-8x7b")
    of_torch, of_megatron = ([x for _, x in matrices_of(net, options)] for options in (MUON, MEGATRON))
    assert {x.batch for x in of_torch} == {1, 8}
    assert {x.batch for x in of_megatron} == {1}
    assert sum(x.elements for x in of_torch) == sum(x.elements for x in of_megatron)


def test_more_iterations_take_longer_and_as_much_memory(device: Device) -> None:
    found = [
        simulate("dgx-h100", workload="gpt2", batch=1, gpus=1, optimizer="muon", **more)  # type: ignore[arg-type]
        for more in ({"ns_steps": 3}, {}, {"ns_steps": 8})
    ]
    times = [each.step_time_s for each in found]
    assert times == sorted(times)
    assert times[0] < times[1] < times[2]
    assert len({each.tightest.need.total_bytes for each in found}) == 1


def test_replicas_share_whole_matrices_out() -> None:
    """Which Megatron-LM's LayerWiseDistributedOptimizer does, whose gradients are summed whole, then gathered."""
    sizes = {"layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 16, "inner": 5632, "sequence_length": 256}
    asked = {"workload": "llama2-7b", "batch": 1, "sizes": sizes, "framework": "megatron"}
    whole, shared, adam = (
        simulate("dgx-h100", **asked, **more)  # type: ignore[arg-type]
        for more in ({"optimizer": "muon"}, {"optimizer": "muon", "parallel": "zero=1"}, {"parallel": "zero=1"})
    )
    need, own, of_adam = (each.tightest.need for each in (whole, shared, adam))
    matrices = 4 * 6  # of 8 ranks: 3 each
    assert own.optimizer_bytes == pytest.approx(need.optimizer_bytes / 8)
    assert own.optimizer_bytes < of_adam.optimizer_bytes
    assert own.gradients_bytes == need.gradients_bytes
    layout = Layout(zero=1).on(8)
    assert [layout.kept_share(1e6, 0, n) for n in (matrices, 8, 9, 4)] == [1 / 8, 1 / 8, 2 / 9, 1 / 4]
    assert shared.step_time_s < whole.step_time_s


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"parallel": "fsdp"}, "takes whole matrices, and parallel='fsdp' shards them"),
        ({"parallel": "zero=2"}, "takes whole matrices, and parallel='zero=2' shards them"),
        ({"fused_optimizer": True}, "goes from tensor to tensor"),
        ({"framework": "tensorflow"}, "is not modelled in framework='tensorflow'"),
        ({"framework": "megatron", "precision": "master-fp16"}, "has it without precision='master-fp16'"),
        ({"offload": "optimizer", "gpus": 1}, "does not run on the host; adam does"),
        ({"strategy": "parameter-server"}, "updates on GPUs, and parameter servers are CPUs"),
        ({"optimizer": "adam", "ns_steps": 3}, "is about Muon's iterations; add optimizer='muon'"),
        ({"topology": "dgx-2"}, "no peak rate for bf16"),
        ({"workload": "resnet50"}, "updates matrices of hidden layers, and resnet50 has none"),
    ],
)
def test_what_muon_does_not_update_is_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        simulate(**{"topology": "dgx-h100", "workload": "gpt2", "batch": 2, "optimizer": "muon", **asked})


def test_a_search_adds_up_what_muon_keeps_of_blocks() -> None:
    session = Session()
    sizes = (("layers", 8), ("hidden", 512), ("heads", 8), ("sequence_length", 64))
    question = StepQuestion(where=Where("dgx-a100-80gb"), workload="llama2-7b", batch=1, sizes=sizes, options=MUON)
    part = RankWork(session, question, session.group(question.where, None))
    assert part.short.left_out
    found, net = part.held(range(part.short.unit_count)), session.network(question)
    assert found.state_bytes == state_bytes(net, MUON)
    assert found.matrices == len(matrices_of(net, MUON))
    assert found.working_bytes == pytest.approx(working_bytes(net, MUON), rel=1e-3)  # norms of other blocks


def test_a_launch_line_says_iterations_and_only_blocks_of_ranks() -> None:
    line = f"{PRETRAIN} --tensor-model-parallel-size 2 --optimizer muon --muon-num-ns-steps 6"
    found = read_launch(line).options
    assert (found["optimizer"], found["ns_steps"]) == ("muon", "6")
    assert "fused_optimizer" not in found
    assert found["parallel"] == "tp=2,dp=4"
    for said in ("--use-distributed-optimizer", "--optimizer dist_muon", "--use-layer-wise-distributed-optimizer"):
        asked = read_launch(f"{line} {said}").options
        assert (asked["optimizer"], asked["parallel"]) == ("muon", "tp=2,dp=4,zero=1")
    with pytest.raises(InputError, match="distributed: is not modelled; blockwise"):
        read_launch(f"{line} --muon-tp-mode distributed")
    assert read_launch("torchrun train.py --model gpt2 -b 8 --optimizer muon").options["optimizer"] == "muon"
    factory = "torchrun --nproc-per-node 8 train.py --stage pt --model_name_or_path gpt2 --use_muon true"
    assert read_launch(f"{factory} --per_device_train_batch_size 1").options["optimizer"] == "muon"


def test_deepspeeds_own_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Muon"}}')
    with pytest.raises(InputError, match="Muon: over the shards of DeepSpeed is not modelled"):
        read_launch(f"deepspeed train.py --model_name_or_path gpt2 --deepspeed {tmp_path}/ds.json")


@pytest.mark.parametrize("size", [("layers", 2), ("hidden", 65536)])  # the second does not fit
def test_no_shards_of_matrices_are_advised(size: tuple[str, int]) -> None:
    sizes = tuple(dict([*SIZES, size]).items())
    question = StepQuestion(where=Where("dgx-h100"), workload="llama2-7b", batch=1, sizes=sizes, options=MUON)
    told = repr((found := Session().advised(question)).remedies)
    assert found.tightest.need.fits == (size[0] == "layers")
    assert not {"zero=2", "zero=3", "fsdp"} & {*re.split(r"[ ,)']", told)}


def test_a_search_and_its_lines_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    command = (
        "best --topology dgx-h100 --workload llama2-7b --set layers=2 --set hidden=1024 --set heads=8 "
        "--set sequence_length=512 --global-batch 8 --framework megatron --optimizer muon --ns-steps 10 --emit megatron"
    )
    assert run(shlex.split(command)) == 0
    told = capsys.readouterr().out
    assert re.search(r"--optimizer muon \\\s+--muon-num-ns-steps 10", told)
    assert "--optimizer muon --ns-steps 10" in told


def test_shared_out_matrices_are_megatrons_layer_wise_optimizer(capsys: pytest.CaptureFixture[str]) -> None:
    """Older checkouts refuse Muon with the flat buffer's shards."""
    asked = "--topology dgx-h100 --workload gpt3-125m --batch 1 --framework megatron --precision master-bf16"
    assert run(shlex.split(f"{asked} --parallel zero=1 --optimizer muon --emit megatron")) == 0
    told = capsys.readouterr().out
    assert "--optimizer dist_muon" in told
    assert "--use-distributed-optimizer" not in told


def test_fewer_iterations_are_not_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (
        "sweep --topology dgx-h100 --gpus 1 --workload gpt2 --batch 1 --optimizer muon --over ns-steps=1,5 --jobs 1 -q"
    )
    assert run(shlex.split(asked)) == 0
    told = capsys.readouterr().out
    assert "values of ns-steps do not compute alike, so none is recommended" in told
