"""Replan: after it, settings, digest and weights are those of a vault that never saw the people who left."""

import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidSetting
from expunge.planning.choice import SettingsPlanner
from expunge.tables import Schema, rank_ids
from expunge.vault import Planning, Vault
from expunge.vault.certificates.jws import unverified_payload
from expunge.vault.disk.folder import Folder
from expunge.vault.requests import choice

from support.disks import ended_at
from support.executors import Here
from support.planning import short_search
from support.sampling import examples
from support.vaults import ANYTHING, bits, duplicate, made, put_back, random_table, small

SCHEMA = Schema.parse("""
id = "who"
target = "y"
[columns.age]
kind = "number"
fill = 40
[columns.city]
kind = "category"
values = ["Bonn", "Köln"]
fill = "other"
[columns.y]
kind = "number"
""")
PEOPLE = [f"p{k}" for k in range(30)]


def draw_table(seed, people=PEOPLE, rows=50):
    """Rows with gaps and text; every person has at least one."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation([*people, *rng.choice(people, max(0, rows - len(people)))])
    n = len(ids)
    age = [
        None if gap else float(value) for gap, value in zip(rng.random(n) < 0.2, rng.integers(18, 90, n), strict=True)
    ]
    city = rng.choice(["Bonn", "Köln", "Ulm", None], n).tolist()
    return pa.table({"who": ids.tolist(), "age": pa.array(age, pa.float64()), "city": city, "y": rng.normal(size=n)})


def plan_vault(path, data, **options):
    return Vault.create(path, data, schema=SCHEMA, **options)


def train_without(path, data, gone, **options):
    """A vault of the same table that never learned or planned on the rows of some people; row numbers are the same."""
    vault = plan_vault(path, draw_table(99, sorted({*gone, "somebody"}), 12), **options)
    vault.unlearn(sorted(gone))
    return plan_vault(path, data, replace=True, skip_erased=True, **ANYTHING, **options)


def assert_same(vault, other):
    assert bits(vault) == bits(other)
    names = ("shards", "learners", "alpha", "features", "scales", "target_scales", "outside", "open", "planning_people")
    status, expected = vault.status(), other.status()
    assert [getattr(status, name) for name in names] == [getattr(expected, name) for name in names]


@examples(12)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_after_a_replan_the_vault_is_the_one_that_never_saw_who_left(tmp_path_factory, seed, data):
    folder, table = tmp_path_factory.mktemp("vaults"), draw_table(seed)
    gone = data.draw(st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=20, unique=True))
    planning = Planning(seed=seed, quick=data.draw(st.booleans()))
    vault = plan_vault(folder / "a.vault", table, planning=planning)
    for part in np.array_split(gone, data.draw(st.integers(1, min(3, len(gone))))):
        vault.unlearn(part.tolist())
    still_open = vault.status().open
    assert still_open or planning.quick
    vault.replan()
    assert_same(vault, train_without(folder / "b.vault", table, gone, planning=planning))
    assert (vault.status().open, vault.settled) == (0, vault.newest)
    assert vault.verify(plan=True).ok
    assert [holding.state for holding in vault.find(gone)] == ["erased"] * len(gone)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_with_the_real_search(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(choice, "load_planner", SettingsPlanner)
    table, gone = draw_table(seed, rows=90), PEOPLE[3:7]
    with short_search():
        vault = plan_vault(tmp_path / "a.vault", table, planning=Planning(seed=seed))
        assert vault.unlearn(gone).open == 4
        vault.replan()
        assert_same(vault, train_without(tmp_path / "b.vault", table, gone, planning=Planning(seed=seed)))
        verdict = vault.verify(plan=True)
        assert (verdict.ok, verdict.checks[-1].name) == (True, "plan")
        # A vault of its own, with its own row numbers and its own key: one learner is the same in any order.
        others = table.filter(pc.invert(pc.is_in(table["who"], pa.array(gone))))
        alone = plan_vault(tmp_path / "c.vault", others, planning=Planning(seed=seed))
    assert alone.status().alpha == vault.status().alpha
    assert alone.status().features == vault.status().features
    np.testing.assert_array_equal(alone.predict(table), vault.predict(table))


def test_rows_that_are_added_and_corrected_are_planned_on(tmp_path):
    vault = plan_vault(tmp_path / "a.vault", draw_table(1))
    vault.add(draw_table(2, ["new-1", "new-2"], 5))
    right = draw_table(3, ["p1"], 0)
    count = vault.find(["p1"])[0].rows
    vault.rectify(pa.concat_tables([right] * count))
    vault.unlearn(["p2", "new-1"])
    before = vault.status()
    vault.replan()
    after = vault.status()
    assert (after.rows, after.people, after.erased_ids) == (before.rows, before.people, 2)
    first = bits(vault)
    vault.replan()  # again: the same rows give the same
    assert bits(vault) == first
    assert vault.verify(plan=True).ok
    assert vault.rectify(pa.concat_tables([right] * count)).rows == count  # the rows are found where they are now
    assert vault.unlearn(["p1", "new-2"]).people == 2
    assert vault.verify().ok


def test_an_erasure_says_for_whom_it_is_complete(tmp_path):
    vault = plan_vault(tmp_path / "a.vault", draw_table(4))
    vault.add(draw_table(5, ["late"], 0))
    outcomes = {}
    for few in np.array_split([*PEOPLE, "late", "nobody"], 7):  # of all, so few rows would be left that everyone counts
        outcomes |= zip(few.tolist(), _erase_copy(vault, few.tolist()), strict=True)
    assert outcomes["late"].complete  # the plan has not looked at this row
    looked_at = [person for person in PEOPLE if not outcomes[person].complete]
    assert len(looked_at) == vault.status().planning_people < len(PEOPLE)
    outside = [person for person in PEOPLE if person not in looked_at]
    receipt = vault.unlearn(outside[:2])
    assert (receipt.open, receipt.complete, vault.status().open) == (0, True, 0)
    payload = unverified_payload(receipt.certificate)
    assert (payload["complete"], len(payload["not_covered"])) == (True, 4)
    receipt = vault.unlearn([outside[2], *looked_at[:2], "late"])
    assert (receipt.open, receipt.complete, vault.status().open) == (2, False, 2)
    assert [outcome.complete for outcome in receipt.outcomes] == [True, False, False, True]
    payload = unverified_payload(receipt.certificate)
    assert (payload["complete"], payload["open"]) == (False, 2)
    assert "2 of these people" in payload["not_covered"][-1]
    again = Vault.open(vault.places.vault).unlearn([looked_at[0], outside[2], outside[0], "late"])
    assert [outcome.complete for outcome in again.outcomes] == [False, True, True, True]
    assert (again.open, again.complete) == (2, False)
    assert [(r.open, vault.is_complete(r)) for r in vault.requests] == [(0, True)] * 3 + [(2, False)]
    assert "wait for a replan" in vault.verify(plan=True).checks[-1].detail
    vault.replan()
    again = vault.unlearn([looked_at[0], outside[2]])
    assert [outcome.complete for outcome in again.outcomes] == [True, True]
    assert again.complete
    assert all(map(vault.is_complete, vault.requests))
    assert [r.settles for r in vault.requests] == [True, False, False, False, True]


def _erase_copy(vault, ids):
    """What an erasure of these people would say, on a copy of the vault."""
    with tempfile.TemporaryDirectory() as folder:
        return Vault.open(duplicate(vault.places.vault, Path(folder))).unlearn(ids, skip_unknown=True).outcomes


@pytest.mark.parametrize("accident", ["", "crash", "old copy"])
def test_people_whom_the_plan_only_counted_wait_once_their_number_has_another_power_of_two(tmp_path, accident):
    table = draw_table(25, rows=34)
    vault = plan_vault(tmp_path / "a.vault", table)
    path, left, waiting = vault.places.vault, 34, 0
    vault.add(draw_table(26, ["late"], 0))
    for person in only_counted(vault)[:6]:
        left -= table["who"].to_pylist().count(person)
        waiting += left < 32
        copy = tmp_path / person
        shutil.copytree(path, copy)
        if accident == "crash":  # the request is accepted, and finished by whoever comes next
            ended_at(Folder, "commit", partial(vault.unlearn, person))
            vault = Vault.open(path)
        else:
            assert vault.unlearn(person).complete == (left >= 32)
        if accident == "old copy":
            put_back(copy, path)
            vault = Vault.open(path)
            assert vault.requests[-1].kind == "restore"
        assert vault.unlearn(person).outcomes[0].complete == (left >= 32)
        assert vault.status().open == waiting
    assert 0 < waiting < 6
    assert "wait for a replan" in vault.verify(plan=True).checks[-1].detail
    assert vault.unlearn("late").complete  # no plan has counted this row
    vault.replan()
    assert vault.status().open == 0
    assert vault.verify(plan=True).ok


def only_counted(vault):
    """The people whose rows the plan counted and did not look at."""
    largest = Folder(vault.places.vault).read_current_manifest().planning.largest_hash
    return [person for person in PEOPLE if rank_ids([person.encode()], 0)[0] > largest]


@examples(12)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_while_nobody_waits_a_replan_changes_nothing(tmp_path_factory, seed, data):
    folder, table = tmp_path_factory.mktemp("vaults"), draw_table(seed, rows=data.draw(st.integers(30, 40)))
    vault = plan_vault(folder / "a.vault", table)
    for person in data.draw(st.lists(st.sampled_from(only_counted(vault)), min_size=1, max_size=6, unique=True)):
        complete = vault.unlearn(person).complete
        assert complete == (vault.status().open == 0)
        twin = vault.clone(folder / f"{person}.vault")
        twin.replan()
        assert complete == (bits(twin) == bits(vault))


def test_a_correction_of_somebody_whom_the_plan_looked_at_is_open_until_the_replan(tmp_path):
    vault = plan_vault(tmp_path / "a.vault", draw_table(6), planning=Planning(quick=False))
    count = vault.find(["p3"])[0].rows
    receipt = vault.rectify(pa.concat_tables([draw_table(7, ["p3"], 0)] * count))
    assert (receipt.open, vault.status().open) == (1, 1)
    assert vault.unlearn(["p3"]).open == 1
    assert vault.status().open == 2  # each is its own matter
    vault.replan()
    assert vault.status().open == 0


def test_readmitted_people_come_back_with_rows_that_no_plan_has_seen(tmp_path):
    vault = plan_vault(tmp_path / "a.vault", draw_table(8), planning=Planning(quick=False))
    assert vault.unlearn(["p1"]).open == 1
    vault.readmit(["p1"])
    vault.add(draw_table(9, ["p1"], 0))
    assert vault.unlearn(["p1"]).open == 0
    assert vault.status().open == 1


def test_settings_that_no_row_chose_have_nothing_to_be_chosen_anew(tmp_path):
    vault = made(tmp_path / "a.vault")
    assert not vault.status().renewable
    assert vault.unlearn(["person-1"]).complete
    with pytest.raises(InvalidSetting, match="nothing to plan again"):
        vault.replan()
    assert vault.verify(plan=True).ok
    assert "no row in the vault chose" in vault.verify(plan=True).checks[-1].detail


def test_what_was_declared_beside_the_plan_stays(tmp_path):
    from expunge.encoding.features import PowersMap
    from expunge.vault.requests.choice import format_declared

    declared = format_declared(alpha=0.5, outside="extrapolate", features=PowersMap(3), shards=6, rate=3, clip=True)
    vault = plan_vault(tmp_path / "a.vault", draw_table(10), planning=Planning(declared=declared))
    vault.unlearn(["p1", "p2", "p3"])
    vault.replan()
    status = vault.status()
    assert (status.alpha, status.outside, status.shards, status.learners) == (0.5, "extrapolate", 6, 2)
    assert status.features == "Powers(degree=3)"
    assert_same(
        vault,
        train_without(tmp_path / "b.vault", draw_table(10), ["p1", "p2", "p3"], planning=Planning(declared=declared)),
    )


def test_a_model_that_was_planned_before_the_training_is_chosen_anew_by_the_same_search(tmp_path):
    planning = Planning(seed=3, quick=False, people=30, largest_hash=2**64 - 1)
    vault = plan_vault(tmp_path / "a.vault", draw_table(11), model=small(), planning=planning)
    assert vault.status().shards == 4
    assert vault.unlearn(["p5"]).open == 1
    vault.replan()
    assert_same(
        vault, train_without(tmp_path / "b.vault", draw_table(11), ["p5"], planning=Planning(seed=3, quick=False))
    )


def test_a_tampered_choice_fails_the_audit(tmp_path):
    planning = Planning(people=30, largest_hash=2**64 - 1)
    vault = plan_vault(tmp_path / "a.vault", draw_table(12), model=small(), planning=planning)
    failed = [check.name for check in vault.verify(plan=True).checks if not check.ok]
    assert failed == ["plan"]


def test_a_plan_is_verified_on_the_rows_that_there_were(tmp_path):
    vault = plan_vault(tmp_path / "a.vault", draw_table(13), planning=Planning(quick=False))
    vault.add(draw_table(14, ["late-1", "late-2"], 9))
    check = vault.verify(plan=True).checks[-1]
    assert (check.ok, "30 people" in check.detail) == (True, True)
    vault.rebound({"age": (0, 150)})
    assert "bounds were declared since" in vault.verify(plan=True).checks[-1].detail
    vault.replan()
    assert "32 people" in vault.verify(plan=True).checks[-1].detail


def test_an_old_copy_that_missed_a_replan_is_planned_again(tmp_path):
    table = draw_table(15)
    vault = plan_vault(tmp_path / "a.vault", table, planning=Planning(quick=False))
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "copy")
    vault.unlearn(["p1", "p2"])
    vault.replan()
    vault.unlearn(["p3"])
    put_back(tmp_path / "copy", path)
    old = Vault.open(path)
    assert "the settings were chosen again from the rows that remain" in old.notes[0]
    assert (old.requests[-1].kind, old.requests[-1].settles, old.settled) == ("restore", True, 5)
    assert (old.status().open, old.verify(plan=True).ok) == (0, True)
    assert_same(old, train_without(tmp_path / "b.vault", table, ["p1", "p2", "p3"], planning=Planning(quick=False)))
    assert old.unlearn(["p3"]).outcomes[0].complete


def test_an_old_copy_that_missed_erasures_counts_them_as_open(tmp_path):
    vault = plan_vault(tmp_path / "a.vault", draw_table(16), planning=Planning(quick=False))
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "copy")
    vault.add(draw_table(17, ["late"], 0))
    vault.unlearn(["p1", "late"])
    put_back(tmp_path / "copy", path)
    old = Vault.open(path)
    assert (old.status().open, old.settled) == (1, 1)
    outcome = old.unlearn(["p1"]).outcomes[0]
    assert (outcome.state, outcome.complete) == ("earlier", False)
    old.replan()
    assert old.unlearn(["p1"]).outcomes[0].complete


def test_copies_can_be_planned_again(tmp_path):
    table = draw_table(18)
    vault = plan_vault(tmp_path / "a.vault", table, planning=Planning(quick=False))
    vault.unlearn(["p1"])
    clone = vault.clone(tmp_path / "c.vault")
    vault.backup(tmp_path / "backup", with_key=True)
    assert (clone.status().open, clone.status().renewable) == (1, True)
    assert not clone.unlearn(["p1"]).outcomes[0].complete
    clone.replan()
    vault.replan()
    assert bits(clone) == bits(vault)
    for suffix in (".vault", ".certificates", ".leaves", ".index"):
        shutil.rmtree(vault.places.vault.with_suffix(suffix), ignore_errors=True)
    restored = Vault.restore(tmp_path / "backup", vault.places.vault)  # beside the ledger, which has the replan
    assert any("chosen again" in note for note in restored.notes)
    assert bits(Vault.open(vault.places.vault)) == bits(clone)


def test_a_replan_while_a_backup_is_made_is_in_the_backup(tmp_path, monkeypatch):
    from expunge.vault import backup

    vault = plan_vault(tmp_path / "a.vault", draw_table(19))
    vault.unlearn(["p1", "p2"])
    monkeypatch.setattr(backup, "_MAX_BYTES_UNDER_LOCK", 0)
    copied = backup._VaultCopy._copy
    asked = []

    def copy(self, pieces):
        copied(self, pieces)
        if not asked:
            asked.append(Vault.open(vault.places.vault, wait=5).replan())

    monkeypatch.setattr(backup._VaultCopy, "_copy", copy)
    vault.backup(tmp_path / "backup", with_key=True)
    (tmp_path / "r").mkdir()
    restored = Vault.restore(tmp_path / "backup", tmp_path / "r" / "a.vault", nothing_erased_since=True)
    assert restored.backup.request == 3
    assert bits(Vault.open(tmp_path / "r" / "a.vault")) == bits(vault)


def test_workers_give_the_same(tmp_path):
    import pyarrow.parquet as pq

    table, models = draw_table(20, rows=80), []
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=9)
    for name, helped in (("a", {}), ("b", {"client": Here(seed=1)})):
        vault = plan_vault(tmp_path / f"{name}.vault", str(tmp_path / "t.parquet"), **helped)
        vault.unlearn(["p1", "p2", "p3"])
        vault.replan(**helped)
        assert vault.verify(plan=True).ok
        models.append(vault)
    assert_same(*models)


def test_a_worse_plan_goes_live_and_says_so(tmp_path, monkeypatch):
    vault = plan_vault(tmp_path / "a.vault", draw_table(21), planning=Planning(error=0.1))
    from support.planning import QuickPlanner

    choose = QuickPlanner.choose

    def choose_worse(*args, **kwargs):
        from dataclasses import replace

        return replace(choose(*args, **kwargs), error=0.5)

    monkeypatch.setattr(QuickPlanner, "choose", choose_worse)
    vault.unlearn(["p1"])
    receipt = vault.replan()
    assert any("0.5 of the variance instead of 0.25" in note for note in receipt.notes)
    assert vault.settled == 3


def test_a_replan_that_fails_changes_nothing(tmp_path, monkeypatch):
    vault = plan_vault(tmp_path / "a.vault", draw_table(22))
    vault.unlearn(["p1"])
    before = bits(vault), vault.status()

    def fail(stage, rows, total):
        if stage == "learning":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vault.replan(progress=fail)
    assert (bits(vault), vault.status()) == before
    assert vault.verify().ok


def test_without_a_model_a_vault_is_planned(tmp_path):
    vault = Vault.create(tmp_path / "a.vault", random_table(PEOPLE), target="y", id="who")
    assert vault.status().renewable
    assert vault.status().planned == "R2 0.7500"
    assert any(note.startswith("planned:") for note in vault.receipt.notes)
