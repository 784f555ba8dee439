"""Tables of steps: the question of a row, the time that is judged, and the other columns."""

import csv
import json
import random
from dataclasses import replace

import pytest

from simulator.api import Session, load_machine
from simulator.errors import InputError
from simulator.places import Places
from simulator.questions.options import StepOptions
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.workload.zoo.registry import build_network, find_entry
from tests.asked import alone_on
from tests.validate_commands import score_command
from validate.kinds import KINDS, STEPS
from validate.kinds.kind import RowQuestion, Timed
from validate.kinds.steps import step_measured_s
from validate.kinds.timing import TimingCosts, from_start_s
from validate.score.scoring import read_published
from validate.tables.cells import NotScored, csv_bytes, read_records
from validate.tables.names import RowNames, builtin_names
from validate.tables.table import PUBLISHED, general, made_complete, read_conventions, read_table, tabulate

NAMES = RowNames()
COLUMNS = ["row_id", "machine", "n_gpus", "framework", "software", "model", "phase", "dtype", "batch_per_gpu",
           "global_batch", "micro_batch", "grad_accum", "seq_len", "hidden", "heads", "layers", "image", "recompute",
           "schedule", "sync", "optimizer", "step_time_s", "throughput", "throughput_unit", "dataset",
           "trust"]  # fmt: skip
ROW = {"row_id": "a", "machine": "p3.2xlarge", "n_gpus": "1", "framework": "pytorch", "software": "torch",
       "model": "alexnet", "phase": "train", "dtype": "fp32", "batch_per_gpu": "4", "step_time_s": "0.01",
       "dataset": "mine", "trust": "A"}  # fmt: skip

WAVEGLOW = {"model": "waveglow", "dataset": "lambda_pytorch_throughput", "dtype": "fp16"}
DLPERF = {"model": "bert-base", "dataset": "dlperf_v100_scaling", "framework": "ngc-tensorflow", "seq_len": "128"}
SQUAD = {"model": "bert-base-squad", "dataset": "lambda_pytorch_throughput"}
NCF = {"model": "ncf", "dataset": "lambda_pytorch_throughput", "dtype": "fp16"}


def read(**cells: str) -> RowQuestion:
    """Return the question of a row, of a table that was completed, with the conventions of every table filled in."""
    row = {**ROW, **cells}
    records = read_records(csv_bytes([tuple(row), tuple(row.values())]), "t.csv")
    table = tabulate(records, "t.csv", STEPS.needed, STEPS.columns, STEPS.name)
    raw, _ = made_complete(table, read_conventions(PUBLISHED))
    table = read_table(raw, "t.csv", STEPS.needed, STEPS.columns, STEPS.name)
    seen = {column: table.cell(table.rows[0], column) for column in STEPS.asked}
    return STEPS.read(seen.__getitem__, NAMES)


def question_of(row: dict[str, str]) -> StepQuestion:
    """Return the question of *row* as it is written, without conventions."""
    found = STEPS.read(lambda column: row.get(column, ""), NAMES).question
    assert isinstance(found, StepQuestion)
    return found


def asked(**cells: str) -> StepQuestion:
    found = read(**cells)
    assert isinstance(found.question, StepQuestion)
    assert replace(found, timing=None) == RowQuestion(found.question)  # no other columns
    return found.question


def sizes(**cells: str) -> dict[str, int | str]:
    return dict(asked(**cells).sizes)


def table(tmp_path, *rows, name="t.csv"):
    path = tmp_path / name
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return str(path)


def document(capsys, file, **options):
    score_command([file], json=True, **options)
    return json.loads(capsys.readouterr().out)["tables"][0]


def group(scored, **by):
    (found,) = [g for g in scored["groups"] if g["by"] == by]
    return found


def test_faults_of_the_program_are_no_rows_that_cannot_be_scored(monkeypatch):
    row = read()

    def broken(*arguments):
        raise TypeError("a fault of the program")

    monkeypatch.setattr("simulator.step.operator.roofline_s", broken)
    with pytest.raises(TypeError, match="a fault of the program"):
        row.bound_s(Session())

    def unknown(*arguments):
        raise InputError("v100: the cost of sorting kernels on a GPU is not modelled")

    monkeypatch.setattr("simulator.step.operator.roofline_s", unknown)
    with pytest.raises(NotScored, match="the cost of sorting kernels on a GPU is not modelled"):
        row.bound_s(Session())


# -- questions -------------------------------------------------------------------------


def test_a_plain_row():
    options = StepOptions(mode="train", precision="fp32", optimizer="momentum")
    where = Where("p3.2xlarge", 1)
    assert asked() == StepQuestion(
        where=where,
        workload="alexnet",
        batch=4,
        sizes=(("loss", 0),),
        options=options,
        gpus=(0,),
        software=asked().software,
    )


def test_replicas_that_exchange_nothing_take_as_long_as_alone():
    row = {"model": "transformer-xl-base", "dtype": "tf32", "machine": "lambda-8xa100-p4", "seq_len": "192"}
    of_lambda = {**row, "dataset": "lambda_pytorch_throughput", "sync": "ddp"}
    alone = asked(**of_lambda, n_gpus="8")
    assert alone == asked(**of_lambda)
    assert len(alone.gpus) == 1
    assert len(asked(**row, sync="ddp", n_gpus="8").gpus) == 8  # elsewhere they do exchange gradients
    with pytest.raises(NotScored, match="strategy 'none': shards and parts of a network exchange something"):
        asked(**row, strategy="none", n_gpus="8", fsdp="1")


