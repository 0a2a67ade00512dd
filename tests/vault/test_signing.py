"""What a vault signs: what it has computed itself, with the key that its ledger names, and nothing else."""

import json
import os
import shutil
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import ExpungeError, InvalidFile, InvalidInput, InvalidSetting, SigningFailed
from expunge.vault import Vault
from expunge.vault.certificates.jws import SigningKey, load_public_keys, unverified_payload, verify_statement
from expunge.vault.ledger.records import KEY

from support.disks import ended_at
from support.tampering import records, rewrite
from support.vaults import everything, made, people, put_back, random_table


@pytest.fixture
def waiting(vault, tmp_path):
    """A vault with two requests that wait for the key, which is away."""
    vault.places.key.rename(tmp_path / "away")
    vault.unlearn(["person-1", "person-2"])
    vault.unlearn(["person-3"])
    return vault.places.vault


def back(path):
    """The key is back, and the next command signs."""
    (path.parent / "away").rename(path.with_suffix(".key"))
    return Vault.open(path)


LIES = [
    ("done", "commitment", "0" * 64),
    ("done", "schema", "0" * 64),
    ("done", "software", "expunge 9.9; all backups were destroyed"),
    ("done", "software", "expunge 9"),
    ("unlearn", "rows", 700),
    ("unlearn", "people", 700),
    ("unlearn", "receipts", "0" * 64),
    ("unlearn", "time", "2020-01-01T00:00:00+00:00"),
    ("unlearn", "callers", [{"job": "", "reference": "all backups were destroyed", "actor": "", "despite_hold": ""}]),
    ("unlearn", "in_certificate", True),
    ("unlearn", "waiting", 1),
]


@pytest.mark.parametrize("request_", [2, 3])
@pytest.mark.parametrize(("kind", "field", "value"), LIES)
def test_nothing_is_signed_because_somebody_wrote_it_into_the_ledger(waiting, kind, field, value, request_):
    """With write access to the ledger and without the key: all hashes are made anew."""
    bodies = [dict(record.body) for record in records(waiting)]
    (lie,) = (body for body in bodies if body["kind"] == kind and body["request"] == request_)
    lie[field] = value
    rewrite(waiting, bodies)
    try:
        vault = back(waiting)
    except InvalidFile:
        told = [body for body in map(json.dumps, (dict(r.body) for r in records(waiting))) if '"signature"' in body]
        assert len(told) == 1  # that of the training
        return
    # The newest software is the one thing that nothing vouches for; it can only be a name and a version.
    assert (request_, kind, field, value) == (3, "done", "software", "expunge 9")
    assert unverified_payload(vault.requests[-1].certificate)["software"] == value


@pytest.mark.parametrize("there", [True, False])
def test_a_request_that_only_the_ledger_tells_of_is_never_signed(vault, tmp_path, there):
    """Who can write to the ledger says that a request was carried out: to the vault its folder is an old copy then."""
    vault.unlearn(["person-1", "person-2"])
    path, said = vault.places.vault, [dict(record.body) for record in records(vault.places.vault)]
    asked, done = (next(body for body in said if body["kind"] == kind) for kind in ("unlearn", "done"))
    lie = {**asked, "request": 3, "rows": 700, "people": 1, "erase": [], "bury": [], "receipts": "0" * 64}
    if not there:
        vault.places.key.rename(tmp_path / "away")
    rewrite(path, [*said, lie, {**done, "request": 3, "commitment": "0" * 64}])
    opened = Vault.open(path) if there else (Vault.open(path), back(path))[1]
    states = [(request.kind, request.state) for request in opened.requests[2:]]
    assert states == [("unlearn", "restored"), ("restore", "certified")]
    assert opened.status().uncertified == 0


