"""Measured kernels that correct kernels near them: closed forms, their file, and the commands that use it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import permutations

import pytest
from click.testing import CliRunner

from simulator.api import Session
from simulator.cli import run
from simulator.devices.calibration_file import load_calibration
from simulator.devices.neighbours import correction, kernel_axes, known_share, left_out_errors, variety_of
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError
from simulator.questions.calibration import Calibration, Neighbourhood
from simulator.questions.single import OperatorQuestion
from simulator.questions.where import Where
from simulator.workload.kernels import Gemm, Kernel, Rowwise, Streaming
from simulator.workload.operators import Conv2d, Convolution, FusedAttention, Gather, Pooling, Recurrence, Softmax
from validate.cli import app

KERNEL = Rowwise("softmax", 4096, 1024, "fp32")
KERNELS: tuple[Kernel, ...] = (
    KERNEL,
    Gemm(512, 1024, 768, "fp32", layout="NT"),
    Convolution(Conv2d(8, 64, 128, 56, 56, 3, 3), "bwd_data", "fp32"),
    Recurrence("lstm", 32, 25, 512, 512, "fwd", "fp32"),
    Streaming("add", 1 << 20, 1 << 23, 1 << 22),
    Gather("fwd", 32768, 768, 0, "fp32"),
    Streaming("fill", 0, 0, 0),
    Pooling("max", "fwd", 1 << 20, 1 << 18, 9, "fp32"),
    FusedAttention("fwd", 4, 12, 12, 512, 512, 64, True, "fp16"),
)


def around(*measured: tuple[Kernel, float], near: float = 1.0, strength: float = 0.75, noise: float = 0.1):
    rows = tuple((kernel_axes(kernel), ratio) for kernel, ratio in measured)
    return Neighbourhood(variety_of(measured[0][0]), near, strength, noise, rows)


def in_order(rows) -> Neighbourhood:
    return around(*rows)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_the_same_kernel_is_corrected_by_its_own_error(kernel: Kernel) -> None:
    found = around((kernel, 1.3), strength=0.75, noise=0.25)
    assert correction(found, kernel) == pytest.approx(1.3 ** (0.75 / 1.25), rel=1e-12)
    assert known_share(found, kernel) == pytest.approx(0.75 / 1.25, rel=1e-12)


def test_a_kernel_far_from_all_measured_ones_keeps_its_time() -> None:
    found = around((KERNEL, 1.3), near=0.01)
    far = replace(KERNEL, cols=2)
    assert correction(found, far) == 1.0
    assert known_share(found, far) == 0.0


def test_errors_correlate_less_the_farther_kernels_are_apart() -> None:
    # An octave of columns lies 0.8 apart (Rowwise.axes), so the correlation is exp(-0.8 / near).
    found = around((KERNEL, 1.3), near=2.0, strength=1.0, noise=0.1)
    octave = math.log(correction(found, replace(KERNEL, cols=2048)))
    assert octave == pytest.approx(math.log(1.3) * math.exp(-0.8 / 2.0) / 1.1, rel=1e-12)
    assert octave == pytest.approx(math.log(correction(found, replace(KERNEL, cols=512))), rel=1e-12)


def test_halfway_between_two_kernels_both_count_alike() -> None:
    wide, narrow = replace(KERNEL, cols=4096), replace(KERNEL, cols=256)
    assert correction(around((wide, 1.2), (narrow, 1 / 1.2)), KERNEL) == pytest.approx(1.0, abs=1e-12)
    one = correction(around((wide, 1.2), (narrow, 1.0)), KERNEL)
    assert one == pytest.approx(correction(around((wide, 1.0), (narrow, 1.2)), KERNEL), rel=1e-12)


def test_two_kernels_by_the_inverse_of_their_matrix() -> None:
    other = replace(KERNEL, cols=2048)
    c, noise, strength = math.exp(-0.8), 0.3, 0.5
    y = math.log(1.1), math.log(0.8)
    # (C + noise I)^-1 of two by two, times the correlations 1 and c of the first kernel
    determinant = (1 + noise) ** 2 - c * c
    weights = ((1 + noise) - c * c) / determinant, (c * (1 + noise) - c) / determinant
    expected = math.exp(strength * (weights[0] * y[0] + weights[1] * y[1]))
    found = around((KERNEL, 1.1), (other, 0.8), noise=noise, strength=strength)
    assert correction(found, KERNEL) == pytest.approx(expected, rel=1e-12)


def test_the_order_of_rows_changes_no_bit() -> None:
    rows = [(replace(KERNEL, rows=4000 + 77 * i, cols=900 + 61 * i * i), 1.0 + 0.07 * i) for i in range(1, 6)]
    for asked in (replace(KERNEL, cols=cols) for cols in range(700, 2700, 100)):
        assert (
            len({(correction(each, asked), known_share(each, asked)) for each in map(in_order, permutations(rows))})
            == 1
        )


def test_what_is_left_out_is_what_the_others_say() -> None:
    rows = [(replace(KERNEL, rows=2**i, cols=64 * i), 1.0 + 0.05 * (-1) ** i * i) for i in range(1, 8)]
    whole = around(*rows, strength=1.0)
    for i, value in enumerate(left_out_errors(whole)):
        others = around(*rows[:i], *rows[i + 1 :], strength=1.0)
        assert value == pytest.approx(math.log(correction(others, rows[i][0])), abs=1e-12)


def test_other_varieties_are_not_corrected() -> None:
    gpu = Session({"t4": Calibration(neighbours=(around((KERNEL, 1.5), strength=1.0, noise=0.001),))})
    bare = Session()
    device, plain = (each.device(Where("t4"), "t4") for each in (gpu, bare))
    assert kernel_cost(device, KERNEL).time_s / kernel_cost(plain, KERNEL).time_s == pytest.approx(1.5, rel=1e-3)
    for cold in (0.3, 1.0):
        slower = kernel_cost(device, KERNEL, cold).time_s / kernel_cost(plain, KERNEL, cold).time_s
        assert slower == pytest.approx(1.5, rel=1e-3)
    for other in (replace(KERNEL, precision="fp16"), replace(KERNEL, kind="layer_norm"), *KERNELS[1:]):
        assert kernel_cost(device, other) == kernel_cost(plain, other)


def test_factors_and_neighbours_multiply() -> None:
    near = (around((KERNEL, 1.5), strength=1.0, noise=0.001),)
    factors = Calibration(by_class={"rowwise": 1.2})
    times = [
        kernel_cost(Session({"t4": each}).device(Where("t4"), "t4"), KERNEL).time_s
        for each in (Calibration(), factors, replace(factors, neighbours=near))
    ]
    assert times[1] / times[0] == pytest.approx(1.2)
    assert times[2] / times[1] == pytest.approx(1.5, rel=1e-3)


# -- the file --------------------------------------------------------------------------

GOOD = """\
schema_version: 1
devices:
  t4:
    neighbours:
      - of: rowwise fp32 softmax
        near: 1.0
        strength: 0.75
        noise: 0.1
        measured:
          - {rows: 4096, cols: 1024, ratio: 1.3}
