"""Ids of another form than the schema declares are refused wherever they come in, by count and place."""

import dataclasses
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge import CodedRegressor
from expunge.errors import ErasedId, InvalidInput, InvalidSetting
from expunge.tables import Schema, propose_schema
from expunge.vault import Erasure, Vault

from support.vaults import everything, random_table, small

SCHEMA = 'id = "who"\ntarget = "y"\n{}\n[columns.y]\nkind = "number"\n[columns.x0]\nkind = "number"\n'
UUIDS = [str(uuid.UUID(int=k * 2**90)) for k in range(1, 6)]
FORMATS = {
    "integer": (["0", "7", "-12", "4711", 4712], ["", "007", "7.0", "+7", "-0", "7a", "1e3", "\u0667", "1 2", "4,711"]),
    "uuid": (UUIDS, ["4711", UUIDS[0].replace("-", ""), f"{{{UUIDS[0]}}}", UUIDS[0][:-1], f"urn:uuid:{UUIDS[0]}"]),
    "email": (
        ["anna@example.org", "b.c+d@e.f", "zoë@exämple.org", "x@y", "o'neil@z.ie"],
        ["anna", "@example.org", "anna@", "a@b@c", "Anna <a@b.org>", "a b@c.de", "a@b, c@d", "a@b\nc"],
    ),
    "^C-[0-9]{3}$": (
        ["C-001", "C-002", "C-003", "C-004", "C-999"],
        ["c-001", "C-1", "xC-001", "C-0011", "C-001\nC-002"],
    ),
    "^a|b$": (["a", "b"], ["ab", "ax", "xb"]),
}
FORMATS |= {"^[äöü]+$": (["ä", "öü"], ["a", "äa"])}


def schema_of(text):
    return Schema.parse(SCHEMA.format(f"id_format = '{text}'"))


@pytest.mark.parametrize("text", FORMATS)
def test_a_format_takes_ids_of_its_form_and_no_others(text):
    schema, (good, bad) = schema_of(text), FORMATS[text]
    assert schema.normalise_ids(good) == [str(one).encode() for one in good]
    assert schema.read_id_column(pa.array(list(map(str, good)))) == [str(one).encode() for one in good]
    for one in filter(None, bad):
        with pytest.raises(InvalidInput, match=r"ids that are not .*: 1 of 2, at position 2; correct them") as caught:
            schema.normalise_ids([good[0], one])
        assert len(one) < 3 or one not in str(caught.value)
        with pytest.raises(InvalidInput, match=r"ids that are not .*: 1 in column 'who' \(of 2 rows\)"):
            schema.read_id_column(pa.array([str(good[0]), one]))


@given(st.integers())
def test_every_whole_number_is_of_the_format_integer_as_python_writes_it(number):
    assert schema_of("integer").normalise_ids(number) == [str(number).encode()]
    assert schema_of("integer").normalise_ids(f" {number}\n") == [str(number).encode()]


def test_the_case_of_letters_does_not_count_for_a_format_if_it_does_not_for_ids():
    folding = dataclasses.replace(schema_of("^C-[0-9]{3}$"), fold_case=True)
    assert folding.normalise_ids(["C-001", "c-002"]) == [b"c-001", b"c-002"]
    with pytest.raises(InvalidInput):
        folding.normalise_ids(["d-001"])
    assert dataclasses.replace(schema_of("uuid"), fold_case=True).normalise_ids(UUIDS[0].upper()) == [UUIDS[0].encode()]


@pytest.mark.parametrize(
    "text", ["number", "C-[0-9]{6}", "^a", "a$", "", "^(a$", "^(?=a)a$", r"^(a)\1$", f"^{'a' * 1000}$"]
)
def test_a_format_that_is_none_is_refused_when_the_schema_is_read(text):
    with pytest.raises(InvalidSetting, match="id_format"):
        schema_of(text)
    with pytest.raises(InvalidSetting, match="id_format"):
        Schema.parse(SCHEMA.format("id_format = 7"))


@pytest.mark.parametrize("text", FORMATS)
def test_a_format_survives_the_way_into_the_vault_and_is_in_its_hash(text):
    schema = schema_of(text)
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.to_json() != Schema.parse(SCHEMA.format("")).to_json()


def test_hostile_ids_do_not_make_an_expression_slow():
    schema = schema_of("^(a+)+$")
    with pytest.raises(InvalidInput):
        schema.normalise_ids("a" * 1000 + "!")


