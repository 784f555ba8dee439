"""Offload: the host holds the optimiser's state, or the parameters too, and its CPUs update."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.devices.cpu.memory import bandwidth
from simulator.devices.dispatch import dispatch_time
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError
from simulator.plan.plan import Work
from simulator.questions.layout import Layout
from simulator.questions.options import StepOptions
from simulator.questions.step import Offload, StepQuestion
from simulator.questions.where import Where
from simulator.results.offload import OffloadRun
from simulator.results.training import TrainingResult
from simulator.topology.catalogue import builtin_folder
from simulator.training.worker import ON_CPU, TO_CPU, TO_GPU, LaunchLabel
from simulator.workload.kernels import Streaming
from simulator.workload.network import unit_elements
from simulator.workload.operators import Copy

SESSION = Session()
OPTIONS = StepOptions(precision="master-fp16", optimizer="adam", fused_optimizer=True)
SIZES = (("layers", 4), ("hidden", 512), ("heads", 8), ("vocabulary", 1024), ("loss", 0))
ZERO2, ZERO3 = Layout(zero=2), Layout(zero=3)


def asked(offload: Offload = "optimizer", machine: str = "dgx-1-v100-32gb", **more: Any) -> StepQuestion:
    """Return a step of a small GPT on *machine*; on one GPU, if *more* names no layout."""
    alone: dict[str, Any] = {} if "layout" in more or "gpus" in more else {"gpus": (0,)}
    options = OPTIONS if offload != "optimizer+parameters" else replace(OPTIONS, framework="deepspeed-zero3")
    fields = {"options": options, "sizes": SIZES, "bind_cores": not alone and offload != "none", **alone, **more}
    return StepQuestion(where=Where(machine), workload="gpt2", batch=1, offload=offload, **fields)


def ran(question: StepQuestion) -> OffloadRun:
    found = SESSION.step(question).offload
    assert found is not None
    return found


def elements(question: StepQuestion) -> int:
    return SESSION.network(question).trained_count


def activities(question: StepQuestion, stage: str) -> list[tuple[float, float]]:
    timeline = SESSION.step(question).timeline
    return [(s.start_s, s.end_s) for t, s in zip(timeline.plan.tasks, timeline.spans, strict=True) if t.stream == stage]


# -- what is moved ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offload", "framework", "count", "down", "up"),
    [
        ("optimizer", "pytorch", 1, 4, 2),  # fp32 gradients; half-precision parameters
        ("optimizer", "pytorch", 3, 2 + 2 + 4, 2 + 2 + 2),  # sums are fetched and sent back
        ("optimizer+parameters", "deepspeed-zero3", 1, 2 + 4, 2),  # and each unit's parameters
        ("optimizer+parameters", "deepspeed-zero3", 2, 2 + 2 + 4, 2 + 2),
    ],
)
def test_bytes_are_those_of_the_sources(offload: Offload, framework: Any, count: int, down: int, up: int) -> None:
    question = asked(offload, options=replace(OPTIONS, framework=framework), micro_batches=count)
    n, found = elements(question), ran(question)
    gathered = 0.0
    if offload == "optimizer+parameters":  # blocks forward and backward; what is outside once
        units = unit_elements(SESSION.network(question))
        gathered = count * (2 * sum(units.values()) - units[""]) * 2
    assert found.to_host_bytes == pytest.approx(down * n)
    assert found.to_device_bytes == pytest.approx(up * n + gathered)


def test_ranks_move_their_shards() -> None:
    question = asked(layout=ZERO2, round_robin=True)
    found = ran(question)
    assert found.to_host_bytes == pytest.approx(4 * elements(question) / 8)
    assert found.to_device_bytes == pytest.approx(2 * elements(question) / 8)


def test_each_gradient_is_checked_once_by_the_rank_that_has_it() -> None:
    for more, ranks in (
        ({}, 1),
        ({"layout": ZERO2, "round_robin": True}, 8),
        ({"layout": ZERO2, "bucket_bytes": 0.0}, 8),
    ):
        question = asked(**more, micro_batches=2)
        tasks = SESSION.step(question).timeline.plan.tasks
        checks = [t.about.issue for t in tasks if isinstance(t.about, LaunchLabel) and "checked" in t.about.issue.name]
        on_device = checks[::2]  # each is launched, too
        moved = sum(cost.bytes for issue in on_device for cost in issue.work.costs)
        assert moved == pytest.approx(52 * elements(question) / ranks, rel=1e-3)
        tensors = sum(p.trained for p in SESSION.network(question).parameters)
        call_s = dispatch_time(SESSION.device(question.where), Copy(1), "fwd")
        assert sum(issue.host_s for issue in on_device) == pytest.approx(9 * tensors / ranks * call_s, rel=1e-3)


def test_a_copy_takes_the_time_of_its_link() -> None:
    question = asked(bucket_bytes=0.0)
    ((start_s, end_s),) = activities(question, TO_CPU)
    router = SESSION.router(question.where)
    gpu = SESSION.machine(question.where).gpus[0]
    route = router.route(gpu, router.nearest_cpu(gpu) or 0)
    assert end_s - start_s == pytest.approx(4 * elements(question) / route.bandwidth_Bps + route.latency_s)


def test_gpus_below_one_switch_share_its_link() -> None:
    """gpu0 and gpu1 of a DGX-1 are below one PCIe switch, gpu0 and gpu2 are not."""
    near, far = (ran(asked(layout=ZERO2, gpus=gpus, round_robin=True)) for gpus in ((0, 1), (0, 2)))
    assert near.to_host_s == pytest.approx(2 * far.to_host_s, rel=0.05)


def test_a_shard_that_is_contiguous_is_copied_by_one_rank_after_the_other() -> None:
    small = 1e5  # of many buckets in a shard
    one = asked(layout=ZERO2, gpus=(0, 2), bucket_bytes=small)
    all_together, in_turn = ran(replace(one, round_robin=True)), ran(one)
    assert in_turn.to_host_s == pytest.approx(2 * all_together.to_host_s, rel=0.05)
    assert in_turn.to_host_bytes == pytest.approx(all_together.to_host_bytes)
    below_one_switch = replace(one, gpus=(0, 1))  # where those that copy together share the link
    assert ran(below_one_switch).to_host_s == pytest.approx(in_turn.to_host_s, rel=0.05)
    whole = replace(one, bucket_bytes=0.0)  # one bucket holds all shards
    assert ran(whole).to_host_s == pytest.approx(ran(replace(whole, round_robin=True)).to_host_s)


# -- the update ------------------------------------------------------------------------


def test_the_update_is_three_passes_over_the_memory_of_a_socket() -> None:
    question = asked()
    n = elements(question)
    cpu = SESSION.places(question.where).host_of(SESSION.machine(question.where).node("cpu0").index)
    passes = [
        Streaming("mul_scalar_inplace", n, 4 * n, 4 * n),
        Streaming("adam_step", n, 16 * n, 12 * n),
        Streaming("copy", n, 4 * n, 2 * n),
    ]
    assert ran(question).update_s == pytest.approx(sum(kernel_cost(cpu, each, cold=1.0).time_s for each in passes))
    assert 42 * n / cpu.memory_bandwidth_Bps < ran(question).update_s


@pytest.mark.parametrize("gpus", [(0, 1), (0, 4), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_bound_ranks_divide_all_cores_in_their_order(gpus: tuple[int, ...]) -> None:
    """Half of them have the first socket, wherever their GPUs are, and share its memory: two sockets halve the time."""
    alone, several = (ran(asked(**more)).update_s for more in ({}, {"layout": ZERO2, "gpus": gpus}))
    assert several == pytest.approx(alone / 2, rel=0.02)


def test_several_ranks_of_a_host_are_refused_unless_they_have_cores_of_their_own() -> None:
    bound = asked(layout=ZERO2, gpus=(0, 4))
    with pytest.raises(InputError, match=r"2 ranks share a host's cores.* add bind_cores if each has its own"):
        SESSION.step(replace(bound, bind_cores=False))
    of_each_host = {"where": Where("dgx-1-v100-32gb", nodes=2), "gpus": (0, 8)}
    assert ran(replace(bound, bind_cores=False, **of_each_host)).update_s > 0.0  # one rank has a host alone


def test_pinned_memory_of_one_node_serves_the_threads_of_all(tmp_path: Path) -> None:
    """26 of 42 bytes of an element lie on the node of the thread that pinned them; moments lie on all of a rank's."""
    text = Path(builtin_folder(), "dgx-1-v100-32gb.yaml").read_text(encoding="utf-8")
    path = tmp_path / "four.yaml"
    path.write_text(text.replace("memory_size: 256 GB", "memory_size: 256 GB, numa_nodes: 4"), encoding="utf-8")
    for more, nodes in (
        ({}, 4),  # one rank has a socket
        ({"layout": ZERO2, "gpus": (0, 4)}, 4),
        ({"layout": ZERO2, "gpus": (0, 1, 4, 5)}, 2),  # two ranks have two nodes each
        ({"layout": ZERO2}, 1),
    ):
        one, several = (ran(asked(machine=machine, **more)).update_s for machine in ("dgx-1-v100-32gb", str(path)))
        assert several == pytest.approx(one * (nodes * 26 / 42 + 16 / 42), rel=1e-3)


