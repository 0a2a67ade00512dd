"""Lists: a long request, whose slots and people lie beside the ledger, does what a short one does and loses nothing."""

import json
import os
import shutil
import stat
from dataclasses import fields
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidFile
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.disk.folder import Folder
from expunge.vault.disk.people import hashes_from_bytes
from expunge.vault.disk.request_lists import RequestLists
from expunge.vault.ledger.ledger import Ledger
from expunge.vault.ledger.records import START, compose_record
from expunge.vault.requests import REQUEST_TYPES, Readmit, Rectify, Restore, Unlearn, read_request
from expunge.vault.requests import request as room

from support.disks import Crash, Ending, Interrupted, ended_at, used
from support.sampling import examples, sampled
from support.tampering import PROBE, records, state
from support.vaults import damaged, duplicate, everything, made, people, put_back, random_table

ERASED = ["person-3", "person-4", "person-5"]  # four rows
DIGEST = "0123456789abcdef" * 4
SAID = {"request": 7, "waiting": 0, "time": "2026-01-01T00:00:00+00:00", "callers": []}
SAID["in_certificate"] = False


@pytest.fixture
def long(monkeypatch):
    """Every list is long from here on."""
    monkeypatch.setattr(room, "MAX_INLINE_ENTRIES", 0)


def lists(path):
    """The files beside the ledger, drafts too."""
    folder = path.with_suffix(".lists")
    return {name: (folder / name).read_bytes() for name in os.listdir(folder)} if folder.is_dir() else {}


def identities(path):
    """What changes if one of these files is replaced by another, even one of the same bytes."""
    return {part.name: (part.stat().st_ino, part.read_bytes()) for part in path.with_suffix(".lists").iterdir()}


def named(path):
    """Those that the ledger knows."""
    return {f"{r.request:06}-{r.body['list']}" for r in records(path) if "list" in r.body}


# What is written and read


slots = st.lists(st.integers(0, 2**63 - 1), max_size=30).map(lambda found: np.array(found, dtype=np.int64))
hashes = st.lists(st.binary(min_size=16, max_size=16), max_size=30).map(hashes_from_bytes)


@st.composite
def requests(draw):
    kind = draw(st.sampled_from([Unlearn, Rectify, Readmit, Restore]))
    given = {"receipts": DIGEST} | {name: draw(slots) for name in ("erase", "replace")}
    given |= {name: draw(hashes) for name in ("bury", "replaced", "drop", "free")}
    given["by"] = np.arange(len(given["bury"]))
    given["planned"] = "R2 0.9"
    names = [field.name for field in fields(kind)]
    return kind(**{name: given.get(name, 3) for name in names})


