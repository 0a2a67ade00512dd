"""Proposals for numbers and dates: bounds and fills that many people support; by people, and not by rows."""

from collections import defaultdict
from datetime import date, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from expunge.tables.kinds import Boolean, Date, Ignore, Number
from expunge.tables.proposal import draft_schema, propose_schema, summaries
from expunge.tables.proposal.ranges import round_to_step
from expunge.tables.schema import Schema


def proposed(x, *, ids=None, people=10):
    """What is proposed for a column x, and its note."""
    table = pa.table({"y": np.zeros(len(x)), "n": np.zeros(len(x)), "x": x})
    table = table if ids is None else table.append_column("who", pa.array(ids))
    text = propose_schema(table, target="y", id=None if ids is None else "who", people=people)
    before = text[: text.index("[columns.x]")].rstrip("\n").splitlines()[-1]
    return dict(Schema.parse(text).columns)["x"], before.removeprefix("# ") if before.startswith("# ") else ""


# What is kept of a column

rows = st.lists(st.tuples(st.integers(0, 12), st.integers(-9, 9) | st.none()), min_size=1, max_size=60)


def in_batches(rows, cuts, keep):
    """Show rows to something that keeps values, in batches; return the hashes of all rows, too."""
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = []
    for first, end in pairwise(ends):
        ids = pa.array([str(who) for who, _ in rows[first:end]], pa.large_string())
        owners = summaries.SampleOwners.from_ids(ids, first, end - first)
        values = np.array([np.nan if value is None else value for _, value in rows[first:end]], dtype=float)
        keep(values, owners)
        parts.append(owners)
    return [
        hashes for part in parts for hashes in zip(part.person_hashes.tolist(), part.row_hashes.tolist(), strict=True)
    ]


@settings(max_examples=200)
@given(rows, st.lists(st.integers(1, 59)), st.integers(1, 14))
def test_a_sample_has_one_value_of_each_of_the_people_with_the_least_hashes(rows, cuts, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "SAMPLE_SIZE", size)
        sample = summaries.ColumnSample()
        hashes = in_batches(rows, cuts, sample.add)
        first = {}
        for (person, turn), (_, value) in zip(hashes, rows, strict=True):
            if value is not None and turn < first.get(person, (2**64, 0))[0]:
                first[person] = turn, value
        expected = sorted(value for _, (_, value) in sorted(first.items())[:size])
        assert sample.values().tolist() == expected
        if len(first) < size:
            assert sample.people() == len(first)
    assert len(dict(hashes)) == len({who for who, _ in rows})


@settings(max_examples=200)
@given(rows, st.lists(st.integers(1, 59)), st.integers(1, 6), st.sampled_from([-1, 1]))
def test_an_end_has_the_most_extreme_value_of_each_of_the_most_extreme_people(rows, cuts, most, sign):
    rows = [(who, value or 0) for who, value in rows]
    end = summaries.Extremes(most, sign)
    in_batches(rows, cuts, end.add)
    best = defaultdict(lambda: -np.inf)
    for who, value in rows:
        best[who] = max(best[who], sign * value)
    ordered = sorted(best.values(), reverse=True)
    for k in range(most + 2):
        assert end.value_beyond(k) == sign * ordered[min(k, most - 1, len(ordered) - 1)]


@pytest.mark.parametrize("people", [4_000, 50_000])
def test_a_sample_knows_about_how_many_people_there_are_and_where_their_quantiles_are(people):
    sample = summaries.ColumnSample()
    for first in range(0, people, 1000):
        sample.add(np.arange(first, first + 1000.0), summaries.SampleOwners.from_ids(None, first, 1000))
    assert abs(sample.people() / people - 1) < (0.05 if people > summaries.SAMPLE_SIZE else 1e-9)
    values = sample.values()
    assert len(values) == min(people, summaries.SAMPLE_SIZE)
    parts = np.arange(1, 10) / 10
    assert np.abs(np.quantile(values, parts) / people - parts).max() < 4 * 0.5 * summaries.SAMPLE_SIZE**-0.5


