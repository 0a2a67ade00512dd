"""No byte left: what a request takes out of a vault is in none of its files, however often the request was interrupted.

Every row is a canary here. `traces` lists what a state could leave on a disk, in many forms; those of the one state and
not of the other must be gone. That the search finds a trace that is there is tested first.
"""

import gc
import json
import multiprocessing.forkserver
import os
import secrets
import shutil
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from expunge.errors import ErasedId, ExpungeError
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.disk.folder import Folder

from support.disks import Crash, Ending, Unsynced, used
from support.killing import SHARDS, Life, estimator
from support.oracle import Oracle, Request
from support.traces import contents, gone, hash_forms, id_traces, survivors

pytestmark = pytest.mark.no_cover

NAME = "t.vault"
ERASED_BEFORE, CANARY, EXTREME, CORRECTED, STAYS = (8_070_605_040_302_010_000 + 99_991 * k for k in range(5))
PROBE = np.zeros((1, 2))
BOUNDS = pytest.mark.parametrize("observed", [False, True], ids=["declared bounds", "observed bounds"])


# The vaults


@dataclass
class Scene:
    """A vault and all that lies beside it, what it holds, and a folder for temporary files, in one folder."""

    root: Path
    oracle: Oracle

    @property
    def path(self):
        return self.root / NAME

    @property
    def secrets(self):
        """The salt of the newest commitment, and the hash of every learner's weights."""
        manifest = Folder(self.path).read_current_manifest()
        hashes = [("salt", manifest.salt), *(("sum of weights", learner.weights) for learner in manifest.learners)]
        return {data: f"{name} {form}" for name, text in hashes for form, data in hash_forms(text)}

    @property
    def kept_sums(self):
        """The hashes of the weights that are there: a learner that no row touched keeps its own."""
        manifest = Folder(self.path).read_current_manifest()
        learners = () if manifest is None else manifest.learners
        return {data for learner in learners for _, data in hash_forms(learner.weights)}

    def ask(self, request):
        """Open the vault and ask."""
        vault = Vault.open(self.path) if self.path.exists() else None
        return Life(self.path, self.oracle).ask(vault, request)

    def check(self, old, new, *, more=None):
        """Nothing is left of the old state but for what is also in the new one, and no id."""
        more = {data: name for data, name in (more or {}).items() if data not in self.kept_sums}
        assert survivors(self.root, gone(old, new) | id_traces(old, new) | more) == set()
        assert list((self.root / "tmp").iterdir()) == []


def rows_for(rng, ids, observed):
    """Rows with a column of whole numbers where bounds are observed; the declared ones leave no room for them."""
    whole = (lambda: float(rng.integers(2**25, 2**31))) if observed else rng.random
    return tuple((rng.random(), whole(), rng.uniform(-0.9, 1.9)) for _ in ids)


def drawn(kind, ids, observed, seed):
    rows = rows_for(np.random.default_rng(seed), ids, observed) if kind in ("train", "add", "rectify", "refuse") else ()
    return Request(kind, tuple(ids), rows)


@pytest.fixture(autouse=True)
def _same_bytes(tmp_path, monkeypatch):
    _draw_the_same(monkeypatch, 99)
    monkeypatch.setattr(files, "system", Unsynced())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))


def _draw_the_same(patch, seed):
    """Random bytes that are the same in each run, so that four of them are never a float by chance."""
    draw = np.random.default_rng(seed).bytes
    patch.setattr(secrets, "token_bytes", draw)
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=draw(16), version=4))  # the checksums have it in them


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """A vault with a few requests behind it, for each kind of bounds; copy before use."""
    return {observed: _scene(tmp_path_factory.mktemp("scene") / "root", observed) for observed in (False, True)}


def _scene(root, observed):
    with pytest.MonkeyPatch.context() as patch:
        _draw_the_same(patch, 98)
        patch.setattr(files, "system", Unsynced())
        (root / "tmp").mkdir(parents=True)
        scene = Scene(root, Oracle.of(estimator(observed=observed)))
        others = [STAYS + 31 * k for k in range(20)]
        ids = [ERASED_BEFORE, CANARY, CANARY, EXTREME, CORRECTED, CORRECTED, *others]
        train = drawn("train", ids, observed, 1)
        largest = (1.0 + 1e-9, 2.0**31 + 12345.0, 1.987654321) if observed else (0.999, 0.999, 1.99)
        rows = tuple(largest if one == EXTREME else row for one, row in zip(ids, train.rows, strict=True))
        for request in (
            Request("train", tuple(ids), rows),
            Request("unlearn", (ERASED_BEFORE,)),
            drawn("add", [others[0], STAYS + 77_777, STAYS + 88_888], observed, 2),  # which leaves slots in a stripe
        ):
            scene.ask(request)
            scene.oracle = scene.oracle.after(request)
        assert Folder(scene.path).read_current_manifest().drawn % SHARDS
        return scene


