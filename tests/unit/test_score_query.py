"""The question of a row, and why some rows ask for nothing that can be predicted."""

import pytest

from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Software, Where
from validate.kinds import COLLECTIVES
from validate.kinds.kind import RowQuestion
from validate.kinds.moves import collective_name
from validate.tables.cells import NotScored
from validate.tables.names import RowNames
from validate.tables.table import PUBLISHED, conventions_of, filled, stands_for

NAMES = RowNames()
ROW = {"machine": "p3.16xlarge", "n_nodes": "1", "n_gpus": "8", "collective": "all_reduce", "bytes": "1024"}


def query(**cells: str) -> CollectiveQuestion:
    row = {**dict.fromkeys(COLLECTIVES.asked, ""), **ROW, **cells}
    asked = COLLECTIVES.read(row.__getitem__, NAMES)
    assert isinstance(asked.question, CollectiveQuestion)
    assert asked == RowQuestion(asked.question)  # no other columns, and no clock
    return asked.question


def test_a_plain_row():
    assert query() == CollectiveQuestion(
        where=Where("p3.16xlarge", 1),
        collective="all-reduce",
        size_bytes=1024.0,
        gpus=tuple(range(8)),
        group_size=8,
        gpus_per_process=8,
        software=Software(nccl=(2, 6)),
    )


@pytest.mark.parametrize(
    ("software", "changes", "driven"),
    [
        ("", {}, 8),  # nccl-tests on one machine: one thread launches for all GPUs
        ("NCCL 2.7, nccl-tests -g 4", {}, 4),
        ("nccl-tests -g 16", {}, 8),
        ("XLA + NCCL", {}, 1),
        ("torch.distributed", {}, 1),
        ("NCCL 2.x, OpenMPI", {}, 1),
        ("NCCL 2.x", {"n_nodes": "2", "n_gpus": "16", "group_size": "16"}, 1),
        ("", {"group_size": "2", "n_groups_concurrent": "4"}, 2),
    ],
)
def test_how_many_gpus_a_thread_launches_for(software, changes, driven):
    assert query(software=software, **changes).gpus_per_process == driven


def test_what_is_left_out_is_one_node_and_one_group_of_all():
    assert query(n_nodes="", group_size="", n_groups_concurrent="") == query()


def test_what_joins_machines_is_told_of_several():
    assert query(n_nodes="2", n_gpus="16", fabric_part="roce-400g").where == Where("p3.16xlarge", 2, "roce-400g")
    assert query(fabric_part="roce-400g").where == Where("p3.16xlarge", 1)


def test_groups_at_once():
    asked = query(group_size="2", n_groups_concurrent="4")
    assert (asked.group_size, asked.gpus) == (2, tuple(range(8)))
    assert query(group_size="2", n_groups_concurrent="3").gpus == tuple(range(6))


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("0,2,4,6", (0, 2, 4, 6)),
        ("0-1,4-5", (0, 1, 4, 5)),
        ("3,1,2,0", (3, 1, 2, 0)),
        ("", (0, 1, 2, 3)),
    ],
)
def test_gpus_of_each_node(text, gpus):
    assert query(n_nodes="2", gpu_set=text).gpus == (*gpus, *(8 + gpu for gpu in gpus))


