import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import CapacityExceeded
from expunge.exact import limbs as limbs_room
from expunge.exact import moments as moments_module
from expunge.exact.blas import pack, unpack
from expunge.exact.limbs import FLOAT_ROWS, INT_ROWS, LIMB_ROWS, feature_bits
from expunge.exact.moments import Moments, Tally

from support.sampling import examples

MOST = 2**36
# The largest |h + l| that |q| <= 2^36 allows, 393,214, and the largest odd one: sums of odd squares need the last bit.
STEEPEST = (2**18 - 1) * 2**18 + 2**17 - 1
ODD = STEEPEST - 1

EXTREMES = [0, 1, -1, MOST, -MOST, STEEPEST, -STEEPEST, 2**17, -(2**17), 2**17 + 1, MOST - 2**17, MOST - 1]
entries = st.integers(-MOST, MOST) | st.sampled_from(EXTREMES)


def slices(q):
    """Cut an integer with Python's round, which rounds half to even as rint does."""
    h = round(Fraction(q, 2**18))
    return h, q - h * 2**18


def exact(moments):
    """Return Q'Q in Python integers, (w, w)."""
    w = moments.width
    high, middle, low = moments.integers.tolist()
    values = iter([a * 2**36 + b * 2**18 + c for a, b, c in zip(high, middle, low, strict=True)])
    full = np.zeros((w, w), dtype=object)
    for j in range(w):
        for i in range(j, w):
            full[i, j] = full[j, i] = next(values)
    return full


def product(rows):
    Q = np.array(rows, dtype=object)
    return Q.T @ Q


def moments_of(total):
    moments = Moments.from_tallies(Tally(total._width)).apply(total)
    assert Moments.from_tallies(total) == moments
    return moments


def make_tally(rows, sign=1, members=None):
    total = Tally(len(rows[0]))
    total.add(np.array(rows, dtype=np.float64), len(rows) if members is None else members, sign=sign)
    return total


def make_moments(rows, sign=1, members=None):
    return moments_of(make_tally(rows, sign, members))


def times(moments, n):
    """Return the moments of n copies of the rows."""
    return Moments(moments.integers * n, moments.rows * n, moments.coded_rows * n)


rows_of = st.integers(1, 4).flatmap(
    lambda w: st.lists(st.lists(entries, min_size=w, max_size=w), min_size=1, max_size=12)
)


@examples(150)
@given(rows_of)
def test_moments_are_the_exact_integer_product(rows):
    total = make_moments(rows)
    assert (exact(total) == product(rows)).all()
    assert (total.rows, total.coded_rows, total.width) == (len(rows), len(rows), len(rows[0]))


@examples(100)
@given(st.integers(1, 3), st.data())
def test_blocks_of_any_size_and_sign_sum_exactly(w, data):
    total, expected, members, coded = Tally(w), np.zeros((w, w), dtype=object), 0, 0
    for _ in range(data.draw(st.integers(0, 6))):
        seed, m, sign = data.draw(st.tuples(st.integers(0, 999), st.sampled_from([0, 1, 7, 255, 256, 600]),
                                            st.sampled_from([1, -1])))  # fmt: skip
        q = np.random.default_rng(seed).integers(-MOST, MOST, size=(m, w), endpoint=True)
        total.add(q.astype(np.float64), 3 * m, sign=sign)
        expected, members, coded = expected + sign * product(q), members + sign * 3 * m, coded + sign * m
    got = moments_of(total)
    assert (exact(got) == expected).all()
    assert (got.rows, got.coded_rows) == (members, coded)


def test_a_total_can_be_taken_in_between():
    total = Tally(2)
    total.add(np.array([[1.0, 2.0]]), 1)
    first = moments_of(total)
    total.add(np.array([[3.0, 4.0]]), 1)
    assert first == make_moments([[1, 2]])
    assert moments_of(total) == make_moments([[1, 2], [3, 4]])


