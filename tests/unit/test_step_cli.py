"""``simulate --batch``: its output, and one line with exit status 2 for each mistake."""

from __future__ import annotations

import json
import re

import pytest

from simulator.cli import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("answered_once")]

P3 = ["--topology", "p3.2xlarge.yaml"]
STEP = [*P3, "--workload", "resnet50", "--batch", "16"]
OR_A_VERSION = ", or a version of PyTorch, torch-1.0 to torch-2.9; for later ones leave it out"

ERRORS = {
    "no topology": (
        ["--batch", "16"],
        "simulate: --topology is needed, for example --topology p3.16xlarge.yaml (simulate machines)",
    ),
    "batch too large": ([*P3, "--batch", "9" * 20], f"simulate: --batch {'9' * 20}: is too large"),
    "length twice": (
        [*P3, "--workload", "gpt2", "--batch", "1", "--seq-len", "200", "--set", "sequence_length=100"],
        "simulate: --set sequence_length=100: --seq-len says it already; give one of the two",
    ),
    "image twice": (
        [*P3, "--workload", "resnet18", "--batch", "1", "--image", "96", "--set", "image=96"],
        "simulate: --set image=96: --image says it already; give one of the two",
    ),
    "batch no number": ([*P3, "--batch", "x"], "simulate: --batch x: must be a whole number"),
    "batch of none": ([*P3, "--batch", "0"], "simulate: --batch 0: from 1 to 100000000"),
    "precision": (
        [*STEP, "--precision", "fp31"],
        "simulate: --precision fp31: no such choice; did you mean 'fp32'?",
    ),
    "precision without a figure": (
        [*STEP, "--precision", "bf16"],
        "simulate: v100-sxm2-16gb: no peak rate for bf16; the part has fp64, fp32, fp16 (add it under peak:)",
    ),
    "mode": ([*STEP, "--mode", "trian"], "simulate: --mode trian: no such choice; did you mean 'train'?"),
    "optimizer": (
        [*STEP, "--optimizer", "adamw2"],
        "simulate: --optimizer adamw2: no such choice; did you mean 'adam'?",
    ),
    "device": (
        [*STEP, "--device", "gpu1"],
        "simulate: --device gpu1: p3.2xlarge has no GPU or CPU of that name; did you mean 'gpu0'?",
    ),
    "threads of a GPU": ([*STEP, "--threads", "4"], "simulate: --threads 4: gpu0 is a GPU; threads are those of a CPU"),
    "graph on a CPU": (
        [*STEP, "--device", "cpu0", "--cuda-graph"],
        "simulate: cpu0 is a CPU; a CUDA graph is for GPUs",
    ),
    "a size without a name": (
        [*STEP, "--set", "layers"],
        "simulate: --set layers: write a name and a value, for example --set layers=12",
    ),
    "a size set twice": (
        [*STEP, "--set", "classes=10", "--set", "classes=12"],
        "simulate: --set classes=12: classes is set twice",
    ),
    "a size that the network has not": (
        [*STEP, "--set", "layers=12"],
        "simulate: --workload: resnet50: layers does not apply to this network; allowed: batch, classes, image",
    ),
    "a size has no step": (
        [*P3, "--workload", "bytes:160MB", "--batch", "4"],
        "simulate: --workload bytes:160MB: a size is exchanged, not computed; --batch needs a network",
    ),
    "a file says its own sizes": (
        [*P3, "--workload", "mine.yaml", "--batch", "4", "--seq-len", "128"],
        "simulate: --seq-len: is for networks of the zoo and torch modules; mine.yaml says its own sizes",
    ),
    "strategy": (
        [*STEP, "--strategy", "ring"],
        "simulate: --strategy: is about an exchange, and one device steps alone",
    ),
    "step option without a step": (
        [*P3, "--precision", "fp16"],
        "simulate: --precision: is about a step of a network; add --batch, for example --batch 32",
    ),
    "network": (
        [*P3, "--workload", "resnet51", "--batch", "4"],
        "simulate: --workload: no network is called 'resnet51'; did you mean 'resnet56'? (simulate networks)",
    ),
    "step option with layers and no batch": (
        [*P3, "--workload", "mine.yaml", "--precision", "fp16"],
        "simulate: --precision: is about a step of a network; add --batch, for example --batch 32",
    ),
    "recompute without a backward pass": (
        [*STEP, "--mode", "inference", "--recompute"],
        "simulate: --recompute: is for the backward pass, and --mode inference has none",
    ),
    "optimiser without an update": (
        [*STEP, "--mode", "inference", "--optimizer", "adam"],
        "simulate: --optimizer: updates parameters, and --mode inference updates none",
    ),
    "fused optimiser without an update": (
        [*STEP, "--mode", "backward", "--fused-optimizer"],
        "simulate: --fused-optimizer: updates parameters, and --mode backward updates none",
    ),
    "fused optimiser that goes from tensor to tensor": (
        [*STEP, "--optimizer", "bert-adam", "--fused-optimizer"],
        "simulate: --fused-optimizer: --optimizer bert-adam goes from tensor to tensor; it is for adam, momentum, sgd",
    ),
    "libraries of a year": (
        [*STEP, "--libraries", "2020"],
        "simulate: --libraries 2020: a month is needed, such as 2020-10" + OR_A_VERSION,
    ),
    "libraries of no month": (
        [*STEP, "--libraries", "2020-13"],
        "simulate: --libraries 2020-13: a month is needed, such as 2020-10" + OR_A_VERSION,
    ),
    "libraries of a design of which nothing is known": (
        ["--topology", "8x-mi300x", "--gpus", "1", "--workload", "resnet18", "--batch", "8", "--libraries", "2020-10"],
        "simulate: --libraries: is not modelled for mi300x; leave it out",
    ),
    "libraries on a CPU": (
        ["--topology", "cpu-2xe5-2630v3", "--workload", "resnet18", "--batch", "8", "--libraries", "2020-10"],
        "simulate: --libraries: applies to GPUs, but a CPU computes",
    ),
    "trace to standard output": (
        [*STEP, "--trace", "-"],
        "simulate: --trace -: standard output has the result; name a file, for example --trace trace.json",
    ),
}


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ERRORS)
def test_mistakes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = ERRORS[name]
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == message + "\n"


