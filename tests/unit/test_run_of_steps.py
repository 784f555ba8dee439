"""A whole run: its closed forms against Daly, against random failures, and against Meta's Llama 3 405B."""

from __future__ import annotations

import json
import random
import re
from math import exp, inf

import pytest

from simulator.api.run import run_of
from simulator.api.session import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.options import StepOptions
from simulator.questions.run import RunQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training_run import Checkpoints, Cycle, best_interval_s
from simulator.topology.schema import Price

OPTIONS = StepOptions(precision="amp-bf16", optimizer="adam")
STEP = StepQuestion(
    where=Where("dgx-a100-80gb"),
    workload="gpt2",
    batch=4,
    sizes=(("layers", 2), ("sequence_length", 256)),
    options=OPTIONS,
    gpus=(0, 1),
)
RUN = "run --topology dgx-a100-80gb --gpus 2 --workload gpt2 --set layers=2 --seq-len 256 --batch 4"


def simulated(cycle: Cycle, cycles: int, seed: int = 1) -> float:
    """Return the goodput of a run of so many cycles in which failures are drawn one by one."""
    draw = random.Random(seed)
    now_s, safe, next_s = 0.0, 0, draw.expovariate(1 / cycle.mtbf_s)
    while safe < cycles:
        start, done = now_s, 0
        while True:  # until a failure
            safe_at = start + (done + 1) * cycle.length_s + cycle.background_s
            if safe_at > next_s or safe + done >= cycles:
                break
            done += 1
        safe += done
        if safe >= cycles:
            now_s = start + done * cycle.length_s
            break
        now_s = next_s
        while True:  # restarts fail too
            next_s = now_s + draw.expovariate(1 / cycle.mtbf_s)
            if next_s >= now_s + cycle.restart_s:
                now_s += cycle.restart_s
                break
            now_s = next_s
    return cycles * cycle.trained_s / now_s


@pytest.mark.parametrize(
    "cycle",
    [
        Cycle(600.0, 0.0, 30.0, 0.0, 300.0, 10_000.0),
        Cycle(600.0, 60.0, 2.0, 200.0, 600.0, 10_000.0),
        Cycle(2000.0, 0.0, 10.0, 1500.0, 0.0, 20_000.0),
        Cycle(300.0, 0.0, 100.0, 0.0, 900.0, 3_000.0),
    ],
)
def test_goodput_is_that_of_random_failures(cycle: Cycle) -> None:
    assert simulated(cycle, 400_000) == pytest.approx(cycle.goodput, rel=0.01)


def test_without_what_goes_on_behind_goodput_is_dalys() -> None:
    cycle = Cycle(1000.0, 0.0, 20.0, 0.0, 100.0, 5000.0)
    daly = 5000.0 * exp(100.0 / 5000.0) * (exp(1020.0 / 5000.0) - 1.0) / 1000.0
    assert cycle.goodput == pytest.approx(1.0 / daly, rel=1e-9)
    assert cycle.goodput == Checkpoints(10.0, 100, 20.0, 100.0, 5000.0).goodput


@pytest.mark.parametrize(("write_s", "mtbf_s"), [(5.0, 10_000.0), (60.0, 3600.0), (300.0, 86_400.0)])
def test_dalys_interval_is_the_best(write_s: float, mtbf_s: float) -> None:
    def goodput(interval_s: float) -> float:
        return Cycle(interval_s, 0.0, write_s, 0.0, 0.0, mtbf_s).goodput

    best_s = best_interval_s(write_s, mtbf_s)
    tried = [best_s * (1.0 + 0.0005 * each) for each in range(-400, 401)]
    assert max(tried, key=goodput) == pytest.approx(best_s, rel=0.01)


