"""The bits that say which slots have a row: whichever are flipped, nobody is erased in name only."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.errors import InvalidFile
from expunge.vault import Vault
from expunge.vault.disk.people import hash_ids
from expunge.vault.disk.rowfile import sum_slots

from support.oracle import plain_slots_sum
from support.sampling import sampled
from support.tampering import WHO, judged, of_kind
from support.vaults import damaged, everything, made, random_table, slots_of

SEALS = st.binary(min_size=16, max_size=16)
SLOTS = st.sets(st.integers(0, 2**40), max_size=30)


# The sum itself


@given(SLOTS, SEALS)
def test_the_sum_of_slots_is_the_one_that_plain_integers_give(slots, seal):
    assert sum_slots(np.array(sorted(slots), dtype=np.int64), seal) == plain_slots_sum(slots, seal)


@given(SLOTS, SLOTS, SEALS)
def test_the_sum_of_slots_is_of_the_set_alone(some, others, seal):
    def total(slots):
        return sum_slots(np.array(list(slots), dtype=np.int64), seal)

    assert (total(some) == total(others)) == (some == others)
    assert total(some | others) == (total(some) + total(others) - total(some & others)) % 2**64


def test_the_sum_of_many_slots_is_that_of_its_parts():
    slots, seal = np.arange(300_000), bytes(range(16))
    assert sum_slots(slots, seal) == (sum_slots(slots[:7], seal) + sum_slots(slots[7:], seal)) % 2**64


# Bits that are flipped


def flip(path, positions):
    for position in positions:
        damaged(path, *divmod(position, 8))


def live_file(path):
    (found,) = of_kind(path, "live")
    return found


def bit_of(slot):
    """Where the bit of a slot is, counted as `flip` does."""
    return slot // 8 * 8 + 7 - slot % 8


def test_any_single_bit_that_is_flipped_is_refused(original, copies, expected):
    for position in range(8 * live_file(original).stat().st_size):
        path = copies()
        flip(live_file(path), [position])
        assert judged(path, expected) == "refused", position


@pytest.mark.slow
@pytest.mark.no_cover
@sampled("every", 7, 1)
def test_any_two_bits_that_are_flipped_are_refused(original, copies, expected, every):
    path = copies()
    live, before = live_file(path), everything(path)
    content = live.read_bytes()
    for pair in [*itertools.combinations(range(8 * len(content)), 2)][::every]:
        flip(live, pair)
        for ask in (lambda: Vault.open(path, wait=0.0), lambda: _unlearned(path)):
            with pytest.raises(InvalidFile):
                ask()
        live.write_bytes(content)
    assert everything(path) == before


@pytest.mark.torture
@settings(max_examples=1000, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bits_that_are_flipped_are_refused(copies, expected, data):
    path = copies()
    last = 8 * live_file(path).stat().st_size - 1
    flip(live_file(path), data.draw(st.sets(st.integers(0, last), min_size=1)))
    assert judged(path, expected) == "refused"


def _unlearned(path):
    """Erase somebody without opening the vault first, which may refuse already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Vault, "_finish_pending", lambda _: None)
        return Vault.open(path, wait=0.0).unlearn([WHO])


def test_who_is_hidden_behind_another_bit_is_not_erased_in_name_only(copies, expected):
    """One bit cleared, another set: the number of rows fits, and the person's row would stay in the moments."""
    path = copies()
    slots = slots_of(Vault.open(path), [WHO, "person-0"])
    live = np.unpackbits(np.frombuffer(live_file(path).read_bytes(), dtype=np.uint8))
    holes = np.flatnonzero(live == 0)[: len(slots[WHO])].tolist()
    flip(live_file(path), [bit_of(slot) for slot in (*slots[WHO], *holes)])
    before = everything(path)
    with pytest.raises(InvalidFile):
        _unlearned(path)
    assert everything(path) == before
    with pytest.raises(InvalidFile):
        Vault.open(path)


@pytest.mark.parametrize("asked", ["unlearn", "rectify"])
def test_an_erased_or_corrected_row_is_there_when_it_is_planned(copies, asked):
    """An entry that names a slot without a row, and passes its checksum: refused, and nothing has changed."""
    for slot in ("hole", "beyond", "twice"):
        path = copies()
        vault = Vault.open(path)
        with vault._lock_for_writing() as writer:
            people, live = writer.snapshot.people, writer.snapshot.rows.live
            entries = people.find(hash_ids(writer.identity.key, [WHO.encode()])).live
            where = {"hole": int(np.flatnonzero(~live[:])[0]), "beyond": len(live) + 3, "twice": int(entries.slot[1])}
            people.segments[entries.segment[0]].overwrite(entries.place[:1], np.array([where[slot]]))
        before = everything(path)
        with pytest.raises(InvalidFile, match="nothing was changed"):
            vault.unlearn([WHO]) if asked == "unlearn" else vault.rectify(random_table([WHO, WHO], seed=3))
        assert everything(path) == before


def test_the_manifest_has_the_sum_of_the_slots_in_use_after_every_request(vault):
    def check():
        now = vault._writer.snapshot
        _, slots = now.people.read_entries()
        in_use = set(slots[slots >= 0].tolist())
        assert now.manifest.slots_sum == plain_slots_sum(in_use, now.manifest.seal) == now.rows.live_sum
        assert set(np.flatnonzero(now.rows.live).tolist()) == in_use

    check()
    for ask in (
        lambda: vault.unlearn(["person-1", "person-2"]),
        lambda: vault.add(random_table(["new-1", "new-2", "new-1", "person-3"], seed=1)),
        lambda: vault.rectify(random_table(["person-4", "person-4"], seed=2)),
        lambda: vault.readmit(["person-1"]),
        lambda: vault.rebound({"x0": (-2, 2)}),
        lambda: vault.unlearn(["new-1"]),
    ):
        ask()
        check()
    vault = made(vault.places.vault, random_table([f"person-{k}" for k in range(3, 15)], seed=4), replace=True)
    check()
    assert vault.verify().ok


def test_a_sum_that_fits_other_bits_is_found_by_what_the_ledger_says_was_reached(copies):
    """Who forges bits and the sum, with its checksum, has yet to forge the ledger."""
    path = copies()
    vault = Vault.open(path)
    with vault._lock_for_writing() as writer:
        now = writer.snapshot
        live = now.rows.live[:].copy()
        pair = [int(np.flatnonzero(live)[0]), int(np.flatnonzero(~live)[0])]
        live[pair] = ~live[pair]
        forged = replace(now.manifest, slots_sum=sum_slots(np.flatnonzero(live), now.manifest.seal))
    flip(live_file(path), map(bit_of, pair))
    (path / forged.name).write_bytes(forged.to_bytes())
    before = everything(path)
    for ask in (lambda: Vault.open(path), lambda: _unlearned(path), lambda: vault.verify()):
        with pytest.raises(InvalidFile, match="the state is not the one that the ledger recorded for request 6"):
            ask()
    assert everything(path) == before


def test_an_object_that_is_open_finds_at_the_next_verify_that_bits_were_flipped(copies):
    path = copies()
    vault = Vault.open(path)
    assert vault.verify().ok
    flip(live_file(path), [0, 1])
    with pytest.raises(InvalidFile):
        vault.verify()