def test_a_row_forces_the_algorithm_of_nccl():
    shared = {"machine": "p3.16xlarge", "n_gpus": "8", "sync": "ddp"}
    assert asked(**shared, algorithm_forced="Tree").algorithm == "tree"
    assert asked(algorithm_forced="Tree").algorithm is None  # one GPU exchanges nothing
    with pytest.raises(NotScored, match="forced algorithm 'tree' is not what ring does"):
        asked(**shared, algorithm_forced="Tree", strategy="ring")
    with pytest.raises(NotScored, match="forced algorithm 'hierarchical' is not what nccl does"):
        asked(**shared, algorithm_forced="hierarchical")


@pytest.mark.parametrize(
    ("cells", "option", "value"),
    [
        ({"phase": "fwd"}, "mode", "forward"),
        ({"phase": "bwd"}, "mode", "backward"),
        ({"phase": "inference"}, "mode", "inference"),
        ({"phase": ""}, "mode", "train"),
        ({"dtype": "tf32"}, "precision", "tf32"),
        ({"dtype": "fp16"}, "precision", "amp-fp16"),
        ({"dtype": "bf16"}, "precision", "amp-bf16"),
        ({"dtype": "fp16", "phase": "inference"}, "precision", "fp16"),
        ({"dtype": "bf16", "framework": "PyTorch", "software": "PyTorch 2.4"}, "precision", "amp-bf16"),
        ({"dtype": "bf16", "framework": "", "software": "PyTorch 2.4"}, "precision", "amp-bf16"),
        ({"dtype": "fp16", "framework": "", "software": "TensorFlow 2.4"}, "precision", "graph-fp16"),
        ({"dtype": "bf16", "framework": "torch", "software": "torch 2.4"}, "precision", "bf16"),
        ({"dtype": "fp16", "framework": "torch7"}, "precision", "fp16"),
        ({"dtype": "fp16", "framework": "ngc-tensorflow", "software": "NGC TensorFlow"}, "channels_last", True),
        ({"dtype": "fp32", "framework": "ngc-tensorflow", "software": "NGC TensorFlow"}, "channels_last", False),
        ({"dtype": "fp16", "framework": "tensorflow", "software": "TensorFlow 1.3"}, "channels_last", False),
        ({"dtype": "fp16"}, "channels_last", False),
        ({"software": "torch2.1.0 eager fused(torch.compile)"}, "compiled", True),
        ({"software": "NGC TensorFlow 1.x w/XLA"}, "compiled", True),
        ({"software": "TensorFlow"}, "compiled", False),
        ({"issue": "compile"}, "fused_optimizer", False),
        ({"schedule": "seed 3; fused optimizer"}, "fused_optimizer", True),
        ({"recompute": "full"}, "recompute", "full"),
        (
            {"recompute": "selective", "recompute_parts": "moe_act core_attn"},
            "recompute_parts",
            ("core_attn", "moe_act"),
        ),
        ({"recompute": "full", "recompute_blocks": "3"}, "recompute_blocks", 3),
        ({"optimizer": "Adam"}, "optimizer", "adam"),
        ({"grad_accum": "4", "micro_batch": "1"}, "accumulation", "add"),
        ({"grad_accum": "1"}, "accumulation", "product"),
        ({"grad_accum": "4", "accumulate": "fp32"}, "accumulation", "fp32"),
        ({"launch_blocking": "1"}, "launch_blocking", True),
        ({"seq_len": "128", "model": "bert-base"}, "optimizer", "adam"),
        ({"dataset": "neusight_model_latency"}, "optimizer", "none"),
        ({"dtype": "master-bf16"}, "precision", "master-bf16"),
        ({**SQUAD, "dtype": "fp16"}, "precision", "master-fp16"),
        ({**SQUAD, "dtype": "fp16"}, "fused_optimizer", True),
        ({**SQUAD, "dtype": "tf32"}, "precision", "tf32"),
        ({**SQUAD, "dtype": "tf32"}, "optimizer", "bert-adam"),
        ({**SQUAD, "dtype": "fp16", "phase": "inference"}, "precision", "fp16"),
        ({**SQUAD, "dtype": "fp16", "dataset": "mine"}, "precision", "amp-fp16"),
        ({**SQUAD, "dtype": "fp16", "model": "resnet50"}, "precision", "amp-fp16"),
        ({**WAVEGLOW, "software": "PyTorch 1.13.0a0+d0d6b1f"}, "precision", "tf32"),
        ({**WAVEGLOW, "software": "PyTorch 2.5.0a0"}, "precision", "tf32"),
        ({**WAVEGLOW, "software": "PyTorch 1.4.0a0+a5b4d78"}, "precision", "amp-fp16"),
        ({**WAVEGLOW, "software": "PyTorch 1.13.0a0+d0d6b1f"}, "optimizer", "adam-loop"),
        ({**WAVEGLOW, "software": "PyTorch 2.5.0a0"}, "optimizer", "adam"),
        ({**NCF, "software": "PyTorch 1.7.0a0"}, "precision", "master-fp16"),
        ({**NCF, "software": "PyTorch 2.5.0a0"}, "precision", "tf32"),
        ({**NCF, "software": "PyTorch 1.13.0a0", "machine": "lambda-a100-80gb-sxm4-v1"}, "precision", "tf32"),
        ({**NCF, "software": "PyTorch 1.13.0a0", "machine": "lambda-a6000-v1"}, "precision", "master-fp16"),
        ({**NCF, "software": "PyTorch 1.7.0a0"}, "optimizer", "adam"),
        ({**NCF, "software": "PyTorch 1.7.0a0"}, "fused_optimizer", True),
        ({**DLPERF, "software": "NGC TensorFlow 1.x"}, "framework", "tensorflow"),
        ({**DLPERF, "software": "NGC TensorFlow 1.x w/XLA"}, "framework", "tensorflow"),
        ({**DLPERF, "software": "TensorFlow", "note": "XLA; batch from heading"}, "compiled", True),
        ({**DLPERF, "software": "TensorFlow", "note": "no XLA; batch from heading"}, "compiled", False),
        ({"framework": "torch7", "software": "Torch7 nn (no cuDNN) CUDA 8"}, "framework", "caffe"),
        ({"framework": "torch7", "software": "Torch7 cuDNN 5105 CUDA 8"}, "framework", "pytorch"),
        (
            {"dtype": "bf16", "machine": "p3.16xlarge", "n_gpus": "8", "fsdp": "1", "framework": "llm-foundry"},
            "precision",
            "master-bf16",
        ),
    ],
)
def test_how_it_is_run(cells, option, value):
    assert getattr(asked(**cells).options, option) == value


