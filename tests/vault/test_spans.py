"""Spans: few writes that put entries into their places, and change nothing between them."""

import os
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.saving import files
from expunge.saving.ownership import SiblingPath
from expunge.vault.disk import spans as room
from expunge.vault.disk.people import SegmentFile, segment_bytes
from expunge.vault.disk.spans import plan_spans

from support.disks import Interrupted, used
from support.sampling import examples

STRUCTURED = np.dtype([("low", "<u8"), ("slot", "<i8"), ("check", "<u8")])


def entries(count, kind, seed):
    """Entries of a file, of bytes or of three words each."""
    data = np.random.default_rng(seed).bytes(count * 24)
    return (
        np.frombuffer(data, dtype=np.uint8).reshape(count, 24) if kind == "bytes" else np.frombuffer(data, STRUCTURED)
    )


def applied(content, pieces):
    """A file's content with these pieces written into it, one after the other."""
    changed = bytearray(content)
    for offset, data in pieces:
        assert 0 <= offset <= offset + len(data) <= len(content)
        changed[offset : offset + len(data)] = data
    return bytes(changed)


@examples(300)
@given(
    count=st.integers(1, 200),
    chosen=st.lists(st.integers(0, 199), max_size=60),
    kind=st.sampled_from(["bytes", "words"]),
    near=st.sampled_from([0, 24, 25, 100, 1000, 2**14]),
    most=st.sampled_from([1, 24, 50, 240, 2**22]),
)
def test_the_pieces_are_the_same_as_to_assign_each_entry(count, chosen, kind, near, most):
    places = np.array([place % count for place in chosen], dtype=np.int64)
    now, table = entries(count, kind, 0), entries(len(places), kind, 1)
    head, tail = b"head", b"tail"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MAX_GAP_BYTES", near)
        patch.setattr(room, "MAX_SPAN_BYTES", most)
        pieces = list(plan_spans(places, table, now, offset=len(head)))
    wanted = now.copy()
    for place, entry in zip(places.tolist(), table, strict=True):
        wanted[place] = entry
    assert applied(head + now.tobytes() + tail, pieces) == head + wanted.tobytes() + tail
    assert all(len(data) <= max(24, most) for _, data in pieces)
    taken = sorted(set(places.tolist()))
    far = sum((b - a - 1) * 24 >= near for a, b in pairwise(taken))
    bins = len({place // max(1, most // 24) for place in taken})
    assert far + bool(taken) <= len(pieces) <= far + bins
    ends = [(offset, offset + len(data)) for offset, data in pieces]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))  # no byte is written twice


def test_of_one_entry_nothing_around_it_is_read_or_written():
    now = np.zeros((10, 24), dtype=np.uint8)
    [(offset, data)] = plan_spans(np.array([3]), np.ones((1, 24), dtype=np.uint8), now[:0], offset=8)
    assert (offset, bytes(data)) == (8 + 3 * 24, b"\1" * 24)


def test_a_tenth_of_many_entries_is_a_few_bounded_writes():
    places = np.random.default_rng(0).permutation(10**6)[: 10**5]
    now = np.zeros((10**6, 24), dtype=np.uint8)
    sizes = [len(data) for _, data in plan_spans(places, np.ones((10**5, 24), dtype=np.uint8), now)]
    assert len(sizes) == 6
    assert max(sizes) <= 2**22


class Counted(Interrupted):
    """A disk that counts what is written."""

    def __init__(self):
        self.writes = 0

    def before(self, name, *args):
        self.writes += name == "write"


def test_a_segment_overwrites_many_entries_in_one_write_and_the_others_stay(tmp_path):
    rng, seal = np.random.default_rng(0), b"s" * 16
    hashes, slots = rng.integers(0, 2**63, (500, 2)).astype(np.uint64), np.arange(500)
    path = files.VaultDir(SiblingPath(tmp_path)) / "people.1"
    files.create(path, *segment_bytes(hashes, slots, seal))
    segment = SegmentFile(path, 500, seal)
    before, place = segment.read_slots(), rng.permutation(500)[:200]
    with used(Counted()) as disk:
        segment.overwrite(place, -2 - np.arange(200))
    assert disk.writes == 1
    wanted = before.copy()
    wanted[place] = -2 - np.arange(200)
    again = SegmentFile(path, 500, seal)  # which checks every entry
    assert np.array_equal(again.read_slots(), wanted)
    assert np.array_equal(again.read_hashes(), segment.read_hashes())
    assert os.path.getsize(path) == 500 * 32
