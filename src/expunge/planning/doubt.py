"""Doubt: whether cosines do better than a line on rows that had no part in finding their shape.

In a small sample everybody judges in turn, and those who judge in one fold are learned from in the others: a search for
shapes comes to fit all of them. On tables that were linear it found shapes with 10 % less error than a line, which had
10 % more on new rows. So where a line is close, a quick search is made without the people of one fold, who judge what
it found; then without those of the next.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..exact.arrays import Floats
from .candidates import Tried, chosen
from .ground import Ground
from .sample import Sample
from .search import search
from .trial import tried

_CLOSE = 1.5  # times the least error: a line that is further off is no match
_ENOUGH = 400  # rows that judge


def doubted(
    ground: Ground, sample: Sample, line: Tried, others: Sequence[Tried], forget_ms: float | None, seed: int
) -> float | None:
    """How much more error cosines have than a line, as a part of it, on rows that the search did not see.

    None if that was not asked: a line is chosen anyway, or far off, or one fold judges, whom nothing was learned from.
    """
    if chosen([*others, line], ground.people, forget_ms) is line:
        return None
    least = min(one.errors.mean() for one in others)
    if len(ground.folds) == 1 or line.errors.mean() > _CLOSE * least:
        return None
    made, count = list[Floats](), 0
    for k, (fold, judge) in enumerate(zip(ground.folds, sample.folds, strict=True)):
        if count >= _ENOUGH and k > 1:
            break
        inner = Ground.of(
            sample.without(judge), bounds=ground.bounds, target_bounds=ground.target_bounds, **ground.settings
        )
        best = search(inner, seed, lambda share: None, quick=True)[0]
        people = ground.people[count : count + len(fold.truth)]
        outer = replace(ground, folds=(fold,), people=people)
        made.append(tried(outer, best.trial.settings, (best.trial.settings.alpha,)).errors)
        count += len(fold.truth)
    return float(np.concatenate(made).mean() / line.errors[:count].mean() - 1)
