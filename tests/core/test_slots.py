import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.encoding.placement import BLOCK, CHUNK, Placement, draw_slots, free_slots, slots_needed
from expunge.encoding.randomness import Shuffle
from expunge.errors import InvalidInput, UnknownId
from expunge.stores.ids import GONE, IdIndex, as_ids, slots_of_mentions

from support.sampling import examples

KEY = np.array([3, 5], dtype=np.uint64)
keys = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(lambda k: np.array(k, dtype=np.uint64))


def batches(key, sizes, shards):
    starts = np.cumsum([0, *sizes]).tolist()
    return [draw_slots(key, start, size, shards) for start, size in zip(starts, sizes, strict=False)]


@examples(100)
@given(keys, st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 9))
def test_batches_of_any_sizes_fill_stripes_without_gaps(key, sizes, shards):
    n = 0
    taken = set()
    for slots in batches(key, sizes, shards):
        assert slots.dtype == np.int64
        assert not taken & set(slots.tolist())
        taken |= set(slots.tolist())
        n += len(slots)
        assert len(taken) == n
        assert set(range(n // shards * shards)) <= taken  # whole stripes are full
        assert max(taken, default=-1) < -(-n // shards) * shards  # and no later one was begun


@examples(60)
@given(keys, st.integers(1, 9), st.lists(st.integers(1, 5), min_size=1, max_size=10))
def test_a_stripe_filled_over_several_batches_has_every_lane_once(key, shards, sizes):
    slots = np.concatenate(batches(key, sizes, shards))
    for stripe in range(len(slots) // shards):
        lanes = slots[slots // shards == stripe] % shards
        assert sorted(lanes.tolist()) == list(range(shards))


def test_single_rows_go_through_the_lanes_of_each_stripe_in_an_order_of_its_own():
    slots = np.array([draw_slots(KEY, start, 1, 6)[0] for start in range(600)])
    assert (slots // 6).tolist() == [k // 6 for k in range(600)]
    orders = {tuple(lanes) for lanes in (slots % 6).reshape(-1, 6).tolist()}
    assert len(orders) > 80  # of 100 stripes


def test_slots_depend_on_key_start_count_and_shards_alone():
    first = draw_slots(KEY, 40, 25, 7)
    np.random.seed(0)  # whatever NumPy's own state is
    np.testing.assert_array_equal(first, draw_slots(KEY.copy(), 40, 25, 7))
    others = [
        draw_slots(np.array([3, 6], dtype=np.uint64), 40, 25, 7),
        draw_slots(KEY, 47, 25, 7) - 7,
        draw_slots(KEY, 40, 26, 7)[:25],
    ]
    assert all((first != other).any() for other in others)


@pytest.mark.parametrize(("start", "count", "shards"), [(0, 100, 7), (33, 70, 7), (5, 3, 20), (40, 60, 1)])
def test_how_many_are_drawn_at_once_does_not_show(start, count, shards, monkeypatch):
    whole = draw_slots(KEY, start, count, shards)
    for at_once in (1, 7, 8, 64):
        monkeypatch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", at_once)
        np.testing.assert_array_equal(draw_slots(KEY, start, count, shards), whole)


def test_an_index_without_ids_counts_and_leaves_the_slots_that_it_was_given_alone():
    slots = np.array([5, 3, 4])
    index = IdIndex(None, slots)
    index.erase(index.find(as_ids([1])))
    assert [array.tolist() for array in index.entries()] == [[0, 2], [5, 4]]
    assert slots.tolist() == [5, 3, 4]


def test_slots_never_change_between_releases():
    assert draw_slots(KEY, 0, 10, 4).tolist() == GOLDEN[0]
    assert draw_slots(KEY, 10, 5, 4).tolist() == GOLDEN[1]


GOLDEN = [[3, 0, 1, 5, 6, 2, 4, 11, 8, 7], [9, 13, 14, 10, 12]]


sizes = st.one_of(
    st.integers(0, 30), st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7, BLOCK + 5 * CHUNK + 3])
)


@examples(60)
@given(keys, st.lists(sizes, min_size=1, max_size=4), st.integers(1, 25), st.randoms(use_true_random=False))
def test_slots_and_numbers_of_rows_are_inverse_of_any_part_alone(key, counts, shards, random):
    starts = np.cumsum([0, *counts]).tolist()
    dealt = Placement(key, shards, tuple(starts[:-1]), starts[-1])
    rows = np.arange(dealt.drawn)
    slots = dealt.slots(rows)
    np.testing.assert_array_equal(slots, np.concatenate(batches(key, counts, shards)))
    np.testing.assert_array_equal(dealt.rows(slots), rows)
    assert {*slots.tolist(), *free_slots(key, dealt.drawn, shards).tolist()} == set(
        range(slots_needed(dealt.drawn, shards))
    )
    some = np.array(random.sample(range(dealt.drawn), min(7, dealt.drawn)), dtype=np.int64)
    np.testing.assert_array_equal(dealt.slots(some), slots[some])
    np.testing.assert_array_equal(dealt.rows(slots[some]), some)


@examples(30)
@given(keys, st.integers(1, 25))
def test_a_block_of_slots_has_whole_chunks_of_rows_but_for_its_edges(key, shards):
    dealt = Placement(key, shards, (0,), 3 * BLOCK)
    rows = dealt.rows(np.arange(dealt.block, 2 * dealt.block))  # the second of at least three
    chunks, counts = np.unique(rows // CHUNK, return_counts=True)
    assert len(chunks) <= dealt.block // CHUNK + 2
    assert (counts < CHUNK).sum() <= 2


def test_a_sorted_table_is_dealt_over_all_of_itself():
    """The rows of a stripe are as far apart as those of a draw of all rows: their mean varies as little."""
    n, s = 40 * BLOCK, 20
    means = Placement(KEY, s, (0,), n).rows(np.arange(n)).reshape(-1, s).mean(axis=1) / n
    assert means.std() < 1.2 * np.sqrt(1 / 12 / s)  # in the order of arrival it would be 4.5 times as much
    lanes = Placement(KEY, s, (0,), n).slots(np.arange(BLOCK)) % s  # a part of it goes to all lanes alike
    assert np.bincount(lanes).std() < 3 * np.sqrt(BLOCK / s)


@examples(60)
@given(keys, st.integers(0, 2), st.integers(0, 2**64 - 1), st.integers(1, 3000))
def test_a_shuffle_is_a_permutation_and_goes_back(key, kind, tweak, size):
    shuffle, x = Shuffle.from_key(key), np.arange(size, dtype=np.uint64)
    there = shuffle.forward(kind, np.uint64(tweak), np.uint64(size), x)
    assert sorted(there.tolist()) == list(range(size))
    np.testing.assert_array_equal(shuffle.backward(kind, np.uint64(tweak), np.uint64(size), there), x)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_orders_of_few_numbers_are_about_equally_likely(size):
    draws = 100_000
    tweaks = np.repeat(np.arange(draws, dtype=np.uint64), size)
    x = np.tile(np.arange(size, dtype=np.uint64), draws)
    orders = Shuffle.from_key(KEY).forward(2, tweaks, np.uint64(size), x).reshape(draws, size) @ 10 ** np.arange(
        size, dtype=np.uint64
    )
    counts, freedom = np.unique(orders, return_counts=True)[1], math.factorial(size) - 1
    assert len(counts) == freedom + 1
    chi_square = ((counts - draws / len(counts)) ** 2 / (draws / len(counts))).sum()
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom)


def test_a_batch_is_permuted():
    slots = draw_slots(KEY, 0, 1200, 12)
    assert abs(np.corrcoef(np.arange(1200), slots)[0, 1]) < 0.1
    lanes = np.bincount(slots[:600] % 12, minlength=12)  # a sorted table does not fill one lane with like rows
    assert lanes.min() > 30


def test_every_place_is_about_equally_likely():
    counts = np.zeros((6, 6), dtype=int)
    for seed in range(3000):
        counts[np.arange(6), draw_slots(np.array([seed, 1], dtype=np.uint64), 0, 6, 3)] += 1
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 60  # 25 degrees of freedom


IDS = {
    "ints": ([3, -1, 3], [3, -1, 3]),
    "one int": (7, [7]),
    "one numpy int": (np.int16(7), [7]),
    "one text": ("ab", ["ab"]),
    "one numpy text": (np.str_("ab"), ["ab"]),
    "empty text": ([""], [""]),
    "texts": (["b", "", "äöü", "a\0b"], ["b", "", "äöü", "a\0b"]),
    "tuple": ((1, 2), [1, 2]),
    "range": (range(3), [0, 1, 2]),
    "generator": ((i for i in (4, 5)), [4, 5]),
    "numpy ints": (np.array([1, 2], dtype=np.uint8), [1, 2]),
    "numpy uint64": (np.array([2**63 - 2], dtype=np.uint64), [2**63 - 2]),
    "numpy ints in a list": ([np.uint64(5), np.int8(-3), 4], [5, -3, 4]),
    "numpy texts": (np.array(["x", "yy"]), ["x", "yy"]),
    "numpy objects": (np.array(["x", "yy"], dtype=object), ["x", "yy"]),
    "numpy string dtype": (np.array(["x", "yy"], dtype=np.dtypes.StringDType()), ["x", "yy"]),
    "pandas ints": (pd.Series([1, 2], index=[5, 6]), [1, 2]),
    "pandas nullable ints": (pd.Series([1, 2], dtype="Int64"), [1, 2]),
    "pandas objects": (pd.Series(["x", "yy"], dtype=object), ["x", "yy"]),
    "pandas strings": (pd.Series(["x", "yy"], dtype="string"), ["x", "yy"]),
    "pandas index": (pd.Index(["x", "yy"]), ["x", "yy"]),
    "polars ints": (pl.Series([1, 2]), [1, 2]),
    "polars strings": (pl.Series(["x", "yy"]), ["x", "yy"]),
    "the ends": ([2**63 - 2, -(2**63)], [2**63 - 2, -(2**63)]),
    "none": ([], []),
    "none of floats": (np.array([]), []),
}


@pytest.mark.parametrize("case", IDS)
def test_ids_are_whole_numbers_or_text_from_anywhere(case):
    given_, expected = IDS[case]
    ids = as_ids(given_)
    assert ids.tolist() == expected
    assert ids.ndim == 1
    assert ids.dtype.kind == "U" or ids.dtype == np.int64


REFUSED = {
    "bytes": b"ab",
    "many bytes": [b"ab"],
    "numpy bytes": np.array([b"ab"]),
    "float": 1.5,
    "whole float": [1.0],
    "numpy floats": np.array([1.0, 2.0]),
    "bool": True,
    "bools": [True, False],
    "numpy bools": np.array([True]),
    "numpy bool in a list": [np.True_],
    "mixed": [1, "a"],
    "int and float": [1, 2.5],
    "None": None,
    "a None": ["a", None],
    "a NaN": ["a", float("nan")],
    "NaN": [float("nan"), 1],
    "pandas NA": pd.Series(["a", None], dtype="string"),
    "pandas Int64 NA": pd.Series([1, None], dtype="Int64"),
    "polars null": pl.Series(["a", None]),
    "polars null int": pl.Series([1, None]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "too large": [2**63],
    "too small": [-(2**63) - 1],
    "too large uint64": np.array([2**63], dtype=np.uint64),
    "the filler": [2**63 - 1],
    "the filler as text": ["a", "\U0010ffff"],
    "trailing NUL": ["a\0"],
    "trailing NUL, string dtype": np.array(["a\0"], dtype=np.dtypes.StringDType()),
    "trailing NUL, pandas": pd.Series(["a\0"], dtype=object),
    "two-dimensional": np.array([[1, 2]]),
    "nested": [[1, 2], [3, 4]],
    "ragged": [[1, 2], [3]],
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_no_id(case):
    with pytest.raises(InvalidInput, match=r"^ids (must|that are whole numbers must)"):
        as_ids(REFUSED[case])


def test_ids_are_one_per_row():
    assert len(as_ids([1, 2], rows=2)) == 2
    with pytest.raises(InvalidInput, match="ids must be one per row, got 2 ids for 3 rows"):
        as_ids([1, 2], rows=3)


def test_a_refusal_does_not_show_an_id():
    for ids in (["secret", 4711], ["secret\0"], [4711.5], [4711, None]):
        with pytest.raises(InvalidInput) as refusal:
            as_ids(ids)
        assert "secret" not in str(refusal.value)
        assert "4711" not in str(refusal.value)


numbers = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 2])
texts = st.text(st.sampled_from("ab\U0010fffe"), max_size=3)
kinds = st.sampled_from([numbers, texts])


def index_of(pairs):
    return IdIndex(as_ids([i for i, _ in pairs]), np.array([s for _, s in pairs], dtype=np.int64))


class Model:
    """The expected behaviour of an index, with a plain dict."""

    def __init__(self):
        self.rows = {}

    def add(self, ids, slots):
        for i, slot in zip(ids, slots, strict=True):
            self.rows.setdefault(i, []).append(slot)


def agree(index, model, strangers):
    for i in list(model.rows):
        found = index.find(as_ids([i]))
        assert found.slots.tolist() == model.rows[i]
        assert found.counts.tolist() == [len(model.rows[i])]
    for i in strangers:
        if i not in model.rows:
            with pytest.raises(UnknownId):
                index.find(as_ids([i]))
    ids, slots = index.entries()
    expected = sorted((i, s) for i, rows in model.rows.items() for s in rows)
    assert sorted(zip(ids.tolist(), slots.tolist(), strict=True)) == expected


@examples(150)
@given(kinds.flatmap(lambda ids: st.tuples(st.just(ids), st.lists(ids, min_size=1, max_size=12))), st.data())
def test_an_index_is_a_dict_of_lists(kind_and_ids, data):
    kind, ids = kind_and_ids
    slots = data.draw(st.permutations(range(len(ids))))
    model, index, used = Model(), IdIndex(as_ids(ids), np.array(slots)), len(ids)
    model.add(ids, slots)
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()) and model.rows:
            batch = data.draw(st.lists(st.sampled_from(list(model.rows)), min_size=1, max_size=4, unique=True))
            found = index.find(as_ids(batch))
            assert found.slots.tolist() == [slot for i in batch for slot in model.rows[i]]
            assert found.counts.tolist() == [len(model.rows[i]) for i in batch]
            index.erase(found)
            for i in batch:
                del model.rows[i]
        else:
            more = data.draw(st.lists(kind, min_size=1, max_size=5))
            fresh = list(range(used, used + len(more)))
            used += len(more)
            index = index.with_rows(as_ids(more), np.array(fresh, dtype=np.int64))
            model.add(more, fresh)
        agree(index, model, data.draw(st.lists(kind, max_size=3)))


@examples(150)
@given(kinds.flatmap(lambda ids: st.lists(ids, min_size=1, max_size=12)), st.data())
def test_an_erased_id_is_nowhere_and_erasing_again_changes_nothing(ids, data):
    index = index_of([(i, k) for k, i in enumerate(ids)])
    batch = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
    found = index.find(as_ids(batch))
    index.erase(found)
    once = index._ids.copy(), index._slots.copy()
    index.erase(found)
    np.testing.assert_array_equal(index._ids, once[0])
    np.testing.assert_array_equal(index._slots, once[1])
    assert (np.sort(index._ids) == index._ids).all()
    filler = {2**63 - 1, "\U0010ffff" * (index._ids.itemsize // 4)}  # the id of no row
    assert not set(batch) - filler & set(index._ids.tolist())
    assert not set(found.slots.tolist()) & set(index._slots.tolist())
    assert (index._slots == GONE).sum() == len(found.slots)


def test_no_byte_of_an_erased_text_is_left():
    index = index_of([("anna", 0), ("berta-secret", 1), ("carla", 2), ("zoe-secret", 3)])
    index.erase(index.find(as_ids(["berta-secret", "zoe-secret"])))
    raw = index._ids.tobytes().decode("utf-32-le")
    assert "secret" not in raw.replace("\0", "")
    assert [i for i in index._ids.tolist() if i in ("anna", "carla")] == ["anna", "carla", "carla"]


def test_rows_come_in_the_order_asked_for_and_then_of_arrival():
    index = index_of([("b", 9), ("a", 3), ("b", 1), ("a", 7)]).with_rows(as_ids(["b"]), np.array([0]))
    found = index.find(as_ids(["b", "a"]))
    assert found.slots.tolist() == [9, 1, 0, 3, 7]
    assert found.counts.tolist() == [3, 2]


@pytest.mark.parametrize("stored", [["a", "b", "ab"], [1, 2, 3]])
def test_unknown_and_erased_ids_are_one_and_the_same_error(stored):
    index = index_of([(i, k) for k, i in enumerate(stored)])
    unknown = as_ids(["zz"] if isinstance(stored[0], str) else [99])
    index.erase(index.find(as_ids(stored[:1])))
    messages = []
    for ids in (as_ids(stored[:1]), unknown):
        with pytest.raises(UnknownId) as refusal:
            index.find(ids)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]
    assert messages[0].startswith("ids that are not in the model (unknown, or unlearned before): 1 of 1")


def test_an_unknown_id_is_named_by_its_position_only():
    index = index_of([(1, 0), (2, 1)])
    with pytest.raises(UnknownId, match=r"2 of 4, at positions 2, 4; nothing was changed") as refusal:
        index.find(as_ids([1, 4711, 2, 4712]))
    assert "471" not in str(refusal.value)


def test_text_longer_than_any_stored_is_unknown():
    index = index_of([("ab", 0), ("b", 1)])
    for longer in ("abc", "abcdefghi", "ba", "b" * 50):
        with pytest.raises(UnknownId):
            index.find(as_ids([longer]))
    found = index.find(as_ids(["ab", "b"]).astype("<U40"))
    assert found.slots.tolist() == [0, 1]


def test_longer_text_can_be_added():
    index = index_of([("ab", 0)]).with_rows(as_ids(["abcdef"]), np.array([1]))
    assert index.find(as_ids(["abcdef", "ab"])).slots.tolist() == [1, 0]


@pytest.mark.parametrize(("mine", "theirs", "words"), [([1], ["a"], "whole numbers, got text"),
                                                       (["a"], [1], "text, got whole numbers")])  # fmt: skip
def test_ids_of_another_kind_are_refused(mine, theirs, words):
    index = index_of([(mine[0], 0)])
    with pytest.raises(InvalidInput, match=f"this model's ids are {words}"):
        index.find(as_ids(theirs))
    with pytest.raises(InvalidInput, match=f"this model's ids are {words}"):
        index.with_rows(as_ids(theirs), np.array([1]))


@pytest.mark.parametrize("ids", [[1, 2], ["a", "b"]])
def test_nothing_asked_for_is_nothing_found(ids):
    index = index_of([(i, k) for k, i in enumerate(ids)])
    found = index.find(as_ids([]))
    assert (found.slots.tolist(), found.counts.tolist(), found.places.tolist()) == ([], [], [])
    index.erase(found)
    assert index.entries()[0].tolist() == ids


@pytest.mark.parametrize("ids", [[1, 2], ["a", "b"]])
def test_adding_no_rows_changes_nothing(ids):
    index = index_of([(i, k) for k, i in enumerate(ids)]).with_rows(as_ids([]), np.array([], dtype=np.int64))
    assert index.find(as_ids(ids)).slots.tolist() == [0, 1]


@pytest.mark.parametrize("empty", [np.array([], dtype=np.int64), np.array([], dtype="<U1"), np.array([], dtype="<U9")])
@pytest.mark.parametrize("wanted", [[4711], ["anna"], ["a"]])
def test_an_index_without_rows_knows_nobody(empty, wanted):
    index = IdIndex(empty, np.array([], dtype=np.int64))
    with pytest.raises(UnknownId):
        index.find(as_ids(wanted))
    assert index.with_rows(as_ids(wanted), np.array([5])).find(as_ids(wanted)).slots.tolist() == [5]


def test_an_index_does_not_share_memory_with_what_it_was_given():
    ids, slots = as_ids([1, 2]), np.array([0, 1])
    index = IdIndex(ids, slots)
    index.erase(index.find(as_ids([1])))
    assert (ids.tolist(), slots.tolist()) == ([1, 2], [0, 1])


def test_a_larger_index_does_not_share_memory_with_the_smaller():
    small = index_of([(1, 0), (2, 1)])
    large = small.with_rows(as_ids([3]), np.array([2]))
    large.erase(large.find(as_ids([1])))
    assert small.find(as_ids([1])).slots.tolist() == [0]


@pytest.mark.parametrize("order", ["in order", "in reverse", "at random"])
def test_an_erasure_is_as_small_beside_many_erased_ids(order, rng, monkeypatch):
    monkeypatch.setattr("expunge.stores.ids._FEW", 20)
    index, ids = index_of([(k, k) for k in range(2000)]), list(range(2000))
    erased = {"in order": ids[:-1], "in reverse": ids[:0:-1], "at random": rng.permutation(ids)[:-1].tolist()}[order]
    for i in erased:
        found = index.find(as_ids([i]))
        assert found.slots.tolist() == [i]
        assert len(found.places) <= 23
        index.erase(found)
    assert len(index.entries()[0]) == 1
    assert len(index._ids) <= 22


def test_text_is_no_wider_than_the_longest_id_that_is_left():
    index = index_of([("a", 0), ("b" * 40, 1)])
    index.erase(index.find(as_ids("b" * 40)))
    assert index.entries()[0].dtype == "<U1"


def test_an_array_without_dimensions_is_one_id():
    assert as_ids(np.array("x")).tolist() == ["x"]


@given(st.integers(1, 7), st.integers(0, 40), st.integers(0, 2**16))
def test_free_slots_are_those_of_the_last_stripe_that_nobody_got(shards, drawn, seed):
    key = np.array([seed, 1], dtype=np.uint64)
    slots = slots_needed(drawn, shards)
    assert drawn <= slots < drawn + shards
    assert slots % shards == 0
    given_out = draw_slots(key, 0, drawn, shards)
    free = free_slots(key, drawn, shards)
    assert sorted([*given_out.tolist(), *free.tolist()]) == list(range(slots))


WORDS = {"where": "there than here", "way_out": "start again"}


@given(st.lists(st.integers(0, 4), max_size=20))
def test_the_kth_mention_of_an_id_is_its_kth_row(mentions):
    people, group = np.unique(np.array(mentions, dtype=np.int64), return_inverse=True)
    counts = np.bincount(group, minlength=len(people))
    slots = 100 + np.arange(len(mentions))  # grouped by id, in order of arrival
    rows = {who: iter(slots[counts[:k].sum() :][: counts[k]].tolist()) for k, who in enumerate(people.tolist())}
    assert slots_of_mentions(group, slots, counts, **WORDS).tolist() == [next(rows[who]) for who in mentions]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(0, 4), st.sampled_from([-1, 1]))
def test_an_id_that_is_named_more_or_less_often_than_it_has_rows_is_refused(mentions, who, more):
    counts = np.bincount(mentions, minlength=5)
    counts[who] += more
    if counts[who] < 0:
        return
    slots = np.arange(counts.sum())
    with pytest.raises(InvalidInput, match="^1 id has a different number of rows there than here: .*, start again$"):
        slots_of_mentions(np.array(mentions), slots, counts, **WORDS)
