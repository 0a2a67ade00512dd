"""Descent: its slopes are those of the error itself, and following them finds the inputs that matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from expunge.exact.threads import one_blas_thread
from expunge.planning import descent, search
from expunge.planning.descent import Batch, descended, sloped
from expunge.planning.ground import Ground
from expunge.planning.sample import draw_sample
from expunge.planning.shapes import LARGEST, Shape


def batch_of(rng, targets):
    Z, judging = rng.random((70, 3)), rng.random((40, 3))
    y = [np.column_stack([np.sin(5 * rows[:, 0]), rows[:, 1] ** 2])[:, :targets] for rows in (Z, judging)]
    return Batch(Z, y[0], judging, y[1])


@pytest.mark.parametrize("targets", [1, 2])
def test_the_error_is_that_of_a_ridge_model_of_scikit_learn(rng, targets):
    batch, place = batch_of(rng, targets), np.array([1.0, -2.0, 0.5, -4.0])
    theta, phases = rng.standard_normal((3, 20)), rng.uniform(0, 6, 20)

    def features(Z):
        return np.hstack([np.cos(Z * 2 ** place[:3] @ theta + phases), Z])

    model = Ridge(alpha=2.0**-4).fit(features(batch.Z), batch.targets)
    predicted = model.predict(features(batch.judging)).reshape(-1, targets)
    assert sloped(batch, theta, phases, place)[0] == pytest.approx(((predicted - batch.truth) ** 2).mean())


@pytest.mark.parametrize("targets", [1, 2])
def test_slopes_are_finite_differences(rng, targets):
    batch, place = batch_of(rng, targets), np.array([1.0, -2.0, 0.5, -4.0])
    theta, phases, step = rng.standard_normal((3, 20)), rng.uniform(0, 6, 20), 2.0**-17
    moved = step * np.eye(4)
    found = [
        (sloped(batch, theta, phases, place + m)[0] - sloped(batch, theta, phases, place - m)[0]) / (2 * step)
        for m in moved
    ]
    assert sloped(batch, theta, phases, place)[1] == pytest.approx(np.array(found), rel=1e-5, abs=1e-9)


def ground_of(table, most=1000):
    X, _, ids = table
    sample = draw_sample(X, np.sin(12 * X[:, :1]) + 0.5 * X[:, 1:2], ids, np.random.default_rng(0), most=most)
    return Ground.of(sample, bounds=None, target_bounds=None, scales=None)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_a_descent_finds_the_input_that_matters(table, kernel):
    found = descended(ground_of(table), Shape.first(kernel, None, 3), 0, steps=40, cosines=40)
    assert found.scale[0] >= 4 * found.scale[1:].max()
    assert (found.kernel, found.order) == (kernel, None)


def test_every_step_looks_at_other_rows_and_every_row_gets_its_turn(table, monkeypatch):
    monkeypatch.setattr(descent, "_LEARNED", 100)
    monkeypatch.setattr(descent, "_JUDGING", 40)
    ground, folds = ground_of(table), 4
    assert len(ground.folds) == folds
    learned = [Batch.of(ground, step) for step in range(0, 9 * folds, folds)]  # all of the first fold
    for part, rows in (("Z", ground.folds[0].Z), ("judging", ground.folds[0].judging)):
        seen = np.concatenate([getattr(one, part) for one in learned])
        assert {row.tobytes() for row in seen} == {row.tobytes() for row in rows}
        assert not np.array_equal(getattr(learned[0], part), getattr(learned[1], part))
    for step in range(folds):
        fold, one = ground.folds[step], Batch.of(ground, step)
        assert np.array_equal(one.Z, fold.Z[:100])
        assert one.truth * np.sqrt(ground.variance) == pytest.approx(fold.truth[:40])
        assert one.targets * np.sqrt(ground.variance) == pytest.approx(fold.encoder.unscaled(fold.targets[:100]))


def test_scales_are_pulled_together_where_there_are_few_rows_for_the_inputs(table, monkeypatch):
    ground, spans = ground_of(table), []
    assert ground.rows == 300
    for pull in (0.0, 30.0, 1e9):  # times three inputs over 300 rows
        monkeypatch.setattr(descent, "_PULL", pull)
        scale = descended(ground, Shape.first("gaussian", None, 3), 0, steps=40, cosines=40).scale
        spans.append(scale.max() / scale.min())
    assert spans[0] > 4 * spans[1]
    assert spans[2] <= 2  # it does not swing back and forth


def test_features_are_drawn_anew_at_each_step_and_the_same_for_a_seed(table, monkeypatch):
    drawn, ground = [], ground_of(table)

    def seen(batch, theta, phases, place):
        drawn.append(theta)
        return sloped(batch, theta, phases, place)

    monkeypatch.setattr(descent, "sloped", seen)
    first = Shape.first("gaussian", None, 3)
    one, two, _ = (descended(ground, first, seed, steps=4, cosines=9).scale.tolist() for seed in (5, 5, 6))
    assert one == two
    assert len({theta.tobytes() for theta in drawn}) == 8  # of three times four


@given(st.lists(st.floats(-12, 9), min_size=1, max_size=6))
def test_where_steps_end_is_rounded_to_powers_of_two_and_zeros(powers):
    scale = Shape.first("gaussian", None, len(powers)).moved(np.array(powers)).scale
    assert scale.any()
    for power, one in zip(powers, scale, strict=True):
        if one == 0:
            assert power <= -11.5
        else:
            assert np.frexp(one)[0] == 0.5
            assert abs(np.log2(one) - power) <= 0.5


def test_no_shape_leaves_the_range_that_bits_are_counted_for():
    shape = Shape.first("gaussian", None, 3).stressed(1, 0.0)
    assert shape.stretched(2.0**100).scale.tolist() == [2.0**LARGEST, 0.0, 2.0**LARGEST]
    assert shape.stretched(2.0**-100).scale.tolist() == [2.0**-LARGEST, 0.0, 2.0**-LARGEST]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_descents_do_not_depend_on_the_number_of_threads(table, monkeypatch, threads):
    ground = ground_of(table)
    monkeypatch.setattr(
        search, "spread", lambda task, most: [task(k, min(threads, most)) for k in range(min(threads, most))]
    )
    with one_blas_thread():
        made = search._descended(ground, search._DESCENTS, 0, 4, 20)
        alone = [search._descended(ground, [one], 0, 4, 20)[0] for one in search._DESCENTS]
    assert [(one.kernel, one.scale.tolist()) for one in made] == [(one.kernel, one.scale.tolist()) for one in alone]
