"""Advice: what was chosen, why, and what was given up, in words."""

from collections.abc import Sequence

from .candidates import GIVEN_UP, Candidate
from .codes import Coding
from .references import Reference


def advice(
    choice: Candidate, table: Sequence[Candidate], references: Sequence[Reference], forget_ms: float | None
) -> str:
    """A few sentences about a choice."""
    said = [
        f"Train {choice.code} with {choice.features} and alpha={choice.alpha:g}: R2 {choice.r2:.4f} on validation rows, "
        f"about {_ms(choice.forget_ms)} to forget a row."
    ]
    said += _given_up(choice, table, forget_ms)
    said += _against(choice, references)
    said.append(f"What {choice.code} buys: {Coding(choice.shards, choice.rate).buys()}.")
    if choice.shards == 1 and (coded := _best_coded(choice, table)) is not None:
        said.append(
            f"Coding would buy {Coding(coded.shards, coded.rate).buys()}; the best of it here ({coded.code}, "
            f"{coded.cosines} cosines) has {coded.error / choice.error - 1:+.1%} error."
        )
    return " ".join(said)


def _given_up(choice: Candidate, table: Sequence[Candidate], forget_ms: float | None) -> list[str]:
    """What the best candidate would have been, if another was chosen."""
    allowed = [one for one in table if forget_ms is None or one.forget_ms <= forget_ms] or [choice]
    best = min(allowed, key=lambda one: one.error)
    said = []
    if best != choice:
        said.append(
            f"The least error had {best.code} with {best.cosines} cosines: {choice.error / best.error - 1:.1%} were given "
            f"up (within one standard error, and at most {GIVEN_UP:.0%}) to train in {choice.train_s:.2g} s instead of "
            f"{best.train_s:.2g} s."
        )
    if forget_ms is not None:
        free = min(table, key=lambda one: one.error)
        if free.forget_ms > forget_ms:
            said.append(
                f"Without the limit of {forget_ms:g} ms the error would be {1 - free.error / choice.error:.1%} less, at "
                f"{_ms(free.forget_ms)} per row."
            )
        elif choice.forget_ms > forget_ms:
            said.append(f"No candidate forgets within {forget_ms:g} ms; this is the fastest.")
    return said


def _against(choice: Candidate, references: Sequence[Reference]) -> list[str]:
    """How it compares with the best reference."""
    if not references:
        return []
    best = min(references, key=lambda one: one.error)
    if choice.error <= best.error:
        return [f"Its error is {1 - choice.error / best.error:.0%} below that of {best.name}, the best of the references."]
    return [
        f"{best.name.capitalize()} have {1 - best.error / choice.error:.0%} less error here: that is what exact forgetting "
        "costs."
    ]


def _best_coded(choice: Candidate, table: Sequence[Candidate]) -> Candidate | None:
    coded = [one for one in table if one.rate > 1]
    return min(coded, key=lambda one: one.error, default=None)


def _ms(time: float) -> str:
    return f"{time:.1f} ms" if time < 10 else f"{time:.0f} ms"
