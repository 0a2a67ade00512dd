"""A process that was forked: it keeps no lock of its parent's, and both can use what they have."""

import os
import select
import shutil
import signal
import sys
import threading
import traceback

import numpy as np
import pytest

from expunge.errors import VaultBusy
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.ledger import locks

from support.disks import Unsynced, used
from support.vaults import BESIDE, duplicate, made, people, random_table

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

PROBE = np.zeros((2, 2))
PATIENCE = 60  # seconds after which a child that says nothing hangs


class Child:
    """A forked process that does something, tells that it is done, and lives until it is let go."""

    def __init__(self, task):
        self._done, done = os.pipe()
        stay, self._stay = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                task()
                os.write(done, b".")
            except BaseException:
                traceback.print_exc(file=sys.stderr)
                os.write(done, b"!")
            os.close(self._stay)
            os.read(stay, 1)
            os._exit(0)
        os.close(done)
        os.close(stay)

    def hear(self):
        ready, _, _ = select.select([self._done], [], [], PATIENCE)
        assert ready, "the child hangs"
        return os.read(self._done, 1) == b"."

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._stay)
        if not select.select([self._done], [], [], PATIENCE)[0]:
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._done)


class Paused(Unsynced):
    """A disk on which a request stops at its first sync of the ledger, until it is let go."""

    def __init__(self, ledger):
        self._ledger, self.reached, self.go_on = ledger, threading.Event(), threading.Event()

    def sync(self, fd):
        if os.path.samestat(os.fstat(fd), os.stat(self._ledger)) and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE)


def ask(vault, one):
    vault.predict(PROBE)
    assert vault.unlearn([one]).rows == people().count(one)
    assert vault.verify().ok


def test_parent_and_child_both_use_their_object(vault):
    vault.unlearn(["person-1"])
    with Child(lambda: ask(vault, "person-2")) as child:
        assert child.hear()
        ask(vault, "person-3")
    with Child(lambda: ask(vault, "person-4")) as child:
        assert child.hear()
    assert [r.number for r in vault.requests] == [1, 2, 3, 4, 5]
    assert vault.verify().ok


def test_a_child_that_was_forked_while_a_thread_writes_neither_hangs_nor_keeps_the_lock(vault):
    path = vault.places.vault
    with used(Paused(vault.places.ledger)) as disk:
        thread = threading.Thread(target=vault.unlearn, args=(["person-1"],))
        thread.start()
        assert disk.reached.wait(PATIENCE)

        def task():
            files.system = Unsynced()
            ask(vault, "person-2")  # waits for the parent, which is not in the way for ever

        with Child(task) as child, Child(lambda: None) as idle:
            assert idle.hear()
            disk.go_on.set()
            thread.join(PATIENCE)
            assert child.hear()
            assert Vault.open(path, wait=0.0).unlearn(["person-3"]).rows == 1  # both children are alive
            assert vault.unlearn(["person-4"]).rows == 2
    assert [r.number for r in vault.requests] == [1, 2, 3, 4, 5]
    assert vault.verify().ok


def test_the_lock_of_a_parent_that_is_killed_does_not_live_on_in_its_child(vault):
    """The parent of the two is a child itself: it holds the lock in a thread, forks, and is killed."""
    path = vault.places.vault
    telling, tell = os.pipe()
    stay, go = os.pipe()
    middle = os.fork()
    if not middle:
        os.close(go)
        held = threading.Event()

        def hold():
            with vault._writer.lock(0.0):
                held.set()
                threading.Event().wait()

        threading.Thread(target=hold, daemon=True).start()
        held.wait(PATIENCE)
        if not os.fork():
            os.write(tell, b"child")
            os.read(stay, 1)
            os._exit(0)
        signal.pause()
    assert select.select([telling], [], [], PATIENCE)[0]
    try:
        with pytest.raises(VaultBusy):
            Vault.open(path, wait=0.0).unlearn(["person-1"])
        os.kill(middle, signal.SIGKILL)
        os.waitpid(middle, 0)
        assert Vault.open(path, wait=0.0).unlearn(["person-1"]).rows == 1
    finally:
        os.close(go)
        for fd in (telling, tell, stay):
            os.close(fd)