def test_an_update_loads_the_cores_and_the_memory_of_its_sockets() -> None:
    machine = SESSION.machine(Where("dgx-1-v100-32gb"))
    tasks = SESSION.step(asked(layout=ZERO2, gpus=(0, 1, 2))).timeline.plan.tasks
    (works,) = [task.parts for task in tasks if task.stream == ON_CPU]
    found = {resource: share for work in works if isinstance(work, Work) for resource, share in work.loads}
    buses = [machine.memory_bus[machine.node(name).index] for name in ("cpu0", "cpu1")]
    assert {resource: share for resource, share in found.items() if isinstance(resource, str)} == {
        "cpu0:cores": 2.0,
        "cpu1:cores": 1.0,
    }
    assert found[buses[0]] == pytest.approx(2 * found[buses[1]])
    assert 0.9 < found[buses[1]] <= 1.0


def test_stage_3_copies_updated_parameters_from_pageable_memory() -> None:
    def up_s(layout: Layout) -> float:
        start_s, end_s = activities(asked(layout=layout, gpus=(0, 2), prefetches=False), TO_GPU)[-1]
        return end_s - start_s

    question = asked()
    cpu = SESSION.places(question.where).host_of(SESSION.machine(question.where).node("cpu0").index, 1)
    thread_Bps = bandwidth(cpu, float("inf"), 1) / 2
    assert up_s(ZERO3) == pytest.approx(2 * elements(question) / 2 / thread_Bps, rel=1e-3)
    assert up_s(ZERO2) < up_s(ZERO3)


