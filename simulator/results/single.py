"""The answer to a single operation, :class:`SingleResult`, and the figures behind a time: :class:`Account`."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.bands.composition import Band
from simulator.devices.dispatch import dispatch_time
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import sustained_clock
from simulator.devices.predict import Device, kernel_cost, steady_device
from simulator.errors import InputError
from simulator.host.answer import HostTime
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass, field, replace
from simulator.results import SCHEMA_VERSION, Fact, html_of, taken
from simulator.results.changed import ChangeEffect, change_fact, changed_entry, said
from simulator.results.confidence import BAND_HEAD, Confidence
from simulator.results.step import StepResult
from simulator.step.operator import operator_kernels
from simulator.step.precision import product_precision
from simulator.units import format_duration, format_size
from simulator.workload.precision import Precision


@dataclass(frozen=True, slots=True)
class SingleResult:
    """The time of an operator, a copy, memory accesses, a launch, a disk or a message: *words* say which.

    ``least_s`` are the seconds from data-sheet rates alone, None where these say nothing.  ``account`` holds the facts
    behind the time of an operator, ``answer`` those behind the time of other operations.  ``size_bytes``: the size, if
    the question is asked over sizes.
    """

    words: str
    machine: str
    time_s: float
    confidence: Confidence
    least_s: float | None = None
    account: Mapping[str, Any] = field(default_factory=dict)
    answer: HostTime | None = None
    size_bytes: int | None = None
    changed: ChangeEffect | None = None

    def __repr__(self) -> str:
        """Return the answer in one line."""
        of = f" {self.answer.of}" if self.answer is not None else ""
        return f"<{self.words} on {self.machine} takes {format_duration(self.time_s)}{of}{said(self.changed)}>"

    def _repr_html_(self) -> str:
        time = Fact("time", format_duration(self.time_s)), Fact(BAND_HEAD, self.confidence.words)
        return html_of([Fact("machine", self.machine), *change_fact(self.changed), Fact("question", self.words), *time])

    def name_among(self, found: "Sequence[SingleResult]") -> str:
        """Return its name in what is said of *found*: its size in a sweep; nothing, if it is the only one."""
        if len(found) == 1:
            return ""
        return self.words if self.size_bytes is None else format_size(self.size_bytes)

    @property
    def band(self) -> Band | None:
        """The interval that holds the time with a probability of 80 %."""
        return self.confidence.band

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as in ``--json``."""
        found = {
            "topology": self.machine,
            **changed_entry(self.changed),
            **taken(self, "question=words time_s"),
            **self.confidence.to_dict(),
            "trust": self.confidence.why or None,
            **taken(self, "least_s account"),
        }
        found |= {} if self.size_bytes is None else {"size_bytes": self.size_bytes}
        return found if self.answer is None else {**found, **taken(self.answer, "of bound why figures")}


def singles_document(workload: str, results: Sequence[SingleResult]) -> dict[str, Any]:
    """Return *results* as plain data."""
    entries = [result.to_dict() for result in results]
    return {"schema_version": SCHEMA_VERSION, "workload": workload, "results": entries}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Figures behind a prediction; 0 and "" if unknown.

    ``bound`` and ``detail`` are the limiter of most of the time (compute, memory, latency, host), and the tile or
    algorithm used; ``kernels_s`` and ``host_s`` the seconds of the kernels on the device, and of the host to launch
    them; ``sustained_s`` those of an operator's kernels in a run of seconds, which power and heat limit.
    ``waiting_share`` is the fraction of a step in which the device waits for the host.  ``working_set_bytes`` are
    accessed; ``cache_bytes`` and ``memory_bytes`` are the sizes of the device's last-level cache and memory,
    ``clock_Hz`` its clock in the model, ``sm_count`` its streaming multiprocessors.
    """

    is_gpu: bool = False
    bound: str = ""
    detail: str = ""
    kernels_s: float = 0.0
    host_s: float = 0.0
    sustained_s: float = 0.0
    waiting_share: float = 0.0
    working_set_bytes: float = 0.0
    cache_bytes: float = 0.0
    memory_bytes: float = 0.0
    clock_Hz: float = 0.0
    sm_count: int = 0


def device_account(device: Device) -> Account:
    """Return the figures of *device* alone."""
    memory_bytes = device.memory_bytes if device.memory_bytes < float("inf") else 0.0
    if isinstance(device, Gpu):
        return Account(is_gpu=True, cache_bytes=device.l2_bytes, memory_bytes=memory_bytes, sm_count=device.sm_count)
    return Account(cache_bytes=device.caches[-1].size_bytes if device.caches else 0.0, memory_bytes=memory_bytes)


def operator_account(question: OperatorQuestion, device: Device) -> Account:
    """Return the account of an operator on *device*; raises InputError if it cannot be predicted."""
    cold, steady = 1.0 if question.is_cold else 0.0, steady_device(device)
    costs = [kernel_cost(device, kernel, cold) for kernel in operator_kernels(question)]
    longest = max(costs, key=lambda cost: cost.time_s)
    clock_Hz = 0.0
    if isinstance(device, Gpu):
        is_product = longest.bound == "compute"
        clock_Hz = _sustained_Hz(device, question.precision) if is_product else device.boost_clock_Hz
    return replace(
        device_account(device),
        bound=longest.bound,
        detail=longest.detail,
        kernels_s=sum(cost.time_s for cost in costs),
        sustained_s=sum(kernel_cost(steady, kernel, cold).time_s for kernel in operator_kernels(question)),
        host_s=dispatch_time(device, question.operator, question.phase),
        working_set_bytes=max(cost.bytes for cost in costs),
        clock_Hz=clock_Hz,
    )


def step_account(result: StepResult, device: Device) -> Account:
    """Return the account of a step on *device*."""
    precision = product_precision(result.options.precision, device)
    steady = steady_device(device)
    return Account(
        is_gpu=isinstance(device, Gpu),
        bound=result.bound,
        kernels_s=result.busy_s,
        host_s=result.host_s,
        waiting_share=result.waiting_s / result.step_time_s if result.step_time_s > 0 else 0.0,
        working_set_bytes=result.memory.total_bytes,
        memory_bytes=result.memory.available_bytes or 0.0,
        clock_Hz=_sustained_Hz(steady, precision) if isinstance(steady, Gpu) else 0.0,
    )


def _sustained_Hz(gpu: Gpu, precision: Precision) -> float:  # noqa: N802  units keep their case
    with contextlib.suppress(InputError):
        return sustained_clock(gpu, precision)
    return 0.0
