"""Ids that are not known: whether a similar one is there is told by trying variants of the id that was asked for."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from expunge.errors import UnknownId
from expunge.tables import Schema, find_similar_ids, id_bytes
from expunge.tables.ids import MAX_SIMILAR_IDS
from expunge.vault import Erasure, Vault

from support.vaults import everything, made, random_table, small

UUID = "5ad15a08-6a3f-4e0f-9f0b-0a6cf1e7a1c2"
PEOPLE = ["4713", "0004715", "C-17", "anna@example.org", "ZO\xcb", "x y", UUID, "-3", "4716.0", "a-b", "4717", "O'Neil"]
MISSES = {
    "4713.0": "4713",
    "4713.00": "4713",
    "04713": "4713",
    "+4713": "4713",
    "4,713": "4713",
    "4 713": "4713",
    "'4713": "4713",
    '"4713"': "4713",
    "' 4713 '": "4713",
    "\u201c4713\u201d,": "4713",
    "[4713]": "4713",
    "\uff14\uff17\uff11\uff13": "4713",
    "\u200b4713": "4713",
    "4715": "0004715",
    "4715.0": "0004715",
    "c-17": "C-17",
    "C\u201117": "C-17",
    "ANNA@EXAMPLE.ORG": "anna@example.org",
    "<Anna@example.org>": "anna@example.org",
    "zo\xeb": "ZO\xcb",
    "ZOE\u0308\ufeff": "ZO\xcb",
    "x\xa0y": "x y",
    UUID.upper(): UUID,
    UUID.replace("-", ""): UUID,
    f"{{{UUID}}}": UUID,
    f"urn:uuid:{UUID}": UUID,
    "-3.0": "-3",
    "-03": "-3",
    "4716": "4716.0",
    "A-B": "a-b",
    "a\u2013b": "a-b",
    "o'neil": "O'Neil",
}
STRANGERS = [
    "4714",
    "nobody",
    "3",
    "C-18",
    "4,71",
    "1",
    "C17",
    "xy z",
    "\U0001f600",
    "\u0301",
    "0",
    "''",
    '"',
    "-",
    "x" * 500,
]


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    return made(tmp_path_factory.mktemp("similar") / "v.vault", random_table(PEOPLE))


@pytest.mark.parametrize("asked", MISSES)
def test_a_near_miss_is_told_and_nothing_is_erased(vault, asked):
    before = everything(vault.places.vault)
    [holding] = vault.find([asked])
    assert (holding.state, holding.similar) == ("unknown", True)
    assert id_bytes(MISSES[asked])[0] in find_similar_ids(id_bytes(asked)[0], fold_case=False)
    for options in ({}, {"skip_unknown": True}):
        with pytest.raises(UnknownId, match="a similar id for 1 of them, at position 2: check") as caught:
            vault.unlearn(["somebody else", asked], **options)
        assert asked not in str(caught.value)
        assert MISSES[asked] not in str(caught.value)
    assert everything(vault.places.vault) == before


@pytest.mark.parametrize("asked", STRANGERS)
def test_nobody_is_called_similar_to_a_stranger(vault, asked):
    assert [(one.state, one.similar) for one in vault.find([asked])] == [("unknown", False)]
    with pytest.raises(UnknownId) as caught:
        vault.unlearn(asked)
    assert "similar" not in str(caught.value)


def test_outcomes_tell_what_is_similar_and_count_everybody(tmp_path):
    vault = made(tmp_path / "v.vault", random_table(range(10)))
    vault.unlearn([1, 2])
    receipt = vault.unlearn([0, 1, "3.0", "nobody", "03", 2, 4, 4], skip_unknown=True)
    assert [(one.state, one.similar) for one in receipt.outcomes] == [
        ("erased", False),
        ("earlier", False),
        ("unknown", True),
        ("unknown", False),
        ("unknown", True),
        ("earlier", False),
        ("erased", False),
        ("erased", False),
    ]
    assert (receipt.people, receipt.erased_earlier, receipt.skipped) == (2, 2, 3)
    _, [mine, other] = vault.unlearn_group([Erasure(["5.0"]), Erasure([6, "7"])])
    assert [(one.state, one.similar) for one in (*mine, *other)] == [
        ("unknown", True),
        ("erased", False),
        ("erased", False),
    ]
    assert not vault.find(["7.0"])[0].similar  # whoever was erased is not here


def test_only_erasures_and_lookups_tell_of_similar_ids(vault):
    for call in (lambda: vault.readmit("4713.0"), lambda: vault.rectify(random_table(["4713.0", "x"]))):
        with pytest.raises(UnknownId) as caught:
            call()
        assert "similar" not in str(caught.value)


def test_case_does_not_make_ids_similar_where_it_does_not_count(tmp_path):
    text = 'id = "who"\ntarget = "y"\nfold_case = true\n[columns.y]\nkind = "number"\n[columns.x0]\nkind = "number"\n'
    data = random_table(["Anna", "bob", "Cleo", "7"], columns=1)
    vault = Vault.create(tmp_path / "v.vault", data, schema=Schema.parse(text), model=small())
    assert [(one.state, one.similar) for one in vault.find(["ANNA", '"BOB"', "07", "dora"])] == [
        ("present", False),
        ("unknown", True),
        ("unknown", True),
        ("unknown", False),
    ]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300).filter(str.strip), st.booleans())
@example("9" * 150, False)
@example("'" * 150, False)
@example("a" * 10**5, True)
def test_variants_are_few_and_ids_in_their_one_form(text, fold_case):
    [known] = id_bytes(text, fold_case=fold_case)
    found = find_similar_ids(known, fold_case=fold_case)
    assert len(found) <= MAX_SIMILAR_IDS
    assert known not in found
    assert len(set(found)) == len(found)
    if found:
        assert id_bytes([one.decode() for one in found], fold_case=fold_case) == found


@given(
    st.integers(-(10**8), 10**8),
    st.sampled_from(["{}.0", "{:+d}", "{:09d}", "'{}'", '"{}"', "{:,}", "  {}\t", "{}.000"]),
)
def test_a_number_is_found_however_it_is_written(number, form):
    wanted = str(number).encode()
    [asked] = id_bytes(form.format(number))
    assert asked == wanted or wanted in find_similar_ids(asked, fold_case=False)


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20), st.sampled_from(["NFKC", "NFKD"]))
def test_an_id_is_found_in_its_compatible_form(text, form):
    [wanted] = id_bytes(unicodedata.normalize("NFKC", text))
    [asked] = id_bytes(text)
    assert asked == wanted or wanted in find_similar_ids(asked, fold_case=False)


def test_only_the_first_thousand_unknown_ids_are_looked_at(vault):
    found = vault.find([*(f"stranger-{k}" for k in range(999)), "4713.0", "04713"])
    assert [one.similar for one in found[-2:]] == [True, False]
