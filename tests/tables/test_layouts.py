"""Proposals for numbers and dates: bounds that a few cannot stretch, scales and fills; by people, and not by rows."""

from collections import defaultdict
from datetime import date, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.tables.kinds import Boolean, Date, Number
from expunge.tables.proposal import propose_schema, summaries
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
    assert abs(kind.fill - np.median(delays)) <= 2
    often = np.concatenate([np.zeros(300), np.full(10_000, 100.0)])  # one has a hundred ten thousand times
    ids = [*range(300), *[300] * 10_000]
    kind, _ = proposed(pa.array([*often, None]), ids=[*ids, 7])
    assert (kind.low, kind.high, kind.fill) == (0, 100, 0)
    assert proposed(pa.array([*often, None]))[0].fill == 100  # the rows are nobody's: each counts
    assert proposed(often, ids=ids)[0].fill is None


def test_somebody_with_many_rows_counts_with_any_of_them():
    years = np.tile(np.arange(2000.0, 2021.0), 400)  # everybody's first year is 2000
    kind, _ = proposed(pa.array([*years, None]), ids=[*np.repeat(np.arange(400), 21), 0])
    assert abs(kind.fill - 2010) <= 2


@pytest.mark.parametrize(
    ("value", "span", "rounded"),
    [
        (1234.567, 100, 1234),
        (1234.567, 199, 1234),
        (1234.567, 200, 1235),
        (1234.567, 399, 1235),
        (1234.567, 400, 1230),
        (1234.567, 800, 1240),
        (1234.567, 0.001, 1234.567),
        (-0.04, 10, 0),
        (3e-300, 1e-299, 3e-300),
        (7, 0, 7),
    ],
)
def test_fills_and_knots_are_rounded_to_two_digits_of_the_span(value, span, rounded):
    assert round_to_step([value], span) == [rounded]


def test_a_fill_is_within_the_bounds_also_after_rounding():
    assert proposed(pa.array([0.7, 0.7, 0.7, None]))[0] == Number(0.7, 0.7, 0.7)
    assert proposed(pa.array([12345.0, None]))[0].fill == 12400
    kind, _ = proposed(pa.array([date(2020, 5, 20), date(2023, 12, 7), None]))
    assert kind == Date(datetime(2020, 5, 1), datetime(2024, 1, 1), datetime(2020, 5, 1))


def test_the_fill_of_true_and_false_is_what_more_people_have():
    cells = pa.array([True, True, True, False, False, None])
    assert proposed(cells)[0] == Boolean(True)
    assert proposed(cells, ids=[1, 1, 1, 2, 3, 4])[0] == Boolean(False)
    assert proposed(pa.array([True, False, None]))[0] == Boolean(False)
    assert proposed(pa.array([True, False]))[0] == Boolean()


# Bounds


def spread(rng, n=2_000):
    return rng.uniform(0, 10, n).round(3)


@pytest.mark.parametrize(
    ("far", "low", "high"),
    [
        ([1e9], 0, 10),
        ([-1e9] * 9, 0, 10),
        ([25.0] * 9 + [-25.0] * 9, 0, 10),
        ([25.0] * 10, 0, 25),  # ten people: no longer a few
        ([19.0] * 9, 0, 19),  # not by far
        ([19.0] * 4 + [25.0] * 5, 0, 19),
    ],
)
def test_a_few_people_do_not_stretch_the_bounds(rng, far, low, high):
    values = np.concatenate([spread(rng), far])
    kind, note = proposed(values)
    assert (kind.low, kind.high) == (low, high)
    outside = bool(values.min() < low or values.max() > high)
    assert bool(kind.clip) == outside
    assert note == ("fewer than 10 have values far outside these bounds: they count as the bound" if outside else "")
    assert proposed(values, people=1)[0].high >= values.max()


def test_one_person_with_many_rows_far_outside_is_one_person(rng):
    values = np.concatenate([spread(rng), np.full(50, 1e6)])
    kind, _ = proposed(values, ids=[*range(2_000), *[0] * 50])
    assert (kind.low, kind.high, kind.clip) == (0, 10, True)


def test_of_a_hundred_people_one_is_a_few_and_of_fewer_nobody(rng):
    for n, few, clip in ((120, 1, True), (120, 2, None), (90, 1, None)):
        kind, _ = proposed(np.concatenate([spread(rng, n - few), [1e6] * few]))
        assert kind.clip == clip


def test_a_column_that_is_the_same_for_most_is_not_made_the_same_for_all():
    kind, note = proposed(np.concatenate([np.zeros(2_000), [5.0, 3.0]]))
    assert (kind.low, kind.high, kind.clip, note) == (0, 5, None, "")
    kind, note = proposed(np.concatenate([np.zeros(10_000), np.arange(1.0, 51.0)]), people=200)
    assert (kind.low, kind.high, kind.clip, note) == (0, 50, None, "")


def test_dates_are_not_stretched_by_a_few_either():
    days = [date(2020, 1, 1) + timedelta(days=k % 700) for k in range(2_000)]
    kind, note = proposed(pa.array([*days, date(9999, 12, 31), date(1900, 1, 1)]))
    assert (kind.low, kind.high, kind.clip) == (datetime(2020, 1, 1), datetime(2021, 12, 1), True)
    assert "count as the bound" in note


