"""Kill a process that works on a vault, at random instants, again and again, and look at what it left.

    cd tests; python -m support.killing --kills 10000 --seed 1

A worker trains, unlearns, adds, rectifies, readmits, rebounds and predicts, and says so in a pipe: before each request
and once the vault has acknowledged it. It is killed at an instant drawn uniformly over the time that such a request
takes; then so may be the processes that recover the vault. What is found in the end must be what the oracle says, with
or without the one request that was in flight: as its record in the ledger was whole, or not. If it is not, what was
there before and after is kept as evidence.

With --load the machine is busy all the while, and some workers run out of memory instead of being killed.

Two kinds are no requests of a vault: `refuse` is an add that must fail, `again` an erasure that was done before.

Some workers fork in a thread while they work, as a service may: that child does nothing, outlives its parent, and must
not keep the vault's lock.

This process imports everything once and forks: to start Python takes longer than a hundred requests.
"""

import argparse
import faulthandler
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import numpy as np

from expunge import CodedRegressor, RandomFourier
from expunge.errors import ErasedId, InvalidFile, MissingData
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.disk.people import hash_ids
from expunge.vault.ledger.ledger import Ledger
from expunge.vault.requests import REQUEST_TYPES, choice, intake
from expunge.vault.requests import request as requests

from support.disks import Unsynced
from support.evidence import Evidence
from support.load import MEGABYTE, loaded, short_of_memory
from support.oracle import PLANNED, Oracle, Request, Values, plain_slots_sum
from support.planning import QuickPlanner
from support.vaults import ANYTHING

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
KILLS_A_LIFE = 25  # then comes another vault: ledgers grow, and a first training is worth a few kills, too
SHARDS = 4
COLUMNS = ("x0", "x1", "y")
STARTED, DONE = b">", b"."
FAILED, BROKEN = 1, 3  # exit codes of a process that raised an error, and of one that saw a promise broken
ALL_HIT = {"first train", "unlearn", "add", "rectify", "rebound", "replan", "recovery of an accepted request"}
ALL_LEFT = {"accepted, finished by the next", "not accepted, nothing changed"}


def estimator(*, observed: bool) -> CodedRegressor:
    """A small model, with bounds that rows may move or that are declared."""
    bounds = {} if observed else {"bounds": (-1.0, 2.0), "target_bounds": (-1.0, 2.0)}
    return CodedRegressor(shards=SHARDS, rate=2, features=RandomFourier(6), random_state=0, **bounds)


def name_of(request: Request, before: Oracle) -> str:
    """What a request is to be called, in this state."""
    return request.kind if before.kinds else f"first {request.kind}"


def die(seed: int) -> random.Random:
    return random.Random(seed)


def draw(oracle: Oracle, rng: random.Random) -> Request:
    """A request that makes sense."""

    def some(ids: Any, most: int) -> tuple[int, ...]:
        return tuple(rng.sample(sorted(ids), rng.randint(1, min(most, len(ids)))))

    def rows(ids: tuple[int, ...]) -> tuple[Values, ...]:
        return tuple((rng.random(), rng.random(), rng.uniform(-1.0, 2.0)) for _ in ids)

    free = set(range(max(40, len(oracle.erased) + 10))) - set(oracle.erased)  # never empty, however long a life is
    weights = {"train": 1.0}
    if oracle.rows:
        weights |= {"add": 3.0, "rectify": 2.0, "unlearn": len(oracle.rows) / 3, "predict": 1.0}
        weights |= {"rebound": 2.0, "replan": 1.0}
    if oracle.rows and oracle.erased:
        weights |= {"readmit": 1.5, "refuse": 1.0, "again": 0.5}
    kind = rng.choices(list(weights), list(weights.values()))[0]
    if kind == "rebound":
        ends = [None, (-1.0, 2.0), (-1.0 - rng.random(), 2.0 + rng.random())]
        return Request.rebound(**{column: rng.choice(ends) for column in rng.sample(COLUMNS, rng.randint(1, 3))})
    if kind == "replan":
        return Request("replan")
    if kind == "train":
        ids = some(free, 8) + tuple(rng.choices(sorted(free), k=rng.randint(SHARDS, 8)))
    elif kind == "add":
        ids = some(free, 6)
    elif kind == "refuse":
        ids = some(free, 5) + some(oracle.erased, 1)
    elif kind == "rectify":
        ids = tuple(one for one in some(oracle.rows, 3) for _ in oracle.rows[one])
    elif kind == "unlearn":
        ids = some(oracle.rows, 3) + (some(oracle.erased, 1) if oracle.erased and rng.random() < 0.3 else ())
    elif kind == "predict":
        ids = some(range(20), 9)
    else:
        ids = some(oracle.erased, 2)
    return Request(kind, ids, () if kind in ("unlearn", "readmit", "again") else rows(ids))


