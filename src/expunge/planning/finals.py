"""Finals: the best shapes with as many features as each time to forget allows, and the codes.

The numbers of features go in steps of the time to forget, so that a limit of 2 or 5 ms is met as closely as can be.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from ..learning.settings import Settings
from .candidates import Size, Tried
from .codes import CODINGS, SINGLE, Coding
from .costs import widest
from .ground import Ground
from .measuring import forgets
from .search import Found
from .shapes import Blend, Shape, blends
from .trial import tried

STEPS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # milliseconds to forget a row
_FEWEST = 16  # cosines
_PER_ROW = 3  # cosines at most: with more a small table takes long, and gains nothing
_COMPARED = 10.0  # ms: with what this allows the shapes are compared
_SHAPES = 3  # so many are, and blends of them
_BLENDED = 50.0  # ms: with as many features as this allows, and more, the largest blend is tried once more
_CODED = 5.0  # ms: codes are tried with what this allows, and with the best
_FAVOUR = 0.98  # what the error of a blend is multiplied by: with other draws and more rows blends did better


@dataclass(frozen=True, eq=False)
class Finals:
    """Where candidates are tried, for a table of which size."""

    ground: Ground
    size: Size
    seed: int
    most: int  # cosines
    codes: bool  # whether codes are tried, too

    def run(self, found: list[Found], limit: float | None, told: Callable[[float], None]) -> list[Tried]:
        """Try the best shapes with every number of cosines, and the codes with two; ``limit`` is a step, too."""
        steps = self._steps([*STEPS, *([] if limit is None else [limit])])
        shapes, made = [one.shape for one in found], list[Tried]()
        best, blended = self._compared(shapes), blends(shapes)[-1:]
        few, many = self._cosines(_COMPARED), self._cosines(_BLENDED)
        for k, cosines in enumerate(steps):
            others = [best.stretched(0.5), *shapes[:1]] if cosines < few else blended if cosines >= many else []
            made.append(min((self._tried(one, cosines, SINGLE) for one in [best, *others]), key=_error))
            told((k + 1) / (len(steps) + len(CODINGS)))
        allowed = [one for one in made if limit is None or one.costs.forget_ms <= limit] or made[:1]
        for settings in {id(one): one.settings for one in (min(allowed, key=_error), self._nearest(made))}.values():
            made += [self._coded(settings, coding) for coding in CODINGS[1:] if self.codes and self._fits(coding)]
        told(1.0)
        return made

    def _compared(self, shapes: Sequence[Shape]) -> Shape | Blend:
        """The shape or blend that does best with more features than the search had, and its reach with those."""
        cosines = self._steps([_COMPARED])[-1]

        @cache
        def judged(one: Shape | Blend) -> float:
            error = _error(self._tried(one, cosines, SINGLE))
            return _FAVOUR * error if isinstance(one, Blend) else error

        compared: list[Shape | Blend] = [*shapes[:_SHAPES], *blends(shapes)]
        best = min(compared, key=judged)
        return min(best, best.stretched(2.0), key=judged)

    def _steps(self, times: Iterable[float]) -> list[int]:
        """Numbers of cosines that forget within these times, rising."""
        most = min(self.most, _PER_ROW * self.ground.rows)
        return sorted({min(most, max(_FEWEST, self._cosines(time))) for time in times})

    def _cosines(self, forget_ms: float) -> int:
        return widest(forget_ms) - self.size.columns - 1 - self.size.targets

    def _nearest(self, made: list[Tried]) -> Tried:
        """The candidate with the most cosines of those that are fast to forget."""
        return max((one for one in made if one.costs.forget_ms <= _CODED), key=_cost, default=made[0])

    def _fits(self, coding: Coding) -> bool:
        """Whether every learner has enough coded rows."""
        return all(len(fold.Z) >= 20 * coding.shards for fold in self.ground.folds)

    def _tried(self, shape: Shape | Blend, cosines: int, coding: Coding) -> Tried:
        settings = Settings(features=shape.features(cosines, self.seed), random_state=self.seed)
        return self._coded(settings, coding)

    def _coded(self, settings: Settings, coding: Coding) -> Tried:
        settings = coding.applied(settings)
        started = time.perf_counter()
        trial = tried(self.ground, settings)
        seconds = (time.perf_counter() - started) / len(self.ground.folds)
        return Tried.of(coding, trial, self.size, (forgets(self.ground, trial.settings), seconds))


def _error(one: Tried) -> float:
    return float(f"{one.judged.mean():.5g}")


def _cost(one: Tried) -> float:
    return one.costs.forget_ms