@pytest.mark.parametrize(
    ("machine", "software", "overlaps"),
    [
        ("mlperf-8xv100-sxm2", "MLPerf Training v0.6", True),
        ("mlperf-8xa100-sxm4-40gb", "MLPerf Training v0.7", False),
        ("mlperf-8xh100-sxm5", "MLPerf Training v3.0", False),
    ],
)
def test_whether_mlperf_sums_gradients_of_images_while_it_computes(machine, software, overlaps):
    row = {
        "machine": machine,
        "n_gpus": "8",
        "framework": "mlperf",
        "model": "resnet",
        "software": software,
        "dtype": "",
    }
    assert (asked(**row).bucket_bytes > 0) == overlaps


@pytest.mark.parametrize(
    ("cells", "how"),
    [
        ({"framework": "megatron-deepspeed"}, ("add", False)),
        ({"framework": "megatron-deepspeed", "note": "fp32 grad accumulation"}, ("fp32", False)),
        ({"framework": "megatron-lm"}, ("product", False)),
        (
            {"framework": "megatron-deepspeed", "model": "bloom-176b", "n_gpus": "384", "tp": "8", "pp": "6"},
            ("add", True),
        ),
    ],
)
def test_what_deepspeed_does_with_gradients_and_bloom_with_launches(cells, how):
    sizes = {"micro_batch": "1", "grad_accum": "8", "seq_len": "2048", "dtype": "fp16"}
    row = {"model": "gpt", "machine": "dgx-a100-80gb", "n_gpus": "8", **sizes, **cells}
    if row["n_gpus"] == "384":
        row |= {"n_nodes": "48", "hidden": "14336", "heads": "112", "layers": "70"}
    options = asked(**row).options
    assert (options.accumulation, options.launch_blocking) == how


def test_sizes():
    query = asked(model="gpt2", seq_len="512", hidden="1024", heads="16", layers="24", batch_per_gpu="2")
    assert query.batch == 2
    assert dict(query.sizes) == {"sequence_length": 512, "hidden": 1024, "heads": 16, "layers": 24, "loss": 1}


def test_threads_and_library_of_a_cpu():
    cpu = {"machine": "cpu-i7-3820", "n_gpus": "0"}
    query = asked(**cpu, schedule="cpu threads=16", software="Caffe (2016, cuDNN 4/5)")
    assert (query.threads, query.software.cpu_library) == (16, "blas")
    assert asked(**cpu, schedule="tensor parallel only").threads is None
    assert asked(schedule="cpu threads=16").threads is None  # a GPU computes
    assert asked(**cpu).software.cpu_library == asked().software.cpu_library == "onednn"
    of_2016 = {"software": "2016, cuDNN 4/5"}
    frameworks = {"caffe": "blas", "cntk": "cntk", "mxnet": "mshadow", "tensorflow": "eigen", "torch": "torch7"}
    for framework, library in frameworks.items():
        assert asked(**cpu, **of_2016, framework=framework).software.cpu_library == library
    assert question_of({**ROW, **cpu, "cpu_library": "torch7"}).software.cpu_library == "torch7"
    with pytest.raises(NotScored, match="cpu_library 'torch': did you mean 'torch7'"):
        question_of({**ROW, **cpu, "cpu_library": "torch"})


def test_the_clock_to_which_a_gpu_is_held():
    k80 = {**ROW, "machine": "k80-die"}
    assert question_of({**k80, "gpu_clock": "562 MHz"}).software.gpu_clock_Hz == 562e6
    assert question_of(k80).software.gpu_clock_Hz == 0.0
    assert asked(machine="k80-die", dataset="shi2016_table7").software.gpu_clock_Hz == 562e6
    with pytest.raises(NotScored, match="gpu_clock 'slow'"):
        question_of({**k80, "gpu_clock": "slow"})


