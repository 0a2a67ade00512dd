import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import expunge.encoding.bounds as bounds_module
from expunge.encoding.bounds import Bounds, Extent, parse_bounds
from expunge.errors import InvalidInput, InvalidSetting

from support.sampling import examples

floats = st.floats(-1e150, 1e150)


def declare(low, high, columns=2):
    return Bounds.from_pair((low, high), columns, name="bounds")


def observe(columns):
    return parse_bounds(None, columns, name="bounds")


def extent_of(rows, declaration=None):
    return Extent.empty(declaration or observe(rows.shape[1])).widen(rows)


@examples(200)
@given(st.lists(floats, min_size=3, max_size=3))
def test_scaling_maps_the_bounds_to_zero_and_one_and_keeps_the_order(values):
    low, x, high = sorted(values)
    assume(high - low > 1e-290)
    at_low, inside, at_high = declare(low, high, 1).scale(np.array([[low], [x], [high]])).ravel()
    assert (at_low, at_high) == (0.0, 1.0)
    assert 0.0 <= inside <= 1.0
    assert inside == (x - low) / (high - low)


@examples(200)
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_unscaling_undoes_scaling(values):
    low, x, high = sorted(values)
    assume(high - low > 1e-9)
    bounds = declare(low, high, 1)
    back = bounds.unscale(bounds.scale(np.array([[x]])))
    assert abs(back.item() - x) <= 1e-15 * (abs(low) + abs(high)) * 4


def test_scaling_leaves_its_input_alone():
    values = np.array([[1.0, 2.0]])
    declare(0, 4).scale(values)
    declare(0, 4).unscale(values)
    assert values.tolist() == [[1.0, 2.0]]


def test_scalars_hold_for_every_column_and_sequences_for_each():
    scalars, each, mixed = declare(0, 10, 3), declare([0, 1, 2], [10, 11, 12], 3), declare(0, [10, 11, 12], 3)
    assert (scalars.low.tolist(), scalars.high.tolist()) == ([0, 0, 0], [10, 10, 10])
    assert (each.low.tolist(), each.high.tolist()) == ([0, 1, 2], [10, 11, 12])
    assert (mixed.low.tolist(), mixed.high.tolist()) == ([0, 0, 0], [10, 11, 12])
    assert not any(bounds.observed or bounds.unit for bounds in (scalars, each, mixed))
    np.testing.assert_array_equal(each.scale(np.array([[5.0, 1.0, 12.0]])), [[0.5, 0.0, 1.0]])


def test_declared_bounds_are_a_copy():
    low = np.zeros(2)
    bounds = declare(low, np.ones(2))
    low[0] = 5
    assert bounds.low.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((2, 1), r"must have low <= high; they are reversed in columns \[0, 1\]"),
        (([0, 3], [1, 2]), r"reversed in columns \[1\]"),
        ((0, np.inf), "must be finite"),
        ((-np.inf, 0), "must be finite"),
        ((np.inf, np.inf), "must be finite"),
        ((np.nan, 1), r"a low and a high in each column, or neither .*; one is missing in columns \[0, 1\]"),
        ((0, None), r"one is missing in columns \[0, 1\]"),
        (([0, None], [1, 2]), r"one is missing in columns \[1\]"),
        (([0, 0], [np.nan, 2]), r"one is missing in columns \[0\]"),
        (([None, 0], [None, np.inf]), "must be finite"),
        (([None, 3], [None, 2]), r"reversed in columns \[1\]"),
        ((-1e308, 1e308), "must be finite, and so must high - low"),
        (([0, 0, 0], 1), "a pair .* of scalars or of 2 values each"),
        ((0, [1]*3), "a pair .* of scalars or of 2 values each"),
        ((0, 1, 2), "a pair"),
        ((0,), "a pair"),
        (5, "a pair"),
        ({"low": 0, "high": 1}, "a pair"),
        (([[0, 0], [0, 0]], 1), "a pair"),
        ("wide", "must be None, 'unit' or a pair"),
    ],
)  # fmt: skip
def test_bounds_that_cannot_be_are_refused_with_the_reason(pair, reason):
    with pytest.raises(InvalidSetting, match=reason) as refusal:
        parse_bounds(pair, 2, name="target_bounds")
    assert str(refusal.value).startswith("target_bounds must")


