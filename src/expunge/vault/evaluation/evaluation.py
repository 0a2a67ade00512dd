"""The result of an evaluation: scores by target, and a page that shows them."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InvalidSetting
from ...exact.arrays import Floats
from ...saving.drafts import open_draft
from .report import render_page
from .scores import CONFIDENCE_LEVEL, RowOwners, Score, Scores, compute_scores, format_score

VAULT, LINEAR, MEAN = "vault", "linear", "mean"


@dataclass(frozen=True, eq=False)
class TargetScores:
    """The scores of one target, beside those of simple predictions.

    Attributes
    ----------
    target : str
        The target's column.
    vault : Scores
        Scores of the vault's model.
    linear : Scores
        Scores of a linear model of the same inputs, trained on the vault's rows.
    mean : Scores
        Scores of the mean target of the vault's rows.
    ratio : Score
        The vault's RMSE divided by the linear model's: below 1 the vault is better.
    """

    target: str
    vault: Scores
    linear: Scores
    mean: Scores
    ratio: Score
    y: Floats = field(repr=False)
    predicted: Floats = field(repr=False)

    @property
    def advice(self) -> str:
        """The conclusion, in one sentence."""
        ratio = self.ratio
        if ratio.value is None:
            return "a linear model on the vault's rows makes no error here"
        same = abs(ratio.value - 1) < 0.005  # as of a vault whose model is a linear one
        if same or ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high:
            verdict = "about as good as"
        else:
            verdict = "better than" if ratio.high < 1 else "worse than"
        return f"the vault is {verdict} a linear model on its rows: {format_score(ratio)} times its RMSE"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The quality of a vault's predictions on a table.

    Attributes
    ----------
    rows : int
        Number of rows in the table.
    people : int or None
        Number of ids that they belong to; None if the table has no ids: then every row counts as another person's.
    known : int or None
        How many of these people have rows in the vault; their predictions look better than for new people.
    outside : int
        Rows with an input outside the bounds.
    notes : tuple of str
        Remarks for the reader.
    resamples : int
        Draws of people from which the intervals are computed; an interval holds 95 % of the results. With fewer than
        ten people there are no intervals.
    targets : tuple of TargetScores
        One per target.
    """

    rows: int
    people: int | None
    known: int | None
    outside: int
    notes: tuple[str, ...]
    resamples: int
    targets: tuple[TargetScores, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain values, for JSON, without the rows."""
        names = (VAULT, LINEAR, MEAN, "ratio")
        targets = [
            {"target": scores.target, **{name: asdict(getattr(scores, name)) for name in names}}
            for scores in self.targets
        ]
        counts = {name: getattr(self, name) for name in ("rows", "people", "known", "outside", "resamples")}
        return {**counts, "level": CONFIDENCE_LEVEL, "targets": targets}

    def report(self, path: str | os.PathLike[str], *, title: str = "Evaluation") -> None:
        """Write an HTML page with the scores and charts of the errors: one file that needs no network.

        Parameters
        ----------
        path : path
            The file, which is replaced if it exists. Its charts are drawn from the rows of the table: store it as
            carefully as the table.
        title : str
            The title of the page.
        """
        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            problem = f"{path} is a folder: name a file" if path.is_dir() else f"there is no folder {path.parent}"
            raise InvalidSetting(f"{problem} for the page")
        with open_draft(path, shared=True) as draft, os.fdopen(os.dup(draft.fd), "wb") as file:
            file.write(render_page(self, title).encode())
            file.flush()
            draft.commit()


def evaluate_predictions(
    targets: tuple[str, ...],
    y: Floats,
    predictions: Mapping[str, Floats],
    owners: RowOwners,
    *,
    resamples: int,
    seed: int,
    **about: Any,
) -> Evaluation:
    """Evaluate predictions by the vault, a linear model and the mean, (n, t) each."""
    by_target = []
    for j, target in enumerate(targets):
        predicted = {name: predictions[name][:, j] for name in (LINEAR, MEAN, VAULT)}
        scores, ratios = compute_scores(y[:, j], predicted, owners, resamples=resamples, seed=seed)
        by_target.append(TargetScores(target, **scores, ratio=ratios[VAULT], y=y[:, j], predicted=predicted[VAULT]))
    return Evaluation(rows=len(y), resamples=resamples, targets=tuple(by_target), **about)