@pytest.fixture
def scene(scenes, tmp_path, monkeypatch):
    def copy(observed, name="root"):
        base = scenes[observed]
        root = Path(shutil.copytree(base.root, tmp_path / name))
        monkeypatch.setattr(tempfile, "tempdir", str(root / "tmp"))
        monkeypatch.setenv("TMPDIR", str(root / "tmp"))
        return Scene(root, base.oracle)

    return copy


def requests(observed):
    """Requests that take something out of the vault or, if they fail, must not put anything in."""
    return {
        "unlearn": Request("unlearn", (CANARY,)),
        "unlearn the extremes": Request("unlearn", (EXTREME,)),
        "rectify": drawn("rectify", [CORRECTED, CORRECTED], observed, 3),
        "rectify the extremes": drawn("rectify", [EXTREME], observed, 4),
        "add": drawn("add", [STAYS, *(STAYS + 111_111 * k for k in range(1, 6))], observed, 5),
        "train": drawn("train", [STAYS, *(STAYS + 222_222 * k for k in range(1, 10))], observed, 6),
        "replan": Request("replan"),
        "rebound": Request.rebound(x0=(-1.5, 2.5), x1=(0.0, 2.0**32) if observed else None),
    }


REQUESTS = pytest.mark.parametrize("name", list(requests(observed=False)))


# The search finds what is there


@BOUNDS
def test_the_search_finds_every_trace_where_it_is(scene, observed):
    old = scene(observed)
    new = old.oracle.after(requests(observed)["unlearn the extremes"])
    wanted = gone(old.oracle, new)
    there = survivors(old.root, wanted | old.secrets)
    rows, manifest = f"{NAME}/rows.1.0", f"{NAME}/{Folder(old.path).read_current_manifest().name}"
    ensembles = [oracle.ensemble for oracle in (old.oracle, new)]
    learners = enumerate(Folder(old.path).read_current_manifest().learners)
    touched = [part.name for j, part in learners if len({one.fingerprint(j) for one in ensembles}) == 2]
    assert touched
    expected = {
        f"value <f8 in {rows}",
        f"learner hex in {manifest}",
        f"salt hex in {manifest}",
        f"sum of weights hex in {manifest}",
        *(f"{trace} in {NAME}/{name}" for trace in ("weight <f8", "moments", "limb") for name in touched),
    }
    if observed:
        expected |= {f"value utf-8 in {manifest}"}  # a bound
        assert {f"scaled {form}" for form in ("<f8", ">f8", "<f4")} <= set(wanted.values())
    assert there >= expected
    held = contents(old.root)
    for name, data in ((name, data) for data, name in wanted.items()):
        if name == "value <f8":
            assert data in held[rows]
        if name == "moments":
            assert any(data in held[f"{NAME}/{moments}"] for moments in touched)


@BOUNDS
def test_the_search_finds_every_form_wherever_it_is_hidden(scene, observed):
    old = scene(observed)
    nothing = Oracle.of(estimator(observed=observed))
    wanted = gone(old.oracle, nothing) | id_traces(old.oracle) | old.secrets
    forms = {name: data for data, name in wanted.items()}
    assert {"id utf-8", "id <i8", "id utf-16-le", "coded row <i8", "digest hex", "digest raw"} <= set(forms)
    assert {f"value {form}" for form in ("<f8", ">f8", "<f4", ">f4", "utf-8", "utf-16-be")} <= set(forms)
    assert ("value <i4" in forms) == observed  # there is a column of whole numbers
    for name, data in forms.items():
        (old.root / "tmp" / "hidden").write_bytes(b"some" + data + b"more")
        assert f"{name} in tmp/hidden" in survivors(old.root, {data: name})


# Requests that are carried out


@pytest.mark.slow
@BOUNDS
@REQUESTS
def test_what_a_request_takes_out_is_nowhere(scene, observed, name):
    mine, request = scene(observed), requests(observed)[name]
    before, new, old_secrets = mine.oracle, mine.oracle.after(request), mine.secrets
    assert len(gone(before, new)) > 100
    vault = mine.ask(request)
    mine.check(before, new, more=old_secrets)
    assert vault.digest() == new.digest()
    vault.predict(PROBE)
    mine.check(before, new, more=old_secrets)
    del vault
    gc.collect()
    mine.check(before, new, more=old_secrets)
    assert Vault.open(mine.path).verify().ok
    mine.check(before, new, more=old_secrets)


