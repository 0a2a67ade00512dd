"""No stale prediction: an answer stems from a model that has carried out all that its last look at the ledger found.

Whose answer it is shows in its value: each request changes what is predicted for one row, and the oracle that is asked
the same says to what. Where two processes meet at an instant, one is stopped there and the other let run.
"""

import multiprocessing
import os
import queue
import shutil
import signal
import sys
import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from expunge.errors import Unfinished, VaultBusy
from expunge.saving import files
from expunge.vault import Vault, reader
from expunge.vault.disk.folder import parse_pointers
from expunge.vault.ledger.ledger import Ledger

from support.disks import Interrupted, Unsynced, used
from support.oracle import Oracle, Request
from support.vaults import small

pytestmark = pytest.mark.slow  # processes that wait for each other

PEOPLE = range(24)
PROBE = np.array([[0.3, -0.2]])
PATIENCE = 60  # seconds after which a process that says nothing is taken for dead

process = multiprocessing.get_context("forkserver")  # pytest itself has threads, and must not be forked
process.set_forkserver_preload(["expunge.vault", "pytest"])


def asked(k):
    """What is asked for as the k-th request after the training: an erasure, or other bounds and so another schema."""
    return Request.rebound(x0=(-2.0 - k, 2.0 + k)) if k % 3 == 1 else Request("unlearn", (k,))


@dataclass(frozen=True)
class Scene:
    """A vault, and what it predicts after each number of requests."""

    path: Path
    values: list[float]

    def copy(self, root):
        """The same vault somewhere else."""
        return Scene(Path(shutil.copytree(self.path.parent, root)) / self.path.name, self.values)

    def epoch(self, answer):
        """How many requests the model that gave this answer had carried out."""
        return self.values.index(float(answer[0]))

    def accepted(self, size=None):
        """How many requests are accepted in the ledger, or in so many bytes of it; the training does not count."""
        records = Ledger(self.path.with_suffix(".ledger")).read()[0]
        return sum(r.is_request and (size is None or r.end.offset <= size) for r in records) - 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root, first = tmp_path_factory.mktemp("trained"), Request.drawn("train", 5, PEOPLE)
    Vault.create(root / "t.vault", first.table, target="y", id="who", model=small())
    oracle, values = Oracle.of(small()).after(first), []
    for k in range(13):
        values.append(float(oracle.predict(PROBE)[0]))
        oracle = oracle.after(asked(k))
    assert len(set(values)) == 13
    return Scene(root / "t.vault", values)


@pytest.fixture
def scene(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "system", Unsynced())
    return trained.copy(tmp_path / "copy")


# One after another, at every instant


class Stopped(Interrupted):
    """A disk that lets somebody else go first, before every operation. What that one does is not stopped."""

    def __init__(self, meanwhile):
        self._meanwhile, self._busy = meanwhile, False

    def before(self, *_):
        if not self._busy:
            self._busy = True
            try:
                self._meanwhile()
            finally:
                self._busy = False


@pytest.mark.parametrize("k", [0, 1], ids=["unlearn", "rebound"])
def test_whatever_a_writer_is_doing_a_reader_answers_from_the_model_that_counts_or_refuses(scene, k):
    writer, old = Vault.open(scene.path), Vault.open(scene.path, wait=0.0)
    for before in range(k):
        asked(before).ask(writer)
    seen = set()

    def ask():
        for ask_whom in (lambda: old, lambda: Vault.open(scene.path, wait=0.0)):
            before = scene.accepted()
            try:
                answer = ask_whom().predict(PROBE)
            except VaultBusy:
                assert before == k + 1  # only with a request pending
                seen.add("refused")
            else:
                assert scene.epoch(answer) == before
                seen.add(before)

    with used(Stopped(ask)):
        asked(k).ask(writer)
    assert seen == {k, k + 1, "refused"}
    assert scene.epoch(old.predict(PROBE)) == k + 1


