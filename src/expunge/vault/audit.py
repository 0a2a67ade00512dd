"""The audit: train again from the surviving rows, compare bit for bit, and check every record and certificate."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce

import numpy as np

from ..encoding.placement import free_slots
from ..errors import ExpungeError, VaultBusy
from ..exact.arrays import Floats
from ..learning.state import State
from .certificates.anchors import Anchor
from .certificates.jws import PublicKey
from .certificates.payload import commitment
from .checking import Owned, owned_in, wrong_in_rows
from .disk.rowfile import RowFile, read_bits
from .disk.runs import parts_of
from .disk.snapshot import load_moments
from .ledger.records import DONE, LIST, Record
from .receipts import Check, Verdict
from .requests import request_of
from .requests.intake import Progress
from .signatures import check_signatures
from .writer import Writer

_OFTEN = 256  # records between two looks at whether the vault changed
_DISORDER = "requests are missing, doubled or out of order"


def verify(
    writer: Writer,
    progress: Progress,
    head: Anchor | None = None,
    check_unchanged: Callable[[], None] = lambda: None,
) -> Verdict:
    """Run the five checks, and a sixth if there is a head.

    ``check_unchanged`` raises `VaultBusy` if what is being read changed since: it is called now and then, so that an
    audit without the lock does not go on for long with a state that is no more.
    """

    def read() -> Iterator[Record]:
        return _watched(writer.ledger.iterate(), check_unchanged)

    def advance(stage: str, count: int, total: int | None) -> None:
        check_unchanged()
        progress(stage, count, total)

    checks: dict[str, Callable[[], str]] = {
        "ledger": lambda: _ledger(writer, read),
        "certificates": lambda: check_signatures(writer, read),
        "rows": lambda: _rows(writer),
        "people": lambda: _people(writer),
        "model": lambda: _model(writer, advance),
    }
    if head is not None:
        checks["head"] = lambda: head.check(read(), [PublicKey.of(x) for x in writer.notary.known])
    return Verdict(tuple(_checked(name, check, check_unchanged) for name, check in checks.items()))


def _watched(records: Iterable[Record], check_unchanged: Callable[[], None]) -> Iterator[Record]:
    for k, record in enumerate(records):
        if k % _OFTEN == 0:
            check_unchanged()
        yield record


class _Wrong(ExpungeError):
    """Something does not fit."""


def _checked(name: str, check: Callable[[], str], check_unchanged: Callable[[], None]) -> Check:
    """Run one check: what it says, or what is wrong."""
    check_unchanged()
    try:
        return Check(name, True, check())
    except VaultBusy:
        raise
    except (ExpungeError, OSError) as error:
        return Check(name, False, str(error))
    except (LookupError, TypeError, ValueError):  # a record that was forged may lack anything
        return Check(name, False, "records that belong together do not fit")


def _ledger(writer: Writer, read: Callable[[], Iterable[Record]]) -> str:
    """Check that the chain of hashes holds, and that requests are numbered and each was done after it was accepted."""
    records = newest = restored = lists = 0
    unfinished, restores = dict[int, None](), set[int]()
    for record in read():
        records += 1
        if record.is_request:
            if record.request != newest + 1:
                raise _Wrong(_DISORDER)
            newest = record.request
            unfinished[newest] = None
            if record.kind == "restore":
                restores.add(newest)
            if LIST in record.body:
                request_of(record, writer.lists)
                lists += 1
        elif record.kind == DONE:
            unfinished.pop(record.request, None)
            if record.request in restores:
                restored = record.request  # it did what older requests had begun
    if writer.ledger.read(writer.now.manifest.before)[1]:
        raise _Wrong("the last record is torn")
    if newest != writer.now.manifest.request:
        raise _Wrong(_DISORDER)
    if left := [number for number in unfinished if number > restored]:
        raise _Wrong(_undone(left))
    beside = f" ({lists} of them with lists)" if lists else ""
    return f"{records} records, {newest} requests{beside}, every hash fits"


def _undone(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"requests {', '.join(first)} and {last} are not done" if first else f"request {last} is not done"


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
    done = [record for record in writer.ledger.read(manifest.before)[0] if record.kind == DONE]
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
