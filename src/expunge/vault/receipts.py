"""What a vault answers: the receipt of a request, and its status."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Receipt:
    """What a request did.

    Attributes
    ----------
    request : int
        Its number.
    kind : str
        train, add, rectify, unlearn or readmit.
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
    notes : tuple of str
        What a person should know.
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
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Status:
    """What is in a vault."""

    vault: str
    rows: int
    erased_ids: int
    requests: int
    uncertified: int
    trained: str
    targets: tuple[str, ...]
    inputs: tuple[str, ...]
    shards: int
    learners: int
    features: str
    observed_bounds: bool
    bytes: int
