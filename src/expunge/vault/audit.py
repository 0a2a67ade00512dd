"""The audit: train again from the surviving rows, compare bit for bit, and check every record and certificate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..encoding.placement import free_slots
from ..errors import ExpungeError, InvalidCertificate
from ..exact.arrays import cut
from ..learning.state import State
from .certificates import jws as certificates
from .disk.rowfile import read_live
from .disk.snapshot import load_moments
from .ledger.history import history
from .ledger.ledger import REQUESTS, Record
from .tables.intake import Progress
from .writer import Writer


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Verdict:
    """What an audit found."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether everything fits."""
        return all(check.ok for check in self.checks)


def verify(writer: Writer, progress: Progress) -> Verdict:
    """Look at everything."""
    looks: dict[str, Callable[[], str]] = {
        "ledger": lambda: _ledger(writer),
        "certificates": lambda: _certificates(writer),
        "rows": lambda: _rows(writer),
        "people": lambda: _people(writer),
        "model": lambda: _model(writer, progress),
    }
    return Verdict(tuple(_checked(name, look) for name, look in looks.items()))


class _Wrong(ExpungeError):
    """Something does not fit."""


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except (ExpungeError, OSError) as error:
        return Check(name, False, str(error))
    except (LookupError, TypeError, ValueError):  # a record that was forged may lack anything
        return Check(name, False, "records that belong together do not fit")


def _ledger(writer: Writer) -> str:
    """The chain of hashes is read from the first record; requests are numbered, each done after it was accepted."""
    records, torn = writer.ledger.read()
    if torn:
        raise _Wrong("the last record is torn")
    asked = [record.request for record in records if record.kind in REQUESTS]
    if asked != list(range(1, len(asked) + 1)) or asked[-1] != writer.model.manifest.request:
        raise _Wrong("requests are missing, doubled or out of order")
    if unfinished := [request.number for request in history(records) if request.state == "accepted"]:
        raise _Wrong(f"requests {unfinished} are not done")
    return f"{len(records)} records, {len(asked)} requests, every hash fits"


def _certificates(writer: Writer) -> str:
    """Every certificate is signed, and says what the ledger says was done."""
    records, _ = writer.ledger.read()
    done = {record.request: record for record in records if record.kind == "done"}
    accepted = {record.request: record for record in records if record.kind in REQUESTS}
    signed = {record.request: record for record in records if record.kind == "signature"}
    keys = certificates.load_public(writer.places.public)
    for request, record in signed.items():
        payload = certificates.checked(str(record.body["certificate"]), keys)
        if certificates.payload_text(payload) != done[request].body["payload"]:
            raise InvalidCertificate(f"the certificate of request {request} says something else than the ledger")
    for request, record in done.items():
        _payload_fits(record, accepted[request])
    text, waiting = f"{len(signed)} signatures fit", len(done) - len(signed)
    lost = sum(
        not _exported(writer.notary.path(request), str(record.body["certificate"]))
        for request, record in signed.items()
    )
    if lost:
        text += f"; {lost} of them not, or not so, in {writer.places.certificates}"
    return text + (f"; waiting for the signing key: {waiting}" if waiting else "")


def _exported(path: Path, certificate: str) -> bool:
    """Whether a certificate lies where people take it away."""
    try:
        return certificates.read(path) == certificate
    except (OSError, ExpungeError):
        return False


def _payload_fits(done: Record, accepted: Record) -> None:
    payload = certificates.payload_fields(str(done.body["payload"]))
    said = (payload["request"], payload["kind"], payload["rows"], payload["people"], payload["previous"])
    body = accepted.body
    if said != (accepted.request, accepted.kind, body["rows"], body["people"], accepted.end.hash):
        raise InvalidCertificate(f"the certificate of request {accepted.request} does not fit the request")


def _rows(writer: Writer) -> str:
    """Every row passes its checksum, and where there is none there is nothing."""
    rows, manifest, blueprint = writer.rows, writer.model.manifest, writer.model.blueprint
    live = read_live(writer.folder.path / manifest.live_file, len(rows.live))
    if not np.array_equal(live, rows.live) or int(live.sum()) != manifest.rows:
        raise _Wrong("the slots in use are not those of the manifest")
    if live[free_slots(blueprint.key, manifest.drawn, blueprint.code.shards)].any():
        raise _Wrong("there are rows in slots that were never given out")
    for block in cut(len(live), rows.width):
        slots = np.arange(block.start, block.stop)
        rows.take(slots[live[block]])
        if not rows.empty(slots[~live[block]]):
            raise _Wrong("there are bytes left where a row was erased")
    return f"{manifest.rows:,} rows pass their checksums, {len(live) - manifest.rows:,} empty slots are empty"


def _people(writer: Writer) -> str:
    """Every row has one owner."""
    slots = writer.people.slots()
    if not np.array_equal(np.sort(slots), np.flatnonzero(writer.rows.live)):
        raise _Wrong("rows and their owners do not match")
    return f"{len(slots):,} rows have one owner each"


def _model(writer: Writer, progress: Progress) -> str:
    """The model retrained from the rows is the model that is there, and the newest certificate commits to it."""
    rows, model, state = writer.rows, writer.model, writer.state
    passes = 1 + model.blueprint.observed
    rows.seen = lambda k: progress("retraining", k, passes * model.manifest.rows)
    try:
        retrained = State.learn(model.blueprint, rows, state.drawn).ensemble
    finally:
        del rows.seen
    for learner in model.manifest.learners:
        load_moments(writer.folder, learner, state.ensemble.encoder.width)
    digest = retrained.digest()
    if digest != state.ensemble.digest():
        raise _Wrong("the model is not the one that training on the surviving rows gives")
    done = [record for record in writer.ledger.read()[0] if record.kind == "done"]
    payload = certificates.payload_fields(str(done[-1].body["payload"]))
    if payload["commitment"] != certificates.commitment(model.manifest.salt, digest):
        raise _Wrong("the newest certificate commits to another state")
    return "retrained from the surviving rows: the same integers, " + _weights(state.ensemble.models, retrained.models)


def _weights(mine: Sequence[np.ndarray | None], fresh: Sequence[np.ndarray | None]) -> str:
    """Weights are equal byte for byte on one machine; another's BLAS may have rounded otherwise."""
    pairs = [(a, b) for a, b in zip(mine, fresh, strict=True) if a is not None and b is not None]
    if all(a.tobytes() == b.tobytes() for a, b in pairs):
        return "the same weights, byte for byte"
    worst = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)) for a, b in pairs)
    if worst > 1e-6:
        raise _Wrong("the weights are not those of the moments")
    return f"the weights differ by at most {worst:.0e}: another machine solved them"
