"""The gain of a step, simulated in full, with one link or device twice as fast, or another software option."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from simulator.api.advice import faster_options
from simulator.api.outcome import faster
from simulator.api.session import Session
from simulator.api.variants import scaled, with_adapters, with_transport
from simulator.questions.calibration import Calibration
from simulator.questions.checks import changed
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.records import replace
from simulator.results.training_run import Alternative
from simulator.spelling import word_of
from simulator.topology import Device, Topology, Wire
from simulator.topology.load import load_topology
from simulator.topology.parts import CpuPart, LinkPart, NicPart, SwitchPart

_TIMES = 2.0
_LATENCIES = ("latency", "plugin_time")
_LEAST = 1e-3  # of the step's time: a smaller gain does not count
_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe", "infiniband": "InfiniBand", "ethernet": "Ethernet"}


def what_if(session: Session, question: StepQuestion, step_time_s: float) -> tuple[Alternative, ...]:
    """Return changes that make *question* faster than *step_time_s*, the largest gain first."""
    found = faster(step_time_s, question, _changes(session, question), 1.0 / (1.0 - _LEAST))
    return tuple(sorted(found, key=lambda each: (round(each.step_time_s, 12), each.change)))


def _changes(session: Session, question: StepQuestion) -> Iterator[tuple[str, Session, StepQuestion]]:
    where = question.where
    several = question.device is None and len(question.gpus or session.machine(where).gpus) > 1
    if several and where.topology != "-":
        topology = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
        for words, changed in better_machines(topology).items():
            if changed != topology:
                there = replace(where, topology=f"{where.topology} with {words}")
                session.know(there, changed)
                yield words, session, replace(question, where=there)
    faster_parts: dict[str, Callable[[Calibration], Calibration]] = {
        "arithmetic of devices": lambda c: replace(c, compute=_TIMES * c.compute),
        "memory of devices": lambda c: replace(c, bandwidth=_TIMES * c.bandwidth),
        "host": lambda c: replace(c, dispatch=c.dispatch / _TIMES, host={k: s / _TIMES for k, s in c.host.items()}),
    }
    names = {node.part_name for node in session.machine(where).nodes_of(0)}
    for what, made in faster_parts.items():
        changes = {name: made(session.calibrations.get(name, Calibration())) for name in names}
        yield f"{what} twice as fast", session.calibrated({**session.calibrations, **changes}), question
    yield from ((words, session, asked) for words, asked in _switches(session, question, several=several))


def _switches(session: Session, question: StepQuestion, *, several: bool) -> Iterator[tuple[str, StepQuestion]]:
    options, layout = question.options, question.layout
    device = session.places(question.where, question.software).find(question.device, threads=question.threads).device
    yield from ((change.words, asked) for change, asked in faster_options(question, device))
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


def better_machines(topology: Topology) -> dict[str, Topology]:
    """Return *topology* with one sort of its parts twice as good, by what is, in words."""
    kinds = sorted({wire.part.of for wire in topology.wires if wire.part.of != "storage"})
    found = {f"{_NAMES.get(kind, kind)} links twice as fast": _faster_links(topology, kind) for kind in kinds}
    for words, factor, sorts, names in (
        ("latencies of links, adapters and switches halved", 1 / _TIMES, (LinkPart, SwitchPart, NicPart), _LATENCIES),
        ("memory of hosts twice as fast", _TIMES, (CpuPart,), ("memory_bandwidth",)),
        ("fabrics of switches twice as fast", _TIMES, (SwitchPart,), ("fabric_bandwidth",)),
    ):
        found[words] = scaled(topology, factor, lambda of, s=sorts, n=names: n if isinstance(of.part, s) else ())  # type: ignore[misc]
    direct = topology  # with adapters that read and write the memory of all GPUs of their node, however distant
    if topology.n_nodes > 1 and any(isinstance(device.part, NicPart) for device in topology.devices):
        direct = with_transport(with_adapters(topology, gpudirect=True), gpudirect_rdma="sys")
    return {**found, "GPUDirect between GPUs and adapters": direct}


def _faster_links(topology: Topology, kind: str) -> Topology:
    """Return *topology* with links of *kind* (``nvlink``, ``pcie``, ...), their adapters and switches twice as fast."""
    is_network = any(isinstance(d.part, NicPart) and d.part.network == kind for d in topology.devices)

    def figures(of: Device | Wire) -> Sequence[str]:
        match of.part:
            case LinkPart(of=sort) | NicPart(network=sort) if sort == kind:
                return ("bandwidth",)
            case SwitchPart(of=sort) if sort == kind or (sort == "network" and is_network):
                return ("fabric_bandwidth",)
        return ()

    return scaled(topology, _TIMES, figures)
