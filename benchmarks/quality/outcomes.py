"""What a method is, and what it reached on a split."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from .splits import Split

PLAN, PLAN_5, PLAN_2 = "plan", "plan, 5 ms", "plan, 2 ms"
PAPER, LINEAR, TREES = "paper", "linear", "extra trees"
BOOSTED = ("boosting 100", "boosting 400")
NAMES = (PLAN, PLAN_5, PLAN_2, PAPER, LINEAR, *BOOSTED, TREES)


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
