"""The choice of calibration rows depends on their questions and not on their times."""

from hypothesis import given
from hypothesis import strategies as st

from validate.tables.statistics import digest, sampled_digests

NAMES = st.sampled_from(["device", "op", "m", "n", "k", "rows"])
ASKED = st.dictionaries(NAMES, st.text(max_size=6))


def plain(asked):
    return {name: text.strip() for name, text in asked.items() if text.strip()}


@given(one=ASKED, other=ASKED)
def test_equal_questions_alone_have_equal_digests(one, other):
    assert (digest(one) == digest(other)) == (plain(one) == plain(other))


@given(asked=ASKED, data=st.data())
def test_order_and_blanks_do_not_matter(asked, data):
    names = data.draw(st.permutations(list(asked)))
    assert digest({name: f" {asked[name]}\t" for name in names}) == digest(asked)


@given(digests=st.lists(st.text("0123456789abcdef", min_size=1, max_size=4)), count=st.integers(1, 30), data=st.data())
def test_the_choice_depends_on_the_set_alone(digests, count, data):
    chosen = sampled_digests(digests, count)
    assert chosen == sampled_digests(data.draw(st.permutations(digests)) + digests, count)
    assert chosen <= set(digests)
    assert len(chosen) == min(count, len(set(digests)) // 2)


@given(digests=st.sets(st.text("0123456789abcdef", min_size=1, max_size=4)), count=st.integers(1, 30))
def test_more_rows_keep_those_chosen_before(digests, count):
    assert sampled_digests(digests, count) <= sampled_digests(digests, count + 1)
