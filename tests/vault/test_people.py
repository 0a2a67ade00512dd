"""What is known of people: a damaged entry is found, and hides nobody."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidFile
from expunge.vault import Vault
from expunge.vault.disk.people import count_distinct_ids

from support.sampling import sampled
from support.tampering import EVERYONE, of_kind
from support.vaults import damaged, slots_of


@pytest.mark.slow
@pytest.mark.no_cover
@sampled("every", 40, 8)
def test_an_entry_of_people_that_is_damaged_never_hides_somebody(original, copies, expected, every):
    """Whatever word of the index is damaged: nobody is answered "unknown" who is there, nor erased in part."""
    everyone = slots_of(Vault.open(original), EVERYONE)
    for k, part in enumerate(of_kind(original, "people")):
        for position in range(0, part.stat().st_size, every):
            path = copies()
            damaged(of_kind(path, "people")[k], position + 7, 7 - position // 8 % 2)
            vault = Vault.open(path)
            for one in EVERYONE:
                with suppress(InvalidFile):
                    assert slots_of(vault, [one])[one] == everyone[one]
            with pytest.raises(InvalidFile):
                slots_of(vault, EVERYONE)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)), max_size=40))
def test_as_many_people_are_counted_as_there_are_hashes(pairs):
    hashes = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    assert count_distinct_ids(np.concatenate([hashes, hashes[::2]])) == len(set(pairs))
