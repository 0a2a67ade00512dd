"""Backups and restores on a disk that fails, stops or forgets: all or nothing, and doing it again works."""

import json
import os
import shutil

import pytest

from expunge.errors import ExpungeError, InvalidFile, MissingData
from expunge.vault import Backup, Vault

from support.disks import Crash, Unsynced, used
from support.faulty import Fault
from support.sampling import sampled
from support.trials import BOUNDS, COPIES, NAME, Trial, World, fitting, operations, settled, steps, told

pytestmark = pytest.mark.no_cover
BACKUP = next(command for command in COPIES if command.name == "backup")
CLONE = next(command for command in COPIES if command.name == "clone")
RESTORES = [command for command in COPIES if command.name.startswith("restore")]


@pytest.fixture(scope="module", params=BOUNDS)
def world(tmp_path_factory, request):
    return World(request.param, tmp_path_factory.mktemp("world"))


def some(world, log, every, test):
    """One in so many of the operations that change something; each world and test has others."""
    share = 2 * BOUNDS.index(world.bounds) + test
    changing = [k for k in steps(log) if log[k].changes or log[k].name == "sync"]
    return changing[share % every :: every]


@pytest.mark.slow
@sampled("every", 12, 1)
@pytest.mark.parametrize("command", COPIES, ids=str)
def test_after_a_fault_all_is_as_before_or_as_after_and_goes_on(world, command, every):
    log = operations(world, command)
    for k in some(world, log, every, 0):
        fault = fitting(log[k], k)
        with told(command, fault, log[k]), Trial(world, command) as trial:
            trial.run(fault)
            assert trial.disk.struck
            check(trial)


@pytest.mark.slow
@sampled("every", 12, 1)
@pytest.mark.parametrize("command", COPIES, ids=str)
def test_a_process_that_ends_or_a_power_cut_leaves_all_as_before_or_as_after(world, command, every):
    log = operations(world, command)
    for k in some(world, log, every, 1):
        fault = Fault("torn" if log[k].size > 1 and k % 2 else "stop", k)
        with told(command, fault, log[k]), Trial(world, command) as trial:
            trial.run(fault)
            assert isinstance(trial.error, Crash)
            check(trial, seeds=(k,))


def check(trial, seeds=()):
    """What must be true of the vault; and of a backup: it is whole, or it is not there and can be made."""
    if trial.command is BACKUP:
        check_backup(trial)
        for seed in (None, *seeds):
            with trial.power_cut(seed) as cut, used(cut.disk):
                check_backup(cut)
    if trial.command is CLONE:
        for seed in (None, *seeds):
            with trial.power_cut(seed) as cut:
                check_clone(cut)
    trial.check(seeds)
    if trial.command is CLONE:
        check_clone(trial)


def check_backup(trial):
    target = trial.root / "copy"
    with used(trial.disk):
        trial.disk.heal()
        if not os.path.lexists(target):
            assert trial.error is not None
            Vault.open(trial.root / NAME).backup(target)
            assert not [name for name in os.listdir(trial.root) if name.endswith(".partial")]
        check_usable(trial, target)


def check_clone(trial):
    """A clone that can be opened is whole, and the source knows it."""
    with used(trial.disk):
        trial.disk.heal()
        source = Vault.open(trial.root / NAME)
        records = map(json.loads, source.places.ledger.read_text().splitlines())
        known = [record["clone"] for record in records if record["kind"] == "clone"]
        try:
            clone = Vault.open(trial.root / "other.vault")
        except (MissingData, InvalidFile):
            assert trial.error is not None
            return
        assert clone.verify().ok
        assert clone.status().vault in known


def check_usable(trial, backup):
    place = trial.world.fresh()
    place.mkdir()
    Backup.read(backup)
    with used(Unsynced()):
        Vault.restore(backup, place / NAME, nothing_erased_since=True)
        settled(place, {trial.before})
    shutil.rmtree(place)


def test_what_is_acknowledged_is_synced(world):
    for command in COPIES:
        with Trial(world, command).run() as trial:
            assert trial.error is None, trial.error
            assert trial.disk.unsynced() == []


@pytest.mark.parametrize("command", RESTORES, ids=str)
def test_a_restore_that_fails_leaves_nothing_in_place_but_what_it_can_go_on_with(world, command):
    log = operations(world, command)
    renamed = next(k for k, one in enumerate(log) if str(one) == f"rename {NAME}")
    with Trial(world, command).run(Fault("error", renamed)) as trial:
        assert isinstance(trial.error, OSError)
        assert not [name for name in os.listdir(trial.root) if name.endswith(".restoring")]
        with pytest.raises(ExpungeError):
            Vault.open(trial.root / NAME)
        command.run(world, trial.root, None)
        settled(trial.root, {trial.after}, certified=True)
