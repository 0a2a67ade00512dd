"""Two first trainings at one place at once, of which one is interrupted: it removes its own files, and no others."""

import os
import shutil
import threading
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import ExpungeError, InvalidFile, InvalidSetting, MissingData, VaultBusy
from expunge.vault import Vault
from expunge.vault.ledger.ledger import Ledger

from support.disks import Interrupted, Unsynced, used
from support.sampling import examples, sampled
from support.vaults import made, people, random_table

TABLES = {name: random_table(people(), seed=seed) for seed, name in enumerate(("mine", "other's"))}
PATIENCE = 30


def train(path, name="mine", wait=0.0):
    return made(path, TABLES[name], wait=wait)


def tried(path, name="mine", wait=0.0):
    """Train, and say how that ended."""
    try:
        return train(path, name, wait).receipt
    except (ExpungeError, OSError, KeyboardInterrupt) as error:
        return error


def check(path, *answers):
    """Whoever was told that it is done has a vault; if nobody was, it was not accepted, and can be done again."""
    done = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(done) <= 1
    honest = (KeyboardInterrupt, VaultBusy, MissingData, InvalidSetting)
    assert all(isinstance(answer, honest) for answer in answers if isinstance(answer, BaseException)), answers
    if done or _accepted(path):
        vault = Vault.open(path, wait=0.0)
        assert vault.verify().ok
        assert [r.state for r in vault.requests] == ["certified"]
        return
    with pytest.raises((MissingData, InvalidFile)):
        Vault.open(path, wait=0.0)
    assert train(path).verify().ok


def _accepted(path):
    ledger = path.with_suffix(".ledger")
    return ledger.exists() and any(record.is_request for record in Ledger(ledger).read()[0])


class Meeting(Interrupted):
    """A disk on which somebody else acts before one operation, and that is interrupted before another, once."""

    def __init__(self, meet=None, meanwhile=None, interrupt=None):
        self._meet, self._meanwhile, self._interrupt = meet, meanwhile, interrupt
        self.operations = 0

    def before(self, *_):
        k, self.operations = self.operations, self.operations + 1
        if k == self._meet:
            with used(Unsynced()):
                self._meanwhile()
        if k == self._interrupt:
            raise KeyboardInterrupt


def interrupted_at(path, k, name="other's"):
    with used(Meeting(interrupt=k)) as disk:
        answer = tried(path, name)
    return answer, disk.operations > k


@pytest.mark.slow
def test_a_first_training_that_is_interrupted_anywhere_leaves_nothing_or_is_finished(tmp_path):
    for k in count():
        root = tmp_path / f"{k}"
        root.mkdir()
        answer, reached = interrupted_at(root / "v.vault", k)
        if not reached:
            break
        if not _accepted(root / "v.vault"):
            assert isinstance(answer, KeyboardInterrupt)
            assert {part.name for part in root.iterdir()} <= {"v.ledger"}  # empty, if it was just being made
            assert not any(part.stat().st_size for part in root.iterdir())
        check(root / "v.vault", answer)
    assert k > 50


def places(tmp_path):
    """How many operations a first training takes; the first third makes the vault, the rest fills it."""
    with used(Meeting()) as disk:
        train(tmp_path / "dry.vault")
    founding = range(disk.operations // 3)
    return [*founding, *range(len(founding), disk.operations, 9)]


@pytest.mark.slow
@pytest.mark.no_cover
@sampled("every", (7, 4), (1, 1))
def test_who_is_interrupted_while_another_trains_leaves_the_others_files_alone(tmp_path, every):
    """The other stops before each of its operations, and meanwhile somebody begins, and is interrupted anywhere."""
    here = places(tmp_path)
    for k in here[:: every[0]]:
        for m in here[k % every[1] :: every[1]]:
            root = tmp_path / f"{k} {m}"
            root.mkdir()
            answers = []
            disk = Meeting(
                k, lambda root=root, m=m, answers=answers: answers.append(interrupted_at(root / "v.vault", m)[0])
            )
            with used(disk):
                mine = tried(root / "v.vault")
            check(root / "v.vault", mine, *answers)
            shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.no_cover
@sampled("every", (7, 4), (1, 1))
def test_who_is_interrupted_after_another_has_trained_leaves_the_others_vault_alone(tmp_path, every):
    """Before each of its operations somebody else comes and trains; then it goes on, and is interrupted anywhere."""
    here = places(tmp_path)
    for k in here[:: every[0]]:
        for m in [m for m in here if m >= k][k % every[1] :: every[1]]:
            root = tmp_path / f"{k} {m}"
            root.mkdir()
            answers = []
            disk = Meeting(k, lambda root=root, answers=answers: answers.append(tried(root / "v.vault")), interrupt=m)
            with used(disk):
                mine = tried(root / "v.vault", "other's")
            check(root / "v.vault", mine, *answers)
            shutil.rmtree(root)


class Scheduled(Interrupted):
    """A disk that lets two threads take turns, operation by operation, as a schedule says; then both are free."""

    def __init__(self, schedule, interrupt):
        self._schedule, self._interrupt = list(schedule), interrupt
        self._turn, self._ended = threading.Condition(), set()
        self._operations = [0, 0]

    def before(self, name, *args):
        if name == "open" and args[1] == os.O_RDWR:
            return  # the ledger, to be locked: nobody can fork or open another meanwhile, nor wait for a turn
        me = int(threading.current_thread().name)
        with self._turn:
            assert self._turn.wait_for(lambda: self._may_go(me), PATIENCE)
            if self._schedule:
                self._schedule.pop(0)
            self._turn.notify_all()
            k, self._operations[me] = self._operations[me], self._operations[me] + 1
        if me == 1 and k == self._interrupt:
            raise KeyboardInterrupt

    def _may_go(self, me):
        while self._schedule and self._schedule[0] in self._ended:
            self._schedule.pop(0)
        return not self._schedule or self._schedule[0] == me

    def end(self, me):
        with self._turn:
            self._ended.add(me)
            self._turn.notify_all()


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(1, 25)), max_size=12),
    st.integers(0, 130),
    st.sampled_from([0.0, 0.05]),
)
@examples(50)
def test_in_every_order_of_their_operations_the_one_that_is_interrupted_removes_its_own_files_only(
    tmp_path_factory, turns, interrupt, wait
):
    root = tmp_path_factory.mktemp("orders")
    disk = Scheduled([who for who, operations in turns for _ in range(operations)], interrupt)
    answers = {}

    def work(me):
        try:
            answers[me] = tried(root / "v.vault", list(TABLES)[me], wait)
        finally:
            disk.end(me)

    threads = [threading.Thread(target=work, args=(me,), name=str(me)) for me in (0, 1)]
    with used(disk):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    check(root / "v.vault", *answers.values())
    assert len(answers) == 2
    shutil.rmtree(root)


def test_what_was_there_before_a_first_training_that_fails_stays(tmp_path):
    path = tmp_path / "v.vault"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    (tmp_path / "v.key").write_bytes(made(tmp_path / "other.vault").places.key.read_bytes())
    (tmp_path / "v.key").chmod(0o600)
    before = sorted(tmp_path.rglob("*"))
    for k in (10, 20, 40):
        answer, _ = interrupted_at(path, k)
        assert isinstance(answer, KeyboardInterrupt)
        assert sorted(tmp_path.rglob("*")) == before
    assert os.listdir(path) == ["notes.txt"]
    assert train(path).verify().ok
