"""Calibration files: their YAML, and the errors for mistakes."""

import pytest

from simulator.api.session import Session
from simulator.constants import DEFAULT
from simulator.devices.calibration_file import load_calibration, read_calibration
from simulator.errors import InputError
from simulator.questions.calibration import ISOLATED, Calibration
from validate.cli import main
from validate.kinds.timing import TimingCosts

GOOD = """\
schema_version: 1
devices:
  v100-pcie-32gb:
    compute: 0.97
    dispatch: 1.1
    by_class: {gemm: 1.05}
    spread: {compute: 0.02, by_class.gemm: 0.1}
    points: {table: "t.csv", count: {linear: 3}, asked: ["00ff"]}
  t4: {}
"""


@pytest.fixture
def write(tmp_path):
    def writer(text):
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return path

    return writer


def test_factors_left_out_are_one(write):
    found = load_calibration(write(GOOD))
    assert found == {
        "v100-pcie-32gb": Calibration(compute=0.97, bandwidth=1.0, dispatch=1.1, by_class={"gemm": 1.05}),
        "t4": Calibration(),
    }


def test_classes_keep_the_data_sheet(write):
    found = load_calibration(write(GOOD.replace("by_class: {gemm: 1.05}", "by_data_sheet: [rowwise, gemm]")))
    assert found["v100-pcie-32gb"] == Calibration(0.97, dispatch=1.1, by_data_sheet=("gemm", "rowwise"))


def test_names_of_earlier_versions_are_read(write):
    old, new = "isolated_convolution_s: 0.0003", "searched_convolution_s: 0.0004"
    for host, value in ((old, 0.0003), (f"{old}, {new}", 0.0004), (f"{new}, {old}", 0.0004)):
        found = load_calibration(write(GOOD.replace("by_class: {gemm: 1.05}", f"host: {{{host}}}")))
        assert found["v100-pcie-32gb"].host == {"searched_convolution_s": value}


def test_times_that_only_measurements_need_are_those_of_clocks():
    assert set(ISOLATED) <= set(vars(DEFAULT(TimingCosts)))


def test_points_are_kept(write):
    points = read_calibration(write(GOOD)).devices["v100-pcie-32gb"].points
    assert (points.count, points.asked) == ({"linear": 3}, ("00ff",))


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("compute:", "computed:", "4:5", "did you mean 'compute'"),
        ("0.97", "0", "4:14", "greater than 0.02"),
        ("0.97", "-1", "4:14", "greater than 0.02"),
        ("0.97", ".inf", "4:14", ""),
        ("0.97", ".nan", "4:14", ""),
        ("0.97", "fast", "4:14", "number"),
        ("gemm: 1.05", "gem: 1.05", "6:16", "there is no 'gem'; did you mean 'gemm'?"),
        ("by_class: {gemm: 1.05}", "by_data_sheet: [gem]", "6:21", "there is no 'gem'; did you mean 'gemm'?"),
        ("compute: 0.02", "by_class.streamin: 0.02", "7:14", "did you mean 'by_class.streaming'?"),
        ("schema_version: 1", "schema_version: 2", "1:17", "1"),
        ("devices:", "device:", "1:1", "the key 'devices' is missing"),
    ],
)
def test_mistakes_have_their_place(write, old, new, place, words):
    path = write(GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    first = str(caught.value.faults[0])
    assert first.startswith(f"{path}:{place}: ")
    assert words in str(caught.value)


def test_all_mistakes_at_once(write):
    with pytest.raises(InputError) as caught:
        load_calibration(write(GOOD.replace("gemm: 1.05", "gem: 1.05")), ["t4"])
    assert len(caught.value.faults) == 2


def test_a_device_that_is_not_there(write):
    path = write(GOOD)
    with pytest.raises(InputError, match=r"c\.yaml:3:3: there is no device 'v100-pcie-32gb' here; did you mean"):
        load_calibration(path, ["v100-sxm2-32gb", "t4"])
    assert set(load_calibration(path, ["v100-pcie-32gb", "t4"])) == {"v100-pcie-32gb", "t4"}


@pytest.mark.parametrize(("text", "words"), [("", "a calibration needs"), ("- 1\n", "mapping"), ("a: [\n", "YAML")])
def test_no_calibration_at_all(write, text, words):
    with pytest.raises(InputError, match=words):
        load_calibration(write(text))
    with pytest.raises(InputError, match="cannot be read"):
        load_calibration("nowhere.yaml")


def test_measurements_that_are_not_there(tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        main(["calibrate", str(tmp_path / "measured")])
    assert done.value.code == 2
    assert f"{tmp_path}/measured: is not there; a folder" in capsys.readouterr().err


def test_a_session_is_not_of_a_machine():
    with pytest.raises(TypeError, match="a machine belongs to a question: Where"):
        Session("p3.16xlarge")
