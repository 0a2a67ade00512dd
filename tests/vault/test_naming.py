"""Ids that a request names: which are unknown and where, who is left out, and what a vault holds of each."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidInput, UnknownId
from expunge.vault import Vault

from support.sampling import examples
from support.vaults import everything, made, random_table


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A vault that refuses: 0 to 9 are there, 10 to 19 are erased, and nobody else was ever there."""
    vault = made(tmp_path_factory.mktemp("asked") / "v.vault", random_table([*range(20), 3, 3]))
    vault.unlearn(range(10, 20))
    return vault


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(lambda ids: max(ids) >= 20))
def test_unknown_ids_are_told_by_their_places_in_the_list_as_it_was_given(asked, ids):
    """Counted from one, up to ten of them; an id that is there twice has two places and counts once."""
    before = everything(asked.places.vault)
    for ask, what, is_unknown in (
        (asked.unlearn, "not in the vault", lambda one: one >= 20),
        (asked.readmit, "not erased", lambda one: not 10 <= one < 20),
    ):
        unknown = [place for place, one in enumerate(ids, 1) if is_unknown(one)]
        shown = ", ".join(map(str, unknown[:10])) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
        many = "positions" if len(unknown) > 1 else "position"
        counts = f"ids that are {what}: {len(set(filter(is_unknown, ids)))} of {len(set(ids))}"
        with pytest.raises(UnknownId) as caught:
            ask(ids)
        assert str(caught.value).startswith(f"{counts}, at {many} {shown}; nothing was changed")
        assert "skip_unknown=True" in str(caught.value)
    assert everything(asked.places.vault) == before


@given(st.lists(st.integers(0, 30), max_size=40))
def test_what_a_vault_holds_of_an_id_is_said_in_the_order_asked(asked, ids):
    before = everything(asked.places.vault)
    found = [(holding.state, holding.rows, holding.request) for holding in asked.find(ids)]
    present = {one: ("present", 3 if one == 3 else 1, None) for one in range(10)}
    erased = dict.fromkeys(range(10, 20), ("erased", 0, 2))
    assert found == [(present | erased).get(one, ("unknown", 0, None)) for one in ids]
    assert [(h.state, h.rows, h.request) for h in asked.find(np.array(ids, dtype=np.int64))] == found
    assert everything(asked.places.vault) == before


def test_what_a_vault_holds_follows_its_requests(vault):
    def states(asker):
        return [(h.state, h.rows, h.request) for h in asker.find(["person-2", "person-3", "new"])]

    other = Vault.open(vault.places.vault)
    history = [
        (lambda: None, [("present", 2, None), ("present", 1, None), ("unknown", 0, None)]),
        (lambda: vault.unlearn("person-2"), [("erased", 0, 2), ("present", 1, None), ("unknown", 0, None)]),
        (lambda: vault.add(random_table(["new"] * 4)), [("erased", 0, 2), ("present", 1, None), ("present", 4, None)]),
        (lambda: vault.readmit("person-2"), [("unknown", 0, None), ("present", 1, None), ("present", 4, None)]),
        (lambda: vault.add(random_table(["person-2"])), [("present", 1, None)] * 2 + [("present", 4, None)]),
        (lambda: vault.unlearn(["new", "person-2"]), [("erased", 0, 6), ("present", 1, None), ("erased", 0, 6)]),
    ]
    for ask, expected in history:
        ask()
        assert states(vault) == states(other) == states(Vault.open(vault.places.vault)) == expected
    assert vault.find("person-3")[0] == vault.find(["person-3"])[0]
    with pytest.raises(InvalidInput):
        vault.find([1.5])


@examples(30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_unknown_ids_are_left_out_if_asked_as_if_they_had_not_been_named(tmp_path_factory, ids):
    root = tmp_path_factory.mktemp("skip")
    mine, other = (made(root / f"{name}.vault", random_table(range(20))) for name in "vw")
    known = [one for one in ids if one < 20]
    if not known:
        before = everything(mine.places.vault)
        with pytest.raises(
            UnknownId, match=f"^ids that are not in the vault: {len(set(ids))} of {len(set(ids))}; nothing was changed"
        ):
            mine.unlearn(ids, skip_unknown=True)
        assert everything(mine.places.vault) == before
        return
    receipt, expected = mine.unlearn(ids, skip_unknown=True), other.unlearn(known)
    skipped = len(set(ids) - set(known))
    assert (receipt.rows, receipt.people, receipt.skipped) == (expected.rows, expected.people, skipped)
    assert mine.digest() == other.digest()
    again = mine.unlearn(ids, skip_unknown=True)  # what was done before has the answer of then
    assert (again.request, again.certificate, again.skipped) == (2, receipt.certificate, skipped)
    back = mine.readmit(ids, skip_unknown=True)
    assert (back.kind, back.people, back.skipped) == ("readmit", len(set(known)), skipped)
    assert expected.skipped == other.readmit(known).skipped == 0
    assert {holding.state for holding in mine.find(known)} == {"unknown"}


def test_who_is_not_erased_is_not_readmitted_and_may_be_left_out(vault):
    vault.unlearn("person-1")
    before = everything(vault.places.vault)
    with pytest.raises(UnknownId, match="^ids that are not erased: 2 of 3, at positions 2, 3; nothing was changed"):
        vault.readmit(["person-1", "nobody", "person-2"])
    assert everything(vault.places.vault) == before
    receipt = vault.readmit(["person-1", "nobody", "person-2"], skip_unknown=True)
    assert (receipt.people, receipt.skipped) == (1, 2)
    states = [holding.state for holding in vault.find(["person-1", "nobody", "person-2"])]
    assert states == ["unknown", "unknown", "present"]


def test_a_table_with_unknown_ids_is_not_told_of_an_option_that_rectify_has_not(vault):
    with pytest.raises(UnknownId) as caught:
        vault.rectify(random_table(["person-1", "nobody", "person-3", "nobody"]))
    assert str(caught.value).startswith("ids that are not in the vault: 1 of 3, at positions 2, 4; nothing was changed")
    assert not re.search("skip.unknown", str(caught.value))