def test_a_lock_is_given_back_although_somebody_else_has_the_file_open(vault):
    """As a process has that a library forked by itself."""
    with vault._writer.lock(0.0):
        copies = [os.dup(fd) for fd in vault._writer.ledger._lock_fds]
    try:
        assert copies
        assert Vault.open(vault.places.vault, wait=0.0).unlearn(["person-1"]).rows == 1
    finally:
        for fd in copies:
            os.close(fd)


def test_the_number_of_the_locks_file_is_nothing_in_a_child_and_not_free(vault):
    """What the child opens gets another, so nothing that closes this one by mistake does harm."""
    with vault._writer.lock(0.0):
        (fd,) = vault._writer.ledger._lock_fds

        def task():
            assert os.path.samestat(os.fstat(fd), os.stat(os.devnull))
            assert not os.get_inheritable(fd)

        with Child(task) as child:
            assert child.hear()
        with pytest.raises(VaultBusy):
            Vault.open(vault.places.vault, wait=0.0).unlearn(["person-1"])


FORKING = {
    "add": lambda vault, fork: vault.add(random_table(["new-1", "new-2"], seed=1), progress=fork),
    "rebound": lambda vault, fork: vault.rebound({"x0": (-2, 2)}, progress=fork),
    "replace": lambda vault, fork: made(vault.places.vault, replace=True, progress=fork),
    "create": lambda vault, fork: made(vault.places.vault.with_name("new.vault"), progress=fork),
}


@pytest.mark.parametrize("kind", FORKING)
@pytest.mark.parametrize("at", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("late", [False, True], ids=["beside", "after"])
def test_a_child_that_was_forked_in_the_midst_of_a_request_refuses_and_leaves_the_parents_files_alone(
    vault, kind, at, late
):
    """The child comes back from what was called, as if the request were its own; ``late``: when the parent is done."""
    calls = []
    dry = duplicate(vault.places.vault, vault.places.vault.with_name("dry"))  # the same key: as many calls as there
    FORKING[kind](Vault.open(dry), lambda *_: calls.append(1))
    if (new := vault.places.vault.with_name("new.vault")).exists():
        for part in (new, *map(new.with_suffix, BESIDE)):
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
    when = range(len(calls))[at]
    told, tell = os.pipe()
    ended, end = os.pipe()
    seen = []

    def fork(*_):
        seen.append(1)
        if len(seen) - 1 == when and not os.fork():
            seen.append("child")
            os.close(end)
            if late:
                os.read(ended, 1)  # nothing comes: the parent closes the other end

    try:
        FORKING[kind](vault, fork)
    except BaseException as error:
        if "child" not in seen:
            raise
        os.write(tell, type(error).__name__.encode())
        os._exit(0)
    if "child" in seen:
        os.write(tell, b"it was carried out")
        os._exit(0)
    os.close(end)
    assert select.select([told], [], [], PATIENCE)[0]
    assert os.read(told, 100) == b"VaultBusy"
    os.wait()
    done = Vault.open(vault.places.vault.with_name("new.vault")) if kind == "create" else vault
    assert done.verify().ok
    assert len(done.requests) == (1 if kind == "create" else 2)


def test_a_child_that_was_forked_in_the_midst_of_a_request_can_open_the_vault_anew(vault):
    path, inside = vault.places.vault, []

    def fork(*_):
        if not inside:
            inside.append(Child(refused_then_anew))

    def refused_then_anew():
        for asked in (lambda: vault.unlearn(["person-1"]), lambda: vault.add(random_table(["new-9"]))):
            with pytest.raises(VaultBusy, match="forked during a request"):
                asked()
        assert Vault.open(path, wait=PATIENCE).unlearn(["person-1"]).rows == 1

    vault.add(random_table(["new-1"], seed=1), progress=fork)
    with inside[0] as child:
        assert child.hear()
    assert [r.kind for r in vault.requests] == ["train", "add", "unlearn"]
    assert vault.verify().ok


def test_ctrl_c_at_the_beginning_of_a_child_keeps_nobody_from_knowing():
    class Watched:
        told = 0

        def reset_after_fork(self):
            self.told += 1
            if sum(one.told for one in watched) == 1:
                raise KeyboardInterrupt

    watched = [Watched() for _ in range(3)]
    for one in watched:
        locks.reset_on_fork(one)
    if not (child := os.fork()):
        os._exit(0 if all(one.told for one in watched) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
