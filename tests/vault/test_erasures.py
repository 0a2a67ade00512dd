"""One erasure, one walk: what `unlearn` and `unlearn_group` say about each id, and what the ledger keeps of callers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.errors import InvalidSetting, UnknownId
from expunge.vault import Erasure, Vault, check_receipt

from support.vaults import made, people


@pytest.fixture
def vault(tmp_path):
    return made(tmp_path / "small.vault")


def checked(vault, outcome, person):
    return check_receipt(outcome.receipt.to_json(), person, vault.places.public.read_bytes())


def test_unlearn_tells_what_became_of_each_id_in_the_order_asked(vault):
    vault.unlearn("person-3")
    asked = ["person-2", "nobody", "person-3", "person-2", "person-5"]
    receipt = vault.unlearn(asked, skip_unknown=True, receipts=True, attest_unknown=True)
    states = [(outcome.state, outcome.rows, outcome.request) for outcome in receipt.outcomes]
    assert states == [("erased", 2, 3), ("unknown", 0, None), ("earlier", 0, 2), ("erased", 2, 3), ("erased", 1, 3)]
    kinds = [checked(vault, outcome, person)["kind"] for outcome, person in zip(receipt.outcomes, asked, strict=True)]
    assert kinds == ["unlearn", "unknown", "unlearn", "unlearn", "unlearn"]


def test_receipts_of_one_pass_are_those_that_can_be_made_later(vault):
    receipt = vault.unlearn(["person-2", "person-5"], receipts=True)
    later = vault.personal_receipts(["person-2", "person-5"])
    assert [outcome.receipt for outcome in receipt.outcomes] == list(later.values())


def test_asking_again_has_the_same_receipts(vault):
    first = vault.unlearn(["person-2", "person-5"], receipts=True)
    again = vault.unlearn(["person-2", "person-5"], receipts=True)
    assert {outcome.state for outcome in again.outcomes} == {"earlier"}
    assert [one.receipt for one in again.outcomes] == [one.receipt for one in first.outcomes]


def test_an_erasure_without_a_key_has_no_receipts_yet(vault):
    vault.places.key.rename(vault.places.key.with_suffix(".away"))
    receipt = vault.unlearn("person-2", receipts=True)
    assert receipt.certificate is None
    assert [outcome.receipt for outcome in receipt.outcomes] == [None]


def test_a_group_is_one_request_whose_record_has_every_caller(vault):
    before = len(vault.requests)
    receipt, outcomes = vault.unlearn_group(
        [
            Erasure(["person-2", "person-3"], reference="DSR-1", actor="desk", job="a"),
            Erasure(["nobody"], reference="DSR-2", job="b"),
            Erasure(["person-3", "person-4"], job="c"),
        ],
        receipts=True,
    )
    assert receipt.people == 3
    assert len(vault.requests) == before + 1
    logged = vault.requests[-1]
    assert [(caller.job, caller.reference, caller.actor) for caller in logged.callers] == [
        ("a", "DSR-1", "desk"), ("b", "DSR-2", ""), ("c", "", ""),
    ]  # fmt: skip
    assert [[one.state for one in group] for group in outcomes] == [["erased"] * 2, ["unknown"], ["erased"] * 2]
    assert checked(vault, outcomes[2][0], "person-3")["request"] == receipt.request
    assert vault.verify().ok


def test_a_group_of_people_without_rows_makes_no_request(vault):
    vault.unlearn("person-1")
    before = vault.places.ledger.read_bytes()
    receipt, outcomes = vault.unlearn_group([Erasure("person-1"), Erasure("nobody")], receipts=True)
    assert receipt is None
    assert [[one.state for one in group] for group in outcomes] == [["earlier"], ["unknown"]]
    assert vault.places.ledger.read_bytes() == before


def test_a_group_with_a_wrong_caller_changes_nothing(vault):
    before = vault.digest()
    with pytest.raises(InvalidSetting):
        vault.unlearn_group([Erasure("person-1"), Erasure("person-2", reference="two\nlines")])
    assert vault.digest() == before


def test_one_unknown_id_is_an_error_that_changes_nothing(vault):
    with pytest.raises(UnknownId):
        vault.unlearn(["person-1", "nobody"], receipts=True)
    assert vault.find("person-1")[0].state == "present"


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(st.sampled_from(sorted(set(people())) + ["nobody"]), min_size=1, max_size=4), max_size=4))
def test_a_group_leaves_the_model_that_the_same_erasures_one_by_one_leave(tmp_path_factory, groups):
    folder = tmp_path_factory.mktemp("groups")
    together, alone = made(folder / "together.vault"), made(folder / "alone.vault")
    if groups:
        together.unlearn_group([Erasure(ids) for ids in groups])
    for ids in groups:
        alone.unlearn_group([Erasure(ids)])
    states = together.find(sorted(set(people())))
    assert [one.state for one in states] == [one.state for one in alone.find(sorted(set(people())))]
    assert together.verify().ok
    assert together.digest() == alone.digest()


def test_derived_keys_differ_by_purpose_and_vault_and_last(vault, tmp_path):
    other = made(tmp_path / "other.vault")
    keys = {vault.derive("a"), vault.derive("b"), other.derive("a"), other.derive("b")}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}
    assert Vault.open(tmp_path / "small.vault").derive("a") == vault.derive("a")


def test_a_search_for_similar_ids_that_fails_does_not_hide_an_erasure(vault, monkeypatch):
    def find_similar(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("expunge.vault.issuance.find_similar", find_similar)
    receipt = vault.unlearn(["person-2", "PERSON-4"], skip_unknown=True, receipts=True)
    assert [outcome.state for outcome in receipt.outcomes] == ["erased", "unknown"]
    assert checked(vault, receipt.outcomes[0], "person-2")["kind"] == "unlearn"
