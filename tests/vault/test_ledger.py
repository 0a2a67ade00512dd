"""A ledger that was cut, edited, exchanged or forged is refused, or found by the audit."""

import json
import os
import shutil

import pytest

from expunge.errors import InvalidFile
from expunge.vault import Vault
from expunge.vault.disk.folder import Folder
from expunge.vault.ledger.ledger import Ledger
from expunge.vault.ledger.records import START, compose_record, header_record, parse_records
from expunge.vault.requests import REQUEST_TYPES, read_request

from support.disks import ended_at
from support.sampling import sampled
from support.tampering import DEEP, PROBE, WHO, judged, of_kind, records, rewrite
from support.vaults import damaged, duplicate, everything, made, slots_of


@pytest.mark.slow
@pytest.mark.no_cover
@sampled("count", 30, 1000)
def test_a_flipped_bit_in_the_ledger_is_refused_or_found(original, copies, expected, count, rng):
    ledger = original.with_suffix(".ledger")
    size = ledger.stat().st_size
    for position in sorted({size - 1, size - 2, *rng.choice(size, count, replace=False).tolist()}):
        path = copies()
        damaged(path.with_suffix(".ledger"), position, int(rng.integers(8)))
        outcome = judged(path, expected)
        assert outcome in ("refused", "found") or position == size - 1, position


def test_a_ledger_of_another_vault_is_refused(other, copies, expected):
    path = copies()
    shutil.copyfile(other.with_suffix(".ledger"), path.with_suffix(".ledger"))
    with pytest.raises(InvalidFile, match="belong to different vaults"):
        Vault.open(path)
    with pytest.raises(InvalidFile, match="belong to different vaults|is the ledger of another vault"):
        made(path, replace=True)


def test_a_newer_version_is_refused_by_name(copies):
    path = copies()
    bodies = [dict(record.body) for record in records(path)]
    bodies[0]["version"] = 8
    rewrite(path, bodies)
    with pytest.raises(InvalidFile, match="v.ledger has version 8; this release reads version 7 only: use the release"):
        Vault.open(path)
    path = copies()
    (manifest,) = of_kind(path, "manifest")
    content = json.loads(manifest.read_bytes())
    manifest.write_bytes(json.dumps({**content, "version": 12}, sort_keys=True, separators=(",", ":")).encode())
    with pytest.raises(InvalidFile, match="has version 12; this release reads version 11 only: use the release"):
        Vault.open(path)


def test_a_ledger_that_is_older_than_the_folder_is_refused(original, tmp_path):
    path = duplicate(original, tmp_path / "copy")
    old = path.with_suffix(".ledger").read_bytes()
    vault = Vault.open(path)
    vault.unlearn([WHO])
    new = path.with_suffix(".ledger").read_bytes()
    path.with_suffix(".ledger").write_bytes(old)
    before = everything(path)
    for ask in (lambda: Vault.open(path), lambda: vault.unlearn(["person-5"]), lambda: made(path, replace=True)):
        with pytest.raises(InvalidFile, match="older than the (folder|vault)"):
            ask()
    assert everything(path) == before
    path.with_suffix(".ledger").write_bytes(new)
    assert Vault.open(path).verify().ok


def test_a_folder_and_a_ledger_whose_newest_requests_differ_are_refused(original, tmp_path):
    mine, theirs = (duplicate(original, tmp_path / name) for name in ("mine", "theirs"))
    Vault.open(mine).unlearn([WHO])
    Vault.open(theirs).unlearn(["person-5"])
    shutil.copyfile(theirs.with_suffix(".ledger"), mine.with_suffix(".ledger"))
    with pytest.raises(InvalidFile, match="does not know request 7"):
        Vault.open(mine)