@dataclass
class Life:
    """One vault, from its first training on."""

    path: Path
    oracle: Oracle

    def ask(self, vault: Vault | None, request: Request) -> Vault:
        """Ask the vault for what the request says, and look at the answer."""
        kind = request.kind
        if vault is None or kind == "train":
            anew = {} if vault is None else {"replace": True} | ANYTHING
            described = {"target": "y", "id": "who", "model": self.oracle.model, "planning": PLANNED}
            return Vault.create(self.path, request.table, **described, **anew)
        if kind == "predict":
            X = request.columns[0]
            check(np.array_equal(vault.predict(X), self.oracle.predict(X)), "a prediction is another model's")
        elif kind == "refuse":
            try:
                vault.add(request.table)
            except ErasedId:
                return vault
            fail("rows of an erased id were added")
        elif kind == "again":
            check(vault.unlearn(request.ids).kind in ("unlearn", "restore"), "an erasure has another answer")
        else:
            request.ask(vault)
        return vault

    def work(self, seed: int, tell: Callable[[bytes], Any], room: int | None = None) -> None:
        """What a worker does until it is killed. Some have no key to sign with, some little memory."""
        rng = die(seed)
        if room is not None:
            short_of_memory(room)
        key = self.path.with_suffix(".nowhere") if rng.random() < 0.2 else None
        vault = Vault.open(self.path, key=key) if self.oracle.kinds else None
        while True:
            request = draw(self.oracle, rng)
            tell(STARTED)
            vault = self.ask(vault, request)
            tell(DONE)
            self.oracle = self.oracle.after(request)

    def requests(self, seed: int, count: int) -> tuple[Oracle, list[Request]]:
        """What a worker did: the state before its last request, and its requests."""
        rng, oracle, requests = die(seed), self.oracle, []
        rng.random()
        for k in range(count):
            requests.append(draw(oracle, rng))
            if k < count - 1:
                oracle = oracle.after(requests[-1])
        return oracle, requests

    def reopen(self, tell: Callable[[bytes], Any]) -> None:
        """What a reader does that comes upon what a killed process left."""
        tell(STARTED)
        Vault.open(self.path).predict(np.zeros((1, 2)))

    def in_ledger(self) -> tuple[list[str], set[int]]:
        """The requests that are accepted, and which of them are done, as plain reading says."""
        ledger = self.path.with_suffix(".ledger")
        records = Ledger(ledger).read()[0] if ledger.exists() else []
        return [r.kind for r in records if r.is_request], {r.request for r in records if r.kind == "done"}

    def look(self) -> None:
        """The vault is what the oracle says, to the last row and bit."""
        oracle = self.oracle
        if not oracle.kinds:
            return self._look_unborn()
        vault = Vault.open(self.path)
        check([r.kind for r in vault.requests] == list(oracle.kinds), "requests were lost, or done twice")
        verdict = vault.verify()
        check(verdict.ok, f"verify: {verdict}")
        check({r.state for r in vault.requests} == {"certified"}, "requests are not done and certified")
        check(all(vault.certificate_path(r.number).exists() for r in vault.requests), "a certificate is not there")
        check(vault.digest() == oracle.digest(), "the model is another than the requests lead to")
        mine = vault._writer
        check(not mine.folder.find_leftovers(mine.snapshot.manifest), "there are leftovers")
        ids = sorted({*oracle.rows, *oracle.erased, *range(40)})
        found = mine.snapshot.people.find(hash_ids(mine.identity.key, [str(one).encode() for one in ids]))
        X, y = mine.snapshot.rows.take(found.live.slot)
        rows = defaultdict(list)
        for owner, row in zip(found.live.owner.tolist(), np.column_stack([X, y]).tolist(), strict=True):
            rows[ids[owner]].append(tuple(row))
        check(rows == {one: oracle.values(one) for one in oracle.rows}, "the rows are others")
        check({ids[k] for k in found.tombstones.owner} == set(oracle.erased), "other ids are erased")
        check(mine.snapshot.manifest.rows == oracle.counts.total(), "there are rows of nobody")
        sum_ = plain_slots_sum(oracle.slots, mine.identity.seal)
        check(mine.snapshot.manifest.slots_sum == sum_, "the manifest has the sum of other slots")
        return None

    def _look_unborn(self) -> None:
        """A first training that was not accepted: nothing was promised, and it can be done again."""
        try:
            Vault.open(self.path)
        except (MissingData, InvalidFile):
            return
        fail("a vault opens that was never trained")


