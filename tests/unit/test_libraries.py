"""The age of kernel libraries: young ones take longer, old ones lack kernels."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import Session
from simulator.cli import run as simulate
from simulator.constants import DEFAULT
from simulator.devices.gpu import library_factor, traits_of
from simulator.devices.predict import kernel_cost
from simulator.questions.step import StepQuestion
from simulator.questions.where import Month, Software, Where
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.operators import Conv2d, Convolution
from validate.kinds import STEPS
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

COSTS = DEFAULT["libraries"]
SESSION = Session()
months = st.tuples(st.integers(2010, 2035), st.integers(1, 12))


def question(libraries: Month | None, topology: str = "p3.2xlarge") -> StepQuestion:
    software = Software(libraries=libraries)
    return StepQuestion(where=Where(topology), workload="resnet18", batch=32, software=software)


def test_the_excess_falls_by_a_factor_e_in_the_time_it_settles() -> None:
    assert library_factor(DEFAULT, (2020, 5), (2020, 5)) == pytest.approx(1 + COSTS.young)
    assert library_factor(DEFAULT, (2020, 5), (2022, 11)) == pytest.approx(
        1 + COSTS.young * exp(-2.5 / COSTS.settles_years)
    )
    assert library_factor(DEFAULT, (2020, 5), (2015, 1)) == pytest.approx(1 + COSTS.young)  # as of the first boards


def test_mature_libraries_and_unknown_designs_take_no_longer() -> None:
    assert library_factor(DEFAULT, (2020, 5), None) == 1.0
    assert library_factor(DEFAULT, None, (2020, 5)) == 1.0
    assert Software().libraries is None


@given(months, months, months)
def test_later_libraries_are_never_slower(since: Month, first: Month, second: Month) -> None:
    earlier, later = sorted((first, second))
    factors = [library_factor(DEFAULT, since, each) for each in (earlier, later)]
    assert 1.0 <= factors[1] <= factors[0] <= 1 + COSTS.young


@pytest.mark.parametrize(
    ("generation", "since"),
    [
        ("pascal", "maxwell"),
        ("turing", "volta"),
        ("ada", "ampere"),
    ],
)
def test_generations_that_feed_their_units_alike_share_kernels(generation: str, since: str) -> None:
    assert traits_of("nvidia", generation, 128).kernels_since == traits_of("nvidia", since, 128).kernels_since


def test_on_which_generations_the_excess_was_seen() -> None:
    """Chosen on Volta, judged on Ampere and Hopper (docs/decisions/steps.md); AMD's show nothing of it."""
    designs = [traits_of("nvidia", each, 64).kernels_since for each in ("volta", "ampere", "hopper")]
    assert designs == [(2017, 6), (2020, 5), (2022, 10)]
    assert traits_of("amd", "cdna3", 64).kernels_since is None


def test_only_kernels_of_libraries_take_longer() -> None:
    mature = SESSION.device(Where("p3.2xlarge"))
    young = SESSION.device(Where("p3.2xlarge"), software=Software(libraries=(2017, 6)))
    product, stream = Gemm(4096, 4096, 4096, "fp16"), Streaming("relu", 1 << 20, 1 << 22, 1 << 22)
    ratio = kernel_cost(young, product).time_s / kernel_cost(mature, product).time_s
    assert ratio == pytest.approx(1 + COSTS.young)
    assert kernel_cost(young, stream).time_s == kernel_cost(mature, stream).time_s


@pytest.mark.parametrize(("libraries", "on_lanes"), [((2020, 6), True), ((2020, 7), False), (None, False)])
def test_dilated_convolutions_run_on_lanes_before_cudnn_8(libraries: Month | None, on_lanes: bool) -> None:
    gpu = SESSION.device(Where("p3.2xlarge"), software=Software(libraries=libraries))
    plain = Conv2d(8, 256, 512, 1, 4000, 1, 3, pad_w=1)
    dilated = replace(plain, pad_w=4, dilation_w=4)
    times = [
        kernel_cost(gpu, Convolution(shape, "fwd", precision)).time_s
        for shape, precision in ((plain, "fp16"), (dilated, "fp16"), (dilated, "fp32"))
    ]
    if on_lanes:
        assert times[1] > 3.0 * times[0]
        assert times[1] == pytest.approx(times[2], rel=0.05)  # half the bytes, the same arithmetic
    else:
        assert times[1] == pytest.approx(times[0], rel=0.05)


@pytest.mark.parametrize(("libraries", "on_lanes"), [((2020, 6), True), ((2020, 7), False), (None, False)])
@pytest.mark.parametrize(
    ("kernel", "aligned"),
    [
        (Gemm(4096, 4096, 4096, "fp16"), True),
        (Gemm(4093, 4096, 4096, "fp16"), True),  # rows of A, one after the other
        (Gemm(4096, 4093, 4096, "fp16"), False),
        (Gemm(4096, 4096, 4093, "fp16", layout="NT"), False),
        (Gemm(4093, 4096, 4096, "fp16", layout="TN"), False),
        (Gemm(4096, 4096, 4093, "fp16", layout="TN"), True),  # gradients of weights, over an odd number of rows
    ],
)
def test_unaligned_products_run_on_lanes_before_cublas_11(
    kernel: Gemm, aligned: bool, libraries: Month | None, on_lanes: bool
) -> None:
    gpu = SESSION.device(Where("p3.2xlarge"), software=Software(libraries=libraries))
    ratio = kernel_cost(gpu, replace(kernel, precision="fp32")).time_s / kernel_cost(gpu, kernel).time_s
    if on_lanes and not aligned:
        assert ratio == pytest.approx(1.0, rel=0.05)
    else:
        assert ratio > 3.0