@pytest.mark.parametrize("opens", [False, True], ids=["open already", "opening"])
def test_whatever_a_reader_is_doing_a_request_that_comes_in_between_is_in_its_answer(scene, opens, monkeypatch):
    """Before each of its operations on the disk, and before each look at the ledger, which is none."""
    stamp = Ledger.stamp
    for k in count():
        mine = scene.copy(scene.path.parent.parent / f"{k}")
        vault, other = Vault.open(mine.path), Vault.open(mine.path, wait=0.0)
        asked(0).ask(other)  # so that there is something to load
        left = k

        def meanwhile(other=other):
            nonlocal left
            left -= 1
            if left == -1:
                try:
                    asked(1).ask(other)
                except VaultBusy:  # the reader is just the writer: a moment later
                    left += 1

        with used(Stopped(meanwhile)) as disk:
            monkeypatch.setattr(Ledger, "stamp", lambda self, disk=disk: (disk.before(), stamp(self))[1])
            answer = (Vault.open(mine.path) if opens else vault).predict(PROBE)
        monkeypatch.setattr(Ledger, "stamp", stamp)
        if left >= 0:
            assert mine.epoch(answer) == 1
            break
        assert mine.epoch(answer) == 2
    assert k > 5


@pytest.mark.parametrize("to", ["array", "file", "stream"])
def test_a_request_that_is_carried_out_while_an_answer_is_computed_is_in_the_answer(scene, tmp_path, to, monkeypatch):
    vault, other, computed = Vault.open(scene.path), Vault.open(scene.path), reader._predict_blocks

    def slow(model, blocks):
        for answer in computed(model, blocks):
            if scene.accepted() < 3:
                asked(scene.accepted()).ask(other)
            yield answer

    monkeypatch.setattr(reader, "_predict_blocks", slow)
    if to == "array":
        answer = vault.predict(PROBE)
    else:
        out = tmp_path / "answers.csv"
        with out.open("wb") as stream:
            vault.predict_to(pa.table(dict(zip(["x0", "x1"], PROBE.T, strict=True))), out if to == "file" else stream)
        answer = [float(line) for line in out.read_text().splitlines()[1:]]
    assert scene.epoch(answer) == 3


# A writer that dies between accepting a request and carrying it out


class Deadly(Unsynced):
    """A disk that kills its process once the ledger has one more record: as it was written, or as it was synced."""

    def __init__(self, ledger, operation):
        self._ledger, self._operation = ledger, operation

    def write(self, fd, data, offset):
        written = super().write(fd, data, offset)
        self._after("write", fd)
        return written

    def sync(self, fd):
        super().sync(fd)
        self._after("sync", fd)

    def _after(self, operation, fd):
        if operation == self._operation and os.path.samestat(os.fstat(fd), os.stat(self._ledger)):
            os.kill(os.getpid(), signal.SIGKILL)


def ask_and_die(path, k, operation):
    """The first thing that a request writes to the ledger is that it is accepted."""
    vault = Vault.open(path)
    files.system = Deadly(path.with_suffix(".ledger"), operation)
    asked(k).ask(vault)


def bereave(scene, operation="sync"):
    """Accept a request that nobody carries out."""
    before = scene.accepted()
    writer = process.Process(target=ask_and_die, args=(scene.path, before, operation))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert scene.accepted() == before + 1
    assert max(parse_pointers((scene.path / "current").read_bytes(), scene.path)) == before + 1


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_reader_finishes_what_a_dead_writer_accepted_before_it_answers(scene, operation):
    vault = Vault.open(scene.path)
    for k in (0, 1):  # an erasure, then other bounds
        assert scene.epoch(vault.predict(PROBE)) == k
        bereave(scene, operation)
    assert scene.epoch(vault.predict(PROBE)) == 2
    assert [request.state for request in vault.requests] == ["certified"] * 3
    assert vault.verify().ok


def test_who_opens_a_vault_finishes_what_a_dead_writer_accepted(scene):
    bereave(scene)
    assert scene.epoch(Vault.open(scene.path).predict(PROBE)) == 1


class ReadOnly(Unsynced):
    """A disk of which this process may only read."""

    def __init__(self, denied=lambda: None):
        self._denied = denied

    def open(self, path, flags, mode=0o600, folder=None):
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._denied()
            raise PermissionError(13, "Permission denied", str(path))
        return super().open(path, flags, mode, folder)


def test_a_reader_that_may_not_write_refuses_while_a_request_is_pending(scene, monkeypatch):
    vault = Vault.open(scene.path, wait=0.0)
    vault.predict(PROBE)
    bereave(scene)
    monkeypatch.setattr(files, "system", ReadOnly())
    with pytest.raises(Unfinished, match="may not write"):
        vault.predict(PROBE)
    with pytest.raises(Unfinished, match="may not write"):
        Vault.open(scene.path, wait=0.0)
    monkeypatch.setattr(files, "system", Unsynced())
    Vault.open(scene.path)
    monkeypatch.setattr(files, "system", ReadOnly())
    for one in (vault, Vault.open(scene.path, wait=0.0)):
        assert scene.epoch(one.predict(PROBE)) == 1