def test_adding_leaves_the_rows_alone_and_takes_views():
    q = np.random.default_rng(0).integers(-MOST, MOST, size=(300, 5)).astype(np.float64)
    before = q.copy()
    results = []
    for layout in (q, np.repeat(q, 2, axis=1)[:, ::2], np.repeat(q, 2, axis=0)[::2]):
        total = Tally(5)
        total.add(layout, 300)
        results.append(moments_of(total))
    assert results[0] == results[1] == results[2]
    assert q.tobytes() == before.tobytes()


def test_the_number_of_rows_that_floats_can_take_follows_from_the_slices():
    for q in EXTREMES:
        h, l = slices(q)  # noqa: E741 - the letter of the derivation
        assert h * 2**18 + l == q
        assert abs(h) <= 2**18
        assert abs(l) <= 2**17
        assert abs(2 * h * l) <= 2**36
    largest = Fraction(3, 2) * 2**18
    assert FLOAT_ROWS == 58_254
    assert largest**2 * FLOAT_ROWS <= 2**53 < largest**2 * (FLOAT_ROWS + 1)
    assert 2**36 * INT_ROWS < 2**63 <= 2**36 * (INT_ROWS + 1)


def test_the_steepest_integers_are_the_steepest():
    def steepness(q):
        return abs(sum(slices(q)))

    near = range(MOST - 2**19, MOST + 1)  # h + l grows with h, so the largest is near the end
    assert max(map(steepness, near)) == steepness(STEEPEST) == 393_214
    assert steepness(ODD) == 393_213


@pytest.mark.parametrize("extra", [0, 1, 700])
def test_adversarial_rows_are_summed_exactly_up_to_the_limit_and_beyond(extra):
    pattern = np.array([[ODD, -ODD, ODD], [ODD, ODD, -STEEPEST]])
    n = FLOAT_ROWS + extra
    q = pattern[np.arange(n) % 2 * (np.arange(n) % 5 == 0)]
    total = Tally(3)
    total.add(q.astype(np.float64), n)
    kinds, counts = np.unique(q, axis=0, return_counts=True)
    expected = sum(int(c) * product([kind.tolist()]) for kind, c in zip(kinds, counts, strict=True))
    assert (exact(moments_of(total)) == expected).all()


def test_adversarial_rows_of_both_signs_are_summed_exactly():
    total = Tally(1)
    q = np.full((FLOAT_ROWS, 1), float(ODD))
    total.add(q, FLOAT_ROWS)
    total.add(q[:-3], FLOAT_ROWS - 3, sign=-1)
    total.add(q, FLOAT_ROWS)
    assert exact(moments_of(total)).item() == (FLOAT_ROWS + 3) * ODD**2


@pytest.mark.parametrize("kept", [1, 2])
@pytest.mark.parametrize("rows", [LIMB_ROWS - 4, LIMB_ROWS - 3, LIMB_ROWS, LIMB_ROWS + 1])
def test_limbs_in_floats_are_exact_up_to_their_limit_and_integers_beyond(rows, kept):
    total = Tally(2)
    total.add(np.tile([float(ODD), float(-STEEPEST)], (rows, 1)), rows)
    before = moments_of(total)
    assert before.limbs.dtype == (np.float64 if rows <= LIMB_ROWS else np.int64)
    leaving, coming = np.array([[ODD, -STEEPEST]] * kept, dtype=float), np.array([[1.0, 2.0**36]])
    change = Tally(2)
    change.add(leaving, kept, sign=-1)
    change.add(coming, 1)
    after = before.apply(change)
    assert after.coded_rows == rows - kept + 1
    assert (exact(after) == (rows - kept) * product([[ODD, -STEEPEST]]) + product([[1, 2**36]])).all()