def test_pairs_of_a_sendrecv():
    asked = query(collective="sendrecv", gpu_set="pairs 0>4;1>5")
    assert asked.pairs == ((0, 4), (1, 5))
    assert asked.collective == "send-recv"


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        ("", None),
        ("ring (NVLS off)", "ring"),
        ("tree", "tree"),
        ("Ring", "ring"),
        ("NCCL_ALGO=Tree", "tree"),
        ("NVLS", "nvls"),
    ],
)
def test_forced_algorithm(text, algorithm):
    assert query(algorithm_forced=text).algorithm == algorithm


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"bytes": ""}, "bytes missing"),
        ({"bytes": "many"}, "bytes is not a number"),
        ({"bytes": "nan"}, "bytes is not a number"),
        ({"bytes": "1e999"}, "bytes is not a number"),
        ({"bytes": "1_000"}, "bytes is not a number"),
        ({"bytes": "1 MiB"}, "bytes is not a number"),
        ({"bytes": "0"}, "bytes not positive"),
        ({"bytes": "-8"}, "bytes not positive"),
        ({"bytes": "1e16"}, r"bytes is more than 1e\+15"),
        ({"collective": "all_at_once"}, "unknown collective 'all_at_once'"),
        ({"collective": ""}, "unknown collective ''"),
        ({"n_gpus": ""}, "n_gpus missing"),
        ({"n_gpus": "2.5"}, "n_gpus is not a whole number"),
        ({"n_gpus": "1"}, "a group of one rank exchanges nothing"),
        ({"n_gpus": "8192"}, "more than 4096 GPUs"),
        ({"n_nodes": "2", "fabric_part": "some"}, "no network link is called 'some'"),
        ({"n_nodes": "3"}, "n_gpus is no multiple of n_nodes"),
        ({"group_size": "4", "n_groups_concurrent": "3"}, "the groups have more ranks than n_gpus"),
        ({"gpu_set": "0-3"}, "gpu_set does not name n_gpus / n_nodes different GPUs"),
        ({"gpu_set": "0,0,1,2,3,4,5,6"}, "gpu_set does not name"),
        ({"gpu_set": "0-99999"}, "gpu_set does not name"),
        ({"gpu_set": "all"}, "gpu_set 'all' is neither a list"),
        ({"gpu_set": "pairs 0>1"}, "gpu_set names pairs, which belong to a sendrecv"),
        ({"gpu_set": "pairs 0>8", "collective": "sendrecv"}, "no two ranks of the group"),
        ({"gpu_set": "pairs 1>1", "collective": "sendrecv"}, "no two ranks of the group"),
        ({"strategy": "rign"}, "strategy 'rign' is not modelled"),
        ({"strategy": "ring", "algorithm_forced": "tree"}, "strategy and algorithm_forced are both named"),
        ({"algorithm_forced": "collnet"}, "forced algorithm 'collnet' is not modelled"),
        ({"algorithm_forced": "ringtree"}, "forced algorithm 'ringtree' is not modelled"),
        ({"unclear": "its network was shared"}, "^its network was shared$"),
    ],
)
def test_reasons(cells, words):
    with pytest.raises(NotScored, match=words):
        query(**cells)


@pytest.mark.parametrize("text", ["all_reduce", "all-reduce", "AllReduce", "allreduce", "All Reduce"])
def test_spellings_of_a_collective(text):
    assert collective_name(text) == "all_reduce"
    assert query(collective=text).collective == "all-reduce"


def test_nothing_that_was_measured_is_asked():
    assert not {"time_s", "algbw_GBps", "busbw_GBps"} & set(COLLECTIVES.asked)
    assert not {name for name in CollectiveQuestion.__dataclass_fields__ if "time" in name or "bw" in name}


@pytest.mark.parametrize("name", ["gloo", "parameter-server", "parameter-server-2", "parameter-server-colocated"])
def test_a_row_may_name_a_strategy_in_place_of_nccl(name):
    found = query(algorithm_forced=name)
    assert (found.algorithm, found.strategy) == (None, name)


@pytest.mark.parametrize("name", ["ring", "tree", "gloo", "gpu0"])
def test_the_column_of_strategies_means_the_simulators(name):
    found = query(strategy=name)
    assert (found.algorithm, found.strategy) == (None, name)


def test_nccls_algorithms_are_no_strategies():
    found = query(algorithm_forced="ring")
    assert (found.algorithm, found.strategy) == ("ring", "nccl")


def test_the_year_of_a_measurement_says_which_nccl_ran():
    """Applies where the software names no version; dstack's runs on Nebius are dated by when they became possible."""
    assert query(software="NCCL").software.nccl < (2, 23)
    assert query(software="NCCL", measured="2025").software.nccl == (2, 26)
    assert query(software="NCCL 2.19", measured="2025").software.nccl == (2, 19)
    source = "dstackai/dstack@511c318c:mkdocs/docs/examples/clusters/nebius.md"
    rules = (conventions_of(PUBLISHED)["collectives"],)
    assert stands_for(rules, "measured", lambda name: source if name == "source" else "")[0] == "2025"
    assert stands_for(rules, "measured", lambda _: "dstackai/dstack gcp")[0] == ""
    assert filled("collectives", "measured", lambda name: source if name == "source" else "") == ""


@pytest.mark.parametrize("size_bytes", [8, 1024, 67108864, 134217728, 17179869184])
def test_what_rides_on_every_exchange_of_an_installation_hides_small_ones(size_bytes):
    row = {"dataset": "fresh_amd", "n_nodes": "2", "bytes": str(size_bytes)}
    rules = conventions_of(PUBLISHED)[COLLECTIVES.name]["unclear"]
    added = [rule.value_for(lambda column: row.get(column, "")) for rule in rules]
    assert any(added) == (size_bytes < 128 << 20)
