"""Answers to all questions, of commands and of tables of measurements alike: :class:`Session`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from simulator.api.context import Context, perturbations_of, refuse_passing, run_collective
from simulator.bands.composition import Composition, SharedNetwork
from simulator.collectives.communicator import Request, Strategy, Unsuitable
from simulator.collectives.registry import strategy_of
from simulator.constants import DEFAULT, Constants
from simulator.engine.timeline import Timeline
from simulator.errors import InputError
from simulator.kept import Kept
from simulator.questions.checks import refuse_all
from simulator.records import replace
from simulator.results.changed import ChangeEffect, changes_of, unchanged
from simulator.results.confidence import Confidence, confidence_of
from simulator.results.result import Result

if TYPE_CHECKING:  # device models are imported on first use
    from simulator.devices.predict import Device
    from simulator.host.answer import HostTime
    from simulator.questions.calibration import Calibration
    from simulator.questions.collective import CollectiveQuestion
    from simulator.questions.options import SamplesOption
    from simulator.questions.question import Question
    from simulator.questions.single import ProgramQuestion
    from simulator.questions.step import StepQuestion
    from simulator.results.program import ProgramResult
    from simulator.results.single import Account
    from simulator.results.training import TrainingResult
    from simulator.step.memory import MemoryNeed
    from simulator.training.plan import SharedStep
else:
    Device = Question = Any

__all__ = ["Device", "Question", "Session"]
_SAME = 1e-9  # relative, of two times
_ANSWERS = 4096  # cached answers, a few kB each
_UNBOUND = {"core": "a latency has no rate", "program": "a data sheet says nothing about programs"}
_TIMED = ("collective", "step", "program", "operator")  # topics of which only the time is told


class Session(Context):
    """Answers to questions; machines and devices are created once, recent answers kept; constants may be other ones."""

    def __init__(self, calibrations: Mapping[str, Calibration] | None = None, constants: Constants = DEFAULT) -> None:
        super().__init__(calibrations, constants)
        self._answers = Kept(_ANSWERS)

    def time_s(self, question: Question) -> float:
        """Return the predicted time of *question*, in seconds; raises InputError, with the reason, if there is none."""
        return self._answered("time", question)

    def bound_s(self, question: Question) -> float:
        """Return the seconds from data-sheet rates alone, a baseline for predictions; raises as :meth:`time_s`."""
        return self._answered("bound", question)

    def composed(self, question: Question) -> Composition:
        """Return the error classes that the answer to *question* is composed of; raises InputError."""
        from simulator.api.topics import composed

        return self._kept.once(("composed", question), lambda: composed(self, question))

    def confidence(self, question: Question) -> Confidence:
        """Return the uncertainty of :meth:`time_s` for *question*; raises as it does."""
        return confidence_of(self.time_s(question), self.composed(question), question, self.shared(question))

    def shared(self, question: Question, time_s: float | None = None) -> SharedNetwork | None:
        """Return the shared network that slows *question*, which takes *time_s* on a free one; None if none does."""
        lower = self.machine(question.where).shared_network
        if not lower or self.machine(question.where).n_hosts < 2 or self.is_compiled(question.where):
            return None
        asked: Any = question
        free_s = self.time_s(question) if time_s is None else time_s
        slowdown = self.time_s(replace(asked, where=replace(asked.where, congested=True))) / (free_s or 1.0)
        return SharedNetwork(lower, slowdown) if slowdown > 1.0 + _SAME else None

    def _answered(self, what: Literal["time", "bound"], question: Question) -> float:
        if question.topic not in ("collective", "step"):
            refuse_passing(question.where.slow_links, "a single operation or a program")

        def answer_s() -> float:
            try:
                return self._time_s(question) if what == "time" else self._bound_s(question)
            except Unsuitable as error:
                raise _not_fitting(question, error) from None

        return self._answers.once((what, question), answer_s)

    def _time_s(self, question: Any) -> float:
        if question.topic == "collective":
            return self.collective(question).sync_time_s
        if question.topic == "program":
            return self.program(question).done_s
        if question.topic == "operator":
            from simulator.step.operator import operator_s

            return operator_s(question, self.device(question.where, question.device, question.threads))
        if question.topic != "step":
            return self.answer(question).time_s
        # These have several steps, or shares that must be found first.
        if question.has_servers or question.divided or question.input is not None:
            return self.step_as_told(question).step_time_s
        return self.step_timeline(question).end_s

    def _bound_s(self, question: Any) -> float:
        if question.topic in _UNBOUND:
            raise InputError(_UNBOUND[question.topic])
        from simulator.api.topics import LEAST

        return LEAST[question.topic](self, question)

    def answer(self, question: Question) -> HostTime:
        """Return the answer to *question*, with its time and its limiter; raises InputError."""
        if question.topic in _TIMED:
            raise InputError("only the time of this is known")
        from simulator.api.topics import ANSWERS

        return self._answers.once(("explained", question), lambda: ANSWERS[question.topic](self, question))

    def collective(self, question: CollectiveQuestion, *, fold: bool = True) -> Result:
        """Return the result; raises InputError or Unsuitable. *fold* passes repeated rounds as one event."""
        strategy, requests = self.planned(question)
        perturbations = perturbations_of(requests[0].machine, question.where.slow_links)
        result = run_collective(strategy, requests, fold=fold, perturbations=perturbations)
        shared = self.shared(question, result.sync_time_s) if result.counts_software else None
        return replace(result, asked=question, shared=shared)

    def changed(self, question: Question, answer: float | Result | TrainingResult) -> ChangeEffect | None:
        """Return what *question* changes of its machine, by answering without it; None if it changes nothing."""
        what = tuple(changes_of(question))
        if not what:
            return None
        ask: Any = self.step if question.topic == "step" else self.collective
        plain: Any = None
        with suppress(InputError, Unsuitable):
            plain = (self.time_s if isinstance(answer, float) else ask)(unchanged(question))
        return ChangeEffect(what, answer, plain) if isinstance(answer, float) else answer.effect(what, plain)

    def planned(self, question: CollectiveQuestion) -> tuple[Strategy, list[Request]]:
        """Return the strategy of *question* and one request for each of its groups; raises InputError."""
        group = self.group(question.where, question.gpus)
        size = question.group_size or group.n_ranks
        refuse_all(question.rank_faults(group.n_ranks))
        groups = [group.part(range(i, i + size)) for i in range(0, group.n_ranks, size)]
        groups = groups if len(groups) > 1 else [group]
        said = question.collective, question.size_bytes, question.root, question.pairs, question.gpus_per_process
        return self.strategy(question, in_switch=question.in_switch), [Request(part, *said) for part in groups]

    def strategy(
        self, question: CollectiveQuestion | StepQuestion, name: str | None = None, *, in_switch: bool = True
    ) -> Strategy:
        """Return *question*'s strategy, or *name*; *in_switch*: a switch can reduce the type.  Raises InputError."""
        said = {field: getattr(question, field) for field in ("algorithm", "protocol", "nvls", "servers")}
        more = {**said, "in_switch": in_switch, "constants": self.constants}
        return strategy_of(name or question.strategy, question.software, **more)

    def step(self, question: StepQuestion, *, fold: bool = True) -> TrainingResult:
        """Return a step's result; *fold*: equal ranks and micro-batches are simulated once.  Raises InputError."""
        from simulator.api.outcome import faults_of

        refuse_all(fault for fault, _ in faults_of(self, question))
        return self.step_as_told(question, fold=fold)

    def step_as_told(self, question: StepQuestion, *, fold: bool = True) -> TrainingResult:
        """Return :meth:`step` as rows of tables tell it, whether network and devices have what it asks or not."""
        if question.input is not None:
            from simulator.api.input import with_input

            result = with_input(self, question, partial(self._step, question, fold=fold))
        else:
            result = self._step(question, fold=fold)
        if question.checkpoints is not None:
            from simulator.api.run import with_checkpoints

            result = with_checkpoints(self, result)
        return replace(result, shared=self.shared(question, result.step_time_s))

    def _step(self, question: StepQuestion, *, fold: bool = True) -> TrainingResult:
        from simulator.api.steps import run_alone, run_divided, run_together, with_offload

        place = self.single(question)
        if place is not None:
            refuse_passing(question.where.slow_links, "a step on one device")
            places = self.places(question.where, question.software)
            result = run_alone(places, place, self.network(question), question)
            if question.offload == "none":
                return result
            return with_offload(result, [places.machine.node(place.name).index])
        shared = self._shared(question, fold=fold)
        if question.divided:
            return run_divided(shared, self.source(question).build)
        result = run_together(shared)
        return result if question.offload == "none" else with_offload(result, shared.group.ranks)

    def program(self, question: ProgramQuestion) -> ProgramResult:
        """Return the result of a program; raises InputError with every fault of its file."""
        refuse_passing(question.where.slow_links, "a program")
        from simulator.api.programs import run_program, run_trace

        return (run_trace if question.workload.endswith(".et") else run_program)(self, question)

    def advised(self, question: StepQuestion, samples: SamplesOption = "batch") -> TrainingResult:
        """Return :meth:`step` with faster ways and ways to fit, cut by the option *samples*; raises as it does."""
        from simulator.api.advice import advised

        return advised(self, question, samples)

    def account(self, question: Question) -> Account:
        """Return how the model computes an operator's or one device's step, else facts of it; raises InputError."""
        from simulator.results.single import device_account, operator_account, step_account

        asked: Any = question
        if question.topic == "operator":
            return operator_account(asked, self.device(question.where, asked.device, asked.threads))
        if question.topic == "step":
            step = self.step(asked).step
            return step_account(step, self.device(question.where, step.device, software=asked.software))
        return device_account(self.device(question.where, getattr(question, "device", None)))

    def memory(self, question: StepQuestion) -> MemoryNeed:
        """Return the memory of a step, with several devices that of the one that needs most; raises InputError."""
        from simulator.api.outcome import needs

        try:
            return max(needs(self, question), key=lambda need: need.total_bytes)
        except Unsuitable as error:
            raise _not_fitting(question, error) from None

    def slowed_host_s(self, question: StepQuestion, scale: float) -> float:
        """Return the seconds of a step on one device if its host takes *scale* times as long; raises InputError."""
        from simulator.api.steps import alone_timeline

        place = self.single(question)
        if place is None:
            raise InputError("the hosts of several devices are not slowed one by one")
        places, network = self.places(question.where, question.software), self.network(question)
        return alone_timeline(places, place, network, question, host_scale=scale).end_s

    def step_timeline(self, question: StepQuestion) -> Timeline:
        """Return the timeline of a step, without the analysis of :meth:`step`; raises as it does."""
        from simulator.api.steps import alone_timeline, together_timeline

        place = self.single(question)
        if place is not None:
            refuse_passing(question.where.slow_links, "a step on one device")
            places = self.places(question.where, question.software)
            return alone_timeline(places, place, self.network(question), question)
        if question.has_servers or question.divided:
            return self._step(question).timeline
        return together_timeline(self._shared(question))[1]

    def chakra(self, question: StepQuestion) -> dict[str, bytes]:
        """Return a step's Chakra trace by file ending (``.0.et``: rank 0; ``.json``: groups); raises as a step."""
        from simulator.api.programs import check_ranks, written_ranks
        from simulator.results.chakra import chakra_files

        check_ranks(question)
        if self.single(question) is not None:
            return chakra_files(self.step_timeline(question), [0], [""])
        return written_ranks(self._shared(question))

    def _shared(self, question: StepQuestion, *, fold: bool = True) -> SharedStep:
        from simulator.training.plan import SharedStep

        places, group = self.places(question.where, question.software), self.group(question.where, question.gpus)
        chosen = self.strategy(question)  # for gradients; exchanges within layers are NCCL's
        within = self.strategy(question, "nccl") if question.layout.divides_network else chosen
        return SharedStep(places, self.network(question), question, group, chosen, within, fold)


def _not_fitting(question: Question, error: Unsuitable) -> InputError:
    return InputError(f"{getattr(question, 'strategy', '')} does not fit: {error.why}")
