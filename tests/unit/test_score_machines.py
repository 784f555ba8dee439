"""Which topology a machine of a table is."""

import pytest

from simulator.errors import InputError
from simulator.topology.catalogue import builtin_topologies
from simulator.topology.yaml_source import read_yaml
from validate.score.machines import MachineBook
from validate.score.query import NotScored


def test_by_alias_and_by_name():
    book = MachineBook()
    assert book.topology("vtrain-8xv100-cube-mesh") == "p3.16xlarge"
    assert book.topology("p3.16xlarge") == "p3.16xlarge"
    assert book.topology("nowhere") is None


def test_no_two_builtin_topologies_share_an_alias():
    owners = {}
    for name, path in builtin_topologies().items():
        for alias in read_yaml(path, path.name).data.get("aliases") or ():
            assert owners.setdefault(alias, name) == name


def test_one_topology_for_all_and_one_for_a_name():
    book = MachineBook("4gpu-pcie", {"special": "p3.16xlarge"})
    assert book.topology("anything") == "4gpu-pcie"
    assert book.topology("special") == "p3.16xlarge"
    assert len(book.get("special", 1).machine.gpus) == 8


def test_each_machine_is_compiled_once():
    book = MachineBook()
    assert book.get("p3.16xlarge", 2) is book.get("vtrain-8xv100-cube-mesh", 2)
    assert book.get("p3.16xlarge", 1) is not book.get("p3.16xlarge", 2)


def test_what_cannot_be_composed_is_a_reason_each_time():
    book = MachineBook()
    for _ in range(2):
        with pytest.raises(NotScored, match="has no NIC"):
            book.get("4gpu-pcie", 2)


def test_mistakes_of_the_user_are_told_before_any_work():
    with pytest.raises(InputError, match=r"no such file and no built-in topology; did you mean 'p3\.16xlarge'"):
        MachineBook("p3.16xlarg")
    with pytest.raises(InputError, match="no such file"):
        MachineBook(named={"a": "nothing.yaml"})


def test_a_name_that_no_row_has_is_a_mistake():
    book = MachineBook(named={"dgxa10": "4gpu-pcie"})
    with pytest.raises(InputError, match="--machine: no row is of machine 'dgxa10'; did you mean 'dgxa100'"):
        book.check_used({"dgxa100", "other"})
    book.check_used({"dgxa10"})