def test_a_reader_that_may_not_write_waits_for_who_may(scene, monkeypatch):
    vault, calls = Vault.open(scene.path), []
    vault.predict(PROBE)
    bereave(scene)

    def denied():
        calls.append(None)
        if len(calls) == 3:
            with monkeypatch.context() as patch:
                patch.setattr(files, "system", Unsynced())
                Vault.open(scene.path)

    monkeypatch.setattr(files, "system", ReadOnly(denied))
    assert scene.epoch(vault.predict(PROBE)) == 1
    assert len(calls) == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="no permission binds root")
def test_a_reader_whom_the_system_forbids_to_write_refuses_while_a_request_is_pending(scene):
    vault = Vault.open(scene.path, wait=0.0)
    bereave(scene)
    scene.path.with_suffix(".ledger").chmod(0o400)
    with pytest.raises(Unfinished, match="may not write"):
        vault.predict(PROBE)
    scene.path.with_suffix(".ledger").chmod(0o600)
    assert scene.epoch(vault.predict(PROBE)) == 1


# All at once


def watch(vault):
    """How long the ledger was when each thread last looked at it through this vault."""
    stamp, mine = vault._reader._ledger.stamp, threading.local()

    def look():
        found = stamp()
        mine.size = found[1]
        return found

    vault._reader._ledger.stamp = look
    return mine


def read_on(vault, look, last, tell):
    """Predict until the last value comes; tell of each new value. All answers, each with its last look."""
    answers, told = set(), None
    while told != last:
        value = float(vault.predict(PROBE)[0])
        answers.add((look.size, value))
        if value != told:
            told = value
            tell(value)
    return answers


def read_in_a_process(path, last, pipe):
    vault = Vault.open(path)
    pipe.send(read_on(vault, watch(vault), last, pipe.send))


def check(scene, answers):
    """No answer is older than what its last look found; and the answers are of all ages."""
    for size, value in answers:
        assert scene.values.index(value) >= scene.accepted(size)
    assert {value for _, value in answers} == set(scene.values)


def heard(pipe):
    assert pipe.poll(PATIENCE), "a reader is dead"
    return pipe.recv()


def test_no_process_answers_from_an_older_model_than_its_last_look_at_the_ledger_allows(scene):
    pipes = []
    for _ in range(2):
        ours, theirs = process.Pipe()
        process.Process(target=read_in_a_process, args=(scene.path, scene.values[-1], theirs), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    writer = Vault.open(scene.path)
    for k, value in enumerate(scene.values):
        assert [heard(pipe) for pipe in pipes] == [value, value]
        if k < len(scene.values) - 1:
            asked(k).ask(writer)
    for pipe in pipes:
        check(scene, heard(pipe))


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False], ids=["of the same vault", "of their own"])
def test_no_thread_answers_from_an_older_model_than_its_last_look_at_the_ledger_allows(scene, same):
    writer = Vault.open(scene.path)
    answers, told = [], [queue.Queue() for _ in range(3)]
    shared = writer if same else Vault.open(scene.path)
    look = watch(shared)

    def read(q):
        answers.append(read_on(shared, look, scene.values[-1], q.put))

    threads = [threading.Thread(target=read, args=(q,), daemon=True) for q in told]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for k, value in enumerate(scene.values):
            assert [q.get(timeout=PATIENCE) for q in told] == [value] * 3
            if k < len(scene.values) - 1:
                asked(k).ask(writer)
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(interval)
    assert len(answers) == 3
    for some in answers:
        check(scene, some)


def test_a_thread_that_comes_late_with_an_old_model_does_not_pass_it_on_as_the_new_one(scene):
    vault, other = Vault.open(scene.path), Vault.open(scene.path)
    mine = vault._reader
    old = mine.get_model()
    seen_before = mine._cached
    other.unlearn([0])
    new = mine.get_model()
    assert new is not old

    class Late(tuple):
        """A stamp that, while it is compared, sees another thread put back what it had loaded before."""

        def __eq__(self, other):
            mine._cached = seen_before
            return tuple(self) == other

        __hash__ = tuple.__hash__

    mine._cached = Late(mine._cached[0]), new
    assert mine.get_model() is new
