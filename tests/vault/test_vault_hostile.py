"""Files that were cut, flipped, swapped or planted: refused, or found by the audit; never believed, never run."""

import base64
import functools
import hashlib
import json
import os
import pickle
import shutil
import signal
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

from expunge.errors import InvalidCertificate, InvalidFile, UnknownId
from expunge.vault import Vault
from expunge.vault.certificates import jws as certificates
from expunge.vault.ledger.ledger import START, Ledger, compose, header, parse

from support.disks import ended_at
from support.vaults import damaged, duplicate, everything, made, people, random_table, slots_of, weights

pytestmark = pytest.mark.usefixtures("unsynced")

WHO = "person-4"  # has two rows
EVERYONE = [*dict.fromkeys(people()), "new-1", "new-2", "nobody"]
PROBE = np.linspace(-1, 1, 6).reshape(3, 2)


def with_a_past(path, seed=0):
    """A vault with rows of several batches, of which some were corrected and some erased."""
    vault = made(path, random_table(people(), seed=seed))
    vault.unlearn(["person-0", "person-1"])
    vault.add(random_table(["new-1", "new-2", "new-1"], seed=seed + 1))
    vault.rectify(random_table(["person-2", "person-2"], seed=seed + 2))
    vault.readmit(["person-1"])
    return path


@pytest.fixture(scope="module")
def original(tmp_path_factory, unsynced):
    return with_a_past(tmp_path_factory.mktemp("original") / "v.vault")


@pytest.fixture(scope="module")
def other(tmp_path_factory, unsynced):
    """Another vault, made with the same seed from a table of the same shape and ids."""
    return with_a_past(tmp_path_factory.mktemp("other") / "v.vault", seed=7)


def state(vault):
    """All that shows of a vault."""
    with vault._writing() as writer:
        rows = writer.rows.take(np.flatnonzero(writer.rows.live))
    return (
        vault.digest(),
        weights(vault),
        vault.predict(PROBE).tolist(),
        slots_of(vault, EVERYONE),
        [part.tolist() for part in rows],
        [(r.number, r.kind, r.rows, r.people, r.state) for r in vault.requests],
    )


@pytest.fixture(scope="module")
def expected(original, tmp_path_factory):
    """What shows of the vault once somebody was erased."""
    vault = Vault.open(duplicate(original, tmp_path_factory.mktemp("expected")))
    vault.unlearn([WHO])
    assert vault.verify().ok
    return state(vault)


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


def names(path):
    """Every file of a vault: relative to the folder that it is in."""
    return [name for name in everything(path) if not name.endswith(".jws")]


def inside(path):
    return [path / name for name in sorted(os.listdir(path))]


@pytest.fixture
def copies(original, tmp_path):
    """Fresh copies of the vault, one after another."""

    def fresh():
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return duplicate(original, tmp_path / "copy")

    return fresh


def kinds(original):
    return {name.split("/")[-1].split(".")[0]: name for name in names(original)}


STATE = ("rows", "live", "people", "moments", "weights", "schema", "blueprint", "manifest", "current", "identity")


def of_kind(path, kind):
    return [part for part in inside(path) if part.name.split(".")[0] == kind]


def test_the_vault_has_all_kinds_of_files_that_are_tampered_with_here(original):
    assert {part.name.split(".")[0] for part in inside(original)} == set(STATE)


# --- cut and flipped


