"""AdaptDL's statistics of gradients: calls and bytes by the count of its source, for replicas alone and in company."""

from __future__ import annotations

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.records import replace
from simulator.step.gradient_statistics import with_statistics
from simulator.step.issue import launches_of
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu

OPTIONS = StepOptions(optimizer="momentum")
PLAIN = StepQuestion(where=Where("1x-t4"), workload="bert-base", batch=2, options=OPTIONS)
# Words of fp32 that an element moves: a norm 2 (square), 3 (to fp64), 2 (sum); a division 2; a sum of two 3; a copy 2;
# a gradient that is added to another 3, or set to zero 1.
HOOK, SYNCED, DIFFERENCES, BUCKETS, ZEROED = 7 + 3, 2 + 2 + 7, 7 + (3 + 2 + 7) + 2, 2 + 2, 1
ALONE, SEVERAL = HOOK + SYNCED + DIFFERENCES + BUCKETS + ZEROED, HOOK + SYNCED + ZEROED


@pytest.mark.parametrize(("alone", "words", "calls", "reads"), [(True, ALONE, 25, 3), (False, SEVERAL, 12, 1)])
def test_calls_and_bytes_are_those_of_the_source(alone: bool, words: int, calls: int, reads: int) -> None:
    device, network = find_gpu("t4"), build_network("resnet50", batch=8)
    plain = launches_of(device, network, OPTIONS)
    whole = with_statistics(device, network, plain, alone=alone)
    found = [each for each in whole if each not in plain]
    tensors = sum(len(layer.trained) for layer in network.layers)
    costs = [cost for launch in found for cost in launch.work.costs]
    assert len(costs) == calls * tensors
    assert sum(cost.bytes for cost in costs) == pytest.approx(4 * words * network.trained_count, rel=0.01)
    assert sum(launch.waits for launch in found) == reads
    updates = [each for each in plain if each.part == "update"]
    end = len(whole) - tensors
    assert list(whole[end - len(updates) : end]) == updates  # the optimiser waits for the statistics


def test_hooks_run_as_soon_as_there_are_gradients() -> None:
    device, network = find_gpu("t4"), build_network("resnet50", batch=8)
    whole = with_statistics(device, network, launches_of(device, network, OPTIONS), alone=False)
    names = [each.name for each in whole if each.part == "backward"]
    assert names.index("statistics of fc.weight") < names.index("layer4.2.conv3") < names.index("conv1")


def test_a_step_takes_longer_by_its_statistics() -> None:
    asked = replace(PLAIN, options=replace(OPTIONS, framework="adaptdl"))
    session = Session()
    more_s = session.time_s(asked) - session.time_s(PLAIN)
    least_s = 4 * ALONE * session.step(PLAIN).step.trained_count / 320e9
    assert least_s < more_s < 4.0 * least_s


def test_it_is_refused_where_adaptdl_does_not_run() -> None:
    options = replace(OPTIONS, framework="adaptdl")
    with pytest.raises(InputError, match="statistics of gradients, and mode='inference' updates nothing"):
        Session().step(replace(PLAIN, options=replace(options, mode="inference")))
    several = replace(PLAIN, where=Where("dgx-a100-80gb"), options=options, layout=replace(PLAIN.layout, tp=2))
    of_one = [replace(PLAIN.layout, process=process) for process in ("loop", "dataparallel")]
    for layout in (several.layout, *of_one):
        with pytest.raises(InputError, match="keeps statistics of replicas in training"):
            Session().step(replace(several, layout=layout))
    with pytest.raises(InputError, match="exchanges gradients as DistributedDataParallel does, not by strategy="):
        Session().step(replace(several, layout=PLAIN.layout, strategy="parameter-server"))


def test_a_graph_cannot_wait_for_its_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="waits for its statistics, and cuda_graph launches all at once"):
        replace(OPTIONS, framework="adaptdl", cuda_graph=True)
    step = ["--topology", "p3.2xlarge", "--workload", "resnet18", "--batch", "8"]
    assert run([*step, "--framework", "adaptdl", "--json"]) == 0
    assert '"--cuda-graph"' not in capsys.readouterr().out
