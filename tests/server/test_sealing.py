"""Sealed ids: they come back, look alike only for one person, and only the vault's key opens them."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge import CodedRegressor
from expunge.errors import InvalidFile
from expunge.vault import Vault
from expunge.vault.sealed_ids import IdSealer, SealedId

keys = st.binary(min_size=32, max_size=32)
ids = st.lists(st.text(min_size=1, max_size=60).map(lambda text: text.encode(errors="replace")), max_size=20)


@given(keys, ids)
def test_ids_come_back(key, wanted):
    sealed = IdSealer(key).seal(wanted)
    assert IdSealer(key).unseal(sealed) == [one.decode() for one in wanted]
    assert IdSealer(key).unseal([SealedId.from_bytes(one.to_bytes()) for one in sealed]) == [
        one.decode() for one in wanted
    ]
    assert [one.hash for one in sealed] == [one.hash for one in IdSealer(key).seal(wanted)]
    assert len({one.hash for one in sealed}) == len(set(wanted))


@given(keys, keys, st.text(min_size=4, max_size=60).map(lambda text: text.encode(errors="replace")), st.data())
def test_another_key_or_a_changed_bit_opens_nothing(key, other, one, data):
    (sealed,) = IdSealer(key).seal([one])
    raw = bytearray(sealed.to_bytes())
    assert one not in bytes(raw)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(InvalidFile):
        IdSealer(key).unseal([SealedId.from_bytes(bytes(raw))])
    if other != key:
        with pytest.raises(InvalidFile):
            IdSealer(other).unseal([sealed])
        assert IdSealer(other).seal([one])[0].hash != sealed.hash


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.one_of(st.text(min_size=1, max_size=20), st.integers()))
def test_a_vault_opens_what_it_sealed(vault, one):
    try:
        sealed = vault.seal([one])
    except ValueError:  # half of a pair of surrogates
        return
    (back,) = vault.unseal(sealed)
    assert vault.seal([back]) == sealed


def test_one_person_is_sealed_alike_in_all_forms_of_the_id_and_hashed_as_in_the_index(tmp_path):
    model = CodedRegressor(shards=5, rate=5, random_state=0)
    table = pa.table({"who": list("abcdefgh"), "age": [k / 8 for k in range(8)], "spend": [0.5, 0.1] * 4})
    folding = Vault.create(tmp_path / "a.vault", table, target="spend", id="who", model=model, fold_case=True)
    forms = folding.seal(["\u00c9a", "E\u0301A", "\u00e9a"])
    assert forms[0] == forms[1] == forms[2]
    assert folding.seal([4711])[0] == folding.seal(["4711"])[0]
    assert folding.seal(["p1"])[0] != folding.seal(["p2"])[0]
