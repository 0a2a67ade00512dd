"""Straight lines: the linear model is a candidate like any other, and the cheapest of all.

It has the inputs themselves as features, on the scales that the caller gave, else linear ones. Where rows lie outside
the bounds, a line may go on or stay at the bound: whichever has less error on the rows that judge.
"""

import time
from dataclasses import replace
from typing import Any

from ..encoding.encoder import Outside
from ..learning.settings import Settings
from .candidates import Size, Tried
from .codes import SINGLE
from .ground import Ground
from .measuring import forgets
from .sample import Sample
from .trial import ALPHAS, AS_GOOD, tried

OUTSIDE: tuple[Outside, ...] = ("clamp", "extrapolate")  # the first if both are as good
STRAIGHT_ALPHAS = (1e-9, 1e-8, 1e-7, *ALPHAS)  # of a skewed input most values are small on a linear scale


def straight(sample: Sample, declared: dict[str, Any], rows: int, seed: int) -> Tried:
    """Try one linear learner for a table of so many rows; ``declared`` are its bounds and scales."""
    grounds = [Ground.of(sample, **declared, outside=outside) for outside in OUTSIDE]
    started = time.perf_counter()
    settings = Settings(shards=1, rate=1, random_state=seed)
    trials = [tried(ground, settings, STRAIGHT_ALPHAS, at_most=AS_GOOD) for ground in grounds]
    seconds = (time.perf_counter() - started) / sum(len(ground.folds) for ground in grounds)
    trial, ground = min(zip(trials, grounds, strict=True), key=lambda pair: pair[0].error)
    size = Size(rows, sample.X.shape[1], ground.columns, ground.targets)
    return replace(Tried.of(SINGLE, trial, size, (forgets(ground, trial.settings), seconds)), line=True)
