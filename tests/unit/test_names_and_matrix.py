"""Ranges of names, and link matrices in the format of ``nvidia-smi topo -m``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.topology.load import load_topology
from simulator.topology.schema import MAX_NAMES, expand, read_matrix

_ROOT = Path(__file__).resolve().parents[2]
# The hybrid cube mesh of eight V100s: pairs with two links and with one.
CUBE_MESH = [
    *[(0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2)],
    *[(2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)],
]


def links_of(text: str) -> list[tuple[int, int, int]]:
    return read_matrix(text)[1]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu0", ["gpu0"]),
        ("gpu", ["gpu"]),
        ("a.b-c_d", ["a.b-c_d"]),
        ("gpu[0-3]", ["gpu0", "gpu1", "gpu2", "gpu3"]),
        ("gpu[3]", ["gpu3"]),
        ("gpu[0,2]", ["gpu0", "gpu2"]),
        ("gpu[0-1,6-7]", ["gpu0", "gpu1", "gpu6", "gpu7"]),
        ("plx[0,0,1,1]", ["plx0", "plx0", "plx1", "plx1"]),
        ("gpu[2,0]", ["gpu2", "gpu0"]),
        ("gpu[1-3,0]", ["gpu1", "gpu2", "gpu3", "gpu0"]),
        ("gpu[ 0 - 1 , 3 ]", ["gpu0", "gpu1", "gpu3"]),
        ("node[0-1].gpu0", ["node0.gpu0", "node1.gpu0"]),
        ("gpu[5-5]", ["gpu5"]),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("0gpu", "'0gpu' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu 0", "'gpu 0' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu[]", "'gpu[]' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu[0", "'gpu[0' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu[a-b]", "'gpu[a-b]' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu[0-1][0-1]", "'gpu[0-1][0-1]' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu[٣]", "'gpu[٣]' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpü0", "'gpü0' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu0\n", "'gpu0\\n' is not a name; write for example gpu0, gpu[0-7] or gpu[0,2]"),
        ("gpu[0-]", "'gpu[0-]': '0-' is neither a number nor a range such as 0-7"),
        ("gpu[-1]", "'gpu[-1]': '-1' is neither a number nor a range such as 0-7"),
        ("gpu[0,]", "'gpu[0,]': '' is neither a number nor a range such as 0-7"),
        ("gpu[0-1-2]", "'gpu[0-1-2]': '0-1-2' is neither a number nor a range such as 0-7"),
        ("gpu[3-1]", "'gpu[3-1]': the range 3-1 runs backwards"),
        ("gpu[0-99999999]", f"'gpu[0-99999999]' stands for more than {MAX_NAMES} names"),
        ("gpu[0-65535,0]", f"'gpu[0-65535,0]' stands for more than {MAX_NAMES} names"),
        ("gpu[0-9999999999]", "'gpu[0-9999999999]': a number has at most 9 digits"),
    ],
)
def test_what_is_no_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="gpu") as caught:
        expand(text)
    assert str(caught.value) == message


def test_a_range_may_be_long() -> None:
    assert len(expand(f"gpu[0-{MAX_NAMES - 1}]")) == MAX_NAMES


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=5))
def test_ranges_are_the_numbers_between_their_ends(ranges: list[tuple[int, int]]) -> None:
    text = "n[" + ",".join(f"{low}-{low + more}" for low, more in ranges) + "]x"
    assert expand(text) == [f"n{i}x" for low, more in ranges for i in range(low, low + more + 1)]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("X NV2\nNV2 X", [(0, 1, 2)]),
        ("X 2\n2 X", [(0, 1, 2)]),
        ("0 2\n2 0", [(0, 1, 2)]),
        ("X XGMI3\nxgmi3 x", [(0, 1, 3)]),
        ("gpu0 X NV2\ngpu1 NV2 X", [(0, 1, 2)]),
        ("     GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2 X", [(0, 1, 2)]),
        ("# a comment\n\nX SYS\nSYS X\n", []),
        ("gpu0 X SYS NV1\ngpu1 SYS X -\ngpu2 NV1 - X", [(0, 2, 1)]),
        ("gpu4 X NV1\ngpu6 NV1 X", [(4, 6, 1)]),
        ("gpu1 X NV1\ngpu0 NV1 X", [(0, 1, 1)]),
        ("GPU1 GPU0 GPU2\nGPU0 NV1 X NV3\nGPU1 X NV1 NV2\nGPU2 NV2 NV3 X", [(0, 1, 1), (0, 2, 3), (1, 2, 2)]),
        # NICs, affinities and the legend are ignored.
        ("GPU0 GPU1 mlx5_0 CPU Affinity\nGPU0 X NV4 PIX 0-19\nGPU1 NV4 X PIX 0-19\nmlx5_0 PIX PIX X", [(0, 1, 4)]),
        ("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n\nLegend:\n\n  X    = Self\n  SYS  = QPI\n  NV#  = NVLinks", [(0, 1, 4)]),
    ],
)
def test_matrices(text: str, links: list[tuple[int, int, int]]) -> None:
    assert links_of(text) == links


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "matrix: needs at least two rows"),
        ("X", "matrix: needs at least two rows"),
        ("X NV1\nNV1", "matrix: row gpu1 has 1 cells for 2 GPUs"),
        ("X NV1\nNV2 X", "matrix: gpu0 to gpu1 has 1 links, but gpu1 to gpu0 has 2"),
        ("X NV1\nSYS X", "matrix: gpu0 to gpu1 has 1 links, but gpu1 to gpu0 has 0"),
        ("X NVL\nNVL X", "matrix: row gpu0, column gpu1: 'NVL' is no count such as NV2, 2 or SYS"),
        ("X NV12345\nNV12345 X", "matrix: row gpu0, column gpu1: 'NV12345' is no count such as NV2, 2 or SYS"),
        ("NV1 X\nX NV1", "matrix: row gpu0, column gpu0: X belongs on the diagonal and only there; got 'NV1'"),
        ("X X\nX X", "matrix: row gpu0, column gpu1: X belongs on the diagonal and only there; got 'X'"),
        ("gpu0 X NV1\ngpu0 NV1 X", "matrix: gpu0 has two rows"),
        ("GPU0 GPU2\nGPU0 X NV1\nGPU1 NV1 X", "matrix: the header and the rows do not name the same GPUs"),
        ("GPU0 GPU1\nGPU0 X NV1", "matrix: the header and the rows do not name the same GPUs"),
        ("hello world", "matrix: a row starts with a GPU (gpu0) or a cell (X, NV1, SYS); got 'hello'"),
    ],
)
def test_what_is_no_matrix(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="matrix: ") as caught:
        read_matrix(text)
    assert caught.value.args[0] == message


def test_a_matrix_tells_all_its_faults() -> None:
    with pytest.raises(ValueError, match="matrix: ") as caught:
        read_matrix("X NV1 NVL\nNV2 X NV1\nNV1 NV1 NV2")
    assert caught.value.args == (
        "matrix: row gpu0, column gpu2: 'NVL' is no count such as NV2, 2 or SYS",
        "matrix: row gpu2, column gpu2: X belongs on the diagonal and only there; got 'NV2'",
        "matrix: gpu0 to gpu1 has 1 links, but gpu1 to gpu0 has 2",
    )


@given(st.integers(2, 8), st.data(), st.booleans(), st.booleans())
def test_written_matrices_read_back(n: int, data: st.DataObject, header: bool, labels: bool) -> None:
    counts = {(a, b): data.draw(st.integers(0, 18)) for a in range(n) for b in range(a + 1, n)}
    words = st.sampled_from(["SYS", "NODE", "PHB", "PXB", "PIX", "SOC", "-", "0"])
    spelling = data.draw(st.sampled_from(["NV{}", "{}", "XGMI{}", "nv{}"]))
    lines = ["\t" + "\t".join(f"GPU{i}" for i in range(n))] if header else []
    for a in range(n):
        cells = []
        for b in range(n):
            count = counts.get((min(a, b), max(a, b)), 0)
            cells.append("X" if a == b else spelling.format(count) if count else data.draw(words))
        lines.append("\t".join(([f"GPU{a}"] if labels or header else []) + cells))
    assert links_of("\n".join(lines)) == [(a, b, n) for (a, b), n in sorted(counts.items()) if n]


@given(st.text(alphabet="XNVSYPIGU012 \n\t-#", max_size=60))
def test_any_text_is_a_matrix_or_refused(text: str) -> None:
    try:
        links = links_of(text)
    except ValueError as error:
        refused = error.args
    else:
        assert all(a < b and count > 0 for a, b, count in links)
        return
    assert all(each.startswith("matrix: ") for each in refused)


# -- matrices of real machines -------------------------------------------------------


@pytest.fixture(scope="module")
def dumps() -> Path:
    """Return the folder of matrices printed by real machines; skip without it."""
    folder = Path(os.environ.get("TOPOCAST_TOPO_DUMPS", _ROOT.parent / "shared" / "topo_dumps")) / "nvidia-smi"
    if not folder.is_dir():
        pytest.skip(f"no matrices of real machines at {folder} (TOPOCAST_TOPO_DUMPS names another folder)")
    return folder


@pytest.mark.parametrize(
    ("name", "n_gpus", "n_links"),
    [
        ("2gpu_nv2_stas.txt", 2, {2}),
        ("2gpu_phb_stas.txt", 2, {0}),
        ("4gpu_phb_single_socket_litgpt_fixture.txt", 4, {0}),
        ("6gpu_pix_phb_soc_tkestack.txt", 6, {0}),
        ("a100x8_stas_ml_engineering.txt", 8, {12}),
        ("h100x8_stas_ml_engineering.txt", 8, {18}),
    ],
)
def test_machines_whose_pairs_are_alike(dumps: Path, name: str, n_gpus: int, n_links: set[int]) -> None:
    found = {(a, b): count for a, b, count in links_of((dumps / name).read_text(encoding="utf-8"))}
    assert {found.get((a, b), 0) for a in range(n_gpus) for b in range(a + 1, n_gpus)} == n_links
    assert all(b < n_gpus for _, b in found)


def test_a_cube_mesh_with_nics_and_legend(dumps: Path) -> None:
    text = (dumps / "dgx1_v100_4nic_msccl_tabs.txt").read_text(encoding="utf-8")
    assert links_of(text) == CUBE_MESH


def test_the_ranks_of_peers_that_mxnet_prints(dumps: Path) -> None:
    """There 3 means two links, 2 one, and 1 none: read as counts, each pair has one too many."""
    text = (dumps / "p3.16xlarge_mxnet_p2p_matrix.txt").read_text(encoding="utf-8")
    assert [(a, b, count - 1) for a, b, count in links_of(text) if count > 1] == CUBE_MESH


def test_every_dump_is_read(dumps: Path) -> None:
    for path in sorted(dumps.iterdir()):
        links_of(path.read_text(encoding="utf-8"))


def test_the_built_in_cube_mesh_is_the_real_one() -> None:
    wires = load_topology("p3.16xlarge").wires
    links = [(int(w.a[3:]), int(w.b[3:]), w.count) for w in wires if w.part.of == "nvlink"]
    assert links == CUBE_MESH


def test_links_to_a_gpu_without_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match=r"row gpu0 has NV4 in a column for which there is no row"):
        links_of("gpu0 X NV1 NV4\ngpu1 NV1 X SYS\n")
    assert links_of("gpu0 X NV1 PIX\ngpu1 NV1 X SYS\n") == [(0, 1, 1)]  # column 3 is a NIC's