@pytest.fixture
def vault(tmp_path):
    data = random_table(range(4710, 4730), columns=1)
    return Vault.create(tmp_path / "v.vault", data, schema=schema_of("integer"), model=small())


REFUSED = r"ids that are not whole numbers like 4711: 2 of 3, at positions 2, 3"


def test_every_call_with_ids_refuses_those_of_another_form_and_changes_nothing(vault):
    vault.unlearn(4720)
    vault = Vault.open(vault.places.vault)
    before, ids = everything(vault.places.vault), [4711, "secret-1", "4712.0"]
    calls = [vault.unlearn, vault.find, vault.readmit, vault.personal_receipts, vault.attest_unknown, vault.seal]
    for call in calls:
        with pytest.raises(InvalidInput, match=REFUSED) as caught:
            call(ids)
        assert "secret" not in str(caught.value)
    for options in ({"skip_unknown": True}, {"skip_unknown": True, "attest_unknown": True, "receipts": True}):
        with pytest.raises(InvalidInput, match=REFUSED):
            vault.unlearn(ids, **options)
    assert everything(vault.places.vault) == before
    assert vault.unlearn([" 4711", np.int64(4712)]).people == 2


def test_a_table_with_ids_of_another_form_is_refused_with_the_numbers_of_the_whole_table(vault, tmp_path):
    before = everything(vault.places.vault)
    ids = [str(k) for k in range(70_000)]
    ids[66_000], ids[69_999] = "secret-1", "007"
    pyarrow.parquet.write_table(random_table(ids, columns=1), tmp_path / "more.parquet")
    text = (
        r"ids that are not whole numbers like 4711: 2 in column 'who' \(of 70,000 rows, first row 66,?001.*\); correct"
    )
    for call in (vault.add, vault.rectify, vault.evaluate, vault.ids_in):
        with pytest.raises(InvalidInput, match=text) as caught:
            call(tmp_path / "more.parquet")
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidInput, match=text):
        Vault.create(tmp_path / "w.vault", tmp_path / "more.parquet", schema=schema_of("integer"), model=small())
    assert not (tmp_path / "w.vault").exists()
    assert everything(vault.places.vault) == before
    assert len(vault.predict(random_table(["secret-1"], columns=1))) == 1  # nobody is looked up to predict


def test_callers_in_a_group_never_fail_for_an_id_of_another_form(vault):
    receipt, [mine, other] = vault.unlearn_group([Erasure([4711]), Erasure(["C-7", 4712])])
    assert receipt.people == 2
    assert [one.state for one in (*mine, *other)] == ["erased", "unknown", "erased"]


def test_training_anew_may_declare_another_format_and_whoever_was_erased_stays_so(vault):
    vault.unlearn(4720)
    path, model = vault.places.vault, small()
    schema = schema_of("^[0-9]+$")
    Vault.create(path, random_table(range(20), columns=1), schema=schema, model=model, replace=True, accept_worse=True)
    with pytest.raises(ErasedId):
        Vault.open(path).add(random_table([4720], columns=1))
    assert Vault.open(path).find("007")[0].state == "unknown"
    assert Vault.open(path).verify().ok


@pytest.mark.parametrize(
    ("ids", "proposed"),
    [
        (list(range(9)), "integer"),
        (["1", "2", " 3"], "integer"),
        (["1", "2", "03"], None),
        (UUIDS, "uuid"),
        (["a@b", "c@d", "e@f"], "email"),
        (["a", "b", "c"], None),
        ([1, 2, 3] * 30_000, "integer"),
        ([*map(str, range(70_000)), "x"], None),
    ],
)
def test_a_format_is_proposed_if_all_ids_have_it_and_the_table_can_be_trained_on(ids, proposed):
    data = random_table(ids, columns=1)
    schema = Schema.parse(propose_schema(data, target="y", id="who"))
    assert schema.id_format == proposed
    assert len(schema.read_id_column(data["who"])) == len(ids)
    assert schema.fold_case == (proposed == "email")
    assert Schema.parse(propose_schema(data, target="y")).id_format is None


def test_an_address_in_another_case_finds_its_person_with_the_proposed_schema(tmp_path):
    data = random_table(["Ann@x.org", "ann@x.org", "bob@x.org", "eve@x.org"] * 5, columns=1)
    schema = Schema.parse(propose_schema(data, target="y", id="who"))
    vault = Vault.create(tmp_path / "a.vault", data, schema=schema, model=CodedRegressor(shards=1, rate=1))
    assert vault.unlearn(["ANN@X.ORG"]).rows == 10
    assert vault.find("ann@x.org")[0].state == "erased"
