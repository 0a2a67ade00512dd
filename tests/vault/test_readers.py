"""Who may only read: a group, whoever has a mount without writing, and whoever asks for it. Others tidy up later."""

import errno
import os
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest

from expunge.errors import InvalidFile, InvalidSetting, Unfinished, VaultBusy
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.certificates.jws import SigningKey
from expunge.vault.certificates.notary import Notary
from expunge.vault.disk.folder import Folder
from expunge.vault.status import try_read_status
from expunge.vault.writer import Writer

from support.disks import Crash, Ending, Unsynced, ended_at, used
from support.sampling import sampled
from support.vaults import duplicate, everything, made, random_table

PROBE = np.zeros((1, 2))
CHANGES = ("write", "truncate", "reserve", "sync", "rename", "unlink", "mkdir", "rmdir", "chmod", "lock", "unlock")


class Mounted(Unsynced):
    """A mount on which nothing can be written, for this reason."""

    def __init__(self, reason):
        self.reason = reason

    def open(self, path, flags, mode=0o600, folder=None):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.refuse()
        return super().open(path, flags, mode, folder)

    def refuse(self, *_):
        raise OSError(self.reason, os.strerror(self.reason))

    write = truncate = reserve = rename = unlink = mkdir = rmdir = chmod = refuse


@pytest.fixture(params=[errno.EROFS, errno.EACCES, errno.EPERM], ids=errno.errorcode.get)
def mounted(request):
    return Mounted(request.param)


# A mount without writing


def leave_a_file(vault):
    (vault.places.vault / "learner.0.99").write_bytes(b"residue")


def leave_a_certificate(vault):
    key = vault.places.key.read_bytes()
    vault.places.key.unlink()
    vault.unlearn(["person-1"])
    vault.places.key.write_bytes(key)
    vault.places.key.chmod(0o600)


def leave_a_wipe(vault):
    ended_at(Folder, "wipe_all_but", lambda: vault.unlearn(["person-1"]))


@pytest.mark.parametrize("leave", [leave_a_file, leave_a_certificate, leave_a_wipe])
def test_what_cannot_be_tidied_now_is_tidied_later_and_holds_up_no_reader(vault, mounted, leave):
    path = vault.places.vault
    leave(vault)
    before, expected = everything(path), vault._reader.get_model().state.ensemble.predict(PROBE)
    with used(mounted):
        opened = Vault.open(path, wait=0.0)
        np.testing.assert_array_equal(opened.predict(PROBE), expected[:, 0])
        assert opened.status().rows == opened._reader.get_model().manifest.rows
        assert opened.requests
    assert everything(path) == before
    assert Vault.open(path).verify().ok
    assert Folder(path).find_leftovers(Folder(path).read_current_manifest()) == []
    assert {request.state for request in Vault.open(path).requests} == {"certified"}


def test_a_request_that_is_accepted_and_not_carried_out_is_said_to_be_so(vault, mounted):
    ended_at(Folder, "commit", lambda: vault.unlearn(["person-1"]))
    with used(mounted), pytest.raises(Unfinished, match="may not write there"):
        Vault.open(vault.places.vault, wait=0.0)


# Drafts of keys


@pytest.mark.parametrize("end", [".key.new", ".pub.new"])
def test_a_draft_of_a_key_is_wiped_by_the_next_who_writes(vault, end):
    draft, left = vault.places.vault.with_suffix(end), []
    draft.write_bytes(SigningKey.generate().pem())
    draft.chmod(0o600)
    before = draft.read_bytes()
    Vault.open(vault.places.vault, read_only=True).predict(PROBE)
    assert draft.read_bytes() == before

    class Seen(Unsynced):
        def unlink(self, path, folder=None):
            left.append((path.name, Path(path).read_bytes()))
            super().unlink(path, folder)

    with used(Seen()):
        vault.unlearn(["person-1"])
    assert not draft.exists()
    assert (draft.name, bytes(len(before))) in left


