"""A plan that was prepared without the lock: used only if a replan under the lock would have made the same choice."""

import pytest

from expunge.errors import InvalidFile, InvalidSetting, VaultBusy
from expunge.tables import rank_ids
from expunge.vault import Planning, PreparedPlan, Vault

from support.planning import quick_plans
from support.vaults import bits, duplicate, made, random_table, small

PEOPLE = [f"p{k}" for k in range(80)]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A vault that was planned on the rows of a few of its people."""
    path = tmp_path_factory.mktemp("planned") / "a.vault"
    with quick_plans():
        Vault.create(path, random_table(PEOPLE), target="y", id="who", planning=Planning())
    return path


@pytest.fixture
def vault(planned, tmp_path):
    with quick_plans():
        yield Vault.open(duplicate(planned, tmp_path))


def replanned(vault, folder):
    """The bits of a copy that was planned again under the lock."""
    copy = Vault.open(duplicate(vault.places.vault, folder))
    copy.replan()
    return bits(copy)


def people_by_plan(vault, folder):
    """The people whose rows the plan looked at, and the others."""
    copy = Vault.open(duplicate(vault.places.vault, folder))
    outcomes = list(zip(PEOPLE, copy.unlearn(PEOPLE[:-1]).outcomes, strict=False))
    seen = [person for person, outcome in outcomes if not outcome.complete]
    return seen, [person for person, outcome in outcomes if outcome.complete]


def test_a_prepared_plan_gives_what_a_replan_under_the_lock_gives(vault, tmp_path):
    seen, _ = people_by_plan(vault, tmp_path / "copy")
    assert vault.unlearn(seen[:2]).open == 2
    prepared = Vault.open(vault.places.vault, read_only=True).prepare_replan()
    expected = replanned(vault, tmp_path / "twin")
    assert vault.replan(PreparedPlan.from_json(prepared.to_json())).kind == "replan"
    assert bits(vault) == expected
    assert vault.status().open == 0
    assert vault.verify(plan=True).ok


def test_it_is_used_after_requests_that_no_choice_depends_on(vault, tmp_path):
    seen, others = people_by_plan(vault, tmp_path / "copy")
    vault.unlearn(seen[:1])
    prepared = vault.prepare_replan()
    newest = max(others, key=lambda person: rank_ids([person.encode()], 0)[0])
    assert vault.unlearn(newest).open == 0
    expected = replanned(vault, tmp_path / "twin")
    vault.replan(prepared)
    assert bits(vault) == expected
    assert vault.verify(plan=True).ok


@pytest.mark.parametrize("change", ["unlearn", "rectify", "add", "rebound"])
def test_it_is_refused_after_a_request_that_may_change_the_choice(vault, tmp_path, change):
    prepared, before = vault.prepare_replan(), bits(vault)
    if change == "unlearn":
        seen, _ = people_by_plan(vault, tmp_path / "copy")
        vault.unlearn(seen[0])
    elif change == "rectify":
        vault.rectify(random_table(PEOPLE, seed=5))
    elif change == "rebound":
        vault.rebound({"x0": (-100.0, 100.0)})
    else:  # some of so many have smaller hashes
        vault.add(random_table([f"q{k}" for k in range(60)]))
    state = bits(vault)
    assert state != before
    with pytest.raises(VaultBusy, match="plan again"):
        vault.replan(prepared)
    assert bits(vault) == state
    assert vault.verify().ok


def test_a_damaged_or_unnecessary_one_is_refused(vault, tmp_path):
    text = vault.prepare_replan().to_json()
    for wrong in ("", "[]", "{}", text[:-9], text.replace('"people": ', '"people": -')):
        with pytest.raises(InvalidFile):
            PreparedPlan.from_json(wrong)
    declared = made(tmp_path / "b.vault", model=small())
    with pytest.raises(InvalidSetting, match="nothing to plan again"):
        declared.prepare_replan()


def test_it_shows_no_secret(vault):
    prepared = vault.prepare_replan()
    assert prepared.fingerprint not in repr(prepared)
