"""The fit finds constants that it is shown the effects of, and leaves the others where they were."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simulator.strategies.nccl.cost import DEFAULT_COSTS, EARLIER_COSTS, Costs
from validate.fit.nccl.fit import _START, fit_both, fit_costs, predicted_s
from validate.fit.nccl.observation import Observation

pytest.importorskip("scipy")


def observation(cost: str, size: float, hops: int = 6, launches: int = 1, *, is_recent: bool = False) -> Observation:
    return Observation(
        machine="m",
        group=("m", "large" if size > 1e6 else "small", "all-reduce", "4 GPUs"),
        measured_s=0.0,
        cost=cost,
        launches=launches,
        peer_launches=0,
        hops=hops,
        net_hops=0,
        latency_s=1e-6,
        transfer_s=size / 100e9,
        pcie_s=0.0,
        network_s=0.0,
        is_staged=False,
        gpu_link_s=size / 100e9,
        channel_bytes=size / 12,
        own_s=size / hops / 1e12,
        pace=0.7,
        first=min(1.0, 1e6 / size),
        is_recent=is_recent,
    )


def test_the_fit_finds_what_made_the_times() -> None:
    simple = replace(_START.protocols["Simple"], base_s=20e-6, hop_s=2e-6, share=0.8)
    true = replace(_START, launch_s=9e-6, protocols=_START.protocols | {"Simple": simple})
    rows = [observation("Simple", 2.0**k, hops) for k in range(14, 31) for hops in (2, 6, 14)]
    rows += [observation("Simple", 8.0, 2, launches) for launches in (8, 16)]
    rows = [replace(row, measured_s=t) for row, t in zip(rows, predicted_s(rows, true), strict=True)]
    found = fit_costs(rows)
    assert found.protocols["Simple"].share == pytest.approx(0.8, rel=0.02)
    assert found.protocols["Simple"].base_s == pytest.approx(20e-6, rel=0.1)
    assert found.protocols["Simple"].hop_s == pytest.approx(2e-6, rel=0.1)
    assert found.launch_s == pytest.approx(9e-6, rel=0.05)
    # Nothing was seen of these.
    assert found.protocols["LL"].base_s == pytest.approx(_START.protocols["LL"].base_s, rel=0.05)
    assert found.network_share == pytest.approx(_START.network_share, rel=0.05)


def times(protocol: str, costs: Costs, *, is_recent: bool = False) -> list[Observation]:
    sizes = (2.0**k for k in range(14, 31))
    rows = [observation(protocol, size, hops, is_recent=is_recent) for size in sizes for hops in (2, 6, 14)]
    return [replace(row, measured_s=t) for row, t in zip(rows, predicted_s(rows, costs), strict=True)]


def test_the_fit_finds_what_links_wait_for() -> None:
    nvls = replace(_START.protocols["NVLS"], base_s=40e-6, fill=0.9)
    simple = replace(_START.protocols["Simple"], own_passes=8.0)
    true = replace(_START, protocols=_START.protocols | {"NVLS": nvls, "Simple": simple})
    found = fit_costs([*times("NVLS", true), *times("Simple", true)])
    assert found.protocols["NVLS"].fill == pytest.approx(0.9, rel=0.05)
    assert found.protocols["Simple"].own_passes == pytest.approx(8.0, rel=0.05)
    assert found.protocols["LL128"].own_passes == found.protocols["Simple"].own_passes


def test_recent_versions_are_fitted_apart_and_keep_what_lies_between_machines() -> None:
    low = replace(_START.protocols["LL"], base_s=5e-6)
    recent = replace(_START, protocols=_START.protocols | {"LL": low})
    rows = [*times("LL", _START), *times("LL", recent, is_recent=True)]
    earlier, since = fit_both(rows)
    assert earlier.protocols["LL"].base_s == pytest.approx(10e-6, rel=0.1)
    assert since.protocols["LL"].base_s == pytest.approx(5e-6, rel=0.1)
    assert since.network_share == earlier.network_share
    assert since.protocols["Simple"].net_hop_s == earlier.protocols["Simple"].net_hop_s
    assert fit_both(rows[: len(rows) // 2])[1] == DEFAULT_COSTS
    assert fit_both(rows[len(rows) // 2 :])[0] == EARLIER_COSTS


def in_use_s(observations: list[Observation]) -> list[float]:
    """Return what the constants in use say of each, those of its version."""
    both = (predicted_s(observations, EARLIER_COSTS), predicted_s(observations, DEFAULT_COSTS))
    return [both[o.is_recent][i] for i, o in enumerate(observations)]


@pytest.mark.corpus
def test_the_formula_of_the_fit_is_what_the_engine_does(corpus) -> None:
    """On the constants in use, so that what is fitted is what is simulated."""
    from validate.collectives.predict import Predictor
    from validate.fit.nccl.command import rows_of
    from validate.fit.nccl.observation import observe_all
    from validate.score.machines import MachineBook

    book = MachineBook()
    rows = rows_of(str(corpus / "collectives.csv"), {"A", "B"})[::37]
    predictor = Predictor(book)
    seen = [(query, t) for query, t in rows if observe_all([(query, t)], book)]
    observations = observe_all(seen, book)
    assert len(observations) == len(seen) > 40
    ratios = sorted(
        formula_s / predictor.predict_s(query)
        for (query, _), formula_s in zip(seen, in_use_s(observations), strict=True)
    )
    assert ratios[len(ratios) // 10] == pytest.approx(1, abs=0.001)
    assert ratios[-len(ratios) // 10] == pytest.approx(1, abs=0.001)
    assert all(0.95 < ratio < 1.05 for ratio in ratios)


def test_the_command_names_a_machine_that_is_not_there(tmp_path, capsys) -> None:
    from validate.cli import main

    table = tmp_path / "t.csv"
    table.write_text("machine,n_gpus,collective,bytes,time_s\ndgx-h100,8,all_reduce,1000000,5e-5\n")
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(table), "--hold-out", "dgx-h10"])
    assert stop.value.code == 2
    assert "did you mean 'dgx-h100'?" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(table), "--json"])
    assert stop.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["errors"]["fitted"]["n"] == 1
