"""The answer to a step (:class:`TrainingResult`), what it takes from the timeline, and steps as the document."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from simulator.bands.composition import Band
from simulator.collectives.nccl.strategy import KEPT
from simulator.engine.timeline import Span, Timeline
from simulator.plan.plan import Fragment
from simulator.questions.collective import OF_NCCL
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import TODAY, month_words
from simulator.records import dataclass, replace, sums_by_key
from simulator.results import SCHEMA_VERSION, Fact, html_of, plain, taken
from simulator.results.bottleneck import bottleneck_of
from simulator.results.changed import ChangeEffect, change_fact, changed_entry, said, unlike
from simulator.results.confidence import Confidence
from simulator.results.headline import answer_lines
from simulator.results.ran import StreamUse, run_counts
from simulator.results.rates import rates_of
from simulator.results.result import best_of, counts_software, is_bound, staging_notes
from simulator.results.step import StepResult, peak_of
from simulator.results.step_confidence import Trust, fits_by_band, memory_band, step_confidence, step_trust
from simulator.results.step_view import SHARE_WORDS, device_words, step_view, time_shares
from simulator.results.training_run import DeviceMemory, TrainingRun
from simulator.step.memory import MemoryNeed
from simulator.training.plan import SharedStep
from simulator.training.roles import MOST_ROLES, Role, slowest_of
from simulator.training.worker import ChunkRun, CollectiveLabel
from simulator.units import format_duration
from simulator.workload.network import Network


@dataclass(frozen=True, repr=False)
class TrainingResult(TrainingRun):
    """The answer to a step, which shows itself as a line, as a table, and as in ``--json``."""

    def __repr__(self) -> str:
        """Return the answer in one line."""
        on = f"{device_words(self)} of {self.machine}"
        rate = f"{self.throughput:.4g} {self.step.sample}/s"
        does = "" if self.fits else ", does not fit into memory"
        takes = f"{format_duration(self.step_time_s)}, {rate}{does}{said(self.changed)}"
        return f"<{self.step.workload}, {self.samples} {self.step.sample} a step on {on}: {takes}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as in ``--json``, without the timeline."""
        return steps_document([self], {})

    def effect(self, what: tuple[str, ...], without: "TrainingResult | None") -> ChangeEffect:
        """Return the effect of *what* was changed, against the answer *without* it, if there is one."""
        effect = ChangeEffect(what, self.step_time_s, None)
        if self.servers is not None:
            effect = replace(effect, delay_s=self.servers.lost_s, then_s=self.servers.then_s)
        if without is None:
            return effect
        before_s, after_s = time_shares(without), time_shares(self)
        names = [name for name in SHARE_WORDS if name in {**before_s, **after_s}]
        parts_s = tuple((SHARE_WORDS[name], before_s.get(name, 0.0), after_s.get(name, 0.0)) for name in names)
        others = unlike({"slowest link": (without.bottleneck, self.bottleneck)})
        return replace(effect, without_s=without.step_time_s, parts_s=parts_s, others=others)

    def _repr_html_(self) -> str:
        what = f"{self.step.workload}, {self.samples} {self.step.sample} a step"
        machine = Fact("machine", f"{self.machine}, {device_words(self)}")
        head = machine, *change_fact(self.changed), Fact("network", what), Fact("strategy", self.way)
        answers = (Fact("answer", said) for said in answer_lines(self))
        return html_of([*head, *answers, *step_view(self), Fact("trust", self.confidence.why or "not measured")])

    @cached_property
    def confidence(self) -> Confidence:
        """The uncertainty of ``step_time_s``; ideal schedules, which cannot be measured, have no band."""
        return step_confidence(self)

    @property
    def band(self) -> Band | None:
        """The interval that holds the step time with a probability of 80 %."""
        return self.confidence.band

    @property
    def trust(self) -> Trust | None:
        """The errors of predictions for such steps, or None if nobody measured them."""
        return step_trust(self)


class StepAccount(NamedTuple):
    """Fields of :class:`TrainingRun`; the largest exchange, all with counts, and (count, bytes) of collectives."""

    streams: dict[str, StreamUse]
    exposed_s: float
    exchanging_s: float
    largest: Fragment | None
    exchanges: Sequence[tuple[Fragment, int]]
    collectives: Sequence[tuple[int, float]]
    bubble_s: float = 0.0
    tied_s: float = 0.0