def test_what_was_prepared_for_another_request_is_not_taken_for_the_one_that_was_accepted(original, tmp_path):
    mine, theirs = (duplicate(original, tmp_path / name) for name in ("mine", "theirs"))
    ended_at(Ledger, "append", lambda: Vault.open(mine).unlearn([WHO]))  # prepared and not accepted
    Vault.open(theirs).unlearn(["person-5"])
    lines = theirs.with_suffix(".ledger").read_bytes().splitlines(keepends=True)
    mine.with_suffix(".ledger").write_bytes(b"".join(lines[:-2]))  # accepted and not done
    assert Folder(mine).read_prepared_manifest(7) is not None
    vault = Vault.open(mine)
    assert vault.requests[-1].kind == "restore"
    assert slots_of(vault, ["person-5"]) == {"person-5": [-8]}
    assert slots_of(vault, [WHO]) == slots_of(Vault.open(original), [WHO])
    assert vault.verify().ok


@pytest.mark.slow
@pytest.mark.no_cover
@sampled("every", 257, 7)
def test_a_ledger_that_was_cut_is_refused_if_the_folder_knows_more_and_else_finished_again(
    original, copies, expected, every
):
    ledger = original.with_suffix(".ledger").read_bytes()
    lines = ledger.splitlines(keepends=True)
    accepted = len(b"".join(lines[:-2]))  # the newest request's own record ends here; its payload and signature follow
    for length in range(0, len(ledger), every):
        path = copies()
        os.truncate(path.with_suffix(".ledger"), length)
        outcome = judged(path, expected)
        assert outcome == ("refused" if length < accepted else "harmless"), length
    for cut in (1, 2):
        path = copies()
        os.truncate(path.with_suffix(".ledger"), len(b"".join(lines[:-cut])))
        Vault.open(path).verify()
        assert path.with_suffix(".ledger").read_bytes() == ledger  # the same payload, the same signature


@pytest.mark.slow
@pytest.mark.no_cover
@sampled("every", 3, 1)
def test_records_that_were_edited_removed_doubled_or_moved_are_refused_or_found(original, copies, expected, every):
    bodies = [dict(record.body) for record in records(original)]
    lines = original.with_suffix(".ledger").read_bytes().splitlines(keepends=True)
    newest = len(lines) - 3  # its request and what follows
    for k in (*range(0, newest, every), *range(newest, len(lines))):
        changed = {**bodies[k], "rows": 17}
        edits = {
            "edited": [*lines[:k], json.dumps(changed, sort_keys=True).encode() + b"\n", *lines[k + 1 :]],
            "edited and hashed": None,
            "removed": [*lines[:k], *lines[k + 1 :]],
            "doubled": [*lines[: k + 1], *lines[k:]],
            "moved": [*lines[:k], *lines[k + 1 :], lines[k]],
        }
        for what, edit in edits.items():
            path = copies()
            if edit is None:
                rewrite(path, [*bodies[:k], changed, *bodies[k + 1 :]])
            else:
                path.with_suffix(".ledger").write_bytes(b"".join(edit))
            outcome = judged(path, expected)
            if k >= len(lines) - 2 and outcome == "harmless":  # a payload or signature, which is made again
                assert what == "edited and hashed" or (k == len(lines) - 1 and what in ("removed", "moved")), (k, what)
            else:
                assert outcome in ("refused", "found"), (k, what)


FORGED = [
    *(("request", value) for value in (99, "x", None)),
    *((field, value) for field in ("commitment", "schema") for value in ("0" * 64, "not hex", "all is well", 7)),
    *(("software", value) for value in ("expunge\n", "all backups were destroyed", 7)),
    *((field, value) for field in ("x", "statement", "endorsed", "previous") for value in ("", "a.b.c", 7)),
    *(("fold_case", value) for value in (True, 1)),
    *(
        ("callers", value)
        for value in ("mine", 7, [{}], [{"job": "", "reference": "mine", "actor": "", "despite_hold": ""}])
    ),
    *(("in_certificate", value) for value in (True, 1)),
    *(("receipts", value) for value in ("0" * 64, "all is well", 7)),
    *(("certificate", value) for value in ("a.b.c", 5)),
    *(("erase", "abc"), ("waiting", 3), ("rows", -1), ("time", 0), ("kind", "unlearn"), ("kind", "surprise")),
    *(("columns", ["x0", 3]), ("low", []), ("high", "2")),
]