def test_the_order_of_the_rows_of_different_people_changes_nothing(rng):
    values = rng.gamma(2.0, 10.0, 500)
    ids = np.array([f"person-{k}" for k in range(500)])
    order = rng.permutation(500)
    assert proposed(values, ids=ids) == proposed(values[order], ids=ids[order])


# Fills


def test_the_fill_is_the_median_of_people_and_not_of_rows_and_not_the_middle(rng):
    delays = np.where(rng.random(5_000) < 0.9, rng.normal(-2, 5, 5_000), rng.uniform(0, 1_400, 5_000)).round()
    kind, _ = proposed(pa.array([None, *delays]))
    assert abs(kind.fill - np.median(delays)) <= 5
    often = np.concatenate([np.zeros(300), np.full(10_000, 100.0)])  # one has a hundred ten thousand times
    ids = [*range(300), *[300] * 10_000]
    assert proposed(pa.array([*often, None]), ids=[*ids, 7])[0] == Number(0, 0, 0, clip=True)
    assert proposed(pa.array([*often, None]))[0].fill == 100  # the rows are nobody's: each counts
    assert proposed(often, ids=ids)[0].fill is None


def test_somebody_with_many_rows_counts_with_any_of_them():
    years = np.tile(np.arange(2000.0, 2021.0), 400)  # everybody's first year is 2000
    kind, _ = proposed(pa.array([*years, None]), ids=[*np.repeat(np.arange(400), 21), 0])
    assert abs(kind.fill - 2010) <= 2


@pytest.mark.parametrize(
    ("value", "span", "rounded"),
    [
        (1234.567, 10, 1235),
        (1234.567, 19, 1235),
        (1234.567, 20, 1234),
        (1234.567, 50, 1235),
        (1234.567, 100, 1230),
        (1234.567, 1000, 1200),
        (1234.567, 0.01, 1234.567),
        (-0.4, 10, 0),
        (3e-300, 1e-299, 3e-300),
        (7, 0, 7),
    ],
)
def test_numbers_are_rounded_to_one_two_or_five_of_which_ten_to_25_fit_into_the_span(value, span, rounded):
    assert round_to_step(value, span) == rounded


def test_a_fill_is_within_the_bounds_and_needs_twice_as_many_people():
    assert proposed(pa.array([0.7] * 40 + [None]))[0] == Number(0.7, 0.7, 0.7, clip=True)
    assert proposed(pa.array([0.7] * 20 + [None]))[0] == Number(fill=0.7)
    kind, note = proposed(pa.array([0.7] * 19 + [None]))
    assert (kind, note) == (Ignore(), "has gaps, and fewer than 20 people (or rows) have a value")
    kind, _ = proposed(pa.array([date(2020, 5, 20)] * 30 + [date(2023, 12, 7)] * 30 + [None]))
    assert kind == Date(datetime(2020, 1, 1), datetime(2027, 12, 31), datetime(2020, 5, 1), clip=True)


def test_the_fill_of_true_and_false_is_what_more_people_have():
    cells = pa.array([True, True, True, False, False, None])
    assert proposed(cells, people=2)[0] == Boolean(True)
    assert proposed(cells, ids=[1, 1, 1, 2, 3, 4], people=1)[0] == Boolean(False)
    assert proposed(cells)[0] == Ignore()
    assert proposed(pa.array([True, False]))[0] == Boolean()


# Bounds


def spread(rng, n=2_000):
    return rng.uniform(0, 10, n).round(3)


