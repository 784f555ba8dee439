"""Any file gives a topology, or one line per fault, within a bounded number of calls."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.topology.catalogue import find_topology
from simulator.topology.load import topology_from_text
from simulator.topology.yaml_source import parse_yaml
from tests.calls import at_most_calls
from tests.examples import few
from tests.topology_mistakes import HEAD, link

_P3 = find_topology("p3.16xlarge")[0].read_text(encoding="utf-8")
_SNIPPETS = st.sampled_from(
    [
        *"[]{}:,-?&*!|>'\"%@`#~=\t\n ",
        *("<<: ", "*a", "&a ", "!!bool ", "!!int ", "!!float ", "!!timestamp ", "!!binary ", "!!set ", "!!str ", "!x "),
        *(
            "---\n",
            "...\n",
            "%YAML 9.9\n",
            "null",
            "yes",
            "1:30",
            "0x1F",
            "1e999",
            "-1",
            ".nan",
            "2020-99-99",
            "é",
            "\ufeff",
        ),
        *(
            "gpu[0-9]",
            "gpu[9-0]",
            "gpu0",
            "GB/s",
            "16 Gb/s",
            "NV9",
            "{}",
            "[]",
            '"\\ud800"',
            '"\\x00"',
            "\x00",
            "\x85",
            "\u2028",
        ),
        *("cluster: {node: p3.2xlarge, nodes: 2}\n", "parts: {a: {kind: link}}\n", "  count: 99999999999999999999\n"),
    ]
)


def check_refused_or_read(text: str) -> None:
    """Check that *text* gives a topology, or one printable line per fault, within a bounded number of calls."""
    try:
        with at_most_calls(5_000_000):
            topology_from_text(text)
    except InputError as error:
        for fault in error.faults:
            assert fault.file
            assert str(fault).isprintable()


@settings(max_examples=few(300))
@given(st.data())
def test_a_good_file_with_bad_places(data: st.DataObject) -> None:
    text = _P3
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = min(len(text), at + data.draw(st.sampled_from([0, 0, 1, 2, 8, 60])))
        text = (
            text[:at] + data.draw(st.one_of(_SNIPPETS, st.text(max_size=3), st.just(text[at:until] * 2))) + text[until:]
        )
    check_refused_or_read(text)


@settings(max_examples=few(300))
@given(
    st.lists(_SNIPPETS, max_size=12), st.sampled_from(["{}", HEAD + "{}", HEAD + "devices:\n  gpu0: {}\n", link("{}")])
)
def test_bad_places_alone(snippets: list[str], around: str) -> None:
    check_refused_or_read(around.replace("{}", "".join(snippets)))


@given(st.one_of(st.text(max_size=60), st.text(alphabet="abc:-[]{}\n ,&*!?'\"", max_size=60)))
def test_any_text(text: str) -> None:
    check_refused_or_read(text.encode("utf-8", "replace").decode())


@given(st.binary(max_size=60))
def test_any_bytes(raw: bytes) -> None:
    try:
        parse_yaml(raw, "x.yaml")
    except InputError as error:
        [fault, *_] = error.faults
        assert str(fault).startswith("x.yaml:")
        assert str(fault).isprintable()
    else:
        assert raw.decode("utf-8-sig").strip()


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(["gpu", "1 GB/s"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "part", "between", "bandwidth", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=few(300))
@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: st.one_of(
                _JSON, st.dictionaries(st.sampled_from(["gpu0", "gpu[0-3]", "peer_to_peer", "node"]), _JSON, max_size=2)
            )
            for key in (
                "schema_version",
                "name",
                "parts",
                "devices",
                "links",
                "meshes",
                "transport",
                "cluster",
                "aliases",
            )
        },
    )
)
def test_values_of_wrong_shapes(document: dict[str, object]) -> None:
    check_refused_or_read(json.dumps({"schema_version": 1, "name": "x", **document}))
