"""Calibrating on a folder recovers the errors put in, and never fits to the rows that judge it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import Session, load_machine
from simulator.console.run import run_app
from simulator.constants import DEFAULT
from simulator.devices import KernelCost
from simulator.devices.calibration_file import load_calibration
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.places import Places
from simulator.plan.plan import PlanBuilder
from simulator.questions.calibration import Calibration
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.launch import DeviceWork, Launch
from simulator.training.worker import Worker
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on
from tests.measured_folders import DEVICE, PART, TOPOLOGY, constant, operators, scattered, steps, timed, write
from validate.cli import app
from validate.compare.calibrating import FolderDevice, host_seconds, judge_by, judge_within, question, scale_of_steps
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.score.scoring import Scoring, ScoringOptions

pytestmark = pytest.mark.slow

pytest.importorskip("scipy")
TRUE = Calibration(0.85, 0.9, 1.0, {"gemm": 1.0, "convolution": 1.1})


def launches(forward_us=9.0, backward_us=7.0):
    def row(metric, micros):
        return {"device": DEVICE, "metric": metric, "mode": "torch eager", "time_s": micros * 1e-6, "trust": "A"}

    plain = ("relu", "gelu", "softmax", "dropout", "max_pool", "layer_norm")
    found = [row(f"host time of {name}, forward, recorded", forward_us) for name in plain]
    found += [row(f"host time of {name}, forward and backward", forward_us + backward_us) for name in plain[:-1]]
    found.append(row("host time of layer_norm, forward and backward", forward_us + backward_us + 6.0))
    found += [
        row("host time of linear, forward, recorded", forward_us + 4.0),
        row("host time of conv2d, forward, recorded", forward_us + 12.0),
        row("host time of batch_norm, forward, recorded", forward_us + 11.0),
        row("host time of a step of SGD with momentum, foreach", 64 * 2.5),
        row("host time of a graph of 1 kernel", 6.0),
    ]
    return found


def rows_of(folder):
    return list(compared(read_folder(str(folder)), ComparisonOptions(topology=TOPOLOGY)).rows)


def bench():
    return FolderDevice(PART, Scoring(ScoringOptions(topology=TOPOLOGY, devices=(f"{DEVICE}={PART}",))).names)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    tables = {
        "ops.csv": timed("ops.csv", operators(80), scattered(0.03), calibration=TRUE),
        "training.csv": timed("training.csv", steps(), scattered(0.02), calibration=TRUE),
        "launch.csv": launches(),
    }
    return write(tmp_path_factory.mktemp("measured"), tables)


def test_constants_put_in_are_found(measured):
    fitted = bench().fit([row for row in rows_of(measured) if row.kind == "operators"])
    assert fitted.calibration.compute == pytest.approx(TRUE.compute, rel=0.05)
    assert fitted.calibration.bandwidth == pytest.approx(TRUE.bandwidth, rel=0.05)
    assert len(fitted.rows) == 80


def test_the_host_s_constants_are_those_of_launches(measured):
    found = host_seconds(read_folder(str(measured)))
    assert found == pytest.approx(host_seconds_put_in())


def test_a_folder_without_launches_says_nothing_of_the_host(tmp_path):
    ops = timed("ops.csv", operators(5), constant(1.0))
    assert host_seconds(read_folder(str(write(tmp_path, {"ops.csv": ops})))) == {}


def issues(*times):
    return [
        Launch("x", "forward", host_s, DeviceWork(("gemm",), (KernelCost(device_s, "compute", 0, 0),), device_s))
        for host_s, device_s in times
    ]


def step_time(steps_of, scale=1.0):
    """Return the seconds of a step whose host time is multiplied by *scale*: the host leads, the device follows."""
    host_s = device_s = 0.0
    for issue in steps_of:
        host_s += issue.host_s * scale
        device_s = max(device_s, host_s) + issue.device_s
    return max(host_s, device_s)


def played(steps_of, scale=1.0):
    """Return the same time as the engine computes it from a worker's plan."""
    machine = load_machine("1x-t4")
    builder = PlanBuilder()
    worker = Worker(builder, machine, Places(machine).find(None))
    for issue in steps_of:
        worker.issue(replace(issue, host_s=scale * issue.host_s))
    return execute(machine, builder.build()).end_s


def test_a_step_is_the_longer_of_its_two_streams():
    for time_of in (step_time, played):
        assert time_of(issues((1.0, 3.0), (1.0, 3.0))) == 7.0
        assert time_of(issues((3.0, 1.0), (3.0, 1.0))) == 7.0
        assert time_of(issues((3.0, 1.0), (3.0, 1.0)), 0.1) == pytest.approx(2.3)
        assert time_of([]) == 0.0


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 4.0])
def test_a_session_slows_the_host_of_a_step_and_nothing_else(scale):
    question = StepQuestion(where=Where("1x-t4"), workload="resnet18", batch=4)
    session = Session()
    issued = launches_of(session.device(question.where), session.network(question), question.options)
    assert session.slowed_host_s(question, scale) == pytest.approx(step_time(issued, scale), rel=1e-12)
    assert session.slowed_host_s(question, 1.0) == session.time_s(question)