def test_a_bounds_parameter_is_none_unit_or_a_pair():
    none, unit, pair = (parse_bounds(spec, 2, name="bounds") for spec in (None, "unit", (0, 1)))
    assert [(bounds.observed, bounds.unit) for bounds in (none, unit, pair)] == [
        (True, False),
        (False, True),
        (False, False),
    ]


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_column_without_bounds_is_observed(missing):
    mixed = declare([0, missing, 2], [5, missing, 3], 3)
    assert mixed.observed
    np.testing.assert_array_equal(mixed.low, [0, np.nan, 2])
    np.testing.assert_array_equal(mixed.high, [5, np.nan, 3])
    assert np.isnan(declare(missing, missing).low).all()


def test_unit_bounds_take_values_as_they_are():
    unit, values = parse_bounds("unit", 2, name="bounds"), np.array([[-1.0, 1.0], [0.3, -0.2]])
    assert (unit.low.tolist(), unit.high.tolist()) == ([-1, -1], [1, 1])
    np.testing.assert_array_equal(unit.scale(values), values)
    np.testing.assert_array_equal(unit.unscale(values), values)
    np.testing.assert_array_equal(unit.admit(values, clip=False, name="X"), values)


@pytest.mark.parametrize("constant", [0.0, -3.5, 1e300])
def test_a_constant_column_is_zero_and_comes_back_as_its_constant(constant):
    bounds = declare([constant, 0], [constant, 2])
    scaled = bounds.scale(np.array([[constant, 1.0], [constant + 7, 2.0], [constant - 7, 0.0]]))
    np.testing.assert_array_equal(scaled, [[0, 0.5], [0, 1], [0, 0]])
    np.testing.assert_array_equal(bounds.unscale(np.array([[0.9, 0.5]])), [[constant, 1.0]])


def test_prediction_extrapolates():
    np.testing.assert_array_equal(declare(0, 2).scale(np.array([[-2.0, 6.0]])), [[-1.0, 3.0]])


def test_rows_inside_are_admitted_as_they_are():
    values = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert declare(0, 1).admit(values, clip=False, name="X") is values


def test_an_outside_row_is_refused_by_count_and_column_and_never_by_value():
    values = np.array([[0.0, 77.125, 1.0], [-88.25, 99.5, 0.0], [0.0, 0.5, 1.0]])
    with pytest.raises(InvalidInput) as refusal:
        declare(0, 1, 3).admit(values, clip=False, name="X")
    message = str(refusal.value)
    assert message.startswith("rows outside the declared bounds: 1 in column 0 of X, 2 in column 1 of X (of 3 rows);")
    assert "clip=True" in message
    assert not any(number in message for number in ("77", "88", "99", ".125", "0.5"))


def test_an_outside_row_is_refused_by_the_names_of_columns():
    with pytest.raises(InvalidInput) as refusal:
        declare(0, 1).admit(np.array([[0.5, 2.0]]), clip=False, name="X", columns=["age", "income"])
    assert "income" in str(refusal.value)
    assert "age" not in str(refusal.value)


def test_outside_rows_are_counted_in_every_part_of_a_table(monkeypatch):
    monkeypatch.setattr(bounds_module, "_ROWS_PER_BLOCK", 3)
    values = np.array([[k, -k] for k in range(8)], dtype=np.float64)
    with pytest.raises(InvalidInput, match=r"declared bounds: 3 in column 0 of X, 6 in column 1 of X \(of 8 rows\);"):
        declare([0, -1], [4, 0]).admit(values, clip=False, name="X")
    assert declare(-7, 7).admit(values, clip=False, name="X") is values
    assert declare(-7, 7).admit(values[:0], clip=False, name="X").shape == (0, 2)


def test_clipping_moves_outside_rows_to_the_bounds_only():
    values = np.array([[-1.0, 0.25], [0.5, 9.0]])
    np.testing.assert_array_equal(declare(0, 1).admit(values, clip=True, name="X"), [[0, 0.25], [0.5, 1]])
    assert values.tolist() == [[-1.0, 0.25], [0.5, 9.0]]


def test_observed_columns_are_neither_refused_nor_clipped():
    mixed, values = declare([0, None], [1, None]), np.array([[0.5, 1e9], [1.0, -1e9]])
    assert mixed.admit(values, clip=False, name="X") is values
    values[0, 0] = 7.0
    np.testing.assert_array_equal(mixed.admit(values, clip=True, name="X"), [[1, 1e9], [1, -1e9]])
    with pytest.raises(InvalidInput, match=r"declared bounds: 1 in column 0 of X \(of 2 rows\);"):
        mixed.admit(values, clip=False, name="X")


@pytest.mark.parametrize("clip", [True, False])
def test_values_outside_unit_bounds_are_never_clipped(clip):
    with pytest.raises(InvalidInput, match=r"outside the unit bounds: 1 in column 1 of X \(of 1 row\); declare bounds"):
        parse_bounds("unit", 2, name="bounds").admit(np.array([[1.0, 1.5]]), clip=clip, name="X")