def training_result(
    shared: SharedStep,
    step: StepResult,
    roles: Sequence[Role],
    slowest: int,
    timeline: Timeline,
    *,
    alone_rate: float,
    memory: tuple[DeviceMemory, ...],
    account: StepAccount,
) -> TrainingResult:
    """Return the result of *timeline*, seen by role number *slowest*, whose *account* and *step* are given.

    The notes are those of the largest exchange, and those that others add: on rates, on staging, on merged roles.
    """
    largest, plans = account.largest, [part.plan for part in dict.fromkeys(part for part, _ in account.exchanges)]
    merged = []
    if less := max(role.less_loaded for role in roles):
        alike = f"those with the nearest loads, up to {less:.1%} apart, are slowed as the most loaded of them"
        merged = [f"exchanges load equal GPUs in more than {MOST_ROLES} ways; {alike}"]
    own, facts = ((), {"software": 1}) if largest is None else (largest.plan.notes, largest.plan.facts)
    kept = [KEPT] if KEPT not in own and any(KEPT in plan.notes for plan in plans) else []
    return TrainingResult(
        question=shared.question,
        step=step,
        device_count=shared.group.n_ranks,
        alone_rate=alone_rate,
        counts_software=counts_software(facts),
        is_bound=is_bound(facts),
        notes=(*own, *kept, *staging_notes(timeline.machine, plans), *merged),
        timeline=timeline,
        exchanges=sum(count for count, _ in account.collectives),
        exchanged_bytes=sum(n_bytes for _, n_bytes in account.collectives),
        bottleneck=bottleneck_of(timeline.machine, account.exchanges, timeline.end_s, timeline.plan.perturbations),
        pace=_pace(shared.question, roles, slowest),
        memory=memory,
        **{name: getattr(account, name) for name in ("streams", "exposed_s", "exchanging_s", "bubble_s", "tied_s")},
    )


def _pace(question: StepQuestion, roles: Sequence[Role], slowest: int) -> float:
    """Return the time of the slowest rank with the same device as role *slowest*, relative to the mean."""
    device, pace = roles[slowest].place.device, roles[slowest].pace
    contends = question.contention and (question.options.trains or question.layout.zero == 3)
    if not contends:
        return pace
    of_stages = question.layout.pp > 1
    alike = [role for i, role in enumerate(roles) if role.place.device is device and (i == slowest or not of_stages)]
    return pace * slowest_of(sum(role.count for role in alike), device.constants)


def by_part(
    roles: Sequence[Role], needs: Sequence[tuple[Network, MemoryNeed]], options: StepOptions
) -> tuple[DeviceMemory, ...]:
    """Return the memory of *roles*, each with its network and need, with devices of equal part and need combined."""
    counts = sums_by_key(
        ((role.place.part, need, peak_of(network, options, role.place)), role.count)
        for role, (network, need) in zip(roles, needs, strict=True)
    )
    return tuple(DeviceMemory(part, count, need, peak) for (part, need, peak), count in counts.items())


def exchanged_in(timeline: Timeline, prefix: str = "") -> list[tuple[int, float]]:
    """Return the count and the bytes in all of each collective on the streams that begin with *prefix*."""
    return [
        (times, times * task.about.size_bytes)
        for task, times in zip(timeline.plan.tasks, run_counts(timeline), strict=True)
        if isinstance(task.about, CollectiveLabel) and task.stream.startswith(prefix)
    ]


def summing_s(timeline: Timeline) -> float:
    """Return the seconds in which a pipeline's gradients or parameters are exchanged while no stage computes."""
    passes: list[Span] = []
    updates: list[Span] = []
    for task, span in timeline.ran(ChunkRun):
        (updates if task.about.part == "update" else passes).append(span)
    if not passes or not updates:
        return 0.0
    between_s = max(0.0, min(span.start_s for span in updates) - max(span.end_s for span in passes))
    after_s = max(0.0, timeline.end_s - max(span.end_s for span in updates))
    return min(span.start_s for span in passes) + between_s + after_s


def tied_s_of(timeline: Timeline) -> float:
    """Return the seconds for which all passes and other sums are done, but not that of the stages' tied parameters."""
    tied_s, others_s = 0.0, 0.0
    for task, span in timeline.ran():
        about = task.about
        if isinstance(about, CollectiveLabel) and about.of_tied:
            tied_s = max(tied_s, span.end_s)
        elif isinstance(about, ChunkRun) and about.part == "update":
            break
        else:
            others_s = max(others_s, span.end_s)
    return max(0.0, tied_s - others_s)


def steps_document(results: Sequence[TrainingRun], unfit: Mapping[str, str]) -> dict[str, Any]:
    """Return *results* (fastest first) as plain data: the best from the view of one device, and a list of all."""
    best = best_of(results)
    return {
        **changed_entry(best.changed),
        "schema_version": SCHEMA_VERSION,
        **taken(best.step, _OF_STEP),
        "options": options_entry(best.question),
        "memory": _memory(best, best.tightest.need),
        **step_confidence(best).to_dict(),
        "bound": best.bound,
        "trust": plain(step_trust(best)),
        "clock": plain(best.clock),
        "alternatives": plain(best.alternatives),
        "what_if": [{**plain(other), "gain": best.step_time_s / other.step_time_s} for other in best.what_if],
        "remedies": [remedy.change for remedy in best.remedies],
        "remedy_costs": plain(best.remedies),
        "results": [_entry(result) for result in results],
        "unfit": [{"strategy": name, "reason": reason} for name, reason in unfit.items()],
    }


