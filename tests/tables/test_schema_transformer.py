"""SchemaTransformer: a schema as a step of a pipeline, which keeps nothing of the rows."""

import pickle
import subprocess
import sys
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from expunge import CodedRegressor, Schema, SchemaTransformer
from expunge.errors import InvalidInput, InvalidSetting

TEXT = """
id = "who"
target = "spend"
[columns.spend]
kind = "number"
[columns.age]
kind = "number"
low = 0
high = 120
fill = 40
clip = true
[columns.member]
kind = "boolean"
fill = false
[columns.joined]
kind = "date"
low = 2000-01-01
high = 2030-01-01
fill = 2015-01-01
[columns.city]
kind = "category"
values = ["Berlin", "Paris"]
fill = "other"
[columns.remarks]
kind = "ignore"
"""
SCHEMA = Schema.parse(TEXT)
CELLS = {
    "age": [51, None, 1000],
    "member": [True, None, False],
    "joined": [date(2000, 1, 2), None, date(2010, 1, 1)],
    "city": ["Paris", None, "Ulm"],
}
DAY = 10957.0  # 2000-01-01
EXPECTED = [[51, 1, DAY + 1, 0, 1], [40, 0, 16436, 0, 0], [120, 0, 14610, 0, 0]]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_text_gaps_dates_and_booleans_become_numbers_by_declared_values(frame):
    step = SchemaTransformer(SCHEMA)
    check_is_fitted(step)  # nothing is learned
    table = frame(CELLS)
    np.testing.assert_array_equal(step.transform(table), EXPECTED)
    more = frame({"who": [1, 2, 3], "spend": [1.0, 2.0, 3.0], "extra": ["a", "b", "c"]} | CELLS)
    np.testing.assert_array_equal(step.fit_transform(more), EXPECTED)


def test_nothing_of_the_rows_stays_in_it():
    step = SchemaTransformer(SCHEMA)
    before = pickle.dumps(step)
    step.fit(pd.DataFrame(CELLS)).transform(pd.DataFrame(CELLS))
    assert set(vars(step)) == {"schema"}
    assert pickle.loads(before).schema == step.schema == Schema.parse(TEXT)


def test_it_can_be_cloned_and_names_its_columns():
    step = clone(SchemaTransformer(SCHEMA).set_output(transform="pandas"))
    assert step.schema == SCHEMA
    frame = pd.DataFrame(CELLS, index=["x", "y", "z"])
    out = step.fit_transform(frame)
    assert list(out.columns) == ["age", "member", "joined", "city=Berlin", "city=Paris"]
    assert list(out.columns) == step.get_feature_names_out().tolist()
    assert list(out.index) == ["x", "y", "z"]
    np.testing.assert_array_equal(out.to_numpy(), EXPECTED)
    polars = SchemaTransformer(SCHEMA).set_output(transform="polars").fit_transform(pl.DataFrame(CELLS))
    np.testing.assert_array_equal(polars.to_numpy(), EXPECTED)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_it_is_a_part_of_a_column_transformer(frame):
    table = frame(CELLS | {"weight": [1.5, 2.5, 3.5]})
    both = ColumnTransformer(
        [("declared", SchemaTransformer(SCHEMA), list(SCHEMA.input_kinds))], remainder="passthrough"
    )
    out = clone(both).fit_transform(table)
    np.testing.assert_array_equal(out, np.column_stack([EXPECTED, [1.5, 2.5, 3.5]]))
    names = clone(both).fit(table).get_feature_names_out().tolist()
    assert names == [*(f"declared__{name}" for name in SCHEMA.inputs), "remainder__weight"]


def people(rng, n=300):
    ages, flags = rng.integers(18, 90, n).astype(float), rng.random(n) < 0.5
    cities, days = rng.choice(["Berlin", "Paris", "Ulm"], n), rng.integers(0, 7000, n)
    y = ages + 20 * flags + 30 * (cities == "Paris") + days / 100
    joined = (np.datetime64("2001-01-01") + days).astype("M8[s]")
    frame = pd.DataFrame({"age": ages, "member": flags.astype(object), "joined": joined, "city": cities})
    frame.loc[::10, "age"], frame.loc[::7, "member"], frame.loc[::11, "city"] = np.nan, None, None
    return frame, y


def test_before_a_model_unlearning_leaves_nothing_of_a_person(rng):
    """Not even in the step before the model, where an imputer or encoder would keep it."""
    frame, y = people(rng)
    bounds = {"bounds": SCHEMA.bounds(), "target_bounds": (0, 500), "scales": SCHEMA.scales()}
    pipeline = make_pipeline(SchemaTransformer(SCHEMA), CodedRegressor(random_state=0, **bounds))
    ids = [f"person {k}" for k in range(len(y))]
    pipeline = clone(pipeline).fit(frame, y, codedregressor__ids=ids)
    assert pipeline.score(frame, y) > 0.8
    assert pipeline[-1].unlearn("person 5").rows == 1
    assert pipeline[-1].digest() == pipeline[-1].retrained().digest()
    twin = make_pipeline(SchemaTransformer(SCHEMA), Ridge()).fit(frame.drop(index=5), np.delete(y, 5))
    assert pickle.dumps(twin[0].schema) == pickle.dumps(pipeline[0].schema)


def test_numbers_may_come_in_an_array():
    schema = Schema.parse('target = "y"\n[columns.y]\nkind = "number"\n[columns.a]\nkind = "number"\nfill = 7')
    assert SchemaTransformer(schema).transform(np.array([[1.0], [np.nan]])).tolist() == [[1.0], [7.0]]
    assert SchemaTransformer(schema).transform(np.empty((0, 1))).shape == (0, 1)


def test_what_does_not_fit_the_schema_is_refused_without_a_cell():
    step = SchemaTransformer(SCHEMA)
    with pytest.raises(InvalidInput, match="no column 'city'"):
        step.transform(pd.DataFrame(CELLS).drop(columns="city"))
    with pytest.raises(InvalidInput, match="column 'age' must hold numbers") as caught:
        step.transform(pd.DataFrame(CELLS | {"age": ["secret", "1", "2"]}))
    assert "secret" not in str(caught.value)
    for wrong in (None, "schema.toml", TEXT):
        with pytest.raises(InvalidSetting, match="schema must be a Schema, as Schema.load returns, got"):
            SchemaTransformer(wrong).fit(pd.DataFrame(CELLS))


def test_without_pyarrow_it_says_what_to_install():
    code = """
import sys
sys.modules["pyarrow"] = None
import expunge
schema = expunge.Schema.parse('target = "y"\\n[columns.y]\\nkind = "number"\\n[columns.a]\\nkind = "number"')
try:
    expunge.SchemaTransformer(schema).fit([[1.0]]).transform([[1.0]])
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a schema reads tables with pyarrow: pip install 'expunge[vault]'\n"