@examples(200)
@given(request=requests(), long=st.integers(0, 60))
def test_a_request_is_read_as_it_was_written(request, long):
    """In the record if all lists together have at most so many entries, else in a file of which that has the hash."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MAX_INLINE_ENTRIES", long)
        body, parts = request.serialise()
    arrays = {name: value for name, value in vars(request).items() if isinstance(value, np.ndarray)}
    assert (sum(map(len, arrays.values())) > long) == ("list" in body) == bool(parts)
    data = b"".join(parts)

    class Beside:
        def read(self, name, size):
            assert (name, size) == (f"000007-{body['list']}", len(data))
            return data

    found = read_request(compose_record(START, {**SAID, "kind": request.kind, **body}), Beside())
    assert type(found) is type(request)
    for name, value in vars(request).items():
        assert np.array_equal(getattr(found, name), value), name
        if name in arrays:
            assert getattr(found, name).dtype == value.dtype
            assert getattr(found, name).shape == value.shape


def test_a_thousand_entries_are_in_the_record_and_more_are_not():
    for extra in (0, 1):
        request = Unlearn(1, 1, DIGEST, np.arange(500 + extra), np.zeros((500, 2), dtype=np.uint64), 0)
        body, parts = request.serialise()
        assert (body["erase"] == 501) == ("list" in body) == bool(parts) == bool(extra)


@pytest.mark.parametrize(
    ("field", "value"),
    [("list", 3), ("list", None), ("list", "00"), ("list", "../" * 22), ("erase", [1]), ("erase", -1), ("bury", None)],
)
def test_a_record_with_a_wrong_list_is_refused(field, value):
    body = {**SAID, "kind": "unlearn", "rows": 1, "people": 1, "receipts": DIGEST, "erase": 1, "bury": 1, "open": 0}
    with pytest.raises(InvalidFile, match=f"a record of kind 'unlearn' has no valid '{field}'"):
        read_request(compose_record(START, {**body, "list": DIGEST, field: value}), None)


def test_a_list_with_a_number_that_no_slot_has_is_refused():
    class Beside:
        def read(self, name, size):
            return b"\xff" * size

    body = {**SAID, "kind": "unlearn", "rows": 1, "people": 1, "receipts": DIGEST, "erase": 1, "bury": 1, "open": 0}
    with pytest.raises(InvalidFile, match="a record of kind 'unlearn' has no valid 'erase'"):
        read_request(compose_record(START, {**body, "list": DIGEST}), Beside())


# Long and short requests


def years(vault):
    """Requests of every kind that has lists."""
    yield vault.unlearn(ERASED)
    yield vault.rectify(random_table(["person-6", "person-6", "person-7"], seed=1))
    yield vault.add(random_table(["new-1", "new-2", "new-1"], seed=2))
    yield vault.unlearn(["new-1", "person-8"])
    yield vault.readmit(["person-4", "person-8"])
    yield vault.unlearn(["person-9"])


def said(receipt):
    """What a receipt says but for its time."""
    return [getattr(receipt, name) for name in ("request", "kind", "rows", "people", "learners", "earlier", "notes")]


def proofs(vault):
    """The personal receipts of all erased people, but for the certificates, which have their time in them."""
    found = vault.personal_receipts(["person-3", "person-5", "person-9", "new-1"])
    return {one: (receipt.request, receipt.salt, receipt.index, receipt.path) for one, receipt in found.items()}


def test_long_and_short_requests_are_equal_in_every_effect(tmp_path, monkeypatch):
    original = made(tmp_path / "v.vault").places.vault
    found = {}
    for name, most in (("short", 1000), ("long", 0), ("mixed", 4)):
        monkeypatch.setattr(room, "MAX_INLINE_ENTRIES", most)
        vault = Vault.open(duplicate(original, tmp_path / name))
        path, copy = vault.places.vault, tmp_path / name / "copy"
        shutil.copytree(path, copy)
        answers = [said(receipt) for receipt in years(vault)]
        now = state(vault), proofs(vault)
        assert vault.verify().ok
        assert set(lists(path)) == named(path)
        assert len(named(path)) == {"short": 0, "long": 5, "mixed": 3}[name]
        put_back(copy, path)
        old = Vault.open(path)
        assert old.verify().ok
        assert old.requests[-1].kind == "restore"
        assert len(named(path)) == {"short": 0, "long": 6, "mixed": 4}[name]
        found[name] = answers, now, state(old), old.notes, old.find([*dict.fromkeys(people()), "new-1", "new-2"])
        put_back(copy, path)  # and once more, with a restore among what is done again
        again = Vault.open(path)
        assert again.verify().ok
        found[name] += (state(again), again.notes)
    assert found["long"] == found["short"]
    assert found["mixed"] == found["short"]


def test_the_record_of_a_long_request_has_the_lengths_and_the_hash_and_nobody_in_it(vault, long):
    vault.unlearn(ERASED)
    path = vault.places.vault
    body = next(record.body for record in records(path) if record.request == 2)
    assert (body["erase"], body["bury"], len(body["list"])) == (4, 3, 64)
    [(name, data)] = lists(path).items()
    assert name == f"000002-{body['list']}"
    assert len(data) == 4 * 8 + 3 * 16
    assert len(json.dumps(dict(body))) < 500
    check = next(check for check in vault.verify().checks if check.name == "ledger")
    assert "2 requests (1 of them with lists), every hash fits" in check.detail


# Damage


def refused(path, message):
    """A vault whose list was changed is refused, by name, and nothing is changed."""
    before = everything(path)
    with pytest.raises(InvalidFile, match=message):
        Vault.open(path).unlearn(["person-1"])
    assert everything(path) == before
    verdict = Vault.open(path, read_only=True).verify()
    ledger = next(check for check in verdict.checks if check.name == "ledger")
    assert not ledger.ok
    assert name_of(path) in ledger.detail


def name_of(path):
    [name] = named(path)
    return name


@sampled("every", 7, 1)
def test_a_list_that_was_changed_is_refused(vault, tmp_path, long, every):
    vault.unlearn(ERASED)
    original, name = vault.places.vault, name_of(vault.places.vault)
    size = len(lists(original)[name])
    for position in range(0, size, every):
        path = duplicate(original, tmp_path / f"{position}")
        damaged(path.with_suffix(".lists") / name, position, position % 8)
        refused(path, f"{name} is damaged: it does not match the ledger")
    for k, data in enumerate((b"", bytes(size), lists(original)[name][:-1])):
        path = duplicate(original, tmp_path / f"cut-{k}")
        (path.with_suffix(".lists") / name).write_bytes(data)
        refused(path, f"{name} is damaged: it does not match the ledger")
    path = duplicate(original, tmp_path / "longer")
    (path.with_suffix(".lists") / name).write_bytes(lists(original)[name] + b"\0")
    refused(path, f"{name} has {size + 1} bytes where at most {size} are expected")


def test_a_list_that_is_not_there_is_told_by_name(vault, long):
    vault.unlearn(ERASED)
    path = vault.places.vault
    name = name_of(path)
    (path.with_suffix(".lists") / name).rename(path.parent / "away")
    refused(path, f"{name} is missing: it lists the people of a request in the ledger; restore it")
    (path.parent / "away").rename(path.with_suffix(".lists") / name)
    assert Vault.open(path).unlearn(["person-1"]).rows == 1


def test_a_list_of_an_earlier_request_is_needed_by_an_old_copy_and_by_the_audit_alone(vault, tmp_path, long):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "copy")
    vault.unlearn(ERASED)
    name = name_of(path)
    vault.unlearn(["person-1"])
    (path.with_suffix(".lists") / name).unlink()
    assert Vault.open(path).unlearn(["person-2"]).rows == 2
    assert not vault.verify().ok
    put_back(tmp_path / "copy", path)
    before = everything(path)
    with pytest.raises(InvalidFile, match=f"{name} is missing"):
        Vault.open(path)
    assert everything(path) == before


# Crashes and requests that fail


def crashes(task, copy, *, torn, every=1):
    """What a process leaves that ends at one of its changes, at each in turn."""
    for k in count(0, every):
        path = copy(k)
        try:
            with used(Ending(k, torn=torn, changes=True)):
                task(path)
        except Crash:
            yield path
            shutil.rmtree(path.parent)
        else:
            return


@pytest.mark.no_cover
@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_an_erasure_that_ends_at_any_change_has_its_list_or_leaves_nothing(vault, tmp_path, long, torn):
    """Once it is accepted, an old copy of the folder does as well: the list is all that it needs."""
    original = vault.places.vault
    before, seen = state(vault), set()
    done = duplicate(original, tmp_path / "done")
    Vault.open(done).unlearn(ERASED)
    after = state(Vault.open(done))
    for path in crashes(
        lambda path: Vault.open(path).unlearn(ERASED), lambda k: duplicate(original, tmp_path / f"{k}"), torn=torn
    ):
        accepted = any(record.request == 2 for record in Ledger(path.with_suffix(".ledger")).read()[0])
        seen.add((accepted, bool(lists(path)), bool(list(path.glob("listing.*")))))
        old = duplicate(path, path.parent / "old")
        put_back(original, old)
        for one in (path, old):
            opened = Vault.open(one)
            found, wanted = state(opened), after if accepted else before
            parts = (0, 1, 2, 4) if accepted and one == old else range(6)  # but for whose erasure it is: a restore's
            assert [found[k] for k in parts] == [wanted[k] for k in parts]
            assert accepted == all(holding.state == "erased" for holding in opened.find(ERASED))
            assert opened.verify().ok
            assert not list(one.glob("listing.*"))
            assert named(path) == ({name_of(done)} if accepted else set())
        assert set(lists(path)) == named(path)
    assert {(False, False, True), (False, True, True), (True, True, True), (True, True, False)} <= seen


@pytest.mark.no_cover
def test_a_recovery_that_ends_at_any_change_goes_on(vault, tmp_path, long):
    original = vault.places.vault
    whole = duplicate(original, tmp_path / "whole")
    ended_at(Folder, "commit", lambda: Vault.open(whole).unlearn(ERASED))
    begun = duplicate(original, tmp_path / "begun")
    ended_at(Ledger, "append", lambda: Vault.open(begun).unlearn(ERASED))
    ended = duplicate(original, tmp_path / "ended")
    ended_at(RequestLists, "keep", lambda: Vault.open(ended).unlearn(ERASED))
    assert all(name.endswith(".new") for path in (begun, ended) for name in lists(path))
    for name, path in (("whole", whole), ("begun", begun), ("ended", ended)):
        for copy in crashes(Vault.open, lambda k, p=path, n=name: duplicate(p, tmp_path / f"{n}-{k}"), torn=True):
            opened = Vault.open(copy)
            assert set(lists(copy)) == named(copy)
            assert len(named(copy)) == (name != "begun")
            assert [one.state for one in opened.find(ERASED)] == ["present" if name == "begun" else "erased"] * 3
            assert opened.verify().ok


class Full(Interrupted):
    """A disk that has no room for one kind of file."""

    def __init__(self, name):
        self.name = name

    def before(self, operation, *args):
        if operation == "write" and self.name in os.readlink(f"/proc/self/fd/{args[0]}"):
            raise OSError(28, "the disk is full")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("name", [".lists", "listing.", "learner.", "manifest.", ".leaves", ".ledger"])
def test_of_a_request_that_fails_no_byte_is_left(vault, long, name):
    vault.unlearn(["person-1", "person-2"])
    path = vault.places.vault
    before = everything(path)
    with pytest.raises(OSError, match="full"), used(Full(name)):
        vault.unlearn(ERASED)
    after = everything(path)
    if name == ".ledger":  # all was prepared by then: whoever comes next wipes it, but for leaves
        Vault.open(path)
        after = {name: data for name, data in everything(path).items() if name in before or ".leaves" not in name}
    assert after == before
    assert vault.unlearn(ERASED).rows == 4
    assert vault.verify().ok


def test_a_draft_is_overwritten_before_it_goes(vault, long):
    path = vault.places.vault
    ended_at(Ledger, "append", lambda: vault.unlearn(ERASED))
    [name] = lists(path)
    os.link(path.with_suffix(".lists") / name, path.parent / "kept")
    os.unlink(path.with_suffix(".lists") / name)  # one name, or it is no draft
    os.rename(path.parent / "kept", path.with_suffix(".lists") / name)
    with open(path.with_suffix(".lists") / name, "rb") as kept:
        assert any(kept.read())
        Vault.open(path).predict(PROBE)
        kept.seek(0)
        assert not any(kept.read())
    assert lists(path) == {}


# Older copies of folder and ledger


def both(path, copy):
    """An older copy of folder and ledger put back; lists, keys and certificates stay."""
    put_back(copy, path)
    shutil.copy2(copy.with_suffix(".ledger"), path.with_suffix(".ledger"))


@pytest.mark.no_cover
@pytest.mark.parametrize("again", [ERASED, ["person-1", "person-2"]], ids=["the same request", "another"])
def test_no_older_copy_of_folder_and_ledger_removes_or_changes_a_list(vault, tmp_path, long, again):
    path = vault.places.vault
    copy = duplicate(path, tmp_path / "copy")
    vault.unlearn(ERASED)
    newer = duplicate(path, tmp_path / "newer")
    mine = identities(path)
    both(path, copy)

    def kept():
        return mine.items() <= identities(path).items()

    for k in count():
        try:
            with used(Ending(k, changes=True)):
                Vault.open(path).unlearn(again)
        except Crash:
            Vault.open(path)
            assert kept()
            both(path, copy)
        else:
            break
    assert k > 10
    Vault.open(path).unlearn(again)
    assert kept()
    both(path, newer)
    assert Vault.open(path).verify().checks[0].ok


@pytest.mark.parametrize("at", [(Ledger, "append"), (RequestLists, "keep"), (Folder, "commit")], ids=lambda at: at[1])
def test_a_folder_that_was_copied_in_the_midst_of_a_request_does_not_remove_its_list(vault, tmp_path, long, at):
    """A backup that ran meanwhile has the mark in it, and is put back with the ledger of that moment, or an older."""
    path = vault.places.vault
    ledger = path.with_suffix(".ledger").read_bytes()
    ended_at(*at, lambda: vault.unlearn(ERASED))
    copy = shutil.copytree(path, tmp_path / "copy")
    assert list(copy.glob("listing.*"))
    Vault.open(path).unlearn(ERASED)
    mine = lists(path)
    put_back(copy, path)
    path.with_suffix(".ledger").write_bytes(ledger)
    opened = Vault.open(path)
    assert lists(path) == mine
    assert opened.find(ERASED)[0].state == "present"  # it has not heard of the request
    assert not list(path.glob("listing.*"))


def test_an_older_copy_leaves_the_draft_of_a_newer_ledger_alone(vault, tmp_path, long):
    """The newer one ended once it was accepted; who puts it back goes on."""
    path = vault.places.vault
    copy = duplicate(path, tmp_path / "copy")
    ended_at(RequestLists, "keep", lambda: vault.unlearn(ERASED))
    newer = duplicate(path, tmp_path / "newer")
    both(path, copy)
    Vault.open(path).unlearn(["person-1"])
    both(path, newer)
    assert all(one.state == "erased" for one in Vault.open(path).find(ERASED))


@pytest.mark.parametrize("content", [b"", b"../../x", b"000002-" + b"0" * 63, b"\xff" * 71, b"a" * 10**4])
def test_a_mark_that_names_no_list_names_nothing(vault, content):
    path = vault.places.vault
    (path.parent / "x.new").write_bytes(b"somebody's")
    files.create(path / "listing.2", content)
    assert Vault.open(path).unlearn(["person-1"]).rows == 1
    assert not (path / "listing.2").exists()
    assert (path.parent / "x.new").read_bytes() == b"somebody's"


# Whose they are


def test_lists_are_their_owners_alone_or_for_the_group_to_read(tmp_path, long):
    for name, group, modes in (("mine", False, (0o700, 0o600)), ("ours", True, (0o2750, 0o640))):
        vault = made(tmp_path / f"{name}.vault", group=group)
        vault.unlearn(ERASED)
        folder = vault.places.lists
        found = [stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())]
        assert found == [*modes]


def test_lists_in_a_folder_that_others_can_write_to_are_refused(vault, long):
    folder = vault.places.lists
    folder.mkdir()
    folder.chmod(0o777)
    before = everything(vault.places.vault)
    with pytest.raises(InvalidFile, match=r"v\.lists can be written to by others"):
        vault.unlearn(ERASED)
    assert everything(vault.places.vault) == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MAX_INLINE_ENTRIES", 1000)
        assert Vault.open(vault.places.vault).unlearn(["person-1"]).rows == 1  # it needs none


def test_every_kind_of_request_with_lists_is_tried_here():
    listed = {kind for kind, request in REQUEST_TYPES.items() if room._list_fields(request)}
    assert listed == {"unlearn", "rectify", "readmit", "restore"}