def test_wherever_a_new_key_is_interrupted_no_draft_outlives_the_next_request(tmp_path):
    for k in range(100):
        vault = made(tmp_path / f"{k}.vault")
        vault.places.key.unlink()
        with used(Ending(k, changes=True)):
            try:
                ended = vault.renew_key() is None
            except Crash:
                ended = True
        again = Vault.open(vault.places.vault)
        again.unlearn(["person-1"])
        assert not list(tmp_path.glob(f"{k}.*.new"))
        if not ended:
            break
    assert k > 5


def test_an_audit_that_may_only_read_says_that_a_change_of_the_key_is_unfinished_and_not_that_it_is_wrong(tmp_path):
    found = set()
    for k in range(100):
        vault, ended = made(tmp_path / f"{k}.vault"), True
        with used(Ending(k, changes=True)):
            try:
                ended = vault.renew_key() is None
            except Crash:
                ended = True
        try:
            assert Vault.open(vault.places.vault, read_only=True, wait=0).verify().ok
            found.add("ok")
        except Unfinished:
            found.add("unfinished")
        assert Vault.open(vault.places.vault).verify().ok
        assert Vault.open(vault.places.vault, read_only=True, wait=0).verify().ok
        if not ended:
            break
    assert found == {"ok", "unfinished"}


@pytest.mark.parametrize("trap", ["link", "second name", "writable"])
def test_what_others_put_where_a_draft_would_be_holds_up_no_request(vault, tmp_path, trap):
    draft, precious = vault.places.vault.with_suffix(".key.new"), tmp_path / "precious"
    precious.write_text("precious")
    if trap == "writable":
        precious = draft
        draft.write_text("precious")
    else:
        draft.symlink_to(precious) if trap == "link" else os.link(precious, draft)
    precious.chmod(0o666 if trap == "writable" else 0o600)
    assert Vault.open(vault.places.vault).unlearn(["person-1"]).certificate is not None
    assert precious.read_text() == "precious"


# A vault for a group


def modes(vault):
    """The permissions of all that belongs to a vault, but for the key."""
    places = vault.places
    parts = [places.ledger, places.public, places.vault, places.certificates]
    parts += [*places.vault.iterdir(), *places.certificates.iterdir()]
    return {stat.S_IMODE(part.stat().st_mode) & 0o777 for part in parts if part.is_file()}, {
        stat.S_IMODE(part.stat().st_mode) for part in parts if part.is_dir()
    }


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
@pytest.mark.parametrize("group", [False, True])
def test_a_vault_is_for_its_owner_or_for_its_group_and_stays_so(tmp_path, group, umask):
    before = os.umask(umask)
    try:
        vault = made(tmp_path / "v.vault", group=group)
        expected = ({0o640}, {0o2750}) if group else ({0o600}, {0o700})
        assert modes(vault) == expected
        vault.unlearn(["person-1"])
        vault.add(random_table(["new-1", "new-2"], seed=1))
        vault.rebound({"x0": (-2, 2)})
        vault.rectify(random_table(["new-1"], seed=2))
        vault = made(vault.places.vault, random_table([f"b-{k}" for k in range(20)]), replace=True)
        vault.places.key.unlink()
        vault.renew_key()
        assert modes(vault) == expected
        assert stat.S_IMODE(vault.places.key.stat().st_mode) == 0o600
        assert vault.verify().ok
    finally:
        os.umask(before)


def test_an_existing_vault_does_not_become_its_groups_unasked(vault):
    before = everything(vault.places.vault)
    with pytest.raises(InvalidSetting, match="for its owner only"):
        made(vault.places.vault, replace=True, group=True)
    assert everything(vault.places.vault) == before
    vault.places.vault.chmod(0o2750)
    assert modes(made(vault.places.vault, replace=True, group=True))[0] == {0o600, 0o640}


