"""Gradients that are parts of DistributedDataParallel's buckets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where


def test_they_take_memory_once_and_are_not_copied_out() -> None:
    """Of 4 bytes a parameter; the largest gradient is there for itself until it is copied in."""
    session = Session()
    plain = StepQuestion(where=Where("p3.16xlarge"), workload="alexnet", batch=1)
    before, after = session.step(plain), session.step(replace(plain, bucket_views=True))
    trained = [p.elements for p in session.network(plain).parameters if p.trained]
    saved = before.tightest.need.allocated_bytes - after.tightest.need.allocated_bytes
    assert saved == pytest.approx(4 * (sum(trained) - max(trained)), rel=0.01)
    assert after.step_time_s < before.step_time_s
