"""``validate fit`` of operators: what a fit has seen, what it is judged on, mistakes in one line."""

import json
from dataclasses import dataclass

import pytest

from simulator.console.run import run_app
from validate.cli import app
from validate.fit.operators import command, families

DEVICES = ("t4", "p4", "v100-pcie-32gb")
REAL = dict(families.FAMILIES)
HEADER = "device,op,variant,dtype,rows,cols,time_s,trust,dataset"


@dataclass(frozen=True)
class Rate:
    """Seconds an element."""

    element_s: float
    group: object = None


def rate(material, short):
    """The mean of measured seconds an element over the rows that it is given."""
    times = [row.time_s / row.query.operator.elements for row in material.fitted]
    return Rate(sum(times) / len(times))


@pytest.fixture(autouse=True)
def simple(monkeypatch):
    family = families.Family(
        "simple",
        ("elementwise",),
        "A",
        "C",
        lambda row: row.query.operator.function == "relu",
        lambda row: row.dataset != "elsewhere",
        rate,
        lambda constants: lambda row: constants.element_s * row.query.operator.elements,
    )
    known = {"simple": lambda: family}
    monkeypatch.setattr(families, "FAMILIES", known)
    monkeypatch.setattr(command, "FAMILIES", known)


def table(tmp_path, **factors):
    """Rows of each device that take 1 ps an element, times the device's factor."""
    path = tmp_path / "ops.csv"
    lines = [HEADER]
    for device in DEVICES:
        factor = factors.get(device.split("-")[0], 1.0)
        lines += [f"{device},elementwise,relu,fp32,{n},1000,{factor * n * 1e-9!r},A," for n in (100, 200, 300)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def run(capsys, *arguments):
    status = run_app(app, "validate", ["fit", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def document(capsys, *arguments):
    status, out, err = run(capsys, *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_constants_and_errors(tmp_path, capsys):
    found = document(capsys, table(tmp_path))
    assert found["families"] == {"simple": {"constants": {"element_s": "1e-12"}}}
    assert found["errors"]["elementwise, fitted"]["n"] == 9
    assert found["errors"]["elementwise, fitted"]["mean_ape"] == pytest.approx(0)
    status, out, _ = run(capsys, table(tmp_path))
    assert status == 0
    assert "  element_s = 1e-12" in out
    assert "elementwise, fitted" in out


def test_a_device_that_is_held_out_has_no_say(tmp_path, capsys):
    slow = document(capsys, table(tmp_path, t4=50.0), "--hold-out", "t4")
    assert slow["families"]["simple"]["constants"] == {"element_s": "1e-12"}
    assert slow["errors"]["elementwise, fitted"]["n"] == 6
    assert slow["errors"]["elementwise, held out"]["bias"] == pytest.approx(-0.98)
    assert slow["held_out"] == ["t4"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_each_device_is_judged_by_a_fit_to_the_others(tmp_path, capsys, monkeypatch, jobs):
    if jobs == "2":  # processes of their own do not see the family of this test
        monkeypatch.setattr(command, "ProcessPoolExecutor", Threads)
    errors = document(capsys, table(tmp_path, t4=4.0), "--leave-one-out", "--jobs", jobs)["errors"]
    assert errors["elementwise, t4"]["bias"] == pytest.approx(-0.75)
    # The others are predicted by fits that saw the slow one: 2.5 times too slow.
    assert errors["elementwise, p4"]["bias"] == pytest.approx(1.5)
    assert errors["elementwise, fitted without the device"]["n"] == 9
    assert errors["elementwise, fitted"]["n"] == 9


class Threads:
    """Stands for processes."""

    def __init__(self, workers):
        self.workers = workers

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def map(self, function, tasks):
        assert self.workers == 2
        return [function(task) for task in tasks]


def test_a_device_that_is_held_out_is_held_out_of_all_fits(tmp_path, capsys):
    errors = document(capsys, table(tmp_path, t4=4.0), "--leave-one-out", "--hold-out", "t4")["errors"]
    assert errors["elementwise, p4"]["bias"] == pytest.approx(0)
    assert errors["elementwise, held out"]["n"] == 3
    assert errors["elementwise, fitted without the device"]["n"] == 9


def test_rows_that_do_not_shape_the_constants_are_judged(tmp_path, capsys):
    file = table(tmp_path)
    with open(file, "a") as stream:
        stream.write("t4,elementwise,relu,fp32,100,1000,1e-6,A,elsewhere\nt4,elementwise,tanh,fp32,9,9,1,A,\n")
    found = document(capsys, file)
    assert found["families"]["simple"]["constants"] == {"element_s": "1e-12"}
    assert found["errors"]["elementwise, fitted"]["n"] == 10


def test_the_other_spelling(tmp_path, capsys):
    assert document(capsys, table(tmp_path), "--leave-one-device-out")["errors"]["elementwise, p4"]["n"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hold-out", "t44"], "--hold-out: the tables have no device 't44'; did you mean 't4'"),
        (["--only", "simpel"], "--only: no class 'simpel'; did you mean 'simple'"),
        (["--jobs", "none"], "--jobs: a number of processes such as 2 is needed; got 'none'"),
        (["--hold-out", "t4", "--hold-out", "p4", "--hold-out", "v100-pcie-32gb"], "no row is left to fit to"),
        (["-"], "tables are read more than once"),
        (["nope.csv"], "nope.csv: cannot be read"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, arguments, words):
    status, out, err = run(capsys, table(tmp_path), *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_tables_of_two_kinds_are_not_fitted_together(tmp_path, capsys):
    other = tmp_path / "c.csv"
    other.write_text("machine,n_gpus,collective,bytes,time_s\n4gpu-pcie,4,all_reduce,8,1\n")
    status, _, err = run(capsys, table(tmp_path), str(other))
    assert (status, "one after the other" in err) == (2, True)
    status, _, err = run(capsys, str(other), "--only", "simple")
    assert (status, "--only is for tables of operators" in err) == (2, True)


def test_families_of_the_models_can_be_made():
    pytest.importorskip("scipy", reason="fits need SciPy")
    for name, make in REAL.items():
        assert make().name == name


def test_attention_is_fitted_to_rows_that_count_and_judged_on_all(tmp_path):
    head = "device,op,variant,dtype,batch,m,n,k,heads,time_s,issue,software,trust"
    rows = [f"h200-sxm,attention,causal,bf16,256,{n},{n},128,32,1e-3,graph,sglang 0.5.9,A" for n in (512, 1024)]
    path = tmp_path / "ops.csv"
    path.write_text("\n".join([head, *rows, rows[0].replace("sglang 0.5.9", "vllm 0.14.0")]) + "\n")
    family = REAL["attention"]()
    material = families.read_material(family, [str(path)], "A")
    assert (len(material.fitted), len(material.judged)) == (2, 3)
    constants = family.fit(material, True)
    assert "products = " in "\n".join(families.constant_lines(constants))
    mine, other = (family.predictor(constants)(material.judged[at]) for at in (0, 2))
    assert mine == other > 0
