"""GPUs that the driver holds to a clock: ``--gpu-clock``."""

from __future__ import annotations

import pytest

from simulator.cli import run
from simulator.devices.gpu import Gpu, gpu_from_part
from simulator.devices.predict import kernel_cost
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from simulator.workload.kernels import Gemm, Streaming

STEP = ["--topology", "1x-k80-die", "--workload", "mlp", "--batch", "64"]
LARGE = Gemm(4096, 4096, 4096, "fp32")


def held(name: str, clock_Hz: float = 0.0) -> Gpu:
    part = load_part(name)
    assert isinstance(part, GpuPart)
    return gpu_from_part(name, part, clock_Hz=clock_Hz)


def test_products_slow_down_with_the_clock_and_streams_do_not() -> None:
    free, slow = held("k80-die"), held("k80-die", 562e6)
    assert slow.peak("fp32") == pytest.approx(13 * 192 * 2 * 562e6, rel=0.01)
    ratio = kernel_cost(slow, LARGE).time_s / kernel_cost(free, LARGE).time_s
    assert 1.3 < ratio < 875 / 562, "power allows less than the boost clock for long"
    stream = Streaming("add", 10**8, 8 * 10**8, 4 * 10**8)
    assert kernel_cost(slow, stream).time_s == pytest.approx(kernel_cost(free, stream).time_s, rel=0.02)


def test_power_still_lowers_a_clock_that_a_board_cannot_hold() -> None:
    whole, held_high, held_low = held("t4"), held("t4", 1590e6), held("t4", 600e6)
    assert kernel_cost(held_high, LARGE).time_s == pytest.approx(kernel_cost(whole, LARGE).time_s)
    assert kernel_cost(held_low, LARGE).time_s > 1.1 * kernel_cost(whole, LARGE).time_s


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([*STEP, "--gpu-clock", "1GHz"], "--gpu-clock 1000MHz: k80-die runs at 875 MHz at most"),
        ([*STEP, "--gpu-clock", "99GHz"], "--gpu-clock 99GHz: from 100MHz to 10GHz"),
        ([*STEP, "--gpu-clock", "1Hz"], "--gpu-clock 1Hz: from 100MHz to 10GHz"),
        ([*STEP, "--gpu-clock", "562"], "--gpu-clock 562: frequency needs a unit"),
        (
            ["--topology", "cpu-i7-3820", "--workload", "mlp", "--batch", "4", "--gpu-clock", "1GHz"],
            "--gpu-clock: applies to GPUs, but a CPU computes",
        ),
    ],
)
def test_other_clocks_are_refused(words: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert fault in capsys.readouterr().err


def test_the_title_names_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*STEP, "--gpu-clock", "562MHz"]) == 0
    assert "GPUs held to 562 MHz" in capsys.readouterr().out


def test_title_and_json_say_that_shards_are_gathered_in_fp32(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--topology dgx-h100 --workload gpt2 --set layers=2 --batch 1 --parallel fsdp -q"
    for more in ([], ["--gather-fp32"]):
        assert run([*words.split(), *more]) == 0
        assert ("gathered in fp32" in " ".join(capsys.readouterr().out.split())) is bool(more)
        assert run([*words.split(), *more, "--json"]) == 0
        assert ('"gathers_in_fp32": true' in capsys.readouterr().out) is bool(more)


def test_title_and_json_name_the_library_of_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--topology cpu-i7-3820 --workload mlp --batch 4 -q"
    for more in ([], ["--cpu-library", "torch7"]):
        assert run([*words.split(), *more]) == 0
        assert ("kernels of torch7" in " ".join(capsys.readouterr().out.split())) is bool(more)
        assert run([*words.split(), *more, "--json"]) == 0
        assert ('"cpu_library": "torch7"' in capsys.readouterr().out) is bool(more)
