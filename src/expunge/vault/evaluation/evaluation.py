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

VAULT, LINEAR, TREES, MEAN = "vault", "linear", "trees", "mean"
_ALIKE = 0.01  # closer ratios are no difference


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
    trees : Scores or None
        Scores of boosted trees, trained on the vault's rows; None if there are none.
    mean : Scores
        Scores of the mean target of the vault's rows.
    ratio : Score
        The vault's RMSE divided by the linear model's: below 1 the vault is better.
    ratio_to_trees : Score or None
        The same for boosted trees.
    ratio_to_mean : Score
        The same for the mean.
    is_linear : bool
        Whether the vault's model is linear itself.
    """

    target: str
    vault: Scores
    linear: Scores
    mean: Scores
    ratio: Score
    ratio_to_mean: Score
    y: Floats = field(repr=False)
    predicted: Floats = field(repr=False)
    trees: Scores | None = None
    ratio_to_trees: Score | None = None
    is_linear: bool = False

    @property
    def advice(self) -> str:
        """The conclusion, in one sentence."""
        sentences = [self._compare_with_line()]
        if self.ratio_to_trees is not None and self.ratio_to_trees.value is not None:
            sentences.append(f"{format_score(self.ratio_to_trees)} times that of boosted trees")
        if self.ratio_to_mean.value is not None and _verdict(self.ratio_to_mean) != "better than":
            sentences.append("it is no better than the mean")
        return "; ".join(sentences)

    def _compare_with_line(self) -> str:
        if self.ratio.value is None:
            return "a linear model on the vault's rows makes no error here"
        times = f"{format_score(self.ratio)} times"
        if self.is_linear:  # it would be called better than itself
            return f"the vault is a linear model: {times} the RMSE of one with another penalty"
        return f"the vault is {_verdict(self.ratio)} a linear model on its rows: {times} its RMSE"


def _verdict(ratio: Score) -> str:
    """Return what an interval says about a ratio of errors."""
    assert ratio.value is not None
    if ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high or abs(ratio.value - 1) < _ALIKE:
        return "about as good as"
    return "better than" if ratio.high < 1 else "worse than"


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
        names = (VAULT, LINEAR, TREES, MEAN, "ratio", "ratio_to_trees", "ratio_to_mean")
        targets = [
            {"target": scores.target}
            | {name: asdict(score) for name in names if (score := getattr(scores, name)) is not None}
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
    is_linear: bool = False,
    **about: Any,
) -> Evaluation:
    """Evaluate predictions by the vault, a linear model, the mean and perhaps boosted trees, (n, t) each."""
    by_target = []
    for j, target in enumerate(targets):
        predicted = {name: values[:, j] for name, values in predictions.items()}
        ratios = dict[str, Score]()
        for name in filter(VAULT.__ne__, predicted):
            pair = {name: predicted[name], **predicted}  # the first is what the others are divided by
            scores, ratio = compute_scores(y[:, j], pair, owners, resamples=resamples, seed=seed)
            ratios[name] = ratio[VAULT]
        by_target.append(
            TargetScores(
                target,
                **scores,
                ratio=ratios[LINEAR],
                ratio_to_trees=ratios.get(TREES),
                ratio_to_mean=ratios[MEAN],
                y=y[:, j],
                predicted=predicted[VAULT],
                is_linear=is_linear,
            )
        )
    return Evaluation(rows=len(y), resamples=resamples, targets=tuple(by_target), **about)
