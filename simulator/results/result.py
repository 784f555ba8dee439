"""The result of one simulated collective, from its timeline; and the order of results (docs/decisions/results.md)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from simulator.bands.composition import Band, SharedNetwork
from simulator.collectives.communicator import Request
from simulator.engine.timeline import Timeline
from simulator.network.machine import Machine
from simulator.plan.plan import Plan
from simulator.questions.collective import CollectiveQuestion
from simulator.records import dataclass, field
from simulator.results import SCHEMA_VERSION, WORDS, Fact, html_of, rounded_integer, taken
from simulator.results.bottleneck import CapacityGiven, LinkUse, binding, slowed_of
from simulator.results.changed import ChangeEffect, change_fact, changed_entry, is_changed, said, unlike
from simulator.results.confidence import BAND_HEAD, OF_A_BOUND, Confidence, collective_composition, confidence_of
from simulator.topology.parts import NicPart
from simulator.topology.schema import Price
from simulator.units import format_bandwidth, format_duration, format_size
from simulator.workload import Collective, bus_factor

if TYPE_CHECKING:
    from simulator.results.training_run import TrainingRun


_CHOSEN = {"ring_count": "rings", "algorithm": "algorithm", "protocol": "protocol", "channels": "channels"}


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The answer to a collective.  ``rings`` and ``gpus`` count the machine's GPUs from 0; ``asked``: the question."""

    strategy: str
    machine: str
    collective: Collective
    gpus: tuple[int, ...]
    size_bytes: float
    sync_time_s: float
    algbw_Bps: float
    busbw_Bps: float
    bottleneck: LinkUse | None
    links: tuple[LinkUse, ...]
    rings: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
    facts: dict[str, str | int | float]
    simulation_events: int
    timeline: Timeline
    asked: CollectiveQuestion | None = field(default=None, compare=False)
    shared: SharedNetwork | None = None
    changed: ChangeEffect | None = None

    def __repr__(self) -> str:
        """Return the answer in one line."""
        what = f"{self.collective} of {format_size(self.size_bytes)} over {self.n_ranks} GPUs"
        rate = f", {format_bandwidth(self.busbw_Bps)} bus bandwidth" if self.busbw_Bps else ""
        takes = f"{format_duration(self.sync_time_s)}{rate}{said(self.changed)}"
        return f"<{self.strategy} on {self.machine}: {what} takes {takes}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as in ``--json``, without the timeline."""
        prices = "price_per_hour price_per_million_exchanges=price_per_million"
        return {
            "topology": self.machine,
            **changed_entry(self.changed),
            **taken(self, "strategy is_bound counts_software collective n_ranks gpus"),
            "bytes": rounded_integer(self.size_bytes),
            "sync_time_s": self.sync_time_s,
            **self.confidence.to_dict(),
            **taken(self, "algbw_Bps busbw_Bps"),
            **(taken(self, prices) if self.price_per_hour is not None else {}),
            "simulation_events": self.simulation_events,
            "bottleneck": self.bottleneck and taken(self.bottleneck, "link=name utilisation=rounded_share"),
            "links": [
                {"name": use.name, "bytes": rounded_integer(use.bytes), "utilisation": use.rounded_share}
                for use in self.links
            ],
            **taken(self, "rings notes facts"),
        }

    def effect(self, what: tuple[str, ...], without: "Result | None") -> ChangeEffect:
        """Return the effect of *what* was changed, against the answer *without* it, if there is one."""
        if without is None:
            return ChangeEffect(what, self.sync_time_s, None)
        chosen = {words: (without.facts.get(key), self.facts.get(key)) for key, words in _CHOSEN.items()}
        others = unlike({**chosen, "slowest link": (without.bottleneck, self.bottleneck)})
        return ChangeEffect(what, self.sync_time_s, without.sync_time_s, others=others)

    def _repr_html_(self) -> str:
        asked = f"{self.collective}, {format_size(self.size_bytes)}, {self.n_ranks} GPUs"
        facts = {
            "strategy": self.strategy,
            "collective": asked,
            "time": format_duration(self.sync_time_s),
            BAND_HEAD: self.confidence.words,
            "bus bandwidth": format_bandwidth(self.busbw_Bps),
            "bottleneck": self.bottleneck.name if self.bottleneck is not None else "-",
        }
        head = Fact("machine", self.machine), *change_fact(self.changed)
        return html_of([*head, *(Fact(label, said) for label, said in facts.items())])

    @property
    def confidence(self) -> Confidence:
        """The uncertainty of ``sync_time_s``; ideal schedules, which cannot be measured, have no band."""
        if not self.counts_software:
            return OF_A_BOUND
        machine = self.timeline.machine
        ranks = tuple(machine.gpus[gpu] for gpu in self.gpus)
        changed = self.asked is not None and is_changed(self.asked)
        what = self.collective, self.size_bytes, self.strategy
        composition = collective_composition(machine, ranks, *what, changed=changed)
        return confidence_of(self.sync_time_s, composition, self.asked, self.shared)

    @property
    def band(self) -> Band | None:
        """The interval that holds the time with a probability of 80 %."""
        return self.confidence.band

    @property
    def limiting_kind(self) -> str:
        """The kind of the link that limits it, or the name of what else does; empty if nothing moves."""
        return "" if self.bottleneck is None else self.kind_of(self.bottleneck)

    def kind_of(self, use: LinkUse) -> str:
        """Return the kind of the link of *use*, or its name, if it is none."""
        link = self.timeline.machine.link(use.name)
        return use.name if link is None else WORDS["links"].get(link.kind, link.kind)

    @property
    def price_per_hour(self) -> Price | None:
        """The price of the whole machine per hour, if its file has one."""
        return self.timeline.machine.price_per_hour

    @property
    def price_per_million(self) -> Price | None:
        """The price of a million such exchanges, if the machine's file has one."""
        price = self.price_per_hour
        return price.times(1e6 / 3600.0 * self.sync_time_s) if price is not None and self.sync_time_s > 0 else None

    @property
    def n_ranks(self) -> int:
        """The number of participating GPUs."""
        return len(self.gpus)

    @property
    def way(self) -> str:
        """The strategy, as of steps the way to run them."""
        return self.strategy

    called = way

    @property
    def counts_software(self) -> bool:
        """Whether the time includes launches and protocols; otherwise it is the least that the links allow."""
        return counts_software(self.facts)

    @property
    def is_bound(self) -> bool:
        """Whether the schedule is an ideal that users cannot select."""
        return is_bound(self.facts)


