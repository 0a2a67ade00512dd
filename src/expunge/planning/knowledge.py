"""What a plan knows: how many bits its choice can carry about the people whose rows it saw.

A plan picks one of N settings; whoever reads it learns at most log2 N bits about all of them together.
"""

import math
from collections.abc import Sequence

from .codes import CODINGS
from .columns import GRID
from .finals import STEPS
from .search import KINDS
from .shapes import BLENDED, EIGHTHS, FARTHEST, LARGEST, MIXED
from .trial import ALPHAS

_SCALES = 2 * LARGEST + 2  # what the scale of an input can be
_MIXINGS = 2 * FARTHEST * EIGHTHS - 1  # and an entry of a mixing matrix


def bits(columns: int, knots: Sequence[int]) -> float:
    """The logarithm of the number of settings that a plan could have picked.

    ``columns`` are the scaled ones, each with a relevance in each of the shapes that are blended, and some of them
    mixed, in one of these at most; ``knots`` are the numbers of knots of each input that the plan gave some to.
    """
    settings = (len(KINDS) + 1) ** BLENDED * len(ALPHAS) * (len(STEPS) + 1) * len(CODINGS) * BLENDED
    relevance = BLENDED * columns * math.log2(_SCALES)
    chosen = sum(math.log2(math.comb(GRID + 1, count)) for count in knots)
    mixed = min(MIXED, columns)
    mixing = math.log2(math.comb(columns, mixed)) + mixed**2 * math.log2(_MIXINGS)
    return math.log2(settings) + relevance + mixing + chosen
