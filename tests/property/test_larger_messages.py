"""A larger message is never faster, unless NCCL itself switches algorithm or protocol."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator, Request, Unsuitable
from simulator.collectives.nccl.strategy import Nccl
from simulator.engine.executor import execute
from simulator.network.machine import Machine
from simulator.topology.catalogue import builtin_topologies
from simulator.topology.load import load_topology
from simulator.workload import Collective
from tests.cover import covering

_COLLECTIVES: tuple[Collective, ...] = (
    *("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all", "send-recv"),
)
_IS_LONG = "TOPOCAST_LONG" in os.environ
_LEAST, _MOST = 8, 8 * 2**30
_FASTER = 1.02
# Speed-up from 128 KiB to 256 KiB of all-reduce over four H100s, where NCCL switches its protocol
# (validate/measurements/published-nvidia): the largest in NVIDIA's all-reduce rows above 1 KiB.
_FASTER_WHERE_NCCL_CHANGES = 1.2


def _drops(group: Communicator, collective: Collective, factor: int) -> list[str]:
    """Return the size steps at which the time drops by more than allowed."""
    found = []
    machine = group.machine
    request = Request(group, collective, float(_LEAST))
    size, before = _LEAST, None
    while size <= _MOST:
        plan = Nccl().plan(replace(request, size_bytes=float(size)))
        end_s = execute(machine, plan).end_s
        chosen = plan.facts.get("algorithm"), plan.facts.get("protocol")
        if before is not None:
            allowed = _FASTER if chosen == before[1] else _FASTER_WHERE_NCCL_CHANGES
            if before[0] > allowed * end_s:
                found.append(f"{machine.name}: {collective} of {size} B: {before} -> {end_s, chosen}")
        size, before = size * factor, (end_s, chosen)
    return found


def _all_of(machine: Machine) -> Communicator:
    """Return all GPUs of *machine* as one group, whose channels are searched once for all collectives."""
    return Communicator(machine, machine.gpus)


@pytest.mark.parametrize("collective", _COLLECTIVES)
@pytest.mark.parametrize(
    ("name", "n_nodes"),
    [("p3.16xlarge", None), ("4x-a100-pcie", None), ("gb200-nvl72", None), ("dgx-h100", 2), ("p4d.24xlarge", 2)],
)
def test_a_larger_message_is_not_faster(name: str, n_nodes: int | None, collective: Collective) -> None:
    group = _all_of(load_machine(name, n_nodes=n_nodes))
    assert not _drops(group, collective, 64 if group.n_ranks > 16 else 2 if n_nodes is None else 4)


def _few() -> list[str]:
    """Return machines of each generation, with each kind of link, number of GPUs and share of adapters, in pairs."""
    machines = {}
    for name in builtin_topologies():
        topology = load_topology(name)
        gpus, nics = ([each for each in topology.devices if each.kind == kind] for kind in ("gpu", "nic"))
        if len(gpus) > 1:
            kinds = sorted({wire.part.of for wire in topology.wires} & {"nvlink", "xgmi", "infinity-fabric"})
            part = getattr(gpus[0].part, "architecture", None) or gpus[0].part_name
            machines[name] = part, tuple(kinds), min(len(gpus), 16), min(len(nics), len(gpus) + 1) / len(gpus) >= 1
    return sorted(machines) if _IS_LONG else covering(machines)


@pytest.mark.slow
@pytest.mark.parametrize("name", _few())
@pytest.mark.parametrize("n_nodes", [1, 2, 4] if _IS_LONG else [1, 2])
def test_a_larger_message_is_not_faster_on_any_machine(name: str, n_nodes: int) -> None:
    """TOPOCAST_LONG=1 asks all machines, four of each too, and twice as many sizes, which takes many minutes.

    Without it, more than 16 GPUs are asked at six sizes from 8 B to 8 GiB, and more than 72 not at all.
    """
    topology = load_topology(name)
    if n_nodes > 1 and not any(device.kind == "nic" for device in topology.devices):
        return
    machine = load_machine(name, n_nodes=n_nodes if n_nodes > 1 else None)
    if len(machine.gpus) < 2 or (len(machine.gpus) > 72 and not _IS_LONG):
        return
    factor = 2 if _IS_LONG else 4 if len(machine.gpus) <= 16 else 64
    group = _all_of(machine)
    for collective in _COLLECTIVES:
        try:
            assert not _drops(group, collective, factor)
        except Unsuitable:  # NCCL does not run on this hardware
            continue
