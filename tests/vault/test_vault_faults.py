"""A vault on a disk that fails, stops or forgets is as it was before a request, or as it is after it.

These tests try one operation of each kind, in one of two vaults, with a fault or with the end of the process;
`torture_faults.py` tries every operation in both with every fault, and every fault of the recovery.
"""

import json
import os
from pathlib import Path

import pytest

from expunge import CodedRegressor
from expunge.errors import Unfinished
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.disk.folder import parse_pointers, pointer_line
from expunge.vault.requests import REQUEST_TYPES
from expunge.vault.requests import request as requests

from support.disks import Crash, used
from support.faulty import Fault, Faulty
from support.forgetful import Forgetful, Operation
from support.trials import (
    BOUNDS,
    COMMANDS,
    NAME,
    NOTHING,
    REQUESTS,
    Trial,
    World,
    fitting,
    operations,
    settled,
    steps,
    told,
)
from support.vaults import made, random_table

pytestmark = pytest.mark.no_cover


@pytest.fixture(scope="module", params=BOUNDS)
def world(tmp_path_factory, request):
    return World(request.param, tmp_path_factory.mktemp("world"))


def some(world: World, log: list[Operation], test: int) -> list[int]:
    """A quarter of the kinds of operations that change something; the other world and test have the others.

    Of those that read a few.
    """
    writing = [k for k in steps(log) if log[k].changes or log[k].name == "sync"]
    reading = sorted({*steps(log)} - {*writing})
    share = 2 * BOUNDS.index(world.bounds) + test
    return writing[share::4] + reading[3 * share :: 12]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_after_a_fault_all_is_as_before_or_as_after_and_goes_on(world, command):
    log = operations(world, command)
    for k in some(world, log, 0):
        fault = fitting(log[k], k)
        with told(command, fault, log[k]), Trial(world, command) as trial:
            trial.run(fault)
            assert trial.disk.struck
            trial.check()


@pytest.mark.slow
@pytest.mark.parametrize("command", REQUESTS, ids=str)
def test_a_process_that_ends_or_a_power_cut_leaves_all_as_before_or_as_after(world, command):
    log = operations(world, command)
    for k in some(world, log, 1):
        if log[k].changes or log[k].name == "sync":
            fault = Fault("torn" if log[k].size > 1 and k % 2 else "stop", k)
            with told(command, fault, log[k]), Trial(world, command) as trial:
                trial.run(fault)
                assert isinstance(trial.error, Crash)
                trial.check(seeds=(k,))


@pytest.mark.parametrize("command", [command for command in REQUESTS if command.name.endswith("_key")], ids=str)
def test_who_says_that_the_key_was_not_changed_has_not_changed_it(world, command):
    log = operations(world, command)
    for k in steps(log)[2 if world.bounds == "declared" else 0 :: 4]:
        fault = fitting(log[k], k)
        with told(command, fault, log[k]), Trial(world, command) as trial:
            keys = Vault.open(trial.root / NAME, read_only=True).public_keys()
            trial.run(fault)
            changed = Vault.open(trial.root / NAME).public_keys() != keys
            assert changed == (trial.error is None or isinstance(trial.error, Unfinished)), repr(trial.error)


def test_leaves_of_a_request_that_was_refused_do_not_come_back_with_a_power_cut(world):
    command = next(command for command in REQUESTS if command.name == "unlearn")
    at = next(k for k, operation in enumerate(operations(world, command)) if str(operation) == "write manifest.0")
    with Trial(world, command).run(Fault("full", at)) as trial:
        assert isinstance(trial.error, OSError)
        with used(trial.disk):
            trial.disk.heal()
            trial.vault.unlearn([2])
        with trial.power_cut() as cut:
            assert not [path for path in cut.root.rglob("000005") if path.parent.suffix == ".leaves"]


