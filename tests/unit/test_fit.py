"""``validate fit``: constants recovered from rows made with them, rows held out, mistakes reported in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import simulator.constants
import validate.constants.fit
from simulator.console.run import run_app
from simulator.constants import DEFAULT, Constants, constants_file, constants_path
from validate.cli import app
from validate.cli import fit as command
from validate.constants.families import FAMILIES, Family, FitStage, Prior, Term, read_rows
from validate.constants.fit import counts, fit_errors, fit_family, rows_of
from validate.kinds.kind import MeasuredRow
from validate.tables.names import RowNames

pytestmark = pytest.mark.slow

pytest.importorskip("scipy")

PROJECT = Path(__file__).resolve().parents[2]
BY_NAME = {family.name: family for family in FAMILIES}
KINDS = {"operators", "collectives"}


def complete(file: Path) -> None:
    """Add to the table *file* what authors of published tables say elsewhere."""
    made = file.with_name("completed.csv")
    words = ["table", "complete", "--conventions", "published", str(file), "--out", str(made), "--quiet"]
    assert run_app(app, "validate", words) == 0
    made.replace(file)


def read(
    tmp_path: Path, header: str, lines: Iterable[Sequence[object]], *, completed: bool = False
) -> tuple[list[MeasuredRow], RowNames]:
    """Return the rows of a table, as ``validate fit`` reads them; each takes a second."""
    table = tmp_path / "rows.csv"
    text = [",".join(map(str, (*line, 1))) for line in lines]
    table.write_text("\n".join([f"{header},time_s", *text]) + "\n")
    if completed:
        complete(table)
    names = RowNames()
    rows = read_rows([str(table)], names, KINDS)
    assert len(rows) == len(text)
    return rows, names


def made(rows: Sequence[MeasuredRow], names: RowNames, truth: dict[str, float]) -> list[MeasuredRow]:
    """Return *rows* with times computed from the constants *truth*."""
    session = names.session.calibrated({}, Constants(truth))
    return [replace(row, time_s=row.asked.time_s(session)) for row in rows]


def worst(rows: Sequence[MeasuredRow], names: RowNames, constants: Constants) -> float:
    return max(abs(error) for error in fit_errors(rows, names.session, constants) if error is not None)


# -- constants are found again ---------------------------------------------------------

LONG = list(product((1024, 4096), (1024, 2048, 3072), (16384, 32768, 65536)))
SHORT = list(product((512, 2048, 8192), (2048,), (512, 1024, 2048)))
CONV = "device,op,phase,dtype,batch,c_in,c_out,h_in,w_in,kernel_h,kernel_w,stride,pad,groups"
MADE = {
    "gemm": (
        "device,op,dtype,m,n,k",
        [(device, "linear", "fp32", *shape) for device in ("p100-pcie-16gb", "titan-xp") for shape in LONG + SHORT],
        {"gemm.walks_early": (5.0, 0.2)},
    ),
    "tensor_product": (
        "device,op,variant,dtype,cache,issue,m,n,k",
        [
            ("h200-sxm", "linear", "lm_head", "bf16", cache, "graph", *shape)
            for cache, shape in product(("warm", "cold"), product((1, 64, 512), (64, 1024, 8192), (64, 1024, 8192)))
        ],
        {"tensor_product.warps.start_clocks": (10000.0, 0.02), "tensor_product.latency_s": (1.5e-9, 0.25)},
    ),
    "attention": (
        "device,op,variant,dtype,issue,software,batch,heads,m,n,k",
        [
            ("h200-sxm", "attention", "causal", "bf16", "graph", "sglang 0.5.9", batch * heads, heads, n, n, size)
            for batch, heads, n, size in product((4, 32), (8, 32), (128, 256, 1024, 8192), (64, 128))
        ],
        {"attention.products": (0.45, 0.12)},
    ),
    "memory_bound": (
        "device,op,variant,dtype,software,includes_dispatch,rows,cols",
        [
            (device, *op, "fp32", "torch 2.1", 1, rows, cols)  # before softmax held long rows
            for device in ("v100-pcie-32gb", "a100-pcie-40gb", "p100-pcie-16gb")
            for op in (("elementwise", "relu"), ("softmax", ""), ("layer_norm", ""))
            for rows, cols in product((256, 4096, 65536), (512, 2048, 8192))
        ],
        {
            "memory.late_share": (0.8, 0.05),
            "rowwise.softmax_row_s": (9e-6, 0.05),
            "timing.isolated_elementwise_s": (4e-5, 0.02),
        },
    ),
    "matrix_product": (
        "device,op,dtype,m,n,k",
        [
            (device, "matmul", "fp16", *shape)
            for device in ("t4",)  # power bounds no product of a V100
            for shape in product((1024, 4096, 8192), (1024, 4096, 7000), (1024, 2560, 4096))
        ],
        {"power.tensor_16_bit": (0.6, 0.1)},
    ),
    "checked_memory": (
        "device,op,variant,dtype,includes_dispatch,rows,cols",
        [
            (device, "elementwise", "relu", "fp32", 1, rows, 4096)
            for device, rows in product(("t4", "l4"), (65536, 131072, 262144))
        ],
        {"memory.check_turnaround": (0.8, 0.05)},
    ),
    "convolution": (
        CONV,
        [
            (device, "conv2d", phase, "fp32", 32, size, size, image, image, taps, taps, 1, taps // 2, 1)
            for device, phase in product(("m40", "titan-xp"), ("fwd", "bwd_data", "bwd_weight"))
            for size, image, taps in product((64, 256), (14, 56), (1, 3, 5))
        ],
        {
            "convolution.gemm": (0.6, 0.05),
            "convolution.winograd_fused": (0.6, 0.05),
            "convolution.backward": (0.7, 0.1),
        },
    ),
    "recurrence": (
        "device,op,phase,dtype,batch,hidden,timesteps",
        [
            (device, "lstm", phase, "fp32", *sizes)
            for device, phase in product(("titan-x-maxwell", "titan-xp", "v100-sxm2-16gb"), ("fwd", "bwd"))
            for sizes in product((16, 64), (512, 2048), (25, 100))
        ],
        {"recurrence.step": (0.5, 0.1), "recurrence.step_s": (4e-5, 0.15)},
    ),
    "nccl": (
        "software,machine,n_gpus,collective,bytes",
        [("NCCL 2.27.3", "dgx-h100", n, "all_reduce", 2**size) for n in (2, 8) for size in range(12, 30, 4)],
        {"nccl.recent.NVLS.share": (0.5, 0.05)},
    ),
}


@pytest.mark.parametrize("family", MADE)
def test_constants_that_made_the_rows_are_found_again(family: str, tmp_path: Path) -> None:
    header, lines, truth = MADE[family]
    rows, names = read(tmp_path, header, lines)
    rows = made(rows, names, {name: value for name, (value, _) in truth.items()})
    before = worst(rows, names, DEFAULT)
    found = fit_family(BY_NAME[family], rows, names.session, max_evaluations=20)
    assert len(found.rows) > 0.8 * len(rows)
    assert before > 0.25
    assert worst(rows, names, found.constants) < 0.4 * before
    for name, (value, relative) in truth.items():
        assert found.values[name] == pytest.approx(value, rel=relative)
        assert 0 < found.spread[name] < 1


def test_every_family_has_rows_of_its_own_and_names_constants_that_there_are() -> None:
    assert set(MADE) == set(BY_NAME)
    for family in FAMILIES:
        for stage in family.stages:
            for name in (*stage.free, *stage.tied, *stage.tied.values()):
                file, _, constant = name.partition(".")
                assert constant in constants_file(file)["constants"], name
            assert all(prior.low <= prior.value <= prior.high for prior in stage.free.values())
            assert set(stage.tied.values()) <= {*stage.free, *stage.tied}


def test_tied_constants_are_as_large_as_those_that_they_are_tied_to(tmp_path: Path) -> None:
    header, lines, _ = MADE["nccl"]
    rows, names = read(tmp_path, header, lines[:2])
    found = fit_family(BY_NAME["nccl"], made(rows, names, {}), names.session, max_evaluations=1)
    for version in ("earlier", "recent"):
        assert found.values[f"nccl.{version}.P2P.share"] == found.values[f"nccl.{version}.Simple.share"]
        assert f"nccl.{version}.P2P.share" not in found.spread


# -- choice of rows --------------------------------------------------------------------

PRODUCT = "device,op,dtype,m,n,k"
ATTENTION = "device,op,variant,dtype,software,batch,heads,kv_heads,m,n,k"


def test_products_are_of_one_family_each(tmp_path: Path) -> None:
    lanes = [("t4", "fp32"), ("a100-sxm4-80gb", "fp32"), ("mi250-gcd", "fp32"), ("t4", "int8"), ("mi250-gcd", "fp16")]
    expected = {
        "gemm": [(device, "linear", dtype, 512, 512, 512) for device, dtype in lanes],
        "matrix_product": [("t4", "linear", "fp16", 512, 512, 512)],
        "tensor_product": [
            (device, "linear", "fp16", 512, 512, 512) for device in ("a100-sxm4-80gb", "h100-sxm5-80gb", "b200")
        ],
    }
    processor = [("knl-7250", "linear", "fp32", 512, 512, 512)]
    rows, _ = read(tmp_path, PRODUCT, [*(line for lines in expected.values() for line in lines), *processor])
    for name, lines in expected.items():
        assert [row.place for row in rows_of(BY_NAME[name], rows)] == [line[0] for line in lines]


def test_which_rows_of_attention_count(tmp_path: Path) -> None:
    def row(
        heads: int, length: int, kv_heads: int = 32, *, batch: int = 8, by: str = "sglang 0.5.9", at: str = "h200-sxm"
    ) -> tuple[object, ...]:
        return (at, "attention", "causal", "bf16", by, batch * heads, heads, min(kv_heads, heads), length, length, 128)

    lines = {
        row(32, 1024): True,
        row(32, 1024, by="vllm 0.14.0"): False,
        row(32, 64): False,
        row(1, 8192, batch=1): False,  # its keys are divided among blocks
        row(1, 128, batch=1): True,
        row(32, 1024, 8): True,
        row(32, 1024, 8, at="a100-sxm4-80gb"): False,  # heads that share keys are packed there
    }
    rows, _ = read(tmp_path, ATTENTION, lines)
    assert len(rows_of(BY_NAME["attention"], rows)) == len(rows)
    counted = [counts(BY_NAME["attention"], row) for row in rows]
    assert counted == list(lines.values())


def test_a_shape_of_sixteen_is_never_fitted_to(tmp_path: Path) -> None:
    sizes = product((64, 96, 128, 192), (256, 512, 768, 1024), (256, 512, 1024, 1536, 2048))
    rows, names = read(tmp_path, PRODUCT, [("h200-sxm", "linear", "bf16", *shape) for shape in sizes])
    family = BY_NAME["tensor_product"]
    out = [row for row in rows if not counts(family, row)]
    assert 0.02 < len(out) / len(rows) < 0.12
    assert fit_family(family, out, names.session).values == {}
    found = fit_family(family, rows, names.session, max_evaluations=1)
    assert not {id(row) for row in out} & {id(row) for row in found.rows}


def test_each_device_counts_alike_and_short_calls_of_the_host_little(tmp_path: Path) -> None:
    lines = [("p4", "linear", "fp32", 64, 64, 64 + i, "A") for i in range(300)]
    lines += [("t4", "linear", "fp32", 64, 64, 64, "A")] * 3 + [("t4", "linear", "fp32", 64, 64, 64, "C")]
    rows, names = read(tmp_path, f"{PRODUCT},trust", lines)
    found = fit_family(BY_NAME["gemm"], rows, names.session, max_evaluations=1)
    assert [row.place for row in found.rows] == ["p4"] * 100 + ["t4"] * 3
    assert BY_NAME["memory_bound"].grades == {"A": 1.0, "B": 1.0, "C": 0.25}


def test_a_table_says_how_often_its_rows_count(tmp_path: Path) -> None:
    lines = [
        (dataset, trust, "t4", op, "fp32", 256, 256, 256, 256, 256)
        for dataset, trust, op in (
            ("neusight_ops", "A", "linear"),
            ("deepbench_ops", "A", "linear"),
            ("neusight_inmodel_ops", "A", "softmax"),
            ("llmcompass_ops", "B", "softmax"),
            ("llmcompass_ops", "A", "softmax"),
        )
    ]
    rows, _ = read(tmp_path, "dataset,trust,device,op,dtype,m,n,k,rows,cols", lines, completed=True)
    assert [row.weight for row in rows] == [2.0, 0.5, 0.0, 0.0, 1.0]
    assert not counts(BY_NAME["memory_bound"], rows[2])


def test_machines_that_judge_are_not_fitted_to(tmp_path: Path) -> None:
    judges = ("8xv100-sxm2-16gb-cube-mesh", "dgx-h200", "dgx-b200", "gb300-nvl72")
    lines = [(machine, 2, "all_reduce", 1048576) for machine in (*judges, "dgx-h100", "ndv4-8xa100")]
    rows, _ = read(tmp_path, "machine,n_gpus,collective,bytes", lines, completed=True)
    assert [counts(BY_NAME["nccl"], row) for row in rows] == [False] * 4 + [True] * 2


# -- the command -----------------------------------------------------------------------

DEVICES = ("v100-pcie-32gb", "a100-pcie-40gb", "titan-v")
HEADER = "device,op,variant,dtype,rows,cols,time_s,trust,dataset"
SIMPLE = Family(
    "simple",
    "operators",
    ("elementwise",),
    {"A": 1.0},
    (FitStage({"memory.late_share": Prior(0.9, 1.0, 0.3, 1.5)}, ("device",), 50),),
)


@pytest.fixture
def simple(monkeypatch) -> None:
    """Use a family of one constant: the share of memory bandwidth that long passes reach."""
    monkeypatch.setattr(command, "FAMILIES", (SIMPLE,))
    monkeypatch.setattr(command, "_BY_NAME", {"simple": SIMPLE})


def table(tmp_path: Path, **factors: float) -> str:
    """Return a table of long passes; each takes its device's factor times the time at a share of 0.8."""
    lines = [(device, "elementwise", "relu", "fp32", n, 100000) for device in DEVICES for n in (2000, 4000, 6000)]
    rows, names = read(tmp_path, "device,op,variant,dtype,rows,cols", lines)
    text = [HEADER]
    for line, row in zip(lines, made(rows, names, {"memory.late_share": 0.8}), strict=True):
        time_s = row.time_s * factors.get(str(line[0]).split("-")[0], 1.0)
        text.append(",".join(map(str, (*line, repr(time_s), "A", ""))))
    path = tmp_path / "ops.csv"
    path.write_text("\n".join(text) + "\n")
    return str(path)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = run_app(app, "validate", ["fit", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def document(capsys, *arguments: str) -> dict:
    status, out, err = run(capsys, *arguments, "--json")
    assert (status, err) == (0, "")
    found: dict = json.loads(out)
    return found


def errors(found: dict, rows: str, place: str | None = None) -> dict:
    (group,) = (g for g in found["errors"] if (g["rows"], g["op"], g["place"]) == (rows, None, place))
    return group


@pytest.mark.usefixtures("simple")
def test_constants_and_errors(tmp_path, capsys) -> None:
    found = document(capsys, table(tmp_path))
    assert found["families"]["simple"]["constants"] == {"memory.late_share": pytest.approx(0.8, rel=0.005)}
    assert 0 < found["families"]["simple"]["spread"]["memory.late_share"] < 0.05
    assert found["families"]["simple"]["rows"] == 9
    assert found["families"]["simple"]["at_bound"] == found["held_out"] == []
    assert errors(found, "fitted")["n"] == 9
    assert errors(found, "fitted")["mean_ape"] < 0.005
    assert {g["op"] for g in found["errors"]} == {None, "elementwise"}
    status, out, _ = run(capsys, table(tmp_path))
    assert status == 0
    assert "memory.late_share" in out
    assert "elementwise, fitted" in out


@pytest.mark.usefixtures("simple")
def test_a_device_that_is_held_out_has_no_say(tmp_path, capsys) -> None:
    found = document(capsys, table(tmp_path, v100=2.0), "--hold-out", "v100-pcie-32gb")
    assert found["families"]["simple"]["constants"]["memory.late_share"] == pytest.approx(0.8, rel=0.005)
    assert errors(found, "fitted")["n"] == 6
    assert errors(found, "held out", "v100-pcie-32gb")["bias"] == pytest.approx(-0.5, abs=0.005)
    assert found["held_out"] == ["v100-pcie-32gb"]


class Threads:
    """Threads in place of processes, which would not see this test's family."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def map(self, function, tasks):
        assert self.workers == 2
        return [function(task) for task in tasks]


@pytest.mark.usefixtures("simple")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_each_device_is_judged_by_a_fit_to_the_others(tmp_path, capsys, monkeypatch, jobs) -> None:
    monkeypatch.setattr(command, "ProcessPoolExecutor", Threads)
    found = document(capsys, table(tmp_path, v100=1.2), "--leave-one-out", "place", "--jobs", jobs)
    assert errors(found, "place left out", "v100-pcie-32gb")["bias"] == pytest.approx(1 / 1.2 - 1, abs=0.01)
    # The others are predicted by fits that included the slow one.
    assert errors(found, "place left out", "titan-v")["bias"] > 0
    assert errors(found, "place left out")["n"] == errors(found, "fitted")["n"] == 9


@pytest.mark.usefixtures("simple")
def test_each_generation_is_judged_by_a_fit_to_the_others(tmp_path, capsys) -> None:
    """The two Voltas are left out together."""
    file = table(tmp_path, v100=1.2, titan=1.2)
    found = document(capsys, file, "--leave-one-out", "generation")
    for place in ("v100-pcie-32gb", "titan-v"):
        assert errors(found, "generation left out", place)["bias"] == pytest.approx(1 / 1.2 - 1, abs=0.01)
    assert errors(found, "generation left out", "a100-pcie-40gb")["bias"] == pytest.approx(0.2, abs=0.01)


@pytest.mark.usefixtures("simple")
def test_each_data_set_is_judged_by_a_fit_to_the_others(tmp_path, capsys) -> None:
    """One that measured all devices slower by a fifth; rows without a name of their data set are one group."""
    path = Path(table(tmp_path))
    lines = path.read_text(encoding="utf-8").splitlines()
    slow = [line.split(",") for line in lines[1:]]
    slow = [[*row[:6], repr(1.2 * float(row[6])), "A", "slow_source"] for row in slow]
    path.write_text("\n".join([*lines, *map(",".join, slow)]) + "\n", encoding="utf-8")
    found = document(capsys, str(path), "--leave-one-out", "dataset")
    assert errors(found, "dataset left out", "slow_source")["bias"] == pytest.approx(1 / 1.2 - 1, abs=0.01)
    assert errors(found, "dataset left out", "no dataset named")["bias"] == pytest.approx(0.2, abs=0.01)
    assert errors(found, "dataset left out")["n"] == 18


@pytest.mark.usefixtures("simple")
def test_leaving_generations_out_has_a_name_of_its_own(tmp_path, capsys) -> None:
    file = table(tmp_path, v100=1.2, titan=1.2)
    by_name = document(capsys, file, "--leave-one-generation-out")
    assert by_name == document(capsys, file, "--leave-one-out", "generation")


@pytest.mark.usefixtures("simple")
def test_a_term_is_worth_what_its_absence_costs_where_it_was_not_fitted(tmp_path, capsys, monkeypatch) -> None:
    """Rows have a bandwidth share of 0.8 and no turnaround: the first term is worth everything, the second nothing."""
    share = Term("simple", "share", {"memory.late_share": 1.0})
    turning = Term("simple", "pow", {"streaming.pow_slots": 0.0})
    monkeypatch.setattr(command, "TERMS", (share, turning))
    options = ["--leave-one-generation-out", "--terms"]
    found = document(capsys, table(tmp_path), *options)
    assert [(term["term"], term["left_out"], term["n"]) for term in found["terms"]] == [
        ("share", "ampere", 3),
        ("share", "volta", 6),
        ("pow", "ampere", 3),
        ("pow", "volta", 6),
    ]
    for term in found["terms"]:
        assert term["mean_ape"] < 0.005
        assert term["mean_ape_without"] == pytest.approx(0.2 if term["term"] == "share" else 0.0, abs=0.01)
    # Fits without a term appear nowhere else.
    assert errors(found, "generation left out")["n"] == errors(found, "fitted")["n"] == 9
    lines = run(capsys, table(tmp_path), *options)[1].splitlines()
    assert any(line.startswith("share ") and "+" in line for line in lines)


@pytest.mark.usefixtures("simple")
def test_a_device_that_is_held_out_is_held_out_of_all_fits(tmp_path, capsys) -> None:
    options = ["--leave-one-out", "place", "--hold-out", "v100-pcie-32gb"]
    found = document(capsys, table(tmp_path, v100=1.5), *options)
    assert errors(found, "place left out", "titan-v")["bias"] == pytest.approx(0, abs=0.005)
    assert errors(found, "held out")["n"] == 3
    assert errors(found, "place left out")["n"] == 9


@pytest.mark.usefixtures("simple")
def test_rows_that_do_not_shape_the_constants_are_judged(tmp_path, capsys) -> None:
    file = table(tmp_path)
    with open(file, "a") as stream:
        stream.write("titan-v,elementwise,relu,fp32,2000,100000,1,A,neusight_inmodel_ops\n")
        stream.write("titan-v,elementwise,relu,fp32,2000,100000,1,B,\n")
    complete(Path(file))
    found = document(capsys, file)
    assert found["families"]["simple"]["constants"]["memory.late_share"] == pytest.approx(0.8, rel=0.005)
    assert (errors(found, "fitted")["n"], errors(found, "not fitted to")["n"]) == (9, 1)


@pytest.mark.usefixtures("simple")
def test_shapes_held_out_are_judged_apart(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(command, "_BY_NAME", {"simple": replace(SIMPLE, held_out=("elements",))})
    held = {2000 * 100000}
    monkeypatch.setattr(validate.constants.fit, "is_sampled", lambda shape, _: shape[0] in held)
    found = document(capsys, table(tmp_path))
    assert found["families"]["simple"]["rows"] == errors(found, "fitted")["n"] == 6
    assert errors(found, "shapes held out")["n"] == 3


ALL_HELD_OUT = [word for device in DEVICES for word in ("--hold-out", device)]


@pytest.mark.usefixtures("simple")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hold-out", "titan"], "--hold-out: the tables have no device or machine 'titan'; did you mean 'titan-v'"),
        (["--only", "simpel"], "--only: no family 'simpel'; did you mean 'simple'"),
        (["--jobs", "none"], "--jobs: a number of processes such as 2 is needed; got 'none'"),
        (["--leave-one-out", "device"], "--leave-one-out: place, generation or dataset; got 'device'"),
        (["--terms"], "--terms: what a term is worth shows where it was not fitted; add --leave-one-out generation"),
        (["--rows", "0"], "--rows: a share above 0 and at most 1 is needed, such as 0.2; got '0'"),
        (["--rows", "half"], "--rows: a share above 0 and at most 1 is needed, such as 0.2; got 'half'"),
        (["--write", "--rows", "0.5"], "--write: a fit to a share of the rows is to judge, not to use"),
        (["--write", "--hold-out", "titan-v"], "--write: a fit that holds something out is to judge, not to use"),
        (ALL_HELD_OUT, "no row is left to fit to"),
        (["-"], "-: a file is needed"),
        (["nope.csv"], "nope.csv: cannot be read"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, arguments, words) -> None:
    status, out, err = run(capsys, table(tmp_path), *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_table_is_needed_and_one_that_can_be_fitted_to(tmp_path, capsys) -> None:
    assert run(capsys)[::2] == (2, "validate: a table is needed, for example: validate fit ops.csv\n")
    steps = tmp_path / "steps.csv"
    steps.write_text("machine,model,batch_per_gpu,step_time_s\nt4,resnet18,8,1\n")
    status, _, err = run(capsys, str(steps))
    assert (status, "no row is left to fit to" in err) == (2, True)


def test_a_machine_that_is_not_there_is_named(tmp_path, capsys) -> None:
    path = tmp_path / "t.csv"
    path.write_text("machine,n_gpus,collective,bytes,time_s\ndgx-h100,8,all_reduce,1000000,5e-5\n")
    status, _, err = run(capsys, str(path), "--hold-out", "dgx-h10")
    assert (status, "did you mean 'dgx-h100'" in err) == (2, True)


# -- writing ---------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path, monkeypatch) -> Path:
    """Return a copy of the files of constants, used in place of the project's."""
    top = tmp_path / "copied"
    for package in ("simulator", "validate"):
        (top / package).mkdir(parents=True)
        for path in (PROJECT / package / "constants").glob("*.json"):
            shutil.copy(path, top / package)
    monkeypatch.setattr(simulator.constants, "files", lambda name: top / name.partition(".")[0])
    return top


@pytest.mark.usefixtures("simple")
def test_what_is_fitted_is_written_with_what_it_rests_on(tmp_path, capsys, copied) -> None:
    path = copied / "simulator" / "memory.json"
    before, text = json.loads(path.read_text()), path.read_text()
    status, _, err = run(capsys, table(tmp_path), "--write")
    assert (status, err) == (0, f"wrote {path}\n")
    after = json.loads(path.read_text())
    entry = after["constants"]["late_share"]
    assert entry["value"] == pytest.approx(0.8, rel=0.005)
    assert 0 < entry["spread"] < 0.05
    assert entry["from"].startswith("fit")
    assert "bound" not in entry
    said = after["fitted"]["simple"]
    assert said["command"] == "validate fit --only simple"
    assert said["rows"] == {f"{tmp_path.name}/ops.csv": 9}
    assert said["devices"] == sorted(DEVICES)
    # Nothing else changes, and each constant stays on one line.
    for name, other in before["constants"].items():
        assert after["constants"][name] == other or name == "late_share"
    assert len(path.read_text().splitlines()) == len(text.splitlines()) + ("fitted" not in before)
    for other in (copied / "simulator").glob("*.json"):
        assert other == path or other.read_text() == (PROJECT / "simulator" / "constants" / other.name).read_text()


@pytest.mark.usefixtures("simple")
def test_a_constant_at_its_bound_is_said_to_be(tmp_path, capsys, copied, monkeypatch) -> None:
    narrow = FitStage({"memory.late_share": Prior(0.9, 1.0, 0.85, 1.5)}, ("device",), 50)
    monkeypatch.setattr(command, "_BY_NAME", {"simple": replace(SIMPLE, stages=(narrow,))})
    status, out, _ = run(capsys, table(tmp_path), "--write", "--quiet")
    assert status == 0
    assert "at its bound" in out
    assert json.loads((copied / "simulator" / "memory.json").read_text())["constants"]["late_share"]["bound"] is True
    # The next fit finds it within its bounds.
    monkeypatch.setattr(command, "_BY_NAME", {"simple": SIMPLE})
    assert run(capsys, table(tmp_path), "--write", "--quiet")[0] == 0
    assert "bound" not in json.loads((copied / "simulator" / "memory.json").read_text())["constants"]["late_share"]


def test_constants_of_clocks_are_written_where_they_are_kept(copied) -> None:
    assert constants_path("timing") == copied / "validate" / "timing.json"
    assert constants_path("gemm") == copied / "simulator" / "gemm.json"