class Child:
    """A forked process that tells how far it is, a byte a time; after a while it may fork itself, in a thread.

    Its errors go to a file.
    """

    def __init__(
        self, task: Callable[[Callable[[bytes], Any]], None], errors: Path, *, forks_after: float | None = None
    ) -> None:
        self._pipe, theirs = os.pipe()
        self._leash, orphans = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            code = FAILED
            try:
                os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
                if forks_after is not None:
                    threading.Thread(target=self._fork, args=(forks_after, theirs, orphans), daemon=True).start()
                task(lambda mark: os.write(theirs, mark))
                code = 0
            except BaseException as error:
                code = BROKEN if isinstance(error, Wrong) else FAILED
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(theirs)
        orphans.close()

    def _fork(self, delay: float, theirs: int, orphans: socket.socket) -> None:
        time.sleep(delay)
        if not os.fork():
            try:
                os.close(theirs)  # whoever waits for the end of what the worker tells does not wait for this one
                self._leash.close()
                orphans.send(b"o")
                orphans.recv(1)
            finally:
                os._exit(0)

    def let_go(self) -> bool:
        """Let the child of this one end. Whether there was one."""
        self._leash.setblocking(False)
        with self._leash, suppress(BlockingIOError):
            return bool(self._leash.recv(1))
        return False

    def hear(self) -> bytes:
        """The next mark; nothing if there is none to come."""
        return os.read(self._pipe, 1)

    def kill(self, delay: float) -> tuple[bytes, int]:
        """Kill it after a while. What else it had told, and how it ended: by itself, or by a signal."""
        time.sleep(delay)
        os.kill(self._pid, signal.SIGKILL)
        rest = b""
        while mark := self.hear():
            rest += mark
        os.close(self._pipe)
        return rest, os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


