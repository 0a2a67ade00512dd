"""Who shares a vault: threads, objects and processes; and whom its files are for."""

import multiprocessing
import threading
from itertools import count

import numpy as np
import pytest

from expunge.errors import VaultBusy
from expunge.vault import Vault

from support.disks import Crash, Ending, used
from support.sampling import sampled
from support.vaults import bits, duplicate, everything, made, random_table


def test_threads_may_share_a_vault(vault):
    errors = []

    def work(k):
        try:
            vault.unlearn([f"person-{k}"])
            vault.predict(np.zeros((3, 2)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [r.number for r in vault.requests] == list(range(1, 10))
    assert vault.verify().ok


def test_a_thread_waits_for_another_no_longer_than_asked_and_predictions_do_not_wait(vault):
    """The thread that writes stops in the midst of its request, until the others have had their answers."""
    vault, reached, go_on = Vault.open(vault.places.vault, wait=0.0), threading.Event(), threading.Event()
    answers = []

    def stop(*_):
        reached.set()
        assert go_on.wait(60)

    writer = threading.Thread(target=lambda: vault.add(random_table(["new-1"], seed=1), progress=stop), daemon=True)
    writer.start()
    assert reached.wait(60)

    def ask():
        for request in (lambda: vault.unlearn(["person-1"]), lambda: vault.find(["person-1"]), vault.verify):
            with pytest.raises(VaultBusy, match="another thread is writing"):
                request()
            answers.append("busy")
        answers.append(vault.predict(np.zeros((1, 2))).shape)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(60)
    assert answers == ["busy"] * 3 + [(1,)]
    go_on.set()
    writer.join(60)
    assert vault.unlearn(["person-1", "new-1"]).request == 3
    assert vault.verify().ok


@pytest.mark.parametrize("wait", [-1.0, 0.0, 1e9, float("inf")])
def test_any_wait_will_do(vault, wait):
    assert Vault.open(vault.places.vault, wait=wait).unlearn(["person-1"]).rows == 1


def test_one_object_sees_what_another_did(vault):
    other = Vault.open(vault.places.vault)
    before = other.predict(np.zeros((1, 2)))
    vault.unlearn(["person-1"])
    assert other.predict(np.zeros((1, 2))) == vault.predict(np.zeros((1, 2))) != before
    other.unlearn(["person-2"])
    assert vault.unlearn(["person-2"]).request == 3
    assert bits(vault) == bits(other)


def test_an_open_vault_is_not_in_the_way_of_others_but_a_writer_is(vault):
    other = Vault.open(vault.places.vault, wait=0.0)
    before = everything(vault.places.vault)
    with vault._writer.lock(0.0):
        for ask in (
            lambda: other.unlearn(["person-1"]),
            lambda: other.add(random_table(["new-1"])),
            lambda: other.rectify(random_table(["person-1"])),
            lambda: other.verify(),
            lambda: made(vault.places.vault, replace=True, wait=0.0),
        ):
            with pytest.raises(VaultBusy):
                ask()
        np.testing.assert_array_equal(other.predict(np.zeros((1, 2))), vault.predict(np.zeros((1, 2))))
        Vault.open(vault.places.vault, wait=0.0).predict(np.zeros((1, 2)))
    assert everything(vault.places.vault) == before
    assert other.unlearn(["person-1"]).rows == 1


def _hold(path, held, release):
    with Vault.open(path)._writer.lock(0.0):
        held.set()
        release.wait(60)


@pytest.mark.slow
def test_another_process_that_writes_keeps_writers_out_until_it_ends(vault):
    spawn = multiprocessing.get_context("spawn")
    held, release = spawn.Event(), spawn.Event()
    process = spawn.Process(target=_hold, args=(vault.places.vault, held, release))
    process.start()
    try:
        assert held.wait(60)
        with pytest.raises(VaultBusy, match="another process is writing"):
            Vault.open(vault.places.vault, wait=0.0).unlearn(["person-1"])
        assert vault.predict(np.zeros((1, 2))).shape == (1,)
    finally:
        process.kill()
        process.join()
    assert Vault.open(vault.places.vault, wait=5.0).unlearn(["person-1"]).rows == 1


def test_what_a_vault_keeps_is_for_its_owner_alone(vault):
    private = [*vault.places.vault.iterdir(), vault.places.key, vault.places.ledger]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert vault.places.vault.stat().st_mode & 0o777 == 0o700


ASKED = {
    "add": lambda vault: vault.add(random_table(["new-1", "new-2", "new-3"], seed=1)),
    "rectify": lambda vault: vault.rectify(random_table(["person-1"], seed=1)),
    "unlearn": lambda vault: vault.unlearn(["person-2"]),
    "rebound": lambda vault: vault.rebound({"x0": (-2, 2)}),
}


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ASKED)
@sampled("every", 3, 1)
def test_wherever_another_process_ends_an_open_vault_goes_on_and_leaves_nothing_of_what_was_not_accepted(
    tmp_path, kind, every
):
    first, seen = made(tmp_path / "v.vault").places.vault, set()
    for k in count(step=every):
        path = duplicate(first, tmp_path / f"{k}")
        vault = Vault.open(path)
        vault.unlearn(["person-3"])  # all of it is in memory
        other, ended = Vault.open(path), False
        with used(Ending(k, torn=bool(k % 2), changes=True)):
            try:
                ASKED[kind](other)
            except Crash:
                ended = True
        accepted = len(vault.requests) == 3
        seen.add(accepted)
        assert vault.unlearn(["person-4"]).request == 3 + accepted
        now = vault._writer.snapshot
        names = {part.name for part in path.iterdir()}
        assert names == now.manifest.file_names | now.manifest.spares | {"identity.json", "current"}
        layout = now.rows.layout
        assert (path / "rows.1.0").stat().st_size == layout.dealt.drawn * layout.entry_bytes
        entries = now.rows.read_entries(np.arange(layout.dealt.drawn))
        assert (entries.any(axis=1) == now.rows.live[layout.dealt.slots(np.arange(layout.dealt.drawn))]).all()
        if not ended:
            break
    assert seen == {False, True}