@pytest.mark.parametrize("kind", STATE)
def test_a_file_that_was_cut_is_refused(original, copies, expected, kind):
    for k, part in enumerate(of_kind(original, kind)):
        size = part.stat().st_size
        for length in sorted({0, 1, size // 3, size // 2, size - 1}):
            path = copies()
            os.truncate(of_kind(path, kind)[k], length)
            assert judged(path, expected) == "refused", (part.name, length)


@pytest.mark.parametrize("kind", STATE)
def test_a_file_that_is_not_there_is_refused(original, copies, expected, kind):
    for k in range(len(of_kind(original, kind))):
        path = copies()
        of_kind(path, kind)[k].unlink()
        assert judged(path, expected) == "refused"


# What may be found only by the audit: rows and entries that the request has no need to look at.
LATE = {"rows", "moments", "people"}
# What may be harmless: the spare bits of the last byte; hexadecimal digits of the other case; a slot that was never
# given out, which is wiped.
SPARE = {"live", "identity", "rows"}


def spread(size, count, rng):
    """Positions in all parts of a file."""
    edges = np.linspace(0, size, min(size, count) + 1).astype(int)
    return [int(rng.integers(a, b)) for a, b in pairwise(edges)]


@pytest.mark.parametrize("kind", STATE)
def test_a_flipped_bit_is_refused_or_found(original, copies, expected, kind, rng):
    outcomes = set()
    for k, part in enumerate(of_kind(original, kind)):
        for position in spread(part.stat().st_size, 48, rng):
            path = copies()
            damaged(of_kind(path, kind)[k], position, int(rng.integers(8)))
            outcome = judged(path, expected)
            assert outcome == "refused" or (outcome, kind) in {
                *(("found", late) for late in LATE),
                *(("harmless", spare) for spare in SPARE),
            }, (part.name, position, outcome)
            outcomes.add(outcome)
    assert "refused" in outcomes


def test_an_entry_of_people_that_is_damaged_never_hides_somebody(original, copies, expected):
    """Whatever word of the index is damaged: nobody is answered "unknown" who is there, nor erased in part."""
    everyone = slots_of(Vault.open(original), EVERYONE)
    for k, part in enumerate(of_kind(original, "people")):
        for position in range(0, part.stat().st_size, 8):
            path = copies()
            damaged(of_kind(path, "people")[k], position + 7, 7 - position // 8 % 2)
            vault = Vault.open(path)
            for one in EVERYONE:
                with suppress(InvalidFile):
                    assert slots_of(vault, [one])[one] == everyone[one]
            with pytest.raises(InvalidFile):
                slots_of(vault, EVERYONE)


def test_a_flipped_bit_in_the_ledger_is_refused_or_found(original, copies, expected, rng):
    ledger = original.with_suffix(".ledger")
    size = ledger.stat().st_size
    for position in sorted({size - 1, size - 2, *rng.choice(size, 80, replace=False).tolist()}):
        path = copies()
        damaged(path.with_suffix(".ledger"), position, int(rng.integers(8)))
        outcome = judged(path, expected)
        assert outcome in ("refused", "found") or position == size - 1, position


@pytest.mark.parametrize("suffix", [".key", ".pub"])
def test_a_damaged_key_holds_up_no_erasure_and_certifies_nothing_that_cannot_be_checked(copies, expected, suffix, rng):
    for position in rng.choice(110, 20, replace=False).tolist():
        path = copies()
        pub = path.with_suffix(".pub").read_bytes()
        damaged(path.with_suffix(suffix), position, int(rng.integers(8)))
        vault = Vault.open(path)
        receipt = vault.unlearn([WHO])
        assert receipt.rows == 2
        assert state(vault)[:5] == expected[:5]
        path.with_suffix(".pub").write_bytes(pub)
        if receipt.certificate is not None:
            certificates.checked(receipt.certificate, certificates.load_public(path.with_suffix(".pub")))
        assert Vault.open(path).verify().ok


# --- swapped


@pytest.mark.parametrize("kind", STATE)
def test_a_file_of_another_vault_is_refused(other, copies, expected, kind):
    mine = copies()
    for k, part in enumerate(of_kind(other, kind)):
        path = copies()
        same = part.read_bytes() == of_kind(path, kind)[k].read_bytes()
        shutil.copyfile(part, of_kind(path, kind)[k])
        assert judged(path, expected) == ("harmless" if same else "refused"), part.name
    assert mine.exists()


def test_all_files_but_the_identity_of_another_vault_are_refused(other, copies, expected):
    path = copies()
    identity = (path / "identity.json").read_bytes()
    shutil.rmtree(path)
    shutil.copytree(other, path)
    assert judged(path, expected) == "refused"
    (path / "identity.json").write_bytes(identity)
    assert judged(path, expected) == "refused"


def test_a_ledger_of_another_vault_is_refused(other, copies, expected):
    path = copies()
    shutil.copyfile(other.with_suffix(".ledger"), path.with_suffix(".ledger"))
    with pytest.raises(InvalidFile, match="is the ledger of another vault"):
        Vault.open(path)
    with pytest.raises(InvalidFile, match="is the ledger of another vault"):
        made(path, replace=True)


def test_a_file_of_an_older_state_of_the_same_vault_is_refused_or_found(original, tmp_path):
    path = duplicate(original, tmp_path / "now")
    vault = Vault.open(path)
    vault.rectify(random_table([WHO, WHO], seed=9))
    vault.unlearn(["person-6"])
    now = duplicate(path, tmp_path / "kept")
    for part in inside(original):
        if not (now / part.name).exists() or part.read_bytes() == (now / part.name).read_bytes():
            continue
        shutil.rmtree(tmp_path / "now")
        path = duplicate(now, tmp_path / "now")
        shutil.copyfile(part, path / part.name)
        try:
            assert not Vault.open(path).verify().ok, part.name
        except InvalidFile:
            continue


# --- planted


class Payload:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_pickle_in_place_of_any_file_is_never_run(original, copies, expected, tmp_path):
    mark = tmp_path / "it was run"
    plain = pickle.dumps(Payload(mark))
    objects = np.empty(1, dtype=object)
    objects[0] = Payload(mark)
    np.save(tmp_path / "o.npy", objects, allow_pickle=True)
    for payload in (plain, (tmp_path / "o.npy").read_bytes()):
        for k in range(len(inside(original))):
            path = copies()
            inside(path)[k].write_bytes(payload)
            assert judged(path, expected) == "refused", inside(original)[k].name
        for suffix in (".ledger", ".pub", ".key"):
            path = copies()
            path.with_suffix(suffix).write_bytes(payload)
            assert judged(path, expected[:5]) == "refused" if suffix == ".ledger" else _asked(path)
    pickle.loads(plain)
    assert mark.exists()  # the payload works, and was run only here


def _asked(path):
    """A key that is none holds up no erasure."""
    receipt = Vault.open(path).unlearn([WHO])
    return receipt.rows == 2 and receipt.certificate is None


def plant_directory(part, secret):
    part.unlink(missing_ok=True)
    part.mkdir()


def plant_link(part, secret):
    part.unlink(missing_ok=True)
    part.symlink_to(secret)


def plant_pipe(part, secret):
    part.unlink(missing_ok=True)
    os.mkfifo(part)


@pytest.fixture
def not_forever():
    """What hangs is ended: a pipe that nobody writes to would be waited for without end."""

    def hung(*_):
        raise TimeoutError("this hangs")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


PLANTS = [plant_directory, plant_link, plant_pipe]


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_no_plain_file_is_refused_and_left_alone(original, copies, expected, tmp_path, plant, not_forever):
    secret = tmp_path / "of somebody else"
    secret.write_text("precious")
    leftovers = ["rows.99", "moments.0.99", "manifest.99", "people.99", "stage.99", "current.new"]
    parts = [*(part.name for part in inside(original)), *leftovers, "../v.ledger"]
    for name in parts:
        path = copies()
        plant(path / name, secret)
        assert judged(path, expected) == "refused", name
        assert secret.read_text() == "precious"
        if plant is plant_link:
            assert (path / name).is_symlink()
    for name in ("v.key", "v.pub"):
        path = copies()
        plant(path.parent / name, secret)
        receipt = Vault.open(path).unlearn([WHO])
        assert (receipt.rows, receipt.certificate) == (2, None)
        assert secret.read_text() == "precious"


@pytest.mark.parametrize("plant", PLANTS)
def test_a_link_in_place_of_a_certificate_is_not_followed(copies, tmp_path, plant, not_forever):
    secret = tmp_path / "of somebody else"
    secret.write_text("precious")
    for name in ("v.certificates/000006.jws.new", "v.certificates/000006.jws"):
        path = copies()
        plant(path.parent / name, secret)
        receipt = Vault.open(path).unlearn([WHO])
        assert receipt.certificate is not None
        assert secret.read_text() == "precious"
        assert Vault.open(path).verify().ok


def test_a_link_to_a_copy_of_the_file_itself_is_refused_too(original, copies, expected, tmp_path):
    for part in inside(original):
        path = copies()
        target = tmp_path / "target"
        shutil.move(path / part.name, target)
        (path / part.name).symlink_to(target)
        assert judged(path, expected) == "refused"
        assert target.read_bytes() == part.read_bytes()


def test_stray_files_of_other_people_are_left_alone(copies, expected):
    path = copies()
    strays = {
        "notes.txt": b"mine",
        ".nfs0001": b"mine",
        "rows": b"mine",
        "rows.1.bak": b"mine",
        "moments.x.1": b"mine",
        "manifest": b"mine",
        "backup.1": b"mine",
    }
    for name, content in strays.items():
        (path / name).write_bytes(content)
    (path / "folder").mkdir()
    (path / "link").symlink_to(path / "notes.txt")
    assert judged(path, expected) == "harmless"
    made(path, random_table(people(), seed=3), replace=True, skip_erased=True)
    assert {name: (path / name).read_bytes() for name in strays} == strays
    assert (path / "folder").is_dir()
    assert (path / "link").is_symlink()


def test_leftovers_of_ours_are_wiped_when_the_vault_is_opened(copies, expected, tmp_path):
    path = copies()
    kept = tmp_path / "kept"
    (path / "moments.0.99").write_bytes(b"residue")
    os.link(path / "moments.0.99", kept)  # the same bytes under another name
    (path / "people.77").write_bytes(b"residue")
    assert judged(path, expected) == "harmless"
    assert not (path / "moments.0.99").exists()
    assert not (path / "people.77").exists()
    assert kept.read_bytes() == bytes(len(b"residue"))


# --- the ledger


def records(path):
    return parse(path.with_suffix(".ledger").read_bytes(), START, path)[0]


def rewrite(path, bodies):
    """A ledger that says this, every hash anew."""
    lines, after = [], START
    for body in bodies:
        record = compose(after, body)
        lines.append(record.line)
        after = record.end
    path.with_suffix(".ledger").write_bytes(b"".join(lines))


def test_a_newer_version_is_refused_by_name(copies):
    path = copies()
    bodies = [dict(record.body) for record in records(path)]
    bodies[0]["version"] = 2
    rewrite(path, bodies)
    with pytest.raises(InvalidFile, match="v.ledger has version 2; this release reads 1"):
        Vault.open(path)
    path = copies()
    (manifest,) = of_kind(path, "manifest")
    content = json.loads(manifest.read_bytes())
    manifest.write_bytes(json.dumps({**content, "version": 2}, sort_keys=True, separators=(",", ":")).encode())
    with pytest.raises(InvalidFile, match="has version 2; this release reads version 1"):
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
    with pytest.raises(InvalidFile, match="does not know request 6"):
        Vault.open(mine)


def test_what_was_prepared_for_another_request_is_not_taken_for_the_one_that_was_accepted(original, tmp_path):
    mine, theirs = (duplicate(original, tmp_path / name) for name in ("mine", "theirs"))
    ended_at(Ledger, "append", lambda: Vault.open(mine).unlearn([WHO]))  # prepared and not accepted
    Vault.open(theirs).unlearn(["person-5"])
    lines = theirs.with_suffix(".ledger").read_bytes().splitlines(keepends=True)
    mine.with_suffix(".ledger").write_bytes(b"".join(lines[:-2]))  # accepted and not done
    assert (mine / "manifest.6").exists()
    vault = Vault.open(mine)
    assert vault.requests[-1].kind == "restore"
    assert slots_of(vault, ["person-5"]) == {"person-5": [-7]}
    assert slots_of(vault, [WHO]) == slots_of(Vault.open(original), [WHO])
    assert vault.verify().ok


def test_an_object_that_is_open_does_not_believe_its_memory(original, tmp_path):
    vault = Vault.open(duplicate(original, tmp_path / "copy"))
    assert vault.verify().ok
    for kind in ("weights", "schema", "blueprint", "moments"):
        part = of_kind(vault.places.vault, kind)[0]
        content = part.read_bytes()
        damaged(part, len(content) - 1, 0)
        with suppress(InvalidFile):
            assert not vault.verify().ok, kind
        part.write_bytes(content)
        assert vault.verify().ok


def test_a_ledger_that_was_cut_is_refused_if_the_folder_knows_more_and_else_finished_again(original, copies, expected):
    ledger = original.with_suffix(".ledger").read_bytes()
    lines = ledger.splitlines(keepends=True)
    accepted = len(b"".join(lines[:-2]))  # the newest request's own record ends here; its payload and signature follow
    for length in range(0, len(ledger), 101):
        path = copies()
        os.truncate(path.with_suffix(".ledger"), length)
        outcome = judged(path, expected)
        assert outcome == ("refused" if length < accepted else "harmless"), length
    for cut in (1, 2):
        path = copies()
        os.truncate(path.with_suffix(".ledger"), len(b"".join(lines[:-cut])))
        Vault.open(path).verify()
        assert path.with_suffix(".ledger").read_bytes() == ledger  # the same payload, the same signature


def test_records_that_were_edited_removed_doubled_or_moved_are_refused_or_found(original, copies, expected):
    bodies = [dict(record.body) for record in records(original)]
    lines = original.with_suffix(".ledger").read_bytes().splitlines(keepends=True)
    for k in range(len(lines)):
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
    *(("payload", value) for value in ("{}", "[]", "not JSON", 7)),
    *(("certificate", value) for value in ("a.b.c", 5)),
    *(("erase", "abc"), ("waiting", 3), ("rows", -1), ("time", 0), ("kind", "unlearn"), ("kind", "surprise")),
]


def test_records_that_are_removed_or_changed_with_all_hashes_made_anew_are_refused_or_found(original, copies, expected):
    """Whoever forges the newest records with their hashes is found by the signatures, or by what the folder knows."""
    bodies = [dict(record.body) for record in records(original)]
    for k in range(len(bodies)):
        path = copies()
        rewrite(path, [*bodies[:k], *bodies[k + 1 :]])
        again = k >= len(bodies) - 2  # a payload or signature, which is made again
        assert (judged(path, expected) == "harmless") == again, k
        for field, value in FORGED:
            if field in bodies[k] and bodies[k][field] != value:
                path = copies()
                rewrite(path, [*bodies[:k], {**bodies[k], field: value}, *bodies[k + 1 :]])
                assert judged(path, expected) in ("refused", "found"), (k, field, value)


# --- text that is too deep, too long, or of the wrong kind

DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        b'{"a":' * 100_000,
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"\xff\xfe",
        b"{}",
        b'{"vault": 7, "key": []}',
        b"1" * 9999,
    ],
    ids=range(10),
)
@pytest.mark.parametrize("kind", ["identity", "manifest", "schema", "current"])
def test_json_of_any_other_kind_is_refused(copies, expected, kind, content):
    path = copies()
    of_kind(path, kind)[0].write_bytes(content)
    assert judged(path, expected) == "refused"


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


