"""Settings: read from a model, with its defaults; every value is used as it is saved, or refused at fit."""

import inspect
from dataclasses import asdict, fields
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import Code, CodedRegressor, RandomFourier, random_code
from expunge.errors import InvalidSetting
from expunge.learning.blueprint import draw_blueprint
from expunge.learning.settings import Settings

from support.models import state_of

X = np.random.default_rng(1).random((40, 2))
Y = X.sum(axis=1)


def test_the_settings_are_the_parameters_of_the_regressor_with_its_defaults():
    parameters = inspect.signature(CodedRegressor).parameters
    assert {field.name: field.default for field in fields(Settings)} == {n: p.default for n, p in parameters.items()}
    assert asdict(Settings.from_model(CodedRegressor())) == asdict(Settings())


def test_settings_are_read_from_a_model_and_from_settings():
    model = CodedRegressor(shards=6, rate=3, alpha=2.0, clip=True)
    settings = Settings.from_model(model)
    assert (settings.shards, settings.rate, settings.alpha, settings.clip) == (6, 3, 2.0, True)
    assert vars(Settings.from_model(settings)) == vars(settings)


@pytest.mark.parametrize(
    ("thing", "got"),
    [
        (make_pipeline(StandardScaler(), CodedRegressor()), "got Pipeline;"),
        (LinearRegression(), "got LinearRegression;"),
        (CodedRegressor, "got the class CodedRegressor;"),
        ("ridge", "got str;"),
    ],
)
def test_what_is_no_model_is_refused_by_its_type(thing, got):
    with pytest.raises(InvalidSetting, match=f"model must be a CodedRegressor or Settings, {got}"):
        Settings.from_model(thing)


def test_a_blueprint_is_drawn_from_settings_as_the_regressor_draws_it():
    for parameters in ({}, {"shards": 6, "rate": 2, "features": RandomFourier(5), "bounds": (0, 1)}):
        model = CodedRegressor(random_state=3, **parameters).fit(X, Y)
        drawn = draw_blueprint(Settings(random_state=3, **parameters), 2, 1)
        assert drawn.key.tolist() == state_of(model).blueprint.key.tolist()
        assert drawn.code.G.tolist() == model.code_.G.tolist()
        assert drawn.features.describe() == model.features_.describe()
        for name, array in drawn.features.arrays().items():
            np.testing.assert_array_equal(array, model.features_.arrays()[name])


def test_a_learner_that_is_not_ours_needs_a_rule():
    with pytest.raises(InvalidSetting, match="learner must be 'ridge' here, got Lasso"):
        draw_blueprint(Settings(learner=Lasso()), 2, 1)


@pytest.mark.parametrize("own", [None, Code.uncoded(5)])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"balanced": "no"}, "balanced must be True or False, got 'no'"),
        ({"balanced": None}, "balanced must be True or False"),
        ({"clip": 1}, "clip must be True or False"),
        ({"shards": "many"}, "shards must be a whole number"),
        ({"rate": "5"}, "rate must be a number of at least 1, got '5'"),
        ({"rate": 5 + 0j}, "rate must be a number of at least 1"),
        ({"rate": Fraction(10**400)}, "rate must be a number of at least 1"),
        ({"density": "dense"}, r"density must be a number in \(0, 1\]"),
        ({"alpha": "much"}, "alpha must be a number of at least 0"),
        ({"features": RandomFourier(3, scale=Decimal("NaN"))}, "scale must be None, a number between 0 and 1e9"),
        ({"features": RandomFourier(3, scale="wide")}, "scale must be None, a number between 0 and 1e9"),
    ],
)
def test_a_value_that_could_not_be_saved_is_refused_at_fit(own, parameters, message):
    """Also if a given code makes it unused: a file would contain it."""
    with pytest.raises(InvalidSetting, match=message):
        CodedRegressor(code=own, **parameters).fit(X, Y)


def test_a_code_is_not_drawn_balanced_perhaps():
    with pytest.raises(InvalidSetting, match="balanced must be True or False, got 'no'"):
        random_code(4, 2, balanced="no")


@pytest.mark.parametrize("kind", [Fraction, Decimal, np.float32, np.float64])
def test_numbers_of_any_type_are_used_described_and_saved_as_floats(kind, tmp_path):
    def model(number):
        features = RandomFourier(4, scale=number("0.5"))
        return CodedRegressor(
            shards=5, rate=number("2.5"), density=number("0.5"), alpha=number("0.25"), features=features, random_state=0
        ).fit(X, Y)

    plain, exotic = model(float), model(kind)
    assert exotic.digest() == plain.digest()
    exotic.save(tmp_path / "m")
    again = CodedRegressor.load(tmp_path / "m")
    assert again.digest() == plain.digest()
    assert (again.rate, again.density, again.alpha, again.features.scale) == (2.5, 0.5, 0.25, 0.5)
