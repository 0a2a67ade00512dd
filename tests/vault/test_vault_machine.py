"""Years of a vault in seconds: requests, crashes, old copies, lost keys, against plain dictionaries and retraining."""

import copy
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from expunge import CodedRegressor, RandomFourier
from expunge.encoding.placement import draw_slots, room
from expunge.errors import ErasedId, InvalidFile, InvalidInput, NothingLearned, UnknownId
from expunge.learning.blueprint import draw_blueprint
from expunge.learning.settings import Settings
from expunge.learning.state import State
from expunge.stores.rows import Rows
from expunge.vault import Vault
from expunge.vault.certificates.jws import checked, load_public
from expunge.vault.disk import files
from expunge.vault.disk.folder import Folder
from expunge.vault.ledger.ledger import REQUESTS, Ledger
from expunge.vault.requests import plans

from support.vaults import put_back, slots_of, table, weights

SHARDS = 4
PEOPLE = st.integers(0, 9)
VALUES = st.tuples(*[st.sampled_from([-1.0, -0.5, 0.0, 0.125, 1.0])] * 3)  # few: bounds and rows have ties
ENDS = st.integers(0, 150)  # operations until a process ends: more than any request takes
PROBE = np.linspace(-1.2, 1.2, 8).reshape(4, 2)


class Crash(BaseException):
    """The end of a process."""


