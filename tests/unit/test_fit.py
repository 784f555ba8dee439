"""The fit finds constants that it is shown the effects of, and leaves the others where they were."""

from __future__ import annotations

import json

import pytest

from validate.fit.fit import _START, fit_costs, predicted_s
from validate.fit.observation import Observation

pytest.importorskip("scipy")


def observation(cost: str, size: float, hops: int = 6, launches: int = 1) -> Observation:
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
    )


def test_the_fit_finds_what_made_the_times() -> None:
    from dataclasses import replace

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


@pytest.mark.corpus
def test_the_formula_of_the_fit_is_what_the_engine_does(corpus) -> None:
    """On the constants in use, so that what is fitted is what is simulated."""
    from simulator.strategies.nccl.cost import DEFAULT_COSTS
    from validate.fit.command import rows_of
    from validate.fit.observation import observe_all
    from validate.score.machines import MachineBook
    from validate.score.predict import Predictor

    book = MachineBook()
    rows = rows_of(str(corpus / "collectives.csv"), {"A", "B"})[::37]
    predictor = Predictor(book)
    seen = [(query, t) for query, t in rows if observe_all([(query, t)], book)]
    observations = observe_all(seen, book)
    assert len(observations) == len(seen) > 40
    ratios = sorted(
        formula_s / predictor.predict_s(query)
        for (query, _), formula_s in zip(seen, predicted_s(observations, DEFAULT_COSTS), strict=True)
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