def counts_software(facts: Mapping[str, object]) -> bool:
    """Return whether a plan with these *facts* includes launches and protocols."""
    return "software" in facts


def is_bound(facts: Mapping[str, object]) -> bool:
    """Return whether a plan with these *facts* is an ideal schedule: no software that users can select runs it."""
    return not counts_software(facts) and "runs_as" not in facts


def make_result(strategy: str, request: Request, timeline: Timeline) -> Result:
    """Return the result of *timeline*, which ran the plan for *request*."""
    machine, end_s, plan = timeline.machine, timeline.end_s, timeline.plan
    ordinal = {node: i for i, node in enumerate(machine.gpus)}
    slowed = slowed_of(machine, plan.perturbations, end_s)
    capacity_Bps = machine.capacity_Bps  # of equal links, neighbours leave the same

    def use(names: Sequence[str], number: int, n_bytes: float, like: int, resource: int) -> LinkUse:
        could = capacity_Bps[like] * (slowed[resource].in_use if resource in slowed else 1.0) * end_s
        return LinkUse(names, number, n_bytes, n_bytes / could if end_s > 0 else 0.0)

    names = machine.link_names
    moved = zip(timeline.link_bytes, machine.alike, strict=True)
    at = [link.resource for link in machine.links] if slowed else [-1] * len(names)
    links = [use(names, i, n_bytes, like.resource, at[i]) for i, (n_bytes, like) in enumerate(moved)]
    shared = [
        use(machine.resource_names, r, timeline.resource_bytes[r], r, r)
        for r in sorted({*machine.memory_bus.values(), *machine.fabric.values(), *machine.half_duplex})
        if timeline.resource_bytes[r] > 0
    ]
    used_s = {
        r: n_bytes / capacity_Bps[r] / slowed.get(r, CapacityGiven()).always
        for r, n_bytes in timeline.resource_bytes.carried()
    }
    bound = binding(machine, plan, used_s, slowed) if used_s else -1
    busiest = next((u for u in shared if u.number == bound), None) or next(
        (u for u in links if machine.links[u.number].resource == bound), None
    )
    algbw = request.size_bytes / end_s if end_s > 0 else 0.0
    return Result(
        strategy=strategy,
        machine=machine.name,
        collective=request.collective,
        gpus=tuple(ordinal[node] for node in request.ranks),
        size_bytes=request.size_bytes,
        sync_time_s=end_s,
        algbw_Bps=algbw,
        busbw_Bps=algbw * bus_factor(request.collective, request.n_ranks),
        bottleneck=busiest,
        links=(*links, *shared),
        rings=tuple(tuple(ordinal[node] for node in ring) for ring in plan.rings),
        notes=(*plan.notes, *staging_notes(machine, [plan]), *_launch_note(timeline)),
        facts=dict(plan.facts),
        simulation_events=timeline.simulation_events,
        timeline=timeline,
    )