@pytest.fixture
def open_folder():
    """A folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # noqa: S103 - that is what is tested
        yield Path(name)


def as_member(task):
    """Do something as somebody of the group 23456."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(23456, 23456, 23456)
            os.setresuid(34567, 34567, 34567)
            task()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_somebody_of_the_group_predicts_and_looks_and_changes_nothing(open_folder):
    vault = made(open_folder / "v.vault", group=True)
    leave_a_file(vault)
    _give_to(vault.places, 12345, 23456)
    path, before, expected = vault.places.vault, everything(vault.places.vault), vault.predict(PROBE)

    def look():
        mine = Vault.open(path, wait=0.0)
        assert (mine.predict(PROBE), mine.status().rows, len(mine.requests)) == (expected, 30, 1)
        with pytest.raises(PermissionError):
            mine.unlearn(["person-1"])
        with pytest.raises(PermissionError):
            vault.places.key.read_bytes()

    def look_closer():
        mine = Vault.open(path, wait=0.0, read_only=True)
        assert mine.find(["person-1"])[0].state == "present"
        assert mine.verify().ok

    as_member(look)
    assert everything(path) == before
    (path / "learner.0.99").unlink()
    as_member(look_closer)


def _give_to(places, user, group):
    for part in (places.vault, places.ledger, places.key, places.public, places.certificates):
        for one in [part, *(part.iterdir() if part.is_dir() else ())]:
            os.chown(one, user, group)


# Who asks to read only


class Watched(files.System):
    """A disk on which nothing may be changed or locked, in whatever way."""

    def open(self, path, flags, mode=0o600, folder=None):
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND), path
        return super().open(path, flags, mode, folder)


def _forbidden(name):
    def operation(self, *args):
        pytest.fail(f"{name}{args}")

    return operation


for _name in CHANGES:
    setattr(Watched, _name, _forbidden(_name))


def audited(vault):
    """What an audit says; None if there is something to be tidied up first."""
    try:
        return vault.verify()
    except Unfinished:
        assert Folder(vault.places.vault).find_leftovers(Folder(vault.places.vault).read_current_manifest())
        return None


ASKED = {
    "predict": lambda vault: vault.predict(PROBE).tolist(),
    "status": lambda vault: vault.status(),
    "requests": lambda vault: vault.requests,
    "public_keys": lambda vault: vault.public_keys(),
    "holds": lambda vault: vault.find(["person-0", "person-1", "nobody"]),
    "verify": lambda vault: audited(vault),
    "digest": lambda vault: vault.digest(),
}


def looked(path, *, wait=0.0):
    """All answers of a vault that is opened to be read."""
    with used(Watched()):
        vault = Vault.open(path, read_only=True, wait=wait)
        return {name: ask(vault) for name, ask in ASKED.items()}


def test_every_disk_operation_is_one_that_reads_or_is_watched():
    reads = {"open", "open_folder", "read", "names", "map"}
    assert reads | set(CHANGES) == {name for name in vars(files.System) if not name.startswith("_")}


def test_a_vault_that_is_opened_to_be_read_answers_the_same_and_changes_nothing(original):
    before = everything(original)
    vault = Vault.open(original)
    assert looked(original) == {name: ask(vault) for name, ask in ASKED.items()}
    assert everything(original) == before


@pytest.mark.parametrize("leave", [leave_a_file, leave_a_certificate])
def test_what_can_wait_does_and_is_not_touched_by_who_only_reads(vault, leave):
    leave(vault)
    before = everything(vault.places.vault)
    found = looked(vault.places.vault)
    assert (found["verify"] is None) == (leave is leave_a_file)  # else it says that nothing is left
    assert everything(vault.places.vault) == before
    assert found["status"].uncertified == (leave is leave_a_certificate)
    assert Vault.open(vault.places.vault).status().uncertified == 0


