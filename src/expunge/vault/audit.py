"""The audit: train again from the surviving rows, compare bit for bit, and check every record and certificate.

Every payload is computed again from the records of its request. The newest commitment is compared with the state;
older ones cannot be, because their salts are gone. The ledger is read as a stream: only the requests that are not
certified yet, and the names of the certificates' files, are kept in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path

import numpy as np

from ..encoding.placement import free_slots
from ..errors import ExpungeError, InvalidCertificate, VaultBusy
from ..exact.arrays import Floats
from ..learning.state import ModelState
from ..saving import files
from ..saving.format import blueprint_parts
from .certificates import jws
from .certificates.commitments import RequestLeaves, merkle_root
from .certificates.jws import PublicKey
from .certificates.keys import KEY_TYPE, key_payload
from .certificates.payload import canonical_json, certificate_payload, issuer, state_commitment
from .certificates.statements import Anchor
from .disk.rowfile import RowFile, read_bits
from .disk.runs import count_parts
from .disk.snapshot import OwnershipCount, count_owned_rows, find_row_damage, load_moments
from .ledger.records import DONE, KEY, LIST, SIGNATURE, START, Position, Record
from .requests import read_request
from .requests.choice import choose_settings
from .requests.intake import ProgressCallback
from .requests.train import draw_next_blueprint
from .results import Check, Verdict
from .writer import Writer

_CHECK_INTERVAL = 256  # records between two checks whether the vault changed
_OUT_OF_ORDER = "requests are missing, duplicated or out of order"


def verify(
    writer: Writer,
    progress: ProgressCallback,
    head: Anchor | None = None,
    check_unchanged: Callable[[], None] = lambda: None,
    *,
    plan: bool = False,
) -> Verdict:
    """Run the five checks, one more if there is a head, and one that plans again if ``plan`` asks for it.

    ``check_unchanged`` raises `VaultBusy` if the vault changed since: it is called regularly, so that an audit without
    the lock does not continue for long with an outdated state.
    """

    def read() -> Iterator[Record]:
        for k, record in enumerate(writer.ledger.iterate()):
            if k % _CHECK_INTERVAL == 0:
                check_unchanged()
            yield record

    def advance(stage: str, count: int, total: int | None) -> None:
        check_unchanged()
        progress(stage, count, total)

    checks: dict[str, Callable[[], str]] = {
        "ledger": lambda: _check_ledger(writer, read),
        "certificates": lambda: check_signatures(writer, read),
        "rows": lambda: _check_rows(writer),
        "people": lambda: _check_people(writer),
        "model": lambda: _check_model(writer, advance),
    }
    if plan:
        checks["plan"] = lambda: _check_plan(writer, advance)
    if head is not None:
        checks["head"] = lambda: head.check(read(), [PublicKey.from_x(x) for x in writer.notary.known_keys])
    return Verdict(tuple(_run_check(name, check, check_unchanged) for name, check in checks.items()))


class _AuditFailure(ExpungeError):
    """A check that failed."""


def _run_check(name: str, check: Callable[[], str], check_unchanged: Callable[[], None]) -> Check:
    """Run one check; its detail is the check's result, or the error."""
    check_unchanged()
    try:
        return Check(name, True, check())
    except VaultBusy:
        raise
    except (ExpungeError, OSError) as error:
        return Check(name, False, str(error))
    except (LookupError, TypeError, ValueError):  # a forged record may lack anything
        return Check(name, False, "records that belong together do not match")


def _check_ledger(writer: Writer, read: Callable[[], Iterable[Record]]) -> str:
    """Check the chain of hashes, the numbers of requests, and that each request was accepted and done."""
    records = newest = restored = lists = 0
    unfinished, restores = dict[int, None](), set[int]()
    for record in read():
        records += 1
        if record.is_request:
            if record.request != newest + 1:
                raise _AuditFailure(_OUT_OF_ORDER)
            newest = record.request
            unfinished[newest] = None
            if record.kind == "restore":
                restores.add(newest)
            if LIST in record.body:
                read_request(record, writer.lists)
                lists += 1
        elif record.kind == DONE:
            unfinished.pop(record.request, None)
            if record.request in restores:
                restored = record.request  # it carried out what older requests had begun
    if writer.ledger.read(writer.snapshot.manifest.before)[1]:
        raise _AuditFailure("the last record is torn")
    if newest != writer.snapshot.manifest.request:
        raise _AuditFailure(_OUT_OF_ORDER)
    if left := [number for number in unfinished if number > restored]:
        *first, last = map(str, left)
        raise _AuditFailure(
            f"requests {', '.join(first)} and {last} are not done" if first else f"request {last} is not done"
        )
    beside = f" ({lists} of them with lists)" if lists else ""
    return f"{records} records, {newest} requests{beside}, every hash fits"


