"""A plan as text for a terminal."""

from typing import TYPE_CHECKING

from .candidates import Candidate

if TYPE_CHECKING:
    from .planner import Plan

NOT_SAID = "as expunge train takes it; how much each input counts is in the plan only"

_HEAD = ("", "code", "features", "alpha", "R2", "error", "+-", "forget ms", "(here)", "train s", "MB")


def as_text(plan: "Plan") -> str:
    """The candidates by their time to forget, the references, and the advice."""
    rising = sorted(plan.table, key=lambda one: (one.forget_ms, one.error))
    lines: list[tuple[str, ...]] = [_HEAD, *(("*" if one == plan.choice else "", *cells(one)) for one in rising)]
    lines += [("", r.name, "", "", f"{r.r2:.4f}", f"{r.error:.5f}", *[""] * 5) for r in plan.references]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    looked = (
        f"looked at {plan.sampled:,} of {plan.rows:,} rows; the plan tells at most {plan.bits:,.0f} bits about them"
    )
    return "\n".join([*table, "", plan.advice, f"{as_option(plan.choice)} ({NOT_SAID})", looked])


def as_option(one: Candidate) -> str:
    """The features as an option of `expunge train`."""
    return f"--features {one.features}"


def cells(one: Candidate) -> tuple[str, ...]:
    """A candidate as a line of a table: code, features, and its numbers."""
    names = ("alpha", "r2", "error", "spread", "forget_ms", "measured_forget_ms", "train_s", "mb")
    forms = ("g", ".4f", ".5f", ".5f", ".2f", ".2f", ".3g", ".1f")
    return one.code, one.in_words, *map(format, (getattr(one, name) for name in names), forms)