def test_programs_of_one_table_that_compute_other_things():
    row = {"dataset": "shi2016_table7", "software": "2016, cuDNN 4/5", "machine": "cpu-i7-3820", "n_gpus": "0"}
    assert asked(**row, model="alexnet-s", framework="caffe").workload == "alexnet-s-caffe"
    assert asked(**row, model="alexnet-s", framework="cntk").workload == "alexnet-s"
    torch = asked(**row, model="alexnet-s", framework="torch").options
    assert (torch.precision, torch.optimizer) == ("fp64", "sgd")
    lstm = {**row, "model": "lstm-shi2016", "batch_per_gpu": "128", "global_batch": "128"}
    for framework, batch, length in (("cntk", 4, 32), ("torch", 32, 128)):
        found = asked(**lstm, framework=framework)
        assert (found.batch, dict(found.sizes)["sequence_length"], found.micro_batches) == (batch, length, 1)


def test_a_step_of_sequences_has_its_loss():
    row = {"model": "gpt2", "seq_len": "128"}
    assert sizes(**row)["loss"] == 1
    assert sizes(**row, phase="fwd")["loss"] == 0
    assert sizes(**row, dataset="neusight_model_latency")["loss"] == 0
    assert sizes()["loss"] == 0  # with a thousand classes its time is negligible
    assert sizes(schedule="cross-entropy")["loss"] == 1


@pytest.mark.parametrize(
    ("cells", "attention"),
    [
        ({}, None),
        ({"schedule": "seed 3; eager attention"}, "eager"),
        ({"schedule": "fused attention"}, "fused"),
        ({"framework": "llm-foundry"}, "fused-first"),
        ({"framework": "llm-foundry", "schedule": "fused attention"}, "fused"),
        ({"software": "torch 2.11.0+cu128"}, "fused-native"),
        ({"software": "torch 2.10.0+cu128"}, None),
        ({"software": "torch 2.11.0+cu128", "model": "gpt2"}, None),  # its default is eager
        ({"software": "torch 2.11.0+cu128", "model": "gpt2", "schedule": "fused attention"}, "fused-native"),
        ({"schedule": "flash attention 3"}, "fused-native"),
        ({"software": "torch, cuDNN 9.20.0"}, "fused-fourth"),
    ],
)
def test_whose_attention_was_run(cells, attention):
    assert sizes(**{"model": "mpt-125m", "seq_len": "128", **cells}).get("attention") == attention


@pytest.mark.parametrize(
    ("cells", "predicted"),
    [
        ({"framework": "oneflow"}, 20),
        ({"framework": "ngc-tensorflow", "seq_len": "512"}, 80),
        ({"framework": "oneflow", "seq_len": "384"}, None),
        ({"framework": "oneflow", "phase": "fwd"}, None),
        ({"framework": "oneflow", "model": "bert-base-squad"}, None),
        ({"framework": "pytorch"}, None),
    ],
)
def test_masked_tokens_are_gathered_where_the_script_does_so(cells, predicted):
    assert sizes(**{"model": "bert-base", "seq_len": "128", **cells}).get("predicted") == predicted


def test_a_task_names_its_length():
    assert "sequence_length" not in sizes(model="bert-base-squad")


def test_micro_batches():
    query = asked(global_batch="64", micro_batch="8", grad_accum="8", batch_per_gpu="64")
    assert (query.batch, query.micro_batches) == (8, 8)
    assert asked(batch_per_gpu="", global_batch="8").batch == 8
    assert asked(batch_per_gpu="", global_batch="8", grad_accum="2").batch == 4


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"n_gpus": "8"}, "more than one GPU"),
        ({"model": "resnet51"}, "no network 'resnet51' in the zoo"),
        ({"model": ""}, "model missing"),
        ({"batch_per_gpu": ""}, "batch_per_gpu missing"),
        ({"model": "bert-base"}, "seq_len missing"),
        ({"batch_per_gpu": "0"}, "batch_per_gpu not positive"),
        ({"batch_per_gpu": "2.5"}, "batch_per_gpu is not a whole number"),
        ({"phase": "backwards"}, "no such phase: backwards"),
        ({"dtype": "int7"}, "no such dtype: int7"),
        ({"recompute": "some"}, "recompute 'some' is not modelled; none, selective, operators, full are"),
        ({"recompute": "full", "recompute_parts": "moe"}, "recompute_parts 'moe': with selective, of core_attn, "),
        ({"recompute": "selective", "recompute_parts": "mo"}, "recompute_parts 'mo': with selective, of core_attn, "),
        ({"recompute_blocks": "3"}, "recompute_blocks without recompute"),
        ({"optimizer": "adan"}, "no optimizer 'adan'; did you mean 'adam'?"),
    ],
)
def test_rows_that_ask_nothing_known(cells, reason):
    with pytest.raises(NotScored) as caught:
        asked(**cells)
    assert str(caught.value).startswith(reason)


