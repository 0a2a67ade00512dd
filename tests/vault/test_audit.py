"""The audit finds what an opened vault would not: everything here passes its checksums, and yet does not fit."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from expunge.errors import InvalidFile
from expunge.vault import Vault, audit
from expunge.vault.certificates import encodings
from expunge.vault.disk.people import NOBODY
from expunge.vault.ledger.ledger import Ledger
from expunge.vault.ledger.records import START

from support.tampering import records, rewrite
from support.vaults import duplicate, made


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    vault = made(tmp_path_factory.mktemp("audit") / "v.vault")
    vault.unlearn("person-3")
    vault.unlearn("person-7")
    return vault.places.vault


@pytest.fixture
def vault(original, tmp_path):
    vault = Vault.open(duplicate(original, tmp_path / "copy"))
    assert vault.verify().ok  # and all of it is in memory
    return vault


def found(vault):
    """What is wrong, by the name of the check."""
    writer = vault._writer
    with writer.ledger.lock(0):  # the checks alone: to look at the folder anew would refuse some of this at once
        return {check.name: check.detail for check in audit.verify(writer, lambda *_: None).checks if not check.ok}


def changed(vault, **fields):
    """Another manifest, in memory."""
    writer = vault._writer
    writer.loaded_snapshot = replace(writer.snapshot, manifest=replace(writer.snapshot.manifest, **fields))


def rewritten(vault, change):
    """Another ledger, whose hashes all fit."""
    rewrite(vault.places.vault, change([dict(record.body) for record in records(vault.places.vault)]))


def test_a_row_that_was_exchanged_with_its_checksum(vault):
    rows = vault._writer.snapshot.rows
    slots = np.flatnonzero(rows.live)[:1]
    X, y = rows.take(slots)
    numbers = rows.layout.dealt.rows(slots)
    rows.write_rows(numbers, X * 0.5, y, rows.read_ranks(numbers))
    assert found(vault) == {"model": "the model is not the one that training on the surviving rows gives"}


def test_bytes_where_a_row_was_erased(vault):
    rows = vault._writer.snapshot.rows
    row = int(rows.layout.dealt.rows(np.flatnonzero(~rows.live[:])[:1])[0])
    with open(rows.layout.segment_file(0), "r+b") as file:
        os.pwrite(file.fileno(), b"\1", row * rows.layout.entry_bytes)
    assert found(vault) == {"rows": "there are bytes left where a row was erased"}


def test_a_row_that_fails_its_checksum(vault):
    rows = vault._writer.snapshot.rows
    row = int(rows.layout.dealt.rows(np.flatnonzero(rows.live)[:1])[0])
    with open(rows.layout.segment_file(0), "r+b") as file:
        os.pwrite(file.fileno(), b"\1", row * rows.layout.entry_bytes)
    assert set(found(vault)) == {"rows", "model"}
    assert "checksum" in found(vault)["rows"]


def test_bits_of_slots_that_are_not_those_of_the_manifest(vault):
    writer = vault._writer
    live = writer.snapshot.rows.live
    there, hole = np.flatnonzero(live)[:1], np.flatnonzero(~live[:])[:1]  # one more, one less: the number fits
    live[there], live[hole] = False, True
    Path(writer.snapshot.rows.bits_file).write_bytes(live.packed)
    live[there], live[hole] = True, False
    assert found(vault)["rows"] == "the slots in use are not those of the manifest"


def test_another_number_of_rows_than_the_manifest_says(vault):
    changed(vault, rows=vault._writer.snapshot.manifest.rows - 1)
    assert found(vault) == {"rows": "the slots in use are not those of the manifest"}


def test_rows_in_slots_that_were_never_given_out(vault):
    changed(vault, drawn=vault._writer.snapshot.manifest.drawn - 1)  # so the last slot that was given out never was
    assert found(vault) == {"rows": "there are rows in slots that were never used"}


def test_a_row_without_an_owner(vault):
    people = vault._writer.snapshot.people
    slot = int(np.flatnonzero(vault._writer.snapshot.rows.live)[0])
    place = np.flatnonzero(people.segments[0].read_slots() == slot)
    people.segments[0].overwrite(place, np.array([NOBODY]))
    assert found(vault) == {"people": "rows and their owners do not match"}


def test_moments_on_the_disk_that_are_not_those_of_the_manifest(vault):
    folder, learner = vault._writer.folder, vault._writer.snapshot.manifest.learners[0]
    content = bytearray((folder.path / learner.name).read_bytes())
    content[-8] ^= 1
    (folder.path / learner.name).write_bytes(content)
    assert set(found(vault)) == {"model"}


def test_a_certificate_that_commits_to_another_state(vault):
    changed(vault, salt="00" * 32)
    assert found(vault) == {"model": "the newest certificate commits to another state"}


def test_requests_that_are_missing_or_doubled(vault):
    def renumbered(bodies):
        return [body | ({"request": 4} if body.get("request") == 3 else {}) for body in bodies]

    rewritten(vault, renumbered)
    assert found(vault)["ledger"] == "requests are missing, duplicated or out of order"


def test_a_newest_request_that_the_folder_does_not_know(vault):
    changed(vault, request=2)
    assert found(vault)["ledger"] == "requests are missing, duplicated or out of order"


def test_a_request_that_is_not_done(vault):
    rewritten(vault, lambda bodies: bodies[:-2])
    assert found(vault)["ledger"] == "request 3 is not done"


def test_requests_that_are_not_done_are_listed_in_words(vault):
    rewritten(vault, lambda bodies: [*bodies[:-2], bodies[-3] | {"request": 4}])
    changed(vault, request=4)
    assert found(vault)["ledger"] == "requests 3 and 4 are not done"


def test_a_torn_record_at_the_end(vault):
    with vault.places.ledger.open("ab") as file:
        file.write(b'{"kind":')
    assert found(vault) == {"ledger": "the last record is torn"}


def test_a_certificate_that_says_something_else_than_the_ledger(vault):
    def swapped(bodies):
        signed = [body for body in bodies if body["kind"] == "signature"]
        signed[-1]["certificate"] = signed[-2]["certificate"]
        return bodies

    rewritten(vault, swapped)
    assert found(vault)["certificates"] == "the certificate of request 3 does not match the ledger"


def test_a_record_that_lacks_what_belongs_to_it(vault):
    rewritten(vault, lambda bodies: [body for body in bodies if body["kind"] != "done"])
    assert found(vault)["certificates"] == "records that belong together do not match"


def test_requests_that_wait_for_the_key_are_counted(original, tmp_path):
    path = duplicate(original, tmp_path / "copy")
    path.with_suffix(".key").unlink()
    vault = Vault.open(path)
    vault.unlearn("person-1")
    details = {check.name: check.detail for check in vault.verify().checks}
    assert details["certificates"] == "3 signatures fit; 1 wait for the signing key"


def test_a_certificate_file_that_is_missing_is_a_note(vault):
    vault.certificate_path(1).unlink()
    verdict = vault.verify()
    details = {check.name: check.detail for check in verdict.checks}
    assert verdict.ok
    assert details["certificates"].startswith("3 signatures fit; 1 of their files are missing from ")


def other_payload(text):
    head, payload, signature = text.split(".")
    said = json.loads(encodings.decode_base64url(payload)) | {"rows": 1000}
    return f"{head}.{encodings.encode_base64url(json.dumps(said).encode())}.{signature}"


@pytest.mark.parametrize(
    "change",
    [
        lambda vault: vault.certificate_path(2).write_text("another"),
        lambda vault: vault.certificate_path(2).write_text(""),
        lambda vault: vault.certificate_path(2).write_text(other_payload(vault.certificate(2))),
        lambda vault: vault.certificate_path(2).write_text(vault.certificate(3)[:-4] + "AAAA"),
        lambda vault: vault.certificate_path(7).write_text(other_payload(vault.certificate(2))),
        lambda vault: vault.certificate_path(2).write_text(vault.certificate(3) + "\n"),
        lambda vault: vault.certificate_path(2).write_text(vault.head()),
        lambda vault: vault.certificate_path(7).write_text(vault.certificate(3) + "\n"),
        lambda vault: (vault.places.certificates / "mine.jws").write_text("another"),
        lambda vault: (vault.certificate_path(2).unlink(), vault.certificate_path(2).mkdir()),
    ],
    ids=["text", "empty", "payload", "signature", "number", "swapped", "head", "copied", "name", "folder"],
)
def test_a_certificate_file_that_was_changed_or_is_foreign_fails_the_audit(vault, change):
    change(vault)
    wrong = {check.name: check.detail for check in vault.verify().checks if not check.ok}
    assert list(wrong) == ["certificates"]
    assert "was changed, or is not a certificate of this vault" in wrong["certificates"]


def test_a_certificate_of_another_vault_among_ours_fails_the_audit(vault, tmp_path):
    other = made(tmp_path / "other.vault")
    vault.certificate_path(4).write_text(other.certificate(1))
    assert not vault.verify().ok


def test_a_copy_of_a_certificate_a_head_and_other_files_are_harmless(vault):
    folder = vault.places.certificates
    (folder / "copy.jws").write_text(vault.certificate(2) + "\n")
    (folder / "head.jws").write_text(vault.head())
    (folder / "README").write_text("certificates of the vault")
    assert vault.verify().ok


def test_a_certificate_comes_from_the_ledger_and_not_from_its_file(vault):
    text = vault.certificate(2)
    assert vault.certificate_path(2).read_text().strip() == text
    vault.certificate_path(2).write_text(other_payload(text))
    assert vault.certificate(2) == text
    receipt = vault.unlearn("person-3")
    assert (receipt.certificate, receipt.path) == (text, None)
    assert vault.certificate(99) is None


def test_a_certificate_that_was_changed_in_the_ledger_is_not_handed_out(vault):
    def swapped(bodies):
        signed = [body for body in bodies if body["kind"] == "signature"]
        signed[-2]["certificate"] = other_payload(signed[-2]["certificate"])
        return bodies

    rewritten(vault, swapped)
    with pytest.raises(InvalidFile, match="was changed: no certificate of request 2"):
        vault.certificate(2)


@pytest.mark.parametrize(("factor", "expected"), [(1 + 1e-9, "differ by at most 1e-09"), (1.001, None)])
def test_weights_of_another_machine_may_differ_in_their_last_digits_only(vault, factor, expected):
    writer = vault._writer
    ensemble = writer.snapshot.state.ensemble
    models = [None if W is None else W * factor for W in ensemble.models]
    state = replace(writer.snapshot.state, ensemble=replace(ensemble, models=models))
    writer.loaded_snapshot = replace(writer.snapshot, state=state)
    if expected is None:
        assert found(vault) == {"model": "the weights are not those of the moments"}
        return
    with writer.ledger.lock(0):
        details = {check.name: check.detail for check in audit.verify(writer, lambda *_: None).checks}
    assert expected in details["model"]


def test_the_ledger_is_never_read_whole_into_memory(vault, monkeypatch):
    head, read = vault.head(), Ledger.read

    def refused(ledger, after=START):
        assert after != START
        return read(ledger, after)

    monkeypatch.setattr(Ledger, "read", refused)
    for asked in (vault, Vault.open(vault.places.vault, read_only=True)):
        assert asked.verify(head=head).ok


def test_an_older_ledger_is_refused_by_what_it_is(vault):
    lines = vault.places.ledger.read_bytes().splitlines(keepends=True)
    vault.places.ledger.write_bytes(b"".join(lines[:3]))
    with pytest.raises(InvalidFile, match="is older than the vault beside it, or cut short"):
        Vault.open(vault.places.vault)
