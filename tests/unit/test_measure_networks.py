"""Measured networks equal predicted ones: the file that the measuring code reads holds the zoo's networks."""

from __future__ import annotations

import json
import lzma
from collections import Counter

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from simulator.workload.find import find_network  # noqa: E402
from simulator.workload.network import unit_elements  # noqa: E402
from simulator.workload.zoo.registry import build_network as build_zoo  # noqa: E402
from tests.written_networks import NAMES, SIZED, network, options_of, written  # noqa: E402
from validate.machine.measure.built.description import (  # noqa: E402
    FILE,
    Sizes,
    builtin_facts,
    builtin_network,
    description_of,
    names,
)
from validate.machine.measure.built.module import build_module  # noqa: E402
from validate.machine.measure.cases.stepping import _blocks  # noqa: E402

META = torch.device("meta")
EACH = [*((name, Sizes()) for name in NAMES), *SIZED]


def test_the_file_holds_what_the_simulator_writes() -> None:
    assert lzma.decompress(FILE.read_bytes()) == written(), "python -m tests.written_networks"


@pytest.mark.parametrize("batch", [1, 4, 32])
@pytest.mark.parametrize(("name", "sizes"), [("resnet50", Sizes()), ("inception3", Sizes()), *SIZED])
def test_a_network_is_the_zoos_for_any_batch(name: str, sizes: Sizes, batch: int) -> None:
    for training in (True, False):
        found = builtin_network(name, sizes, batch, training=training)
        assert found == description_of(json.loads(json.dumps(network(name, sizes, batch=batch, training=training))))


@pytest.mark.parametrize(("name", "sizes"), [pytest.param(*each, id=f"{each[0]}-{i}") for i, each in enumerate(EACH)])
def test_torch_runs_each_with_the_zoos_parameters(name: str, sizes: Sizes) -> None:
    for training, batch in ((True, 2), (False, 1)):
        description = builtin_network(name, sizes, batch, training=training)
        experts = any(layer.operator == "GroupedLinear" for layer in description.layers)
        built = build_module(
            description, META, dtype=torch.bfloat16 if experts else None
        )  # their products take no other
        count = sum(p.numel() for p in built.module.parameters())
        assert count == build_zoo(name, batch=batch, training=training, **options_of(sizes)).parameter_count
        assert all(y.shape == () for y in built.forward()) == training


@pytest.mark.parametrize("name", names())
def test_the_blocks_that_are_sharded_are_those_that_the_simulator_gathers(name: str) -> None:
    module = build_module(builtin_network(name, Sizes(), 2, training=True), META, in_blocks=True).module
    theirs = Counter(count for block, count in unit_elements(find_network(name).build(2)).items() if block)
    assert Counter(sum(p.numel() for p in block.parameters()) for block in _blocks(module)) == theirs


def test_what_a_table_says_of_a_network() -> None:
    assert (builtin_facts("lenet").sample, builtin_facts("lenet").image, builtin_facts("mlp").image) == (
        "images",
        28,
        0,
    )
    assert (builtin_facts("gpt2").sample, builtin_facts("gpt2").length) == ("sequences", 1024)
    assert (builtin_facts("gpt2").norms, builtin_facts("llama3-8b").norms) == ("", "fused")  # nn.RMSNorm


def test_a_network_that_is_not_written_out_is_refused() -> None:
    with pytest.raises(ValueError, match="not written out"):
        builtin_network("gpt2", Sizes(7), 2, training=True)
