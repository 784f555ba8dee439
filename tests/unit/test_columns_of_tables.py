"""The columns of measured tables: each that is read stands in docs/scoring.md, and means one thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.questions.single import OperatorQuestion
from simulator.workload.operators import MatMul
from simulator.workload.precision import PRECISIONS, precision_named
from validate.kinds import KINDS, OPERATORS
from validate.kinds.kind import Kind
from validate.tables.cells import NotScored
from validate.tables.names import DeviceNames, MachineNames, RowNames
from validate.tables.table import read_table

SCORING = (Path(__file__).resolve().parents[2] / "docs" / "scoring.md").read_text(encoding="utf-8")
SECTIONS = {"training": "steps", "launch": "launches", "storage": "disks"}  # others are called as their kind is


def named_in(text: str) -> set[str]:
    return {name.lower() for name in re.findall(r"`([A-Za-z_0-9]+)`", text)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_column_that_is_read_is_listed(kind: Kind) -> None:
    of_all = SCORING.partition("\n## ")[0]
    section = SCORING.partition(f"\n## Tables of {SECTIONS.get(kind.name, kind.name)}\n")[2].partition("\n## ")[0]
    assert section
    assert set(kind.columns) <= named_in(section) | (named_in(of_all) & {"trust", "note", "dataset", "source", "dtype"})


def operator_of(**cells: str) -> OperatorQuestion:
    """Return the question of a row of operators."""
    known = {"device": "v100-sxm2-16gb", "op": "matmul", "dtype": "fp16", "time_s": "1", **cells}
    text = ",".join(known) + "\n" + ",".join(known.values()) + "\n"
    table = read_table(text.encode(), "ops.csv", OPERATORS.needed, OPERATORS.columns, OPERATORS.name)
    (row,) = table.rows
    names = RowNames(MachineNames(None, {}), DeviceNames(()))
    question = OPERATORS.read(lambda column: table.cell(row, column), names).question
    assert isinstance(question, OperatorQuestion)
    return question


def test_a_product_means_the_same_with_and_without_a_variant() -> None:
    sizes = {"m": "2145", "n": "4096", "k": "512"}
    assert operator_of(**sizes).operator == operator_of(**sizes, variant="NN").operator == MatMul(2145, 4096, 512)
    for variant in ("NT", "TN", "TT"):
        for op in ("matmul", "bmm"):
            found = operator_of(**sizes, op=op, variant=variant, order="row").operator
            assert found == MatMul(2145, 4096, 512, 1, variant)  # type: ignore[arg-type]
    by_columns = operator_of(**sizes, variant="TN", order="column").operator
    assert by_columns == MatMul(4096, 2145, 512, 1, "NT")
    assert by_columns != operator_of(**sizes, variant="TN", dataset="deepbench_ops").operator  # not completed


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"variant": "XX"}, "matmul 'XX' is not modelled; NN, NT, TN, TT, or empty"),
        ({"op": "linear", "variant": "NT"}, "linear 'NT' is not modelled; lm_head, or empty"),
        ({"op": "softmax", "variant": "causal"}, "softmax 'causal' is not modelled; empty"),
        ({"order": "blas"}, "no such order: blas; row or column"),
        ({"dtype": "fp7"}, "no such dtype: fp7; fp64, fp32"),
    ],
)
def test_what_a_column_cannot_mean_is_not_scored(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(NotScored, match=re.escape(reason)):
        operator_of(**{"m": "8", "n": "8", "k": "8", **cells})


@pytest.mark.parametrize(
    ("spelt", "meant"),
    [
        *((name, "fp8") for name in ("float8_e4m3fn", "float8_e5m2", "torch.float8_e4m3fnuz", "float8_e4m3b11fnuz")),
        *((name, "fp8") for name in ("F8E4M3FN", "f8E5M2FNUZ", "e4m3", "fp8_e5m2", "DType.kFloat8E4M3", "FP8")),
        *((name, "bf16") for name in ("bfloat16", "BF16", "torch.bfloat16", "kBFloat16")),
        *((name, "fp16") for name in ("float16", "half", "f16", "np.float16")),
        *((name, "fp32") for name in ("float32", "float", "F32", "torch.float32")),
        *((name, "fp64") for name in ("double", "float64", "f64")),
        *((name, "int8") for name in ("s8", "torch.int8", "INT8")),
        *((name, name) for name in PRECISIONS),
    ],
)
def test_each_librarys_name_of_a_format_is_known(spelt: str, meant: str) -> None:
    assert precision_named(spelt) == meant
    if meant not in ("nvfp4",):
        assert operator_of(m="8", n="8", k="8", dtype=spelt).precision == meant


@pytest.mark.parametrize("text", ["", "fp7", "e4m4", "amp-fp16", "master-fp8", "uint8", "bool", "torch"])
def test_other_words_name_no_format(text: str) -> None:
    assert precision_named(text) is None
