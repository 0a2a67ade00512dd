"""Ids that Unicode calls the same are one person, however they are written and wherever they come from."""

import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from expunge.errors import ErasedId, InvalidColumns, InvalidInput, InvalidSetting
from expunge.tables import Schema, id_bytes
from expunge.vault import Vault

from support.sampling import examples
from support.vaults import ANYTHING, duplicate, made, random_table, small

BLANKS = "".join(filter(str.isspace, map(chr, range(0x110000))))
LETTERS = "aAeEiIoOuUsSzZ1 ßſıİÅÅΩΩσςΣﬁǰ한각\u1100\u1161\u11a8"
MARKS = "\u0301\u0308\u0323\u0307\u030a\u0345\u030c\u0327"
TEXTS = (
    st.text(st.sampled_from(LETTERS + MARKS), min_size=1, max_size=6)
    | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
).filter(str.strip)
FORMS = ("NFC", "NFD")
FOLDING = 'id = "who"\ntarget = "y"\nfold_case = true\n[columns.y]\nkind = "number"\n[columns.x0]\nkind = "number"\n'


def written(text):
    """The same id in every form that Unicode calls the same."""
    return list(dict.fromkeys([text, *(unicodedata.normalize(form, text) for form in FORMS)]))


def columns(texts):
    """These ids in every array that may hold them."""
    yield pa.array(texts)
    yield pa.array(texts, pa.large_string())
    yield pa.array(texts).dictionary_encode()
    yield pa.chunked_array([texts[:1], texts[1:]], pa.string())
    yield np.array(texts, dtype=object)
    yield texts


@examples(300)
@given(TEXTS, TEXTS)
@example("e\u0301", "\xe9")
@example("\u212b", "A\u030a")
@example("a\u0323\u0307", "a\u0307\u0323")
def test_two_ids_are_the_same_bytes_exactly_if_they_are_canonically_equivalent(one, other):
    same = unicodedata.normalize("NFD", one.strip()) == unicodedata.normalize("NFD", other.strip())
    assert (id_bytes(one) == id_bytes(other)) == same
    for texts in (written(one), written(other)):
        for ids in columns(texts):
            assert len(set(id_bytes(ids))) == 1
            assert id_bytes(ids) == [id_bytes(text)[0] for text in texts]


@examples(300)
@given(TEXTS, TEXTS)
@example("Anna", "ANNA")
@example("stra\xdfe", "STRASSE")
@example("\u0345\u0301", "\u0399\u0301")
@example("\u01f0", "J\u030c")
def test_folded_ids_are_the_same_exactly_if_they_match_without_case(one, other):
    def matched(text):  # "canonical caseless matching", definition D145 of the Unicode standard
        return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text.strip()).casefold())

    assert (id_bytes(one, fold_case=True) == id_bytes(other, fold_case=True)) == (matched(one) == matched(other))
    if one.isascii():
        assert id_bytes(one, fold_case=True) == [one.strip().lower().encode()]


@given(TEXTS, st.text(st.sampled_from(BLANKS), max_size=3), st.text(st.sampled_from(BLANKS), max_size=3))
def test_blanks_around_an_id_do_not_count_wherever_it_comes_from(text, before, after):
    for ids in columns([before + text + after, text]):
        assert id_bytes(ids) == id_bytes([text, text])


