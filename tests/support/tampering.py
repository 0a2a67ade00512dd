"""Tampering: a vault with a past, what shows of it, and the judgement on a copy that somebody has changed."""

import os

import numpy as np

from expunge.errors import InvalidFile
from expunge.vault import Vault
from expunge.vault.ledger.records import START, compose_record, parse_records

from support.vaults import made, people, random_table, slots_of, weights

WHO = "person-6"  # has two rows, one for each learner


EVERYONE = [*dict.fromkeys(people()), "new-1", "new-2", "nobody"]


PROBE = np.linspace(-1, 1, 6).reshape(3, 2)


def with_a_past(path, seed=0):
    """A vault with rows of several batches, of which some were corrected and some erased, and with other bounds."""
    vault = made(path, random_table(people(), seed=seed))
    vault.unlearn(["person-0", "person-1"])
    vault.add(random_table(["new-1", "new-2", "new-1"], seed=seed + 1))
    vault.rectify(random_table(["person-2", "person-2"], seed=seed + 2))
    vault.rebound({"x1": (-2, 2)})
    vault.readmit(["person-1"])
    return path


def state(vault):
    """All that shows of a vault."""
    with vault._lock_for_writing() as writer:
        rows = writer.snapshot.rows.take(np.flatnonzero(writer.snapshot.rows.live))
    return (
        vault.digest(),
        weights(vault),
        vault.predict(PROBE).tolist(),
        slots_of(vault, EVERYONE),
        [part.tolist() for part in rows],
        [(r.number, r.kind, r.rows, r.people, r.state) for r in vault.requests],
    )


def judged(path, expected):
    """Ask a vault that was tampered with: it refuses, or its audit finds something, or nothing at all has changed."""
    ledger = path.with_suffix(".ledger")
    before = ledger.read_bytes() if ledger.is_file() else None
    try:
        vault = Vault.open(path, wait=0.0)
        vault.predict(PROBE)
        vault.unlearn([WHO])
    except InvalidFile:
        if before is not None:
            assert before.startswith(ledger.read_bytes())  # nothing was accepted; a torn record may be cut
        return "refused"
    if not vault.verify().ok:
        return "found"
    assert state(Vault.open(path)) == expected
    return "harmless"


def inside(path):
    """The files of a vault's folder, but for pages that are empty."""
    return [path / name for name in sorted(os.listdir(path)) if (path / name).lstat().st_size]


STATE = ("rows", "live", "people", "learner", "schema", "blueprint", "manifest", "current", "identity")


def of_kind(path, kind):
    """Those whose names begin so."""
    return [part for part in inside(path) if part.name.split(".")[0] == kind]


DEEP = b"[" * 200_000


def records(path):
    """What a ledger says."""
    return parse_records(path.with_suffix(".ledger").read_bytes(), START, path)[0]


def rewrite(path, bodies):
    """Replace a ledger by one that says this, with every hash made anew."""
    path.with_suffix(".ledger").write_bytes(chained(bodies))


def chained(bodies):
    """The bytes of a ledger that says this."""
    lines, after = [], START
    for body in bodies:
        record = compose_record(after, body)
        lines.append(record.line)
        after = record.end
    return b"".join(lines)
