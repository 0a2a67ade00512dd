"""Trials tell the truth: their errors are those of the model itself, fitted on the rows that do not judge."""

import numpy as np
import pytest

from expunge import CodedRegressor
from expunge.exact.moments import FloatMoments
from expunge.exact.ridge import ridge_weights
from expunge.planning import trial
from expunge.planning.candidates import Coding
from expunge.planning.column_scales import propose_scales
from expunge.planning.planner import plan
from expunge.planning.sample import Validation, draw_sample, hash_people
from expunge.planning.shapes import Shape
from expunge.planning.trial import single_learner, try_settings

BITS = 24
KNOTS = ["linear", [0.0, 0.2, 0.5, 1.0]]
HALF = ([0.1, 0.0, 0.0], [0.9, 1.0, 1.0])  # some rows are outside


def errors_of(model, sample):
    """The squared errors of the rows that judge, over the variance, of models fitted on the others."""
    targets = sample.y.shape[1]
    made = []
    for judge in sample.folds:
        y = sample.y[~judge]
        fitted = model.fit(sample.X[~judge], y[:, 0] if targets == 1 else y)
        made.append((fitted.predict(sample.X[judge]).reshape(-1, targets) - sample.y[judge]) ** 2)
    return (np.concatenate(made) / sample.y[sample.validation_rows].var(axis=0)).mean(axis=1)


@pytest.mark.parametrize(
    ("coding", "given"),
    [
        (Coding(1, 1), {}),
        (Coding(5, 5), {}),
        (Coding(4, 2), {"bounds": HALF}),
        (Coding(5, 1), {"scales": ["log", KNOTS, "linear"]}),
        (Coding(1, 1), {"bounds": HALF, "target_bounds": (0.0, 1.0), "scales": [KNOTS, "linear", "log"]}),
        (Coding(2, 2), {"bounds": "unit", "target_bounds": (-3.0, 3.0)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("targets", [1, 2])
def test_a_trial_has_the_errors_of_the_model(table, coding, given, targets):
    X, y, ids = table
    y = np.column_stack([y, 10 * X[:, 2] ** 3])[:, :targets]
    sample = draw_sample(X, y, hash_people(ids, len(X), 0), max_rows=1000)
    given = {"bounds": None, "target_bounds": None, "scales": None} | given
    ground = Validation.from_sample(sample, **given)
    features = Shape.initial("gaussian", None, ground.columns).stretch(8.0).features(20, 3)
    made = try_settings(ground, coding.apply(single_learner(features, 7)), (1e-3, 1.0))
    settings = {"shards": coding.shards, "rate": coding.rate, "features": features, "alpha": made.settings.alpha}
    model = CodedRegressor(**settings, **given, clip=True, random_state=7)
    expected = errors_of(model, sample)
    assert made.errors == pytest.approx(expected, rel=1e-5, abs=1e-6 * expected.mean())
    other = errors_of(model.set_params(alpha=1.0 if made.settings.alpha == 1e-3 else 1e-3), sample)
    assert made.errors.mean() <= other.mean() * (1 + 1e-6)
    assert ground.people.tolist() == sample.people[sample.validation_rows].tolist()


def test_the_table_tells_the_truth_about_the_best(table, planned):
    X, y, ids = table
    sample = draw_sample(X, y[:, None], hash_people(ids, len(X), 0), max_rows=1000)
    assert planned.best.scales == propose_scales(sample.X)
    errors = errors_of(planned.best, sample)
    assert planned.choice.error == pytest.approx(errors.mean(), rel=1e-6)
    assert planned.choice.r2 == 1 - planned.choice.error
    people = np.array([errors[sample.people[sample.validation_rows] == k].sum() - 5 * errors.mean() for k in range(60)])
    assert planned.choice.spread == pytest.approx(np.sqrt((people**2).sum()) / 300, rel=1e-5)


def test_moments_in_floats_are_the_exact_ones_to_nine_digits(rng):
    rows = np.rint(2.0**BITS * rng.uniform(-1, 1, (80, 9)))
    parts = [FloatMoments.from_coded_rows(9, [rows[:30], rows[30:50]]), FloatMoments.from_coded_rows(9, [rows[50:]])]
    exact = np.array([[sum(int(a) * int(b) for a, b in zip(p, q, strict=True)) for p in rows.T] for q in rows.T])
    scaled = np.array(exact / 4**BITS, dtype=float)
    summed = parts[0] + parts[1]
    assert np.tril(summed.matrix(BITS)) == pytest.approx(np.tril(scaled), rel=1e-9, abs=1e-9)
    found = ridge_weights(summed, bits=BITS, targets=1, alpha=0.1, intercept=False)
    wanted = np.linalg.solve(scaled[:8, :8] + 0.1 * np.eye(8), scaled[:8, 8:])
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_a_wide_table_of_which_few_inputs_matter_is_told_by_relevance(monkeypatch):
    X = np.random.default_rng(2).uniform(size=(300, 16))
    y = np.sin(4 * X[:, 0]) * X[:, 1]
    options = {"scales": "linear", "max_features": 40, "references": False, "quick": True}
    told = plan(X, y, **options).choice.error
    for way in ("weigh_inputs", "with_scales"):
        monkeypatch.setattr(Shape, way, lambda shape, *found: shape)
    assert told < 0.05 * plan(X, y, **options).choice.error


def test_of_penalties_that_are_as_good_the_largest_is_taken(table, monkeypatch):
    X, y, ids = table
    ground = Validation.from_sample(
        draw_sample(X, y[:, None], hash_people(ids, len(X), 0), max_rows=1000),
        bounds=None,
        target_bounds=None,
        scales=None,
    )
    settings = single_learner(Shape.initial("gaussian", None, 3).stretch(4.0).features(20, 0), 0)
    alphas = (1e-3, 1e-2, 1e-1, 10.0)
    errors = [try_settings(ground, settings, [alpha]).error for alpha in alphas]
    for close, room in ((0, 0.0), (1, max(errors) / min(errors))):
        monkeypatch.setattr(trial, "MIN_TOLERANCE", room)
        wanted = alphas[-1] if close else alphas[errors.index(min(errors))]
        assert try_settings(ground, settings, alphas, max_tolerance=room).settings.alpha == wanted


@pytest.mark.parametrize(
    ("worse", "noise", "taken"),
    [
        (0.002, 0.0, True),  # hardly worse
        (0.01, 1.0, True),  # worse, but a standard error is 0.05
        (0.01, 0.1, False),  # here it is 0.005
        (0.04, 2.0, False),  # within a standard error, and too much to give up
        (-0.04, 2.0, True),
    ],
)
def test_a_larger_penalty_is_as_good_unless_it_is_surely_worse(rng, worse, noise, taken):
    errors, swing = rng.exponential(size=400), noise * rng.standard_normal(400)
    errors, swing = errors / errors.mean(), swing - swing.mean()
    assert trial._find_best_penalty(np.column_stack([errors, errors + worse + swing]), np.arange(400)) == taken
