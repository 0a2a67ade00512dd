"""Files that were cut, flipped or exchanged are refused, or found by the audit; never believed."""

import os
import shutil
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

from expunge.errors import InvalidFile
from expunge.vault import Vault
from expunge.vault.certificates import jws as certificates
from expunge.vault.disk.folder import NO_POINTER, parse_pointers

from support.sampling import sampled
from support.tampering import DEEP, STATE, WHO, inside, judged, of_kind, state
from support.vaults import damaged, duplicate, random_table


def test_the_vault_has_all_kinds_of_files_that_are_tampered_with_here(original):
    assert {part.name.split(".")[0] for part in inside(original)} == set(STATE)


@pytest.mark.parametrize("kind", STATE)
def test_a_file_that_was_cut_is_refused(original, copies, expected, kind):
    for k, part in enumerate(of_kind(original, kind)):
        size = part.stat().st_size
        for length in sorted({0, 1, size // 3, size // 2, size - 1}):
            path = copies()
            os.truncate(of_kind(path, kind)[k], length)
            assert judged(path, expected) == "refused", (part.name, length)


@pytest.mark.parametrize("kind", STATE)
def test_a_file_that_is_not_there_is_refused(original, copies, expected, kind):
    for k in range(len(of_kind(original, kind))):
        path = copies()
        of_kind(path, kind)[k].unlink()
        assert judged(path, expected) == "refused"


# What may be found only by the audit: rows and entries that the request has no need to look at.
LATE = {"rows", "learner", "people"}


# What may be harmless: hexadecimal digits of the other case; a slot that was never given out, which is wiped.
SPARE = {"identity", "rows"}


def counts(current, position):
    """Whether a byte is in the line of `current` that names the manifest that counts."""
    named = parse_pointers(current.read_bytes(), current)
    return named[position // len(NO_POINTER)] == max(named)


def spread(size, count, rng):
    """Positions in all parts of a file."""
    edges = np.linspace(0, size, min(size, count) + 1).astype(int)
    return [int(rng.integers(a, b)) for a, b in pairwise(edges)]


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", STATE)
@sampled("count", 16, 480)
def test_a_flipped_bit_is_refused_or_found(original, copies, expected, kind, count, rng):
    outcomes = set()
    for k, part in enumerate(of_kind(original, kind)):
        for position in spread(part.stat().st_size, count, rng):
            path = copies()
            damaged(of_kind(path, kind)[k], position, int(rng.integers(8)))
            outcome = judged(path, expected)
            allowed = {*(("found", late) for late in LATE), *(("harmless", spare) for spare in SPARE)}
            if kind == "current" and not counts(part, position):
                allowed.add(("harmless", kind))
            assert outcome == "refused" or (outcome, kind) in allowed, (part.name, position, outcome)
            outcomes.add(outcome)
    assert "refused" in outcomes


@pytest.mark.parametrize("suffix", [".key", ".pub"])
def test_a_damaged_key_holds_up_no_erasure_and_certifies_nothing_that_cannot_be_checked(copies, expected, suffix, rng):
    for position in rng.choice(110, 20, replace=False).tolist():
        path = copies()
        pub = path.with_suffix(".pub").read_bytes()
        damaged(path.with_suffix(suffix), position, int(rng.integers(8)))
        vault = Vault.open(path)
        receipt = vault.unlearn([WHO])
        assert receipt.rows == 2
        assert state(vault)[:5] == expected[:5]
        path.with_suffix(".pub").write_bytes(pub)
        if receipt.certificate is not None:
            certificates.verify_statement(receipt.certificate, certificates.load_public_keys(path.with_suffix(".pub")))
        assert Vault.open(path).verify().ok


@pytest.mark.parametrize("kind", STATE)
def test_a_file_of_another_vault_is_refused(other, copies, expected, kind):
    mine = copies()
    for k, part in enumerate(of_kind(other, kind)):
        path = copies()
        same = part.read_bytes() == of_kind(path, kind)[k].read_bytes()
        shutil.copyfile(part, of_kind(path, kind)[k])
        assert judged(path, expected) == ("harmless" if same else "refused"), part.name
    assert mine.exists()


def test_all_files_but_the_identity_of_another_vault_are_refused(other, copies, expected):
    path = copies()
    identity = (path / "identity.json").read_bytes()
    shutil.rmtree(path)
    shutil.copytree(other, path)
    assert judged(path, expected) == "refused"
    (path / "identity.json").write_bytes(identity)
    assert judged(path, expected) == "refused"


def test_a_file_of_an_older_state_of_the_same_vault_is_refused_or_found(original, tmp_path):
    path = duplicate(original, tmp_path / "now")
    vault = Vault.open(path)
    vault.rectify(random_table([WHO, WHO], seed=9))
    vault.unlearn(["person-6"])
    now = duplicate(path, tmp_path / "kept")
    for part in inside(original):
        if not (now / part.name).exists() or part.read_bytes() == (now / part.name).read_bytes():
            continue
        shutil.rmtree(tmp_path / "now")
        path = duplicate(now, tmp_path / "now")
        shutil.copyfile(part, path / part.name)
        try:
            assert not Vault.open(path).verify().ok, part.name
        except InvalidFile:
            continue


def test_an_object_that_is_open_does_not_believe_its_memory(original, tmp_path):
    vault = Vault.open(duplicate(original, tmp_path / "copy"))
    assert vault.verify().ok
    for kind, where in (("learner", 130), ("schema", -1), ("blueprint", -1), ("learner", -1)):  # weights, ..., moments
        part = of_kind(vault.places.vault, kind)[0]
        content = part.read_bytes()
        damaged(part, where % len(content), 0)
        with suppress(InvalidFile):
            assert not vault.verify().ok, kind
        part.write_bytes(content)
        assert vault.verify().ok


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        b'{"a":' * 100_000,
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"\xff\xfe",
        b"{}",
        b'{"vault": 7, "key": []}',
        b"1" * 9999,
    ],
    ids=range(10),
)
@pytest.mark.parametrize("kind", ["identity", "manifest", "schema", "current"])
def test_json_of_any_other_kind_is_refused(copies, expected, kind, content):
    path = copies()
    of_kind(path, kind)[0].write_bytes(content)
    assert judged(path, expected) == "refused"