def test_products_without_a_tensor_kernel_still_read_half_the_bytes() -> None:
    gpu = SESSION.device(Where("p3.2xlarge"), software=Software(libraries=(2020, 6)))
    narrow = Gemm(24, 50257, 768, "fp16", layout="NT")
    assert kernel_cost(gpu, narrow).time_s < 0.8 * kernel_cost(gpu, replace(narrow, precision="fp32")).time_s


def test_thin_products_never_used_tensor_cores() -> None:
    old, today = (SESSION.device(Where("p3.2xlarge"), software=Software(libraries=(2020, m))) for m in (6, 7))
    thin = Gemm(4096, 1, 4096, "fp16")
    assert kernel_cost(old, thin).time_s == pytest.approx(kernel_cost(today, thin).time_s, rel=0.01)


def test_ampere_lacks_no_kernels() -> None:
    """The first libraries for it run every shape; earlier months count as theirs."""
    first, early = (SESSION.device(Where("a100-sxm4-40gb"), software=Software(libraries=(2020, m))) for m in (5, 1))
    mature = SESSION.device(Where("a100-sxm4-40gb"))
    dilated = Convolution(Conv2d(8, 256, 512, 1, 4000, 1, 3, pad_w=4, dilation_w=4), "fwd", "fp16")
    for kernel in (dilated, Gemm(4096, 4093, 4096, "fp16")):
        times = [kernel_cost(gpu, kernel).time_s for gpu in (first, early, mature)]
        assert times == pytest.approx([times[2] * (1 + COSTS.young)] * 2 + [times[2]])


def test_without_tensor_cores_old_libraries_lack_nothing() -> None:
    kernel = Gemm(4096, 4093, 4096, "fp16")
    times = [
        kernel_cost(SESSION.device(Where("gtx-1080-ti"), software=Software(libraries=month)), kernel).time_s
        for month in ((2020, 6), (2020, 7))
    ]
    assert times[0] == pytest.approx(times[1], rel=0.001)


def test_a_step_takes_as_much_longer_as_its_library_kernels() -> None:
    mature, young = (SESSION.step(question(each)).step for each in (None, (2017, 12)))
    factor = library_factor(DEFAULT, (2017, 6), (2017, 12))
    of_libraries = sum(k.time_s for k in mature.kinds if k.kind in ("gemm", "convolution", "recurrence"))
    assert young.busy_s - mature.busy_s == pytest.approx((factor - 1) * of_libraries, rel=1e-6)
    several = [replace(question(each, "p3.8xlarge"), gpus=(0, 1)) for each in (None, (2017, 12))]
    times = [SESSION.time_s(each) for each in several]
    assert 1.0 < times[1] / times[0] < factor
    assert SESSION.time_s(question((2030, 1))) == pytest.approx(SESSION.time_s(question(None)), rel=1e-4)


def test_tables_say_the_month_of_the_libraries() -> None:
    names = RowNames()
    row = {"machine": "p3.2xlarge", "model": "resnet18", "batch_per_gpu": "32", "libraries": "2017-12", "dtype": "fp32"}
    found = STEPS.read(lambda column: row.get(column, ""), names).question
    assert isinstance(found, StepQuestion)
    assert found.software.libraries == (2017, 12)
    with pytest.raises(NotScored, match="a month is needed, such as 2020-10"):
        STEPS.read(lambda column: {**row, "libraries": "2017"}.get(column, ""), names)


def test_the_answer_says_the_month(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "p3.2xlarge", "--workload", "resnet18", "--batch", "8", "--libraries", "2017-12"]
    assert simulate([*words, "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["results"]
    assert entry["libraries"] == "2017-12"
    assert simulate(words) == 0
    assert ", libraries of 2017-12\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--topology h100-sxm5-80gb --libraries 2012-01",
            "h100-sxm5-80gb has none so old; 2021-10 or later is allowed",
        ),
        ("--topology mi300x --libraries 2024-01", "--libraries: is not modelled for mi300x; leave it out"),
        ("--topology p3.2xlarge --libraries 2019-13", "--libraries 2019-13: a month is needed, such as 2020-10"),
    ],
)
def test_months_of_which_nothing_is_known_are_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate([*words.split(), "--workload", "resnet18", "--batch", "8"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("said", ["torch-2.1", "2023-10"])
def test_a_refusal_names_the_libraries_as_they_were_said(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["--topology", "b200", "--workload", "resnet18", "--batch", "1", "--libraries", said]) == 2
    assert f"--libraries {said}: b200 has none so old" in capsys.readouterr().err
