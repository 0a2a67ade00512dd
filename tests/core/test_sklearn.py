"""CodedRegressor passes scikit-learn's checks and works with its tools."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import Lasso
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge import Code, CodedRegressor, Powers, RandomFourier


@pytest.mark.filterwarnings("ignore:every column has mean 0")  # some of these checks standardise their rows
@parametrize_with_checks(
    [
        CodedRegressor(),
        CodedRegressor(code=Code.single(), features=Powers(2)),
        CodedRegressor(shards=4, rate=2, features=RandomFourier(20), aggregate="median"),
        CodedRegressor(shards=4, rate=2, learner=Lasso(1e-4, fit_intercept=False, max_iter=100_000)),
    ]
)
def test_it_is_a_scikit_learn_estimator_in_every_respect(estimator, check):
    check(estimator)


@pytest.fixture
def table(rng):
    X = rng.random((200, 3))
    return X, X @ [1.0, -2.0, 3.0] + 0.5


def test_pandas_and_polars_frames_give_the_same_model_as_arrays(table):
    X, y = table
    names = ["age", "income", "visits"]
    ids = [f"person {k}" for k in range(len(X))]
    plain = CodedRegressor(random_state=0).fit(X, y, ids=ids)
    for frame, column, who in (
        (pd.DataFrame(X, columns=names), pd.Series(y), pd.Series(ids)),
        (pl.DataFrame(X, schema=names), pl.Series(y), pl.Series(ids)),
    ):
        model = CodedRegressor(random_state=0).fit(frame, column, ids=who)
        assert model.digest() == plain.digest()
        assert model.feature_names_in_.tolist() == names
        np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
        assert model.unlearn("person 7").rows == 1


def test_columns_in_another_order_are_refused(table):
    X, y = table
    model = CodedRegressor().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(pd.DataFrame(X, columns=["b", "a", "c"]), y)


def test_errors_name_the_column_of_a_frame_but_no_value(table):
    X, y = table
    frame = pd.DataFrame(X, columns=["age", "income", "visits"])
    frame.loc[3:5, "income"] = 77.125
    with pytest.raises(ValueError, match="3 in column 'income'") as caught:
        CodedRegressor(bounds=(0, 1)).fit(frame, y)
    assert "77.125" not in str(caught.value)


def test_feature_maps_set_output_as_frames(table):
    X, _ = table
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    out = Powers(2).set_output(transform="pandas").fit_transform(frame)
    assert out.columns.tolist() == ["a", "b", "c", "a^2", "b^2", "c^2"]
    out = RandomFourier(2, random_state=0).set_output(transform="polars").fit_transform(frame)
    assert out.columns == ["randomfourier0", "randomfourier1"]


def test_a_clone_is_unfitted_and_fits_to_the_same_model(table):
    model = CodedRegressor(shards=6, rate=3, features=RandomFourier(7), random_state=3).fit(*table)
    twin = clone(model)
    assert not hasattr(twin, "code_")
    assert twin.fit(*table).digest() == model.digest()


def test_grid_search_tunes_shards_alpha_and_features(table):
    grid = {"alpha": [1e-4, 1e3], "shards": [5, 10], "features__n_features": [5, 20]}
    search = GridSearchCV(CodedRegressor(features=RandomFourier(5), random_state=0), grid, cv=3).fit(*table)
    assert search.best_params_["alpha"] == 1e-4
    assert search.best_estimator_.features_.n_out == search.best_params_["features__n_features"]


def test_a_pipeline_passes_ids_and_unlearns_at_its_last_step(table):
    X, y = table
    pipeline = make_pipeline(PolynomialFeatures(2), CodedRegressor(random_state=0))
    pipeline.fit(X, y, codedregressor__ids=np.arange(1000, 1200))
    assert pipeline[-1].unlearn(1003).rows == 1
    assert pipeline.predict(X).shape == (200,)


WARNING = "every column has mean 0 and standard deviation 1 over exactly these rows"


@pytest.mark.parametrize("parameters", [{}, {"bounds": (-9, 9), "scales": "log"}, {"features": RandomFourier(5)}])
def test_a_scaler_that_keeps_people_is_warned_of(table, parameters):
    X, y = table
    X = np.column_stack([1e3 + 7 * X, np.ones(len(X)), np.arange(len(X)) % 2])  # also a constant and a flag
    pipeline = make_pipeline(StandardScaler(), CodedRegressor(random_state=0, **parameters))
    with pytest.warns(UserWarning, match=WARNING):
        pipeline.fit(X, y)
    with pytest.warns(UserWarning, match=WARNING) as caught:
        CodedRegressor(random_state=0, **parameters).fit(StandardScaler().fit_transform(X), y)
    assert caught[0].filename == __file__


def test_other_rows_are_not_warned_of(rng, table):
    """Warnings are errors in these tests."""
    X, y = table
    flags = np.where(np.arange(2 * len(y)).reshape(2, -1).T % 2, 1.0, -1.0)
    scaler = StandardScaler().fit(X)
    others = StandardScaler().fit(rng.normal(size=X.shape)).transform(rng.normal(size=X.shape))
    for rows in (X, flags, scaler.transform(X)[:-1], others, StandardScaler(with_std=False).fit_transform(X)):
        CodedRegressor(random_state=0).fit(rows, y[: len(rows)])


def test_metadata_routing_carries_ids_through_cross_validation(table):
    X, y = table
    ids = np.repeat(np.arange(50), 4)
    with sklearn.config_context(enable_metadata_routing=True):
        model = CodedRegressor(random_state=0).set_fit_request(ids=True).set_partial_fit_request(ids=True)
        search = GridSearchCV(model, {"shards": [5, 10]}, cv=GroupKFold(3).set_split_request(groups=True))
        search.fit(X, y, ids=ids, groups=ids)
        assert search.best_estimator_.unlearn(7).rows == 4
        scores = cross_val_score(model, X, y, cv=3, params={"ids": ids})
    assert scores.min() > 0.5
