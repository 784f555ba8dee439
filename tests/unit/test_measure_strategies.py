"""Exchanges requested by a user, as cases: on simulated GPUs, and the options that request them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from simulator.api import Session  # noqa: E402
from simulator.cli.written import CommandOptions  # noqa: E402
from simulator.errors import InputError  # noqa: E402
from simulator.questions.collective import CollectiveQuestion  # noqa: E402
from simulator.questions.where import Where  # noqa: E402
from tests.clocked_cuda import clocked_gpus  # noqa: E402
from validate.cli.asking import ask_exchanges, exchange_data, is_exchange, write_exchanges  # noqa: E402
from validate.machine.measure.bench import Bench  # noqa: E402
from validate.machine.measure.case import EXCHANGES, SCALING, Case, Unavailable, usual_groups  # noqa: E402
from validate.machine.measure.cases.collectives import strategy_cases  # noqa: E402
from validate.machine.measure.duration import bucket_bytes  # noqa: E402
from validate.machine.measure.exchange import OverDevices  # noqa: E402
from validate.machine.measure.timing import Effort, time_call  # noqa: E402

pytestmark = pytest.mark.torch

SESSION = Session()
QUICK = Effort(longest_s=0.05, warmup_s=1e-3)
BOX = CommandOptions(topology="dgx-1-v100-16gb", workload="bytes:4kB", gpus="4")


def question(strategy: str, collective: Any = "all-reduce", nodes: int | None = None) -> CollectiveQuestion:
    gpus = (0, 1, 2, 3) if nodes is None else None
    where = Where("dgx-1-v100-16gb", nodes=nodes)
    return CollectiveQuestion(where=where, size_bytes=4000, strategy=strategy, collective=collective, gpus=gpus)


def asked(folder: Path, *questions: CollectiveQuestion) -> list[Case]:
    write_exchanges(folder, [exchange_data(SESSION, each) for each in questions])
    return list(strategy_cases(Bench(torch.device("cuda", 0), "clocked", 1 << 30, 1 << 20, folder)))


# -- cases -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ring", "sharded", "gpu0", "double-tree"])
def test_an_exchange_between_gpus_is_timed_without_the_hosts_part(monkeypatch, tmp_path, strategy):
    clock = clocked_gpus(monkeypatch, 4, issue_s=5e-6)
    clock.lasts_s = lambda tensor: 1e-6  # type: ignore[method-assign]
    (case,) = asked(tmp_path, question(strategy))
    assert case.columns["strategy"] == strategy
    assert (case.columns["n_gpus"], case.columns["gpu_set"], case.columns["bytes"]) == (4, "0,1,2,3", 4000)
    work = case.build(Bench(torch.device("cuda", 0), "clocked", 1 << 30, 1 << 20, tmp_path))
    assert work.watch is not None
    found = time_call(work.watch, work.call, QUICK)
    assert not found.ran_dry
    assert found.median < 100e-6  # issuing it takes more than 300 us
    assert work.figures is not None
    assert work.figures(found)["time_s"] == found.median


def test_where_the_host_adds_its_part_belongs_to_the_time(monkeypatch, tmp_path):
    clock = clocked_gpus(monkeypatch, 4, issue_s=5e-6)
    clock.lasts_s = lambda tensor: 1e-6  # type: ignore[method-assign]
    (case,) = asked(tmp_path, question("cpu"))
    bench = Bench(torch.device("cuda", 0), "clocked", 1 << 30, 1 << 20, tmp_path)
    work = case.build(bench)
    assert work.watch is not None
    assert work.watch.sample(work.call, 1) > 30e-6


def test_a_wrong_sum_is_no_row(monkeypatch, tmp_path):
    clocked_gpus(monkeypatch, 4)
    (case,) = asked(tmp_path, question("ring"))
    monkeypatch.setattr(OverDevices, "is_right", lambda self: False)
    with pytest.raises(Unavailable, match="ring leaves a wrong result"):
        case.build(Bench(torch.device("cuda", 0), "clocked", 1 << 30, 1 << 20, tmp_path))


def test_what_this_machine_cannot_do_is_said(monkeypatch, tmp_path):
    bench = Bench(torch.device("cuda", 0), "clocked", 1 << 30, 1 << 20, tmp_path)
    clocked_gpus(monkeypatch, 2)
    few, several, other = asked(tmp_path, question("ring"), question("ring", nodes=2), question("gloo"))
    for case, words in ((few, "more GPUs than are here"), (several, "several machines"), (other, "gloo is not what")):
        with pytest.raises(Unavailable, match=words):
            case.build(bench)
    with pytest.raises(Unavailable, match="names one GPU"):
        next(strategy_cases(replace(bench, alone=True)))
    (tmp_path / EXCHANGES).write_text("{}")
    with pytest.raises(Unavailable, match="holds no exchanges"):
        next(strategy_cases(bench))


def test_what_gathers_needs_room_for_all_that_arrives(monkeypatch, tmp_path):
    clocked_gpus(monkeypatch, 4)
    ring, gather, library = asked(tmp_path, question("ring"), question("gpu0"), question("nccl"))
    assert gather.needs_bytes == 4 * 4000  # its own buffer, and those of the three others
    assert 4000 < ring.needs_bytes < 2 * 4000
    assert library.needs_bytes == 2 * 4000


def test_nccl_is_nccl(tmp_path):
    found = exchange_data(SESSION, question("nccl"))
    assert "rounds" not in found
    assert (found["n_ranks"], found["bytes"], len(found["stands"])) == (4, 4000, 4)


def test_only_what_was_asked_for_is_a_group(tmp_path):
    assert "strategies" not in usual_groups(tmp_path)
    write_exchanges(tmp_path, [exchange_data(SESSION, question("ring"))])
    assert "strategies" in usual_groups(tmp_path)
    assert json.loads((tmp_path / EXCHANGES).read_text())["exchanges"][0]["strategy"] == "ring"
    assert SCALING != EXCHANGES


# -- words -----------------------------------------------------------------------------


def test_an_exchange_is_asked_for_as_simulate_is():
    assert is_exchange(BOX)
    assert is_exchange(BOX.but(workload="resnet50", strategy="ring"))
    assert not is_exchange(BOX.but(workload="resnet50"))
    assert not is_exchange(BOX.but(workload="resnet50", strategy="ring", batch="32"))
    found, left = ask_exchanges(BOX.but(workload="sweep:4kB-16kB", strategy="ring,nccl"), on_gpus=True)
    assert [(each["strategy"], each["bytes"]) for each in found[:2]] == [("ring", 4000), ("nccl", 4000)]
    assert len({each["bytes"] for each in found}) > 1
    assert left == []


def test_of_all_strategies_those_that_do_not_fit_are_told():
    found, left = ask_exchanges(BOX, on_gpus=False)
    assert {"ring", "cpu", "double-tree"} <= {each["strategy"] for each in found}
    assert any("nccl is between GPUs" in why for why in left)
    assert any("it needs several nodes" in why for why in left)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "hierarchical"}, "--strategy: hierarchical does not fit"),
        ({"strategy": "rign"}, "no strategy is called 'rign'"),
        ({"collective": "all-to-all", "strategy": "sharded"}, "measured by --only collectives"),
        ({"gpus": "1"}, "one GPU exchanges with nobody"),
        ({"precision": "fp16"}, "precision: is about a step"),
        ({"topology": "dgx-1-v100-16gb,dgx-h100"}, "--topology: one machine is measured"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, words):
    with pytest.raises(InputError, match=words):
        ask_exchanges(BOX.but(**{"strategy": "ring", **changes}), on_gpus=True)


@pytest.mark.parametrize(
    ("text", "size"), [("bucket:25MiB", 25 << 20), ("bucket:1 kB", 1000), ("bucket: 2.5MB", 2_500_000)]
)
def test_buckets_are_written_as_for_simulate(text, size):
    assert bucket_bytes(text) == size


@pytest.mark.parametrize("text", ["25MiB", "bucket:", "bucket:0MB", "bucket:1", "none"])
def test_what_is_no_bucket_is_refused(text):
    with pytest.raises(ValueError, match="bucket:25MiB"):
        bucket_bytes(text)
