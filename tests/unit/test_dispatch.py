"""The host: its time to launch, and what two events around one call measure."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from simulator.api import Session, load_machine
from simulator.constants import DEFAULT
from simulator.devices.dispatch import dispatch_time, host_time
from simulator.devices.gpu import Gpu
from simulator.places import Places
from simulator.questions.calibration import Calibration
from simulator.workload.operators import (
    Conv2d,
    CrossEntropy,
    Elementwise,
    LayerNorm,
    Linear,
    Operator,
    Recurrent,
    Softmax,
)
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu
from validate.kinds import OPERATORS
from validate.kinds.timing import TimingCosts, between_events, between_events_s
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

RELU = Elementwise("relu", 1000)
DISPATCH = DEFAULT["dispatch"]
TIMING = DEFAULT(TimingCosts)


def isolated_time(operator: Operator, kernels_s: float, calibration: Calibration | None = None) -> float:
    """Return the time between two events around a call on a T4, in seconds."""
    session = Session({"t4": calibration} if calibration else None)
    return between_events("t4", operator, "fwd")(kernels_s, session)


@pytest.fixture(scope="module")
def t4() -> Gpu:
    return find_gpu("t4")


def test_a_call_shows_a_floor_however_short_its_kernels() -> None:
    floor_s = TIMING.isolated_elementwise_s + TIMING.isolated_end_s
    assert isolated_time(RELU, 1e-9) == isolated_time(RELU, TIMING.isolated_end_s)
    assert isolated_time(RELU, 1e-9) == pytest.approx(floor_s)


def test_beyond_the_floor_kernels_add_to_what_comes_before_them() -> None:
    assert isolated_time(RELU, 1e-3) == pytest.approx(1e-3 + TIMING.isolated_elementwise_s)


def test_floors_are_those_that_were_measured() -> None:
    # The fastest of the operators measured on T4, in launch.csv of the published measurements.
    for operator, measured_s in (
        (RELU, 30e-6),
        (Softmax(8, 8), 33e-6),
        (LayerNorm(8, 8), 47e-6),
        (Linear(8, 8, 8), 53e-6),
    ):
        assert isolated_time(operator, 0.0) == pytest.approx(measured_s, rel=0.2)


def test_a_convolution_shows_the_search_of_its_algorithm_only_where_a_row_says_so() -> None:
    shape = Conv2d(1, 3, 8, 8, 8, 3, 3)
    plain, searched = (between_events("t4", shape, "fwd", searched=s)(1e-3, Session()) for s in (False, True))
    assert plain == pytest.approx(1e-3 + TIMING.isolated_linear_s)
    assert searched == pytest.approx(1e-3 + TIMING.searched_convolution_s)
    row = {"device": "t4", "op": "conv2d", "dtype": "fp32", "includes_dispatch": "1", "batch": "1", "time_s": "1e-3"}
    row |= {"c_in": "3", "c_out": "8", "h_in": "8", "w_in": "8", "kernel_h": "3", "kernel_w": "3"}
    for said, before in (("", "isolated_linear_s"), ("1", "searched_convolution_s")):
        found = OPERATORS.read(lambda column, said=said: {**row, "searched": said}.get(column, ""), RowNames()).timing
        assert found.function is between_events_s
        assert found.arguments[1] == before
    with pytest.raises(NotScored, match="searched 'yes' is neither 0 nor 1"):
        OPERATORS.read(lambda column: {**row, "searched": "yes"}.get(column, ""), RowNames())


def test_a_calibration_multiplies_the_host_alone(t4: Gpu) -> None:
    slower = Calibration(dispatch=2.0)
    slow = replace(t4, calibration=slower)
    assert dispatch_time(slow, RELU, "fwd") == 2 * dispatch_time(t4, RELU, "fwd")
    assert isolated_time(RELU, 1e-3, slower) - isolated_time(RELU, 1e-3) == pytest.approx(TIMING.isolated_elementwise_s)


def test_who_calls_a_library_or_issues_twice_takes_longer(t4: Gpu) -> None:
    convolution = Conv2d(1, 3, 8, 8, 8, 3, 3)
    assert (
        dispatch_time(t4, convolution, "fwd")
        > dispatch_time(t4, Linear(8, 8, 8), "fwd")
        > dispatch_time(t4, RELU, "fwd")
    )
    one_s = dispatch_time(t4, Linear(8, 8, 8), "bwd_data")
    assert dispatch_time(t4, Linear(8, 8, 8), "bwd") == pytest.approx(3 * one_s)  # of inputs, weights and biases
    assert dispatch_time(t4, CrossEntropy(8, 8), "fwd") == 2 * dispatch_time(t4, RELU, "fwd")
    assert dispatch_time(t4, Recurrent("lstm", 1, 1, 8, 8), "fwd") > DISPATCH.recurrent_s


def test_one_call_for_both_gradients_of_a_convolution_picks_two_kernels(t4: Gpu) -> None:
    convolution = Conv2d(1, 3, 8, 8, 8, 3, 3)
    both_s, one_s = (dispatch_time(t4, convolution, phase) for phase in ("bwd", "bwd_data"))
    assert both_s - one_s == pytest.approx(DISPATCH.convolution_s)


@pytest.mark.parametrize(("network", "least_s", "most_s"), [("resnet18", 2.1e-3, 4e-3), ("resnet50", 6.5e-3, 10.5e-3)])
def test_networks_are_issued_forward_in_what_was_measured(t4: Gpu, network: str, least_s: float, most_s: float) -> None:
    """At batch 1 the device waits: hosts from 2 to 4 GHz took 2.1 ms here, and 6.7 ms (ResNeXt-50) to 10.4 ms."""
    layers = build_network(network, batch=1).layers
    assert least_s < sum(dispatch_time(t4, layer.operator, "fwd") for layer in layers) < most_s


def test_tensors_are_gathered_one_by_one_and_on_a_gpu_alone(t4: Gpu) -> None:
    cpu = Places(load_machine("p3.2xlarge")).find("cpu0").device
    slow = replace(t4, calibration=Calibration(dispatch=2.0))
    constants: tuple[Literal["gradient_s", "update_s"], ...] = ("gradient_s", "update_s")
    for constant in constants:
        assert host_time(t4, constant, 0) == 0.0
        assert host_time(t4, constant, 30) == pytest.approx(30 * host_time(t4, constant, 1))
        assert host_time(slow, constant, 30) == pytest.approx(2 * host_time(t4, constant, 30))
        assert host_time(cpu, constant, 30) == 0.0
