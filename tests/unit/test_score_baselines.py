"""The bare ring, compared with its closed form, on machines with known links."""

import pytest

from simulator.api import load_machine
from simulator.collectives.communicator import Communicator
from simulator.collectives.lower import ALPHA_S, alpha_beta_ring_s

GB = 1e9


def baseline(topology, collective, size, gpus=None, n_nodes=1):
    machine = load_machine(topology, n_nodes=n_nodes)
    ranks = [machine.gpus[g] for g in (gpus or range(len(machine.gpus)))]
    return alpha_beta_ring_s(Communicator(machine, ranks), collective, size)


@pytest.mark.parametrize(
    ("collective", "steps", "share"),
    [
        ("all-reduce", 6, 6 / 4),
        ("all-gather", 3, 3 / 4),
        ("reduce-scatter", 3, 3 / 4),
        ("all-to-all", 3, 3 / 4),
        ("broadcast", 3, 1),
        ("reduce", 3, 1),
        ("send-recv", 1, 1),
    ],
)
def test_closed_forms_on_four_gpus_at_16_gbps(collective, steps, share):
    expected = steps * ALPHA_S + share * 160e6 / (16 * GB)
    assert baseline("4gpu-pcie", collective, 160e6) == pytest.approx(expected, rel=1e-12)


def bandwidth(topology, gpus=None, n_nodes=1):
    """Return the bandwidth from two sizes, so that latency cancels."""
    n = len(gpus) if gpus else len(load_machine(topology, n_nodes=n_nodes).gpus)
    slope = baseline(topology, "all-reduce", 2e9, gpus, n_nodes) - baseline(topology, "all-reduce", 1e9, gpus, n_nodes)
    return 2 * (n - 1) / n * 1e9 / slope


def test_the_ring_takes_the_order_that_suits_the_links():
    # The double NVLinks of the cube mesh close a ring of all eight GPUs; in rank order a ring would cross PCIe.
    one = load_machine("p3.16xlarge")
    rate = min(link.nominal_Bps for link in one.links if link.kind == "nvlink")
    assert bandwidth("p3.16xlarge") == pytest.approx(2 * rate, rel=1e-6)


def test_without_nvlink_between_two_gpus_the_ring_goes_over_pcie():
    assert bandwidth("p3.16xlarge", [0, 5]) < 17 * GB


def test_two_nodes_go_at_the_rate_of_one_nic():
    assert bandwidth("p3.16xlarge", n_nodes=2) == pytest.approx(25e9 / 8, rel=1e-6)


def test_the_slowest_adapter_of_any_node_decides(tmp_path):
    groups = "[{node: dgx-h100, nodes: 2}, {node: p3.16xlarge}]"
    (tmp_path / "mixed.yaml").write_text(
        f"schema_version: 1\nname: mixed\ndescription: a test\nsource: a test\ncluster: {{groups: {groups}}}\n"
    )
    assert bandwidth(str(tmp_path / "mixed.yaml"), n_nodes=None) == pytest.approx(25e9 / 8, rel=1e-6)
