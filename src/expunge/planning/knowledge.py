"""What a plan knows: how many bits its choice can carry about the people whose rows it saw.

A plan picks one of N settings; whoever reads it learns at most log2 N bits about all of them together. Knots have a
code instead, in which what is unusual has long words: whoever reads them learns at most the length of theirs. The score
in a plan file is rounded, and counts like a setting.
"""

import math
from collections.abc import Sequence

from .codes import CODINGS
from .columns import knot_bits
from .document import DIGITS
from .finals import STEPS
from .search import KINDS
from .shapes import BLENDED, EIGHTHS, FARTHEST, LARGEST, MIXED
from .straight import OUTSIDE, STRAIGHT_ALPHAS
from .trial import ALPHAS

_SCALES = 2 * LARGEST + 2  # what the scale of an input can be
_MAGNITUDES = 660  # orders of magnitude of a float, and 0
_MIXINGS = 2 * FARTHEST * EIGHTHS - 1  # and an entry of a mixing matrix
_SCORE = 2 * math.log2(10**DIGITS * _MAGNITUDES)  # the error and its spread; R2 follows from the error
_LINE = 1.0  # whether it is a linear model


def bits(columns: int, knots: Sequence[Sequence[float]], targets: int) -> float:
    """The logarithm of the number of settings that a plan could have picked.

    ``columns`` are the scaled ones, each with a relevance in each of the shapes that are blended, and some of them
    mixed, in one of these at most; ``knots`` are those that the plan gave to each input, none if the scales are not its
    own; ``targets`` are those whose scale is, one of two.
    """
    settings = (len(KINDS) + 1) ** BLENDED * len(ALPHAS) * (len(STEPS) + 1) * len(CODINGS) * BLENDED
    relevance = BLENDED * columns * math.log2(_SCALES)
    mixed = min(MIXED, columns)
    mixing = math.log2(math.comb(columns, mixed)) + mixed**2 * math.log2(_MIXINGS)
    return _SCORE + _LINE + targets + math.log2(settings) + relevance + mixing + sum(map(knot_bits, knots))


def line_bits() -> float:
    """The same for a plan that picked a linear model."""
    return _SCORE + _LINE + math.log2(len(STRAIGHT_ALPHAS) * len(OUTSIDE))
