"""CodedRegressor passes scikit-learn's checks and works with its tools."""

from datetime import datetime

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
from expunge.errors import InvalidInput


@pytest.mark.filterwarnings("ignore:mean 0 and standard deviation 1")  # some of these checks standardise their rows
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


WARNING = "mean 0 and standard deviation 1 over exactly these rows"


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


@pytest.mark.parametrize("names", [None, ["age", "flag", "income"]])
def test_one_standardised_column_among_others_is_warned_of_by_its_name(table, names):
    """One column of flags beside the scaled ones silenced the warning."""
    X, y = table
    flags = (np.arange(len(X)) % 3 == 0).astype(float)
    rows = np.column_stack([5 + X[:, 0], flags, StandardScaler().fit_transform(X)[:, 1]])
    with pytest.warns(UserWarning, match=f"{WARNING}: column {'2' if names is None else repr(names[2])}; the scaler"):
        CodedRegressor(random_state=0).fit(rows if names is None else pd.DataFrame(rows, columns=names), y)


NOW = datetime(2024, 1, 1)
UNREADABLE = {
    "text": ({"a": [1.0, 2.0], "city": ["Ulm", "Bonn"]}, "X has text in column 'city'; declare"),
    "NaN": ({"a": [1.0, np.nan], "b": [1.0, 2.0]}, r"X has empty cells \(NaN\) in column 'a'; declare"),
    "None": ({"a": [1, None], "b": [1.0, 2.0]}, r"X has empty cells \(NaN\) in column 'a'; declare"),
    "dates": ({"a": [NOW, NOW], "b": [1.0, 2.0]}, "X has dates in column 'a'; declare"),
    "days": ({"a": [NOW.date(), NOW.date()], "b": [1.0, 2.0]}, "X has dates in column 'a'; declare"),
    "all": (
        {"a": ["x", "y"], "b": [None, 2.0], "c": ["Ulm", None]},
        r"X has text in columns 'a', 'c', empty cells \(NaN\) in column 'b'; declare",
    ),
}


@pytest.mark.parametrize(
    ("frame", "case"),
    [
        *((pd.DataFrame, case) for case in UNREADABLE),
        *((pl.DataFrame, case) for case in UNREADABLE if case not in ("dates", "days")),  # polars makes numbers of them
        *((np.column_stack, case) for case in UNREADABLE),
    ],
)
def test_text_and_gaps_are_refused_with_the_column_and_the_way(frame, case):
    columns, message = UNREADABLE[case]
    if frame is np.column_stack:
        X = np.array(list(zip(*columns.values(), strict=True)), dtype=object)
        for place, name in enumerate(columns):
            message = message.replace(repr(name), str(place))
    else:
        X = frame(columns)
    model = CodedRegressor(random_state=0)
    with pytest.raises(InvalidInput, match=message) as caught:
        model.fit(X, [1.0, 2.0])
    assert "SchemaTransformer" in str(caught.value)
    assert "Ulm" not in str(caught.value)
    assert caught.value.__suppress_context__
    model.fit(np.eye(5, len(columns)), np.arange(5.0))
    with pytest.raises(InvalidInput, match="empty cells" if case in ("NaN", "None") else "X has"):
        model.predict(X if frame is np.column_stack else X.to_numpy())


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
