"""What an evaluation answers: scores by target, and a page that shows them."""

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
    """How well one target is predicted, and how well simple predictions do.

    Attributes
    ----------
    target : str
        Its column.
    vault : Scores
        Of the vault's model.
    linear : Scores
        Of a linear model of the same inputs that was learned from the same rows, those of the vault.
    mean : Scores
        Of the mean target of the vault's rows.
    ratio : Score
        The vault's RMSE as a multiple of the linear model's: below 1 it is better.
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
        """What the scores come to, in one sentence."""
        ratio = self.ratio
        if ratio.value is None:
            return "a linear model on the vault's rows makes no error here"
        if ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high:
            how = "about as good as"
        else:
            how = "better than" if ratio.high < 1 else "worse than"
        return f"the vault is {how} a linear model on its rows: {format_score(ratio)} times its RMSE"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How good a vault's predictions are on a table.

    Attributes
    ----------
    rows : int
        The rows of the table.
    people : int or None
        How many ids they belong to; None if the table has no ids: then every row counts as somebody else's.
    known : int or None
        Of these people, how many have rows in the vault, which are predicted too well.
    outside : int
        Rows with an input outside the bounds.
    notes : tuple of str
        What a person should know.
    resamples : int
        Draws of people from which the intervals come; they hold 95 % of what came out. Fewer than ten people have none.
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
        """Return all numbers as plain values, for JSON; not the rows."""
        targets = [
            {"target": one.target, **{name: asdict(getattr(one, name)) for name in (VAULT, LINEAR, MEAN, "ratio")}}
            for one in self.targets
        ]
        own = {name: getattr(self, name) for name in ("rows", "people", "known", "outside", "resamples")}
        return {**own, "level": CONFIDENCE_LEVEL, "targets": targets}

    def report(self, path: str | os.PathLike[str], *, title: str = "Evaluation") -> None:
        """Write an HTML page with the scores and pictures of the errors: one file that needs no network.

        Parameters
        ----------
        path : path
            The file, which is replaced if it is there. Its pictures are drawn from the rows of the table: keep it as
            you keep the table.
        title : str
            What the page is called.
        """
        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            what = f"{path} is a folder: name a file" if path.is_dir() else f"there is no folder {path.parent}"
            raise InvalidSetting(f"{what} for the page")
        with open_draft(path, shared=True) as new, os.fdopen(os.dup(new.fd), "wb") as file:
            file.write(render_page(self, title).encode())
            file.flush()
            new.commit()


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
    """Return the evaluation of predictions by the vault, a linear model and the mean, (n, t) each."""
    found = []
    for j, target in enumerate(targets):
        one = {name: predictions[name][:, j] for name in (LINEAR, MEAN, VAULT)}
        scores, ratios = compute_scores(y[:, j], one, owners, resamples=resamples, seed=seed)
        found.append(TargetScores(target, **scores, ratio=ratios[VAULT], y=y[:, j], predicted=one[VAULT]))
    return Evaluation(rows=len(y), resamples=resamples, targets=tuple(found), **about)
