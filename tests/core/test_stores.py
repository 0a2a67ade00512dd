"""Stores: a change can be read before it is carried out, and all reads of rows go through one method."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

from expunge import CodedRegressor, Powers
from expunge.encoding.bounds import parse_bounds
from expunge.encoding.placement import draw_slots, slots_needed
from expunge.encoding.scales import Scales
from expunge.learners import EstimatorRule
from expunge.learning.blueprint import Blueprint
from expunge.learning.rules import RidgeRule
from expunge.learning.state import ModelState
from expunge.stores.change import Change
from expunge.stores.store import Rows

from support.sampling import examples
from support.strategies import SIGNED

KEY = np.array([1, 2], dtype=np.uint64)
BOUNDS = [None, ([None, -9, None], [None, 9, None]), (-9, 9)]
RULES = [RidgeRule(1e-3), EstimatorRule(LinearRegression(fit_intercept=False), KEY)]


class Elsewhere(Rows):
    """Rows that only `take` can read, and only in slots that have one."""

    def __init__(self, rows):
        super().__init__(np.full_like(rows.X, np.nan), np.full_like(rows.y, np.nan), rows.live)
        self.rows, self.read = rows, []

    def take(self, slots):
        assert self.live[slots].all()
        self.read += slots.tolist()
        return self.rows.take(slots)

    def commit(self, change):
        self.rows.commit(change)


def blueprint(bounds=None, columns=3, rule=RULES[0]):
    return Blueprint(
        key=KEY,
        code=SIGNED,
        features=Powers(2).restore(columns, {}),
        scales=Scales.parse(None, columns),
        inputs=parse_bounds(bounds, columns, name="bounds"),
        targets=parse_bounds(None, 1, name="target_bounds"),
        target_scales=Scales.parse_targets(None, 1),
        intercept=False,
        clip=False,
        outside="clamp",
        keep="rows",
        rule=rule,
        aggregate="mean",
    )


@st.composite
def stores(draw):
    """Rows in some of 24 slots, and a change that erases, adds or corrects."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    live = rng.random(24) < draw(st.sampled_from([0.3, 0.9, 1.0]))
    X, y = (rng.integers(-3, 4, (24, width)) * live[:, None] / 2 for width in (3, 1))
    slots = rng.choice(24, draw(st.integers(1, 8)), replace=False)
    if draw(st.booleans()):
        return Rows(X, y, live), Change(slots)
    new_X, new_y = rng.integers(-4, 5, (len(slots), 3)) / 2, rng.uniform(-2, 2, (len(slots), 1))
    return Rows(X, y, live), Change(slots, new_X, new_y)


def apply_change(rows, change):
    copy = rows.grow(len(rows.live))
    copy.commit(change)
    return copy


@examples(100)
@given(stores(), st.sampled_from([1, 20, 2**16]))
def test_a_sweep_sees_every_row_once_as_after_the_change(store, block):
    rows, change = store
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", block)
        swept = [np.concatenate(side) for side in zip(*Elsewhere(rows).sweep(change), strict=True)]
    after = apply_change(rows, change)
    expected = np.column_stack([after.X, after.y])[after.live].tolist()
    assert sorted(np.column_stack(swept).tolist()) == sorted(expected)


@examples(100)
@given(stores(), st.sampled_from(BOUNDS), st.sampled_from(RULES), st.sampled_from([1, 20, 2**16]))
def test_training_as_after_a_change_is_training_after_it_and_overwrites_nothing(store, bounds, rule, block):
    rows, change = store
    plan = blueprint(bounds, rule=rule)
    expected = ModelState.learn(plan, apply_change(rows, change), 24)
    before = rows.X.tobytes(), rows.y.tobytes(), rows.live.tobytes()
    elsewhere = Elsewhere(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", block)
        state = ModelState.learn(plan, elsewhere, 24, change)
    assert (rows.X.tobytes(), rows.y.tobytes(), rows.live.tobytes()) == before
    assert not set(elsewhere.read) & set(change.slots.tolist())
    assert state.ensemble.store is elsewhere
    rows.commit(change)
    assert state.ensemble.digest() == expected.ensemble.digest()
    assert state.rows == expected.rows == np.count_nonzero(rows.live)
    sides = (state.extents.inputs, expected.extents.inputs), (state.extents.targets, expected.extents.targets)
    for mine, its in sides:
        np.testing.assert_array_equal((mine.at_low, mine.at_high), (its.at_low, its.at_high))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_no_request_reads_a_row_but_by_take(rule, rng):
    X, y = rng.uniform(-1, 1, (40, 3)), rng.uniform(-1, 1, (40, 1))
    X[0], X[5:10], y[5:10] = 2, 0, 0
    draft = blueprint(rule=rule)
    placed = draw_slots(KEY, 0, 40, SIGNED.shards)
    plain = ModelState.learn(draft, Rows.place(X, y, placed, slots_needed(40, SIGNED.shards)), 40)
    rows = apply_change(plain.ensemble.store, Change(np.empty(0, dtype=np.int64)))
    unseen = replace(plain, ensemble=replace(plain.ensemble, store=Elsewhere(rows)))
    moved = []
    for who, new in ((5, None), (0, None), (7, X[:1]), (8, X[9:10])):
        slots = placed[[who]]
        change = Change(slots) if new is None else Change(slots, new, y[:1])
        outcomes = [state.prepare(change) for state in (plain, unseen)]
        moved.append(outcomes[0].bounds_moved)
        plain, unseen = (outcome.commit() for outcome in outcomes)
        assert plain.ensemble.digest() == unseen.ensemble.digest()
    assert moved == [False, True, True, False]


def test_a_row_that_goes_is_not_encoded_with_the_bounds_that_it_moved(rng):
    X, y = rng.random((30, 2)), rng.random(30)
    X[3, 0] = 1e200  # its cube, in the bounds of the others, is no float
    model = CodedRegressor(features=Powers(3), random_state=0).fit(X, y)
    assert model.unlearn(3).bounds_moved
    assert model.digest() == model.retrained().digest()


def test_refitting_takes_no_memory_for_the_rows(rng):
    def peak(n):
        rows = Rows(rng.random((n, 8)), rng.random((n, 1)), np.ones(n, dtype=bool))
        change = Change(rows.X[:, :1].argmax(axis=0))
        tracemalloc.start()
        try:
            with threadpool_limits(1):  # the peaks of two threads may or may not fall together
                ModelState.learn(blueprint(columns=8), rows, n, change)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(200_000) - peak(40_000) < 160_000 * 8  # less than one of nine columns
