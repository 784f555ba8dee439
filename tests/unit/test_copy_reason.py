"""What bounds a copy, and what bounds a launch."""

from __future__ import annotations

import pytest

from simulator.api import Session
from simulator.questions.where import Where
from simulator.questions.words import parse_question

SESSION = Session()


def _answer(words: str, machine: str = "p3.8xlarge"):
    return SESSION.answer(parse_question(words, Where(machine)))


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ("copy:h2d,144MB", "link plx0->gpu0"),
        ("copy:p2p,144MB,dst=1", "link gpu0->gpu1"),
        ("copy:h2d,4B", "start of the copy engine"),
        ("copy:h2d,4B,waited", "the host's call and wait"),
        ("copy:d2h,144MB,pinned=no", "the host's thread that copies"),
        ("copy:d2h,144MB,pinned=no,fresh", "page faults of the host"),
        ("copy:h2h,144MB,fresh", "page faults of the host"),
        ("copy:h2h,1GB", "memory bandwidth"),
        ("copy:d2d,1GB", "memory bandwidth"),
        ("copy:d2d,4B", "the host's call"),
        ("launch:stream,op=elementwise,function=relu,elements=64", "issuing"),
        ("launch:stream,op=elementwise,function=relu,elements=64000000", "kernels"),
        ("launch:host,op=elementwise,function=relu,elements=64", "the host, which issues"),
        ("launch:host,call=view", "the host's call"),
    ],
)
def test_a_copy_and_a_launch_say_what_bounds_them(words: str, bound: str) -> None:
    assert _answer(words).bound == bound


def test_what_a_large_copy_gets_is_what_its_slowest_part_gives() -> None:
    pinned = _answer("copy:h2d,1GB").figures
    assert pinned["bandwidth_Bps"] == pytest.approx(pinned["link_Bps"], rel=1e-3)
    pageable = _answer("copy:h2d,1GB,pinned=no").figures
    assert pageable["bandwidth_Bps"] == pytest.approx(pageable["thread_Bps"], rel=1e-3)
    assert pageable["thread_Bps"] < pageable["link_Bps"]


def test_a_word_that_is_not_known_is_answered_with_those_that_are() -> None:
    with pytest.raises(Exception, match=r"there is no 'pageable'; allowed: both-ways, d2d, .*, pinned, "):
        parse_question("copy:d2h,1MB,pageable", Where("p3.8xlarge"))