@pytest.mark.parametrize(
    ("far", "high"),
    [
        ([], 11),
        ([1e9], 11),
        ([-1e9] * 9, 11),
        ([25.0] * 9 + [-25.0] * 9, 11),
        ([25.0] * 11, 95),  # so many people have it: the tail may go on
    ],
)
def test_a_few_people_do_not_stretch_the_bounds(rng, far, high):
    kind, note = proposed(np.concatenate([spread(rng), far]))
    assert (kind.low, kind.clip, note) == (0, True, "")
    assert 10 <= kind.high <= high


def test_one_person_with_many_rows_far_outside_is_one_person(rng):
    values = np.concatenate([spread(rng), np.full(50, 1e6)])
    kind, _ = proposed(values, ids=[*range(2_000), *[0] * 50])
    assert (kind.low, kind.clip) == (0, True)
    assert kind.high <= 11


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [40, 100, 1_000, 20_000])
@pytest.mark.parametrize("draw", ["normal", "uniform", "exponential", "gamma"])
def test_nearly_everybody_is_inside(draw, n, seed):
    rng = np.random.default_rng(seed)
    values = rng.gamma(2.0, 3.0, n) if draw == "gamma" else getattr(rng, draw)(size=n)
    kind, _ = proposed(values)
    outside = ((values < kind.low) | (values > kind.high)).sum()
    assert outside <= (1 if n > 40 else 4)
    assert kind.high - kind.low < (4 if n > 40 else 12) * np.ptp(values)  # and not for the price of a range of nothing


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0, 1], 0, 1),
        ([1, 2, 3, 4, 5], 1, 5),
        ([-3, 7], -3, 7),
        ([18, 97], 15, 100),
        ([0.1234, 0.5678], 0.12, 0.58),
        ([12345.0], 12000, 13000),
        ([1e300, 2.34e300], 1e300, 2.4e300),
        ([-8, -5], -8, -5),
    ],
)
def test_values_that_many_share_are_the_bounds_rounded_outward(values, low, high):
    kind, _ = proposed(np.repeat(np.array(values, dtype=float), 20))
    if len(values) > 1:
        assert (kind.low, kind.high) == (low, high)
    kind, _ = proposed(np.concatenate([np.repeat(np.array(values, dtype=float), 40), [1e301] * 2]))
    assert (kind.low, kind.high) == (low, high)


def test_with_too_few_people_the_bounds_are_observed():
    kind, note = proposed(np.arange(39.0))
    assert kind == Number()
    assert "so the bounds are observed" in note
    assert proposed(np.arange(40.0))[0].clip


def test_what_is_never_negative_gets_no_negative_bound(rng):
    values = rng.exponential(5, 3_000)
    assert proposed(values)[0].low == 0
    assert proposed(-values)[0].high == 0
    assert proposed(rng.normal(0, 1, 3_000))[0].low < -3


def test_dates_leave_room_for_the_time_to_come_and_are_not_stretched_by_a_few():
    days = [date(2020, 1, 1) + timedelta(days=k % 700) for k in range(2_000)]  # to the end of November 2021
    kind, _ = proposed(pa.array([*days, date(9999, 12, 31), date(1900, 1, 1)]))
    assert (kind.low, kind.high, kind.clip) == (datetime(2019, 11, 1), datetime(2023, 12, 31), True)
    born = [date(1930, 1, 1) + timedelta(days=17 * k % 27_000) for k in range(2_000)]
    kind, _ = proposed(pa.array(born))
    assert kind.low.year < 1930
    assert (kind.high.month, kind.high.day) == (12, 31)
    assert kind.high >= datetime(2003 + 5, 12, 31)


def test_dates_beyond_the_calendar_are_clipped_or_observed():
    usual = [date(2020, 1, 1)] * 50
    far = pa.array([(day - date(1970, 1, 1)).days for day in usual] + [10**7], pa.int32()).cast(pa.date32())
    assert proposed(far)[0] == Date(datetime(2020, 1, 1), datetime(2021, 12, 31), clip=True)
    assert proposed(pa.array([10**7] * 50, pa.int32()).cast(pa.date32()))[0] == Date()
    assert proposed(pa.array([date(9999, 1, 1)] * 50))[0].high.year == 9999