@BOUNDS
@REQUESTS
def test_files_that_go_are_overwritten_first(scene, observed, name):
    """Who kept a second name of each file finds nothing in it."""
    mine, request = scene(observed), requests(observed)[name]
    old_secrets = mine.secrets
    kept = mine.root / "kept"
    kept.mkdir()
    for path in mine.path.iterdir():
        os.link(path, kept / path.name)
    manifest = Folder(mine.path).read_current_manifest().name
    mine.ask(request)
    mine.check(mine.oracle, mine.oracle.after(request), more=old_secrets)
    assert not (kept / manifest).read_bytes()


@BOUNDS
def test_requests_one_after_another_leave_nothing_of_any_state_before(scene, observed):
    mine, asked = scene(observed), requests(observed)
    states, old_secrets = [mine.oracle], {}
    for name in ("unlearn", "rectify", "rebound", "add", "unlearn the extremes", "train"):
        old_secrets |= mine.secrets
        mine.ask(asked[name])
        mine.oracle = mine.oracle.after(asked[name])
        states.append(mine.oracle)
    for old in states[:-1]:
        mine.check(old, states[-1], more=old_secrets)
    commitments = [json.loads(contents(mine.root)[f"00000{k}.jws:payload"])["commitment"] for k in (1, 2, 3)]
    ledger = mine.path.with_suffix(".ledger").read_text()
    assert all(commitment in ledger for commitment in commitments)  # they stay, and are worthless without their salt


@BOUNDS
def test_a_vault_whose_last_row_is_erased_keeps_nothing(scene, observed):
    mine, everybody = scene(observed), tuple(scene(observed, "other").oracle.rows)
    before, old_secrets = mine.oracle, mine.secrets
    Vault.open(mine.path).unlearn(list(everybody))
    mine.check(before, Oracle.of(estimator(observed=observed)), more=old_secrets)


def test_a_failed_add_leaves_nothing_of_its_rows(scene):
    mine = scene(observed=True)
    refused = drawn("refuse", [STAYS, *(STAYS + 111_111 * k for k in range(1, 9)), ERASED_BEFORE], True, 7)
    learned = mine.oracle.after(Request("add", refused.ids, refused.rows))
    vault = Vault.open(mine.path)
    with pytest.raises(ErasedId):
        vault.add(refused.table)
    mine.check(learned, mine.oracle)

    def stop(*_):
        raise KeyboardInterrupt

    added = Request("add", refused.ids[:-1], refused.rows[:-1])
    with pytest.raises(KeyboardInterrupt):
        vault.add(added.table, progress=stop)
    mine.check(mine.oracle.after(added), mine.oracle)
    assert vault.verify().ok


# Requests that are interrupted


@dataclass(frozen=True)
class Crashes:
    """Where a process ends: before these of its changes, or in the midst of them where they write."""

    torn: bool
    first: int = 0
    every: int = 1

    def of(self, copy, task):
        """Run a task on a fresh copy, again and again, with a later crash each time, until there is none."""
        for k in count(self.first, self.every):
            mine = copy(k)
            try:
                with used(Ending(k, torn=self.torn, changes=True)):
                    task(mine)
            except Crash:
                yield mine
                shutil.rmtree(mine.root)
            else:
                return


def accepted(scene):
    """How many requests the ledger has."""
    return len(Life(scene.path, scene.oracle).in_ledger()[0])


CRASHES = pytest.mark.parametrize(
    "crashes",
    [
        pytest.param(Crashes(torn=False, every=6), id="before every sixth change"),
        pytest.param(Crashes(torn=True, first=3, every=6), id="within every sixth change"),
        pytest.param(Crashes(torn=False), id="before every change", marks=pytest.mark.torture),
        pytest.param(Crashes(torn=True), id="within every change", marks=pytest.mark.torture),
    ],
)