_OF_STEP = (
    "topology=machine workload device part samples sample tokens calibrated options step_time_s "
    "throughput_per_s=throughput parts_s busy_s host_s waiting_s model_flop=torch_flop "
    "peak_flops_per_s model_flop_utilisation=utilisation parameter_count trained_count "
    "flop_by_format kinds layers gradient_order simulation_events"
)


def options_entry(question: StepQuestion) -> dict[str, Any]:
    """Return the options of *question* as plain data; ``accumulation`` is None where nothing adds gradients."""
    options = question.rank_options
    adds = question.micro_batches > 1 and options.trains and options == question.options
    how = options.accumulation if adds or options.framework == "megatron" else None
    return {**plain(options), "accumulation": how}


def _entry(result: TrainingRun) -> dict[str, Any]:
    question, software, servers = result.question, result.question.software, result.servers
    run, run_in = result.checkpoints, result.input
    shares = [{"device": name, "part": part, "samples": count} for name, part, count in result.shares]
    return {
        "topology": result.machine,
        **changed_entry(result.changed),
        "strategy": result.strategy or None,
        "parallel": result.parallel or None,
        "bucket_bytes": question.bucket_bytes if result.parallel and question.layout.zero < 3 else None,
        **taken(result, "is_bound counts_software"),
        **{name: getattr(question, name) for name in OF_NCCL if question.forced},
        "nccl": ".".join(map(str, question.software.nccl)) if result.strategy == "nccl" else None,
        **_said(
            libraries=month_words(software.libraries) if software.libraries else None,
            cpu_library=software.cpu_library if software.cpu_library != TODAY.cpu_library else None,
            sums_whole=question.sums_whole,
            gathers_in_fp32=question.gathers_in_fp32,
            gathers_again=question.gathers_again,
            flat_parameters=question.flat_parameters,
            gpu_clock_Hz=software.gpu_clock_Hz or None,
        ),
        **taken(result, "device_count part=step.part samples tokens"),
        "parts": [{"part": part, "device_count": count} for part, count in result.parts.items()],
        **taken(question, "micro_batches programs"),
        "precision": question.options.precision,
        "sizes": dict(question.sizes),
        "step_time_s": result.step_time_s,
        **step_confidence(result).to_dict(),
        **taken(result, "throughput_per_s=throughput price_per_hour price_per_million_samples=price_per_million"),
        "rates": plain(rates_of(result)),
        **taken(result, "alone_s exposed_communication_s=exposed_s pipeline_bubble_s=bubble_s"),
        "communication_s": result.exchanging_s,
        "account_s": time_shares(result),
        **taken(result, "communication_bytes=exchanged_bytes exchanges scaling_efficiency"),
        "bottleneck": result.bottleneck and taken(result.bottleneck, "link=name bytes utilisation=rounded_share"),
        **taken(result, "bound critical_path_s=step.limits_s streams"),
        "memory": [
            {**taken(device, "part stage device_count=count"), **_memory(result, device.need)}
            for device in result.memory
        ],
        **_said(
            servers=servers
            and {
                **taken(servers, "places=servers stages_s staleness_mean staleness_max is_steady lost_s then_s"),
                "nodes": [{**plain(pace), "slack_s": pace.slack_s} for pace in servers.paces],
            },
            offload=result.offload and {**plain(result.offload), "fits": result.offload.fits},
            input=run_in
            and {
                **taken(run_in, _OF_INPUT),
                "limits_s": run_in.limits_s,
                "rates_per_s": {name: result.samples / seconds for name, seconds in run_in.limits_s.items()},
                **taken(run_in, _OF_EPOCHS),
            },
            epoch_s=result.epoch_s if result.epoch_steps else None,
            shares=shares or None,
            checkpoints=run and {**plain(run), **taken(run, _OF_CHECKPOINTS)},
        ),
        "notes": list(result.notes),
        "trust": plain(step_trust(result)),
    }


_OF_INPUT = (
    "set=asked.name disks workers=asked.workers prefetch=asked.prefetch bound idle_share step_s "
    "period_s first_period_s filled_s"
)
_OF_EPOCHS = (
    "epoch_steps first_epoch_s=first_s later_epoch_s=later_s evaluation_s epochs=asked.epochs "
    "all_epochs_s=total_s cached_share buffers_bytes kept_bytes cure cures"
)
_OF_CHECKPOINTS = "interval_s goodput written_share failed_share young_s best_steps best_goodput"


def _said(**entries: Any) -> dict[str, Any]:
    return {name: entry for name, entry in entries.items() if entry is not None and entry is not False}


def _memory(result: TrainingRun, need: MemoryNeed) -> dict[str, Any]:
    figures = "total_bytes allocated_bytes reserved_bytes process_bytes fits"
    return {
        **plain(need),  # a part without memory_size has no bound
        **taken(need, figures),
        "band_bytes": plain(memory_band(result, need.total_bytes)),
        "fits_by_band": fits_by_band(result, need),
    }