def test_no_scale_is_proposed(rng):
    for values in (np.exp(rng.normal(10, 1, 3_000)), rng.normal(0, 100, 3_000), rng.poisson(3, 3_000)):
        assert proposed(values)[0].scale is None


def test_a_target_has_bounds_like_an_input_and_notes_say_who_is_outside(rng):
    table = pa.table({"y": [*spread(rng), 1e6], "x": [-1e6, *spread(rng, 2_000)]})
    draft = draft_schema(table, target="y")
    kinds = dict(Schema.parse(draft.text).columns)
    assert all(kind.clip and kind.low == 0 and kind.high <= 11 for kind in kinds.values())
    assert [note.split(";")[0] for note in draft.notes] == [
        f"column '{name}': 1 row has values outside the proposed bounds" for name in "yx"
    ]
    assert "1e6" not in draft.text
    assert "1000000" not in draft.text + str(draft.notes)


# No number is one person's


@st.composite
def shared_tables(draw):
    """Tables in which at least twelve people have each value; a person may have several rows."""
    n_values = draw(st.integers(1, 12))
    numbers = st.one_of(st.integers(-1000, 1000).map(float), st.floats(-1e6, 1e6))
    values = draw(st.lists(numbers, min_size=n_values, max_size=n_values, unique=True))
    times = draw(st.lists(st.integers(12, 30), min_size=n_values, max_size=n_values))
    cells = np.repeat(values, times)
    assume(len(cells) >= 45)
    gaps = draw(st.integers(0, 3))
    words = np.array(["a", "b", "c"])[np.arange(len(cells) + gaps) % 3]
    people = [f"p{k}" for k in range(len(cells) + gaps)]
    table = pa.table(
        {
            "who": people,
            "y": np.append(cells, np.full(gaps, cells[0])),
            "x": pa.array([*cells, *[None] * gaps]),
            "w": words,
        }
    )
    return pa.concat_tables([table, table.slice(0, draw(st.integers(0, 20)))])


@settings(max_examples=100, deadline=None)
@given(shared_tables(), st.data())
def test_a_person_more_or_less_changes_no_letter_but_of_a_median(table, data):
    who = table["who"].to_pylist()
    gone = data.draw(st.sampled_from(sorted(set(who))))
    without = table.filter(pa.array([person != gone for person in who]))
    assume(bool(table["x"].null_count) == bool(without["x"].null_count))
    before, after = (
        [line for line in propose_schema(rows, target="y", id="who").splitlines() if not line.startswith("fill")]
        for rows in (table, without)
    )
    assert before == after


def test_a_median_moves_for_few_people_only(rng):
    """It is rounded, so that it is nearly always the same without any one person."""
    unequal = 0
    for _ in range(100):
        values = rng.permutation(np.repeat(rng.integers(-1000, 1000, 12), rng.integers(12, 30, 12)).astype(float))
        cells = [*values, *[None] * 3]
        unequal += proposed(pa.array(cells)) != proposed(pa.array(cells[1:]))
    assert unequal <= 10


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(40, 400), st.sampled_from(["normal", "lognormal", "uniform"]))
def test_no_number_of_a_schema_is_a_value_that_few_have(seed, n, draw):
    """Values with many digits: a number of the schema that equals one of them came from that person."""
    values = getattr(np.random.default_rng(seed), draw)(size=n) * 1234.5
    table = pa.table({"y": values, "x": pa.array([*values[1:], None]), "n": values[::-1].copy()})
    kinds = dict(Schema.parse(propose_schema(table, target="y")).columns)
    numbers = {number for kind in kinds.values() for number in (kind.low, kind.high, kind.fill) if number is not None}
    assert not numbers & set(values.tolist())
    assert all(len(repr(abs(number)).replace(".", "").strip("0")) <= 6 for number in numbers)