def test_stages_follow_each_other() -> None:
    question = asked(layout=ZERO2, prefetches=False)
    ((start_s, end_s),) = activities(question, ON_CPU)
    assert max(end for _, end in activities(question, TO_CPU)) <= start_s
    assert activities(question, TO_GPU)[-1][0] >= end_s
    assert SESSION.step(question).step_time_s > activities(question, TO_GPU)[-1][1]  # parameters are gathered last


def test_the_host_waits_for_copies() -> None:
    run = ran(replace(asked("optimizer+parameters", "dgx-h100", layout=ZERO3), batch=32))
    assert run.exposed_copies_s > run.to_host_s


@pytest.mark.parametrize("layout", [ZERO2, ZERO3, Layout(zero=1)])
def test_equal_ranks_are_simulated_once(layout: Layout) -> None:
    question = asked(layout=layout, micro_batches=2)
    folded, apart = (SESSION.step(question, fold=fold) for fold in (True, False))
    assert folded.step_time_s == pytest.approx(apart.step_time_s)
    assert folded.offload is not None
    assert apart.offload is not None
    assert folded.offload.host_bytes == apart.offload.host_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("offload", "layout"), [("optimizer", ZERO2), ("optimizer+parameters", ZERO3)])
def test_micro_batches_that_repeat_pass_at_once(offload: Offload, layout: Layout) -> None:
    question = asked(offload, layout=layout, micro_batches=16)
    folded, apart = (SESSION.step(question, fold=fold) for fold in (True, False))
    assert folded.step_time_s == pytest.approx(apart.step_time_s, rel=1e-6)
    assert folded.offload is not None
    assert apart.offload is not None
    assert folded.offload.to_host_s == pytest.approx(apart.offload.to_host_s, rel=1e-6)
    assert folded.offload.exposed_copies_s == pytest.approx(apart.offload.exposed_copies_s, rel=0.01)