def test_a_request_that_waited_when_an_old_copy_came_back_is_certified_by_the_restore(waiting, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(waiting, copy)
    Vault.open(waiting).unlearn(["person-4", "person-1"])
    put_back(copy, waiting)
    vault = back(waiting)
    assert [request.state for request in vault.requests] == ["certified"] * 3 + ["restored", "certified"]
    assert [holding.request for holding in vault.find(["person-1", "person-3", "person-4"])] == [2, 3, 5]
    assert vault.unlearn(["person-4"]).request == 5
    for request in (None, 4):
        with pytest.raises(InvalidSetting, match="when an old copy of the folder caught up"):
            vault.personal_receipts(["person-4"], request=request)
    assert vault.verify().ok
    assert "wait" not in detail(vault)


def test_what_waited_is_signed_as_it_would_have_been_at_once(waiting, tmp_path):
    signed = [unverified_payload(r.certificate) for r in back(waiting).requests]
    assert [(one["kind"], one["rows"], one["people"]) for one in signed[1:]] == [("unlearn", 3, 2), ("unlearn", 1, 1)]
    assert Vault.open(waiting).verify().ok


def test_requests_that_wait_for_the_key_do_not_make_later_records_longer(vault, tmp_path):
    vault.places.key.rename(tmp_path / "away")
    for k in range(18):
        vault.unlearn([f"person-{k}"])
    erasures = [record for record in records(vault.places.vault) if record.kind == "unlearn"]
    lengths = [len(record.line) - len(json.dumps(record.body["erase"], separators=(",", ":"))) for record in erasures]
    assert max(lengths) - min(lengths) < 5  # numbers with more digits
    vault = back(vault.places.vault)
    assert [request.state for request in vault.requests] == ["certified"] * 19
    assert vault.verify().ok


def test_a_signer_that_fails_halfway_certifies_the_rest_later(waiting, monkeypatch):
    sign, left = SigningKey.sign, [1]

    def fail_soon(self, payload, *typ):
        if not left:
            raise SigningFailed("the signer is busy")
        left.pop()
        return sign(self, payload, *typ)

    with monkeypatch.context() as patch:
        patch.setattr(SigningKey, "sign", fail_soon)
        vault = back(waiting)
        assert [request.state for request in vault.requests] == ["certified", "certified", "done"]
        vault.unlearn(["person-4"])
        assert [request.state for request in vault.requests] == ["certified", "certified", "done", "done"]
    assert Vault.open(waiting).status().uncertified == 0
    assert Vault.open(waiting).verify().ok


# --- keys are records of the ledger


def keys_in(path):
    return [dict(record.body) for record in records(path) if record.kind == KEY]


def detail(vault):
    return next(check.detail for check in vault.verify().checks if check.name == "certificates")


def test_a_vault_knows_its_key_from_its_ledger(vault):
    (body,) = keys_in(vault.places.vault)
    (key,) = load_public_keys(vault.places.public)
    assert (body["x"], body["previous"], body["endorsed"]) == (key.x, "", "")
    assert vault.places.public.read_bytes() == key.pem()
    said = verify_statement(body["statement"], [key], types=["expunge-key+jws"])
    assert (said["x"], said["replaces"]) == (key.x, "")
    with pytest.raises(ExpungeError, match="not a certificate"):
        verify_statement(body["statement"], [key])


def test_a_key_that_is_changed_is_signed_for_by_the_one_before(vault):
    old, former = vault.public_keys(), vault.places.key.read_bytes()
    name = vault.renew_key()
    assert vault.public_keys() == [name, *old]
    assert former != vault.places.key.read_bytes()
    body = keys_in(vault.places.vault)[-1]
    newest, oldest = load_public_keys(vault.places.public)
    assert verify_statement(body["statement"], [newest], types=["expunge-key+jws"]) == verify_statement(
        body["endorsed"], [oldest], types=["expunge-key+jws"]
    )
    assert "without the word" not in detail(vault)
    verify_statement(vault.unlearn(["person-1"]).certificate, [newest])
    assert vault.verify().ok
    assert not list(vault.places.vault.parent.glob("*.new"))


def test_a_key_that_replaces_a_lost_one_is_told_by_the_audit(vault):
    vault.places.key.unlink()
    vault.renew_key()
    assert "1 of the keys were not endorsed by the previous key" in detail(vault)
    assert vault.verify().ok


def test_a_key_that_was_replaced_signs_no_more(vault, tmp_path):
    shutil.copy(vault.places.key, tmp_path / "old.pem")
    vault.renew_key()
    receipt = Vault.open(vault.places.vault, key=tmp_path / "old.pem").unlearn(["person-1"])
    assert receipt.certificate is None
    assert "is not the key that signs for this vault now" in receipt.notes[0]
    assert Vault.open(vault.places.vault).requests[-1].state == "certified"


@pytest.mark.parametrize("there", [True, False])
def test_a_file_beside_a_named_key_is_not_taken_for_a_draft_of_it(vault, tmp_path, there):
    named, mine = tmp_path / "elsewhere.pem", tmp_path / "elsewhere.pem.new"
    if there:
        named.write_bytes(SigningKey.generate().pem())
        named.chmod(0o600)
        Vault.open(vault.places.vault, key=named).renew_key()
    mine.write_bytes(SigningKey.generate().pem())  # the next one, which somebody has made
    mine.chmod(0o600)
    before = mine.read_bytes()
    Vault.open(vault.places.vault, key=named).unlearn(["person-1"])
    assert mine.read_bytes() == before
    if not there:  # then a new one is made in its place
        name = Vault.open(vault.places.vault, key=named).renew_key()
        assert SigningKey.load(named).public.thumbprint == name
        assert mine.read_bytes() == before
        assert {part.name for part in tmp_path.iterdir() if "elsewhere" in part.name} == {named.name, mine.name}


def test_a_foreign_public_key_is_never_taken_and_the_audit_finds_it(vault):
    stranger = SigningKey.generate()
    vault.places.public.write_bytes(stranger.public.pem() + vault.places.public.read_bytes())
    vault.places.key.write_bytes(stranger.pem())
    opened = Vault.open(vault.places.vault)
    assert opened.unlearn(["person-1"]).certificate is None
    verdict = opened.verify()
    assert [check.name for check in verdict.checks if not check.ok] == ["certificates"]
    assert stranger.public.thumbprint in next(check.detail for check in verdict.checks if not check.ok)
    assert stranger.public.thumbprint not in opened.public_keys()


@pytest.mark.parametrize("field", ["x", "statement", "endorsed", "previous"])
def test_a_forged_record_of_a_key_is_found(vault, field):
    vault.renew_key()
    bodies = [dict(record.body) for record in records(vault.places.vault)]
    mine = SigningKey.generate()
    lies = {"x": mine.public.x, "statement": mine.sign("{}", "expunge-key+jws"), "previous": mine.public.thumbprint}
    lies["endorsed"] = lies["statement"]
    [*_, last] = [body for body in bodies if body["kind"] == KEY]
    last[field] = lies[field]
    rewrite(vault.places.vault, bodies)
    with suppress(InvalidFile):
        assert not Vault.open(vault.places.vault).verify().ok


@pytest.mark.parametrize("x", ["!!!", "\u00e9", "", "AAAA", "A" * 42])
def test_a_record_of_a_key_that_is_none_is_found_and_holds_up_no_erasure(vault, x):
    path, public = vault.places.vault, vault.places.public.read_bytes()
    record = {"kind": KEY, "x": x, "time": "2026-01-01T00:00:00+00:00", "previous": "", "statement": "", "endorsed": ""}
    rewrite(path, [*(dict(record.body) for record in records(path)), record])
    opened = Vault.open(path)
    assert opened.unlearn(["person-1"]).rows == 1
    assert "an invalid public key" in "".join(opened.notes)
    assert not opened.verify().ok
    assert vault.places.public.read_bytes() == public


@pytest.mark.parametrize("step", ["create", "append", "wipe", "rename", "put"])
def test_a_change_of_the_key_that_is_stopped_is_finished_or_undone(vault, step, monkeypatch):
    from expunge.saving import files
    from expunge.vault.ledger.ledger import Ledger

    owner = Ledger if step == "append" else files.system if step == "rename" else files
    ended_at(owner, step, vault.renew_key)
    opened = Vault.open(vault.places.vault)
    names = [key.thumbprint for key in load_public_keys(vault.places.public)]
    assert names == opened.public_keys()
    assert SigningKey.load(vault.places.key).public.thumbprint == names[0]
    assert not list(vault.places.vault.parent.glob("*.new"))
    assert opened.unlearn(["person-1"]).certificate
    assert opened.verify().ok


def test_a_training_that_is_refused_has_not_changed_the_key(vault, tmp_path):
    named = tmp_path / "elsewhere.pem"
    named.write_bytes(SigningKey.generate().pem())
    named.chmod(0o600)
    keys, before = vault.public_keys(), everything(vault.places.vault)
    with pytest.raises(InvalidInput):
        made(vault.places.vault, random_table(["person-1"] * 3), replace=True, key=named)
    assert vault.public_keys() == keys
    assert everything(vault.places.vault) == before
    trained = made(vault.places.vault, replace=True, key=named)
    assert trained.public_keys()[1:] == keys
    assert trained.requests[-1].state == "certified"
    assert trained.verify().ok


# --- a key that a program holds


@pytest.fixture
def held(tmp_path):
    """A program that signs with a key, and the key's public half."""
    key = SigningKey.generate()
    (tmp_path / "held.pem").write_bytes(key.pem())
    (tmp_path / "held.pub").write_bytes(key.public.pem())
    code = (
        "import sys; from cryptography.hazmat.primitives.serialization import load_pem_private_key as load;"
        "key = load(open(sys.argv[1], 'rb').read(), None); sys.stdout.buffer.write(key.sign(sys.stdin.buffer.read()))"
    )
    return f'{sys.executable} -c "{code}" {tmp_path / "held.pem"}', tmp_path / "held.pub"


def test_a_program_signs_for_a_vault_from_its_training_on(tmp_path, held):
    command, public = held
    vault = made(tmp_path / "v.vault", sign_with=command, public_key=public)
    assert not vault.places.key.exists()
    assert vault.places.public.read_bytes() == public.read_bytes()
    opened = Vault.open(tmp_path / "v.vault", sign_with=command)
    verify_statement(opened.unlearn(["person-1"]).certificate, load_public_keys(public))
    assert opened.verify().ok
    without = Vault.open(tmp_path / "v.vault").unlearn(["person-2"])
    assert without.certificate is None
    assert [r.state for r in Vault.open(tmp_path / "v.vault", sign_with=command).requests] == ["certified"] * 3


def test_a_program_that_fails_holds_up_no_erasure(tmp_path, held):
    command, public = held
    vault = made(tmp_path / "v.vault", sign_with=command, public_key=public)
    broken = Vault.open(tmp_path / "v.vault", sign_with="false")
    receipt = broken.unlearn(["person-1"])
    assert (receipt.rows, receipt.certificate) == (1, None)
    assert "done, not certified" in receipt.notes[0]
    assert Vault.open(tmp_path / "v.vault", sign_with=command).requests[-1].state == "certified"
    with pytest.raises(SigningFailed):
        broken.attest_unknown(["nobody"])
    assert vault.verify().ok


@pytest.mark.parametrize("nothing", ["'", " ", "''", "unix:"])
def test_what_names_no_program_is_refused_before_anything_is_accepted(vault, nothing):
    with pytest.raises(InvalidSetting, match="--sign-with"):
        Vault.open(vault.places.vault, sign_with=nothing).unlearn(["person-1"])
    assert len(vault.requests) == 1


def test_a_vault_can_be_handed_over_to_a_program(vault, held):
    """And the key that signed before is wiped: who found it could sign in the vault's name."""
    command, public = held
    old = vault.public_keys()
    opened = Vault.open(vault.places.vault, sign_with=command)
    with pytest.raises(InvalidSetting, match="public half"):
        opened.renew_key()
    name = opened.renew_key(public_key=public)
    assert opened.public_keys() == [name, *old]
    assert not vault.places.key.exists()
    verify_statement(opened.unlearn(["person-1"]).certificate, load_public_keys(public))
    assert opened.verify().ok


@pytest.mark.parametrize("options", [{"sign_with": "false"}, {"public_key": "nowhere.pub"}, {"sign_with": "'"}])
def test_a_training_whose_key_cannot_sign_is_refused_and_leaves_nothing(tmp_path, held, options):
    options = {"public_key": held[1], **options} if "sign_with" in options else options
    with pytest.raises((ExpungeError, OSError)):
        made(tmp_path / "w.vault", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held.pem", "held.pub"]


@pytest.mark.parametrize("name", ["learner.0.2.0", "rows.2.0", None])
def test_a_training_that_is_refused_changes_no_key(vault, tmp_path, monkeypatch, name):
    """A table that cannot be, or a disk that is full when a file is to be made."""
    from expunge.saving import files

    (tmp_path / "own.pem").write_bytes(SigningKey.generate().pem())
    before, open_ = everything(vault.places.vault), files.system.open

    def full(path, flags, *rest):
        if path.name == name and flags & os.O_CREAT:
            raise OSError(28, "full")
        return open_(path, flags, *rest)

    table = random_table(["a", "b"] if name is None else people(), seed=1)
    with monkeypatch.context() as patch, pytest.raises((InvalidInput, OSError)):
        patch.setattr(files.system, "open", full)
        made(vault.places.vault, table, replace=True, key=tmp_path / "own.pem")
    assert everything(vault.places.vault) == before
    made(vault.places.vault, random_table(people(), seed=1), replace=True, key=tmp_path / "own.pem")
    assert vault.public_keys()[0] == SigningKey.load(tmp_path / "own.pem").public.thumbprint
    assert Vault.open(vault.places.vault).verify().ok


def test_one_key_is_named_not_two(vault, held):
    with pytest.raises(InvalidSetting, match="not both"):
        Vault.open(vault.places.vault, key=held[1], sign_with=held[0])


# --- who asked, and why


WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=200)


@given(reference=WORDS, actor=WORDS, told=st.booleans())
def test_what_the_caller_says_is_in_the_ledger_and_in_the_certificate_only_if_asked_for(
    tmp_path_factory, reference, actor, told
):
    vault = made(tmp_path_factory.mktemp("said") / "v.vault")
    receipt = vault.unlearn(["person-1"], reference=reference, actor=actor, in_certificate=told)
    logged = vault.requests[-1]
    assert (logged.reference, logged.actor) == (reference, actor)
    payload = unverified_payload(receipt.certificate)
    said = {name: text for name, text in (("reference", reference), ("actor", actor)) if text and told}
    assert {name: payload[name] for name in ("reference", "actor") if name in payload} == said
    assert vault.verify().ok


@pytest.mark.parametrize(
    "ask",
    [
        lambda vault, **said: made(vault.places.vault, replace=True, skip_erased=True, **said),
        lambda vault, **said: vault.add(random_table(["new"]), **said),
        lambda vault, **said: vault.rectify(random_table(["person-1"]), **said),
        lambda vault, **said: vault.readmit(["person-0"], **said),
        lambda vault, **said: vault.rebound({"x0": (-2, 2)}, **said),
    ],
    ids=["train", "add", "rectify", "readmit", "rebound"],
)
def test_every_request_takes_what_the_caller_says(vault, ask):
    vault.unlearn(["person-0"])
    if ask(vault, reference="DSR-17", actor="privacy desk") is None:
        pytest.fail("no answer")
    logged = Vault.open(vault.places.vault).requests[-1]
    assert (logged.reference, logged.actor) == ("DSR-17", "privacy desk")
