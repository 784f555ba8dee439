"""Single memory accesses: the level that serves them, the cost of their addresses, banks and strides."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from simulator.api import Session
from simulator.constants import DEFAULT
from simulator.errors import InputError
from simulator.host.latency import chase, cyclic_share, kept_share, memory_place
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.topology.load import topology_from_text
from simulator.topology.parts import CpuPart

TEXTBOOK = """
schema_version: 1
name: textbook
parts:
  core:
    kind: cpu
    core_count: 1
    clock: 2 GHz
    vector_bits: 256
    flop_per_cycle: {fp32: 16}
    memory_bandwidth: 40 GB/s
    core_bandwidth: 40 GB/s
    memory_latency: 100 ns
    dram: {banks: 4, channels: 4, interleave: 64 B}
devices:
  cpu0: {part: core}
"""
PAGED = CpuPart(
    kind="cpu",
    memory_latency="80 ns",
    caches={
        "l1": {"size": "32 KiB", "latency": "1 ns"},
        "l2": {"size": "256 KiB", "latency": "4 ns"},
        "l3": {"size": "32 MiB", "latency": "16 ns"},
    },
    tlb={
        "l1": {"entries": 64, "large_entries": 32},
        "l2": {"entries": 1024, "large_entries": 1024, "latency": "2 ns"},
    },
)
SERVER = "cpu-2xe5-2690v4"


@pytest.fixture(scope="module")
def session() -> Session:
    made = Session()
    made.know(Where("textbook"), topology_from_text(TEXTBOOK))
    return made


def seconds(session: Session, words: str, topology: str = "textbook", device: str | None = None) -> float:
    return session.time_s(parse_question(f"access:{words}", Where(topology), device))


# -- the textbook's memory --------------------------------------------------------------------------------------------


def test_random_words_cost_five_hundred_times_words_in_a_row(session) -> None:
    apart, in_a_row = seconds(session, "random,64GiB"), seconds(session, "strided,64GiB,stride=8B")
    assert apart == pytest.approx(100e-9)
    assert in_a_row == pytest.approx(0.2e-9)
    assert apart / in_a_row == pytest.approx(500)


def test_words_behind_the_first_come_at_the_rate_of_memory(session) -> None:
    assert seconds(session, "random,64GiB,each=64B") == pytest.approx(100e-9 + 7 * 0.2e-9)
    assert seconds(session, "random,64GiB,each=8KiB") == pytest.approx(100e-9 + 1023 * 0.2e-9)


@pytest.mark.parametrize(("outstanding", "faster"), [(1, 1), (2, 2), (4, 4), (5, 4), (16, 4)])
def test_as_many_are_served_at_once_as_there_are_banks(session, outstanding, faster) -> None:
    alone = seconds(session, "random,64GiB")
    assert alone / seconds(session, f"random,64GiB,outstanding={outstanding}") == pytest.approx(faster)


def test_a_misaligned_word_takes_two_of_the_bus(session) -> None:
    crossing = 8 / 64
    expected = 100e-9 + crossing * 0.2e-9
    assert seconds(session, "random,64GiB,misaligned") == pytest.approx(expected)
    assert seconds(session, "strided,64GiB,stride=64B,misaligned") == pytest.approx((1 + crossing) * 64 / 40e9)


@pytest.mark.parametrize(("lines", "slower"), [(1, 1), (2, 2), (3, 1), (4, 4), (8, 4), (6, 2)])
def test_a_stride_meets_as_many_channels_as_it_has_no_common_factor_with(session, lines, slower) -> None:
    fastest = seconds(session, "strided,64GiB,stride=64B")
    assert seconds(session, f"strided,64GiB,stride={64 * lines}B") / fastest == pytest.approx(slower)


def test_backward_is_as_fast_as_forward_and_far_strides_wait(session) -> None:
    for stride in ("8B", "256B", "64KiB"):
        assert seconds(session, f"strided,64GiB,stride={stride},backward") == seconds(
            session, f"strided,64GiB,stride={stride}"
        )
    most = 16  # lines in flight per core
    far = seconds(session, "strided,64GiB,stride=16448B")  # not a multiple of four lines
    assert far == pytest.approx(100e-9 / most)


# -- levels and translation --------------------------------------------------------------------------------------------


def test_translation_costs_nothing_where_a_buffer_reaches_and_a_walk_beyond() -> None:
    memory = memory_place(PAGED)
    assert chase(PAGED, 64 * 4096, memory).translation_s == 0.0
    second = chase(PAGED, 1024 * 4096, memory)
    assert second.translation_s == pytest.approx((1 - 64 / 1024) * 2e-9)
    assert second.walked == 0.0
    beyond = chase(PAGED, 4096 * 4096, memory)
    assert beyond.walked == pytest.approx(0.75)
    known_s = (1024 - 64) / 4096 * 2e-9
    assert known_s + 0.75 * 1e-9 < beyond.translation_s < known_s + 0.75 * 4e-9  # page table entries are in L1 and L2


def test_large_pages_reach_farther() -> None:
    memory = memory_place(PAGED)
    small, large = (chase(PAGED, 256 << 20, memory, page) for page in (4096.0, float(2 << 20)))
    assert large.data_s == small.data_s
    assert large.walked == 0.0
    assert large.translation_s == pytest.approx((1 - 32 / 128) * 2e-9)
    assert small.translation_s > 4 * large.translation_s


def test_without_buffers_addresses_cost_nothing() -> None:
    bare = PAGED.model_copy(update={"tlb": {}})
    assert chase(bare, 1 << 34, memory_place(bare)).translation_s == 0.0


def test_memory_farther_away_adds_its_hop_for_each_load_that_it_serves() -> None:
    near, far = (chase(PAGED, 64 << 20, memory_place(PAGED, extra)) for extra in (0.0, 40e-9))
    assert far.data_s - near.data_s == pytest.approx(0.5 * 40e-9)


@pytest.mark.parametrize("page", [4096.0, float(2 << 20)])
def test_more_memory_never_answers_sooner(page: float) -> None:
    memory = memory_place(PAGED)
    found = [chase(PAGED, float(1 << exponent), memory, page) for exponent in range(12, 38)]
    for less, more in pairwise(found):
        assert more.latency_s >= less.latency_s * (1 - 1e-12)
        assert math.isclose(sum(stage.share for stage in more.stages), 1.0)


def test_a_cache_keeps_what_is_used_more_often_as_a_cache_that_is_played_does() -> None:
    lines, hot, cold = 256, 128, 4096
    chance, order, hits = random.Random(1), dict.fromkeys(range(lines)), 0
    order.clear()
    rounds = 40_000
    for i in range(rounds):
        for name in (("hot", chance.randrange(hot)), ("cold", chance.randrange(cold))):
            found = name in order
            if found:
                del order[name]
            elif len(order) == lines:
                del order[next(iter(order))]
            order[name] = None
            hits += found and name[0] == "hot" and i > rounds // 2
    played = hits / (rounds - rounds // 2 - 1)
    assert kept_share(lines, hot, (hot, cold)) == pytest.approx(played, abs=0.01)


def test_what_fits_stays() -> None:
    assert kept_share(100, 60, (60, 40)) == 1.0


# -- machines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "published_ns"),
    [  # Eshelman's table, Dive into Deep Learning, section 13.4; 256 MB local is the source of the part's latency
        ("chase,16KiB", 1.5),
        ("chase,128KiB", 5),
        ("chase,16MiB", 16),
        ("chase,64MiB", 46),
        ("chase,64MiB,node=remote", 70),
        ("chase,64MiB,node=cpu1", 70),
        ("chase,256MiB", 75),
        ("chase,256MiB,node=remote", 120),
    ],
)
def test_a_server_answers_as_published(session, words, published_ns) -> None:
    assert seconds(session, words, SERVER) * 1e9 == pytest.approx(published_ns, rel=0.2)


@pytest.mark.parametrize(
    ("words", "expected_ns"),
    [
        ("shared,64B,cores=1", 1.5),
        ("shared,64B", 29),
        ("shared,64B,state=unchanged", 25),
        ("shared,64B,node=remote", 40),
        ("shared,128B", 1.5),
        ("shared,64B,cores=4", 29),
        ("shared,256B,cores=4", 1.5),
    ],
)
def test_cores_wait_for_a_line_that_they_share_and_not_for_their_own(session, words, expected_ns) -> None:
    assert seconds(session, words, SERVER) == pytest.approx(expected_ns * 1e-9)


def test_vector_units_want_what_memory_does_not_give(session) -> None:
    answer = session.answer(parse_question("access:stream,1GiB", Where("generic-desktop-cpu")))
    assert answer.figures["wanted_Bps"] == pytest.approx(4 * 2e9 * 32)
    assert answer.figures["given_Bps"] == pytest.approx(33e9)
    assert answer.figures["reuse"] == pytest.approx(256 / 33)
    assert answer.bound == "memory bandwidth"
    fits = session.answer(parse_question("access:stream,64KiB", Where("generic-desktop-cpu")))
    assert fits.bound == "cache bandwidth"


def test_the_other_sockets_memory_gives_no_more_than_the_link(session) -> None:
    near, far = (seconds(session, f"stream,8GiB{more}", SERVER) for more in ("", ",node=remote"))
    assert far >= (8 << 30) / 38.4e9 > near


def test_a_gpu_answers_by_the_level_that_holds_the_set(session) -> None:
    l40 = {size: seconds(session, f"chase,{size}", "l40") for size in ("64KiB", "16MiB", "64GiB")}
    assert l40["64KiB"] == pytest.approx(13.7e-9, rel=0.01)
    assert l40["16MiB"] == pytest.approx(110e-9, rel=0.01)
    assert l40["64GiB"] == pytest.approx(244e-9, rel=0.01)
    assert seconds(session, "chase,32KiB,level=scratchpad", "v100-sxm2-16gb") == pytest.approx(13.8e-9)


def test_loads_in_one_order_find_nothing_in_a_cache_that_they_outgrow(session) -> None:
    v100 = session.answer(parse_question("access:chase,221184B", Where("v100-sxm2-16gb"))).figures
    assert v100.get("l1_share", 0.0) < 0.03  # 214 cycles, those of L2 (te42kyfo/gpu-benches)


def test_beyond_its_half_of_the_cache_an_sm_waits_for_both_halves(session) -> None:
    near, far, memory = (seconds(session, f"chase,{size}", "a100-sxm4-40gb") for size in ("8MiB", "30MiB", "1GiB"))
    assert far == pytest.approx(2 * near, rel=0.02)  # 425 and 213 cycles, and 574 of memory (te42kyfo/gpu-benches)
    assert near < far < memory
    whole = seconds(session, "chase,80MiB", "l40")  # GDDR: of 96 MiB
    assert whole == pytest.approx(seconds(session, "chase,8MiB", "l40"), rel=0.2)


def test_few_threads_draw_what_littles_law_says_and_many_what_memory_gives(session) -> None:
    full = seconds(session, "stream,4GiB", "a40")
    few = seconds(session, "stream,4GiB,resident=2688", "a40")
    assert few == pytest.approx((4 << 30) / (2688 * 8 / 315e-9), rel=0.01)
    assert seconds(session, "stream,4GiB,resident=10000000", "a40") == pytest.approx(full, rel=1e-3)


def test_small_blocks_are_begun_one_after_the_other(session) -> None:
    small, large = (seconds(session, f"stream,8MiB,writes=1,block-threads={n}", "a100-sxm4-80gb") for n in (4, 1024))
    blocks = (8 << 20) / 16 / 4
    assert small == pytest.approx(blocks / (DEFAULT["memory"].blocks_per_clock * 1.41e9))
    assert large == seconds(session, "stream,8MiB,writes=1", "a100-sxm4-80gb")


@pytest.mark.parametrize(
    ("words", "topology", "message"),
    [
        ("chase,1GiB,node=remote", "generic-desktop-cpu", "has no second socket"),
        ("chase,1GiB,node=cpu7", SERVER, "has no such memory; did you mean 'cpu1'"),
        ("random,4KiB,each=8KiB", SERVER, "more than all of the memory"),
        ("random,1GiB,outstanding=0", SERVER, "outstanding is at least 1; got 0"),
        ("strided,4KiB,stride=8KiB", SERVER, "more than all of the memory"),
        ("shared,64B,cores=15", SERVER, "the socket has 14; node=remote"),
        ("shared,64B,cores=0", SERVER, "cores is at least 1; got 0"),
        ("shared,64B", "2 x xeon-gold-6230", "the part has no line_moves"),
        ("random,1GiB", "l40", "access:random runs on a CPU"),
        ("stream,1GiB,node=remote", "l40", "a GPU's accesses are to its own memory"),
        ("chase,1GiB", "rtx-4090", "the part has no l1_latency and no l2_latency"),
        ("chase,1MiB,level=scratchpad", "v100-sxm2-16gb", "a multiprocessor has 98.3 kB of shared memory"),
        ("gather,1GiB", SERVER, "gather needs rows and row"),
        (
            "stream,1GiB,stride=8KiB",
            SERVER,
            "access:stream of a CPU does not read stride; it reads element, node, reads",
        ),
        ("chase,1GiB,resident=4", SERVER, "access:chase of a CPU does not read resident; it reads node, page"),
        ("chase,1GiB,page=2MiB", "l40", "access:chase of a GPU does not read page; it reads level"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_can(session, words, topology, message) -> None:
    with pytest.raises(InputError, match=message):
        seconds(session, words, topology)


def with_neighbours(rate_Bps: float) -> CpuPart:
    last = PAGED.caches["l3"].model_copy(update={"neighbours": rate_Bps})
    return PAGED.model_copy(update={"caches": {**PAGED.caches, "l3": last}})


def test_neighbours_push_out_what_waits_long_before_it_is_used_again() -> None:
    memory = memory_place(PAGED)
    for size in (4 << 20, 16 << 20, 64 << 20):
        alone, few, many = (chase(part, size, memory) for part in (PAGED, with_neighbours(1e9), with_neighbours(10e9)))
        assert alone.data_s <= few.data_s <= many.data_s
        assert alone.translation_s == few.translation_s
    half = chase(with_neighbours(10e9), 16 << 20, memory)
    assert half.missed > 0.5 > chase(PAGED, 16 << 20, memory).missed
    # The cache keeps the walk's own share of all the data that arrive during one round.
    own_Bps = 64 / half.data_s
    kept = next(stage.share for stage in half.stages if stage.name == "l3") * (16 << 20) + (256 << 10)
    assert kept == pytest.approx((32 << 20) * own_Bps / (own_Bps + 10e9), rel=1e-3)


def test_a_guests_addresses_are_translated_twice() -> None:
    memory = memory_place(PAGED)
    nested = PAGED.model_copy(update={"nested_page": 4096.0})
    large = PAGED.model_copy(update={"nested_page": float(2 << 20)})
    size = 1 << 30
    once, twice, nearly = (chase(part, size, memory) for part in (PAGED, nested, large))
    assert once.translation_s < nearly.translation_s < twice.translation_s
    assert chase(nested, 128 << 10, memory) == chase(PAGED, 128 << 10, memory)  # the TLB covers all pages


def walked_in_turn(lines: int, sets: int, ways: int, lines_of_page: int, seed: int) -> float:
    """Return the hit rate of a cyclic walk over *lines* lines in a cache that evicts the oldest line.

    Pages lie at random addresses; a line's set follows from its address.
    """
    draw = random.Random(seed)
    pages = -(-lines // lines_of_page)
    place = draw.sample(range(64 * pages), pages)
    order = [place[line // lines_of_page] * lines_of_page + line % lines_of_page for line in range(lines)]
    draw.shuffle(order)
    kept: list[list[int]] = [[] for _ in range(sets)]
    hits = 0
    for turn in range(2):
        for line in order:
            mine = kept[line % sets]
            if line in mine:
                hits += turn
                mine.remove(line)
            mine.append(line)
            del mine[:-ways]
    return hits / lines


@pytest.mark.parametrize("filled", [0.25, 0.5, 0.75, 1.0, 1.25])
def test_a_walk_in_turn_keeps_what_a_cache_that_drops_the_oldest_keeps(filled: float) -> None:
    sets, ways, lines_of_page = 512, 8, 16
    size = sets * ways * 64
    lines = int(filled * sets * ways)
    told = cyclic_share(size, ways, lines * 64.0, lines_of_page * 64.0)
    found = sum(walked_in_turn(lines, sets, ways, lines_of_page, seed) for seed in range(4)) / 4
    assert told == pytest.approx(found, abs=0.08)


def test_lines_in_a_row_fit_until_the_cache_is_full() -> None:
    assert cyclic_share(32768, 8, 32768, math.inf) == 1.0
    assert cyclic_share(32768, 8, 32768 * 17 / 16, math.inf) == pytest.approx(0.5)
    assert cyclic_share(32768, 8, 65536, math.inf) == 0.0
    assert cyclic_share(32768, 8, 65536, 4096.0) == 0.0  # a way is as large as a page
    assert walked_in_turn(64 * 8, 64, 8, 1024, 0) == 1.0
    assert walked_in_turn(64 * 16, 64, 8, 1024, 0) == 0.0


def test_a_chase_goes_in_turn_and_random_places_do_not(session) -> None:
    size = 64 << 10  # twice the size of the first level
    chased = session.answer(parse_question(f"access:chase,{size}B", Where(SERVER)))
    alone = session.answer(parse_question(f"access:random,{size}B,each=8B,outstanding=1", Where(SERVER)))
    assert chased.figures.get("l1_share", 0.0) == 0.0
    assert alone.figures["l1_share"] == pytest.approx(0.5)
    memory = memory_place(PAGED)
    one, other = (chase(PAGED, 256 << 10, memory, page, is_cyclic=True) for page in (4096.0, float(2 << 20)))
    assert one.data_s > other.data_s  # small pages conflict with each other in the second level
    assert chase(PAGED, 48 << 20, memory, is_cyclic=True).missed == pytest.approx(1 - 32 / 48)


def test_a_kernel_that_stays_waits_for_a_barrier_and_starts_only_once(session) -> None:
    card = "rx-6900-xt"
    stays_s = seconds(session, "stream,64KiB,writes=1,block-threads=1024,persistent", card)
    assert stays_s == pytest.approx(0.6e-6, rel=0.25)  # 0.59 us (te42kyfo/gpu-benches, a barrier by atomics)
    assert stays_s < DEFAULT["memory"].start_s < seconds(session, "stream,64KiB,writes=1", card)