@given(st.floats(0.2, 5.0))
def test_the_scale_of_a_host_is_found(scale):
    steps_of = [issues(*[(20e-6, 2e-6)] * n) for n in (10, 40, 100, 30, 60, 80)]
    found = scale_of_steps([(partial(step_time, step), step_time(step, scale)) for step in steps_of])
    assert found == pytest.approx(scale, rel=0.04)  # shrunk slightly towards 1


def test_steps_that_do_not_wait_for_the_host_say_nothing_of_it():
    busy = [issues(*[(1e-6, 2e-3)] * n) for n in (10, 20)]
    assert scale_of_steps([(partial(step_time, step), step_time(step)) for step in busy]) == pytest.approx(1, abs=0.02)


def test_calibrating_a_folder_writes_what_simulate_reads(measured, tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    assert run_app(app, "validate", ["calibrate", str(measured), "--out", str(file)]) == 0
    said = capsys.readouterr().err
    assert "80 operators" in said
    found = load_calibration(file)[PART]
    scale = found.host["forward_s"] / 9e-6
    assert found.host["backward_s"] == pytest.approx(7e-6 * scale, rel=1e-3)
    assert found.dispatch == 1.0
    text = file.read_text()
    assert yaml.safe_load(text)["devices"][PART]["points"]["count"]["launches"] == 8
    assert run_app(app, "validate", ["calibrate", str(measured), "--out", str(file), "-q"]) == 0
    assert file.read_text() == text


def test_steps_use_the_host_of_the_calibration(measured):
    step = [row for row in rows_of(measured) if row.kind == "training"][:1]
    plain = bench().again(step, Calibration())[0].predicted_s
    slow = Calibration(host={name: 20 * getattr(DEFAULT["dispatch"], name) for name in ("forward_s", "backward_s")})
    assert bench().again(step, slow)[0].predicted_s > 2 * plain


def test_a_host_of_half_the_speed_in_steps_is_found_and_predicted(tmp_path):
    """Launch rows suggest one host time and steps twice it; the fit predicts the steps, which all wait for the host."""
    twice = {name: value * 2 for name, value in host_seconds_put_in().items()}
    rows = steps(("resnet18", "resnet50", "densenet121", "mobilenet-v2"), batch=1)
    tables = {
        "training.csv": timed("training.csv", rows, constant(1.0), calibration=Calibration(host=twice)),
        "launch.csv": launches(),
    }
    folder = read_folder(str(write(tmp_path, tables)))
    found = [row for row in rows_of(tmp_path) if row.kind == "training"]
    fitted = bench().fit([], folder, found)
    assert fitted.host_scale == pytest.approx(2.0, rel=0.05)
    errors = [abs(row.error) for row in bench().again(found, fitted.calibration)]
    assert max(errors) < 0.04


def host_seconds_put_in():
    micros = {"forward_s": 9.0, "backward_s": 7.0, "product_s": 4.0, "convolution_s": 12.0, "batch_norm_s": 11.0,
              "gradient_s": 3.0, "update_s": 2.5, "graph_launch_s": 6.0}  # fmt: skip
    return {name: value * 1e-6 for name, value in micros.items()}


def test_calibrations_mend_what_they_have_not_seen(measured):
    rows = rows_of(measured)
    judged = {item.judged: item for item in judge_within(bench(), read_folder(str(measured)), rows, 0.4)}
    for name in ("other operators", "operators of shapes that it has not seen"):
        assert judged[name].after.median < min(0.04, 0.7 * judged[name].before.median)
    assert judged["each operator by a fit to the others"].after.scored == 80
    assert judged["steps"].after.median < judged["steps"].before.median


def test_what_is_judged_has_no_say_in_what_is_fitted(measured, monkeypatch):
    """Falsify every row used for judging: the fitted constants stay the same to the bit."""
    rows = [row for row in rows_of(measured) if row.kind == "operators"]
    seen = []
    original = FolderDevice.fit

    def spy(self, operators, folder=None, steps=()):
        fitted = original(self, operators, folder, steps)
        seen.append(({(row.table, row.line) for row in operators}, fitted.calibration))
        return fitted

    monkeypatch.setattr(FolderDevice, "fit", spy)
    monkeypatch.setattr("validate.compare.calibrating._other_operators", lambda *_: [])  # the first fit is looked at
    folder = read_folder(str(measured))
    judge_within(bench(), folder, rows, 0.3)
    chosen, before = seen[0]

    def wrong(row):
        return replace(row, time_s=row.time_s * 7)

    false = [row if (row.table, row.line) in chosen else wrong(row) for row in rows]
    seen.clear()
    judge_within(bench(), folder, list(reversed(false)), 0.3)
    assert seen[0] == (chosen, before)


def test_shapes_and_operators_judged_are_not_among_those_fitted_to(measured, monkeypatch):
    rows = [row for row in rows_of(measured) if row.kind == "operators"]
    pairs = []
    again = FolderDevice.again
    fitted = bench().fit(rows[:10])  # which rows are fitted to is looked at, not what is found

    def spy_fit(self, operators, folder=None, steps=()):
        pairs.append([list(operators), None])
        return fitted

    def spy_again(self, judged, calibration):
        pairs[-1][1] = list(judged)
        return again(self, judged, calibration)

    monkeypatch.setattr(FolderDevice, "fit", spy_fit)
    monkeypatch.setattr(FolderDevice, "again", spy_again)
    judge_within(bench(), read_folder(str(measured)), rows, 0.3)

    def shape(row):
        return tuple(item for item in row.key if item[0] not in ("phase", "dtype", "variant", "cache", "device"))

    assert not {question(r) for r in pairs[0][0]} & {question(r) for r in pairs[0][1]}
    assert not {shape(r) for r in pairs[1][0]} & {shape(r) for r in pairs[1][1]}
    for others, judged in pairs[2:]:
        assert not {r.cells["op"] for r in others} & {r.cells["op"] for r in judged}


def test_judging_by_another_folder_leaves_out_what_it_asked(measured, tmp_path, capsys):
    rows = rows_of(measured)
    ops = [row for row in rows if row.kind == "operators"]
    short = ops[:30]
    fitted = bench().fit(short)
    again = [replace(row, table="ops.csv", record=replace(row.record, line=row.line + 1000)) for row in short]
    judged = judge_by(bench(), fitted, short, [*again, *ops])
    assert judged[0].judged == "operators that it did not ask"
    assert judged[0].after.scored == len(ops) - 30
    assert judged[0].after.median < judged[0].before.median


def test_how_a_row_is_run_is_no_new_question(measured):
    row = next(row for row in rows_of(measured) if row.kind == "operators")
    cold = replace(row, key=tuple((k, "cold" if k == "cache" else v) for k, v in row.key))
    other = replace(row, key=tuple((k, "999" if k in ("m", "c_in", "rows", "hidden") else v) for k, v in row.key))
    assert question(row) == question(cold) != question(other)


def test_the_command_judges_a_long_folder_by_a_short_one(measured, tmp_path, capsys):
    few = timed("ops.csv", operators(30), scattered(0.03, 1.0), seed=2, calibration=TRUE)
    short = write(tmp_path, {"ops.csv": few, "launch.csv": launches()}, seconds=110.0)
    status = run_app(app, "validate", ["compare", str(measured), "--calibrated-by", str(short), "--json"])
    assert status == 0
    found = json.loads(capsys.readouterr().out)
    assert any("was measured in 110 s" in note for note in found["calibration_notes"])
    first = found["calibration"][0]
    assert first["after"]["scored"] == 50
    assert first["after"]["median"] < first["before"]["median"]


def test_a_time_to_calibrate_in_is_a_share_of_the_run(measured, monkeypatch, capsys):
    monkeypatch.setattr("validate.compare.calibrating._other_operators", lambda *_: [])  # each a fit of its own
    status = run_app(app, "validate", ["compare", str(measured), "--calibrate", "120s", "--json"])
    assert status == 0
    found = json.loads(capsys.readouterr().out)["calibration"]
    assert found[0]["points"] == 16  # a fifth of 80 operators: the run took 600 s


def test_too_few_rows_are_one_line(tmp_path, capsys):
    ops = timed("ops.csv", operators(3), constant(1.0))
    folder = write(tmp_path, {"ops.csv": ops})
    assert run_app(app, "validate", ["calibrate", str(folder)]) == 2
    assert "too few rows to calibrate on: 3 operators" in capsys.readouterr().err


def test_host_constants_of_a_file_are_checked(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("schema_version: 1\ndevices:\n  t4: {host: {forwrd_s: 1e-5}}\n")
    with pytest.raises(InputError, match=r"c\.yaml:3:\d+: there is no 'forwrd_s'; did you mean 'forward_s'"):
        load_calibration(file)
    file.write_text("schema_version: 1\ndevices:\n  t4: {host: {forward_s: 12.0}}\n")
    with pytest.raises(InputError, match=r"c\.yaml:3:"):
        load_calibration(file)
    file.write_text("schema_version: 1\ndevices:\n  t4: {host: {forward_s: 12.0e-6}}\n")
    assert load_calibration(file)["t4"].host == {"forward_s": 12e-6}


def test_a_captured_step_takes_the_calibrated_launch_longer():
    machine, network = load_machine("1x-t4"), build_network("alexnet", batch=8, training=True)
    options = StepOptions(cuda_graph=True)

    def step_s(**host):
        calibrations = {"t4": Calibration(host=host)}
        return alone_on(machine, network, options, calibrations=calibrations).step_time_s

    assert step_s(graph_launch_s=5e-3) - step_s(graph_launch_s=1e-3) == pytest.approx(4e-3, rel=1e-9)
    assert step_s() == pytest.approx(step_s(graph_launch_s=DEFAULT["dispatch"].graph_launch_s), rel=1e-12)