def test_the_account_of_a_step_names_the_host() -> None:
    from simulator.results.step_view import time_shares

    result = SESSION.step(asked(layout=ZERO2))
    shares = time_shares(result)
    assert result.offload is not None
    assert shares["cpu_update"] == pytest.approx(result.offload.update_s)
    assert shares["cpu_copies"] == pytest.approx(result.offload.exposed_copies_s)
    assert sum(shares.values()) == pytest.approx(result.step_time_s)
    assert result.band is None
    assert result.trust is None
    assert "no measured step with an optimiser on the host" in result.confidence.outside


def test_waits_for_launches_are_no_waits_for_copies() -> None:
    """Of a network of short kernels the device waits for launches while bytes move; the account adds up even so."""
    from simulator.results.step_view import time_shares

    options = StepOptions(precision="fp16", optimizer="adam", framework="megatron")
    question = replace(
        asked("optimizer+parameters", "dgx-h100", options=options, micro_batches=3), workload="resnet18", sizes=()
    )
    result = SESSION.step(question)
    assert sum(time_shares(result).values()) == pytest.approx(result.step_time_s, rel=1e-9)


# -- memory ----------------------------------------------------------------------------


def need(question: StepQuestion) -> Any:
    return SESSION.step(question).tightest.need


def test_the_device_holds_no_state_of_the_optimiser() -> None:
    for layout in (None, ZERO2, ZERO3):
        question = asked() if layout is None else asked(layout=layout)
        on_device = replace(question, offload="none", bind_cores=False, bucket_bytes=25 * 2**20)
        with_host, without = need(question), need(on_device)
        assert with_host.optimizer_bytes == 0.0 < without.optimizer_bytes
        assert with_host.total_bytes < without.total_bytes


def test_with_parameters_the_device_holds_gathered_units_alone() -> None:
    question = asked("optimizer+parameters")
    units = unit_elements(SESSION.network(question))
    outside = units.pop("")
    assert need(question).parameters_bytes == pytest.approx(2 * (outside + 2 * max(units.values())))


@pytest.mark.parametrize(
    ("offload", "framework", "count", "bytes_each"),
    [
        ("optimizer", "pytorch", 1, 16 + 2),  # fp32 parameters, gradients, two moments; the pinned buffer
        ("optimizer", "pytorch", 2, 16 + 2 + 2),  # and the sums of gradients
        ("optimizer+parameters", "deepspeed-zero3", 1, 16 + 2 + 2),
    ],
)
def test_the_memory_of_the_host(offload: Offload, framework: Any, count: int, bytes_each: int) -> None:
    question = asked(offload, options=replace(OPTIONS, framework=framework), micro_batches=count)
    assert ran(question).host_bytes == pytest.approx(bytes_each * elements(question))


def test_all_ranks_of_a_host_count() -> None:
    one, all_ranks = ran(asked()), ran(asked(layout=ZERO2))
    assert all_ranks.host_bytes == pytest.approx(one.host_bytes)  # shards of all are one whole
    replicas = ran(asked(layout=Layout(zero=2, shards=4)))
    assert replicas.host_bytes == pytest.approx(2 * one.host_bytes)
    assert one.host_available_bytes == 512e9


