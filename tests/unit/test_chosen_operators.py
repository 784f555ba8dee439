"""The operators that a certificate measures: of each mechanism that takes a share of the steps that judge it."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.api.calibrations import longest_kernel, step_kernels
from simulator.questions.options import StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.workload.find import find_network
from validate.kinds.operators import read_operator
from validate.tables.names import RowNames

DEVICE = "h100-sxm5-80gb"
MEASURE = Path(__file__).parents[2] / "validate" / "machine" / "measure" / "cases"
CHOSEN = json.loads((MEASURE / "chosen.json").read_text(encoding="utf-8"))["operators"]
JUDGED = json.loads((MEASURE / "steps.json").read_text(encoding="utf-8"))["judged"]


@pytest.fixture(scope="module")
def names() -> RowNames:
    return RowNames(session=Session())


@pytest.fixture(scope="module")
def mechanisms(names: RowNames) -> Counter[str]:
    found: Counter[str] = Counter()
    for cells in CHOSEN:
        told = {**{name: str(value) for name, value in cells.items()}, "device": DEVICE}
        asked = read_operator(lambda column, told=told: told.get(column, ""), names).question  # type: ignore[misc]
        assert isinstance(asked, OperatorQuestion)
        found[longest_kernel(names.session, asked).mechanism] += 1
    return found


@pytest.mark.parametrize(("name", "batch"), [(name, batch) for name, batch, _ in JUDGED])
def test_what_takes_a_fiftieth_of_a_judged_step_is_measured(
    name: str, batch: int, names: RowNames, mechanisms: Counter[str]
) -> None:
    network = find_network(name).build(batch)
    images = network.sample == "images"
    options = StepOptions(
        precision="amp-bf16",
        optimizer="momentum" if images else "adam",
        channels_last=images,
        fused_optimizer=not images,
    )
    time_s: Counter[str] = Counter()
    for each in step_kernels(names.session, names.devices.where(DEVICE), network, options):
        time_s[each.mechanism] += each.time_s  # type: ignore[assignment]
    whole_s = math.fsum(time_s.values())
    large = [each for each, s in time_s.items() if s > 0.02 * whole_s]
    assert [each for each in large if not mechanisms[each]] == []