def test_a_row_that_is_set_aside_is_predicted_and_its_error_told(tmp_path, capsys):
    """It counts in no statistic; the table of reasons has the error that it would have."""
    rows = [{"step_time_s": "0.01"}, {"step_time_s": "0.02", "unclear": "nobody knows"}, {"model": "gossip"}]
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [*COLUMNS, "unclear"], restval="")
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    scored = document(capsys, str(path))
    assert (scored["scored"], scored["skipped"]["nobody knows"], scored["overall"]["n"]) == (1, 1, 1)
    seconds = read().time_s(NAMES.session)
    would_be = abs(seconds / 0.02 - 1)
    assert scored["overall"]["median_ape"] == pytest.approx(abs(seconds / 0.01 - 1))
    assert scored["skipped_errors"]["nobody knows"]["median_ape"] == pytest.approx(would_be)
    assert "no network 'gossip' in the zoo" not in scored["skipped_errors"]
    score_command([str(path)])
    shown = capsys.readouterr().out.partition("not scored")[2]
    assert f"{100 * would_be:.1f} %" in shown
    assert "would be" in shown


def test_columns_asked_hold_nothing_measured():
    assert not {"step_time_s", "throughput", "throughput_unit", "note", "trust", "row_id"} & set(STEPS.asked)


def test_nothing_is_filled_in_by_what_was_measured():
    kinds = {kind.name: kind for kind in KINDS}
    looked_at = {
        (name, looked)
        for conventions in (general(), read_conventions(PUBLISHED))
        for name, by_column in conventions.items()
        for column, rules in by_column.items()
        if column in kinds[name].asked
        for rule in rules
        for looked in rule.looks_at()
    }
    assert ("training", "software") in looked_at
    assert not {(name, column) for name, kind in kinds.items() for column in (*kind.measured, "trust")} & looked_at


# -- predictions and judgement ---------------------------------------------------------


def step_s(machine="p3.2xlarge", **options):
    network = build_network("alexnet", batch=4, training=options.get("mode") != "inference")
    return alone_on(load_machine(machine), network, StepOptions(**options)).step_time_s


def test_known_errors(tmp_path, capsys):
    exact_s = step_s()
    scored = document(
        capsys,
        table(tmp_path, {"step_time_s": repr(exact_s)}, {"step_time_s": repr(2 * exact_s)}, {"model": "unheard-of"}),
    )
    assert (scored["kind"], scored["rows"], scored["scored"]) == ("training", 3, 2)
    assert scored["overall"]["median_ape"] == pytest.approx(0.25)
    assert scored["skipped"] == {"no network 'unheard-of' in the zoo": 1}
    assert group(scored, device="v100-sxm2-16gb")["n"] == 2
    assert group(scored, ranks="one", family="CNN")["rows"] == 2
    assert scored["baselines"]["roofline"]["bias"] < 0


def test_throughput_stands_in_for_the_time(tmp_path, capsys):
    rate = repr(4 / step_s())
    row = {"step_time_s": "", "throughput": rate, "throughput_unit": "images/s"}
    scored = document(capsys, table(tmp_path, row, {**row, "throughput_unit": "tokens/s"}, {**row, "throughput": ""}))
    assert scored["overall"]["median_ape"] == pytest.approx(0, abs=1e-9)
    assert scored["skipped"] == {
        "step_time_s missing": 1,
        "step_time_s missing, and how many tokens a sample has (seq_len)": 1,
    }


@pytest.mark.parametrize(
    ("cells", "samples"),
    [
        ({}, 4),
        ({"n_gpus": "0"}, 4),
        ({"n_gpus": "8"}, 32),
        ({"n_gpus": "8", "grad_accum": "3"}, 96),
        ({"n_gpus": "8", "grad_accum": "3", "micro_batch": "2"}, 48),
        ({"n_gpus": "8", "global_batch": "40"}, 40),
    ],
)
def test_throughput_counts_the_samples_of_all_gpus_and_micro_batches(cells, samples):
    row = {**ROW, "step_time_s": "", "throughput": "100", "throughput_unit": "images/s", **cells}
    assert STEPS.measured_s(lambda column: row.get(column, ""), NAMES) == pytest.approx(samples / 100)


def test_a_machine_without_gpus_computes_on_its_cpus(tmp_path, capsys):
    row = {"machine": "cpu-i7-3820", "n_gpus": "0", "batch_per_gpu": "1", "software": "Torch (2016, cuDNN 4/5)"}
    rows = [{**row, "schedule": f"cpu threads={n}"} for n in (1, 4)]
    out = tmp_path / "p.csv"
    scored = document(capsys, table(tmp_path, *rows), out=str(out), quiet=True)
    assert scored["scored"] == 2, scored["skipped"]
    assert group(scored, processor="CPU", ranks="one")["n"] == 2
    with out.open(newline="") as stream:
        one, four = (float(r["predicted_s"]) for r in csv.DictReader(stream))
    assert four < one


def of_three_micro_batches_s(tmp_path, capsys, **cells):
    out = tmp_path / "p.csv"
    row = {"micro_batch": "4", "grad_accum": "3", "batch_per_gpu": "12", **cells}
    document(capsys, table(tmp_path, row), out=str(out), quiet=True)
    with out.open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    return float(row["predicted_s"])


