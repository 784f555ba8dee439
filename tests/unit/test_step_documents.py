"""Documentation of a step's JSON document and functions, compared with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simulator.api import Session
from simulator.questions.input import parse_input
from simulator.questions.options import USUAL, StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult, steps_document
from tests.asked import alone_on

ROOT = Path(__file__).resolve().parents[2]
P3 = Where("p3.2xlarge")


def advised(
    session: Session, workload: str, batch: int, options: StepOptions = USUAL, where: Where = P3
) -> TrainingResult:
    return session.advised(StepQuestion(where=where, workload=workload, batch=batch, options=options))


def keys_of(data: Any) -> set[str]:
    """Return the keys of *data* and its contents, except names of parts, formats and streams."""
    if isinstance(data, list):
        return {key for each in data for key in keys_of(each)}
    if not isinstance(data, dict):
        return set()
    found = set(data)
    for name, value in data.items():
        if name == "streams":
            found |= keys_of(list(value.values()))
        elif name not in ("flop_by_format", "parts_s", "waits_s", "critical_path_s", "limits_s", "rates_per_s"):
            found |= keys_of(value)
    return found


def test_every_key_of_a_step_is_explained() -> None:
    session = Session()
    fed = parse_input("imagenet,workers=1")
    several = session.step(StepQuestion(where=Where("p3.16xlarge"), workload="alexnet", batch=32, input=fed))
    held = session.step(StepQuestion(where=P3, workload="alexnet", batch=32, gpus=(0,), offload="optimizer"))
    first = advised(session, "alexnet", 32, where=Where("1x-gtx-1080"))  # whose clock depends on the length of a run
    document = steps_document([first, several, held], {"tree with FSDP": "no way"})
    section = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").split("## A step", 1)[1].split("\n## ", 1)[0]
    explained = set(re.findall(r"`(\w+)`", section))
    assert keys_of(document) <= explained
    table = section.split("A step that", 1)[0]
    named = set(re.findall(r"`(\w+)`", "".join(line for line in table.splitlines() if line.startswith("| `"))))
    words = {"forward", "backward", "update", "compute", "memory", "latency", "host", "exchange", "fill", "copies"}
    words |= {
        "computing",
        "slowest",
        "host_copies",
        "tensor",
        "context",
        "expert",
        "data",
        "tied",
        "gain",
    }  # of some steps
    words |= {"disk_operations", "disk_bandwidth", "disk_link", "readers", "decoders", "loaders"}  # of some inputs
    words |= {"cores", "pinning", "loop", "step", "libraries", "algorithm", "protocol", "nvls"}
    words |= {"sustained", "held", "measured", "clocks"}  # states of a clock, and a group of a calibration
    words |= {"shared_network", "lower", "slowdown"}  # of some machines
    assert named - words <= keys_of(document)


@pytest.mark.slow
def test_advice_is_what_the_command_line_prints() -> None:
    session, inference = Session(), StepOptions(mode="inference")
    large = advised(session, "resnet50", 512)
    assert not large.fits
    assert any(remedy.change.startswith("--batch ") for remedy in large.remedies)
    small = advised(session, "resnet50", 8, inference)
    assert small.remedies == ()
    assert [other.change for other in small.alternatives if other.batch == 16] == ["--batch 16"]
    network = session.network(StepQuestion(where=P3, workload="resnet50", batch=8, options=inference))
    plain = alone_on(session.machine(P3), network, inference)
    assert plain.step_time_s == small.step_time_s
    step = session.step(StepQuestion(where=P3, workload="resnet50", batch=8, options=inference))
    assert step.step_time_s == small.step_time_s
    assert step.alternatives == step.remedies == ()