tables = st.integers(1, 3).flatmap(
    lambda d: st.integers(0, 8).flatmap(
        lambda n: arrays(np.float64, (n, d), elements=st.integers(-2, 2).map(float) | st.just(-0.0))
    )
)


@st.composite
def declarations(draw, columns):
    """Bounds that hold the tables' rows, with some columns to be observed."""
    low = draw(st.lists(st.sampled_from([None, -2, -5]), min_size=columns, max_size=columns))
    return declare(low, [None if side is None else -side for side in low], columns)


@examples(200)
@given(tables, st.data())
def test_an_extent_is_declared_or_the_least_and_the_largest_of_the_rows_however_they_come(table, data):
    declaration = data.draw(declarations(table.shape[1]))
    extent = Extent.empty(declaration)
    for block in np.split(table, sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=3)))):
        extent = extent.widen(block)
    for j in range(table.shape[1]):
        column = table[:, j].tolist()
        if np.isnan(declaration.low[j]):
            low, high = (min(column), max(column)) if column else (0, 0)
            assert (extent.bounds.low[j], extent.bounds.high[j]) == (low, high)
            assert (extent.at_low[j], extent.at_high[j]) == (column.count(low), column.count(high))
        else:
            assert (extent.bounds.low[j], extent.bounds.high[j]) == (declaration.low[j], declaration.high[j])
    sides = np.concatenate([extent.bounds.low, extent.bounds.high])
    assert not np.signbit(sides[sides == 0]).any()


@pytest.mark.slow
@pytest.mark.no_cover
@examples(200)
@given(tables, st.data())
def test_an_extent_is_replaced_if_and_only_if_no_bound_moved(table, data):
    declaration = data.draw(declarations(table.shape[1]))
    gone = data.draw(arrays(bool, len(table)))
    new = data.draw(arrays(np.float64, (data.draw(st.integers(0, 3)), table.shape[1]),
                           elements=st.integers(-2, 2).map(float)))  # fmt: skip
    before = extent_of(table, declaration)
    after_rows = np.concatenate([table[~gone], new])
    after = extent_of(after_rows, declaration)
    replaced = before.replace_rows(table[gone], new)
    stayed = (after.bounds.low == before.bounds.low).all() and (after.bounds.high == before.bounds.high).all()
    if not stayed or (declaration.observed and not len(after_rows)):  # the extent of no rows is a convention, no bound
        assert replaced is None
    else:
        assert replaced.bounds is before.bounds
        np.testing.assert_array_equal(replaced.at_low, after.at_low)
        np.testing.assert_array_equal(replaced.at_high, after.at_high)


def test_only_the_last_row_on_a_bound_moves_it():
    table = np.array([[0.0], [0.0], [5.0], [9.0]])
    once = extent_of(table).replace_rows(table[:1], table[:0])
    assert once.at_low.tolist() == [1]
    assert once.replace_rows(table[1:2], table[:0]) is None
    assert once.replace_rows(table[1:2], table[1:2]).at_low.tolist() == [1]
    assert once.replace_rows(table[1:2], np.array([[-1.0]])) is None


def test_a_row_on_a_declared_bound_moves_nothing():
    table = np.array([[0.0, 1.0], [0.5, 2.0], [1.0, 2.0]])
    extent = extent_of(table, declare([0, None], [1, None]))
    assert extent.replace_rows(table[2:], table[:0]).bounds is extent.bounds
    assert extent.replace_rows(table[:1], table[:0]) is None  # the least of the column that is observed


@pytest.mark.parametrize("order", [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]])
def test_a_negative_zero_does_not_show_in_observed_bounds(order):
    extent = extent_of(np.array(order)[:, None])
    assert extent.bounds.low.tobytes() == extent.bounds.high.tobytes() == np.zeros(1).tobytes()
    assert (extent.at_low.item(), extent.at_high.item()) == (2, 2)


def test_a_negative_zero_does_not_show_in_declared_bounds():
    assert declare(-0.0, 1).low.tobytes() == declare(0.0, 1).low.tobytes()
    assert declare(-1, -0.0).high.tobytes() == declare(-1, 0.0).high.tobytes()


def test_columns_too_wide_for_floats_are_refused_by_number():
    table = np.array([[0.0, -1.5e308], [1.0, 1.5e308]])
    with pytest.raises(InvalidInput, match=r"the values of columns \[1\] are too far apart for float64"):
        extent_of(table)
    with pytest.raises(InvalidInput, match=r"columns \[1\]"):
        extent_of(table[:1]).widen(table[1:])
