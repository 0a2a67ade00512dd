"""Merkle trees: they are those of RFC 6962, and no other leaf, place, size or path leads to the same root."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.vault.certificates.commitments import MerkleTree, merkle_root, root_from_path

# The leaves and roots that the implementations of Certificate Transparency are tested with.
LEAVES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]

leaves = st.lists(st.binary(max_size=40), min_size=1, max_size=70)


def split(n):
    """The largest power of two smaller than n."""
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def mth(d):
    """MTH of RFC 6962, 2.1, word by word."""
    if not d:
        return hashlib.sha256(b"").digest()
    if len(d) == 1:
        return hashlib.sha256(b"\x00" + d[0]).digest()
    k = split(len(d))
    return hashlib.sha256(b"\x01" + mth(d[:k]) + mth(d[k:])).digest()


def audit_path(m, d):
    """PATH of RFC 6962, 2.1.1, word by word."""
    if len(d) == 1:
        return ()
    k = split(len(d))
    if m < k:
        return (*audit_path(m, d[:k]), mth(d[k:]))
    return (*audit_path(m - k, d[k:]), mth(d[:k]))


@st.composite
def places(draw):
    """A list, and a place in it."""
    d = draw(leaves)
    return d, draw(st.integers(0, len(d) - 1))


def test_the_roots_are_those_of_certificate_transparency():
    assert [merkle_root(LEAVES[:n]).hex() for n in range(9)] == ROOTS


@pytest.mark.parametrize("n", range(1, 35))
def test_every_root_and_path_is_that_of_the_text_of_the_rfc(n):
    d = [b"%d" % k for k in range(n)]
    tree = MerkleTree(d)
    assert (tree.size, tree.root) == (n, mth(d))
    for m in range(n):
        assert tree.path(m) == audit_path(m, d)
        assert root_from_path(d[m], m, n, tree.path(m)) == tree.root


@given(places())
def test_a_path_leads_to_the_root(case):
    d, m = case
    assert merkle_root(d) == mth(d)
    assert MerkleTree(d).path(m) == audit_path(m, d)
    assert root_from_path(d[m], m, len(d), MerkleTree(d).path(m)) == merkle_root(d)


@given(places(), st.data())
def test_nothing_else_leads_to_the_root(case, data):
    d, m = case
    true, others = MerkleTree(d).path(m), st.binary(min_size=32, max_size=32)
    leaf, index, steps = d[m], m, list(true)
    change = data.draw(st.sampled_from(["leaf", "index", "longer", "shorter", "hash"]))
    if change == "leaf":
        leaf = data.draw(st.binary(max_size=40).filter(lambda other: other != leaf))
    elif change == "index":
        index = data.draw(st.integers(0, len(d) - 1))
    elif change == "longer":
        steps.insert(data.draw(st.integers(0, len(true))), data.draw(others))
    elif change == "shorter" and true:
        steps.pop(data.draw(st.integers(0, len(true) - 1)))
    elif true:
        steps[data.draw(st.integers(0, len(true) - 1))] = data.draw(others)
    try:
        found = root_from_path(leaf, index, len(d), steps)
    except ValueError:
        found = None
    same = (leaf, index, tuple(steps)) == (d[m], m, true)
    equal_elsewhere = leaf == d[index] and tuple(steps) == MerkleTree(d).path(index)  # the same leaf may be there twice
    assert (found == merkle_root(d)) == (same or equal_elsewhere)


@given(places(), st.integers(-3, 200))
def test_a_path_of_another_length_than_the_place_asks_for_is_refused(case, size):
    d, m = case
    true = MerkleTree(d).path(m)
    wanted = len(audit_path(m, [b""] * size)) if m < size else None
    if len(true) == wanted:
        assert len(root_from_path(d[m], m, size, true)) == 32
    else:
        with pytest.raises(ValueError):
            root_from_path(d[m], m, size, true)


@pytest.mark.parametrize("index", [-1, 3, 10**30])
def test_a_place_that_is_not_in_the_list_is_refused(index):
    with pytest.raises(ValueError):
        root_from_path(b"", index, 3, ())
    with pytest.raises(IndexError):
        MerkleTree([b"a", b"b", b"c"]).path(index)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_hash_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match="32 bytes"):
        root_from_path(b"", 0, 2, [b"x" * length])


def test_a_pair_cannot_pass_for_a_leaf():
    left, right = (hashlib.sha256(b"\0" + one).digest() for one in (b"a", b"b"))
    assert merkle_root([left + right]) != merkle_root([b"a", b"b"])
    assert root_from_path(left + right, 0, 1, ()) != merkle_root([b"a", b"b"])