class Ending(files.System):
    """A disk that a process uses until it ends, perhaps in the midst of a write. What comes later does nothing."""

    def __init__(self, after):
        self.left = after

    def step(self):
        self.left -= 1
        if self.left < 0:
            raise Crash

    def write(self, fd, data, offset):
        if self.left == 0:
            super().write(fd, memoryview(data)[: len(data) // 2], offset)
        self.step()
        return super().write(fd, data, offset)

    def sync(self, fd):
        self.step()


def _until_it_ends(name):
    def operation(self, *args):
        self.step()
        return getattr(files.System, name)(self, *args)

    return operation


for _name in ("open", "read", "truncate", "rename", "unlink", "mkdir", "rmdir", "names", "map", "lock"):
    setattr(Ending, _name, _until_it_ends(_name))


@contextmanager
def ending(after):
    with pytest.MonkeyPatch.context() as patch, suppress(Crash):
        patch.setattr(files, "system", Ending(after))
        yield


@dataclass
class Holding:
    """What a vault must hold."""

    model: CodedRegressor
    rows: dict = field(default_factory=dict)  # id -> [(slot, (x0, x1, y)), ...], in order of arrival
    erased: dict = field(default_factory=dict)  # id -> the request whose certificate says so
    drawn: int = 0
    request: int = 0

    def __post_init__(self):
        self.blueprint = draw_blueprint(Settings.of(self.model), 2, 1)

    def after(self, kind, ids, values):
        """What it must hold after a request; ids are one a row where there are rows."""
        new = copy.copy(self)
        new.rows, new.erased, new.request = copy.deepcopy(self.rows), self.erased.copy(), self.request + 1
        getattr(new, f"_{kind}")(ids, values)
        return new

    def _train(self, ids, values):
        self.rows, self.drawn = {}, 0
        self._add(ids, values)

    def _add(self, ids, values):
        kept = [(one, row) for one, row in zip(ids, values, strict=True) if one not in self.erased]
        slots = draw_slots(self.blueprint.key, self.drawn, len(kept), SHARDS).tolist()
        for (one, row), slot in zip(kept, slots, strict=True):
            self.rows.setdefault(one, []).append((slot, row))
        self.drawn += len(kept)

    def _unlearn(self, ids, _):
        for one in ids:
            del self.rows[one]
            self.erased[one] = self.request

    def _rectify(self, ids, values):
        slots = {one: [slot for slot, _ in self.rows[one]] for one in ids}
        self.rows |= {one: [] for one in slots}
        for one, row in zip(ids, values, strict=True):
            self.rows[one].append((slots[one].pop(0), row))

    def _readmit(self, ids, _):
        for one in ids:
            del self.erased[one]

    def without(self, people, slots):
        """The rows but for those of some people and in some slots."""
        kept = {one: [part for part in parts if part[0] not in slots] for one, parts in self.rows.items()}
        return {one: parts for one, parts in kept.items() if parts and one not in people}

    @property
    def slots(self):
        return {slot for parts in self.rows.values() for slot, _ in parts}

    def retrained(self):
        """A model from these rows alone."""
        parts = [part for parts in self.rows.values() for part in parts]
        values = np.array([row for _, row in parts]).reshape(-1, 3)
        slots = np.array([slot for slot, _ in parts], dtype=np.int64)
        placed = Rows.place(values[:, :2], values[:, 2:], slots, room(self.drawn, SHARDS))
        return State.learn(self.blueprint, placed, self.drawn).ensemble


@dataclass
class Past:
    """A request that was accepted."""

    kind: str
    people: set  # whom it erased or corrected
    slots: set  # what a restore erased
    done: bool = True


@st.composite
def batches(draw, people=PEOPLE, most=5):
    whose = draw(st.lists(people, min_size=1, max_size=most))
    return whose, [draw(VALUES) for _ in whose]


class VaultMachine(RuleBasedStateMachine):
    """Rules ask the vault and a holding the same, invariants compare."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="expunge-machine-"))
        self.path, self.key, self.away = (self.folder / name for name in ("m.vault", "m.key", "m.key.away"))
        self.past = []
        self.copies = []  # (folder, what it holds)
        self.seen = set(range(10))
        self.recovered = False

    def teardown(self):
        if self.away.exists():
            self.find_key()
        assert self.vault.verify().ok
        shutil.rmtree(self.folder)

    @property
    def lost_key(self):
        return self.away.exists()

    # Requests

    @initialize(
        rows=batches(), observed=st.booleans(), seed=st.integers(0, 3), aggregate=st.sampled_from(["mean", "median"])
    )
    def create(self, rows, observed, seed, aggregate):
        bounds = {} if observed else {"bounds": ([-1, None], [1, None]), "target_bounds": (-1, 1)}
        features = RandomFourier(3) if seed % 2 else None
        self.holding = Holding(
            CodedRegressor(shards=SHARDS, rate=2, features=features, aggregate=aggregate, random_state=seed, **bounds)
        )
        ids, values = rows[0] + [0, 1, 2, 3], rows[1] + [(0.25, -0.25, 0.5)] * 4
        self.vault = self.train(ids, values)
        self.accept("train", ids, values)

    def train(self, ids, values, **options):
        return Vault.create(
            self.path, self.table(ids, values), target="y", id="who", model=self.holding.model, wait=0.0, **options
        )

    @staticmethod
    def table(ids, values):
        values = np.array(values).reshape(-1, 3)
        return table(ids, values[:, :2], values[:, 2])

    def drawn_request(self, data):
        """A request that can be carried out: its kind, ids and values."""
        holding = self.holding
        kinds = ["add"] + ["unlearn", "rectify"] * bool(holding.rows) + ["readmit"] * bool(holding.erased)
        kind = data.draw(st.sampled_from([*kinds * 3, "train"]), label="kind")
        if kind in ("train", "add"):
            ids, values = data.draw(batches())
            new = 100 * (holding.request + 1) if kind == "train" else 10 + holding.request
            people = [new + k for k in range(SHARDS)] if kind == "train" else [new]
            return kind, ids + people, values + [(0.25, -0.25, 0.5)] * len(people)
        known = sorted(holding.erased if kind == "readmit" else holding.rows)
        ids = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True), label="ids")
        if kind == "rectify":
            ids = [one for one in ids for _ in holding.rows[one]]
        return kind, ids, [data.draw(VALUES) for _ in ids] if kind == "rectify" else ()

    def ask(self, kind, ids, values):
        if kind == "train":
            self.vault = self.train(ids, values, replace=True, skip_erased=True)
            return self.vault.receipt
        if kind == "add":
            return self.vault.add(self.table(ids, values), skip_erased=True)
        return getattr(self.vault, kind)(self.table(ids, values) if values else ids)

    def accept(self, kind, ids, values, done=True):
        self.holding = self.holding.after(kind, ids, values)
        self.past.append(Past(kind, set(ids) if kind in ("unlearn", "rectify") else set(), set(), done))
        self.seen.update(ids)

    @rule(data=st.data())
    def request(self, data):
        kind, ids, values = self.drawn_request(data)
        before = self.holding
        receipt = self.ask(kind, ids, values)
        self.accept(kind, ids, values)
        assert (receipt.request, receipt.kind) == (self.holding.request, kind)
        assert (receipt.certificate is None) == self.lost_key == any("not certified" in n for n in receipt.notes)
        if kind in ("train", "add"):
            assert receipt.rows == self.holding.drawn - (before.drawn if kind == "add" else 0)
        if kind in ("unlearn", "rectify"):
            assert receipt.rows == sum(len(before.rows[one]) for one in set(ids))

    @precondition(lambda self: self.holding.erased)
    @rule(data=st.data())
    def ask_again_for_somebody_erased(self, data):
        one = data.draw(st.sampled_from(sorted(self.holding.erased)))
        again = self.vault.unlearn([one])
        assert (again.request, again.seconds) == (self.holding.erased[one], 0.0)
        if not self.lost_key:
            assert checked(again.certificate, load_public(self.folder / "m.pub"))["request"] == again.request
        for ask in (self.vault.add, self.vault.rectify):
            with pytest.raises(ErasedId):
                ask(self.table([one], [(0.0, 0.0, 0.0)]))

    @rule(one=PEOPLE)
    def ask_for_what_cannot_be(self, one):
        if one not in self.holding.rows and one not in self.holding.erased:
            with pytest.raises(UnknownId):
                self.vault.unlearn([*self.holding.rows, one])
        if one not in self.holding.erased:
            with pytest.raises(UnknownId):
                self.vault.readmit([one])
        with pytest.raises(InvalidInput):
            self.vault.add(self.table([one, one], [(0.0, 0.0, 0.0), (np.nan, 0.0, 0.0)]))

    @rule()
    def predict(self):
        if self.holding.rows:
            expected = self.holding.retrained().predict(PROBE)[:, 0]
            np.testing.assert_array_equal(self.vault.predict(PROBE), expected)
        else:
            with pytest.raises(NothingLearned):
                self.vault.predict(PROBE)

    # Accidents

    def open(self):
        self.vault = Vault.open(self.path, wait=0.0)
        self.recovered = True

    @rule()
    def reopen(self):
        self.open()
        assert self.vault.notes == ()

    @rule(
        data=st.data(), after=ENDS, again=st.none() | ENDS, then=st.sampled_from(["open", "open", "copy", "put back"])
    )
    def crash(self, data, after, again, then):
        """A process ends in the midst of a request; the next one may end in the midst of what it finds."""
        kind, ids, values = self.drawn_request(data)
        acknowledged = False
        with ending(after):
            self.ask(kind, ids, values)
            acknowledged = True
        accepted, done = self.in_ledger()
        assert acknowledged <= (accepted > self.holding.request)
        if accepted > self.holding.request:
            before = self.holding
            self.accept(kind, ids, values, done=accepted in done)
            if then == "copy":
                self.copy(self.holding if Folder(self.path).current().request == accepted else before)
        elif then == "copy":
            self.copy(self.holding)
        if then == "put back" and self.usable:
            self.put_back(data, again)
            return
        if again is not None:
            with ending(again):
                Vault.open(self.path, wait=0.0)
        self.open()
        self.past[-1].done = True

    def in_ledger(self):
        """How many requests are accepted, and which are done."""
        records = Ledger(self.folder / "m.ledger").read()[0]
        return sum(r.kind in REQUESTS for r in records), {r.request for r in records if r.kind == "done"}

    def copy(self, holding):
        to = self.folder / f"copy-{len(self.copies)}"
        shutil.copytree(self.path, to)
        self.copies.append((to, holding))

    @precondition(lambda self: len(self.copies) < 4)
    @rule()
    def take_a_copy(self):
        self.copy(self.holding)

    @property
    def usable(self):
        """Copies from after the last training."""
        trained = max(k for k, past in enumerate(self.past, 1) if past.kind == "train")
        return [kept for kept in self.copies if kept[1].request >= trained]

    @precondition(lambda self: self.usable)
    @rule(data=st.data(), end=st.none() | ENDS)
    def put_back(self, data, end):
        """An old copy of the folder comes back, and a process may end while it catches up."""
        folder, old = data.draw(st.sampled_from(self.usable), label="copy")
        since = self.past[old.request :]
        put_back(folder, self.path)
        if end is not None:
            with ending(end):
                Vault.open(self.path, wait=0.0)
        self.open()
        if not since:
            return
        number, done = self.in_ledger()
        assert number > self.holding.request
        assert end is not None or number == self.holding.request + 1
        people, slots = set().union(*(p.people for p in since)), set().union(*(p.slots for p in since))
        left = old.without(people, slots)
        unfinished = {k for k, past in enumerate(self.past, 1) if not past.done}
        restored = copy.copy(self.holding)
        restored.rows, restored.request = left, number
        restored.erased = {one: number if by in unfinished else by for one, by in self.holding.erased.items()}
        gone = old.slots - restored.slots
        if end is None and not any(past.kind == "restore" for past in since):
            missing = len(self.holding.slots - old.slots)
            assert f"{len(gone)} rows that were erased" in self.vault.notes[0]
            assert f"{missing} rows that were added since are missing" in self.vault.notes[0]
        self.past += [Past("restore", set(), gone, k in done) for k in range(self.holding.request + 1, number + 1)]
        self.holding = restored

    @precondition(lambda self: len(self.usable) < len(self.copies))
    @rule(data=st.data())
    def put_a_copy_back_that_is_too_old(self, data):
        useless = [kept for kept in self.copies if not any(kept is one for one in self.usable)]
        now = self.folder / "now"
        shutil.copytree(self.path, now)
        put_back(data.draw(st.sampled_from(useless), label="copy")[0], self.path)
        with pytest.raises(InvalidFile, match="put a newer copy of the folder back"):
            Vault.open(self.path, wait=0.0)
        put_back(now, self.path)
        shutil.rmtree(now)
        self.open()

    @precondition(lambda self: not self.lost_key)
    @rule()
    def lose_key(self):
        self.key.rename(self.away)

    @precondition(lambda self: self.lost_key)
    @rule()
    def find_key(self):
        self.away.rename(self.key)
        self.open()

    # What always holds

    @invariant()
    def the_rows_are_those_of_the_people_there_are(self):
        ids = sorted(self.seen)
        rows = {one: [slot for slot, _ in parts] for one, parts in self.holding.rows.items()}
        erased = {one: {-by} for one, by in self.holding.erased.items()}
        for one, slots in slots_of(self.vault, ids).items():
            assert (set(slots) if one in erased else slots) == erased.get(one, rows.get(one, []))
        assert self.vault._writer.state.drawn == self.holding.drawn

    @invariant()
    def the_model_is_the_retrained_one(self):
        retrained = self.holding.retrained()
        assert self.vault.digest() == retrained.digest()
        assert weights(self.vault) == [None if W is None else W.tobytes() for W in retrained.models]

    @invariant()
    def requests_are_numbered_without_gaps_and_certified_if_there_is_a_key(self):
        requests = self.vault.requests
        assert [(r.number, r.kind) for r in requests] == [(k, p.kind) for k, p in enumerate(self.past, 1)]
        assert [r.state != "restored" for r in requests] == [past.done for past in self.past]
        assert {r.state for r in requests} <= (
            {"certified", "done", "restored"} if self.lost_key else {"certified", "restored"}
        )

    @invariant()
    def a_recovered_vault_passes_the_audit(self):
        if self.recovered:
            verdict = self.vault.verify()
            assert verdict.ok, verdict
            self.recovered = False


@pytest.fixture(autouse=True, scope="module")
def _merged_often(unsynced):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "MOST_SEGMENTS", 3)
        yield


TestVault = VaultMachine.TestCase
TestVault.settings = settings(max_examples=60, stateful_step_count=20)
