"""SchemaTransformer: a schema as a step of a scikit-learn pipeline.

`Schema` itself is no estimator: tables know nothing of scikit-learn, which a vault does not need, and a frozen schema
in its normal form is not what `sklearn.base.clone` builds from parameters.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from .errors import InvalidSetting
from .exact.arrays import Floats
from .tables import Schema


class SchemaTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Turns a table with text, dates, booleans and empty cells into numbers, by declared values alone.

    Nothing is learned in `fit`, so nothing of a person stays here when the model after it unlearns them: an imputer
    keeps medians, an encoder the values that it saw. Give the model the declared bounds and scales, too.

    Parameters
    ----------
    schema : Schema
        The columns, as `Schema.load` reads them from a file. Those of the inputs must be in the table; the target, the
        ids and other columns may be. Values beyond the bounds of a column with ``clip`` are moved to the bound.

    Examples
    --------
    >>> import pandas as pd
    >>> from expunge import Schema, SchemaTransformer
    >>> schema = Schema.parse('''
    ... target = "spend"
    ... [columns.spend]
    ... kind = "number"
    ... [columns.age]
    ... kind = "number"
    ... low = 0
    ... high = 120
    ... fill = 40
    ... [columns.city]
    ... kind = "category"
    ... values = ["Berlin", "Paris"]
    ... ''')
    >>> people = pd.DataFrame({"age": [51, None], "city": ["Paris", "Ulm"]})
    >>> SchemaTransformer(schema).set_output(transform="pandas").fit_transform(people)
        age  city=Berlin  city=Paris
    0  51.0          0.0         1.0
    1  40.0          0.0         0.0
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, X: Any, y: object = None) -> Self:
        """Check the schema; the rows are not looked at."""
        self._check_schema()
        return self

    def transform(self, X: Any) -> Floats:
        """Return the inputs that the schema declares, in their own units, gaps filled: a table -> (n, d).

        X is a frame of pandas, polars or pyarrow or, if all inputs are numbers or booleans, an array.
        """
        schema = self._check_schema()
        try:
            from .tables.reader import read_blocks
        except ModuleNotFoundError as error:
            raise ImportError(f"a schema reads tables with {error.name}: pip install 'expunge[vault]'") from None
        blocks = [block.X for block in read_blocks(X, schema, targets=False, ids=False)]
        return schema.clip(np.concatenate([np.empty((0, len(schema.inputs))), *blocks]))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the inputs: ``age``, ``city=Berlin``."""
        return np.array(self._check_schema().inputs, dtype=object)

    def _check_schema(self) -> Schema:
        if not isinstance(self.schema, Schema):
            raise InvalidSetting(f"schema must be a Schema, as Schema.load returns, got {type(self.schema).__name__}")
        return self.schema

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.requires_fit = False
        return tags
