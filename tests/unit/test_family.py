"""The family of a network, which selects its bands and the errors it is compared with."""

from __future__ import annotations

import pytest

from simulator.workload.network import family_of
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.registry import build_network


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet50", "CNN"),
        ("bert-base", "transformer"),
        ("vit-b16", "transformer"),
        ("qwen3-30b-a3b", "MoE"),
        ("nemotron-3-nano", "MoE"),  # a hybrid: it convolves and scans, too
        ("gnmt", None),  # it attends, but most of it recurs
        ("mlp", None),
        ("ncf", None),
    ],
)
def test_a_network_is_of_the_family_that_its_operators_say(name: str, family: str | None) -> None:
    assert family_of(build_network(name, batch=1)) == family


def test_a_softmax_alone_is_no_attention() -> None:
    builder = NetworkBuilder("classifier")
    scores = builder.input(8, 16).linear("scores", 4)
    scores.softmax("shares")
    assert family_of(builder.build(8)) is None
