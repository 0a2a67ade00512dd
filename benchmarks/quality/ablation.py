"""What each part of the planner gains: plans without it, on the tables to develop with.

Every plan has the same rows and seed. Trials and descents that two plans share are run once.
"""

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

import expunge
from expunge.planning import column_scales, finals, planner, search

from .methods import linear
from .scores import geometric_mean
from .splits import Split, split
from .tables import Table

ROWS, COSINES = 5_200, 400  # training rows, and cosines at most: plans in less than a minute
EVERYTHING, LINE = "everything", "linear"

WITHOUT: Mapping[str, Sequence[tuple[Any, str, Any]]] = {
    EVERYTHING: [],
    "doubt": [(planner, "measure_line_advantage", lambda *given: None)],
    "blends": [(finals, "blend_shapes", lambda shapes: [])],
    "polishing": [(search, "_POLISHED_SHAPES", 0)],
    "mixing": [(search, "descend_mixing", lambda validation, first, **given: first)],
    "log targets": [(column_scales, "_is_skewed", lambda column: False)],
}


def ablate(table: Table, number: int = 0) -> dict[str, float]:
    """Return the test error of the plan without each part, and of a linear model."""
    rows = split(table.load(), number)
    errors = {LINE: rows.mse(linear(rows))}
    kept = np.sort(np.random.default_rng(number).permutation(len(rows.y))[:ROWS])
    with threadpool_limits(1), _remember():
        for name, changes in WITHOUT.items():
            with ExitStack() as stack:
                for module, attribute, value in changes:
                    stack.enter_context(patch.object(module, attribute, value))
                errors[name] = _plan_error(rows, kept)
    return errors


def _plan_error(rows: Split, kept: Any) -> float:
    ids = None if rows.ids is None else rows.ids[kept]
    X, y = rows.X[kept], rows.y[kept]
    best = expunge.plan(X, y, ids, random_state=rows.number, references=False, max_features=COSINES).best
    return rows.mse(best.fit(X, y).predict(rows.X_test))


@contextmanager
def _remember() -> Iterator[None]:
    """Run equal trials and descents once."""
    results: dict[str, Any] = {}

    def remember(task: Callable[..., Any]) -> Callable[..., Any]:
        def run(validation: Any, *given: Any, **options: Any) -> Any:
            sizes = [(fold.Z.shape, len(fold.y_validation), fold.Z[:50]) for fold in validation.folds]
            known = (task.__name__, sizes, validation.scaling_settings, given, options)
            key = hashlib.sha256(pickle.dumps(known)).hexdigest()
            if key not in results:
                results[key] = task(validation, *given, **options)
            return results[key]

        return run

    with ExitStack() as stack:
        for module, name in (
            (search, "descend"),
            (search, "descend_mixing"),
            (search, "_run_rounds"),
            (search, "_polish"),
            (search, "try_settings"),
            (finals, "try_settings"),
        ):
            stack.enter_context(patch.object(module, name, remember(getattr(module, name))))
        yield


def tabulate(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a Markdown table of the ratios to everything: a line per table, then the geometric means."""
    names = list(WITHOUT)[1:]
    ratios = {table: [found[name] / found[EVERYTHING] for name in names] for table, found in errors.items()}
    means = [geometric_mean(column) for column in zip(*ratios.values(), strict=True)]
    lines = [[table, *(f"{ratio:.3f}" for ratio in row)] for table, row in ratios.items()]
    lines.append(["**geometric mean**", *(f"**{mean:.3f}**" for mean in means)])
    return [f"| {' | '.join(cells)} |" for cells in (["without", *names], ["---"] * (len(names) + 1), *lines)]