def _launch_note(timeline: Timeline) -> list[str]:
    launches = {task.id for task in timeline.plan.tasks if task.label == "launch"}
    last_s = max((span.end_s for span in timeline.spans if span.task not in launches), default=0.0)
    if not launches or last_s >= timeline.end_s:
        return []
    n_gpus, end = timeline.plan.facts.get("gpus_per_process", "several"), format_duration(timeline.end_s)
    text = f"launching takes longest: one host thread starts the kernels of {n_gpus} GPUs in {end}"
    return [f"{text}, the exchange itself is over after {format_duration(last_s)}"]


def results_document(
    topology: str, workload: str, results: Sequence[Result], unfit: Mapping[str, str]
) -> dict[str, Any]:
    """Return *results*, and the reasons of the strategies in *unfit*, as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": topology,
        "workload": workload,
        "results": [result.to_dict() for result in results],
        "unfit": [{"strategy": name, "reason": reason} for name, reason in unfit.items()],
    }


STAGED = "bytes go to the NIC through host memory"


def staging_notes(machine: Machine, plans: Iterable[Plan]) -> list[str]:
    """Return a note if any of *plans* sends bytes to a NIC through host memory, otherwise an empty list."""
    staged = next((plan.staged for plan in plans if plan.staged is not None), None)
    if staged is None:
        return []
    ends = {end for index, _ in staged.links for end in (machine.links[index].src, machine.links[index].dst)}
    parts = (machine.nodes[end].part for end in ends)
    if any(isinstance(part, NicPart) and not part.gpudirect for part in parts):
        return [f"{STAGED}: the NIC has no GPUDirect (gpudirect: true in its part, or under devices)"]
    return [f"{STAGED}: no GPUDirect over that distance (transport.gpudirect_rdma)"]


BOUNDS = "lower bound of each schedule: bare links, without launches and protocols"
BARE = "on the bare links: launches and protocols add to these times"
Answer = TypeVar("Answer", bound="Result | TrainingRun")


def by_time(results: Iterable[Result]) -> list[Result]:
    """Return *results*, fastest first; times that differ only by rounding keep their order."""
    return sorted(results, key=lambda result: float(f"{result.sync_time_s:.9e}"))


def name_among(result: Answer, among: Iterable[Answer]) -> str:
    """Return a name that distinguishes *result* *among* others: its way, its machine, or both."""
    every = list(among)
    called, machines = _called_among(every), {other.machine for other in every}
    way, ways = called(result), {called(other) for other in every}
    named = [*([way] if len(ways) > 1 else []), *([result.machine] if len(machines) > 1 else [])]
    return " on ".join(named) or way


def way_among(result: Answer, among: Iterable[Answer]) -> str:
    """Return how *result* is called *among* others; where their strategies differ, by its strategy."""
    return _called_among(list(among))(result)


def _called_among(every: Sequence[Answer]) -> Callable[[Answer], str]:
    of = "called" if len({other.strategy for other in every} - {""}) <= 1 else "way"
    is_stage = any("ZeRO-" in other.called for other in every)
    return lambda result: str(getattr(result, of)).replace("FSDP", "ZeRO-3 (FSDP)" if is_stage else "FSDP")


def best_of(results: Sequence[Answer]) -> Answer:
    """Return the first result that counts its software; without such, the first that users can select; else a bound."""
    return min(results, key=lambda result: (not result.counts_software, result.is_bound))


def grouped(results: Sequence[Answer]) -> tuple[list[Answer], dict[int, str]]:
    """Return *results* in the order of a table, with a line before the first row of each group but the first."""
    groups: dict[str, list[Answer]] = {"": [], BARE: [], BOUNDS: []}
    for result in results:
        groups["" if result.counts_software else BOUNDS if result.is_bound else BARE].append(result)
    ordered: list[Answer] = []
    marks: dict[int, str] = {}
    for line, group in groups.items():
        marks |= {len(ordered): line} if line and group else {}
        ordered += group
    return ordered, marks


def bare_words(results: Sequence[Answer]) -> str:
    """Return which of *results* users can select but are timed without their software; empty if none."""
    names = dict.fromkeys(r.strategy for r in results if not r.is_bound and not r.counts_software)
    return f"{listed(list(names))} {'is' if len(names) == 1 else 'are'} {BARE}" if names else ""


def listed(names: Sequence[str]) -> str:
    """Return *names* as a list in words: a, b and c."""
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