@pytest.mark.slow
@pytest.mark.parametrize("command", REQUESTS, ids=str)
def test_a_recovery_that_fails_is_recovered_from(world, command):
    log = operations(world, command)
    changing = [k for k, operation in enumerate(log) if operation.changes]
    k = changing[(2 if world.bounds == "declared" else 3) * len(changing) // 4]
    with Trial(world, command).run(Fault("stop", k)).recover() as trial:
        recovery = list(trial.disk.log)
    for j in steps(recovery)[k % 12 :: 12]:
        fault = fitting(recovery[j], j) if j % 2 else Fault("stop", j)
        with told(command, log[k], fault, recovery[j]), Trial(world, command) as trial:
            trial.run(Fault("stop", k)).recover(fault)
            assert trial.disk.struck
            trial.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "operation"),
    [
        ("unlearn", "sync", "sync people.1.0"),  # the tombstone could be read, so it was not written again
        ("unlearn", "torn", "write people.1.0"),  # a torn entry failed its checksum for ever
        ("readmit", "torn", "write people.1.0"),
        ("create", "stop", "sync identity.json"),  # it could be read, so it was not synced again
        ("create", "sync", "sync small.ledger"),  # cleaning up left a ledger whose folder had no identity
        ("create", "error", "sync small.ledger"),  # an error of cleaning up hid that a sync had failed
        ("renew_key", "stop", "sync trial"),  # a certificate was signed before the public key's name was synced
        ("renew_key", "error", "read small.key"),  # a key that was just made had to be readable
    ],
)
def test_faults_that_once_did_harm(world, name, kind, operation):
    command = next(command for command in COMMANDS if command.name == name)
    places = [k for k, found in enumerate(operations(world, command)) if str(found).startswith(operation)]
    assert places
    for k in places:
        with told(k), Trial(world, command) as trial:
            trial.run(Fault(kind, k, lasting=world.bounds == "observed")).check()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["create", "replace", "add", "unlearn", "rebound"])
def test_an_acceptance_that_was_written_and_never_synced_is_synced_before_it_is_carried_out(world, name):
    command = next(command for command in COMMANDS if command.name == name)
    names = [str(operation) for operation in operations(world, command)]
    accepted = max(k for k, what in enumerate(names[: _committed(names)]) if what == "write small.ledger")
    with Trial(world, command).run(Fault("stop", accepted + 1)).recover() as trial:
        committed = _committed([str(operation) for operation in trial.disk.log])
        recovery = list(trial.disk.log)
    for j in range(committed + 1, committed + 6):
        fault = Fault("stop", j) if world.bounds == "declared" else fitting(recovery[j], j)
        with told(fault, recovery[j]), Trial(world, command) as trial:
            trial.run(Fault("stop", accepted + 1)).recover(fault).check()


def _committed(names):
    """Where a manifest was made the one that counts."""
    return next(k for k, what in enumerate(names) if what in ("write current", "rename current"))


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_what_is_acknowledged_is_synced(world, command):
    with Trial(world, command).run() as trial:
        assert trial.error is None
        assert trial.disk.unsynced() == []


@pytest.mark.parametrize(("people", "long", "syncs"), [([4], 1000, 12), ([4, 8], 1000, 14), ([4, 8], 0, 22)])
def test_an_erasure_takes_so_many_syncs_and_changes_no_name_in_the_folder(tmp_path, monkeypatch, people, long, syncs):
    monkeypatch.setattr(requests, "MAX_INLINE_ENTRIES", long)
    root = tmp_path / "disk"
    root.mkdir()
    rows = random_table([k % 20 for k in range(40)], seed=0)
    vault = made(root / NAME, rows, model=CodedRegressor(shards=4, rate=4, random_state=0))  # one learner
    vault.unlearn([1, 2])  # makes the folder of the leaves
    names, disk = os.listdir(root / NAME), Forgetful(root)
    with used(disk):
        vault.unlearn(people)
    assert sum(operation.name == "sync" for operation in disk.log) == syncs
    assert sorted(os.listdir(root / NAME)) == sorted(names)