def test_the_bounds_of_a_target_take_everybody_and_the_note_says_who_stretches_them(rng):
    table = pa.table({"y": [*spread(rng), 1e6], "x": spread(rng, 2_001)})
    text = propose_schema(table, target="y")
    assert dict(Schema.parse(text).columns)["y"] == Number(0, 1e6)
    assert "# fewer than 10 have values that stretch these bounds by far: check them\n[columns.y]" in text


# Scales


def test_positive_numbers_of_which_most_are_small_have_a_log_scale(rng):
    incomes = np.exp(rng.normal(10, 1, 3_000))
    kind, note = proposed(incomes)
    assert (kind.scale, kind.clip, note) == ("log", None, "")
    assert 0 < kind.low <= incomes.min()
    assert kind.low > incomes.min() / 2
    sparse = np.concatenate([np.zeros(2_900), rng.gamma(2, 50, 100)])
    for values, low in ((sparse, 0), (sparse + 7, 7), (10 ** rng.uniform(-5, 5, 3_000), 1e-5)):
        kind, _ = proposed(values)
        assert (kind.low, kind.scale) == (low, "log")
    half = np.concatenate([np.zeros(1_500), rng.uniform(0, 10, 1_500)])  # half of it even: no tail
    few = rng.geometric(0.5, 3_000)
    for values in (-sparse, sparse - 1, rng.normal(100, 10, 3_000), rng.gamma(3, 5, 3_000), half, few):
        assert proposed(values)[0].scale != "log"


def test_a_log_scale_is_not_for_the_sake_of_a_few_small_values(rng):
    assert proposed(rng.exponential(5, 3_000))[0] == Number(0, 41, scale="log")


def test_on_a_log_scale_far_is_orders_of_magnitude(rng):
    incomes = np.exp(rng.normal(10, 1, 3_000))  # some three orders of magnitude
    assert proposed([*incomes, 1e7])[0].clip is None
    kind, _ = proposed([*incomes, 1e15])
    assert (kind.scale, kind.clip) == ("log", True)
    assert kind.high < 1e7


def test_one_value_far_outside_makes_no_log_scale(rng):
    assert proposed([*spread(rng), 1e9])[0].scale is None


def test_other_columns_with_many_values_are_given_twice_and_knots_divide_the_people(rng):
    values = rng.normal(0, 100, 5_000)
    kind, _ = proposed(values)
    linear, knots = kind.scale
    assert linear == "linear"
    assert (knots[0], knots[-1], len(knots)) == (kind.low, kind.high, 11)
    shares = np.histogram(values, knots)[0] / 5_000
    assert np.abs(shares - 0.1).max() < 0.03  # rounded, and from a sample
    assert list(knots[1:-1]) == round_to_step(knots[1:-1], float(np.ptp(np.quantile(values, [0.1, 0.9]))))


def test_knots_are_of_people_and_not_of_rows(rng):
    values = rng.normal(0, 100, 1_000)
    rows = np.concatenate([values, np.full(50_000, 42.0)])
    knots = proposed(rows, ids=[*range(1_000), *[5] * 50_000])[0].scale[1]
    assert knots == proposed(values, ids=range(1_000))[0].scale[1] or len(knots) == 11
    assert np.abs(np.histogram(values, knots)[0] / 1_000 - 0.1).max() < 0.03


@pytest.mark.parametrize(("people", "parts"), [(10, 10), (100, 10), (150, 6), (250, 4), (251, 0)])
def test_between_two_knots_are_enough_people(rng, people, parts):
    kind, _ = proposed(rng.normal(0, 100, 1_000), people=people)
    assert (len(kind.scale[1]) - 1 if kind.scale else 0) == parts


def test_a_column_needs_no_knots_if_it_has_few_values_or_is_even(rng):
    assert proposed(rng.poisson(3, 3_000))[0].scale is None
    assert proposed(rng.uniform(0, 1, 3_000))[0].scale is None
    assert proposed(rng.uniform(0, 1, 3_000) ** 0.3)[0].scale is not None


def test_knots_differ_also_where_many_people_have_one_value(rng):
    values = np.concatenate([np.full(1_000, 5.0), rng.normal(0, 10, 1_000)])
    knots = proposed(values)[0].scale[1]
    assert len(set(knots)) == len(knots) < 11
    assert 5 in knots


def test_knots_of_dates_are_first_days_of_months_or_days():
    days = [date(2015, 1, 1) + timedelta(days=int(3_000 * (k / 2_000) ** 3)) for k in range(2_000)]
    knots = proposed(pa.array(days))[0].scale[1]
    assert all(knot.day == 1 for knot in knots)
    assert list(knots) == sorted(set(knots))
    near = [date(2015, 1, 1) + timedelta(days=int(300 * (k / 2_000) ** 3)) for k in range(2_000)]
    assert {knot.day for knot in proposed(pa.array(near))[0].scale[1]} != {1}
