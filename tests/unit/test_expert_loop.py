"""A loop in Python over experts, as transformers ran them: the same products, one by one, and a host that waits."""

from __future__ import annotations

import pytest

from simulator import InputError
from simulator.api import Session
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.training import divided
from simulator.workload.network import Network
from simulator.workload.operators.moves import RowsFound
from simulator.workload.zoo.registry import build_network

EXPERTS = 8


def mixtral(kernels: str, name: str = "mixtral-8x7b", layers: int = 1, **sizes: int) -> Network:
    return build_network(name, batch=1, sequence_length=1024, layers=layers, expert_kernels=kernels, **sizes)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gpt-oss-20b", "nemotron-3-nano"])
def test_the_loop_has_the_products_and_parameters_of_a_grouped_product(name: str) -> None:
    loop, grouped = (mixtral(kernels, name, layers=3) for kernels in ("loop", "grouped"))
    assert loop.parameter_count == grouped.parameter_count
    assert sum(x.operator.flop for x in loop.layers) == sum(x.operator.flop for x in grouped.layers)


def test_the_host_waits_for_the_rows_of_each_expert_and_calls_for_each() -> None:
    device = Session().device(Where("dgx-a100-80gb"))
    options = StepOptions(precision="bf16", optimizer="adam")
    host_s, waits = {}, {}
    for kernels in ("loop", "grouped"):
        forward = [x for x in launches_of(device, mixtral(kernels), options) if x.part == "forward"]
        host_s[kernels] = sum(x.host_s for x in forward if ".expert" in x.layer)
        waits[kernels] = sum(x.waits for x in forward)
    assert waits == {"loop": EXPERTS, "grouped": 0}
    assert host_s["loop"] > 4 * host_s["grouped"]


def test_the_gradient_of_each_experts_rows_is_added_to_zeros_for_all_tokens() -> None:
    network = mixtral("loop")
    taken = next(x.operator for x in network.layers if x.name.endswith("expert0_taken"))
    (forward,), (backward,) = taken.kernels("fwd", "bf16"), taken.kernels("bwd_data", "bf16")
    assert backward.bytes - forward.bytes == 1024 * 4096 * 2
    assert sum(isinstance(x.operator, RowsFound) for x in network.layers) == EXPERTS


def test_experts_of_a_loop_are_not_divided_among_ranks() -> None:
    with pytest.raises(InputError, match=r"ep=8: .* calls its experts in a loop"):
        divided(mixtral("loop"), parse_layout("ep=8").on(8))