class Watched(Forgetful):
    """A disk that notes what comes too early, or goes with something still in it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before = self._requests()
        self.old = list(getattr(self.node(root / NAME), "names", {}).values())
        self.accepted = self.named = self.committed = False
        self.wrong: list[str] = []

    def _requests(self) -> int:
        node = self.node((self.root / NAME).with_suffix(".ledger"))
        lines = bytes(node.durable).splitlines() if node else []
        return sum(json.loads(line)["kind"] in REQUEST_TYPES for line in lines)

    def _expect(self, right: bool, what: str) -> None:
        self.wrong += [] if right else [what]

    def sync(self, fd: int) -> None:
        super().sync(fd)
        path, _ = self._opened[fd]
        if not self.accepted and self._requests() > self.before:
            self.accepted = True
            self._expect(not self.unsynced(), f"accepted before it is prepared: {self.unsynced()}")
        self.committed = self.committed or (self.named and path in (self.root / NAME, self.root / NAME / "current"))

    def rename(self, old: files.Location, new: files.Location, folder: int | None = None) -> None:
        super().rename(old, new, folder)
        if new.name == "current":  # of a first training
            self._name()

    def _name(self) -> None:
        self._expect(self.accepted, "committed before it is accepted")
        self.named = True

    def put(self, fd: int, data: files.Data, offset: int) -> int:
        path, node = self._opened[fd]
        was = bytes(node.durable[offset : offset + len(data)])
        same = was == bytes(data)[: len(was)]
        if path.suffix == ".ledger":
            self._expect(same, "a record is overwritten")
        elif path.name == "current":
            counts = max(parse_pointers(bytes(node.durable), path))
            self._expect(was != pointer_line(counts) or same, "the name of the manifest that counts is overwritten")
            self._name()
        elif node in self.old and not self.committed:
            self._expect(same or not any(was), f"{path.name} is overwritten before the commit is synced")
        return super().put(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        path, node = self._opened[fd]
        if path.suffix == ".ledger" or (node in self.old and not self.committed):
            self._expect(size >= len(node.durable), f"{path.name} is cut")
        super().truncate(fd, size)

    def unlink(self, path: files.Location, folder: int | None = None) -> None:
        node = self.node(Path(path))
        self._expect(node not in self.old or self.committed, f"{path.name} is removed before the commit is synced")
        self._expect(not node.unsynced and not any(node.durable), f"{path.name} is removed before it is wiped")
        super().unlink(path, folder)


RECORDED = [command for command in REQUESTS if not command.name.endswith("_key")]  # that asks for nothing in the ledger
RESUMED = [command for command in RECORDED if not command.name.startswith("restore")]  # another is made in its place


@pytest.mark.parametrize("command", RECORDED, ids=str)
def test_the_steps_of_a_request_come_in_order(world, command):
    root = world.copy(command.scene)
    disk = Watched(root)
    with used(disk):
        command.run(world, root, Vault.open(root / NAME) if command.opens else None)
    assert disk.accepted
    assert disk.committed
    assert disk.wrong == []


@pytest.mark.parametrize("command", RESUMED, ids=str)
def test_the_steps_come_in_order_in_a_recovery_too(world, command):
    log = [str(operation) for operation in operations(world, command)]
    accepted = max(k for k in range(_committed(log)) if log[k] == "sync small.ledger")
    with Trial(world, command).run(Fault("stop", accepted + 1)) as trial:
        disk = Watched(trial.root)
        disk.accepted = True
        with used(disk):
            settled(trial.root, {trial.after})
        assert disk.wrong == []


@pytest.mark.slow
def test_a_first_training_that_fails_leaves_nothing_unless_it_was_accepted(world):
    command = next(command for command in COMMANDS if command.name == "create")
    log = operations(world, command)
    for k in steps(log):
        with told(log[k]), Trial(world, command).run(Fault("error", k)) as trial:
            if trial.error is not None and trial.allowed == {NOTHING}:
                assert os.listdir(trial.root) == []


class Dribbling(Forgetful):
    """A disk that never does all that it is asked to at once."""

    def read(self, fd, count, offset):
        return super().read(fd, min(count, 7), offset)

    def write(self, fd, data, offset):
        return super().write(fd, data[:5], offset)


@pytest.mark.slow
@pytest.mark.parametrize("command", REQUESTS, ids=str)
def test_reads_and_writes_in_small_pieces_make_no_difference(world, command):
    root = world.copy(command.scene)
    with used(Dribbling(root)):
        command.run(world, root, Vault.open(root / NAME) if command.opens else None)
        settled(root, {world.states(command)[1]}, certified=True)


# The disks themselves


@pytest.fixture
def disk(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    disk = Faulty(root)
    with used(disk):
        yield disk


def test_a_power_cut_takes_what_was_not_synced(disk):
    with files.open_file(disk.root / "old", os.O_WRONLY) as fd:
        files.write_all(fd, b"new", 0)
        assert (disk.root / "old").read_bytes() == b"new"
        assert disk.left() == {"old": b"old"}
        assert disk.unsynced()
        files.sync(fd)
        assert disk.left() == {"old": b"new"}
        files.system.truncate(fd, 1)
        assert disk.left() == {"old": b"new"}
        assert not disk.lasts
        files.sync(fd)
    assert disk.left() == {"old": b"n"}
    assert disk.lasts


def test_a_power_cut_takes_names_that_were_not_synced(disk):
    files.create(disk.root / "new", b"new")
    assert disk.left() == {"old": b"old"}
    files.sync_folder(disk.root)
    assert disk.left() == {"old": b"old", "new": b"new"}
    files.system.rename(disk.root / "new", disk.root / "old")
    assert disk.left() == {"old": b"old", "new": b"new"}
    files.sync_folder(disk.root)
    assert disk.left() == {"old": b"new"}
    files.system.unlink(disk.root / "old")
    assert disk.left() == {"old": b"new"}
    files.sync_folder(disk.root)
    assert disk.left() == {}


def test_a_name_may_last_without_its_content(disk):
    with files.open_file(disk.root / "new", os.O_WRONLY | os.O_CREAT) as fd:
        files.write_all(fd, b"new", 0)
    files.sync_folder(disk.root)
    assert disk.left()["new"] == b""


def test_by_chance_some_of_what_was_not_synced_is_there_in_any_order(disk):
    with files.open_file(disk.root / "old", os.O_WRONLY) as fd:
        for k, letter in enumerate((b"a", b"b")):
            files.write_all(fd, letter, k)
    found = {disk.left(seed)["old"] for seed in range(50)}
    assert found == {b"old", b"ald", b"obd", b"abd"}


def test_what_a_failed_sync_lost_can_be_read_and_never_lasts(disk):
    with files.open_file(disk.root / "old", os.O_WRONLY) as fd:
        files.write_all(fd, b"n", 0)
        disk.arm(Fault("sync"))
        with pytest.raises(files.SyncFailed, match="could not be synced: Input/output error"):
            files.sync(fd)
        files.write_all(fd, b"w", 2)
        files.sync(fd)
    assert (disk.root / "old").read_bytes() == b"nlw"
    assert disk.left() == {"old": b"olw"}


def test_a_short_write_writes_half_and_then_the_disk_is_full(disk):
    disk.arm(Fault("short", 1))
    with pytest.raises(OSError, match="No space left on device"):
        files.create(disk.root / "new", b"1234")
    assert (disk.root / "new").read_bytes() == b"12"


def test_a_process_that_has_ended_does_nothing_more(disk):
    disk.arm(Fault("torn", 1))
    with pytest.raises(Crash):
        files.create(disk.root / "new", b"1234")
    with pytest.raises(Crash):
        files.system.unlink(disk.root / "new")
    assert (disk.root / "new").read_bytes() == b"12"
