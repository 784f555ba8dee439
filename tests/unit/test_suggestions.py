"""Suggestions for names that are nearly right, or right in other words."""

import pytest

from simulator.errors import InputError, nearest
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.topology.catalogue import find_topology
from simulator.topology.load import load_topology, topology_from_text
from simulator.workload.parse import parse_workload
from simulator.workload.zoo.registry import find_entry

NAMES = ("dgx-h100", "8x-h100-pcie", "8x-v100", "ethernet-25g", "p4d.24xlarge", "resnet18", "resnet50", "cpu0")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("dgx-h10", "did you mean 'dgx-h100'?"),
        ("DGX-H100", "did you mean 'dgx-h100'?"),
        ("h100", "did you mean 'dgx-h100' or '8x-h100-pcie'?"),
        ("8xv100", "did you mean '8x-v100'?"),
        ("p4d", "did you mean 'p4d.24xlarge'?"),
        ("resnet", "did you mean 'resnet18' or 'resnet50'?"),
        ("cpu1", "did you mean 'cpu0'?"),
        ("zebra", "allowed: 8x-h100-pcie, 8x-v100, ... (8 in all)"),
        ("", "allowed: 8x-h100-pcie, 8x-v100, ... (8 in all)"),
    ],
)
def test_a_name_by_its_letters_or_its_words(found, said):
    assert nearest(found, NAMES, listed=2) == said


def test_a_word_of_some_names_is_no_slip_of_another():
    names = ["a10", "a100-pcie-40gb", "a100-sxm4-80gb"]
    assert nearest("a100", names) == "did you mean 'a100-pcie-40gb' or 'a100-sxm4-80gb'?"
    assert nearest("a11", names) == "did you mean 'a10'?"


def test_words_of_a_description_count():
    described = {"big": "8 x H100 SXM5 80 GB", "small": "4 x A100 80 GB"}
    assert nearest("8x-h100-sxm", described, words=described) == "did you mean 'big'?"
    # 8 does not match 80.
    assert nearest("8x-a100", described, words=described).startswith("allowed")


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ("p4d", "p4d.24xlarge"),
        ("8x-h100-sxm", "dgx-h100"),
        ("DGX-H100", "dgx-h100"),
        ("1x-a100", "1x-a100"),
        ("p3.16xlarg", "p3.16xlarge"),
    ],
)
def test_machines_by_meaning(found, meant):
    with pytest.raises(InputError, match=f"did you mean .*'{meant}"):
        find_topology(found)


def test_a_rate_is_a_fabric_of_ethernet():
    asked, part = (load_topology("p3.16xlarge", n_nodes=2, fabric=f) for f in ("25 Gbit/s", "ethernet-25g"))
    rates = [{wire.part.bandwidth for wire in each.wires if wire.part.of == "ethernet"} for each in (asked, part)]
    assert rates[0] == rates[1] == {25e9 / 8}


def test_a_file_takes_the_fabrics_of_the_command_line():
    said = "schema_version: 1\nname: c\ncluster: {node: p3.16xlarge, nodes: 2, fabric: 25Gbit/s}\n"
    asked = load_topology("p3.16xlarge", n_nodes=2, fabric="25Gbit/s")
    assert topology_from_text(said).wires == asked.wires


def test_an_alias_that_is_near_suggests_the_name_that_is_listed():
    """``gpt2-small`` is understood, but no list shows it."""
    for found, meant in (("gpt2-smal", "gpt2"), ("lenet-fashion", "lenet-d2l"), ("resnet-500", "resnet50")):
        with pytest.raises(InputError, match=f"did you mean '{meant}'"):
            find_entry(found)
        with pytest.raises(InputError, match=f"did you mean '{meant}'"):
            parse_workload(found)


@pytest.mark.parametrize(
    ("fabric", "told"),
    [
        ("25gbit-ethernet", "no network link is called"),
        ("25", "no network link is called"),
        ("25 GB", "did you mean 25 GB/s"),
        ("25GBps", "did you mean 25GB/s"),
        ("25gbit", "did you mean 25Gbit/s"),
    ],
)
def test_what_is_no_fabric_is_refused(fabric: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        load_topology(Where("p3.16xlarge").topology, n_nodes=2, fabric=fabric)


def test_a_file_of_the_other_suffix_is_suggested(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("schema_version: 1\n")
    with pytest.raises(InputError, match=r"^mine.yml: no such file; did you mean 'mine.yaml'\?$"):
        find_topology("mine.yml")


@pytest.mark.parametrize("item", ["launch:kernels", "access:stride", "copy:src"])
def test_a_name_without_its_value_is_not_suggested_in_its_own_place(item):
    word = item.partition(":")[2]
    with pytest.raises(InputError, match=f"{word} needs a value: {word}=") as refused:
        parse_question(item, Where("dgx-h100"))
    assert "did you mean" not in str(refused.value)
