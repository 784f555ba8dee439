"""The time of a measured step: the network built, and one step of it simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from simulator.api import simulate_step
from simulator.devices.calibration import Calibration
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.roofline import roofline_cost
from simulator.devices.lowering import lower_operator
from simulator.errors import InputError, SimulationError, one_line
from simulator.step.backward import backward_steps
from simulator.step.options import StepOptions
from simulator.step.place import find_place
from simulator.step.precision import precision_of
from simulator.workload.network import Network
from simulator.workload.operators import Operator, Phase
from simulator.workload.zoo.registry import build_network, find_entry
from validate.score.machines import Compiled, MachineBook
from validate.score.query import NotScored
from validate.training.copies import exchange_on, step_of_copies
from validate.training.query import TrainingQuery

__all__ = ["StepPredictor", "is_image_network"]

_Answer = float | str  # seconds, or why there is no prediction


class StepPredictor:
    """Predicts steps on the machines of a book; equal queries once."""

    def __init__(self, book: MachineBook, calibrations: Mapping[str, Calibration]) -> None:
        self._book = book
        self._calibrations = calibrations
        self._kept: dict[tuple[str, TrainingQuery], _Answer] = {}

    def predict_s(self, query: TrainingQuery) -> float:
        """Return the predicted seconds of *query*; raises NotScored where it cannot be predicted."""
        compiled = self._book.get(query.machine, query.spread.nodes if query.spread else 1)
        key = (compiled.topology, replace(query, machine=""))
        if key not in self._kept:
            try:
                self._kept[key] = self._step(compiled, query)
            except (InputError, SimulationError) as error:
                self._kept[key] = one_line(error)
        answer = self._kept[key]
        if isinstance(answer, str):
            raise NotScored(answer)
        return answer

    def roofline_s(self, query: TrainingQuery) -> float:
        """Return the rooflines of all kernels of the step, one after the other, without an update."""
        try:
            network = _network(query)
            device = find_place(self._book.get(query.machine, 1).machine, None, {}).device
            if not isinstance(device, Gpu):
                raise NotScored("no roofline of a CPU")
            time_s = _roofline(device, network, query.options)
        except InputError as error:
            raise NotScored(one_line(error)) from None
        return time_s * query.micro_batches

    def _step(self, compiled: Compiled, query: TrainingQuery) -> float:
        network, machine = _network(query), compiled.machine
        if query.spread is not None:
            device = find_place(machine, None, self._calibrations).device
            exchange = exchange_on(compiled, query.spread)
            return step_of_copies(device, network, query.options, query.spread, exchange, query.micro_batches)

        def run(options: StepOptions) -> float:
            result = simulate_step(
                machine,
                network,
                options,
                threads=None if machine.gpus else query.threads,
                cpu_library=query.cpu_library,
                calibrations=self._calibrations,
            )
            return result.step_time_s

        whole_s = run(query.options)
        if query.micro_batches == 1:
            return whole_s
        # All micro-batches but the last go without an update.
        return whole_s + (query.micro_batches - 1) * run(replace(query.options, optimizer="none"))


def _roofline(gpu: Gpu, network: Network, options: StepOptions) -> float:
    asked: list[tuple[Operator, Phase]] = []
    if options.mode != "backward":
        asked += [(layer.operator, "fwd") for layer in network.layers]
    if options.mode in ("train", "backward"):
        asked += [(s.layer.operator, s.phase) for s in backward_steps(network) if s.phase is not None]
    time_s = 0.0
    for operator, phase in asked:
        for kernel in lower_operator(operator, phase, precision_of(options.precision, operator, gpu)):
            time_s += roofline_cost(gpu, kernel).time_s
    return time_s


def _network(query: TrainingQuery) -> Network:
    sizes = (
        *(query.image, query.sequence_length, query.hidden, query.heads, query.layers, query.vocabulary),
        query.predicted,
        query.attention,
    )
    return _built(query.model, query.batch, query.options.trains, query.loss, sizes)


@lru_cache(maxsize=64)
def _built(model: str, batch: int, trains: bool, loss: bool, sizes: tuple[int | str | None, ...]) -> Network:
    names = ("image", "sequence_length", "hidden", "heads", "layers", "vocabulary", "predicted", "attention")
    options: dict[str, Any] = {name: size for name, size in zip(names, sizes, strict=True) if size is not None}
    return build_network(model, batch=batch, training=trains, loss=loss, **options)


@lru_cache(maxsize=1024)
def is_image_network(model: str) -> bool | None:
    """Return whether *model* is a network for images, None where it is none of the zoo."""
    try:
        return find_entry(model).sample == "images"
    except InputError:
        return None
