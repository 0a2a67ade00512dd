"""The audit: train again from the surviving rows, compare bit for bit, and check every record and certificate."""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from ..encoding.placement import free_slots
from ..errors import ExpungeError
from ..exact.arrays import Floats
from ..learning.state import State
from .certificates.anchors import Anchor
from .certificates.jws import PublicKey
from .certificates.payload import commitment
from .checking import Owned, owned_in, wrong_in_rows
from .disk.rowfile import RowFile, read_bits
from .disk.runs import parts_of
from .disk.snapshot import load_moments
from .ledger.history import history
from .ledger.records import DONE, LIST
from .receipts import Check, Verdict
from .requests import request_of
from .requests.intake import Progress
from .signatures import check_signatures
from .writer import Writer


def verify(writer: Writer, progress: Progress, head: Anchor | None = None) -> Verdict:
    """Run the five checks, and a sixth if there is a head."""
    checks: dict[str, Callable[[], str]] = {
        "ledger": lambda: _ledger(writer),
        "certificates": lambda: _certificates(writer),
        "rows": lambda: _rows(writer),
        "people": lambda: _people(writer),
        "model": lambda: _model(writer, progress),
    }
    if head is not None:
        checks["head"] = lambda: head.check(writer.ledger.read()[0], [PublicKey.of(x) for x in writer.notary.known])
    return Verdict(tuple(_checked(name, check) for name, check in checks.items()))


class _Wrong(ExpungeError):
    """Something does not fit."""


def _checked(name: str, check: Callable[[], str]) -> Check:
    """Run one check: what it says, or what is wrong."""
    try:
        return Check(name, True, check())
    except (ExpungeError, OSError) as error:
        return Check(name, False, str(error))
    except (LookupError, TypeError, ValueError):  # a record that was forged may lack anything
        return Check(name, False, "records that belong together do not fit")


def _ledger(writer: Writer) -> str:
    """Check that the chain of hashes holds, and that requests are numbered and each was done after it was accepted."""
    records, torn = writer.ledger.read()
    if torn:
        raise _Wrong("the last record is torn")
    asked = [record.request for record in records if record.is_request]
    if asked != list(range(1, len(asked) + 1)) or asked[-1] != writer.now.manifest.request:
        raise _Wrong("requests are missing, doubled or out of order")
    if unfinished := [request.number for request in history(records) if request.state == "accepted"]:
        raise _Wrong(f"requests {unfinished} are not done")
    lists = [request_of(record, writer.lists) for record in records if LIST in record.body]
    beside = f" ({len(lists)} of them with lists)" if lists else ""
    return f"{len(records)} records, {len(asked)} requests{beside}, every hash fits"


def _certificates(writer: Writer) -> str:
    """Check every key and every certificate."""
    records, _ = writer.ledger.read()
    return check_signatures(writer, records)


def _rows(writer: Writer) -> str:
    """Check that every row passes its checksum, and that where there is none there is nothing."""
    rows, manifest, blueprint = writer.now.rows, writer.now.manifest, writer.now.blueprint
    live = read_bits(rows.bits, len(rows.live))
    counted = live.count(), RowFile(rows.layout, live).sum
    if not np.array_equal(live.packed, rows.live.packed) or counted != (manifest.rows, manifest.slots_sum):
        raise _Wrong("the slots in use are not those of the manifest")
    if live[free_slots(blueprint.key, manifest.drawn, blueprint.code.shards)].any():
        raise _Wrong("there are rows in slots that were never given out")
    numbers = range(rows.layout.dealt.drawn)
    found = None if writer.workers is None else writer.workers.wrong_in_rows(rows, numbers)
    for wrong in [wrong_in_rows(rows, numbers)] if found is None else found:
        if wrong is not None:
            raise _Wrong(wrong)
    return f"{manifest.rows:,} rows pass their checksums, {len(live) - manifest.rows:,} empty slots are empty"


def _people(writer: Writer) -> str:
    """Check that every row has one owner, and that the manifest counts them; one range of hashes after the other."""
    people, manifest, rows = writer.now.people, writer.now.manifest, writer.now.rows
    parts = parts_of(sum(segment.count for segment in people.segments))
    found = None if writer.workers is None else writer.workers.owned(people, parts, manifest.seal)
    if found is None:
        found = [owned_in(people, part, parts, manifest.seal) for part in range(parts)]
    owned = reduce(Owned.plus, found)
    if (owned.rows, owned.sum) != (rows.live.count(), rows.sum):
        raise _Wrong("rows and their owners do not match")
    if (owned.owners, owned.erased) != (manifest.owners, manifest.erased):
        raise _Wrong("the manifest counts other people")
    return f"{owned.rows:,} rows have one owner each"


def _model(writer: Writer, progress: Progress) -> str:
    """Check that the model retrained from the rows is the model that is there, and what the last certificate says."""
    now = writer.now
    manifest, ensemble = now.manifest, now.state.ensemble
    rows = manifest.rows * (1 + now.blueprint.observed)
    with now.rows.watched(lambda k: progress(writer.site.stage("retraining"), k, rows)):
        retrained = State.learn(now.blueprint, now.rows, now.state.drawn).ensemble
    for learner in manifest.learners:
        load_moments(writer.folder, learner, ensemble.encoder)
    digest = retrained.digest()
    if digest != ensemble.digest():
        raise _Wrong("the model is not the one that training on the surviving rows gives")
    done = [record for record in writer.ledger.read()[0] if record.kind == DONE]
    if done[-1].body["commitment"] != commitment(manifest.salt, digest):
        raise _Wrong("the newest certificate commits to another state")
    return "retrained from the surviving rows: the same integers, " + _weights(ensemble.models, retrained.models)


def _weights(mine: Sequence[Floats | None], fresh: Sequence[Floats | None]) -> str:
    """Compare weights: equal byte for byte on one machine; another's BLAS may have rounded otherwise."""
    pairs = [(a, b) for a, b in zip(mine, fresh, strict=True) if a is not None and b is not None]
    if all(a.tobytes() == b.tobytes() for a, b in pairs):
        return "the same weights, byte for byte"
    worst = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)) for a, b in pairs)
    if worst > 1e-6:
        raise _Wrong("the weights are not those of the moments")
    return f"the weights differ by at most {worst:.0e}: another machine solved them"
