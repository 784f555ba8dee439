"""No prediction beats the bandwidth bounds of its machine, and the bytes moved add up."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from simulator.collectives.registry import strategy_names
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.results.result import Result
from tests.asked import exchange_on
from tests.examples import few
from tests.machines import crossbar, machines

_HELPED = ("cpu", "parameter-server")  # the CPU adds, so the GPUs send less
_S = 160e6


def fitting(machine: Machine, strategy: str) -> Result:
    """Return the result of *strategy* on *machine*; discard machines that it does not fit."""
    try:
        return exchange_on(machine, strategy, _S)
    except InputError:
        reject()


def port_Bps(machine: Machine, gpu: int, *, into: bool) -> float:  # noqa: N802  units keep their case
    """Return the total bandwidth of all links out of (or into) a GPU, each shared capacity counted once."""
    links = [link for link in machine.links if (link.dst if into else link.src) == gpu]
    return sum(machine.capacity_Bps[r] for r in {link.resource for link in links})


@settings(max_examples=few(60))
@given(st.data())
def test_no_all_reduce_beats_the_cuts(data: st.DataObject) -> None:
    """Each GPU's data leaves it once and the sums enter it once; 2(n-1)S bytes are sent in all."""
    machine = data.draw(machines())
    name = data.draw(st.sampled_from(strategy_names()))
    result = fitting(machine, name)
    out = [port_Bps(machine, gpu, into=False) for gpu in machine.gpus]
    into = [port_Bps(machine, gpu, into=True) for gpu in machine.gpus]
    slack = 1 - 1e-9
    assert result.sync_time_s >= _S / min(out) * slack
    assert result.sync_time_s >= _S / min(into) * slack
    if name not in _HELPED:
        assert result.sync_time_s >= 2 * (len(out) - 1) * _S / sum(out) * slack
    for use in result.links:
        assert use.utilisation <= 1 + 1e-9, use.name


@given(n=st.integers(2, 16), name=st.sampled_from([n for n in strategy_names() if n not in _HELPED]))
def test_on_a_crossbar_the_bound_is_that_of_the_textbook(n: int, name: str) -> None:
    result = fitting(crossbar(n), name)
    assert result.sync_time_s >= 2 * (n - 1) / n * _S / 50e9 * (1 - 1e-9)
    assert result.busbw_Bps <= 50e9 * (1 + 1e-9)


@settings(max_examples=few(40))
@given(st.data())
def test_strategies_fold_without_a_difference(data: st.DataObject) -> None:
    machine = data.draw(machines(max_gpus=6))
    name = data.draw(st.sampled_from(strategy_names()))
    folded = fitting(machine, name)
    stepped = exchange_on(machine, name, _S, fold=False)
    assert folded.sync_time_s == pytest.approx(stepped.sync_time_s, rel=1e-9)
    assert [use.bytes for use in folded.links] == pytest.approx([use.bytes for use in stepped.links], rel=1e-9)


@settings(max_examples=few(40))
@given(st.data())
def test_bytes_into_a_switch_are_bytes_out_of_it(data: st.DataObject) -> None:
    machine = data.draw(machines())
    name = data.draw(st.sampled_from(strategy_names()))
    result = fitting(machine, name)
    balance = dict.fromkeys(range(len(machine.nodes)), 0.0)
    for link, n_bytes in zip(machine.links, result.timeline.link_bytes, strict=True):
        balance[link.src] -= n_bytes
        balance[link.dst] += n_bytes
    moved = sum(result.timeline.link_bytes)
    for node in machine.nodes:
        if node.kind == "pcie-switch":
            assert balance[node.index] == pytest.approx(0, abs=1e-9 * max(moved, 1)), node.name
