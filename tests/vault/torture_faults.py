"""Every fault at every operation of every command, and every fault of the recovery after every crash.

    python -m pytest -n auto tests/vault/torture_faults.py

It takes most of an hour on two cores, so a plain run of the tests leaves it out: its name does not begin with test_.
Nothing is drawn and no time passes here, so many faults leave the same disk: it is looked at once.
"""

import pytest

from support.faulty import Fault
from support.trials import BOUNDS, COMMANDS, REQUESTS, Trial, World, fitting, operations, repeatable, told

SEEDS = range(4)
SHARES = 4  # of the work of one command, for as many processes


@pytest.fixture(scope="module", params=BOUNDS)
def world(tmp_path_factory, request):
    with repeatable():
        yield World(request.param, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("kind", ["error", "full", "short", "sync"])
@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_every_fault_at_every_operation(world, command, kind, lasting):
    for k, operation in enumerate(operations(world, command)):
        fault = Fault(kind, k, lasting)
        if fault.concerns(operation):
            with told(command, fault, operation), Trial(world, command) as trial:
                trial.run(fault).check(SEEDS if kind == "sync" else ())


@pytest.mark.parametrize("kind", ["stop", "torn"])
@pytest.mark.parametrize("command", REQUESTS, ids=str)
def test_every_crash(world, command, kind):
    for k, operation in enumerate(operations(world, command)):
        fault = Fault(kind, k)
        if fault.concerns(operation):
            with told(command, fault, operation), Trial(world, command) as trial:
                trial.run(fault).check_once(SEEDS)


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("command", REQUESTS, ids=str)
def test_every_fault_of_the_recovery_from_every_end_of_the_process(world, command, share):
    """What a process leaves when it ends changes only with the operations that change something."""
    log = operations(world, command)
    for k in [k for k, operation in enumerate(log) if operation.changes][share::SHARES]:
        with Trial(world, command).run(Fault("stop", k + 1)) as ended:
            with ended.again().recover() as trial:
                recovery = list(trial.disk.log)
            for j, operation in enumerate(recovery):
                for fault in [fitting(operation, j), *([Fault("stop", j)] if operation.changes else [])]:
                    with told(command, log[k], fault, operation), ended.again() as trial:
                        trial.recover(fault).check_once()


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("command", REQUESTS, ids=str)
def test_every_power_cut_in_the_recovery_from_every_power_cut(world, command, seed):
    """What a power cut leaves changes only with a sync; by chance, what was not synced is there, too."""
    log = operations(world, command)
    for k in [k for k, operation in enumerate(log) if operation.name == "sync"]:
        with Trial(world, command).run(Fault("stop", k)) as ended:
            with ended.power_cut(seed).recover() as cut:
                recovery = list(cut.disk.log)
            for j in [j for j, operation in enumerate(recovery) if operation.name == "sync"]:
                with told(command, log[k], seed, recovery[j]), ended.power_cut(seed) as cut:
                    cut.recover(Fault("stop", j)).check_once(() if seed is None else (seed,))