def _check_rows(writer: Writer) -> str:
    """Check that every row passes its checksum, and that empty slots are empty."""
    rows, manifest, blueprint = writer.snapshot.rows, writer.snapshot.manifest, writer.snapshot.state.blueprint
    live = read_bits(rows.bits_file, len(rows.live))
    counted = live.count(), RowFile(rows.layout, live).live_sum
    if not np.array_equal(live.packed, rows.live.packed) or counted != (manifest.rows, manifest.slots_sum):
        raise _AuditFailure("the slots in use are not those of the manifest")
    if live[free_slots(blueprint.key, manifest.drawn, blueprint.code.shards)].any():
        raise _AuditFailure("there are rows in slots that were never used")
    numbers = range(rows.layout.dealt.drawn)
    damage = None if writer.workers is None else writer.workers.find_row_damage(rows, numbers)
    for problem in [find_row_damage(rows, numbers)] if damage is None else damage:
        if problem is not None:
            raise _AuditFailure(problem)
    return f"{manifest.rows:,} rows pass their checksums, {len(live) - manifest.rows:,} empty slots are empty"


def _check_people(writer: Writer) -> str:
    """Check that every row has one owner, and that the manifest's counts are right, by ranges of hashes."""
    people, manifest, rows = writer.snapshot.people, writer.snapshot.manifest, writer.snapshot.rows
    parts = count_parts(sum(segment.count for segment in people.segments))
    counts = None if writer.workers is None else writer.workers.count_owned_rows(people, parts, manifest.seal)
    if counts is None:
        counts = [count_owned_rows(people, part, parts, manifest.seal) for part in range(parts)]
    owned = reduce(OwnershipCount.merge, counts)
    if (owned.rows, owned.slots_sum) != (rows.live.count(), rows.live_sum):
        raise _AuditFailure("rows and their owners do not match")
    if (owned.owners, owned.erased) != (manifest.owners, manifest.erased):
        raise _AuditFailure("the number of people differs from the manifest's")
    return f"{owned.rows:,} rows have one owner each"


def _check_model(writer: Writer, progress: ProgressCallback) -> str:
    """Check that a model retrained from the rows equals the stored one, and matches the newest certificate."""
    snapshot = writer.snapshot
    manifest, ensemble = snapshot.manifest, snapshot.state.ensemble
    rows = manifest.rows * (1 + snapshot.state.blueprint.observed)
    with snapshot.rows.report_reads(lambda k: progress(writer.context.describe_stage("retraining"), k, rows)):
        retrained = ModelState.learn(snapshot.state.blueprint, snapshot.rows, snapshot.state.drawn).ensemble
    for learner in manifest.learners:
        load_moments(writer.folder, learner, ensemble.encoder)
    digest = retrained.digest()
    if digest != ensemble.digest():
        raise _AuditFailure("the model is not the one that training on the surviving rows gives")
    done = [record for record in writer.ledger.read(manifest.before)[0] if record.kind == DONE]
    if done[-1].body["commitment"] != state_commitment(manifest.salt, digest):
        raise _AuditFailure("the newest certificate commits to another state")
    return "retrained from the surviving rows: the same integers, " + _compare_weights(
        ensemble.models, retrained.models
    )