@pytest.mark.slow
@CRASHES
@pytest.mark.parametrize(
    ("name", "observed"),
    [
        *((name, False) for name in ("unlearn", "rectify", "add", "train", "rebound")),
        *((name, True) for name in ("unlearn the extremes", "rectify the extremes", "add", "rebound")),
    ],
)
def test_a_request_that_a_crash_interrupts_leaves_nothing_once_the_vault_is_open_again(scene, observed, name, crashes):
    """Nothing of what it took out if it was accepted, and nothing of what it brought if it was not."""
    request = requests(observed)[name]
    base = scene(observed, "base")
    before, new, old_secrets, seen = base.oracle, base.oracle.after(request), base.secrets, set()
    for mine in crashes.of(lambda k: scene(observed, f"{k}"), lambda mine: mine.ask(request)):
        done = accepted(mine) > before.request
        seen.add(done)
        vault = Vault.open(mine.path)
        mine.check(*((before, new) if done else (new, before)), more=old_secrets if done else {})
        assert vault.digest() == (new if done else before).digest()
        if not done:
            mine.ask(request)
            mine.check(before, new, more=old_secrets)
        assert all(r.state == "certified" and vault.certificate_path(r.number).exists() for r in vault.requests)
    assert seen == {True, False}


@CRASHES
def test_a_first_training_that_a_crash_interrupts_leaves_nothing_and_can_be_done_again(tmp_path, crashes):
    observed, nothing = True, Oracle.of(estimator(observed=True))
    request = requests(observed)["train"]
    trained = nothing.after(request)

    def fresh(k):
        (tmp_path / f"{k}" / "tmp").mkdir(parents=True)
        return Scene(tmp_path / f"{k}", nothing)

    for mine in crashes.of(fresh, lambda mine: mine.ask(request)):
        done = accepted(mine) == 1
        with suppress(*(() if done else (ExpungeError,))):
            Vault.open(mine.path)
        mine.check(nothing if done else trained, trained if done else nothing)
        vault = Vault.open(mine.path) if done else Life(mine.path, nothing).ask(None, request)
        assert vault.digest() == trained.digest()
        assert vault.verify().ok
        assert vault.certificate_path(1).exists()


# Old copies of the folder


@pytest.mark.slow
@CRASHES
@BOUNDS
def test_an_old_copy_that_is_put_back_is_rid_of_what_was_erased_however_often_it_crashes(scene, observed, crashes):
    mine, asked = scene(observed), requests(observed)
    old, old_secrets = mine.oracle, mine.secrets
    shutil.copytree(mine.path, mine.root.parent / "copy")
    for name in ("unlearn", "unlearn the extremes", "rectify", "rebound", "add"):
        mine.ask(asked[name])
    shutil.rmtree(mine.path)
    shutil.copytree(mine.root.parent / "copy", mine.path)
    # What was added since is missing, and what was corrected since is erased: the right values are gone.
    caught_up = old
    for ids in ((CANARY,), (EXTREME,), (CORRECTED,)):
        caught_up = caught_up.after(Request("unlearn", ids))
    caught_up = caught_up.after(asked["rebound"])

    def copy(k):
        root = Path(shutil.copytree(mine.root, mine.root.parent / f"{k}"))
        return Scene(root, old)

    for again in crashes.of(copy, lambda it: Vault.open(it.path)):
        Vault.open(again.path)
        again.check(old, caught_up, more=old_secrets)
    Vault.open(mine.path)
    mine.check(old, caught_up, more=old_secrets)


# Readers


@pytest.fixture(scope="module")
def process():
    """How to start another process; its socket is made before temporary files go to a folder that is searched."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["expunge.vault", "pytest"])
    multiprocessing.forkserver.ensure_running()
    return context


def read(root, pipe):
    """Another process that has the vault open, and predicts when it is told to."""
    tempfile.tempdir = str(root / "tmp")
    vault = Vault.open(root / NAME)
    while True:
        pipe.send(vault.predict(PROBE).tolist())
        if not pipe.recv():
            return


@pytest.mark.slow
@BOUNDS
def test_a_reader_in_another_process_keeps_nothing_on_the_disk(process, scene, observed):
    mine, asked = scene(observed), requests(observed)
    ours, theirs = process.Pipe()
    reader = process.Process(target=read, args=(mine.root, theirs))
    reader.start()
    try:
        assert ours.recv() == mine.oracle.predict(PROBE).tolist()
        for name in ("unlearn", "rectify", "rebound", "unlearn the extremes"):
            before, old_secrets, new = mine.oracle, mine.secrets, mine.oracle.after(asked[name])
            mine.ask(asked[name])
            mine.check(before, new, more=old_secrets)
            ours.send(True)
            assert ours.recv() == new.predict(PROBE).tolist()
            mine.check(before, new, more=old_secrets)
            mine.oracle = new
    finally:
        ours.send(False)
        reader.join()