def test_micro_batches_share_one_update(tmp_path, capsys):
    options = StepOptions(precision="fp32", accumulation="add")
    gpu, network = Places(load_machine("p3.2xlarge")).find().device, build_network("alexnet", batch=4)
    passes_s = sum(issue.device_s for issue in launches_of(gpu, network, options) if issue.part != "update")
    # The host runs ahead of the device, also into the next micro-batch.
    assert of_three_micro_batches_s(tmp_path, capsys) == pytest.approx(step_s() + 2 * passes_s)
    assert step_s(optimizer="none") < step_s() < passes_s + step_s()


def test_micro_batches_on_a_cpu_are_steps_without_update_and_one_with_it(tmp_path, capsys):
    cpu = "cpu-i7-3820"
    with_s, without_s = step_s(machine=cpu), step_s(machine=cpu, optimizer="none")
    found_s = of_three_micro_batches_s(tmp_path, capsys, machine=cpu, n_gpus="0")
    options = StepOptions(precision="fp32", accumulation="add")
    device, network = Places(load_machine(cpu)).find("cpu").device, build_network("alexnet", batch=4)
    added_s = sum(issue.host_s + issue.device_s for issue in launches_of(device, network, options) if issue.adds)
    assert found_s == pytest.approx(with_s + 2 * (without_s + added_s))
    assert without_s < with_s


def test_predictions_do_not_depend_on_what_was_measured(tmp_path, capsys):
    rng = random.Random(2)
    rows = [{"batch_per_gpu": str(rng.randrange(1, 40)), "phase": rng.choice(["train", "fwd"])} for _ in range(6)]
    predictions = []
    for turn in range(2):
        measured = [{**row, "step_time_s": repr(rng.uniform(1e-3, 1)), "trust": "AB"[turn]} for row in rows]
        out = tmp_path / f"{turn}.csv"
        document(capsys, table(tmp_path, *measured), out=str(out), quiet=True)
        with out.open(newline="") as stream:
            predictions.append([row["predicted_s"] for row in csv.DictReader(stream)])
    assert predictions[0] == predictions[1]
    assert all(predictions[0])


def test_the_fastest_framework_of_each_configuration(tmp_path, capsys):
    rows = [
        {"software": "Caffe", "framework": "caffe", "step_time_s": "0.02"},
        {"software": "Torch7 cuDNN 5005", "framework": "torch7", "step_time_s": "0.01"},
        {"software": "Caffe", "framework": "caffe", "step_time_s": "0.05", "batch_per_gpu": "8"},
        {"software": "PyTorch 1.13", "step_time_s": "0.07", "batch_per_gpu": "16"},
    ]
    scored = document(capsys, table(tmp_path, *rows))
    assert group(scored, ranks="one", processor="GPU", family="CNN", era="before 2019", framework_rank="best")["n"] == 2
    assert (
        group(scored, ranks="one", processor="GPU", family="CNN", era="before 2019", framework_rank="other")["n"] == 1
    )
    assert group(scored, ranks="one", processor="GPU", family="CNN", era="since 2019", framework_rank="best")["n"] == 1


@pytest.mark.parametrize(
    ("framework", "software", "month"),
    [
        ("pytorch", "torch 1.13+cu117", (2022, 10)),
        ("pytorch", "PyTorch 2.3.0a0+40ec155e58.nv24.03 CUDA V12.4.99 (NGC 24.10 per repo)", (2024, 4)),
        ("pytorch", "torch 2.11.0+cu130", None),
        ("megatron-deepspeed", "PyTorch 1.11dev NCCL 2.10+ (Feb 2022)", None),
        ("megatron-bridge", "26.04.01 NeMo Container, Megatron-Bridge/Core", (2026, 4)),
        ("mxnet", "NGC MXNet 21.05", (2021, 5)),
        ("mlperf", "MLPerf Training v3.1; PyTorch NVIDIA Release 23.09", None),
        ("tensorflow", "TensorFlow 1.15", None),
    ],
)
def test_a_version_of_pytorch_or_a_container_dates_the_libraries(framework: str, software: str, month) -> None:
    assert read(framework=framework, software=software).question.software.libraries == month