@pytest.mark.slow
@pytest.mark.no_cover
def test_records_that_are_removed_or_changed_with_all_hashes_made_anew_are_refused_or_found(original, copies, expected):
    """Whoever forges the newest records with their hashes is found by the signatures, or by what the folder knows."""
    bodies = [dict(record.body) for record in records(original)]
    for k in range(len(bodies)):
        path = copies()
        rewrite(path, [*bodies[:k], *bodies[k + 1 :]])
        again = k == len(bodies) - 1  # a signature, which is made again
        assert (judged(path, expected) == "harmless") == again, k
        for field, value in FORGED:
            if field in bodies[k] and bodies[k][field] != value:
                path = copies()
                rewrite(path, [*bodies[:k], {**bodies[k], field: value}, *bodies[k + 1 :]])
                assert judged(path, expected) in ("refused", "found"), (k, field, value)


HASH = "0123456789abcdef" * 2
BODIES = {
    "train": {"drawn": 4, "planned": "R2 0.9", "compared": "RMSE of y 1 instead of 2", "accepted": ["worse"]},
    "add": {"receipts": HASH, "drawn": 4},
    "unlearn": {"receipts": HASH, "erase": [1, 5], "bury": [HASH], "open": 1},
    "rectify": {"receipts": HASH, "replace": [1], "replaced": [HASH], "open": 0},
    "readmit": {"receipts": HASH, "free": [HASH]},
    "rebound": {"columns": ["x0"], "low": ["0"], "high": ["1"]},
    "restore": {"since": 1, "erase": [1], "bury": [HASH], "by": [1], "drop": [HASH], "free": [HASH], "drawn": 4}
    | {"missing": 0, "outside": 0, "open": 1, "replanned": 1, "planned": "R2 0.9"},
    "replan": {"planned": "R2 0.9", "error_before": "0.1", "error": "0.2"},
    "clone": {"clone": "u"},
    "cloned": {"drawn": 4, "planned": "", "source": "u", "source_request": 3},
}
NO_NUMBER = (None, "1", 1.0, True, [1], {})
NO_TEXT = (None, 1, True, ["1"], {})
NO_LIST = (None, 1, "1", {}, [None], [True], [1.0], [[]])  # of numbers or texts
ASKED = {"request": 7, "waiting": 0, "time": "2026-01-01T00:00:00+00:00", "callers": []}
ASKED["in_certificate"] = False


def test_a_request_is_what_its_record_says():
    assert set(BODIES) == set(REQUEST_TYPES)
    for kind, body in BODIES.items():
        said = {"rows": 3, "people": 2, **body}
        request = read_request(compose_record(START, {**ASKED, "kind": kind, **said}), None)
        assert type(request) is REQUEST_TYPES[kind]
        assert json.loads(json.dumps(request.serialise()[0])) == said


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind in BODIES for field in ("rows", "people", *BODIES[kind])]
)
def test_a_record_with_a_missing_or_wrong_field_is_refused(kind, field):
    body = {**ASKED, "kind": kind, "rows": 3, "people": 2, **BODIES[kind]}
    right = body.pop(field)
    if isinstance(right, list):
        wrongs = (*NO_LIST, [7, "text"], ["text", 7], [7] if type(right[0]) is str else ["7"])
    else:
        wrongs = NO_NUMBER if isinstance(right, int) else NO_TEXT
    for wrong in ({}, *({field: value} for value in wrongs)):
        with pytest.raises(InvalidFile, match=f"a record of kind '{kind}' has no valid '{field}'"):
            read_request(compose_record(START, body | wrong), None)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("unlearn", "bury", ["00" * 32]), ("unlearn", "bury", ["zz" * 16]), ("readmit", "free", [""]),
        ("rectify", "replaced", ["00"]), ("restore", "drop", ["00" * 17]), ("unlearn", "erase", [-1]),
        ("unlearn", "erase", [2**63]), ("add", "drawn", 10**30), ("rectify", "rows", -1), ("restore", "by", [1, 2]),
        ("rebound", "low", ["0", "1"]),
    ],
)  # fmt: skip
def test_what_no_vault_writes_into_a_request_is_refused(kind, field, value):
    body = {**ASKED, "kind": kind, "rows": 3, "people": 2, **BODIES[kind]}
    assert read_request(compose_record(START, body), None)
    with pytest.raises(InvalidFile, match=f"a record of kind '{kind}' has no valid"):
        read_request(compose_record(START, body | {field: value}), None)


