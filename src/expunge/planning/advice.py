"""Advice: what was chosen, why, and what was given up, in words."""

from collections.abc import Sequence

from .candidates import GIVEN_UP, Candidate
from .codes import Coding
from .references import Reference


def advice(
    choice: Candidate,
    table: Sequence[Candidate],
    references: Sequence[Reference],
    forget_ms: float | None,
    doubt: float | None = None,
) -> str:
    """A few sentences about a choice; ``doubt`` is by how much cosines did worse than a line on new rows, if known."""
    what = f"{choice.code} with {choice.in_words} and alpha={choice.alpha:g}"
    said = [f"Train {what}: R2 {choice.r2:.4f} on validation rows, about {_ms(choice.forget_ms)} to forget a row."]
    if choice.features == "identity":
        said.append("It is a linear model, without cosines.")
    if "log" in choice.target_scales:
        said.append("The target is learned on a log scale: small models did better so.")
    if choice.outside == "extrapolate":
        said.append("Rows outside the bounds are extrapolated: rows that judged were predicted better so.")
    if doubt is not None and doubt >= 0:
        said.append(
            f"Cosines whose shape was found without the rows that judge them had {doubt:.1%} more error than the line: "
            "the smaller errors of candidates in the table come from fitting those very rows."
        )
    else:
        said += _given_up(choice, table, forget_ms)
    said += _against(choice, references)
    said.append(f"What {choice.code} buys: {Coding(choice.shards, choice.rate).buys()}.")
    coded = min((one for one in table if one.rate > 1), key=lambda one: one.error, default=None)
    if choice.shards == 1 and coded is not None:
        more = _more(coded.error, choice.error)
        said.append(
            f"What coding would buy, the best of it here ({coded.code}, {coded.cosines} cosines) with {more:+.1%}"
        )
        said.append(f"error: {Coding(coded.shards, coded.rate).buys()}.")
    return " ".join(said)


def _given_up(choice: Candidate, table: Sequence[Candidate], forget_ms: float | None) -> list[str]:
    """How much better the best candidates are, if another was chosen."""
    allowed = [one for one in table if forget_ms is None or one.forget_ms <= forget_ms] or [choice]
    best, free = (min(some, key=lambda one: one.error) for some in (allowed, table))
    said = []
    if best != choice:
        least = f"The least error had {best.code} with {best.cosines} cosines"
        part = f"{_more(choice.error, best.error):.1%} of it was given up"
        rule = f"within one standard error, and at most {GIVEN_UP:.0%}"
        if "log" in choice.target_scales:
            rule += " on the log scale"
        said.append(f"{least}: {part} ({rule}) to train in {choice.train_s:.2g} s instead of {best.train_s:.2g} s.")
    if forget_ms is not None and choice.forget_ms > forget_ms:
        said.append(f"No candidate forgets within {forget_ms:g} ms; this is the fastest.")
    elif forget_ms is not None and free.forget_ms > forget_ms:
        less, time = -_more(free.error, choice.error), _ms(free.forget_ms)
        said.append(f"Without the limit of {forget_ms:g} ms the error would be {less:.1%} less, at {time} per row.")
    return said


def _against(choice: Candidate, references: Sequence[Reference]) -> list[str]:
    """How it compares with the best reference."""
    if not references:
        return []
    best = min(references, key=lambda one: one.error)
    if choice.error <= best.error:
        less = abs(_more(choice.error, best.error))
        return [f"Its error is {less:.0%} below that of the best reference ({best.name})."]
    less = -_more(best.error, choice.error)
    reason = "another kind of model, which follows this table more closely; exact forgetting itself costs no accuracy"
    return [f"The best reference ({best.name}) has {less:.0%} less error: it is {reason}."]


def _ms(time: float) -> str:
    return f"{time:.1f} ms" if time < 10 else f"{time:.0f} ms"


def _more(error: float, than: float) -> float:
    """How much larger an error is, as a part of the other; a constant target has none at all."""
    return error / than - 1 if than else 0.0