@examples(60)
@given(rows_of, st.integers(0, 12), st.integers(0, 8), st.data())
def test_a_change_of_a_few_rows_or_many_gives_the_moments_of_what_is_left(rows, limit, few, data):
    """For both types of limbs, and for rows added one by one or as a block."""
    cut = data.draw(st.integers(0, len(rows)))
    q = np.array(rows, dtype=np.float64)
    start, change = Tally(q.shape[1]), Tally(q.shape[1])
    start.add(q[:cut], cut)
    change.add(q[: cut // 2], cut // 2, sign=-1)
    change.add(q[cut:], len(q) - cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limbs_room, "LIMB_ROWS", limit)
        patch.setattr(moments_module, "_FEW_ROWS", few)
        got = moments_of(start).apply(change)
    left = [*rows[cut // 2 :]]
    assert got.coded_rows == got.rows == len(left)
    assert not left or got == make_moments(left)


@pytest.mark.parametrize("limit", [1, 256, 300, 1000])
@pytest.mark.parametrize("buffer", [1, 100, 256])
def test_folding_early_or_late_gives_the_same_limbs(limit, buffer, monkeypatch):
    q = np.random.default_rng(1).integers(-MOST, MOST, size=(1300, 3)).astype(np.float64)
    late = make_moments(q)
    monkeypatch.setattr(moments_module, "FLOAT_ROWS", limit)
    monkeypatch.setattr(moments_module, "_BUFFER_ROWS", buffer)
    assert make_moments(q) == late
    assert (exact(late) == product(q.astype(np.int64))).all()


pairs = st.integers(1, 3).flatmap(
    lambda w: st.tuples(
        *[
            st.lists(st.lists(entries, min_size=w, max_size=w), min_size=1, max_size=5).map(make_moments)
            for _ in range(3)
        ]
    )
)


@examples(60)
@given(rows_of, st.data())
def test_merging_parts_in_any_order_is_the_whole(rows, data):
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(1, len(rows)))
    parts = [make_tally(part) for part in (shuffled[:cut], shuffled[cut:]) if part]
    assert Moments.from_tallies(*parts) == make_moments(rows)


@examples(60)
@given(rows_of, st.data())
def test_what_is_subtracted_leaves_no_trace(rows, data):
    kept = data.draw(st.integers(1, len(rows)))
    total = Tally(len(rows[0]))
    q = np.array(rows, dtype=np.float64)
    total.add(q, len(q))
    if kept < len(q):
        total.add(q[kept:], len(q) - kept, sign=-1)
    assert moments_of(total) == make_moments(rows[:kept])


@examples(60)
@given(pairs)
def test_digests_are_equal_if_and_only_if_moments_are(three):
    for a in three:
        for b in three:
            assert (a.digest() == b.digest()) == (a == b)


def test_every_integer_shows_in_the_digest():
    base = make_moments([[1, 2], [3, 4]])
    assert base == Moments(base.limbs.copy(), base.rows, base.coded_rows)
    others = [Moments(base.limbs, base.rows + 1, base.coded_rows), Moments(base.limbs, base.rows, base.coded_rows + 1)]
    for place in np.ndindex(base.limbs.shape):
        limbs = base.limbs.copy()
        limbs[place] += 1
        others.append(Moments(limbs, base.rows, base.coded_rows))
    others += [moments_of(Tally(2)), moments_of(Tally(3))]
    assert all(other != base for other in others)
    assert len({m.digest() for m in [base, *others]}) == len(others) + 1
    assert base != "moments"
    with pytest.raises(TypeError, match="unhashable"):
        hash(base)


def test_the_digest_is_of_little_endian_counts_then_limbs():
    integers = np.array([5, 1, 1, 2, 1], dtype="<i8")
    assert make_moments([[2**18 + 1]], members=5).digest() == hashlib.sha256(integers.tobytes()).digest()


@pytest.mark.parametrize("width", [1, 2, 3, 50, 351, 1000])
def test_moments_of_no_rows_know_their_width(width):
    zero = Moments.from_tallies(Tally(width))
    assert (zero.width, zero.rows, zero.coded_rows) == (width, 0, 0)
    assert not zero.limbs.any()


@examples(100)
@given(rows_of, st.integers(20, 36), st.integers(0, 16))
def test_the_float_matrix_is_the_exact_one_within_its_roundings(rows, bits, doublings):
    total = times(make_moments(rows), 2**doublings)
    got, expected = total.matrix(bits), exact(total)
    sizes = sum(np.abs(limb).astype(object) * 2 ** (18 * (2 - i)) for i, limb in enumerate(total.integers))
    places = [(i, j) for j in range(total.width) for i in range(j, total.width)]
    for place, size in zip(places, sizes, strict=True):  # three limbs, a rounding each, and two sums
        error = abs(Fraction(got[place]) - Fraction(expected[place], 4**bits))
        assert error <= Fraction(3, 2**53) * Fraction(size, 4**bits)
    assert got.flags.f_contiguous


def test_small_moments_are_exact_in_floats():
    assert np.tril(make_moments([[3, 5], [-7, 2**20]]).matrix(0)).tolist() == [[58, 0], [15 - 7 * 2**20, 25 + 2**40]]
    assert make_moments([[2**33]]).matrix(33).tolist() == [[1.0]]


def test_how_much_of_a_matrix_is_made_at_once_does_not_show(rng, monkeypatch):
    total = make_moments(rng.integers(-MOST, MOST, (9, 7)).tolist())
    whole = np.tril(total.matrix(33)).tobytes()
    for at_once in (1, 5, 28, 64):
        monkeypatch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", at_once)
        assert np.tril(total.matrix(33)).tobytes() == whole


def test_triangles_are_packed_and_unpacked_in_place(rng):
    square, packed = rng.random((6, 6)), np.full(21, np.nan)
    pack(square, packed)
    np.testing.assert_array_equal(packed, square[np.triu_indices(6)])
    back = np.full((6, 6), -1.0)
    unpack(packed, back)
    np.testing.assert_array_equal(back, np.where(np.tri(6, k=-1), -1.0, square))
    with pytest.raises(ValueError, match="in C order"):
        unpack(packed, back.T)
    with pytest.raises(ValueError, match="in C order"):
        pack(square.astype(np.float32), packed)


def test_more_coded_rows_than_integers_can_hold_are_refused(monkeypatch):
    monkeypatch.setattr(moments_module, "INT_ROWS", 5)
    three = make_moments([[1]] * 3)
    assert three.apply(make_tally([[1]] * 2)).coded_rows == 5
    with pytest.raises(CapacityExceeded, match=r"at most 5 coded rows exactly, got 6; use more shards"):
        three.apply(make_tally([[1]] * 3))
    with pytest.raises(CapacityExceeded, match=r"at most 5 coded rows"):
        make_moments([[1]] * 6)
    total = Tally(1)
    total.add(np.ones((6, 1)), 6)
    total.add(np.ones((1, 1)), 1, sign=-1)
    assert exact(moments_of(total)).item() == 5


@pytest.mark.parametrize("q", [MOST, -MOST, STEEPEST, (2**18 - 2) * 2**18 + 2**17, 2**17])
def test_the_integers_hold_as_many_rows_as_they_say(q):
    total = times(make_moments([[q, -q]]), INT_ROWS - 1).apply(make_tally([[q, -q]]))
    assert total.coded_rows == INT_ROWS == 2**27 - 1
    assert (exact(total) == INT_ROWS * product([[q, -q]])).all()
    with pytest.raises(CapacityExceeded):
        total.apply(make_tally([[q, -q]]))


def test_feature_bits_are_the_most_that_keep_a_coded_row_in_36_bits():
    for heaviest in range(1, 2**16 + 1):
        F = feature_bits(heaviest)
        assert F >= 20
        assert heaviest * 2**F <= 2**36 < heaviest * 2 ** (F + 1)