def test_predictions_of_others_stand_beside(tmp_path, capsys):
    published = tmp_path / "b.csv"
    published.write_text("row_id,predictor,predicted_s\na,crystal,0.02\nb,crystal,0.03\nz,crystal,1\na,bones,0.01\n")
    file = table(tmp_path, {}, {"row_id": "b"}, {"row_id": "c"})
    scored = document(capsys, file, baselines=str(published))
    assert scored["published"]["crystal"]["n"] == 2
    assert scored["published"]["crystal"]["mean_ape"] == pytest.approx(1.5)
    assert scored["published"]["bones"]["mean_ape"] == pytest.approx(0.0)
    assert scored["published"]["bones"]["ours"]["mean_ape"] == pytest.approx(abs(step_s() / 0.01 - 1))
    score_command([file], baselines=str(published))
    assert "on the rows that it predicted too" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("row_id,predicted_s\n", "b.csv:1:1: no table of published predictions: missing column predictor"),
        ("row_id,predictor,predicted_s\na,b,soon\n", "b.csv:2:1: predicted_s is not a number"),
        ("", "b.csv:1:1: is empty"),
    ],
)
def test_published_predictions_that_cannot_be_read(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_published("b.csv")
    assert str(caught.value).startswith(words)


def test_a_calibration_is_used(tmp_path, capsys):
    half = tmp_path / "c.yaml"
    half.write_text(
        "schema_version: 1\ndevices:\n  v100-sxm2-16gb:\n    bandwidth: 0.5\n    compute: 0.5\n    dispatch: 2\n"
    )
    file = table(tmp_path, {"step_time_s": repr(step_s())})
    assert document(capsys, file, calibration=str(half))["overall"]["bias"] > 0.2


def test_a_machine_can_be_named(tmp_path, capsys):
    file = table(tmp_path, {"machine": "the-box"})
    assert document(capsys, file)["scored"] == 0
    assert document(capsys, file, machine=["the-box=p3.2xlarge"])["scored"] == 1
    assert document(capsys, file, topology="p3.2xlarge")["scored"] == 1


@pytest.mark.parametrize(
    ("sync", "strategy", "bucket_bytes"),
    [
        ("kvstore-device", "sharded", 1.0),
        ("parameter_server/gpu", "sharded", 1.0),
        ("replicated (no NCCL)/gpu", "sharded", 1.0),
        ("parameter_server/cpu", "cpu", 1.0),
        ("parameter-server dist_device_sync", "parameter-server-colocated", BUCKET_BYTES),
        ("replicated (NCCL)", "nccl", BUCKET_BYTES),
        ("ddp", "nccl", BUCKET_BYTES),
    ],
)
def test_how_gradients_are_exchanged(sync, strategy, bucket_bytes):
    found = asked(sync=sync, n_gpus="8", machine="p2.8xlarge")
    assert (found.strategy, found.bucket_bytes) == (strategy, bucket_bytes)


def test_buckets_have_the_size_that_a_row_says():
    assert asked(overlap="1 GiB", sync="ddp", n_gpus="8", machine="p3.16xlarge").bucket_bytes == 2**30
    assert asked(overlap="none", sync="ddp", n_gpus="8", machine="p3.16xlarge").bucket_bytes == 0
    with pytest.raises(NotScored, match="overlap 'much'"):
        asked(overlap="much", sync="ddp", n_gpus="8", machine="p3.16xlarge")


def test_frameworks_that_gather_parameters_after_the_update():
    cells = {"machine": "dgx-a100-80gb", "n_gpus": "8", "model": "internlm-7b", "dtype": "bf16", "zero": "1"}
    found = asked(**cells, framework="internevo", seq_len="2048")
    assert (found.prefetches, found.bucket_bytes, dict(found.sizes)["attention"]) == (False, 2**30, "fused-first")
    assert asked(**cells, framework="megatron-lm", seq_len="2048").prefetches


def test_the_network_of_pods_is_one_flow_between_two_nodes():
    cells = {"machine": "g4dn.12xlarge", "n_gpus": "8", "model": "resnet50", "sync": "ddp"}
    cells["fabric"] = "AWS 50 Gbit/s, TCP"
    pods = {**cells, "software": "torch 1.7 (pytorch:20.10-py3), AdaptDL"}
    assert asked(**pods, n_nodes="2").where.fabric == "5 Gbit/s"
    assert asked(**{**pods, "n_gpus": "4"}, n_nodes="1").where.fabric is None
    assert asked(**cells, software="torch 1.7", n_nodes="2").where.fabric is None
    assert asked(**cells, n_nodes="2", fabric_part="ethernet-10g").where.fabric == "ethernet-10g"
    with pytest.raises(NotScored, match="no network link is called 'some'"):
        asked(**cells, n_nodes="2", fabric_part="some")


BATCHES = [rule for rule in read_conventions(PUBLISHED)["training"]["batch_per_gpu"] if rule.values is not None]


def test_batches_that_a_collection_publishes_beside_its_results():
    cells = {"dataset": "lambda_pytorch_throughput", "batch_per_gpu": "", "n_gpus": "1"}
    found = asked(**cells, machine="lambda-a6000-v1", model="gnmt", dtype="fp16")
    assert (found.batch, dict(found.sizes)["sequence_length"]) == (968, 30)
    assert asked(**cells, machine="lambda-a6000-v1", model="gnmt", dtype="tf32").batch == 576
    with pytest.raises(NotScored, match="batch_per_gpu missing"):
        asked(**cells, machine="p3.2xlarge", model="maskrcnn", dtype="fp32")
    assert asked(**cells, machine="lambda-2080ti", model="gnmt", dtype="fp16").batch == 160
    assert asked(**{**cells, "batch_per_gpu": "7"}, machine="lambda-a6000-v1", model="gnmt", dtype="fp16").batch == 7


def test_the_mean_of_the_first_steps_holds_the_start_of_the_run():
    steady = read(**SQUAD, software="PyTorch 1.4.0a0", libraries="2020-10").time_s(NAMES.session)
    costs = NAMES.session.constants(TimingCosts)
    shown = read(**SQUAD, software="PyTorch 1.7.0a0").time_s(NAMES.session)
    assert shown == pytest.approx((101 * steady + costs.start_s) / 100)  # 101 steps ran, and 100 are counted
    cells = {**SQUAD, "software": "PyTorch 1.7.0a0", "machine": "p3.16xlarge", "n_gpus": "8", "sync": "ddp"}
    eight = read(**cells)
    alone = replace(eight, timing=None).time_s(NAMES.session)
    start_s = costs.start_s + 7 * costs.start_rank_s
    assert eight.time_s(NAMES.session) == pytest.approx((101 * alone + start_s) / 100)
    counted = [read(first_steps=text).timing for text in ("20", "20 of 24")]
    assert counted == [Timed(from_start_s, (20, ran, 1)) for ran in (20, 24)]
    with pytest.raises(NotScored, match="first_steps"):
        read(first_steps="20 of some")


@pytest.mark.parametrize(
    ("batch", "seconds"),
    [("30", 100 / 3 / 1000), ("100", 0.1), ("60", 0.1), ("50", 0.05)],  # 3 x 30, 1 x 100, 1 x 60, 2 x 50 of 100 samples
)
def test_a_rate_may_count_samples_that_no_step_trained(batch: str, seconds: float) -> None:
    row = {"throughput": "1000", "throughput_unit": "samples/s", "batch_per_gpu": batch, "epoch_samples": "100"}
    assert step_measured_s(lambda column: row.get(column, "")) == pytest.approx(seconds)


def test_an_epoch_without_a_whole_batch_is_not_scored() -> None:
    row = {"throughput": "1000", "throughput_unit": "samples/s", "batch_per_gpu": "101", "epoch_samples": "100"}
    with pytest.raises(NotScored, match="an epoch of 100 samples has no batch of 101"):
        step_measured_s(lambda column: row.get(column, ""))


def test_published_batches_are_of_known_networks_on_known_machines():
    patterns = {dict(rule.when)["machine"] for rule in BATCHES}
    for rule in BATCHES:
        for name in rule.values or ():
            build = find_entry(name)
            assert build.defaults
    for name in builtin_names():
        assert sum(bool(pattern.search(name)) for pattern in patterns) <= 1, name
    for pattern in patterns:
        assert any(pattern.search(name) for name in builtin_names()), pattern.pattern


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        ({"throughput": "100", "throughput_unit": "samples/s", "batch_per_gpu": "5"}, 0.05),
        ({"throughput": "1000", "throughput_unit": "tokens/s", "batch_per_gpu": "5", "seq_len": "100"}, 0.5),
        ({"throughput": "250", "throughput_unit": "tokens/s/GPU", "batch_per_gpu": "5", "seq_len": "100"}, 2.0),
        ({"throughput": "40000", "throughput_unit": "audio-samples/s", "batch_per_gpu": "5"}, 1.0),
        ({"throughput": "1000", "throughput_unit": "tokens/s", "batch_per_gpu": "5", "model": "gnmt"}, 0.25),
    ],
)
def test_what_throughput_counts(cells, seconds):
    row = {**ROW, "step_time_s": "", **cells}
    records = read_records(csv_bytes([tuple(row), tuple(row.values())]), "t.csv")
    found = tabulate(records, "t.csv", STEPS.needed, STEPS.columns, STEPS.name)
    measured = STEPS.measured_s(lambda column: found.cell(found.rows[0], column), NAMES)
    assert measured == pytest.approx(seconds * (1 if "n_gpus" not in cells else int(cells["n_gpus"])))