@pytest.mark.parametrize(
    ("owner", "method"),
    [(Folder, "commit"), (Folder, "wipe_all_but"), (Writer, "finish"), (Notary, "certify")],
)
def test_who_only_reads_is_refused_while_something_is_pending(vault, owner, method):
    path = vault.places.vault
    opened = Vault.open(path, read_only=True, wait=0.0)
    ended_at(owner, method, lambda: vault.unlearn(["person-1"]))
    before = everything(path)
    with used(Watched()):
        with pytest.raises(Unfinished, match="read.only|may not write"):
            Vault.open(path, read_only=True, wait=0.0)
        for ask in (opened.verify, opened.digest, lambda: opened.find(["person-1"])):
            with pytest.raises(Unfinished, match="read.only"):
                ask()
    assert everything(path) == before
    Vault.open(path)
    assert looked(path)["holds"][1].state == "erased"


def test_a_torn_record_is_pending(vault):
    with vault.places.ledger.open("ab") as file:
        file.write(b'{"kind":')
    before = everything(vault.places.vault)
    with used(Watched()), pytest.raises(Unfinished):
        Vault.open(vault.places.vault, read_only=True, wait=0.0)
    assert everything(vault.places.vault) == before


def test_a_vault_that_was_never_trained_to_the_end_is_said_to_be_so(tmp_path):
    ended_at(Folder, "commit", lambda: made(tmp_path / "v.vault"))
    with used(Watched()), pytest.raises(Unfinished):
        Vault.open(tmp_path / "v.vault", read_only=True, wait=0.0)


REQUESTS = {
    "unlearn": lambda vault: vault.unlearn(["person-1"]),
    "add": lambda vault: vault.add(random_table(["new-1"])),
    "rectify": lambda vault: vault.rectify(random_table(["person-1"])),
    "readmit": lambda vault: vault.readmit(["person-1"]),
    "rebound": lambda vault: vault.rebound({"x0": (-2, 2)}),
    "renew_key": lambda vault: vault.renew_key(),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_who_asked_to_read_only_cannot_ask_for_changes(vault, kind):
    opened = Vault.open(vault.places.vault, read_only=True)
    with used(Watched()), pytest.raises(InvalidSetting, match="read.only"):
        REQUESTS[kind](opened)


@pytest.mark.parametrize("name", ["holds", "verify", "digest"])
def test_an_answer_that_a_request_overtakes_is_not_given(vault, monkeypatch, name):
    opened, load = Vault.open(vault.places.vault, read_only=True), Writer.load

    def overtaken(self, manifest):
        if self is not opened._writer:
            return load(self, manifest)
        found = load(self, manifest)
        vault.unlearn(["person-1"])
        return found

    monkeypatch.setattr(Writer, "load", overtaken)
    with pytest.raises(VaultBusy, match="changed while it was being read"):
        ASKED[name](opened)
    monkeypatch.undo()
    ASKED[name](opened)


def test_a_damaged_file_is_still_a_damaged_file_to_who_only_reads(vault):
    (vault.places.vault / "learner.0.1.0").write_bytes(b"x")
    with used(Watched()), pytest.raises(InvalidFile, match="fails its checksum"):
        Vault.open(vault.places.vault, read_only=True)


def test_a_glance_changes_nothing(vault):
    with used(Watched()):
        assert try_read_status(vault.places.vault) is not None


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["unlearn", "rectify", "add", "rebound"])
@sampled("every", 3, 1)
def test_wherever_a_writer_ends_who_only_reads_gets_a_true_answer_or_none_and_changes_nothing(tmp_path, kind, every):
    first, answers = made(tmp_path / "v.vault").places.vault, set()
    for k in range(0, 200, every):
        path = duplicate(first, tmp_path / f"{k}")
        with used(Ending(k, torn=bool(k % 2), changes=True)):
            try:
                ended = REQUESTS[kind](Vault.open(path)) is None
            except Crash:
                ended = True
        before = everything(path)
        try:
            found = looked(path)
        except Unfinished:
            found = None
        assert everything(path) == before
        vault = Vault.open(path)  # finishes what was accepted
        if found is not None:
            expected = {name: ask(vault) for name, ask in ASKED.items()} | {"status": found["status"]}
            assert found in (expected, expected | {"verify": None})
        answers.add((found is None, len(vault.requests)))
        if not ended:
            break
    assert answers == {(False, 1), (True, 2), (False, 2)}
