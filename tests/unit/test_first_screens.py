"""The first lines of an answer: a sentence with its size, what bounds each row, and what to do next."""

from __future__ import annotations

import re

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.questions.layout import parse_layout
from simulator.questions.run import RunQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.records import replace
from simulator.results.comparison import ComparisonWidth, ratio_of
from simulator.results.headline import answer_lines
from simulator.results.run import Run
from simulator.results.step_view import has_baseline, step_view, time_shares
from simulator.results.training_run import Cycle

pytestmark = pytest.mark.usefixtures("answered_once")

SESSION = Session()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def answered(words: str, status: int = 0) -> list[str]:
        monkeypatch.setenv("COLUMNS", "80")
        assert run([*words.split(), "--quiet"]) == status
        return capsys.readouterr().out.splitlines()

    return answered


def asked(topology: str, workload: str, layout: str, **more) -> StepQuestion:
    return StepQuestion(where=Where(topology), workload=workload, batch=1, layout=parse_layout(layout), **more)


@pytest.mark.parametrize(
    ("layout", "field", "strategy"),
    [
        ("dp", "DDP", "nccl"),
        ("fsdp", "FSDP", "nccl with FSDP"),
        ("fsdp=4", "HSDP (groups of 4)", "nccl with FSDP over 4"),
        ("zero=2", "ZeRO-2", "nccl with ZeRO-2"),
        ("pp=8", "PP=8", "nccl with PP 8"),
        ("tp=4,sp,zero=1", "TP=4, SP, ZeRO-1", "nccl with TP 4, SP, ZeRO-1"),
        ("dataparallel", "nn.DataParallel", "nn.DataParallel over nccl"),
    ],
)
def test_a_layout_is_called_as_its_field_does(layout: str, field: str, strategy: str) -> None:
    question = asked("dgx-a100-80gb", "gpt2", layout)
    assert (question.called, question.way) == (field, strategy)


def test_one_device_is_a_baseline_only_where_it_can_hold_the_step() -> None:
    """12 bytes a parameter of weights, gradients and momentum: 1.56 B fit into 85 GB, 13 B do not."""
    small, large = (SESSION.step(asked("dgx-a100-80gb", name, "fsdp")) for name in ("gpt2-xl", "llama2-13b"))
    assert has_baseline(small) == (small.scaling_efficiency <= 1.0)
    assert not has_baseline(large)
    assert "one alone" not in [fact.label for fact in step_view(large)]
    assert "times the work of one" not in " ".join(answer_lines(large))
    replicas = SESSION.step(asked("dgx-a100-80gb", "gpt2", "dp"))
    work = 8 * replicas.scaling_efficiency
    assert re.match(
        rf"8 GPUs do {work:.3g} times the work of one \(80 % band .*\); "
        r"\d+ % of the loss is waiting for its slowest rank; communication over NVLink costs ",
        answer_lines(replicas)[0],
    )


def test_a_step_of_several_says_what_communication_costs(said) -> None:
    lines = said("--topology 2x-h100-pcie --workload bert-large --batch 4 --precision amp-bf16")
    text = " ".join(line.strip() for line in lines[:6])
    costs = r"8\d % of the loss is communication over PCIe, \S+ % of the step \(\S+ ms; band not measured\)"
    assert re.search(rf"2 GPUs do 1\.\d+ times the work of one \(80 % band \S+ to \S+\); {costs} ", text)
    assert re.search(r"model TFLOP/s per GPU \(80 % band \S+ to \S+\) ", text)
    assert text.endswith("fits: 12.5 GB of 79.6 GiB (85.5 GB) per GPU, 25 GB in all")
    assert re.match(r"next: --batch 8, [\d.]+ times as fast, needs [\d.]+ GB of memory; ", lines[-1])
    assert sum(line.startswith(("trust", "  ")) and "measurements" in line for line in lines) == 1


def test_the_slower_of_two_says_what_it_waits_for_and_each_row_its_bound(said) -> None:
    lines = said("--topology 8x-h100-pcie,dgx-h100 --workload gpt2-xl --batch 1 --parallel fsdp")
    text = " ".join(line.strip() for line in lines[:6])
    band = r"\(80 % band [\d.]+ to [\d.]+; 1\.31 times by peak FLOP/s\)"
    assert re.search(
        rf"dgx-h100 is faster, [\d.]+ times as fast as 8x-h100-pcie {band}; both fit 8x-h100-pcie waits ", text
    )
    assert re.search(r"waits .* \(\d+ %\) of its step for communication over PCIe", text)
    assert any("bound by" in line for line in lines if line.startswith("machine "))
    assert lines[-2].startswith("simulate run --topology dgx-h100 ")


