"""What a vault answers: the receipt of a request, predictions, its status, and the verdict of an audit.

NumPy is imported for its types only: ``expunge status`` does not wait for it.
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
    """What an erasure did for one id.

    Attributes
    ----------
    state : str
        "erased" (by this request), "earlier" (an earlier request erased it) or "unknown" (the vault has no such id).
    rows : int
        How many rows this request erased.
    request : int or None
        The request that erased it; None if the id is unknown.
    receipt : PersonalReceipt or None
        The person's receipt, if receipts were asked for and the request is certified; for an unknown id the signed
        statement that it is unknown, if that was asked for.
    similar : bool
        Of an unknown id: whether a similar one has rows, as in `Holding`.
    """

    state: str
    rows: int = 0
    request: int | None = None
    receipt: "PersonalReceipt | None" = field(default=None, repr=False)
    similar: bool = False


@dataclass(frozen=True)
class Receipt:
    """What a request did.

    Attributes
    ----------
    request : int
        Its number.
    kind : str
        train, add, rectify, unlearn, readmit or rebound.
    rows, people : int
        How many rows were erased, corrected, added, and of how many ids.
    learners : int
        Weak learners that learned anew.
    seconds : float
        How long it took, until it was durable and certified.
    certificate : str or None
        The certificate, a compact JWS; None if the signing key was not there: it is signed once it is.
    path : Path or None
        Where the certificate was written, too.
    earlier : tuple of int
        Requests that had erased some of these ids before. If they had erased all, the receipt is that of the last.
    erased_earlier : int
        How many of these ids were erased by such requests, and had no rows any more.
    skipped : int
        Ids that were left out: unknown ones (``skip_unknown``), or erased ones in a table (``skip_erased``).
    known : int
        Of the people whose rows were added, how many had rows before.
    clipped : int
        Values outside declared bounds that were moved to the bound (``clip``).
    notes : tuple of str
        What a person should know.
    outcomes : tuple of PersonOutcome
        Of an erasure: what became of each id, in the order in which they were given.
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


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for the rows of a table.

    Attributes
    ----------
    ids : list of str or None
        Whose the rows are, as the table has it; None if it does not say.
    values : array, shape (n,) or (n, t)
        What is predicted.
    outside : array of bool, shape (n,)
        Which rows have an input outside the bounds.
    extrapolated : bool
        Whether those are extrapolated (the vault was trained so); else they are predicted for the nearest point inside.
    """

    ids: list[str] | None
    values: "Floats"
    outside: "NDArray[np.bool_]"
    extrapolated: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know."""
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
        """What a person should know."""
        return describe_outside_rows(self.rows, self.outside, self.extrapolated)


def describe_outside_rows(rows: int, outside: int, extrapolated: bool) -> tuple[str, ...]:
    """Say how many rows lie outside the bounds, if any do, and what is predicted for them."""
    if not outside:
        return ()
    how = "extrapolated, which can be anything" if extrapolated else "predicted for the nearest point inside"
    return (f"{outside:,} of {rows:,} row{'s'[: rows != 1]} lie{'s'[: outside == 1]} outside the bounds: {how}",)


@dataclass(frozen=True)
class Status:
    """What is in a vault.

    Attributes
    ----------
    vault : str
        Its name, a UUID.
    rows, people : int
        Rows that the model has learned, and how many ids have them.
    erased_ids : int
        Ids that are erased and not readmitted.
    requests, uncertified : int
        Requests so far, and those of them that wait for the signing key.
    trained : str
        When it was trained (ISO 8601, UTC).
    targets, columns, inputs : tuple of str
        What is predicted; the columns that it is predicted from; and the d inputs that these columns become.
    shards, learners : int
    rate, alpha : float
    features : str
        The feature map, with all parameters that are not the default.
    scales : str
        How many inputs are given on which scales.
    target_scales : str
        On which scale each target is learned.
    outside : str
        What is predicted for rows outside the bounds: "clamp" or "extrapolate".
    planned : str
        What a plan promised of the model when it was trained.
    compared : str
        How its errors compared with those of the model that it replaced; empty if it replaced none.
    observed_bounds : bool
        Whether a row can move a bound.
    clone_of : str
        The vault that it is a clone of, and the request that this was at ("UUID/number"); else empty.
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
    """One thing that an audit checked."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Verdict:
    """What an audit found.

    Attributes
    ----------
    checks : tuple of Check
        Everything that was checked.
    seconds : float
        How long it took.
    report : str or None
        The signed report of it, a compact JWS, if one was asked for.
    """

    checks: tuple[Check, ...]
    seconds: float = field(default=0.0, compare=False)
    report: str | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether everything fits."""
        return all(check.ok for check in self.checks)