"""


def test_a_file_gives_its_neighbours(tmp_path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD)
    assert load_calibration(path)["t4"] == Calibration(neighbours=(around((KERNEL, 1.3)),))


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("of: rowwise", "of: rowise", "5:13", "there is no 'rowise'; did you mean 'rowwise'?"),
        ("near: 1.0", "near: 0", "6:15", "0.01"),
        ("near: 1.0", "near: .nan", "6:15", ""),
        ("strength: 0.75", "strength: 1.5", "7:19", "1"),
        ("noise: 0.1", "noise: 0", "8:16", "0.001"),
        ("noise: 0.1", "nois: 0.1", "", "did you mean 'noise'"),
        ("rows: 4096", "row: 4096", "10:13", "a rowwise has rows, cols, ratio; 'row' is not one of them"),
        ("rows: 4096, ", "", "10:13", "a rowwise has rows, cols, ratio; 'rows' is missing"),
        ("4096", "0", "10:13", "rows must be from 0.001 to 1e+18; got 0"),
        ("4096", "-4", "10:13", "rows must be from 0.001 to 1e+18; got -4"),
        ("4096", ".inf", "10:", ""),
        ("4096", "true", "10:", ""),
        ("4096", "many", "10:13", "rows must be a number; got 'many'"),
        ("1.3", "0.001", "10:13", "ratio must be from 0.02 to 50; got 0.001"),
        ("1.3", "[1]", "10:", ""),
        ("          - {rows: 4096, cols: 1024, ratio: 1.3}", "          []", "", ""),
        (
            "          - {rows: 4096, cols: 1024, ratio: 1.3}",
            "\n".join(["          - {rows: 1, cols: 1, ratio: 1}"] * 201),
            "",
            "200",
        ),
    ],
)
def test_mistakes_have_their_place(tmp_path, old, new, place, words) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    assert str(caught.value.faults[0]).startswith(f"{path}:{place}")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value.faults[0])


def test_a_variety_stands_once(tmp_path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD + GOOD[GOOD.index("      - of") :])
    with pytest.raises(InputError, match="'rowwise fp32 softmax' is there twice"):
        load_calibration(path)


# -- the commands ----------------------------------------------------------------------


def validate(*words: str) -> None:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output


def table(tmp_path, slower) -> str:
    """Write a table of products on a T4 whose times are those predicted times slower(m)."""
    session = Session()
    lines = ["device,op,dtype,m,n,k,time_s"]
    for m in (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192):
        for n in (1024, 2048, 4096):
            kernel = Gemm(m, n, 2048, "fp32")
            time_s = kernel_cost(session.device(Where("t4"), "t4"), kernel).time_s
            lines.append(f"t4,matmul,fp32,{m},{n},2048,{time_s * slower(m)!r}")
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def neighbours_in(path) -> str:
    return path.read_text().partition("neighbours:")[2].partition("spread:")[0]


def varying(m: int) -> float:
    return 1.25 if m >= 2048 else 0.85


@pytest.mark.slow
def test_calibrate_writes_neighbours_that_score_and_steps_use(tmp_path, capsys) -> None:
    pytest.importorskip("scipy")
    file, out = table(tmp_path, varying), str(tmp_path / "mine.yaml")
    validate("calibrate", "--device", "t4", file, "--out", out)
    text = (tmp_path / "mine.yaml").read_text()
    assert "- of: gemm fp32" in text
    again = str(tmp_path / "again.yaml")
    validate("calibrate", "--device", "t4", file, "--out", again)
    assert (tmp_path / "again.yaml").read_text() == text
    (known,) = load_calibration(out)["t4"].neighbours
    assert known.strength > 0.0
    asked = Gemm(5120, 2048, 2048, "fp32")
    bare, calibrated = Session(), Session(load_calibration(out))
    before, after = (kernel_cost(each.device(Where("t4"), "t4"), asked) for each in (bare, calibrated))
    assert abs(after.time_s / before.time_s / 1.25 - 1.0) < 0.05
    assert after.known > 0.3
    head, *lines = (tmp_path / "t.csv").read_text().splitlines()
    (tmp_path / "t.csv").write_text("\n".join([head, *reversed(lines)]) + "\n")
    validate("calibrate", "--device", "t4", file, "--out", again)
    assert neighbours_in(tmp_path / "again.yaml") == neighbours_in(tmp_path / "mine.yaml")  # whatever the order of rows
    capsys.readouterr()
    assert run(["--topology", "1x-t4", "--workload", "bert-base", "--batch", "2", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    words = ["--topology", "1x-t4", "--workload", "bert-base", "--batch", "2", "--json", "--calibration", out]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out) != plain


def test_errors_that_follow_no_shape_keep_no_neighbours(tmp_path) -> None:
    pytest.importorskip("scipy")
    file, out = table(tmp_path, lambda m: 1.0), tmp_path / "mine.yaml"
    head, *lines = (tmp_path / "t.csv").read_text().splitlines()
    rows = [(asked, float(time_s)) for asked, _, time_s in (line.rpartition(",") for line in lines)]
    # The sign of the error alternates from each shape to the next.
    mixed = [f"{asked},{time_s * (1.0 + 0.1 * (-1) ** i)!r}" for i, (asked, time_s) in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join([head, *mixed]) + "\n")
    validate("calibrate", "--device", "t4", file, "--out", str(out))
    assert "neighbours:" not in out.read_text()


def test_a_band_is_narrower_beside_measured_kernels() -> None:
    near = Session({"t4": Calibration(neighbours=(around((KERNEL, 1.1), strength=1.0),))})
    composed = [
        near.composed(OperatorQuestion(where=Where("t4"), operator=Softmax(rows, cols), precision="fp32", device="t4"))
        for rows, cols in ((4096, 1024), (4096, 2))
    ]
    beside, far = (each.parts[0].known for each in composed)
    assert beside == pytest.approx(1 / 1.1)
    assert far < 0.01


def test_simulate_starts_without_numpy() -> None:
    code = "import sys, simulator.cli, simulator.devices.neighbours; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
