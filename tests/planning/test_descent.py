"""Descent: its slopes are those of the error itself, and following them finds the inputs that matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import Ridge

from expunge.exact.threads import one_blas_thread
from expunge.planning import search
from expunge.planning.sample import Validation, draw_sample, hash_people
from expunge.planning.search import DescentBatch, DescentVector, descend, descend_mixing, error_gradient
from expunge.planning.shapes import MAX_MIXED_INPUTS, MAX_MIXING, MAX_SCALE_POWER, Shape
from expunge.planning.trial import single_learner, try_settings


def batch_of(rng, targets):
    Z, judging = rng.random((70, 3)), rng.random((40, 3))
    y = [np.column_stack([np.sin(5 * rows[:, 0]), rows[:, 1] ** 2])[:, :targets] for rows in (Z, judging)]
    return DescentBatch(Z, y[0], judging, y[1])


@pytest.mark.parametrize("targets", [1, 2])
def test_the_error_is_that_of_a_ridge_model_of_scikit_learn(rng, targets):
    batch, metric = batch_of(rng, targets), rng.standard_normal((3, 3))
    draw, phases = rng.standard_normal((3, 20)), rng.uniform(0, 6, 20)

    def features(Z):
        return np.hstack([np.cos(Z @ metric @ draw + phases), Z])

    model = Ridge(alpha=2.0**-4).fit(features(batch.Z), batch.targets)
    predicted = model.predict(features(batch.Z_validation)).reshape(-1, targets)
    assert error_gradient(batch, draw, phases, metric, 2.0**-4)[0] == pytest.approx(
        ((predicted - batch.y_validation) ** 2).mean()
    )


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("axes", [[], [2, 0], [0, 1, 2]])
def test_slopes_are_finite_differences(rng, targets, axes):
    batch, course = batch_of(rng, targets), DescentVector(3, np.array(axes, dtype=np.intp))
    draw, phases, step = rng.standard_normal((3, 20)), rng.uniform(0, 6, 20), 2.0**-17
    place = np.concatenate([0.3 * rng.standard_normal(len(axes) ** 2), [1.0, -2.0, 0.5, -4.0]])

    def at(place):
        mixing, powers, penalty = course.unpack(place)
        return error_gradient(batch, draw, phases, 2 ** powers[:, None] * mixing, 2.0**penalty)

    moved = step * np.eye(len(place))
    found = [(at(place + m)[0] - at(place - m)[0]) / (2 * step) for m in moved]
    _, *slopes = at(place)
    assert course.gradient(place, *slopes) == pytest.approx(np.array(found), rel=1e-5, abs=1e-9)


def ground_of(table, most=1000, seed=0):
    X, _, ids = table
    sample = draw_sample(X, np.sin(12 * X[:, :1]) + 0.5 * X[:, 1:2], hash_people(ids, len(X), seed), max_rows=most)
    return Validation.from_sample(sample, bounds=None, target_bounds=None, scales=None)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_a_descent_finds_the_input_that_matters(table, kernel):
    found = descend(ground_of(table), Shape.initial(kernel, None, 3), 0, steps=40, cosines=40)
    assert found.scale[0] >= 4 * found.scale[1:].max()
    assert (found.kernel, found.order) == (kernel, None)


_DIRECTIONS = np.array([[1, -1, 0], [1, 1, 0]])


def test_mixing_finds_the_difference_that_matters(table):
    X, _, ids = table
    sample = draw_sample(X, np.sin(6 * (X[:, :1] - X[:, 1:2])), hash_people(ids, len(X), 0), max_rows=1000)
    ground = Validation.from_sample(sample, bounds=None, target_bounds=None, scales=None)
    first = descend(ground, Shape.initial("gaussian", None, 3), 0, steps=40, cosines=40)
    found = descend_mixing(ground, first, 0, steps=80, cosines=40)
    across, along = (float((direction @ found.metric) @ (direction @ found.metric)) for direction in _DIRECTIONS)
    assert across >= 4 * along  # how fast features turn
    errors = [try_settings(ground, single_learner(shape.features(20, 0), 0)).error for shape in (found, first)]
    assert errors[0] < 0.7 * errors[1]


def test_rounding_moves_a_mixed_metric_by_little(table, monkeypatch):
    ends, followed = [], search._follow_gradient
    monkeypatch.setattr(search, "_follow_gradient", lambda *given: ends.append(followed(*given)) or ends[-1])
    found = descend_mixing(ground_of(table, seed=2), Shape.initial("gaussian", None, 3), 0, steps=30, cosines=40)
    mixing, powers, _ = DescentVector(3, np.argsort(-np.ones(3), kind="stable")).unpack(ends[0])
    assert found.metric == pytest.approx(2 ** powers[:, None] * mixing, abs=2 ** powers.max() / 8)
    assert found.metric != pytest.approx(2 ** np.rint(powers)[:, None] * mixing, abs=2 ** powers.max() / 8)


def test_only_the_most_relevant_inputs_are_mixed(rng):
    X = rng.random((200, MAX_MIXED_INPUTS + 4))
    sample = draw_sample(X, X[:, :1] * X[:, 1:2], hash_people(None, len(X), 0), max_rows=1000)
    ground = Validation.from_sample(sample, bounds=None, target_bounds=None, scales=None)
    first = (
        Shape.initial("gaussian", None, MAX_MIXED_INPUTS + 4)
        .with_scales(np.arange(MAX_MIXED_INPUTS + 4.0) - 8)
        .scale_input(9, 0.0)
    )
    mixing = descend_mixing(ground, first, 0, steps=4, cosines=20).mixing
    changed = mixing != np.eye(MAX_MIXED_INPUTS + 4)
    assert {*np.flatnonzero(changed.any(axis=0)), *np.flatnonzero(changed.any(axis=1))} <= {*range(3, 16)} - {9}
    assert changed.any()


def test_every_step_looks_at_other_rows_and_every_row_gets_its_turns(table, monkeypatch):
    monkeypatch.setattr(search, "STEP_ROWS", 100)
    monkeypatch.setattr(search, "_STEP_VALIDATION_ROWS", 30)
    ground = ground_of(table)
    folds, fold = len(ground.folds), ground.folds[0]
    batches = [DescentBatch.for_step(ground, step) for step in range(0, 16 * folds, folds)]  # all of the first fold
    for part in ("Z", "Z_validation"):
        seen = np.concatenate([getattr(one, part) for one in batches])
        assert {row.tobytes() for row in seen} == {row.tobytes() for row in fold.Z}
        assert len({getattr(one, part).tobytes() for one in batches}) > 12
    of_row = dict(zip(map(bytes, fold.Z), fold.targets[:, 0], strict=True))
    for one in batches:
        for rows, targets in ((one.Z, one.targets), (one.Z_validation, one.y_validation)):
            assert targets[:, 0] * fold.targets.std() == pytest.approx([of_row[bytes(row)] for row in rows])


def test_who_judges_shapes_has_no_part_in_making_them_nor_judges_what_they_taught(table):
    ground = ground_of(table)
    for step in range(16):
        fold, one = ground.folds[step % len(ground.folds)], DescentBatch.for_step(ground, step)
        owner = dict(zip(map(bytes, fold.Z), fold.owners, strict=True))
        teachers, judges = ({owner[bytes(row)] for row in rows} for rows in (one.Z, one.Z_validation))
        assert teachers
        assert judges
        assert not teachers & judges
        assert not (teachers | judges) & {*ground.people[: len(fold.y_validation)]} or step % len(ground.folds)


@pytest.mark.parametrize("people", [4, 5, 9])
def test_few_people_are_taught_and_judged_by_as_well(rng, people):
    X = rng.random((80, 2))
    sample = draw_sample(X, X[:, :1], hash_people(np.arange(80) % people, len(X), 0), max_rows=1000)
    ground = Validation.from_sample(sample, bounds=None, target_bounds=None, scales=None)
    for step in range(16):
        assert (
            min(len(DescentBatch.for_step(ground, step).Z), len(DescentBatch.for_step(ground, step).Z_validation)) > 0
        )


def test_scales_are_pulled_together_where_there_are_few_rows_for_the_inputs(table, monkeypatch):
    ground, spans = ground_of(table), []
    assert ground.rows == 300
    for pull in (0.0, 30.0, 1e9):  # times three inputs over 300 rows
        monkeypatch.setattr(search, "_PULL", pull)
        scale = descend(ground, Shape.initial("gaussian", None, 3), 0, steps=40, cosines=40).scale
        spans.append(scale.max() / scale.min())
    assert spans[0] > 4 * spans[1]
    assert spans[2] <= 4  # it does not swing back and forth


def test_features_are_drawn_anew_at_each_step_and_the_same_for_a_seed(table, monkeypatch):
    drawn, ground = [], ground_of(table)

    def seen(batch, draw, *rest):
        drawn.append(draw)
        return error_gradient(batch, draw, *rest)

    monkeypatch.setattr(search, "error_gradient", seen)
    first = Shape.initial("gaussian", None, 3)
    one, two, _ = (descend(ground, first, seed, steps=4, cosines=9).scale.tolist() for seed in (5, 5, 6))
    assert one == two
    assert len({draw.tobytes() for draw in drawn}) == 8  # of three times four


@given(st.lists(st.floats(-12, 9), min_size=1, max_size=6))
def test_where_steps_end_is_rounded_to_powers_of_two_and_zeros(powers):
    scale = Shape.initial("gaussian", None, len(powers)).with_scales(np.array(powers)).scale
    assert scale.any()
    for power, one in zip(powers, scale, strict=True):
        if one == 0:
            assert power <= -11.5
        else:
            assert np.frexp(one)[0] == 0.5
            assert abs(np.log2(one) - power) <= 0.5


@given(arrays(np.float64, (3, 3), elements=st.floats(-9, 9)), st.integers(-40, 40))
def test_mixing_is_rounded_to_eighths_and_every_shape_can_be_drawn(mixing, power):
    shape = Shape.initial("gaussian", None, 3).with_scales(np.zeros(3), mixing).stretch(2.0**power)
    apart = shape.mixing - np.eye(3)
    assert np.array_equal(8 * apart, np.rint(8 * apart))
    assert (np.abs(apart) < MAX_MIXING).all()
    assert (np.abs(apart - np.clip(mixing - np.eye(3), -MAX_MIXING, MAX_MIXING)) <= 1 / 8).all()
    assert np.array_equal(shape.metric, shape.scale[:, None] * shape.mixing)
    if shape.metric.any():
        assert shape.features(5, 0).fit(np.eye(3)).projection_.shape == (3, 5)


def test_no_shape_leaves_the_range_that_bits_are_counted_for():
    shape = Shape.initial("gaussian", None, 3).scale_input(1, 0.0)
    assert shape.stretch(2.0**100).scale.tolist() == [2.0**MAX_SCALE_POWER, 0.0, 2.0**MAX_SCALE_POWER]
    assert shape.stretch(2.0**-100).scale.tolist() == [2.0**-MAX_SCALE_POWER, 0.0, 2.0**-MAX_SCALE_POWER]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_descents_do_not_depend_on_the_number_of_threads(table, monkeypatch, threads):
    ground = ground_of(table)
    monkeypatch.setattr(
        search, "spread", lambda task, most: [task(k, min(threads, most)) for k in range(min(threads, most))]
    )
    with one_blas_thread():
        made = search._run_descents(ground, search._DESCENTS, 0, 4, 20)
        alone = [search._run_descents(ground, [one], 0, 4, 20) for one in search._DESCENTS]
    assert [one.kernel for one in made] == ["gaussian", "laplacian"] * 2 + ["gaussian"] * 2
    plain, turned = [one[0] for one in alone], [one[1] for one in alone if len(one) == 2]
    assert [one.metric.tolist() for one in made] == [one.metric.tolist() for one in plain + turned]


def test_what_machines_round_differently_does_not_change_where_steps_end(rng, monkeypatch):
    X = rng.random((400, 6))
    y = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(0, 0.3, 400)
    ground, first = ground_of((X, y, None)), Shape.initial("laplacian", None, 6).stretch(8.0)

    def ends():
        with one_blas_thread():
            return descend(ground, first, 0, steps=60, cosines=60).scale.tolist()

    here = ends()
    monkeypatch.setattr(search, "cosines", lambda turns: np.cos(2 * np.pi * turns))  # as of another library
    assert ends() == here
    monkeypatch.setattr(search, "_GRID", 2.0**-45)  # without the grid the last bits decide
    assert ends() != here
