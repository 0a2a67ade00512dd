"""Shapes: slopes say which inputs matter, and the draw of the features follows them."""

from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.encoding.fourier import RandomFourierMap
from expunge.encoding.frequencies import Frequencies
from expunge.planning import search
from expunge.planning.sample import Validation, draw_sample, hash_people
from expunge.planning.search import SHAPE_KINDS
from expunge.planning.shapes import RELEVANCE_LEVELS, Blend, Shape, blend_shapes
from expunge.planning.trial import measure_relevance, single_learner, try_settings


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("order", [None, 2])
def test_slopes_are_finite_differences(rng, linear, order):
    features = RandomFourierMap(15, scale=[1.0, 2.0, 4.0], linear=linear, order=order)
    features.n_features_in_ = 3
    features.draw(3, rng)
    Z, weights, step = rng.uniform(-1, 1, (6, 3)), rng.standard_normal(features.n_out), 2.0**-16
    moved = step * np.eye(3)
    found = [(features.map_block(Z + m) - features.map_block(Z - m)) @ weights / (2 * step) for m in moved]
    assert features.slopes(Z, weights) == pytest.approx(np.array(found).T, rel=1e-4, abs=1e-4)


def test_an_input_that_does_not_matter_has_little_relevance(table):
    X, _, _ = table
    sample = draw_sample(X, (np.sin(5 * X[:, :1]) + X[:, 1:2]), hash_people(None, len(X), 0), max_rows=1000)
    ground = Validation.from_sample(sample, bounds=None, target_bounds=None, scales=None)
    features = Shape.initial("gaussian", None, 3).stretch(2.0).features(60, 0)
    found = measure_relevance(ground, try_settings(ground, single_learner(features, 0)))
    assert found[2] < 0.2 * found[1] < 0.2 * found[0]


slopes = st.lists(st.just(0.0) | st.floats(1e-9, 1e6), min_size=2, max_size=9).filter(any)


@given(slopes, st.sampled_from(SHAPE_KINDS))
def test_weighed_shapes_have_powers_of_two_and_zeros(found, kind):
    first = Shape.initial(*kind, len(found)).stretch(4.0)
    made = first.weigh_inputs(np.array(found))
    largest = max(found)
    for slope, weight in zip(found, made.relevance, strict=True):
        if weight == 0:
            assert slope <= largest * 2.0 ** (0.5 - RELEVANCE_LEVELS)
        else:
            assert np.frexp(weight)[0] == 0.5
            assert weight / np.sqrt(2.001) <= slope / largest <= weight * np.sqrt(2.001)
            assert 2.0**-RELEVANCE_LEVELS < weight <= 1
    assert np.frexp(made.reach)[0] == 0.5
    assert 0.7 < made.reach * made.spread / (first.reach * first.spread) < 1.42
    assert (made.scale == made.reach * made.relevance).all()


def test_stretching_and_stressing_change_one_number():
    shape = Shape.initial("laplacian", None, 3)
    assert (shape.stretch(2.0).scale == 2 * shape.scale).all()
    assert (shape.scale_input(1, 0.5).scale == shape.scale * [1, 0.5, 1]).all()
    assert (shape.relevance == 1).all()


def test_a_shape_is_the_features_that_it_makes():
    made = Shape("exponential", 3, 4.0, np.array([1.0, 0.5, 0.0])).features(11, 5).get_params()
    assert made.pop("scale").tolist() == [4.0, 2.0, 0.0]
    assert made == {"n_features": 11, "kernel": "exponential", "linear": True, "order": 3, "random_state": 5}


def test_a_blend_is_features_of_its_shapes_in_turn():
    one = Shape("laplacian", None, 4.0, np.array([1.0, 0.5]))
    two = Shape("gaussian", None, 1.0, np.array([1.0, 2.0]), np.array([[1.0, 0.5], [0.0, 1.0]]))
    made = Blend((one, two)).stretch(2.0).features(11, 5).get_params()
    assert made.pop("scale").tolist() == [[[8.0, 0.0], [0.0, 4.0]], [[2.0, 1.0], [0.0, 4.0]]]
    assert made == {"n_features": 11, "kernel": "laplacian+gaussian", "linear": True, "order": None, "random_state": 5}
    assert Blend((one, one)).features(3, 0).scale.tolist() == [[4.0, 2.0]] * 2


def test_shapes_of_different_kinds_are_blended_the_best_first():
    plain, mixed = (Shape("gaussian", None, 1.0, np.ones(2), mixing) for mixing in (None, np.eye(2)))
    slow, few = Shape("gaussian", None, 0.5, np.ones(2)), Shape("gaussian", 1, 1.0, np.ones(2))
    others = [Shape(kernel, None, 1.0, np.ones(2)) for kernel in ("laplacian", "exponential")]
    made = blend_shapes([plain, few, slow, mixed, *others])
    assert [one.shapes for one in made] == [(plain, mixed), (plain, mixed, others[0])]
    assert blend_shapes([plain, few, slow]) == []


def test_with_an_order_relevant_inputs_are_drawn_more_often_and_turn_faster():
    scale = np.array([8.0, 4.0, 2.0, 2.0, 0.0])
    turns = Frequencies.parse("gaussian", scale, 1, 5).draw(40_000, np.random.default_rng(3))
    looked = turns != 0
    assert (looked.sum(axis=0) == 1).all()
    assert looked.mean(axis=1) == pytest.approx(scale / 16, abs=0.01)
    sizes = [2 * np.pi * turns[j, looked[j]].std() for j in range(4)]
    assert sizes == pytest.approx(np.sqrt(scale[:4] * 8), rel=0.03)


@pytest.mark.parametrize(("rows", "cosines"), [(50, 384), (450, 450), (900, 900), (1_600, 720), (15_000, 576)])
def test_a_step_has_more_cosines_where_rows_are_few_but_no_more_than_rows(rows, cosines, monkeypatch):
    for name, value in {"_TRIAL_COSINES": 384, "_STEP_COSINES": 576, "_MAX_STEP_COSINES": 1024}.items():
        monkeypatch.setattr(search, name, value)
    fold = Mock(Z=np.empty((rows, 1)))
    assert search._count_step_cosines(Mock(folds=(fold,))) == cosines