@pytest.mark.parametrize(
    "lie", [{"request": 9}, {"request": 2**63}, {"request": -1}, {"waiting": [{}]}, {"waiting": 7}, {"waiting": -1}]
)
def test_a_request_that_does_not_follow_the_one_before_is_refused(copies, lie):
    path = copies()
    said = records(path)
    number = max(record.request for record in said) + 1
    body = {"kind": "unlearn", "rows": 0, "people": 0, **BODIES["unlearn"]}
    record = compose_record(said[-1].end, {**ASKED, **body, "request": number, **lie})
    with path.with_suffix(".ledger").open("ab") as file:
        file.write(record.line)
    with pytest.raises(InvalidFile):
        Vault.open(path).verify()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"kind": "surprise"}, "a request of the unknown kind 'surprise'"),
        (
            {"kind": "unlearn", "receipts": HASH, "erase": [1], "open": 0},
            "a record of kind 'unlearn' has no valid 'bury'",
        ),
        ({"kind": "rebound", "columns": ["x0"], "low": [0], "high": ["1"]}, "of kind 'rebound' has no valid 'low'"),
    ],
    ids=["unknown", "unlearn", "rebound"],
)
def test_a_request_that_cannot_be_understood_is_refused_before_anything_is_changed(copies, body, message):
    path = copies()
    vault = Vault.open(path)
    ledger = path.with_suffix(".ledger")
    record = compose_record(records(path)[-1].end, {**ASKED, "rows": 0, "people": 0, **body})
    with ledger.open("ab") as file:
        file.write(record.line)
    before = everything(path)
    for ask in (lambda: Vault.open(path), lambda: vault.predict(PROBE), lambda: vault.unlearn([WHO]), vault.verify):
        with pytest.raises(InvalidFile, match=message):
            ask()
    assert everything(path) == before


def test_a_request_of_a_newer_release_that_was_prepared_is_neither_committed_nor_wiped(copies, monkeypatch):
    """The release that knows it can go on with it."""
    path = copies()
    ended_at(Folder, "commit", lambda: Vault.open(path).rebound({"x0": (-2, 2)}))
    before = everything(path)
    with monkeypatch.context() as patch:
        patch.delitem(REQUEST_TYPES, "rebound")
        with pytest.raises(InvalidFile, match="unknown kind 'rebound'"):
            Vault.open(path)
    assert everything(path) == before
    assert Vault.open(path).verify().ok


@pytest.mark.parametrize("content", [DEEP, b"[]", b"null", b"\xff\xfe", b'{"hash": 3}', b'{"hash": NaN}'], ids=range(6))
def test_a_ledger_of_any_other_json_is_refused(copies, content):
    for lines in (content + b"\n", content + b"\n" + content + b"\n"):
        path = copies()
        path.with_suffix(".ledger").write_bytes(lines)
        with pytest.raises(InvalidFile):
            Vault.open(path)
    path = copies()
    with path.with_suffix(".ledger").open("ab") as ledger:
        ledger.write(content + b"\n")
    with pytest.raises(InvalidFile):
        Vault.open(path)


@pytest.mark.parametrize("after", [b"", b"x", b"whole\n"])
def test_a_write_of_two_records_that_lost_a_page_is_torn_and_more_is_damage(after, tmp_path):
    first = header_record("00000000-0000-4000-8000-000000000000")
    torn = first.line + b'{"kind":"do' + bytes(20) + b'"}\n' + after
    assert parse_records(torn, START, tmp_path) == ([first], True)
    with pytest.raises(InvalidFile, match="damaged"):
        parse_records(torn + b"whole\nmore\n", START, tmp_path)