def test_all_misplaced_options_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*STEP, "--collective", "all-gather", "--root", "1"]) == 2
    assert [line.split(":")[1].strip() for line in capsys.readouterr().err.splitlines()] == ["--collective", "--root"]


def test_all_mistaken_values_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--mode", "trian", "--precision", "fp31", "--batch", "x", "--set", "layers", "--strategy", "rign"]
    assert run(["--topology", "p3.2xlarg", *wrong]) == 2
    places = [line.removeprefix("simulate: ").split(" ")[0].strip(":") for line in capsys.readouterr().err.splitlines()]
    assert places == ["p3.2xlarg", "--mode", "--precision", "--batch", "--set", "--strategy"]


def test_a_cpu_computes_by_its_threads(capsys: pytest.CaptureFixture[str]) -> None:
    def step_time_s(*more: str) -> float:
        assert run([*STEP, "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)["step_time_s"]

    one, four = step_time_s("--device", "cpu0", "--threads", "1"), step_time_s("--device", "cpu0", "--threads", "4")
    assert 2 < one / four <= 4
    assert run([*STEP, "--device", "cpu0"]) == 0
    assert "host issues" not in capsys.readouterr().out


def test_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*STEP, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["samples"] == 16
    assert document["parameter_count"] == 25_557_032
    assert document["throughput_per_s"] == pytest.approx(16 / document["step_time_s"])
    assert document["gradient_order"][0].startswith("fc")
    assert sum(document["parts_s"].values()) == pytest.approx(document["step_time_s"])
    assert document["memory"]["fits"] is True


def test_out_of_memory_says_by_how_much_and_what_would_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*P3, "--workload", "resnet50", "--batch", "1024"]) == 1
    captured = capsys.readouterr()
    assert "more than the GPU has, 15.8 GiB (16.9 GB)" in " ".join(captured.out.split())
    assert captured.err.startswith("simulate: out of memory: resnet50 at batch 1024 needs ")
    assert "more than the GPU has, 15.8 GiB (16.9 GB)" in captured.err
    assert "what would fit: " in captured.err
    batch = captured.err.split("--batch ")[1].split()[0]
    assert 144 < int(batch) < 200  # a V100 of 16 GiB
    assert run([*P3, "--workload", "resnet50", "--batch", batch]) == 0
    assert run([*P3, "--workload", "resnet50", "--batch", str(int(batch) + 1)]) == 1


