"""Collectives and steps of machines and networks made by tests, asked of a session as users ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator import InputError, Result, Session, StepOptions, StepQuestion, TrainingResult, Where
from simulator.api.context import chosen_gpus
from simulator.collectives.communicator import Communicator, Request, Strategy, Unsuitable
from simulator.network.machine import Machine
from simulator.questions.calibration import Calibration
from simulator.questions.collective import CollectiveQuestion
from simulator.results.step import StepResult
from simulator.workload.find import NetworkSource
from simulator.workload.network import Network


def request_of(machine: Machine, size_bytes: float, *, gpus: Sequence[int] | None = None, **asked: Any) -> Request:
    """Return the request of a collective over *gpus* of *machine*, by default all; *asked*: its other properties."""
    group = Communicator(machine, chosen_gpus(machine, gpus))
    return Request(group, **{"collective": "all-reduce", "size_bytes": size_bytes, **asked})


class _Exchanging(Session):
    """A session whose steps exchange with a strategy that has no name to ask for."""

    told: Strategy

    def strategy(self, *_: Any, **__: Any) -> Strategy:
        return self.told


def exchange_on(
    machine: Machine,
    strategy: str,
    size_bytes: float,
    *,
    gpus: Sequence[int] | None = None,
    fold: bool = True,
    **asked: Any,
) -> Result:
    """Return a collective of *size_bytes* on *machine*; raises InputError, also where *strategy* does not fit.

    *asked*: other fields of the question.
    """
    session, where = Session(), Where(machine.name)
    session.know(where, machine)
    chosen = None if gpus is None else tuple(gpus)
    question = CollectiveQuestion(where=where, strategy=strategy, size_bytes=size_bytes, gpus=chosen, **asked)
    try:
        return session.collective(question, fold=fold)
    except Unsuitable as error:
        raise InputError(str(error)) from None


def step_on(
    machine: Machine,
    network: Network,
    options: StepOptions | None = None,
    *,
    gpus: Sequence[int] | None = None,
    strategy: str | Strategy = "nccl",
    calibrations: Mapping[str, Calibration] | None = None,
    fold: bool = True,
    **asked: Any,
) -> TrainingResult:
    """Return a step of *network* on *machine*; raises InputError or Unsuitable.

    *asked*: other fields of the question.
    """
    session = Session(calibrations)
    if not isinstance(strategy, str):
        session = _Exchanging(calibrations)
        session.told, strategy = strategy, strategy.name
    where = Where(machine.name)
    session.know(where, machine)
    session.networks[network.name] = NetworkSource(network.name, lambda _: network)
    question = StepQuestion(
        where=where,
        workload=network.name,
        batch=network.samples,
        options=options or StepOptions(),
        gpus=None if gpus is None else tuple(gpus),
        strategy=strategy,
        **asked,
    )
    return session.step(question, fold=fold)


def alone_on(
    machine: Machine, network: Network, options: StepOptions | None = None, *, device: str | None = None, **asked: Any
) -> StepResult:
    """Return a step of *network* on one device of *machine*, by default its first GPU."""
    gpus = (0,) if device is None and machine.gpus else None
    return step_on(machine, network, options, gpus=gpus, device=device, **asked).step