def _check_plan(writer: Writer, progress: ProgressCallback) -> str:
    """Check that planning on the surviving rows, of those that there were when the vault was planned, gives its model.

    If people who had a part in the plan have left since, it may give other settings: these wait for a replan.
    """
    snapshot, planning = writer.snapshot, writer.snapshot.manifest.planning
    if planning is None:
        return "no row in the vault chose the settings: they were declared, or planned on a separate table"
    if planning.open:
        count = f"{planning.open:,} erasure{'s'[: planning.open != 1]} or corrections"
        return f"not planned again: {count} of people whose rows the plan looked at or counted wait for a replan"
    if planning.schema != snapshot.manifest.schema.sum:
        return "not planned again: bounds were declared since the plan, which scaled the rows by others"
    choice = choose_settings(
        snapshot.rows, snapshot.schema, planning, progress, drawn=planning.drawn, row_count=planning.rows
    )
    again = draw_next_blueprint(choice.settings, snapshot.schema, snapshot.state.blueprint)
    header, arrays = blueprint_parts(again)
    used_header, used_arrays = blueprint_parts(snapshot.state.blueprint)
    same = all(arrays[name].tobytes() == used_arrays[name].tobytes() for name in arrays)
    if not same or header != used_header:
        raise _AuditFailure("the settings are not those that planning on the surviving rows gives")
    return f"planned again on the rows of {choice.planning.people:,} people: the same settings"


def _compare_weights(stored: Sequence[Floats | None], retrained: Sequence[Floats | None]) -> str:
    """Compare weights: equal byte for byte on one machine; the BLAS of another may round differently."""
    pairs = [(a, b) for a, b in zip(stored, retrained, strict=True) if a is not None and b is not None]
    if all(a.tobytes() == b.tobytes() for a, b in pairs):
        return "the same weights, byte for byte"
    worst = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)) for a, b in pairs)
    if worst > 1e-6:
        raise _AuditFailure("the weights are not those of the moments")
    return f"the weights differ by at most {worst:.0e}: another machine solved them"


def check_signatures(writer: Writer, read: Callable[[], Iterable[Record]]) -> str:
    """Check that the newest key of its time signed each certificate, which says what its records say.

    The exported files are compared as well: a file that differs from the ledger is an error, a missing one only a note,
    because people may have taken it away.
    """
    vault, folder = writer.identity.vault, writer.places.certificates
    names = {name for name in files.VaultDir(folder).names() if name.endswith(".jws")} if folder.is_dir() else set()
    uncertified = dict[int, tuple[Record, Record | None]]()  # records of requests, and of their completion
    keys, restores, after = list[PublicKey](), list[Record](), START
    signed = unendorsed = missing = lost_leaves = 0
    for record in read():
        if record.is_request:
            uncertified[record.request] = record, None
            lost_leaves += not _can_reissue_receipts(writer.leaves, record)
        elif record.kind == KEY:
            unendorsed += not _check_introduction(vault, record, after, keys)
            keys.insert(0, PublicKey.from_x(str(record.body["x"])))
        elif record.kind == DONE:
            request, _ = uncertified[record.request]
            certificate_payload(vault, request, record)  # refuses a record that no vault writes
            uncertified[record.request] = request, record
            restores += [request] if request.kind == "restore" else []
        elif record.kind == SIGNATURE:
            request, done = uncertified.pop(record.request)
            text = str(record.body["certificate"])
            if done is None:
                raise LookupError(f"request {record.request} is certified but was never done")
            if canonical_json(jws.verify_statement(text, keys[:1])) != certificate_payload(vault, request, done):
                raise InvalidCertificate(f"the certificate of request {record.request} does not match the ledger")
            signed += 1
            path = writer.notary.certificate_path(record.request)
            missing += path.name not in names
            if writer.notary.is_exported(record.request, text):
                names.discard(path.name)
        after = record.end
    _check_public_key_file(writer.places.public, keys)
    if names:
        _check_unmatched_files(writer, [folder / name for name in sorted(names)], keys, read)
    notes = [f"{signed} signatures fit"]
    if unendorsed:
        notes.append(f"{unendorsed} of the keys were not endorsed by the previous key, which was lost")
    if missing:
        notes.append(f"{missing} of their files are missing from {folder}; the ledger has them")
    if lost_leaves:
        notes.append(f"{lost_leaves} of the files of leaves are missing from {writer.places.leaves}, or damaged")
    if waiting := sum(
        done is not None and not _was_done_by_restore(request, restores) for request, done in uncertified.values()
    ):
        notes.append(f"{waiting} wait for the signing key")
    return "; ".join(notes)


