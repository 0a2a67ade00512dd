"""Codes as candidates, and in words what each of them buys."""

from dataclasses import dataclass, replace

from ..encoding.codes import Code
from ..encoding.randomness import as_generator
from ..learning.settings import Settings


@dataclass(frozen=True)
class Coding:
    """How rows are shared out among learners: ``shards`` lanes, ``rate`` rows per coded row."""

    shards: int
    rate: int

    @property
    def learners(self) -> int:
        """Weak learners, r."""
        return self.shards // self.rate

    def __str__(self) -> str:
        if self.shards == 1:
            return "one learner"
        if self.rate == 1:
            return f"uncoded, {self.shards} shards"
        return f"coded, rate {self.rate}" + (f", {self.learners} learners" if self.learners > 1 else "")

    def buys(self) -> str:
        """What it buys, and what it does not."""
        if self.shards == 1:
            return (
                "the least error for its features; every row counts in full. Training and audit read every row; "
                "whoever sees the model before and after a deletion can reconstruct the row"
            )
        if self.rate == 1:
            return (
                f"learners that have no closed form train on a {_part(self.shards)} of the rows; nothing for ridge, "
                "which forgets as fast with one learner"
            )
        return (
            f"training and audit cost a {_part(self.rate)} of the products; a model that keeps no raw row is possible "
            "(keep='coded'); before and after a deletion tell less about the row"
            + (f"; {self.learners} learners blunt that further" if self.learners > 1 else "")
        )

    def applied(self, settings: Settings) -> Settings:
        """Settings with this code."""
        return replace(settings, shards=self.shards, rate=self.rate, code=None)

    def drawn(self) -> Code:
        """A code of this kind."""
        return Settings(shards=self.shards, rate=self.rate).drawn_code(as_generator(0))


SINGLE = Coding(1, 1)
CODINGS = (SINGLE, Coding(2, 2), Coding(5, 5), Coding(10, 10), Coding(20, 5), Coding(5, 1))

_PARTS = {2: "half", 5: "fifth", 10: "tenth", 20: "twentieth"}


def _part(count: int) -> str:
    return _PARTS.get(count, f"{count}th")