def test_where_nothing_fits_the_next_step_makes_it_fit(said) -> None:
    lines = said("--topology dgx-h100 --workload llama3-70b --batch 1 --parallel fsdp --parallel zero=1", 1)
    assert lines[-2] == "next: what would make it fit:"
    assert lines[-1] == "simulate --topology dgx-h100 --workload llama3-70b --batch 1 --parallel fsdp"


def test_two_points_of_a_sweep_are_compared_and_the_best_is_asked_next(said) -> None:
    lines = said("sweep --topology 1x-rtx-3090 --workload gpt2 --batch 4 --over recompute=no,yes --jobs 1")
    text = " ".join(line.strip() for line in lines)
    assert re.search(r"recompute=yes against recompute=no: [\d.]+ % more time per sample \(80 % band .*\), ", text)
    assert re.search(r", [\d.]+ % fewer samples/s, \S+ \SB less memory; both fit ", text)
    assert lines[-1] == "simulate --topology 1x-rtx-3090 --workload gpt2 --batch 4"


def test_a_sweep_of_sizes_names_latency_and_the_link(said) -> None:
    lines = said("--topology 4x-rtx4090 --workload sweep:8KiB-8MiB:8 --strategy nccl")
    text = " ".join(line.strip() for line in lines)
    assert re.search(
        r" 8\.389 MB: .* GB/s busbw.* algbw .* limited by PCIe at .*; 8\.192 kB: .*, limited by latency", text
    )
    assert "fastest" not in text


def test_a_run_says_what_its_failures_cost(said) -> None:
    words = "run --topology dgx-h100 --workload gpt2 --batch 8 --tokens 100B --mtbf 5h --checkpoint-time 30s"
    lines = said(f"{words} --restart-time 10min")
    text = " ".join(line.strip() for line in lines[2:5])
    cost = r"checkpoints and failures cost \S+ h of it, [\d.]+ % \(80 % band \S+ h to \S+ h; 3 to 9 failures\)"
    assert re.match(rf"\S+ (days|h) on 8 GPUs \(80 % band .*\); {cost}; fits in memory", text)
    assert "next: --async-checkpoints" in "".join(lines[-2:])


def test_a_step_that_computes_longer_than_it_waits_is_bound_by_its_kernels(said) -> None:
    lines = said("--topology 2x-h100-pcie --workload bert-large --batch 4 --precision amp-bf16")
    bound = next(line for line in lines if line.startswith("bound by"))
    assert re.search(r"memory bandwidth \(its kernels\), 2\d % exposed$", bound)
    assert any(re.search(r"time goes to +5\d\.\d % computing; 2\d", line) for line in lines)


@pytest.mark.slow
def test_the_network_that_is_asked_about_is_enough_or_not(said) -> None:
    asked = "--topology dgx-h100 --nodes 2 --workload llama3-8b --batch 1 --parallel fsdp --recompute --fabric"
    for rate, verdict in (("400Gbit/s", "is enough"), ("10Gbit/s", "holds the step up")):
        lines = said(f"{asked} {rate}")
        text = " ".join(line.strip() for line in lines)
        assert re.search(rf"{rate[:-6]} Gbit/s Ethernet \(8 NICs per node\) {verdict}: communication costs ", text)
        assert lines[-1] == f"next: --fabric {4 * int(rate[:-6])}Gbit/s, to see what a faster network gains"


@pytest.mark.slow
def test_a_change_that_may_exceed_the_memory_is_marked_wherever_it_stands(said) -> None:
    words = "--topology 1x-rtx-3090 --workload llama2-7b --batch 1 --recompute"
    lines = said(words, 1)
    assert any(re.match(r"--set lora=16 .* GB \*$", line) for line in lines)
    assert "* may run out of memory: the upper end of its band exceeds the memory" in lines
    swept = said("sweep --topology 1x-rtx-3090 --workload gpt2-medium --batch 4 --over micro-batches=1,4 --jobs 1")
    assert any(re.search(r" GB +yes \*$", line) for line in swept)


def test_what_a_change_costs_has_a_band(said) -> None:
    lines = said("--topology p3.16xlarge --workload bytes:160MB --strategy nccl --slow-link gpu0-gpu3:0x")
    assert re.search(r" \(\+\d+\.\d %; 80 % band \d+ to \d+ %\)", " ".join(line.strip() for line in lines))


@pytest.mark.slow
def test_the_command_that_makes_it_fit_is_answered(said) -> None:
    lines = said("--topology p3.16xlarge,dgx-h100 --workload bert-large --batch 16")
    assert lines[-1] == "simulate --topology p3.16xlarge --workload bert-large --batch 5"
    said(lines[-1].removeprefix("simulate "))


