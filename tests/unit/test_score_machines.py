"""The topology of a machine named in a table."""

import pytest

from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.topology.catalogue import builtin_topologies
from simulator.topology.yaml_source import read_yaml
from validate.tables.cells import NotScored
from validate.tables.names import MachineNames, RowNames, check_used


def machine(book: MachineNames, name: str, n_nodes: int) -> Machine:
    return RowNames(machines=book).machine(book.where(name, n_nodes))


def test_by_alias_and_by_name():
    book = MachineNames()
    assert book.topology("vtrain-8xv100-cube-mesh") == "p3.16xlarge"
    assert book.topology("p3.16xlarge") == "p3.16xlarge"
    assert book.topology("nowhere") is None


def test_no_two_builtin_topologies_share_an_alias():
    owners = {}
    for name, path in builtin_topologies().items():
        for alias in read_yaml(path, path.name).data.get("aliases") or ():
            assert owners.setdefault(alias, name) == name


def test_one_topology_for_all_and_one_for_a_name():
    book = MachineNames("4gpu-pcie", {"special": "p3.16xlarge"})
    assert book.topology("anything") == "4gpu-pcie"
    assert book.topology("special") == "p3.16xlarge"
    assert len(machine(book, "special", 1).gpus) == 8
    assert len(machine(book, "anything", 1).gpus) == 4


def test_each_machine_is_compiled_once():
    names = RowNames()
    one, two, by_alias = (
        names.machine(names.machines.where(name, n))
        for name, n in (("p3.16xlarge", 1), ("p3.16xlarge", 2), ("vtrain-8xv100-cube-mesh", 2))
    )
    assert two is by_alias
    assert one is not two


def test_what_cannot_be_composed_is_a_reason_each_time():
    names = RowNames()
    for _ in range(2):
        with pytest.raises(NotScored, match="has no NIC"):
            names.machine(names.machines.where("4gpu-pcie", 2))


@pytest.mark.parametrize(("trays", "racks"), [(1, 1), (2, 1), (18, 1), (19, 2), (36, 2), (64, 4), (128, 8)])
def test_nodes_of_a_rack_that_nvlinks_join_are_its_trays(trays, racks):
    names = RowNames()
    where = names.machines.where("dgx-gb200", trays, 4)
    assert where.nodes == racks
    gpus = names.gpus(where, trays, range(4))
    assert len(set(gpus)) == 4 * trays
    of_racks = [sum(gpu // 72 == rack for gpu in gpus) for rack in range(racks)]
    assert sum(of_racks) == 4 * trays
    assert max(of_racks) - min(of_racks) <= 4  # as even as whole trays allow


def test_nodes_with_more_gpus_than_a_tray_are_whole_racks():
    names = RowNames()
    where = names.machines.where("gb200-nvl72", 2, 72)
    assert where.nodes == 2
    assert names.gpus(where, 2, range(72)) == tuple(range(144))


def test_a_node_without_trays_counts_as_one_machine():
    names = RowNames()
    where = names.machines.where("dgx-h100", 3, 2)
    assert where.nodes == 3
    assert names.gpus(where, 3, (0, 5)) == (0, 5, 8, 13, 16, 21)
    with pytest.raises(NotScored, match="more GPUs a node than"):
        names.gpus(where, 3, range(9))


def test_mistakes_of_the_user_are_told_before_any_work():
    with pytest.raises(InputError, match=r"no such file and no built-in topology; did you mean 'p3\.16xlarge'"):
        MachineNames("p3.16xlarg")
    with pytest.raises(InputError, match="no such file"):
        MachineNames(named={"a": "nothing.yaml"})


def test_a_name_that_no_row_has_is_a_mistake():
    book = MachineNames(named={"dgxa10": "4gpu-pcie"})
    with pytest.raises(InputError, match="--machine: no row is of machine 'dgxa10'; did you mean 'dgxa100'"):
        check_used("machine", book.named, {"dgxa100", "other"})
    check_used("machine", book.named, {"dgxa10"})