def test_efficiency_of_more_gpus_is_set_beside_the_measured_one(tmp_path, capsys):
    row = {"model": "alexnet", "machine": "p3.16xlarge", "sync": "ddp", "batch_per_gpu": "64"}
    rows = [{**row, "n_gpus": n, "step_time_s": t} for n, t in (("1", "0.1"), ("2", "0.125"), ("8", "0.2"))]
    rows.append({**row, "n_gpus": "4", "batch_per_gpu": "32", "step_time_s": "0.1"})  # a batch that no other row has
    file = table(tmp_path, *rows)
    scored = document(capsys, file, scaling=True, out=str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open() as stream:
        times = [float(each["predicted_s"]) for each in csv.DictReader(stream)]
    off = sorted(abs(times[0] / times[i] - measured) for i, measured in ((1, 0.8), (2, 0.5)))
    (found,) = scored["scaling"]
    assert (found["dataset"], found["pairs"], found["measured"]) == ("mine", 2, pytest.approx(0.65))
    assert found["median"] == pytest.approx(sum(off) / 2)
    assert "scaling" not in document(capsys, file)
    score_command([file], scaling=True)
    assert "scaling efficiency, in points  pairs" in capsys.readouterr().out
    score_command([table(tmp_path, rows[0], name="one.csv")], scaling=True)
    assert "no two scored rows differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("optimizer", ("optimizer", False)),
        ("optimizer, round robin", ("optimizer", True)),
        ("", ("none", False)),
    ],
)
def test_what_the_host_holds(said, expected):
    question = asked(machine="p3.16xlarge", n_gpus="8", zero="2", dp="8", offload=said)
    assert (question.offload, question.round_robin) == expected


def test_a_host_that_holds_something_else_is_not_scored():
    with pytest.raises(NotScored, match="offload 'activations' is not modelled"):
        asked(offload="activations")
    with pytest.raises(
        NotScored, match="offload 'optimizer, pinned' is not modelled; after the first word: round robin"
    ):
        asked(offload="optimizer, pinned")
