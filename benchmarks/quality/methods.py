"""Methods: what the plan chooses, the paper's protocol, and models of scikit-learn as references."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge import CodedRegressor, RandomFourier
from expunge.vault import Planning

from .splits import Floats, Split

PLAN, PLAN_5, PLAN_2 = "plan", "plan, 5 ms", "plan, 2 ms"
PAPER, LINEAR, TREES = "paper", "linear", "extra trees"
BOOSTED = ("boosting 100", "boosting 400")
SMALL = "small plan"  # of `expunge train`
INSTALLED = tuple(name for name, module in (("LightGBM", "lightgbm"), ("CatBoost", "catboost")) if find_spec(module))
NAMES = (PLAN, PLAN_5, PLAN_2, SMALL, PAPER, LINEAR, *BOOSTED, *INSTALLED, TREES)


@dataclass(frozen=True)
class Outcome:
    """What a method reached on a split."""

    mse: float
    seconds: float  # to choose, learn and predict
    forget_ms: float | None = None  # a row, measured; None for methods that cannot
    chosen: str = ""


@dataclass(frozen=True)
class Method:
    """One or several results that are computed together, and all that they depend on beside the split."""

    names: tuple[str, ...]
    run: Callable[[Split], Mapping[str, Outcome]]
    settings: Mapping[str, Any]


def source(*files: Path) -> str:
    """Return a hash of files: results of other code are other results."""
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


DELETIONS = 9  # whose median time is told
_OTHER_ROOMS = {"cli", "paper", "testing.py", "vault"}  # no model depends on them


def paper(split: Split, features: int) -> Mapping[str, Outcome]:
    """The paper's protocol as it was: 20 shards, rate 5, Gaussian features, a fixed penalty, inputs not clamped."""
    options: dict[str, Any] = {"outside": "extrapolate"} if "outside" in CodedRegressor().get_params() else {}
    started, phi = time.perf_counter(), RandomFourier(features)
    model = CodedRegressor(shards=20, rate=5, features=phi, alpha=1e-4, random_state=split.number, **options)
    return {PAPER: _outcome(model, split, started)}


def planned(split: Split, **settings: Any) -> Mapping[str, Outcome]:
    """What the plan chooses, without a limit and with two; the seconds of planning are in all three."""
    from expunge import plan

    started = time.perf_counter()
    result = plan(split.X, split.y, split.ids, random_state=split.number, references=False, **settings)
    planning = time.perf_counter() - started
    choices = {PLAN: result.best, PLAN_5: result.within(5), PLAN_2: result.within(2)}
    return {name: _outcome(model, split, time.perf_counter() - planning) for name, model in choices.items()}


def planned_small(split: Split, **settings: Any) -> Mapping[str, Outcome]:
    """What `expunge train` chooses without settings."""
    small = Planning()  # how a vault plans by default
    options: dict[str, Any] = {"forget_ms": small.forget_ms, "max_features": small.max_features, "quick": small.quick}
    options |= {"references": False} | settings
    started = time.perf_counter()
    best = expunge.plan(split.X, split.y, split.ids, random_state=split.number, **options).best
    return {SMALL: _outcome(best, split, started)}


def ours(*, features: int = 300, **settings: Any) -> list[Method]:
    """The paper's protocol and the plans; smaller numbers, and other settings of the plan, are for tests."""
    code = {"code": _code()}
    return [
        Method((PAPER,), partial(paper, features=features), {**code, "features": features}),
        Method((PLAN, PLAN_5, PLAN_2), partial(planned, **settings), {**code, **settings}),
        Method((SMALL,), partial(planned_small, **settings), {**code, **settings}),
    ]


def _outcome(model: CodedRegressor, split: Split, started: float) -> Outcome:
    model.fit(split.X, split.y)  # a model does not depend on ids; without them one row can be forgotten
    mse, seconds = split.mse(model.predict(split.X_test)), time.perf_counter() - started
    leaving = np.random.default_rng(0).choice(len(split.y), DELETIONS, replace=False)
    forget = [1e3 * model.unlearn([row]).seconds for row in leaving.tolist()]
    return Outcome(mse, seconds, float(np.median(forget)), describe_model(model))


