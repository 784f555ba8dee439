"""The gain of a step if one thing were different: a link or device twice as fast, or a software option.

Each change is a full simulation, of a machine with modified parts or of a modified question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator.api.outcome import outcome
from simulator.api.session import Session
from simulator.collectives.request import Unsuitable
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.questions.checks import changed
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.results.alternatives import Alternative
from simulator.spelling import word_of
from simulator.step.changes import possible_changes
from simulator.topology.load import load_topology
from simulator.topology.parts import CpuPart, LinkPart, NicPart, Part, SwitchPart
from simulator.topology.topology import Topology

_TIMES = 2.0
_LEAST = 1e-3  # of the step's time: a smaller gain does not count
_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe", "infiniband": "InfiniBand", "ethernet": "Ethernet"}


def what_if(session: Session, question: StepQuestion, step_time_s: float) -> tuple[Alternative, ...]:
    """Return the changes that make the step of *question* faster than *step_time_s*, the largest gain first.

    Changes that do not go with the step, or that the device lacks figures for, are left out.
    """
    found = []
    for words, other, asked in _changes(session, question):
        try:
            result = outcome(other, asked, step_time_s * (1.0 - _LEAST))
        except (InputError, Unsuitable):
            continue
        if result is not None and result[0] < step_time_s * (1.0 - _LEAST):
            found.append(Alternative(words, *result, question.batch))
    return tuple(sorted(found, key=lambda each: (round(each.step_time_s, 12), each.change)))


def _changes(session: Session, question: StepQuestion) -> Iterator[tuple[str, Session, StepQuestion]]:
    """Yield each change: in words, the session with the changed machine, and the question to ask it."""
    where = question.where
    several = question.device is None and len(question.gpus or session.machine(where).gpus) > 1
    if several and where.topology != "-":
        topology = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
        kinds = sorted({wire.part.of for wire in topology.wires if wire.part.of != "storage"})
        machines = [(f"{_NAMES.get(kind, kind)} links twice as fast", faster_links(topology, kind)) for kind in kinds]
        machines.append(("latencies of links, adapters and switches halved", shorter_latencies(topology)))
        machines.append(("memory of hosts twice as fast", faster_host_memory(topology)))
        machines.append(("fabrics of switches twice as fast", wider_fabrics(topology)))
        machines.append(("GPUDirect between GPUs and adapters", with_gpudirect(topology)))
        for words, changed in machines:
            if changed == topology:
                continue
            there = replace(where, topology=f"{where.topology} with {words}")
            session.know(there, changed)
            yield words, session, replace(question, where=there)
    parts = {node.part_name for node in session.machine(where).nodes_of(0)}
    known = {name: session.calibrations.get(name, Calibration()) for name in parts}
    hosts = {
        name: replace(c, dispatch=c.dispatch / _TIMES, host={key: s / _TIMES for key, s in c.host.items()})
        for name, c in known.items()
    }
    faster = {
        "arithmetic of devices twice as fast": {n: replace(c, compute=_TIMES * c.compute) for n, c in known.items()},
        "memory of devices twice as fast": {n: replace(c, bandwidth=_TIMES * c.bandwidth) for n, c in known.items()},
        "host twice as fast": hosts,
    }
    for words, calibrations in faster.items():
        yield words, session.calibrated({**session.calibrations, **calibrations}), question
    yield from ((words, session, asked) for words, asked in _switches(session, question, several=several))


def _switches(session: Session, question: StepQuestion, *, several: bool) -> Iterator[tuple[str, StepQuestion]]:
    """Yield other ways to run the step with the same software, in words of the command line."""
    options, layout = question.options, question.layout
    device = session.places(question.where, question.software).find(question.device, threads=question.threads).device
    for change in possible_changes(options, device):
        if change.time:
            yield change.words, replace(question, options=change.applied(options))
    if options.recompute_words:
        words = f"no {options.recompute_words[0]}"
        yield words, replace(question, options=replace(options, recompute="none", recompute_blocks=None))
    if not several:
        return
    if layout.zero < 3 and not question.bucket_bytes:
        yield f"{word_of('overlap')} bucket:25MiB", replace(question, bucket_bytes=BUCKET_BYTES)
    others = []
    if layout.tp > 1 and not layout.sp:
        others.append(replace(layout, sp=True))
    if not layout.zero and layout.process == "each":
        others.append(replace(layout, zero=1))
    if layout.pp > 1 and layout.vp == 1 and layout.schedule == "1f1b":
        others += [replace(layout, vp=2), replace(layout, schedule="zero-bubble")]
    for other in others:
        yield f"{word_of('parallel')} {other.words}", changed(question, layout=other)


def faster_links(topology: Topology, kind: str) -> Topology:
    """Return *topology* with links of *kind* (``nvlink``, ``pcie``, ...) and their adapters twice as fast.

    The fabrics of switches of such links scale too.
    """

    def changed(part: Part) -> Part:
        match part:
            case LinkPart() if part.of == kind:
                return part.model_copy(update={"bandwidth": _TIMES * part.bandwidth})
            case NicPart() if part.network == kind:
                return part.model_copy(update={"bandwidth": _TIMES * part.bandwidth})
            case SwitchPart() if part.fabric_bandwidth and (part.of == kind or (part.of == "network" and is_network)):
                return part.model_copy(update={"fabric_bandwidth": _TIMES * part.fabric_bandwidth})
        return part

    is_network = any(isinstance(d.part, NicPart) and d.part.network == kind for d in topology.devices)
    return _with_parts(topology, changed)


def shorter_latencies(topology: Topology) -> Topology:
    """Return *topology* with the latencies of links, adapters and switches halved."""

    def changed(part: Part) -> Part:
        if isinstance(part, LinkPart | SwitchPart):
            return part.model_copy(update={"latency": part.latency / _TIMES})
        if isinstance(part, NicPart):
            update = {"latency": part.latency / _TIMES, "plugin_time": part.plugin_time / _TIMES}
            return part.model_copy(update=update)
        return part

    return _with_parts(topology, changed)


def faster_host_memory(topology: Topology) -> Topology:
    """Return *topology* with CPU memory twice as fast where its bandwidth is known."""

    def changed(part: Part) -> Part:
        if isinstance(part, CpuPart) and part.memory_bandwidth:
            return part.model_copy(update={"memory_bandwidth": _TIMES * part.memory_bandwidth})
        return part

    return _with_parts(topology, changed)


def wider_fabrics(topology: Topology) -> Topology:
    """Return *topology* with the fabrics of all switches, network switches included, twice as fast."""

    def changed(part: Part) -> Part:
        if isinstance(part, SwitchPart) and part.fabric_bandwidth:
            return part.model_copy(update={"fabric_bandwidth": _TIMES * part.fabric_bandwidth})
        return part

    return _with_parts(topology, changed)


def with_gpudirect(topology: Topology) -> Topology:
    """Return *topology* with adapters that read and write the memory of all GPUs of their node, however distant."""

    def changed(part: Part) -> Part:
        return part.model_copy(update={"gpudirect": True}) if isinstance(part, NicPart) else part

    if topology.n_nodes < 2 or not any(isinstance(device.part, NicPart) for device in topology.devices):
        return topology
    transport = topology.transport.model_copy(update={"gpudirect_rdma": "sys"})
    return replace(_with_parts(topology, changed), transport=transport)


def _with_parts(topology: Topology, changed: Callable[[Part], Part]) -> Topology:
    devices = tuple(replace(device, part=changed(device.part)) for device in topology.devices)
    wires = []
    for wire in topology.wires:
        part = changed(wire.part)
        assert isinstance(part, LinkPart)
        wires.append(replace(wire, part=part))
    return replace(topology, devices=devices, wires=tuple(wires))
