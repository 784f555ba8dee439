"""Each rule applies where its cause is present and shifts the time in that direction, and not otherwise."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.results.single import Account
from tests.measured_folders import DEVICE, ENVIRONMENT, TOPOLOGY, constant, operators, steps, timed, write
from validate.compare.classes import NO_EXPLANATION, account_of, explain, in_words
from validate.compare.comparison import ComparisonOptions, compare_folder, compared
from validate.compare.folder import compare_runs, differences, read_folder
from validate.kinds.kind import MeasuredRow
from validate.score.scoring import Scoring, ScoringOptions

SLOWER, FASTER = math.log(1 / 1.5), math.log(1.5)


def facts(log_ratio=SLOWER, cells=(), measured_s=1e-3, kind="", interval=None, ran_Hz=0.0, **account):
    """Return a row with an error of *log_ratio*, measured at the clock *ran_Hz*, and the account of its prediction."""
    labels = {**dict(cells), **({"sm_clock_mhz": str(ran_Hz / 1e6)} if ran_Hz else {})}
    predicted_s = measured_s * math.exp(log_ratio)
    row = MeasuredRow(None, measured_s, labels, kind, labels=labels, predicted_s=predicted_s, interval=interval)
    return row, Account(**{"kernels_s": 1e-3, **account})


def causes(**known):
    return explain(*facts(**known))


def rules(**known):
    return [cause.rule for cause in causes(**known)]


def test_what_threads_of_the_host_copy_takes_what_the_host_takes():
    def of_a_copy(**cells):
        return rules(kind="copies", cells=cells)

    assert of_a_copy(kind="h2h") == of_a_copy(kind="d2h", pinned="0") == ["host bound"]
    assert of_a_copy(kind="d2h", pinned="1") == []


CASES = {
    "noise": ({"interval": 0.6}, {"interval": 0.05}),
    "memory full": (
        {"working_set_bytes": 80e9, "memory_bytes": 80e9},
        {"working_set_bytes": 80e9, "memory_bytes": 80e9, "log_ratio": FASTER},
    ),
    "throttled": (
        {"cells": {"throttled": "power cap"}, "ran_Hz": 1.2e9, "clock_Hz": 1.8e9},
        {"cells": {"throttled": "power cap"}, "ran_Hz": 1.8e9, "clock_Hz": 1.8e9},
    ),
    "low clock": (
        {"ran_Hz": 1.2e9, "clock_Hz": 1.8e9, "bound": "compute"},
        {"ran_Hz": 1.2e9, "clock_Hz": 1.8e9, "bound": "memory"},
    ),
    "high clock": (
        {"ran_Hz": 1.98e9, "clock_Hz": 1.5e9, "log_ratio": FASTER},
        {"ran_Hz": 1.98e9, "clock_Hz": 1.5e9},
    ),
    "disturbed": ({"interval": 0.15}, {"interval": 0.15, "log_ratio": FASTER}),
    "host bound": ({"waiting_share": 0.6}, {"waiting_share": 0.1}),
    "near the cache's size": (
        {"working_set_bytes": 40e6, "cache_bytes": 50e6, "bound": "memory"},
        {"working_set_bytes": 400e6, "cache_bytes": 50e6, "bound": "memory"},
    ),
    "odd alignment": (
        {"cells": {"dtype": "fp16", "op": "linear", "m": "64", "n": "1001"}, "is_gpu": True},
        {"cells": {"dtype": "fp16", "op": "linear", "m": "64", "n": "1000"}, "is_gpu": True},
    ),
    "few waves": (
        {"bound": "compute", "sm_count": 64, "cells": {"m": "1024", "n": "896"}},
        {"bound": "compute", "sm_count": 64, "cells": {"m": "1024", "n": "8960"}},
    ),
    "algorithm": (
        {"cells": {"op": "conv2d"}, "detail": "winograd"},
        {"cells": {"op": "linear"}, "detail": "tiles 128x128"},
    ),
    "short kernel": ({"bound": "latency"}, {"bound": "memory"}),
}


@pytest.mark.parametrize("rule", CASES)
def test_each_rule_speaks_and_is_silent(rule):
    yes, no = CASES[rule]
    assert rule in rules(**yes)
    assert rule not in rules(**no)


@pytest.mark.parametrize("rule", ["throttled", "low clock", "odd alignment"])
def test_what_slows_explains_nothing_that_was_too_quick(rule):
    assert rule not in rules(**{**CASES[rule][0], "log_ratio": FASTER})


def test_a_cause_of_little_effect_does_not_explain_a_tenfold_error():
    assert "odd alignment" in rules(**CASES["odd alignment"][0])
    assert rules(**CASES["odd alignment"][0], log_ratio=math.log(0.1)) == []
    assert rules(**CASES["algorithm"][0], log_ratio=math.log(0.1)) == []


@pytest.mark.parametrize(
    ("cells", "odd"),
    [
        ({"op": "linear", "m": "1235", "n": "1024", "k": "512"}, ""),  # the number of rows affects no alignment
        ({"op": "linear", "m": "1235", "n": "1024", "k": "513"}, "k=513"),
        ({"op": "bmm", "m": "7", "n": "9", "k": "8"}, "n=9"),
        ({"op": "conv2d", "c_in": "3", "c_out": "64"}, ""),
        ({"op": "conv2d", "variant": "channels_last", "c_in": "3", "c_out": "64"}, "c_in=3"),
        ({"op": "batch_norm", "c_in": "3"}, ""),
        ({"op": "elementwise", "rows": "3", "cols": "5"}, ""),
        ({"op": "softmax", "rows": "3", "cols": "5"}, "cols=5"),
    ],
)
def test_alignment_is_that_of_what_lies_side_by_side_on_a_gpu(cells, odd):
    known = {"cells": {"dtype": "fp16", **cells}}
    said = [each.text for each in causes(**known, is_gpu=True) if each.rule == "odd alignment"]
    assert said == ([f"rows not aligned to 16-byte vectors ({odd})"] if odd else [])
    assert "odd alignment" not in rules(**known, is_gpu=False)


def test_the_host_in_single_calls_and_at_its_pace():
    alone = {"cells": {"includes_dispatch": "1"}, "host_s": 40e-6, "kernels_s": 3e-6, "measured_s": 60e-6}
    assert "host bound" in rules(**alone)
    pace = {"cells": {"includes_dispatch": "0"}, "host_s": 20e-6, "kernels_s": 3e-6, "measured_s": 16e-6}
    assert "host bound" in rules(**pace)
    assert "host bound" not in rules(**{**pace, "cells": {"note": "captured graph"}})
    assert "host bound" not in rules(**{**pace, "measured_s": 200e-6})
    assert "host bound" not in rules(**{**pace, "kernels_s": 100e-6, "measured_s": 120e-6})


def test_nothing_known_is_said():
    assert causes() == []
    assert in_words([], SLOWER) == NO_EXPLANATION


def test_what_a_clock_accounts_for_is_said_where_it_is_not_all():
    of_a_third, of_two_thirds = math.log(1 / 3), math.log(1 / 1.5)
    partly = causes(log_ratio=of_a_third, ran_Hz=1.2e9, clock_Hz=1.8e9, bound="compute")
    assert "accounts for 36.9 % of the error" in in_words(partly, of_a_third)
    text = in_words(causes(log_ratio=of_two_thirds, ran_Hz=1.2e9, clock_Hz=1.8e9, bound="compute"), of_two_thirds)
    assert text == "ran at a lower clock: 1200 MHz instead of the assumed 1800 MHz"


@given(
    st.floats(-3, 3).filter(lambda x: abs(x) > 1e-6),
    st.floats(0, 2),
    st.floats(0, 3e9),
    st.floats(0, 3e9),
    st.sampled_from(["", "compute", "memory", "latency"]),
)
def test_any_facts_give_at_most_two_causes_in_words(log_ratio, interval, clock, assumed, bound):
    found = causes(log_ratio=log_ratio, interval=interval, ran_Hz=clock, clock_Hz=assumed, bound=bound, detail="x")
    assert len(found) <= 2
    assert in_words(found, log_ratio)
    for explanation in found:
        if explanation.rule in ("throttled", "low clock", "disturbed"):
            assert log_ratio < 0


def test_a_throttled_row_of_a_folder_is_explained_by_its_clock(tmp_path):
    rows = timed("ops.csv", operators(40), constant(1.0))
    large = next(i for i, row in enumerate(rows) if row["op"] == "linear" and row["time_s"] > 2e-4)
    rows[large] |= {"time_s": rows[large]["time_s"] * 1.6, "sm_clock_MHz": 1100, "throttled": "power cap"}
    found = compared(read_folder(str(write(tmp_path, {"ops.csv": rows}))), ComparisonOptions())
    row, causes = found.worst[0]
    assert row.line == large + 2
    assert causes[0].rule == "throttled"
    assert "1100 MHz" in causes[0].text


def test_a_step_that_waits_for_its_host_is_explained(tmp_path):
    rows = timed("training.csv", steps(("resnet18",), batch=1), constant(0.6))
    found = compared(read_folder(str(write(tmp_path, {"training.csv": rows}))), ComparisonOptions(topology=TOPOLOGY))
    assert found.worst[0][1][0].rule == "host bound"


def test_a_pass_over_memory_near_the_caches_size_is_explained(tmp_path):
    rows = [
        {"device": DEVICE, "bench": "stream", "kernel": "copy", "bytes": size, "dtype": "fp32", "GBps": rate,
         "time_s": size / rate / 1e9, "trust": "A"}
        for size, rate in ((50_000_000, 2500.0), (4_000_000_000, 2500.0))
    ]  # fmt: skip
    found = compared(read_folder(str(write(tmp_path, {"memory.csv": rows}))), ComparisonOptions(topology=TOPOLOGY))
    said = {row.line: [cause.rule for cause in causes] for row, causes in found.worst}
    assert "near the cache's size" in said.get(2, [])
    assert "near the cache's size" not in said.get(3, [])


# -- drift ---------------------------------------------------------------------------


def _two(tmp_path, factor=1.0, **record):
    rows = timed("ops.csv", operators(30), constant(1.0))
    first = write(tmp_path / "first", {"ops.csv": rows})
    later = [{**row, "time_s": row["time_s"] * factor} for row in rows]
    later[3]["time_s"] *= 1.2
    second = write(tmp_path / "second", {"ops.csv": later[:-2]}, **record)
    return compare_runs(read_folder(str(first)), read_folder(str(second)))


def test_drift_is_the_factor_put_in(tmp_path):
    drift = _two(tmp_path, 1.01)
    whole = drift.classes[0]
    assert (whole.table, whole.matched, whole.beyond) == ("", 28, 1)
    assert whole.median == pytest.approx(0.01, rel=1e-6)
    assert whole.ratio == pytest.approx(1.01, rel=1e-6)
    assert [row.ratio for row in drift.beyond] == [pytest.approx(1.212, rel=1e-6)]
    assert (drift.only_first, drift.only_second, drift.environment) == (2, 0, ())


def test_drift_names_what_differs_in_the_environment(tmp_path):
    changed = {**ENVIRONMENT, "driver": "575.2", "gpu": {**ENVIRONMENT["gpu"], "power_limit_W": 600.0}}
    drift = _two(tmp_path, environment=changed)
    assert drift.environment == (("driver", "570.1", "575.2"), ("gpu.power_limit_W", "not said", "600.0"))


def test_a_higher_bandwidth_is_a_shorter_time(tmp_path):
    def folder(name, rate):
        row = {"machine": "m", "kind": "h2d", "bytes": 1000, "GBps": rate, "trust": "A"}
        return read_folder(str(write(tmp_path / name, {"copies.csv": [row]})))

    drift = compare_runs(folder("a", 10.0), folder("b", 12.5))
    assert drift.beyond[0].ratio == pytest.approx(0.8)


def test_folders_of_nothing_in_common_are_no_fault(tmp_path):
    ops = timed("ops.csv", operators(6), constant(1.0))
    first = read_folder(str(write(tmp_path / "a", {"ops.csv": ops[:3]})))
    second = read_folder(str(write(tmp_path / "b", {"ops.csv": ops[3:]})))
    drift = compare_runs(first, second)
    assert (drift.classes, drift.only_first, drift.only_second) == ((), 3, 3)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=5))
def test_an_environment_does_not_differ_from_itself(environment):
    assert differences(environment, environment) == []


def test_only_rows_of_gpus_are_known_to_be(tmp_path):
    ops = timed("ops.csv", operators(3), constant(1.0))
    folder = read_folder(str(write(tmp_path, {"ops.csv": ops})))
    for part, is_gpu in (("h200-sxm", True), ("epyc-7302", False)):
        scoring = Scoring(ScoringOptions(devices=(f"{DEVICE}={part}",)))
        row = next(row for row in compare_folder(folder, scoring, ("A",)) if row.counts)
        assert account_of(row, scoring.names.session).is_gpu == is_gpu