def describe_model(model: CodedRegressor) -> str:
    """Say in short what a fitted model is; knots and relevances are too long for a table."""
    code, features = model.code_, model.features
    shape = "one learner" if code.shards == 1 else f"{code.shards} shards, rate {code.rate:g}"
    if not isinstance(features, RandomFourier):
        return f"{features}, alpha {model.alpha:g}, {shape}"
    known = features.get_params()
    parts = [f"{known['n_features']:,} cosines, {known['kernel']}"]
    if known.get("linear"):
        parts.append("linear")
    if order := known.get("order"):
        parts.append(f"order {order}")
    if (scale := known.get("scale")) is not None:
        of_each = np.ndim(scale) - ("+" in known["kernel"] and np.ndim(scale) > 0)  # kernel, if they are several
        parts.append({0: f"scale {scale}", 1: "relevance", 2: "metric"}[of_each])
    return ", ".join([*parts, f"alpha {model.alpha:g}", shape])


@cache
def _code() -> str:
    """Return a hash of this file and of the package, without the rooms that no model depends on."""
    folder = Path(expunge.__file__).parent
    files = [file for file in sorted(folder.rglob("*.py")) if file.relative_to(folder).parts[0] not in _OTHER_ROOMS]
    return source(Path(__file__), *files)


def linear(split: Split) -> Floats:
    """Predict by a linear model; ridge with a penalty by leave-one-out, so that rare categories do no harm."""
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))
    return _predicted(model.fit(split.X, split.y), split.X_test)


def boosting(split: Split, iterations: int) -> Floats:
    """Predict by HistGradientBoosting, with its own treatment of categories and gaps."""
    mask = split.categorical if split.categorical.any() else None
    model = HistGradientBoostingRegressor(
        max_iter=iterations, categorical_features=mask, early_stopping=False, random_state=split.number
    )
    return _predicted(model.fit(split.trees, split.y), split.trees_test)


def extra_trees(split: Split, trees: int) -> Floats:
    """Predict by extremely randomised trees; categories by number, the most frequent first."""
    model = ExtraTreesRegressor(trees, random_state=split.number)
    return _predicted(model.fit(split.trees, split.y), split.trees_test)


def early_stopped(split: Split, package: str, iterations: int) -> Floats:
    """Predict by LightGBM or CatBoost, stopped when a fifth of the people, left out, gain nothing for 50 iterations."""
    people = np.arange(len(split.y)) if split.ids is None else split.ids
    everybody = np.random.default_rng(split.number).permutation(np.unique(people))
    judging = np.isin(people, everybody[: len(everybody) // 5])
    columns = np.flatnonzero(split.categorical).tolist()
    train, test = pd.DataFrame(split.trees), pd.DataFrame(split.trees_test)
    for column in columns:
        train[column], test[column] = (rows[column].fillna(-1).astype(int) for rows in (train, test))
    given, judges = (train[~judging], split.y[~judging]), (train[judging], split.y[judging])
    if package == "LightGBM":
        lightgbm = import_module("lightgbm")
        model = lightgbm.LGBMRegressor(
            n_estimators=iterations, learning_rate=0.05, random_state=split.number, n_jobs=1, verbose=-1
        )
        stop = lightgbm.early_stopping(50, verbose=False)
        return _predicted(
            model.fit(*given, eval_X=judges[0], eval_y=judges[1], categorical_feature=columns, callbacks=[stop]), test
        )
    model = import_module("catboost").CatBoostRegressor(
        iterations=iterations, random_seed=split.number, thread_count=1, verbose=False, allow_writing_files=False
    )
    model.fit(*given, cat_features=columns, eval_set=judges, early_stopping_rounds=50)
    return _predicted(model, test)


def references(*, iterations: tuple[int, int] = (100, 400), trees: int = 200) -> list[Method]:
    """All references; smaller numbers are for tests."""
    few, many = iterations
    return [
        _method(LINEAR, linear),
        _method(BOOSTED[0], boosting, iterations=few),
        _method(BOOSTED[1], boosting, iterations=many),
        *(_method(name, partial(early_stopped, package=name), iterations=5 * many) for name in INSTALLED),
        _method(TREES, extra_trees, trees=trees),
    ]


def _method(name: str, predict: Callable[..., Floats], **settings: int) -> Method:
    known = {"scikit-learn": sklearn.__version__, "code": source(Path(__file__))}
    return Method((name,), partial(_timed, name, partial(predict, **settings)), {**known, **settings})


def _timed(name: str, predict: Callable[[Split], Floats], split: Split) -> Mapping[str, Outcome]:
    started = time.perf_counter()
    mse = split.mse(predict(split))
    return {name: Outcome(mse, time.perf_counter() - started)}


def _predicted(model: Any, X: Any) -> Floats:
    predictions: Floats = model.predict(X)
    return predictions