@pytest.mark.parametrize(
    "text", [DEEP.decode(), "a.b.c", "..", "", "a.b", "\u00e9.b.c", "[].[].[]", *(["x" * 5000])], ids=range(8)
)
def test_a_certificate_of_any_other_text_is_refused(text, tmp_path):
    (tmp_path / "c.jws").write_text(text)
    deep = base64.urlsafe_b64encode(DEEP).rstrip(b"=").decode()
    header = base64.urlsafe_b64encode(b'{"alg":"EdDSA"}').rstrip(b"=").decode()
    for one in (text, f"{header}.{deep}.aaaa", f"{deep}.{deep}.aaaa"):
        with pytest.raises(InvalidCertificate):
            certificates.payload_of(one)
    with pytest.raises(InvalidCertificate):
        certificates.payload_of(certificates.read(tmp_path / "c.jws"))


def test_a_manifest_that_names_files_elsewhere_is_refused(copies, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("precious")
    for edit in (
        lambda content: content["schema"].update(name="../../secret"),
        lambda content: content["learners"][0].update(name=str(secret)),
        lambda content: content["people"][0].update(name="../v.ledger"),
        lambda content: content.update(stage={"name": "../../secret", "sum": "0" * 64}),
    ):
        path = copies()
        _forge(path, edit)
        with pytest.raises(InvalidFile):
            Vault.open(path).unlearn([WHO])
        assert secret.read_text() == "precious"


def _forge(path, edit):
    """A manifest with its checksum made anew."""
    (manifest,) = of_kind(path, "manifest")
    content = json.loads(manifest.read_bytes())
    del content["sum"]
    edit(content)
    canonical = functools.partial(json.dumps, sort_keys=True, separators=(",", ":"))
    total = hashlib.sha256(canonical(content).encode()).hexdigest()
    manifest.write_bytes(canonical({**content, "sum": total}).encode())


def test_nobody_is_found_who_is_not_there(original, copies):
    with pytest.raises(UnknownId):
        Vault.open(copies()).unlearn(["nobody"])


@pytest.mark.parametrize("after", [b"", b"x", b"whole\n"])
def test_a_write_of_two_records_that_lost_a_page_is_torn_and_more_is_damage(after, tmp_path):
    first = header("00000000-0000-4000-8000-000000000000")
    torn = first.line + b'{"kind":"do' + bytes(20) + b'"}\n' + after
    assert parse(torn, START, tmp_path) == ([first], True)
    with pytest.raises(InvalidFile, match="damaged"):
        parse(torn + b"whole\nmore\n", START, tmp_path)
