"""The ledger's index: it says what the whole ledger says, reads only what came since, and survives any damage."""

import json
import os
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.errors import ExpungeError, InvalidFile, UnknownId
from expunge.saving import files
from expunge.vault import Erasure, Vault
from expunge.vault.ledger import index as indexing
from expunge.vault.ledger.records import DONE, SIGNATURE, make_logged_request, records_of_kind

from support.tampering import records
from support.vaults import duplicate, made, people, put_back, random_table


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Write a checkpoint after every request, and pages of four."""
    monkeypatch.setattr(indexing, "CHECKPOINT_STEP_BYTES", 1)
    monkeypatch.setattr(indexing, "PAGE_REQUESTS", 4)


@pytest.fixture
def vault(tmp_path):
    vault = made(tmp_path / "small.vault")
    for k in range(9):
        vault.unlearn(f"person-{k}", reference=f"DSR-{k}", job=f"job-{k}")
    return vault


def told(vault):
    return [vars(request) for request in vault.requests]


def list_requests(records):
    """The requests in all records of a ledger, computed without an index."""
    signed, done = records_of_kind(records, SIGNATURE), records_of_kind(records, DONE)
    requests = [r for r in records if r.is_request]
    restores = [r for r in requests if r.kind == "restore" and r.request in done]
    restored = max((r.request for r in restores), default=0)

    def state(number):
        if number in signed:
            return "certified"
        if number in done and not any(int(r.body.get("since", 0)) < number < r.request for r in restores):
            return "done"
        return "restored" if number < restored else "accepted"

    return [make_logged_request(r, signed.get(r.request), state(r.request)) for r in requests]


def read_whole(path):
    return [vars(request) for request in list_requests(records(path))]


def bytes_read(monkeypatch, path, ask):
    """How many bytes of the ledger a question reads."""
    counted, real = 0, files.system.read

    def read(fd, count, offset):
        nonlocal counted
        data = real(fd, count, offset)
        if os.path.samestat(os.fstat(fd), os.stat(path.with_suffix(".ledger"))):
            counted += len(data)
        return data

    with monkeypatch.context() as patch:
        patch.setattr(files.system, "read", read)
        ask()
    return counted


def test_the_index_says_what_the_whole_ledger_says(vault):
    path = vault.places.vault
    assert told(vault) == read_whole(path)
    assert told(Vault.open(path)) == read_whole(path)
    assert [request.number for request in vault.requests[-3:]] == [8, 9, 10]
    assert vault.requests[-1].reference == "DSR-8"
    with pytest.raises(IndexError):
        vault.requests[10]


def test_what_a_vault_reads_of_its_ledger_does_not_grow_with_its_history(vault, monkeypatch):
    path = vault.places.vault

    def ask():
        opened = Vault.open(path)
        opened.status(), opened.jwks(), opened.personal_receipts("person-2"), opened.unlearn("person-2")

    before = bytes_read(monkeypatch, path, ask)
    for k in range(9, 19):
        vault.unlearn(f"person-{k}")
    assert abs(bytes_read(monkeypatch, path, ask) - before) < 1000
    (path.with_suffix(".index") / "checkpoint").unlink()
    assert bytes_read(monkeypatch, path, ask) > before + 10_000


def test_a_process_that_asks_again_reads_nothing_again(vault, monkeypatch):
    vault.status(), vault.jwks()
    assert bytes_read(monkeypatch, vault.places.vault, lambda: (vault.status(), vault.jwks())) < 5000


@pytest.mark.parametrize("name", ["checkpoint", "pages"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "remove", "link", "old"])
def test_a_checkpoint_that_does_not_fit_means_a_full_read(vault, tmp_path, name, damage):
    path, expected = vault.places.vault, told(vault)
    file = path.with_suffix(".index") / name
    data = file.read_bytes()
    if damage == "flip":
        file.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    elif damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "remove":
        file.unlink()
    elif damage == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        vault.unlearn(["person-11", "person-12"])
        expected = told(vault)
        file.write_bytes(data)
    opened = Vault.open(path)
    assert told(opened) == expected
    opened.unlearn("person-15")
    assert told(Vault.open(path)) == read_whole(path)
    assert opened.verify().ok


def test_a_checkpoint_of_another_vault_is_not_taken(vault, tmp_path):
    other = made(tmp_path / "other.vault")
    other.unlearn("person-1")
    for name in ("checkpoint", "pages"):
        source = vault.places.index / name
        (tmp_path / "other.index" / name).write_bytes(source.read_bytes())
    assert told(Vault.open(tmp_path / "other.vault")) == read_whole(tmp_path / "other.vault")


def test_a_checkpoint_that_cannot_be_written_fails_nothing(vault, monkeypatch):
    real = files.system.rename

    def rename(old, new, folder=None):
        if new.name == "checkpoint":
            raise OSError(28, "No space left on device")
        real(old, new, folder)

    monkeypatch.setattr(files.system, "rename", rename)
    assert vault.unlearn("person-14").rows
    assert told(vault) == read_whole(vault.places.vault)


def test_an_older_ledger_in_its_place_is_noticed(vault, tmp_path):
    path = vault.places.vault
    copy = duplicate(path, tmp_path / "copy")
    vault.unlearn("person-13")
    path.with_suffix(".ledger").write_bytes(copy.with_suffix(".ledger").read_bytes())
    with pytest.raises(ExpungeError):
        vault.status()


def test_a_record_that_was_changed_is_refused_when_it_is_used_and_found_by_verify(vault):
    path = vault.places.vault
    ledger = path.with_suffix(".ledger")
    data = ledger.read_bytes()
    ledger.write_bytes(data.replace(b"DSR-3", b"DSR-X"))
    opened = Vault.open(path)
    opened.status()
    assert opened.requests[-1].reference == "DSR-8"
    with pytest.raises(InvalidFile, match="was changed at byte"):
        opened.requests[4]
    assert not opened.verify().ok


def test_a_job_is_found_and_older_requests_are_not_looked_at(vault):
    assert vault.find_job("job-3", 0).number == 5
    assert vault.find_job("job-3", 4).number == 5
    assert vault.find_job("job-3", 5) is None
    assert vault.find_job("job", 0) is None


def test_requests_that_wait_for_the_key_are_certified_from_the_index(vault):
    key = vault.places.key
    key.rename(key.with_suffix(".away"))
    vault.unlearn("person-12")
    vault.unlearn_group([Erasure("person-13"), Erasure("person-14")])
    assert vault.status().uncertified == 2
    key.with_suffix(".away").rename(key)
    opened = Vault.open(vault.places.vault)
    assert opened.status().uncertified == 0
    assert told(opened) == read_whole(vault.places.vault)
    assert opened.verify().ok


def test_an_old_copy_of_the_folder_is_told_as_before(vault, tmp_path):
    path = vault.places.vault
    copy = duplicate(path, tmp_path / "copy")
    vault.unlearn("person-13")
    vault.unlearn("person-14")
    put_back(copy, path)
    opened = Vault.open(path)
    assert opened.requests[-1].kind == "restore"
    assert told(opened) == read_whole(path)
    assert told(Vault.open(path)) == read_whole(path)


def test_the_checkpoint_names_nobody(vault):
    for file in vault.places.index.iterdir():
        data = file.read_bytes()
        assert b"person" not in data
        assert b"DSR" not in data
        assert vault.digest().encode() not in data
    start = len(b"expunge ledger index 1\n")
    data = (vault.places.index / "checkpoint").read_bytes()
    length = int.from_bytes(data[start : start + 4], "little")
    assert json.loads(data[start + 4 : start + 4 + length])["newest"] == 10


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["unlearn", "add", "readmit", "away", "back", "open", "lose"]), max_size=14))
def test_any_history_is_told_as_reading_all_of_it_tells(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("histories") / "v.vault"
    vault, names, added = made(path), sorted(set(people())), 0
    for step in steps:
        key = path.with_suffix(".key")
        if step == "unlearn" and names:
            vault.unlearn(names.pop())
        elif step == "add":
            added += 1
            vault.add(random_table([f"new-{added}"], seed=added))
        elif step == "readmit" and len(names) < len(set(people())):
            with suppress(UnknownId):  # it was readmitted before
                vault.readmit(min(set(people()) - set(names)))
        elif step == "away" and key.exists():
            key.rename(key.with_suffix(".away"))
        elif step == "back" and not key.exists():
            key.with_suffix(".away").rename(key)
        elif step == "open":
            vault = Vault.open(path)
        elif step == "lose":
            (path.with_suffix(".index") / "checkpoint").unlink(missing_ok=True)
    opened = Vault.open(path)  # certifies what waited for the key
    assert told(opened) == told(vault) == read_whole(path)


def test_an_interrupt_while_the_ledger_is_read_leaves_no_half_of_a_record(vault, monkeypatch):
    path, expected = vault.places.vault, told(vault)
    (vault.places.index / "checkpoint").unlink()
    opened = Vault.open(path)
    opened._writer.index.reset_after_fork()
    real = indexing._IndexState.__setattr__

    def interrupted(self, name, value):
        real(self, name, value)
        if (name, value) == ("newest", 5):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(indexing._IndexState, "__setattr__", interrupted)
        opened.status()
    assert told(opened) == expected
    assert opened.status().requests == 10


def test_an_interrupt_while_pages_are_written_leaves_every_request_in_its_place(vault, monkeypatch):
    class Pages(list):
        def append(self, tag):
            super().append(tag)
            raise KeyboardInterrupt

    index = vault._writer.index
    monkeypatch.setattr(indexing, "CHECKPOINT_STEP_BYTES", 10**9)
    for k in range(9, 14):
        vault.unlearn(f"person-{k}")
    monkeypatch.setattr(indexing, "CHECKPOINT_STEP_BYTES", 1)
    index._state.pages = Pages(index._state.pages)
    with pytest.raises(KeyboardInterrupt):
        vault.unlearn("person-14")
    assert told(vault) == read_whole(vault.places.vault)


def test_a_ledger_that_cannot_be_read_again_is_not_told_in_part(vault):
    path = vault.places.vault
    opened = Vault.open(path)
    assert len(opened.requests) == 10
    ledger, stat = path.with_suffix(".ledger"), path.with_suffix(".ledger").stat()
    (vault.places.index / "pages").unlink()
    ledger.write_bytes(ledger.read_bytes().replace(b"DSR-3", b"DSR-X"))
    os.utime(ledger, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as a disk that rots leaves it
    for _ in range(2):
        with pytest.raises(InvalidFile, match="is damaged"):
            opened.requests[0]
    (vault.places.index / "checkpoint").unlink()
    with pytest.raises(InvalidFile, match="is damaged"):
        opened.status()


def test_threads_can_count_what_waits_for_the_key_while_requests_come(vault, monkeypatch):
    key, index = vault.places.key, vault._writer.index
    key.rename(key.with_suffix(".away"))
    vault.unlearn("person-12")
    vault.unlearn("person-13")
    real, asked = indexing._IndexState.state_of, []

    def state_of(self, number, *, signed):
        if not asked:  # another thread carries out a request while this one counts
            asked.append(threading.Thread(target=ask))
            asked[0].start()
            asked[0].join(0.5)
        return real(self, number, signed=signed)

    def ask():
        vault.unlearn("person-14")
        vault.requests[-1]

    with monkeypatch.context() as patch:
        patch.setattr(indexing._IndexState, "state_of", state_of)
        assert index.uncertified in (2, 3)
        asked[0].join()
    assert index.uncertified == 3


def test_a_child_begins_anew_where_a_thread_of_its_parent_was_learning(vault):
    index = vault._writer.index
    assert index.newest == 10
    Vault.open(vault.places.vault).unlearn("person-12")
    index._state.newest += 1  # as a fork finds it between two steps of another thread
    index.reset_after_fork()
    assert told(vault) == read_whole(vault.places.vault)


def test_requests_that_a_restore_carried_out_are_forgotten_once_they_are_in_a_page(vault, tmp_path):
    path = vault.places.vault
    copy, key = duplicate(path, tmp_path / "copy"), vault.places.key
    key.rename(key.with_suffix(".away"))
    vault.unlearn("person-13")
    vault.unlearn("person-14")
    key.with_suffix(".away").rename(key)
    put_back(copy, path)
    opened = Vault.open(path)
    for k in range(15, 20):
        opened.unlearn(f"person-{k}")
    assert told(opened) == told(Vault.open(path)) == read_whole(path)
    assert [request.state for request in opened.requests].count("restored") == 2
    assert not opened._writer.index._state.unsigned