class Torture:
    """Lives of vaults, one after another, and what was seen."""

    def __init__(self, folder: Path, seed: int, *, starved: bool = False) -> None:
        self.folder, self.rng, self.starved = folder, die(seed), starved
        self.hit: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.acknowledged = self.orphans = 0
        self.evidence = Evidence(folder)
        # Seconds that requests of a kind took of late. One that a busy machine held up must not count for much: the
        # next would be killed long after its end.
        self._seconds: dict[str, deque[float]] = defaultdict(lambda: deque([0.02] * 3, maxlen=5))
        self._lives = 0

    @property
    def kills(self) -> int:
        return sum(self.hit.values())

    @property
    def complete(self) -> bool:
        """Whether all that matters was hit."""
        return self.hit.keys() >= ALL_HIT and self.left.keys() >= ALL_LEFT

    def run(self, kills: int) -> None:
        """Kill so often; while something that matters was not hit, as on a busy machine, up to ten times that."""
        with self.evidence.kept():
            while self.kills < kills or (self.kills < 10 * kills and not self.complete):
                self._lives += 1
                path = self.folder / str(self._lives) / "t.vault"
                path.parent.mkdir()
                life = Life(path, Oracle.of(estimator(observed=self._lives % 2 == 0)))
                until = min(self.kills + KILLS_A_LIFE, 10 * kills)
                while self.kills < until:
                    self.strike(life)
                shutil.rmtree(path.parent)

    def strike(self, life: Life) -> None:
        """Let a worker work, kill it, kill who recovers, and look."""
        seed = self.rng.getrandbits(32)
        self.evidence.begin(life.path, f"life {self._lives}, {self.kills} kills before; the worker's seed is {seed}")
        self.evidence.note(f"requests before: {life.oracle.kinds}", f"erased: {life.oracle.erased}", life.oracle.rows)
        spared = self.rng.choice([0, 0, 1, 2, 4] if life.oracle.kinds else [0, 0, 0, 0, 1])
        if forks := self.rng.random() < 0.2:
            spared = 0  # it forks and is killed in one request
        room = int(MEGABYTE ** self.rng.uniform(0.5, 1.1)) if self.starved and self.rng.random() < 0.25 else None
        worker = self._worker(life, seed, room, forks=forks)
        started, done, how = self._work(worker, life, seed, spared, room)
        before, requests = life.requests(seed, max(started, 1))
        in_flight = requests[-1] if started > done else None
        self.evidence.note(f"{started} started, {done} done:", *requests)
        self.evidence.copy("struck")
        life.oracle = before if in_flight or not started else before.after(requests[-1])
        self.acknowledged += done
        self.hit[how or (name_of(in_flight, before) if in_flight else "between requests")] += 1
        accepted, finished = life.in_ledger()
        if in_flight and len(accepted) > len(life.oracle.kinds):
            life.oracle = life.oracle.after(in_flight)
            self.left["accepted, finished by the next" if len(accepted) not in finished else "done"] += 1
        elif in_flight and in_flight.kind in REQUEST_TYPES:
            self.left["not accepted, nothing changed"] += 1
        check(accepted == list(life.oracle.kinds), "the ledger has other requests than were asked for")
        unfinished = len(accepted) not in finished
        while life.oracle.kinds and self.rng.random() < (0.7 if unfinished else 0.1):
            self._recover(life, unfinished=unfinished)
        life.look()
        self.orphans += worker.let_go()

    def _worker(self, life: Life, seed: int, room: int | None, *, forks: bool) -> Child:
        first = name_of(life.requests(seed, 1)[1][0], life.oracle)
        delay = self.rng.uniform(0.0, 1.5 * median(self._seconds[first])) if forks else None
        return Child(lambda tell: life.work(seed, tell, room), self.evidence.stderr, forks_after=delay)

    def _work(self, child: Child, life: Life, seed: int, spared: int, room: int | None) -> tuple[int, int, str]:
        """How many requests a worker started, how many were acknowledged, and what ended it if it was not killed."""
        first, *others = life.requests(seed, spared + 1)[1]
        names = [name_of(first, life.oracle), *(request.kind for request in others)]
        self.evidence.note(f"to be spared: {spared}; memory: {room}", first, *others)
        heard = b""
        for name in names[:-1]:
            heard += child.hear()
            clock = time.perf_counter()
            heard += child.hear()
            self._seconds[name].append(time.perf_counter() - clock)
        heard += child.hear()
        rest, ended = child.kill(self.rng.uniform(0.0, 1.05 * median(self._seconds[names[-1]])))
        heard += rest
        self.evidence.note(f"the worker told {heard!r} and ended with {ended}")
        starved = room is not None and ended not in (-signal.SIGKILL, BROKEN)
        check(starved or ended == -signal.SIGKILL, "the worker failed before it was killed")
        return heard.count(STARTED), heard.count(DONE), "out of memory" if starved else ""

    def _recover(self, life: Life, *, unfinished: bool) -> None:
        child = Child(life.reopen, self.evidence.stderr)
        child.hear()
        _, ended = child.kill(self.rng.uniform(0.0, median(self._seconds["unlearn"])))
        self.evidence.note(f"a reader ended with {ended}")
        check(ended in (0, -signal.SIGKILL), "the reader failed before it was killed")
        if ended:
            self.hit["recovery of an accepted request" if unfinished else "opening"] += 1

    def __str__(self) -> str:
        def counts(of: Counter[str]) -> str:
            return "".join(f"\n  {n:6,} {what}" for what, n in of.most_common())

        return (
            f"{self.kills:,} kills in {self._lives} vaults, {self.acknowledged:,} requests acknowledged, "
            f"{self.orphans:,} children outlived a worker; during"
            f"{counts(self.hit)}\nthe request in flight was{counts(self.left)}"
        )


class Wrong(Exception):
    """A vault broke a promise."""


def check(ok: object, otherwise: str) -> None:
    if not ok:
        fail(otherwise)


def fail(why: str) -> NoReturn:
    raise Wrong(why)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", action="store_true", help="on a busy machine with a busy disk and too little memory")
    asked = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):  # a fork copies one thread only
        os.execve(sys.executable, sys.orig_argv, os.environ | ONE_THREAD)  # noqa: S606 - ourselves
    faulthandler.enable()
    files.system = Unsynced()
    choice.load_planner = QuickPlanner
    intake.MAX_SEGMENTS = 3  # to merge people often
    requests.MAX_INLINE_ENTRIES = 4  # to keep lists beside the ledger often
    with tempfile.TemporaryDirectory(prefix="expunge-killing-", ignore_cleanup_errors=True) as folder:
        torture = Torture(Path(folder), asked.seed, starved=asked.load)
        try:
            with loaded(Path(folder)) if asked.load else nullcontext():
                torture.run(asked.kills)
        finally:
            sys.stdout.write(f"{torture}\n")


if __name__ == "__main__":
    main()