def test_one_gpu_exchanges_nothing_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*P3, "--strategy", "ring"]) == 0
    assert "--workload resnet50 --batch 32 simulates a step" in capsys.readouterr().err


def test_what_would_fit_is_there_for_each_way(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topology", "2x-rtx4090-desktop", "--workload", "llama3-8b", "--batch", "1", "--mode", "inference"]
    arguments += ["--seq-len", "2048"]
    assert run([*arguments, "--precision", "torch"]) == 1
    assert "what would fit: --precision bf16 or a GPU with" in capsys.readouterr().err
    assert run([*arguments, "--precision", "bf16"]) == 0
    capsys.readouterr()


def test_attention_in_one_kernel_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topology", "dgx-h100", "--workload", "bert-large", "--batch", "32", "--precision", "amp-bf16"]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["options"]["optimizer"] == "adam"  # the default for sequences
    assert document["tokens"] == 32 * 512
    changes = [other["change"] for other in document["alternatives"]]
    assert "--set attention=fused" in changes
    fused = next(o for o in document["alternatives"] if o["change"] == "--set attention=fused")
    assert run([*arguments, "--set", "attention=fused", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == fused["step_time_s"]


def test_the_peak_is_that_of_the_formats_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topology", "dgx-a100-80gb", "--workload", "resnet50", "--batch", "64", "--precision", "torch"]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert 19.5e12 < document["peak_flops_per_s"] < 156e12
    assert document["model_flop_utilisation"] < 1


def test_how_far_to_trust_it(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert run([*arguments, "--quiet", "-v"]) == 0
        return next((x for x in capsys.readouterr().out.splitlines() if x.startswith("past errors")), "")

    assert "measured steps of CNNs in fp32 within" in said(*STEP)
    assert "(before 2019: only the fastest framework)" in said(*STEP)
    assert "measured steps of CNNs in half precision within" in said(*STEP, "--precision", "amp-fp16")
    a100 = ["--topology", "dgx-a100-80gb", "--gpus", "1", "--workload", "resnet50", "--batch", "16"]
    assert "measured steps of CNNs in TF32 within" in said(*a100)
    assert "2019" not in said(*a100)
    assert said(*STEP, "--precision", "torch") == said(*STEP, "--precision", "fp32")
    assert "no such step has been" in said(*STEP, "--precision", "fp64")
    bert = ["--workload", "bert-base", "--batch", "4", "--seq-len", "128"]
    assert "measured steps of transformers in fp32 within" in said(*P3, *bert)
    assert "no such step has been" in said(*P3, "--workload", "mlp", "--batch", "64")
    assert "measured steps of CNNs in fp32 on CPUs within" in said(*STEP, "--device", "cpu0")
    lstm = ["--workload", "lstm-shi2016", "--batch", "4"]
    assert "no such step has been" in said(*P3, *lstm)


def test_the_trust_line_is_the_band_its_evidence_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*STEP, "--quiet"]) == 0
    (brief,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("trust"))
    assert re.fullmatch(r"trust: time -\d+ to \+\d+ %; [\d,]+ measurements of \d+ sources, device measured", brief)
    assert run([*STEP, "--quiet", "-v"]) == 0
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("trust"))
    band, evidence, command = line.removeprefix("trust: ").split("; ")
    assert re.fullmatch(r"time -\d+ to \+\d+ %", band)
    assert re.fullmatch(r"[\d,]+ measurements of \d+ sources, device measured", evidence)
    assert command.startswith("to tighten it: validate run --topology p3.2xlarge.yaml ")


def test_a_trace_of_a_step(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.json"
    assert run([*STEP, "--trace", str(file)]) == 0
    events = json.loads(file.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    issued = [event for event in events if event.get("cat") == "cpu_op"]
    assert len(kernels) > len(issued) > 300  # a convolution's backward pass has one for each gradient
    names = [event["name"] for event in kernels]
    assert "layer1.0.conv1, forward" in names
    assert names.count("layer1.0.conv1, backward") == 2
    told = next(event["args"] for event in kernels if event["name"] == "layer1.0.conv1, forward")
    assert (told["part"], told["class"], told["algorithm"]) == ("forward", "convolution", "implicit GEMM")
    assert told["bound by"] in ("compute", "memory", "latency")
    assert told["FLOP"] == 2 * 16 * 56 * 56 * 64 * 64
    assert told["bytes"] > 0
    document = json.loads(file.read_text())
    assert sum(event["dur"] for event in kernels) * 1e-6 == pytest.approx(_json(capsys, *STEP)["busy_s"], rel=1e-3)
    assert document["deviceProperties"]


def test_a_figure_says_what_bounds_a_step_as_the_text_does(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--topology", "2x-rtx4090-desktop", "--workload", "gpt2", "--batch", "4"]
    assert run([*asked, "--plot", str(tmp_path / "step.svg"), "--quiet"]) == 0
    bound = re.search(r"^bound by +(.+)$", capsys.readouterr().out, re.MULTILINE)
    assert bound is not None
    assert "exposed" in bound[1]
    assert f"bound by {bound[1]}" in (tmp_path / "step.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_figure_of_a_step_is_the_same_each_time(kind: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{name}.{kind}" for name in ("first", "second")]
    for file in files:
        assert run([*STEP, "--plot", str(file), "--quiet"]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    if kind == "svg":
        drawn = files[0].read_text()
        for words in ("Training step of resnet50", "where the time goes", "convolutions", "as it is"):
            assert words in drawn
    capsys.readouterr()


def test_a_trace_says_where_it_is(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.json"
    for more in ([], ["--cuda-graph"], ["--device", "cpu0"]):
        assert run([*STEP, *more, "--trace", str(file)]) == 0
        assert f"wrote the trace to {file}" in capsys.readouterr().err
        assert json.loads(file.read_text())["traceEvents"]


def test_narrow_tables_are_without_what_says_least(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert run([*STEP, "--quiet", "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [line for line in lines if line.startswith("where the time goes")]
    assert "kernels" not in head
    assert {"time", "share", "bound"} <= set(head.split())
    assert "not shown at 60 columns: kernels" in lines
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_is_kept_to(columns: int, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*STEP, "--quiet"]) == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= columns


def test_a_calibration_is_of_a_device_that_is_there(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("schema_version: 1\ndevices:\n  v100-sxm2-16gb: {compute: 0.5}\n  t4: {compute: 2}\n")

    def step_time_s(*more: str) -> float:
        assert run([*STEP, "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)["step_time_s"]

    assert step_time_s("--calibration", str(file)) > 1.3 * step_time_s()
    file.write_text("schema_version: 1\ndevices:\n  t4: {compute: 2}\n")
    assert run([*STEP, "--calibration", str(file)]) == 2
    err = capsys.readouterr().err
    assert err == f"{file}: calibrates t4; p3.2xlarge has v100-sxm2-16gb, xeon-e5-2686-v4\n"
    file.write_text("schema_version: 1\ndevices:\n  v100-sxm2-16g: {compute: 2}\n")
    assert run([*STEP, "--calibration", str(file)]) == 2
    assert f"{file}:3:3: " in (err := capsys.readouterr().err)
    assert "did you mean 'v100-sxm2-16gb'?" in err


def test_a_graph_is_issued_by_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    eager, graph = _json(capsys, *STEP), _json(capsys, *STEP, "--cuda-graph")
    assert graph["host_s"] < 20e-6
    assert eager["host_s"] > 1e-3


def test_a_fused_optimiser_is_one_kernel_and_no_part_of_compiling(capsys: pytest.CaptureFixture[str]) -> None:
    def update_s(*more: str) -> float:
        return _json(capsys, *STEP, "--optimizer", "adam", *more)["parts_s"]["update"]

    plain, compiled, fused = (
        update_s("--cuda-graph"),
        update_s("--compile", "--cuda-graph"),
        update_s("--fused-optimizer"),
    )
    assert compiled == pytest.approx(plain, rel=1e-6)
    assert fused < 0.5 * plain
    large = ["--topology", "dgx-h100", "--workload", "gpt2", "--batch", "1", "--precision", "bf16"]
    assert "--fused-optimizer" in [other["change"] for other in _json(capsys, *large)["alternatives"]]
    assert run([*large, "--fused-optimizer", "--quiet"]) == 0
    assert "fused adam" in capsys.readouterr().out.replace("\n", " ")


def test_plain_half_precision_is_offered_for_inference(capsys: pytest.CaptureFixture[str]) -> None:
    inference = ["--topology", "dgx-a100-80gb", "--workload", "bert-large", "--batch", "8", "--mode", "inference"]
    changes = [other["change"] for other in _json(capsys, *inference)["alternatives"]]
    assert {"--precision fp16", "--precision bf16"} <= set(changes)
    assert not any("amp" in change for change in changes)
    changes = [other["change"] for other in _json(capsys, *STEP)["alternatives"]]
    assert "--precision amp-fp16" in changes
    assert "--precision fp16" not in changes


def test_what_would_fit_is_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*P3, "--workload", "resnet50", "--batch", "1024", "--json"]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["memory"]["fits"] is False
    assert f"what would fit: {' or '.join(document['remedies'])}" in captured.err
    assert any(remedy.startswith("--batch ") for remedy in document["remedies"])
    assert _json(capsys, *STEP)["remedies"] == []


def test_unset_pytorch_computes_convolutions_in_tf32(capsys: pytest.CaptureFixture[str]) -> None:
    a100 = ["--topology", "dgx-a100-80gb", "--gpus", "1", "--workload", "resnet50", "--batch", "64"]
    unset, fp32 = _json(capsys, *a100), _json(capsys, *a100, "--precision", "fp32")
    assert unset["options"]["precision"] == "torch"
    assert unset["step_time_s"] < 0.7 * fp32["step_time_s"]
    assert run([*a100, "--quiet"]) == 0
    assert "batch 64, fp32, convolutions in TF32 where faster, momentum" in capsys.readouterr().out
    assert run([*STEP, "--quiet"]) == 0
    assert "batch 16, fp32, momentum" in capsys.readouterr().out  # a V100 has no TF32


def test_words_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    vgg = [*P3, "--workload", "vgg16", "--batch", "32", "--quiet", "-v"]
    assert run(vgg) == 0
    out = capsys.readouterr().out
    assert "of the peak; Winograd's algorithm multiplies less than is counted" in out
    assert "(backward)" in out or "(forward)" in out
    long = ["--topology", "dgx-h200", "--workload", "llama3-8b", "--seq-len", "262144", "--batch", "1", "--quiet"]
    assert run([*long, "--mode", "inference", "--precision", "bf16", "--set", "attention=fused-native", "-v"]) == 0
    out = capsys.readouterr().out
    assert "of the peak; causal attention computes half of what is counted" in " ".join(out.split())
    assert "Winograd" not in out
    assert run([*STEP, "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "Winograd's algorithm multiplies" not in out
    small = [*P3, "--workload", "resnet50", "--batch", "2", "--quiet"]
    assert run(small) == 0
    assert "--batch 4 (per 2 images)" in capsys.readouterr().out
    assert run([*P3, "--workload", "resnet50", "--batch", "1", "--quiet"]) == 0
    assert "--batch 2 (per image)" in capsys.readouterr().out


def test_a_network_of_ones_own_is_exchanged(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "schema_version: 1\nname: mine\ninput: {features: 1000}\n"
        "layers:\n  - {kind: linear, outputs: 500, bias: false}\n"
    )
    machine = ["--topology", "p3.16xlarge", "--strategy", "ring"]
    (result,) = _json(capsys, *machine, "--workload", str(file))["results"]
    assert result["bytes"] == 4 * 1000 * 500
    assert run([*machine, "--workload", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_a_network_is_no_machine(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("schema_version: 1\nname: mine\ninput: {features: 8}\nlayers:\n  - {kind: linear, outputs: 8}\n")
    assert run(["--topology", str(file), "--batch", "4"]) == 2
    err = capsys.readouterr().err
    assert err == f"{file}:4:1: these are layers of a network; --workload names a network, --topology a machine\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--framework adaptdl", "adam, adaptdl"),
        ("--framework megatron", ", megatron"),
        ("--offload optimizer --offload-to nvme", "optimizer on the disks"),
        ("--offload optimizer", "optimizer on the host"),
    ],
)
def test_the_title_says_what_issues_operators_and_where_parameters_lie(words: str, said: str, capsys) -> None:
    step = ["--topology", "dgx-2", "--gpus", "1", "--workload", "gpt2", "--set", "layers=2", "--batch", "1"]
    assert run([*step, *words.split()]) == 0
    assert said in capsys.readouterr().out.partition("\n\n")[0].replace("\n", " ")