def test_nothing_fails_without_failures() -> None:
    cycle = Cycle(100.0, 10.0, 5.0)
    assert cycle.goodput == pytest.approx(100.0 / 115.0)
    assert cycle.shares["restarts"] == 0.0
    assert cycle.shares["repeated"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("restart_s", [300.0, 600.0])
def test_llama_3_405b(restart_s: float) -> None:
    """Meta's run, from what "The Llama 3 Herd of Models" (2024) and its model card publish.

    3.8e25 FLOPs (section 3.2.1) at 400 TFLOP/s on 16,384 GPUs (table 4); 466 interruptions in 54 days (section 3.3.4,
    table 5); checkpoints of 14 bytes a parameter to storage of 2 TB/s (section 3.3.1).  How long a restart takes is not
    published.  Found: effective training time above 90 %, and 30.84 million GPU hours (the model card).
    """
    mtbf_s = 54 * 86_400.0 / 466
    write_s = 405e9 * 14 / 2e12
    interval_s = best_interval_s(write_s, mtbf_s)
    cycle = Cycle(interval_s, 0.0, write_s, 0.0, restart_s, mtbf_s)
    assert 0.90 < cycle.goodput < 0.97
    hours = 3.8e25 / 400e12 / cycle.goodput / 3600.0
    assert hours == pytest.approx(30.84e6, rel=0.10)
    assert 54 * 86_400.0 / cycle.mtbf_s == pytest.approx(466)


def asked(**more: object) -> RunQuestion:
    return RunQuestion(step=STEP, tokens=1e9, **more)  # type: ignore[arg-type]


def test_a_run_is_its_steps_and_what_comes_between() -> None:
    session = Session()
    plain = run_of(session, asked(warmup_s=60.0))
    step_s = plain.result.step_time_s
    assert plain.steps == -(-1_000_000_000 // (2 * 4 * 256))
    assert plain.wall_s == pytest.approx(60.0 + plain.steps * step_s)
    assert plain.failures == 0.0
    found = run_of(session, asked(mtbf_s=600.0, write_s=2.0, restart_s=30.0, warmup_s=10.0))
    assert found.cycle.restart_s == 40.0
    assert found.every_steps == round(best_interval_s(2.0, 600.0) / step_s)
    assert found.wall_s == pytest.approx(10.0 + found.steps * step_s / found.cycle.goodput)
    assert found.failures == pytest.approx(found.wall_s / 600.0)
    assert sum(found.cycle.shares.values()) == pytest.approx(1.0)
    low, high = found.band_s
    assert low < found.wall_s < high


def test_failures_of_gpus_add_up() -> None:
    assert run_of(Session(), asked(gpu_mtbf_s=1200.0, write_s=2.0)).cycle.mtbf_s == 600.0


def test_a_checkpoint_has_each_parameter_once_and_its_state() -> None:
    found = run_of(Session(), asked(mtbf_s=600.0, storage_Bps=1e9))
    assert found.checkpoint_bytes == found.result.step.parameter_count * 12  # fp32, and two moments of Adam
    assert found.cycle.stopped_s == found.checkpoint_bytes / 1e9
    behind = run_of(Session(), asked(mtbf_s=600.0, storage_Bps=1e9, asynchronous=True))
    assert behind.cycle.background_s == found.cycle.stopped_s
    assert behind.cycle.stopped_s < found.cycle.stopped_s
    assert behind.every_steps * behind.result.step_time_s >= behind.cycle.background_s
    assert behind.wall_s < found.wall_s


def test_evaluations_take_the_forward_share() -> None:
    found = run_of(Session(), asked(evaluate_every=100, evaluate_samples=800))
    step_s, parts_s = found.result.step_time_s, found.result.step.parts_s
    share = parts_s["forward"] / (parts_s["forward"] + parts_s["backward"])
    each_s = (step_s - parts_s["update"]) * share * 100
    assert found.cycle.evaluated_s == pytest.approx(found.steps / 100 * each_s)


def test_a_price_is_of_gpus_and_hours() -> None:
    found = run_of(Session(), asked(gpu_hour=Price(2.0, "USD")))
    assert found.price == Price(pytest.approx(2.0 * 2 * found.wall_s / 3600.0), "USD")
    assert found.energy_J == pytest.approx(2 * 400.0 * found.wall_s)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"tokens": 0.0}, "a run has tokens or samples"),
        ({"samples": 1.0}, "give one of the two"),
        ({"mtbf_s": 1.0, "gpu_mtbf_s": 1.0}, "gpu_mtbf_s says it already"),
        ({"mtbf_s": 1.0, "write_s": 1.0, "storage_Bps": 1.0}, "storage_Bps says it already"),
        ({"write_s": 1.0}, "is about checkpoints"),
        ({"asynchronous": True}, "is about checkpoints"),
        ({"restart_s": 1.0}, "is about failures"),
        ({"evaluate_every": 5}, "go together"),
    ],
)
def test_what_a_run_refuses(said: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        RunQuestion(**{"step": STEP, "tokens": 1e9, **said})  # type: ignore[arg-type]


def test_steps_between_checkpoints_leave_time_to_write() -> None:
    question = asked(mtbf_s=600.0, storage_Bps=1e8, asynchronous=True, every_steps=1)
    with pytest.raises(InputError, match="or more would do"):
        run_of(Session(), question)


def test_images_have_no_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --topology p3.16xlarge --gpus 2 --workload resnet18 --batch 8"
    assert run([*words.split(), "--tokens", "1T"]) == 2
    assert "resnet18 has none; say --samples" in capsys.readouterr().err
    assert run([*words.split(), "--samples", "90M"]) == 0
    assert "90,000,000 images of resnet18" in capsys.readouterr().out.replace("\n", " ")


def test_the_command_answers_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*RUN.split(), "--tokens", "15B", "--mtbf", "3h", "--checkpoint-time", "5s", "--gpu-hour", "2 USD"]
    assert run(words) == 0
    text = capsys.readouterr().out
    for said in ("15B tokens of", "of the time trains", "USD", "80 % band", "where the days go"):
        assert said in text
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["goodput"] == pytest.approx(found["trained_s"] / found["wall_s"], rel=1e-6)
    assert found["price"]["currency"] == "USD"
    assert found["step"]["step_time_s"] * found["steps"] == pytest.approx(found["trained_s"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "--tokens or --samples"),
        ("--tokens 15X", "--tokens 15X: is a number above 0"),
        ("--tokens 1T --gpu-hour free", "--gpu-hour free: needs a number above 0"),
        ("--tokens 1T --storage 5", "--storage 5: "),
        ("--tokens 1T --mtbf 0s", "--mtbf 0s: "),
        ("--tokens 1T --parallel dp --strategy nccl,ring", "name one of each"),
    ],
)
def test_the_command_refuses_in_its_words(more: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RUN.split(), *more.split()]) == 2
    assert said in capsys.readouterr().err


