"""The options of a step in JSON say how gradients are added only where they are."""

from __future__ import annotations

import pytest

from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion, accumulating
from simulator.questions.where import Where
from simulator.results.training import options_entry


@pytest.mark.parametrize(
    ("count", "layout", "framework", "how"),
    [
        (1, "dp", "pytorch", None),
        (4, "dp", "pytorch", "add"),
        (4, "zero=1", "pytorch", "add"),
        (4, "zero=2", "pytorch", None),
        (4, "fsdp", "pytorch", None),
        (1, "dp", "megatron", "product"),
        (4, "dp", "megatron", "product"),
    ],
)
def test_what_adds_gradients_is_told_where_something_does(
    count: int, layout: str, framework: str, how: str | None
) -> None:
    options = StepOptions(precision="bf16", framework=framework)  # type: ignore[arg-type]
    asked = StepQuestion(
        where=Where("dgx-2"),
        workload="gpt2",
        batch=1,
        options=options,
        micro_batches=count,
        layout=parse_layout(layout),
    )
    assert options_entry(accumulating(asked, None))["accumulation"] == how
