"""Years of a vault in seconds: requests, crashes, old copies, lost keys, against the oracle."""

import random
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from expunge import CodedRegressor, RandomFourier
from expunge.distributed import tasks, workers
from expunge.encoding import placement
from expunge.errors import ErasedId, InvalidFile, InvalidInput, InvalidSetting, NothingLearned, UnknownId
from expunge.vault import Planning, Vault
from expunge.vault.certificates.jws import load_public_keys, verify_statement
from expunge.vault.disk import runs
from expunge.vault.disk.folder import Folder
from expunge.vault.ledger.ledger import Ledger
from expunge.vault.requests import intake
from expunge.vault.requests import request as requests

from support.disks import Crash, Ending, used
from support.executors import Here
from support.oracle import Oracle, Request, plain_slots_sum
from support.sampling import examples
from support.vaults import ANYTHING, bits, put_back, slots_of

SHARDS = 4
PEOPLE = st.integers(0, 9)
VALUES = st.tuples(*[st.sampled_from([-1.0, -0.5, 0.0, 0.125, 1.0])] * 3)  # few: bounds and rows have ties
COLUMNS = ("x0", "x1", "y")
BOUNDS = [None, (-1.0, 1.0), (-2.0, 1.5), (-0.5, 1.0), (-1.0, 0.25), (-0.25, 0.5)]  # of a column; None observes it
ENDS = st.integers(0, 150)  # operations until a process ends: more than any request takes
PROBE = np.linspace(-1.2, 1.2, 8).reshape(4, 2)


@contextmanager
def ending(after):
    """A process that ends after some operations, perhaps in the midst of a write."""
    with used(Ending(after)), suppress(Crash):
        yield


@dataclass
class Past:
    """A request that was accepted."""

    kind: str
    people: set  # whom it erased or corrected
    numbers: set  # of rows that a restore erased
    done: bool = True
    replanned: bool = False


def _request(kind, ids, values=()):
    return Request(kind, tuple(ids), tuple(values))


@st.composite
def batches(draw, people=PEOPLE, most=5):
    whose = draw(st.lists(people, min_size=1, max_size=most))
    return whose, [draw(VALUES) for _ in whose]


ATTEMPTS = random.Random()


