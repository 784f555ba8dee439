"""Every fault in a topology file is reported, line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.network.compiling import compile_machine
from simulator.topology.load import load_topology, topology_from_text
from tests.calls import at_most_calls
from tests.topology_mistakes import CASES, GPUS, HEAD, LINK, devices, link, mesh


def faults_of(path: str) -> list[str]:
    """Return the error lines of loading *path*."""
    with pytest.raises(InputError) as caught:
        load_topology(path)
    return caught.value.spelt("command").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, lines = CASES[name]
    (tmp_path / "t.yaml").write_bytes(text.encode())
    monkeypatch.chdir(tmp_path)
    assert faults_of("t.yaml") == lines


def test_the_text_that_the_mistakes_are_made_in_is_right() -> None:
    assert len(topology_from_text(HEAD + GPUS + LINK).devices) == 2
    assert len(topology_from_text(mesh("gpu0 X NV1", "gpu1 NV1 X")).wires) == 1
    windows = (HEAD + GPUS + LINK).replace("\n", "\r\n")
    assert len(topology_from_text("\ufeff" + windows).devices) == 2


def test_a_part_of_another_kind_is_answered_with_parts_of_that_kind() -> None:
    with pytest.raises(InputError) as caught:
        topology_from_text(link("between: [gpu0, gpu1], part: v100-sxm2-16gb"))
    start = "<text>:6:35: 'v100-sxm2-16gb' is a part of kind gpu, a link is needed here; allowed: "
    assert caught.value.spelt("command").startswith(start)
    assert "ethernet-10g, " in caught.value.spelt("command")
    assert "h100" not in caught.value.spelt("command")


def test_a_missing_file_is_answered_with_the_nearest_built_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert faults_of("p3.16xlrage.yaml") == [
        "p3.16xlrage.yaml: no such file and no built-in topology; did you mean 'p3.16xlarge'? (simulate machines)"
    ]
    [line] = faults_of("zzzzzzzz")
    assert line.startswith("zzzzzzzz: no such file and no built-in topology; allowed: 10x-a100-pcie-80gb-box, ")
    assert line.endswith(" in all) (simulate machines)")


@pytest.mark.parametrize("name", ["", "x" * 5_000, "a\0b", "a\nb", "\x1b[31m"])
def test_names_that_no_file_can_have(name: str) -> None:
    [line] = faults_of(name)
    assert "no such file and no built-in topology" in line
    assert line.isprintable()
    assert len(line) < 400


def test_a_folder(tmp_path: Path) -> None:
    assert faults_of(str(tmp_path)) == [f"{tmp_path}: is a folder; a YAML file or a built-in name is needed"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(HEAD)
    path.chmod(0)
    assert faults_of(str(path)) == [f"{path}: cannot be read: Permission denied"]


def test_a_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_bytes(b"schema_version: 1\nname: \xff\xfe\n")
    assert faults_of(str(path)) == [f"{path}:2:7: is not UTF-8 text; a YAML file is needed"]


def test_a_device_without_an_end() -> None:
    with pytest.raises(InputError, match=r"^/dev/zero: is a device; a YAML file is needed$"):
        load_topology("/dev/zero")


def test_a_file_of_10_mb(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_bytes((HEAD + GPUS + LINK).encode() + b"# filler\n" * 1_200_000)
    with at_most_calls(100_000):
        assert faults_of(str(path)) == [f"{path}:1:1: is larger than 2 MB; a topology is a few kB"]


_LAUGHS = "".join(
    f"  {'abcdefghi'[i]}: &{'abcdefghi'[i]} [{', '.join(['*' + 'abcdefghi'[i - 1]] * 9)}]\n" for i in range(1, 9)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[" * 900, "1:41: is nested deeper than 40 levels"),
        (
            "[" * 100_000,
            ("1:41: is nested deeper", "1:1001: is nested deeper"),
        ),  # libyaml looks ahead, and has a limit too
        ("- " * 100_000, "1:81: is nested deeper than 40 levels"),
        ("".join(" " * i + "a:\n" for i in range(500)), "41:41: is nested deeper than 40 levels"),
        (
            f"{HEAD}devices:\n  a: &a [x, x, x, x, x, x, x, x, x]\n{_LAUGHS}",
            "4:6: anchors that repeat a mapping or a list are not supported; use a range such as gpu[0-7]",
        ),
        (
            f"{HEAD}devices: &a {{gpu0: *a}}\n",
            "3:10: anchors that repeat a mapping or a list are not supported; use a range such as gpu[0-7]",
        ),
        (devices(f"gpu[{'1' * 500_000}]: {{kind: gpu}}"), "4:500008: is not valid YAML"),
        (devices(f"? gpu[{'1' * 500_000}]\n  : {{kind: gpu}}"), "4:5: 'gpu[11"),
        (
            devices("gpu[0-1]: {kind: gpu}").replace("gpu0, gpu1", "'gqu[0-65535]', gpu1"),
            "6:16: no device is called 'gqu0'",
        ),
        (
            f"{HEAD}devices:\n" + "".join(f"  g{i}x[0-65535]: {{kind: gpu}}\n" for i in range(2_000)),
            "5:3: a machine has",
        ),
        (
            f"{HEAD}devices:\n  gpu[0-65534]: {{kind: gpu}}\n  cpu0: {{kind: cpu}}\nlinks:\n"
            + "  - {between: ['gpu[0-65534]', cpu0], kind: pcie, bandwidth: 1 GB/s}\n" * 2_000,
            "11:5: a machine has at most 262144 links",
        ),
        (f"{HEAD}{'k' * 1_000_000}: 1\n", "3:1000001: is not valid YAML"),
        (f"{HEAD}? {'k' * 1_000_000}\n: 1\n", "3:3: unknown key 'kkk"),
        (mesh(*("1 " * 1_000 for _ in range(900))), "8:13: matrix: row gpu0, column gpu0: X belongs"),
    ],
)
def test_bombs_are_refused_at_once(text: str, line: str | tuple[str, ...]) -> None:
    with at_most_calls(50_000_000), pytest.raises(InputError) as caught:
        topology_from_text(text)
    lines = [f"<text>:{each}" for each in (line if isinstance(line, tuple) else (line,))]
    assert any(found.startswith(tuple(lines)) for found in caught.value.spelt("command").splitlines())
    assert len(caught.value.spelt("command")) < 2_000


def test_a_cluster_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"{HEAD}cluster: {{node: t.yaml, nodes: 2}}\n")
    assert faults_of(str(path)) == [f"{path}:3:17: the node of a cluster cannot be a cluster"]


def test_faults_of_the_node_of_a_cluster_stand_in_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(f"{HEAD}{GPUS}")
    (tmp_path / "t.yaml").write_text(f"{HEAD}cluster: {{node: node.yaml, nodes: 2}}\n")
    assert faults_of(str(tmp_path / "t.yaml")) == [
        f"{tmp_path / 'node.yaml'}:4:3: no links lead from gpu0 to gpu1; add them under links"
    ]


@pytest.mark.parametrize(
    ("name", "n_nodes", "fabric", "line"),
    [
        (
            "p3.16xlarge",
            2,
            "ethernt-10g",
            (
                "--fabric: no network link is called 'ethernt-10g', and it is not a rate such as 25Gbit/s; "
                "did you mean 'ethernet-10g'?"
            ),
        ),
        ("p3.16xlarge", 0, None, "--nodes: must be from 1 to 16384; got 0"),
        ("p3.16xlarge", 65_537, None, "--nodes: must be from 1 to 16384; got 65537"),
        ("p4d-x2-efa", 2, None, None),
        (
            "4gpu-pcie",
            2,
            None,
            "--nodes: {} has no NIC; name a network with --fabric, for example ethernet-10g",
        ),
    ],
)
def test_clusters_by_option(name: str, n_nodes: int, fabric: str | None, line: str | None) -> None:
    if line is None:  # the option replaces a cluster's own number of nodes
        assert load_topology(name, n_nodes=n_nodes).n_nodes == n_nodes
        return
    with pytest.raises(InputError) as caught:
        load_topology(name, n_nodes=n_nodes, fabric=fabric)
    assert caught.value.spelt("command") == line.format(load_topology(name).name)


def test_unknown_names_are_answered_by_the_machine() -> None:
    machine = compile_machine(topology_from_text(HEAD + GPUS + LINK))
    with pytest.raises(InputError, match=r"^x has no device called 'gpu2'; did you mean 'gpu1'\?$"):
        machine.node("gpu2")


@pytest.mark.slow
def test_lines_do_not_depend_on_the_hash_of_text() -> None:
    text = devices("gpu[0-7]: {kind: gpu}").replace("gpu0, gpu1", "'gpu[0-7]', 'gpu[0-7]'")
    code = (
        "import sys\nfrom simulator.topology.load import topology_from_text\n"
        f"try: topology_from_text({text!r})\nexcept Exception as error: print(error)"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2, 3)
    }
    assert answers == {"".join(f"<text>:6:15: the link joins 'gpu{i}' with itself\n" for i in range(4))}


def test_where_no_device_is_described_the_message_says_so() -> None:
    text = "schema_version: 1\nname: m\ndescription: d\nsource: s\nlinks:\n  - {between: [a, b], part: pcie3-x16}\n"
    with pytest.raises(InputError) as raised:
        topology_from_text(text)
    assert any("no device is called 'a'; none is described" in fault.spelt("command") for fault in raised.value.faults)