def test_the_slower_says_what_of_it_takes_longer_besides_communication(said) -> None:
    """Matrix products on a board of half the power, or a host that launches the gathers of FSDP."""
    text = " ".join(said("--topology 8x-h100-pcie,dgx-h100 --workload llama2-7b --batch 1 --parallel fsdp --recompute"))
    text = " ".join(text.split())
    times = (
        r"even without communication it takes [\d.]+ times as long, as its matrix products take [\d.]+ times as long"
    )
    assert re.search(rf"{times} on a board of 350 W \(not 700 W\)", text)
    layouts = "--topology 4x-a100-pcie-80gb-1xedr --workload llama2-7b --batch 1 --recompute --set lora=16"
    text = " ".join(" ".join(said(f"{layouts} --parallel zero=2 --parallel zero=3")).split())
    assert re.search(r"times as long, as waiting for CPU launches takes \d+ ms", text)


@pytest.mark.slow
def test_ways_that_wait_for_their_cpu_are_asked_again_as_graphs(said) -> None:
    words = "--topology dgx-a100-80gb --workload megatron-8.3b --global-batch 64 --micro-batch 1 --framework megatron"
    lines = said(f"{words} --parallel tp=8 --parallel pp=8")
    text = " ".join(line.strip() for line in lines)
    ends = re.search(r"times as fast as TP=8 \(80 % band ([\d.]+) to ([\d.]+)\)", text)
    assert ends is not None
    assert float(ends[2]) / float(ends[1]) > 1.6  # launches err for one of the two
    assert "next: compare them as CUDA graphs, because TP=8 waits for its CPU to launch kernels: " in text
    command = text.rpartition(": ")[2].replace(" \\", "").removeprefix("simulate ")
    assert "--cuda-graph" in command
    assert "as CUDA graphs" not in " ".join(said(command))


def test_two_ways_whose_times_err_by_other_parts_have_a_wider_ratio() -> None:
    """One waits for its host, whose speed no data sheet tells, and the other computes: neither error cancels."""
    usual, late = ComparisonWidth(0.1), ComparisonWidth(0.1, 0.3, "launch device")
    both = ratio_of(2.0, 1.0, (late, late)), ratio_of(2.0, 1.0, (usual, late))
    assert both[0].half_width == pytest.approx(0.1 * 2**0.5)
    assert both[1].half_width == pytest.approx((2 * 0.1**2 + 0.3**2) ** 0.5)
    other = ratio_of(2.0, 1.0, (ComparisonWidth(0.1, 0.4, "collective"), late))
    assert other.half_width == pytest.approx((2 * 0.1**2 + 0.3**2 + 0.4**2) ** 0.5)


def test_a_machine_that_another_needs_only_for_its_memory_is_said_to_be_so(said) -> None:
    lines = said("--topology dgx-h100,dgx-h200 --workload llama3-8b --batch 1 --parallel fsdp")
    text = " ".join(line.strip() for line in lines)
    assert re.search(r"dgx-h100 likely does not fit: needs [\d.]+ GB .*, \d\.\d % more than a GPU has", text)
    assert re.search(
        r"with --optimizer adam-8bit, dgx-h100 fits .*: dgx-h200 is needed only to train without it ", text
    )
    assert re.search(r"fits \([\d.]+ GB of 85.5 GB\) and takes .*, equal within the model's error of \d+ %", text)
    assert "on 8 GPUs each" in text


def test_one_process_waits_for_its_slowest_gpu_as_one_for_each_gpu_does() -> None:
    """What is left without communication is that of DistributedDataParallel but for copies into its buckets."""
    one, each = (SESSION.step(asked("4x-v100-sxm2-pcie", "resnet50", layout)) for layout in ("dataparallel", "dp"))
    assert one.pace == each.pace > 1.0
    assert time_shares(one)["slowest"] > 0.0


@pytest.mark.slow
def test_a_run_of_few_failures_may_have_none() -> None:
    """Poisson: of 1.8 expected failures, 10 % of runs have none or fewer and 4 % more than 4; of 100, 87 to 113."""
    cycle = Cycle(3600.0, 0.0, 30.0, 0.0, 600.0, 180_000.0)
    step = SESSION.step(asked("dgx-h100", "gpt2", "dp"))
    for count, times in ((1.8, (0, 4)), (100.0, (87, 113))):
        steps = round(count * 180_000.0 * cycle.goodput / step.step_time_s)
        made = Run(RunQuestion(step=step.question, tokens=1.0, mtbf_s=180_000.0), step, steps, 1, 1.0, cycle, 0.0)
        made = replace(made, low_s=0.9 * step.step_time_s, high_s=1.2 * step.step_time_s)
        assert made.failures == pytest.approx(count, rel=1e-3)
        assert made.failed_times == times
        assert made.lost_band_s is not None
        assert made.lost_band_s[0] < made.lost_s < made.lost_band_s[1]
