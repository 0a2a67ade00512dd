"""The results that a vault returns: receipts of requests, predictions, its status, and the verdict of an audit.

NumPy is imported for its types only, so that ``expunge status`` does not wait for it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..exact.arrays import Floats
    from .certificates.personal_receipts import PersonalReceipt


@dataclass(frozen=True)
class PersonOutcome:
    """The outcome of an erasure for one id.

    Attributes
    ----------
    state : str
        "erased" (by this request), "earlier" (an earlier request erased it) or "unknown".
    rows : int
        How many rows this request erased.
    request : int or None
        The request that erased it; None if the id is unknown.
    receipt : PersonalReceipt or None
        The person's receipt, if receipts were requested and the request is certified; for an unknown id the signed
        statement that it is unknown, if that was requested.
    similar : bool
        For an unknown id: whether a similar one has rows, as in `Holding`.
    complete : bool
        Whether no setting in use was chosen with the help of the person's rows. If False, the erasure is complete with
        the next `Vault.replan` or training.
    """

    state: str
    rows: int = 0
    request: int | None = None
    receipt: "PersonalReceipt | None" = field(default=None, repr=False)
    similar: bool = False
    complete: bool = True


@dataclass(frozen=True)
class Receipt:
    """The result of a request.

    Attributes
    ----------
    request : int
        Its number.
    kind : str
        train, replan, add, rectify, unlearn, readmit or rebound.
    rows, people : int
        How many rows were erased, corrected or added, and of how many ids.
    learners : int
        Weak learners that learned again.
    seconds : float
        How long it took, until it was durable and certified.
    certificate : str or None
        The certificate, a compact JWS; None if the signing key is missing: it is signed once the key is back.
    path : Path or None
        The file with the certificate.
    earlier : tuple of int
        Earlier requests that erased some of these ids. If they erased all, the receipt is that of the last request.
    erased_earlier : int
        How many of these ids were erased by those requests and had no rows.
    skipped : int
        Ids that were left out: unknown ones (``skip_unknown``), or erased ones in a table (``skip_erased``).
    known : int
        Of the people whose rows were added, how many had rows before.
    clipped : int
        Values outside declared bounds that were moved to the bound (``clip``).
    notes : tuple of str
        Messages for users.
    outcomes : tuple of PersonOutcome
        For an erasure: the outcome for each id, in the order given.
    open : int
        For an erasure or correction: the number of these people who had a part in choosing the settings in use: the
        plan looked at their rows, or counted them. For them it is complete with the next `Vault.replan` or training,
        for the others at once.
    """

    request: int
    kind: str
    rows: int
    people: int
    learners: int
    seconds: float
    certificate: str | None = field(repr=False)
    path: Path | None
    earlier: tuple[int, ...] = ()
    skipped: int = 0
    known: int = 0
    clipped: int = 0
    notes: tuple[str, ...] = ()
    outcomes: tuple[PersonOutcome, ...] = field(default=(), repr=False)
    erased_earlier: int = 0
    open: int = 0

    @property
    def complete(self) -> bool:
        """Whether no setting in use was chosen with the help of rows of these people."""
        return not self.open


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for the rows of a table.

    Attributes
    ----------
    ids : list of str or None
        The ids of the rows, as in the table; None if it has none.
    values : array, shape (n,) or (n, t)
        The predicted targets.
    outside : array of bool, shape (n,)
        Which rows have an input outside the bounds.
    extrapolated : bool
        Whether these rows are extrapolated, as the vault's model declares; else the nearest point inside is predicted.
    """

    ids: list[str] | None
    values: "Floats"
    outside: "NDArray[np.bool_]"
    extrapolated: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for users."""
        return describe_outside_rows(len(self.outside), int(self.outside.sum()), self.extrapolated)


@dataclass(frozen=True)
class WrittenPredictions:
    """Predictions that were written to a file.

    Attributes
    ----------
    rows : int
        How many.
    outside : int
        Rows that have an input outside the bounds.
    extrapolated : bool
        As in `Predictions`.
    """

    rows: int
    outside: int
    extrapolated: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for users."""
        return describe_outside_rows(self.rows, self.outside, self.extrapolated)


def describe_outside_rows(rows: int, outside: int, extrapolated: bool) -> tuple[str, ...]:
    """Return a note on how many rows lie outside the bounds, and what is predicted for them; nothing if none do."""
    if not outside:
        return ()
    how = "extrapolated, which can be far off" if extrapolated else "predicted for the nearest point inside"
    return (f"{outside:,} of {rows:,} row{'s'[: rows != 1]} lie{'s'[: outside == 1]} outside the bounds: {how}",)


@dataclass(frozen=True)
class Status:
    """The contents of a vault.

    Attributes
    ----------
    vault : str
        Its name, a UUID.
    rows, people : int
        Rows that the model has learned, and ids that have rows.
    erased_ids : int
        Ids that are erased and not readmitted.
    requests, uncertified : int
        Requests so far, and how many of them wait for the signing key.
    trained : str
        When it was trained, or its settings were chosen again (ISO 8601, UTC).
    settled : int
        The request that chose the settings in use, a training or a replan: every earlier request is complete.
    open : int
        How many erasures and corrections since then are not complete: the plan had looked at these people's rows, or
        counted them.
    planning_people : int
        The number of people whose rows the plan looked at.
    renewable : bool
        Whether the settings were chosen from rows in the vault, so that `Vault.replan` can choose them again.
    targets, columns, inputs : tuple of str
        The predicted columns; the columns that they are predicted from; and the d inputs made from these.
    shards, learners : int
    rate, alpha : float
    features : str
        The feature map, with all parameters that are on.
    scales : str
        How many inputs are on which scales.
    target_scales : str
        The scale of each target.
    outside : str
        How rows outside the bounds are predicted: "clamp" or "extrapolate".
    planned : str
        The score of the plan that chose the settings, as text; empty without a plan.
    compared : str
        The errors compared with those of the model that it replaced; empty if it replaced none.
    observed_bounds : bool
        Whether a row can move a bound.
    clone_of : str
        The vault that was cloned, and its newest request then ("UUID/number"); empty if this is not a clone.
    bytes : int
        The size of the folder.
    """

    vault: str
    rows: int
    people: int
    erased_ids: int
    requests: int
    uncertified: int
    trained: str
    settled: int
    open: int
    planning_people: int
    renewable: bool
    targets: tuple[str, ...]
    columns: tuple[str, ...]
    inputs: tuple[str, ...]
    shards: int
    learners: int
    rate: float
    alpha: float
    features: str
    scales: str
    target_scales: str
    outside: str
    planned: str
    compared: str
    observed_bounds: bool
    clone_of: str
    bytes: int


@dataclass(frozen=True)
class Check:
    """One check of an audit."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Verdict:
    """The result of an audit.

    Attributes
    ----------
    checks : tuple of Check
        All checks.
    seconds : float
        How long it took.
    report : str or None
        The signed report, a compact JWS, if one was requested.
    """

    checks: tuple[Check, ...]
    seconds: float = field(default=0.0, compare=False)
    report: str | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return all(check.ok for check in self.checks)