class VaultMachine(RuleBasedStateMachine):
    """Rules ask the vault and an oracle the same, invariants compare."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="expunge-machine-"))
        self.path, self.key, self.away = (self.folder / name for name in ("m.vault", "m.key", "m.key.away"))
        self.past = []
        self.copies = []  # (folder, what it holds)
        self.seen = set(range(10))
        self.recovered = False
        ATTEMPTS.seed(0)

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
        rows=batches(),
        observed=st.booleans(),
        planned=st.booleans(),
        seed=st.integers(0, 3),
        aggregate=st.sampled_from(["mean", "median"]),
    )
    def create(self, rows, observed, planned, seed, aggregate):
        bounds = {} if observed or planned else {"bounds": ([-1, None], [1, None]), "target_bounds": (-1, 1)}
        features = RandomFourier(3) if seed % 2 else None
        model = CodedRegressor(
            shards=SHARDS, rate=2, features=features, aggregate=aggregate, random_state=seed, **bounds
        )
        self.oracle = replace(Oracle.of(model), planned=planned)
        request = _request("train", rows[0] + [0, 1, 2, 3], rows[1] + [(0.25, -0.25, 0.5)] * 4)
        self.vault = self.train(request)
        self.accept(request)

    def train(self, request, **options):
        described = {"target": "y", "id": "who", "wait": 0.0}
        described |= {"planning": Planning(quick=False)} if self.oracle.planned else {"model": self.oracle.model}
        data, helped = self.helped(request)
        return Vault.create(self.path, data, **described, **helped, **options)

    def helped(self, request):
        """The table of every second request is a file, and workers help with it."""
        if self.oracle.request % 2:
            return request.table, {}
        path = self.folder / "table.parquet"
        pq.write_table(request.table, path, row_group_size=2)
        return path, {"client": Here(seed=self.oracle.request)}

    def drawn_request(self, data):
        """A request that can be carried out."""
        oracle = self.oracle
        kinds = ["add", "rebound"] + ["unlearn", "rectify"] * bool(oracle.rows) + ["readmit"] * bool(oracle.erased)
        kinds += ["replan"] * oracle.planned
        kind = data.draw(st.sampled_from([*kinds * 3, "train"]), label="kind")
        if kind in ("train", "add"):
            ids, values = data.draw(batches())
            new = 100 * (oracle.request + 1) if kind == "train" else 10 + oracle.request
            people = [new + k for k in range(SHARDS)] if kind == "train" else [new]
            return _request(kind, ids + people, values + [(0.25, -0.25, 0.5)] * len(people))
        if kind == "rebound":
            columns = data.draw(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True), label="columns")
            return Request.rebound(**{name: data.draw(st.sampled_from(self.wide_enough(name))) for name in columns})
        if kind == "replan":
            return Request("replan")
        known = sorted(oracle.erased if kind == "readmit" else oracle.rows)
        ids = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True), label="ids")
        if kind == "rectify":
            ids = [one for one in ids for _ in oracle.rows[one]]
        return _request(kind, ids, [oracle.inside(data.draw(VALUES)) for _ in ids] if kind == "rectify" else ())

    def wide_enough(self, column):
        """Bounds that leave no row outside."""
        values = [row[COLUMNS.index(column)] for row in self.oracle.values()]
        return [ends for ends in BOUNDS if ends is None or all(ends[0] <= value <= ends[1] for value in values)]

    def ask(self, request):
        if request.kind == "train":
            self.vault = self.train(request, replace=True, skip_erased=True, **ANYTHING)
            return self.vault.receipt
        if request.kind == "add":
            data, helped = self.helped(request)
            return self.vault.add(data, skip_erased=True, clip=True, **helped)
        if request.kind in ("unlearn", "replan") and not self.oracle.request % 2:
            return request.ask(self.vault, client=Here(seed=self.oracle.request))
        return request.ask(self.vault)

    def accept(self, request, done=True):
        if request.kind == "add":  # what is outside the bounds is clipped
            request = replace(request, rows=tuple(map(self.oracle.inside, request.rows)))
        self.oracle = self.oracle.after(request)
        people = set(request.ids) if request.kind in ("unlearn", "rectify") else set()
        self.past.append(Past(request.kind, people, set(), done, request.kind == "replan"))
        self.seen.update(request.ids)

    @rule(data=st.data())
    def request(self, data):
        request, before = self.drawn_request(data), self.oracle
        receipt = self.ask(request)
        self.accept(request)
        assert (receipt.request, receipt.kind) == (self.oracle.request, request.kind)
        assert (receipt.certificate is None) == self.lost_key == any("not certified" in n for n in receipt.notes)
        if request.kind in ("train", "add"):
            assert receipt.rows == self.oracle.counts.total() - (before.counts.total() if request.kind == "add" else 0)
        if request.kind in ("unlearn", "rectify"):
            assert receipt.rows == sum(before.counts[one] for one in set(request.ids))
        if request.kind == "add":
            there = set(request.ids) - set(before.erased)
            assert (receipt.skipped, receipt.known) == (len(set(request.ids) - there), len(there & set(before.rows)))

    @precondition(lambda self: self.oracle.erased)
    @rule(data=st.data())
    def ask_again_for_somebody_erased(self, data):
        one = data.draw(st.sampled_from(sorted(self.oracle.erased)))
        again = self.vault.unlearn([one])
        assert (again.request, again.seconds) == (self.oracle.erased[one], 0.0)
        if not self.lost_key:
            assert (
                verify_statement(again.certificate, load_public_keys(self.folder / "m.pub"))["request"] == again.request
            )
        for ask in (self.vault.add, self.vault.rectify):
            with pytest.raises(ErasedId):
                ask(_request("add", [one], [(0.0, 0.0, 0.0)]).table)

    @rule(one=PEOPLE)
    def ask_for_what_cannot_be(self, one):
        if one not in self.oracle.rows and one not in self.oracle.erased:
            with pytest.raises(UnknownId):
                self.vault.unlearn([*self.oracle.rows, one])
        if one not in self.oracle.erased:
            with pytest.raises(UnknownId):
                self.vault.readmit([one])
        with pytest.raises(InvalidInput):
            _request("add", [one, one], [(0.0, 0.0, 0.0), (np.nan, 0.0, 0.0)]).ask(self.vault)
        if self.oracle.rows:
            with pytest.raises(InvalidInput, match="rows outside these bounds"):
                self.vault.rebound({"x1": (2.0, 3.0)})
        with pytest.raises(InvalidSetting):
            self.vault.rebound({"x0": None, "who": None})

    @rule()
    def predict(self):
        if self.oracle.rows:
            np.testing.assert_array_equal(self.vault.predict(PROBE), self.oracle.predict(PROBE))
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
        request, acknowledged = self.drawn_request(data), False
        with ending(after):
            self.ask(request)
            acknowledged = True
        accepted, done = self.in_ledger()
        assert acknowledged <= (accepted > self.oracle.request)
        if accepted > self.oracle.request:
            before = self.oracle
            self.accept(request, done=accepted in done)
            if then == "copy":
                self.copy(self.oracle if Folder(self.path).read_current_manifest().request == accepted else before)
        elif then == "copy":
            self.copy(self.oracle)
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
        return sum(r.is_request for r in records), {r.request for r in records if r.kind == "done"}

    def copy(self, oracle):
        to = self.folder / f"copy-{len(self.copies)}"
        shutil.copytree(self.path, to)
        self.copies.append((to, oracle))

    @precondition(lambda self: len(self.copies) < 4)
    @rule()
    def take_a_copy(self):
        self.copy(self.oracle)

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
        signed = {r.number for r in self.vault.requests if r.state == "certified"}
        for k, past in enumerate(since, old.request + 1):  # nobody can vouch for what was not signed since the copy
            past.done = past.done and k in signed
        put_back(folder, self.path)
        if end is not None:
            with ending(end):
                Vault.open(self.path, wait=0.0)
        self.open()
        if not since:
            return
        number, done = self.in_ledger()
        assert number > self.oracle.request
        assert end is not None or number == self.oracle.request + 1
        people, numbers = set().union(*(p.people for p in since)), set().union(*(p.numbers for p in since))
        replanned = any(p.replanned for p in since)
        unfinished = {k for k, past in enumerate(self.past, 1) if not past.done}
        held = old.without(people, old.slots_of(numbers))
        outside = [slot for mine in held.rows.values() for slot, row in mine if self.oracle.inside(row) != row]
        missing = len(self.oracle.numbers - old.numbers)
        restored = replace(
            old.caught_up(self.oracle, held.without(slots=outside).rows, replanned=replanned),
            erased={one: number if by in unfinished else by for one, by in self.oracle.erased.items()},
            kinds=self.oracle.kinds + ("restore",) * (number - self.oracle.request),
        )
        gone = old.numbers - restored.numbers
        if end is None and not any(past.kind == "restore" for past in since):
            assert f"{len(gone)} rows that were erased" in self.vault.notes[0]
            assert f"{missing} rows added since are missing" in self.vault.notes[0]
        restores = range(self.oracle.request + 1, number + 1)
        self.past += [Past("restore", set(), gone, k in done, replanned) for k in restores]
        self.oracle = restored

    @precondition(lambda self: self.oracle.planned and len(self.copies) < 4)
    @rule(data=st.data(), after=st.none() | ENDS, end=st.none() | ENDS)
    def miss_a_replan(self, data, after, end):
        """The settings are chosen anew, perhaps by a process that ends; then an old copy of the folder comes back."""
        self.copy(self.oracle)
        if after is None:
            self.ask(Request("replan"))
        else:
            with ending(after):
                self.ask(Request("replan"))
        accepted, done = self.in_ledger()
        if accepted > self.oracle.request:
            self.accept(Request("replan"), done=accepted in done)
        self.put_back(data, end)

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
        rows = {one: [slot for slot, _ in parts] for one, parts in self.oracle.rows.items()}
        erased = {one: {-by} for one, by in self.oracle.erased.items()}
        for one, slots in slots_of(self.vault, ids).items():
            assert (set(slots) if one in erased else slots) == erased.get(one, rows.get(one, []))
        now = self.vault._writer.snapshot
        assert now.state.drawn == self.oracle.slots_drawn
        assert now.manifest.batches == self.oracle.batches
        assert now.manifest.slots_sum == plain_slots_sum(self.oracle.slots, now.manifest.seal) == now.rows.live_sum
        held = [(h.state, h.rows, h.request) for h in self.vault.find(ids)]
        there = {one: ("present", len(slots), None) for one, slots in rows.items()}
        there |= {one: ("erased", 0, by) for one, by in self.oracle.erased.items()}
        assert held == [there.get(one, ("unknown", 0, None)) for one in ids]

    @invariant()
    def the_model_is_the_retrained_one(self):
        assert bits(self.vault) == bits(self.oracle)

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
            verdict = self.vault.verify(plan=True)
            assert verdict.ok, verdict
            self.recovered = False


@pytest.fixture(autouse=True, scope="module")
def _merged_often():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "MAX_SEGMENTS", 3)
        patch.setattr(requests, "MAX_INLINE_ENTRIES", 4)  # some requests have their lists beside the ledger
        patch.setattr(placement, "BLOCK", 8)  # many blocks, and tasks
        patch.setattr(workers, "TASK_ROWS", 4)
        patch.setattr(tasks.secrets, "randbits", ATTEMPTS.getrandbits)  # files are wiped in the order of their names
        patch.setattr(runs, "PART_ENTRIES", 5)
        patch.setattr(runs, "RUN_ENTRIES", 3)
        yield


TestVault = pytest.mark.no_cover(pytest.mark.slow(VaultMachine.TestCase))
TestVault.settings = examples(30, stateful_step_count=20)
