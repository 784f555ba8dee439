"""Published times with offload are within 30 % or refused (docs/make_offload.py)."""

from __future__ import annotations

import pytest

from docs.make_offload import SHARE, answered, rows

ROWS = rows()
WHY = (SHARE, "torch's Adam, tensor by tensor", "FSDP's CPUOffload")
_JUDGED = [row for row in ROWS if row["judged"] == "yes"]


def _name(row: dict[str, str]) -> str:
    return f"{row['figure']}-{row['measured_s']}"


@pytest.mark.parametrize("row", _JUDGED, ids=_name)
def test_a_published_time_is_within_30_percent_or_refused(row: dict[str, str]) -> None:
    found, words = answered(row), row["arguments"]
    if found.error is None:
        assert any(why in found.why for why in WHY), found.why
        assert "--bind-cores-to-rank" not in words
    else:
        assert abs(found.error) < 0.3
        assert "--bind-cores-to-rank" in words or row["figure"] == "adam"


def test_the_rest_of_the_rows_says_why_it_is_not_judged() -> None:
    (row,) = [row for row in ROWS if row["judged"] != "yes"]
    assert "does not count as FLOPs, which is not said" in row["note"]
    assert len(_JUDGED) == 30
