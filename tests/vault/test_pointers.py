"""The file `current`: whatever a crash leaves of a commit, it names the manifest before or the one after."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidFile
from expunge.vault.disk.folder import NO_POINTER, parse_pointers, pointer_line

PATH = Path("current")
NUMBERS = st.integers(1, 10**12 - 1)


@given(before=st.integers(1, 10**12 - 2), older=st.integers(0, 10**12), more=NUMBERS, first=st.booleans())
def test_a_commit_that_is_cut_short_anywhere_names_the_manifest_before_or_the_one_after(before, older, more, first):
    after = min(before + more, 10**12 - 1)
    stale = pointer_line(older % before) if older % before else NO_POINTER
    for cut in range(len(stale) + 1):
        written = pointer_line(after)[:cut] + stale[cut:]
        lines = (pointer_line(before), written) if first else (written, pointer_line(before))
        assert max(parse_pointers(b"".join(lines), PATH)) == (after if written == pointer_line(after) else before)


@given(number=NUMBERS, bit=st.integers(0, 8 * len(NO_POINTER) - 1))
def test_a_line_with_any_bit_flipped_names_nothing(number, bit):
    line = bytearray(pointer_line(number))
    line[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidFile, match="damaged"):
        parse_pointers(bytes(line) + NO_POINTER, PATH)


@pytest.mark.parametrize(
    "data", [b"", NO_POINTER * 2, b"request 1", pointer_line(1), pointer_line(1) * 3, pointer_line(1) + b"\n"]
)
def test_what_is_not_two_lines_of_which_one_names_a_manifest_is_damaged(data):
    with pytest.raises(InvalidFile, match="damaged"):
        parse_pointers(data, PATH)


@pytest.mark.parametrize("data", [b"manifest.12\n", b"manifest.12 0123abcd          \n" + NO_POINTER])
def test_a_vault_of_an_older_version_is_told_so(data):
    with pytest.raises(InvalidFile, match="current is of an older version: use the release that made it, or train"):
        parse_pointers(data, PATH)