def test_a_run_reads_a_launch_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = "torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
    line += "--seq-length 256 --max-position-embeddings 256 --vocab-size 50257 --bf16 --micro-batch-size 1 "
    line += "--global-batch-size 8"
    assert run(["run", "--topology", "dgx-a100-80gb", "--launch", line, "--tokens", "1B"]) == 0
    assert "1B tokens" in capsys.readouterr().out


def test_no_failures_are_infinitely_apart() -> None:
    assert run_of(Session(), asked(every_steps=100, write_s=1.0)).cycle.mtbf_s == inf


@pytest.mark.parametrize("given", ["--mtbf 3h", "--gpu-mtbf 1000h", "--checkpoint-every 100"])
def test_a_machine_without_disks_is_told_by_the_option_that_was_given(given: str, capsys) -> None:
    words = f"run --topology dgx-h100 --gpus 2 --workload gpt2 --set layers=2 --batch 4 --samples 100 {given}"
    assert run(words.split()) == 2
    assert capsys.readouterr().err.startswith(
        f"simulate: {given.split(maxsplit=1)[0]}: checkpoints need a disk: the machine has no disk; "
    )


def test_a_run_without_failures_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RUN.split(), "--tokens", "1", "-q"]) == 0
    text = capsys.readouterr().out
    assert "1 token of" in text
    assert "  1 step, " in text
    assert "next: --mtbf 25000h, usual for so many GPUs, to count failures, checkpoints and restarts" in " ".join(
        text.split()
    )
    assert "\ntrust: time " in text
    assert run([*RUN.split(), "--tokens", "1B", "--mtbf", "3h", "--checkpoint-time", "5s", "-q"]) == 0
    assert "no failures" not in capsys.readouterr().out


def test_a_run_that_does_not_fit_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RUN.replace("--batch 4", "--batch 4096").split(), "--tokens", "1B", "-q"]) == 1
    out, err = capsys.readouterr()
    assert "what would fit" in out
    assert re.search(r"; what would fit: .*--batch \d+", err)


def test_the_advice_on_failures_can_be_followed(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "run",
        "--topology",
        "dgx-h100",
        "--workload",
        "gpt2",
        "--seq-len",
        "256",
        "--batch",
        "4",
        "--tokens",
        "1T",
    ]
    assert run(words) == 0
    advised = re.search(r"^next: (--.*?),", capsys.readouterr().out, re.MULTILINE)
    assert advised is not None
    assert run([*words, *advised[1].split()]) == 0


def test_a_price_of_its_own_names_that_of_the_file(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("schema_version: 1\nname: t\nprice_per_hour: 3 EUR\ndevices: {gpu0: {part: t4}}\n")
    words = ["run", "--topology", str(file), "--workload", "lenet", "--batch", "4", "--samples", "1M"]
    assert run([*words, "--gpu-hour", "1 USD"]) == 0
    assert "--gpu-hour in place of the file's 3 EUR an hour" in " ".join(capsys.readouterr().out.split())
