"""A machine's report is checked against its description: wrong machines are refused, right ones are not."""

from __future__ import annotations

import json

import pytest

from simulator.console.run import run_app
from simulator.devices.gpu import MAKERS
from simulator.topology.catalogue import builtin_topologies, load_part, part_names
from tests.measured_folders import ENVIRONMENT, FACTS, constant, operators, timed, write
from validate.cli import app
from validate.compare.comparison import another_host, unlike_part
from validate.compare.folder import busy, load_notes

CPU = {"device": "amd-epyc", "cpu": {"logical_cores": 2, "torch_threads": 2}}


def gpu(name, count):
    return {"device": name.lower().replace(" ", "-"), "gpu": {"name": name, "sm_count": count}}


@pytest.mark.parametrize(
    ("part", "environment", "words"),
    [
        ("h200-sxm", CPU, "is a GPU, and the CPU amd-epyc"),
        ("epyc-7302", CPU, ""),
        ("h200-sxm", {}, ""),
        ("h200-sxm", ENVIRONMENT, ""),
        ("t4", ENVIRONMENT, "t4 has 40 multiprocessors, and the NVIDIA H200 that is measured has 132"),
        ("epyc-7302", ENVIRONMENT, "has no GPU"),
        ("h100-sxm5-80gb", gpu("NVIDIA H100 80GB HBM3", 132), ""),
        ("h100-pcie", gpu("NVIDIA H100 80GB HBM3", 132), "h100-pcie has 114 multiprocessors"),
        ("h100-sxm5-80gb", gpu("NVIDIA H200", 132), "is another GPU than the NVIDIA H200"),
        ("v100-sxm2-16gb", gpu("Tesla V100-PCIE-32GB", 80), "is another GPU than the Tesla V100-PCIE-32GB"),
        ("h100-sxm5-80gb", gpu("Some accelerator", 132), ""),
    ],
)
def test_what_contradicts(part, environment, words):
    said = unlike_part({part: load_part(part)}, environment)
    assert words in said
    assert bool(said) == bool(words)


def test_a_host_that_a_device_s_name_assumes_is_told_from_the_measured_one(tmp_path, capsys):
    guest = {**ENVIRONMENT, "cpu": {"logical_cores": 16}}
    said = another_host("dgx-h200", guest)
    assert said.startswith("dgx-h200 is assumed")
    assert "224 logical cores, this one 16" in said
    assert another_host("dgx-h200", {**guest, "cpu": {"logical_cores": 224}}) == ""
    assert another_host("dgx-h200", {}) == ""
    write(tmp_path, {"ops.csv": timed("ops.csv", operators(3), constant(1.0))}, environment=guest)
    for options, is_told in ([], True), (["--topology", "dgx-h200"], False):
        assert run_app(app, "validate", ["compare", str(tmp_path), *options]) == 0
        assert ("dgx-h200 is assumed from" in capsys.readouterr().out) == is_told


def test_a_part_of_the_user_s_own_has_a_name_of_their_own():
    own = {"my-board": load_part("h200-sxm")}
    assert unlike_part(own, ENVIRONMENT) == ""
    assert "my-board has 132" in unlike_part(own, gpu("NVIDIA H200", 60))


def test_of_a_machine_with_several_kinds_one_that_may_be_it_is_enough():
    both = {"t4": load_part("t4"), "h200-sxm": load_part("h200-sxm")}
    assert unlike_part(both, ENVIRONMENT) == ""


def test_no_built_in_part_contradicts_its_own_name_and_size():
    parts = {name: load_part(name) for name in part_names("gpu")}
    for name, part in parts.items():
        for known in (name, *part.aliases):
            if part.vendor in MAKERS:
                assert unlike_part({name: part}, gpu(known, part.sm_count)) == ""


@pytest.fixture(scope="module")
def on_a_cpu(tmp_path_factory):
    ops = [{**row, "device": "amd-epyc"} for row in timed("ops.csv", operators(8), constant(1.0))]
    return write(tmp_path_factory.mktemp("cpu"), {"ops.csv": ops}, environment=CPU, machine="amd-epyc")


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "FOLDER", "--topology", "dgx-h100"),
        ("compare", "FOLDER", "--device", "amd-epyc=h200-sxm"),
        ("calibrate", "FOLDER", "--device", "h200-sxm"),
        ("calibrate", "FOLDER", "--topology", "dgx-h100"),
        ("calibrate", "FOLDER/ops.csv", "--device", "h200-sxm"),
    ],
)
def test_a_cpu_is_no_gpu(on_a_cpu, capsys, arguments):
    given = [word.replace("FOLDER", str(on_a_cpu)) for word in arguments]
    assert run_app(app, "validate", given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "is a GPU, and the CPU amd-epyc is what is measured" in err
    assert err.count("\n") == 1


def test_a_folder_whose_own_topology_is_another_machine_s_is_refused(tmp_path, capsys):
    write(tmp_path, {"ops.csv": timed("ops.csv", operators(3), constant(1.0))})
    (tmp_path / "topology.yaml").write_text(builtin_topologies()["1x-t4"].read_text())
    assert run_app(app, "validate", ["compare", str(tmp_path)]) == 2
    assert "t4 has 40 multiprocessors" in capsys.readouterr().err
    assert run_app(app, "validate", ["compare", str(tmp_path), "--topology", "dgx-h200"]) == 0


@pytest.mark.parametrize(
    ("record", "count"),
    [
        ({"load_at_start": 0.3, "load_at_end": 2.2, "environment": CPU}, 0),  # at the end with its own two threads
        ({"load_at_start": 3.1, "load_at_end": 2.2, "environment": CPU}, 1),
        ({"load_at_start": 3.1, "load_at_end": 4.2, "environment": CPU}, 2),
        ({"load_at_start": 3.0, "environment": {"cpu": {"logical_cores": 16}, "gpu": FACTS}}, 0),
        (
            {"load_at_end": 9.0, "environment": {"cpu": {"logical_cores": 16}, "gpu": FACTS}},
            0,
        ),  # eight GPUs, a host each
        ({"load_at_end": 13.0, "environment": {"cpu": {"logical_cores": 16}, "gpu": FACTS}}, 1),
        ({"load_at_start": 3.1}, 0),
        ({"load_at_start": "much", "environment": CPU}, 0),
    ],
)
def test_other_work_is_what_a_run_did_not_do_itself(record, count):
    assert len(load_notes(record)) == count


def test_one_core_is_not_busy_with_the_start_of_a_program():
    assert not busy(0.45, 1)
    assert busy(0.6, 1)


def test_the_note_is_in_the_head_of_text_document_and_page(tmp_path, capsys):
    ops = timed("ops.csv", operators(6), constant(1.0))
    write(tmp_path, {"ops.csv": ops}, load_at_start=9.5)
    note = "something else ran when this began: 9.5 processes wanted one of 16 cores"
    assert run_app(app, "validate", ["compare", str(tmp_path)]) == 0
    head = capsys.readouterr().out.split("\n\n")[0]
    assert f"note: {note}" in " ".join(head.split())
    assert run_app(app, "validate", ["compare", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any(said.startswith(note) for said in document["notes"])
    assert run_app(app, "validate", ["compare", str(tmp_path), "--report", str(tmp_path / "r.html"), "-q"]) == 0
    assert note in (tmp_path / "r.html").read_text(encoding="utf-8").partition("error by class")[0]
