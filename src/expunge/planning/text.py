"""A plan as text for a terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .planner import Plan

_HEAD = ("", "code", "features", "alpha", "R2", "error", "+-", "forget ms", "(here)", "train s", "MB")


def as_text(plan: "Plan") -> str:
    """The candidates by their time to forget, the references, and the advice."""
    lines = [_HEAD]
    for one in sorted(plan.table, key=lambda one: (one.forget_ms, one.error)):
        lines.append(
            (
                "*" if one == plan.choice else "",
                one.code,
                one.features,
                f"{one.alpha:g}",
                f"{one.r2:.4f}",
                f"{one.error:.5f}",
                f"{one.spread:.5f}",
                f"{one.forget_ms:.2f}",
                f"{one.measured_forget_ms:.2f}",
                f"{one.train_s:.3g}",
                f"{one.mb:.1f}",
            )
        )
    for other in plan.references:
        lines.append(("", other.name, "", "", f"{other.r2:.4f}", f"{other.error:.5f}", "", "", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    looked = f"looked at {plan.sampled:,} of {plan.rows:,} rows; the plan tells at most {plan.bits:.0f} bits about them"
    return "\n".join([*table, "", plan.advice, looked])