@pytest.mark.slow
def test_a_host_with_too_little_memory_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "4x-v100-sxm2-16gb-4xopa", "--gpus", "1", "--workload", "gpt2", "--batch", "1"]
    words += ["--seq-len", "64", "--offload", "optimizer+parameters", "--framework", "deepspeed-zero3", "--json"]
    for name, value in (("layers", 44), ("hidden", 6144), ("heads", 48)):
        words += ["--set", f"{name}={value}"]
    assert run(words) == 1
    out, err = capsys.readouterr()
    assert "more than the host has, 179 GiB (192 GB)" in " ".join(err.split())
    *changes, larger = json.loads(out)["remedies"]
    assert larger == "hosts with 405 GB of memory"  # 20 bytes of each of 20.24 billion parameters
    assert changes
    without = [word for at, word in enumerate(words) if "--gpus" not in words[max(0, at - 1) : at + 1]]
    for change in changes:  # it does not need more of the device, but of hosts
        assert run([*(without if "--gpus" in change else words), *change.split()]) == 0
        assert json.loads(capsys.readouterr().out)["results"][0]["offload"]["fits"]


def test_no_change_is_offered_that_leaves_the_host_with_too_little(capsys: pytest.CaptureFixture[str]) -> None:
    """The device lacks memory too, and recomputation would help it, but not the host."""
    words = ["--topology", "p3.2xlarge", "--workload", "llama2-7b", "--batch", "1", "--offload", "optimizer+parameters"]
    words += ["--framework", "deepspeed-zero3"]
    assert run(words) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert "12.1 GB more than the GPU has, 15.8 GiB (16.9 GB); needs 1" in err
    assert "69.3 GB more than the host has" in err
    found = err.partition("what would fit: ")[2].strip().split(" or ")
    assert found == [
        "--nodes 4 --parallel fsdp --recompute --bind-cores-to-rank",
        "a GPU with 29 GB, such as v100-pcie-32gb (34.1 GB) and hosts with 135 GB of memory",
    ]


# -- published, refused, advised -------------------------------------------------------