@given(st.lists(st.text(st.sampled_from(BLANKS), max_size=3), min_size=1, max_size=3))
def test_an_id_of_blanks_alone_is_refused_by_its_place(blanks):
    with pytest.raises(InvalidInput):
        id_bytes(blanks)
    with pytest.raises(
        InvalidColumns, match=rf"rows without an id: {len(blanks)} in ids \(of {len(blanks) + 1} rows\)"
    ):
        id_bytes(pa.array(["a", *blanks]))
    with pytest.raises(InvalidInput, match=r"ids that are empty or only blanks: 1 of 3, at position 2"):
        id_bytes(["a", "\u3000", "b"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return made(tmp_path_factory.mktemp("trained") / "v.vault").places.vault


@examples(15)
@given(TEXTS, st.data())
@example("Zo\xeb", None)
def test_every_request_knows_a_person_by_every_form_of_the_id(trained, tmp_path_factory, text, data):
    forms = iter(written(text) * 16 if data is None else data.draw(st.permutations(written(text) * 16)))
    assume(not text.strip().replace(".", "").isdecimal())
    vault = Vault.open(duplicate(trained, tmp_path_factory.mktemp("copy")))
    vault.add(random_table([next(forms), next(forms)], seed=1))
    assert vault.find(next(forms))[0].rows == 2
    vault.rectify(random_table([next(forms), next(forms)], seed=2))
    assert vault.unlearn([next(forms), next(forms)]).people == 1
    assert vault.find(next(forms))[0].state == "erased"
    for request in (vault.add, vault.rectify):
        with pytest.raises(ErasedId):
            request(random_table([next(forms)], seed=3))
    vault.readmit(next(forms))
    assert vault.add(random_table([next(forms)], seed=3)).people == 1


def test_whoever_was_erased_does_not_come_back_with_a_blank(tmp_path):
    vault = made(tmp_path / "v.vault", random_table([" 4711", "4712\t", "4713", "4714", "4715"]))
    assert vault.unlearn("4711").people == 1
    assert vault.unlearn(["\u30004712 "]).people == 1
    for text in ("4711", "4712", "4712 "):
        with pytest.raises(ErasedId):
            vault.add(random_table([f" {text}"], seed=3))
        assert vault.find(text)[0].state == "erased"


def folding(path, ids=("Anna", "bob", "Cleo", "dora", "\xc9va"), **options):
    data = random_table(list(ids), columns=1)
    return Vault.create(path, data, schema=Schema.parse(FOLDING), model=small(), **options)


def test_a_schema_may_fold_the_case_of_ids_for_every_request(tmp_path):
    vault = folding(tmp_path / "v.vault")
    assert vault.unlearn(["ANNA", "E\u0301VA", "\xe9va"]).people == 2
    vault = Vault.open(tmp_path / "v.vault")
    assert [one.state for one in vault.find(["anna", "aNNa", "BOB", "\xc9va"])] == ["erased"] * 2 + [
        "present",
        "erased",
    ]
    with pytest.raises(ErasedId):
        vault.add(random_table(["aNNA"], columns=1))
    vault.rebound({"x0": (-3, 3)})
    assert vault.rectify(random_table(["bOb"], columns=1)).people == 1
    assert vault.readmit("aNNa").people == 1
    assert vault.verify().ok


def test_training_anew_with_other_rules_for_ids_is_refused(tmp_path):
    vault = folding(tmp_path / "v.vault")
    vault.unlearn("anna")
    data = random_table(["Anna", "bob", "Cleo", "dora"], columns=1)
    with pytest.raises(InvalidSetting, match="fold_case = true.*would let erased ids return"):
        Vault.create(vault.places.vault, data, target="y", id="who", model=small(), replace=True)
    with pytest.raises(ErasedId):
        Vault.create(
            vault.places.vault, data, target="y", id="who", model=small(), replace=True, fold_case=True, **ANYTHING
        )
    plain = made(tmp_path / "plain.vault")
    with pytest.raises(InvalidSetting, match="without fold_case.*would let erased ids return"):
        folding(plain.places.vault, replace=True)


def test_predictions_have_ids_as_the_table_has_them(tmp_path):
    vault, ids = folding(tmp_path / "v.vault"), ["Anna", "E\u0301va", "\xc9VA"]
    probe = random_table(ids, columns=1)
    assert vault.predict_with_ids(probe)[0] == ids
    vault.predict_to(probe, tmp_path / "p.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "p.parquet")["who"].to_pylist() == ids


def test_fold_case_is_true_or_false_and_survives_the_way_into_the_vault():
    schema = Schema.parse(FOLDING)
    assert schema.fold_case
    assert Schema.from_json(schema.to_json()) == schema
    assert not Schema.parse(FOLDING.replace("true", "false")).fold_case
    with pytest.raises(InvalidSetting, match="fold_case must be true or false"):
        Schema.parse(FOLDING.replace("true", '"yes"'))


OFFSETS = pa.py_buffer(np.array([0, 2], dtype=np.int32).tobytes())
NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, OFFSETS, pa.py_buffer(b"\xff\xfe")])


@pytest.mark.parametrize("ids", [10**5000, [-(10**5000)], NO_TEXT], ids=["long", "negative", "no UTF-8"])
def test_an_id_that_has_no_text_is_refused(ids):
    with pytest.raises(InvalidInput, match="id"):
        id_bytes(ids)