def _check_introduction(vault: str, record: Record, after: Position, keys: Sequence[PublicKey]) -> bool:
    """Check what a key and the previous one signed; return whether the previous one endorsed it."""
    body, newest = record.body, keys[0].thumbprint if keys else ""
    payload = key_payload(vault, after, str(body["time"]), str(body["x"]), newest)
    for text, by in (
        (body["statement"], PublicKey.from_x(str(body["x"]))),
        (body["endorsed"], keys[0] if keys else None),
    ):
        if text and (by is None or canonical_json(jws.verify_statement(str(text), [by], types=(KEY_TYPE,))) != payload):
            raise InvalidCertificate("the record of a key does not match its signature")
    if not body["statement"] or body["previous"] != newest:
        raise InvalidCertificate("the record of a key is not signed by that key, or does not replace the previous key")
    return bool(body["endorsed"]) or not keys


def _check_public_key_file(path: Path, keys: Sequence[PublicKey]) -> None:
    """Refuse a file of public keys that differs from the ledger."""
    known, listed = [key.thumbprint for key in keys], [key.thumbprint for key in jws.load_public_keys(path)]
    if foreign := [name for name in listed if name not in known]:
        raise InvalidCertificate(f"{path} holds keys that the ledger does not know: {', '.join(foreign)}")
    if listed != known:
        raise InvalidCertificate(
            f"{path} does not hold the keys that the ledger knows: remove it, and it is written again"
        )


def _check_unmatched_files(
    writer: Writer, paths: Sequence[Path], keys: Sequence[PublicKey], read: Callable[[], Iterable[Record]]
) -> None:
    """Refuse files among the certificates that are not, byte for byte, the ledger's certificate of that name.

    Allowed are, under a name that is not a request's number, other statements of this vault (a head) and copies of a
    certificate; and a certificate that was written but not recorded, because its request was interrupted in between.
    """
    payloads = dict[Path, dict[str, object]]()
    for path in paths:
        try:
            text = jws.read_statement(path)
            typ = jws.statement_type(text)
            payload = jws.verify_statement(text, keys, types=[typ])
        except ExpungeError:
            raise _foreign_file_error(path) from None
        if payload.get("iss") != issuer(writer.identity.vault):
            raise _foreign_file_error(path)
        if path.stem.isdecimal() and (typ != jws.CERTIFICATE_TYPE or payload.get("request") != int(path.stem)):
            raise _foreign_file_error(path)  # the file named after one request has the certificate of another
        if typ == jws.CERTIFICATE_TYPE:
            payloads[path] = payload
    requests, done = dict[object, Record](), dict[object, Record]()
    numbers = {payload.get("request") for payload in payloads.values()}
    for record in read() if payloads else ():
        if record.request in numbers and (record.is_request or record.kind == DONE):
            (requests if record.is_request else done)[record.request] = record
    for path, payload in payloads.items():
        number = payload.get("request")
        if number in requests and number in done:
            expected = certificate_payload(writer.identity.vault, requests[number], done[number])
            known = canonical_json(payload) == expected
        else:
            known = number in requests and payload.get("previous") == requests[number].end.hash
        if not known:
            raise InvalidCertificate(
                f"{path} is a certificate of this vault that its ledger does not know: an older copy of "
                "folder and ledger was put back, or records were removed; put the newest back"
            )


def _foreign_file_error(path: Path) -> InvalidCertificate:
    return InvalidCertificate(
        f"{path} was changed, or is not a certificate of this vault: remove it; the ledger has the certificates"
    )


def _can_reissue_receipts(leaves: RequestLeaves, record: Record) -> bool:
    """Return whether the receipts of a request, if it has any, can be made again."""
    if "receipts" not in record.body or record.body["people"] <= 1:
        return True
    try:
        root = str(record.body["receipts"])
        return merkle_root(leaves.read(record.request, root)).hex() == root
    except (OSError, ExpungeError):
        return False


def _was_done_by_restore(request: Record, restores: Iterable[Record]) -> bool:
    """Return whether a restore carried the request out, because an old copy of the folder was put back before."""
    return any(int(restore.body.get("since", 0)) < request.request < restore.request for restore in restores)