def test_ten_billion_parameters_on_one_v100() -> None:
    """Ren et al., "ZeRO-Offload", USENIX ATC 2021, abstract: 40 TFlops on one V100 for 10 billion parameters.

    FLOPs count recomputation there, a third more.  The batch is that of DeepSpeed's tutorial (docs/_tutorials/
    zero-offload.md), which trains the same network in Megatron-LM on the same GPU.
    """
    sizes = (("layers", 50), ("hidden", 4096), ("heads", 32), ("attention", "fused-softmax"))
    options = replace(OPTIONS, recompute="full", framework="megatron")
    step = SESSION.step(replace(asked(machine="dgx-2", sizes=sizes, options=options, bucket_bytes=1e9), batch=10))
    assert step.fits
    assert 4 / 3 * step.step.torch_flop / step.step_time_s == pytest.approx(40e12, rel=0.2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layout": Layout()}, "takes layout='zero=2' or layout='fsdp'"),
        (
            {"layout": ZERO2, "offload": "optimizer+parameters", "options": replace(OPTIONS, framework="megatron")},
            "which shards parameters",
        ),
        (
            {"options": OPTIONS, "offload": "optimizer+parameters"},
            "FSDP's CPUOffload take twice the predicted time; take framework='deepspeed-zero3' or offload='optimizer'",
        ),
        ({"options": replace(OPTIONS, optimizer="adam-loop", fused_optimizer=False)}, "torch's Adam, tensor by tensor"),
        ({"layout": Layout(pp=2)}, "is not modelled with layout='pp=2'"),
        ({"options": replace(OPTIONS, optimizer="lamb", fused_optimizer=False)}, "does not run on the host"),
        ({"options": replace(OPTIONS, mode="backward", fused_optimizer=False)}, "updates nothing"),
        ({"options": replace(OPTIONS, framework="caffe")}, "is DeepSpeed's and PyTorch's"),
        ({"options": replace(OPTIONS, cuda_graph=True)}, "no CUDA graph holds that"),
        ({"programs": 2}, "is not modelled with programs=2"),
        ({"round_robin": True}, "is about copies to the host"),
        ({"device": "cpu0", "gpus": None}, "the host's memory is its own"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        SESSION.step(asked(**changes))
    assert words in str(refused.value).replace("parallel", "layout") or words in str(refused.value)


def test_advice_names_the_step_without_it() -> None:
    result: TrainingResult = SESSION.advised(asked(layout=ZERO2, bucket_bytes=1e5))
    told = {other.change for other in result.alternatives}
    assert "--offload none" in told
    assert "--round-robin-gradients" in told
    assert not any("cuda-graph" in change for change in told)


def test_the_curve_over_nodes_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scale", "--topology", "dgx-2", "--nodes", "1,2", "--workload", "gpt2", "--batch", "1", "--json"]
    assert run([*words, "--parallel", "zero=2", "--offload", "optimizer", "--bind-cores-to-rank"]) == 0
    one, two = json.loads(capsys.readouterr().out)["points"]
    assert 0.0 < two["account_s"]["cpu_update"] < one["account_s"]["cpu_update"]  # twice as many hosts update


# -- disks -----------------------------------------------------------------------------


STAGE_3 = replace(OPTIONS, framework="deepspeed-zero3")
READ_BPS, WRITE_BPS = 8 * 3.0e9, 8 * 2.0e9  # of the eight disks of a DGX-2


@pytest.mark.parametrize(
    ("offload", "count", "read", "written"),
    [
        ("optimizer", 1, 4 + 8 + 4, 4 + 4 + 8),  # parameters, moments, gradients; gradients, parameters, moments
        ("optimizer+parameters", 1, 16 + 2 * 2, 16 + 2),  # and parameters for both passes; those outside of blocks stay
        ("optimizer+parameters", 3, 16 + 2 * 2 * 3, 16 + 2),
    ],
)
def test_bytes_on_disks_are_those_of_the_sources(offload: Offload, count: int, read: int, written: int) -> None:
    question = asked(offload, options=STAGE_3, offload_to="nvme", machine="dgx-2", micro_batches=count)
    run, n = ran(question), elements(question)
    stay = 2 * count * unit_elements(SESSION.network(question))[""] if "parameters" in offload else 0
    assert run.from_disks_bytes == pytest.approx(read * n - stay, rel=1e-3)
    assert run.to_disks_bytes == pytest.approx(written * n, rel=1e-3)
    assert run.from_disks_s == pytest.approx(run.from_disks_bytes / READ_BPS, rel=1e-3)
    assert run.to_disks_s == pytest.approx(run.to_disks_bytes / WRITE_BPS, rel=1e-3)
    assert run.disk_bytes == pytest.approx((16 + 2 * ("parameters" in offload)) * n)


def test_all_ranks_of_a_machine_share_its_disks() -> None:
    one, all_ranks = (
        ran(asked(options=STAGE_3, offload_to="nvme", machine="dgx-2", **more))
        for more in ({}, {"layout": ZERO3, "gpus": tuple(range(8))})
    )
    assert all_ranks.from_disks_s == pytest.approx(one.from_disks_s, rel=1e-3)
    assert all_ranks.from_disks_bytes == pytest.approx(one.from_disks_bytes / 8, rel=1e-3)


def test_on_disks_the_host_holds_sums_and_buffers_and_the_step_takes_longer() -> None:
    plain = asked(options=STAGE_3, machine="dgx-2", layout=ZERO3)
    on_disks = replace(plain, offload_to="nvme")
    n = elements(plain)
    assert ran(on_disks).host_bytes == pytest.approx(
        (2 + 4 * 4) * n
    )  # four fp32 buffers of a rank's part of the update
    swapped_s = ran(on_disks).from_disks_s + ran(on_disks).to_disks_s
    assert SESSION.time_s(plain) < SESSION.time_s(on_disks) < SESSION.time_s(plain) + swapped_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offload": "none", "offload_to": "nvme"}, "applies to what is offloaded"),
        ({"offload_to": "nvme", "layout": ZERO2, "options": replace(OPTIONS, framework="megatron")}, "stage 3"),
        ({"offload_to": "nvme", "options": STAGE_3, "machine": "dgx-h100"}, "has no disk with bandwidths"),
    ],
)
def test_disks_are_refused_where_nothing_swaps_to_them(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ran(asked(**changes))
