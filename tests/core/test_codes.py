import copy
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare
from sklearn.base import BaseEstimator, clone

from expunge import Code, random_code
from expunge.encoding.codes import MAX_COLUMN_SUM
from expunge.errors import InvalidSetting

from support.sampling import examples


def exact_rank(G):
    """Compute the rank by Gaussian elimination in fractions."""
    rows = [[Fraction(int(x)) for x in row] for row in G]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


def assert_keeps_the_conditions(G):
    assert set(np.unique(G).tolist()) <= {0, 1}
    assert G.any(axis=1).all()
    assert exact_rank(G) == G.shape[1]


def spread(G):
    return int(np.ptp(G.sum(axis=0)))


SIZES = [(s, r) for s in range(1, 9) for r in range(1, s + 1)]


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(("s", "r"), SIZES)
def test_every_possible_number_of_ones_is_drawn_exactly(s, r, balanced):
    for ones in range(s, s * r - (r - 1) + 1):
        for seed in range(3 if s <= 6 else 1):
            code = random_code(s, r, density=ones / (s * r), balanced=balanced, random_state=seed)
            assert code.G.shape == (s, r)
            assert code.G.sum() == ones
            assert_keeps_the_conditions(code.G)
            assert not balanced or spread(code.G) <= 1


@pytest.mark.parametrize(("s", "r"), SIZES)
def test_one_more_or_one_less_is_impossible_and_refused(s, r):
    with pytest.raises(InvalidSetting, match=r"density must be at least 1/learners = .*one 1 for each of the"):
        random_code(s, r, density=(s - 0.6) / (s * r))
    most = s * r - (r - 1)
    if r > 1:
        with pytest.raises(InvalidSetting, match=r"density must be at most .*cannot have full column rank"):
            random_code(s, r, density=(most + 1) / (s * r))


def test_no_binary_matrix_of_full_rank_has_more_ones():
    for s, r in [(2, 2), (3, 2), (3, 3), (4, 3)]:
        most = max(
            sum(map(sum, rows))
            for rows in itertools.product(itertools.product([0, 1], repeat=r), repeat=s)
            if exact_rank(rows) == r
        )
        assert most == s * r - (r - 1)


@pytest.mark.parametrize(("s", "r"), SIZES)
@pytest.mark.parametrize("balanced", [True, False])
def test_the_minimum_density_puts_a_lane_into_one_learner(s, r, balanced):
    G = random_code(s, r, balanced=balanced, random_state=5).G
    assert (G.sum(axis=1) == 1).all()
    assert_keeps_the_conditions(G)


def unit_row_matrices(s, r):
    """Return all full-rank matrices whose rows are unit vectors, each as the columns of its ones."""
    return [c for c in itertools.product(range(r), repeat=s) if exact_rank(np.eye(r, dtype=int)[list(c)]) == r]


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(("s", "r", "draws"), [(4, 2, 3000), (5, 3, 6000), (4, 3, 3000)])
@pytest.mark.parametrize("balanced", [True, False])
def test_draws_are_uniform_over_the_matrices_that_keep_the_conditions(s, r, draws, balanced):
    possible = unit_row_matrices(s, r)
    if balanced:
        possible = [c for c in possible if np.ptp(np.bincount(c, minlength=r)) <= 1]
    rng = np.random.default_rng(11)
    counts = dict.fromkeys(possible, 0)
    for _ in range(draws):
        counts[tuple(random_code(s, r, balanced=balanced, random_state=rng).G.argmax(axis=1).tolist())] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def count_surjections(s, r):
    """Count the maps of s rows onto all of r columns."""
    return sum((-1) ** k * math.comb(r, k) * (r - k) ** s for k in range(r + 1))


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(("s", "r"), [(7, 2), (8, 3), (12, 4)])
def test_column_sums_are_distributed_as_in_the_papers_draw(s, r):
    counts = [math.comb(s, k) * count_surjections(s - k, r - 1) for k in range(1, s - r + 2)]
    expected = np.array(counts) / count_surjections(s, r)
    rng = np.random.default_rng(4)
    sums = [random_code(s, r, balanced=False, random_state=rng).G[:, 0].sum() for _ in range(4000)]
    counts = np.bincount(sums, minlength=s + 1)[1 : s - r + 2]
    last = int((expected * 4000 > 10).sum()) - 1  # rare sums, all large, count as one
    cells = [np.append(n[:last], n[last:].sum()) for n in (counts, expected * 4000)]
    assert chisquare(*cells).pvalue > 1e-3


@pytest.mark.parametrize("density", [None, 0.02, 0.5, 0.9])
@pytest.mark.parametrize("balanced", [True, False])
def test_a_large_code_is_drawn_without_redrawing(density, balanced):
    code = random_code(300, 150, density=density, balanced=balanced, random_state=0)
    assert (code.shards, code.learners, code.rate) == (300, 150, 2.0)
    assert code.G.sum() == (300 if density is None else round(density * 300 * 150))
    assert code.G.any(axis=1).all()
    assert code.G.any(axis=0).all()


def test_a_seed_decides_the_code():
    first, same, other = (random_code(12, 4, density=0.5, random_state=seed).G for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"shards": 3, "learners": 4}, r"learners must be at most shards, got learners=4, shards=3"),
        ({"shards": 0, "learners": 1}, r"shards must be a whole number of at least 1, got 0"),
        ({"shards": 4, "learners": 2.0}, r"learners must be a whole number of at least 1, got 2.0"),
        ({"shards": True, "learners": 1}, r"shards must be a whole number"),
        ({"shards": 4, "learners": 2, "density": 0}, r"density must be a number in \(0, 1\], got 0"),
        ({"shards": 4, "learners": 2, "density": 1.01}, r"density must be a number in \(0, 1\], got 1.01"),
        ({"shards": 4, "learners": 2, "density": float("nan")}, r"density must be a number in"),
        ({"shards": 4, "learners": 2, "density": "half"}, r"density must be a number in"),
        ({"shards": 4, "learners": 2, "random_state": -1}, r"random_state must be"),
        ({"shards": 2**16 + 1, "learners": 1}, r"columns of \|G\| must sum to at most 65536"),
    ],
)
def test_impossible_parameters_are_refused_with_the_reason(arguments, reason):
    with pytest.raises(InvalidSetting, match=reason):
        random_code(**arguments)


@examples(150)
@given(st.data())
def test_a_matrix_is_a_code_if_and_only_if_it_keeps_the_conditions(data):
    s = data.draw(st.integers(1, 5))
    r = data.draw(st.integers(1, s))
    G = data.draw(arrays(np.int64, (s, r), elements=st.integers(-2, 2)))
    if not G.any(axis=1).all():
        with pytest.raises(InvalidSetting, match="every row of G must have a nonzero entry"):
            Code(G)
    elif exact_rank(G) < r:
        with pytest.raises(InvalidSetting, match=f"full column rank {r}"):
            Code(G)
    else:
        np.testing.assert_array_equal(Code(G).G, G)


@pytest.mark.parametrize(
    "G",
    [
        [[1, 1], [1, 1], [1, 1]],
        [[1, 0, 1], [0, 1, 1], [1, 0, 1], [0, 1, 1]],  # the third is the sum of the others
        [[1, -2], [-1, 2]],
        [[3, 5, 1], [1, 1, 1], [2, 4, 0], [7, 5, 9]],  # 2 a - b = c
        [[0, 1], [0, 1]],
    ],
)
def test_hidden_dependence_of_columns_is_refused(G):
    assert exact_rank(G) < len(G[0])
    with pytest.raises(InvalidSetting, match="one learner's shard follows from the others'"):
        Code(G)


def test_rank_is_exact_where_floats_are_not():
    G = np.eye(5, dtype=np.int64) - 2**15 * np.eye(5, k=1, dtype=np.int64)  # its determinant is 1
    assert np.linalg.matrix_rank(G) < 5
    assert Code(G).learners == 5
    G[4, 0] = 1  # still independent
    assert exact_rank(G) == 5
    Code(G)


def test_a_determinant_that_a_prime_divides_is_no_dependence():
    first = np.array([[46341, 4634], [1, 46341]])  # its determinant is 2^31 - 1
    second = np.array([[46341, 4652], [1, 46341]])  # its determinant is 2^31 - 19
    assert round(np.linalg.det(first)) == 2_147_483_647
    assert round(np.linalg.det(second)) == 2_147_483_629
    both = np.zeros((4, 4), dtype=np.int64)
    both[:2, :2], both[2:, 2:] = first, second
    for G in (first, second, both):
        Code(G)


@pytest.mark.parametrize(
    ("G", "reason"),
    [
        ([[1, 0], [0, 1], [0, 0]], "that lane is never learned; 1 have none"),
        ([[1.0, 0.0], [0.0, 1.0]], r"G must be a matrix of integers.* got shape \(2, 2\), dtype float64"),
        ([1, 1, 1], r"G must be a matrix of integers.* got shape \(3,\)"),
        ([[[1]]], r"G must be a matrix of integers.* got shape \(1, 1, 1\)"),
        (np.zeros((0, 0), dtype=int), "G must be a matrix of integers"),
        ([["1"]], "G must be a matrix of integers"),
        ([[2**70]], "G must be a matrix of integers"),
        ([[1, 0, 1], [0, 1, 1]], r"at least as many rows \(shards\) as columns \(learners\), got shape \(2, 3\)"),
        ([[MAX_COLUMN_SUM + 1]], r"columns of \|G\| must sum to at most 65536"),
        ([[MAX_COLUMN_SUM], [-1]], r"columns of \|G\| must sum to at most 65536"),
        ([[-(2**63)]], r"columns of \|G\| must sum to at most 65536"),
        (np.array([[2**64 - 1]], dtype=np.uint64), r"columns of \|G\| must sum to at most 65536"),
    ],
)
def test_a_matrix_that_is_no_code_is_refused_with_the_reason(G, reason):
    with pytest.raises(InvalidSetting, match=reason):
        Code(G)


def test_a_ragged_matrix_is_refused_as_a_setting():
    with pytest.raises(InvalidSetting, match="G must be a matrix of integers"):
        Code([[1, 2], [3]])


@pytest.mark.parametrize("G", [[[MAX_COLUMN_SUM]], [[MAX_COLUMN_SUM - 1], [-1]], [[1, 1], [1, -1]], [[-1]]])
def test_signs_and_larger_integers_are_fine_up_to_the_heaviest(G):
    code = Code(G)
    assert code.heaviest == max(sum(abs(x) for x in column) for column in zip(*G, strict=True))
    assert code.G.dtype == np.int64


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.uint64])
def test_integers_of_any_width_make_the_same_code(dtype):
    np.testing.assert_array_equal(Code(np.array([[1, 0], [1, 1]], dtype=dtype)).G, [[1, 0], [1, 1]])


codes = st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(0, 999)).map(
    lambda p: random_code(max(p[:2]), min(p[:2]), density=(max(p[:2]) * (min(p[:2]) + 1) // 2) / (p[0] * p[1]),
                          random_state=p[2])
)  # fmt: skip


@examples(60)
@given(codes, st.integers(0, 4), st.integers(1, 4), st.integers(0, 999), st.sampled_from([np.int64, np.float64]))
def test_encoding_is_the_double_loop_over_lanes(code, m, D, seed, dtype):
    rng = np.random.default_rng(seed)
    code = Code(code.G * rng.choice([-1, 1, 3], size=code.learners))
    stripes = rng.integers(-(2**30), 2**30, size=(m, code.shards, D)).astype(dtype)
    expected = np.zeros((code.learners, m, D), dtype=object)
    for i in range(code.shards):
        for j in range(code.learners):
            expected[j] += int(code.G[i, j]) * stripes[:, i].astype(np.int64).astype(object)
    coded = code.encode(stripes)
    assert coded.dtype == dtype
    assert coded.flags.c_contiguous
    assert coded.astype(np.int64).tolist() == expected.tolist()


def test_a_stripe_can_be_encoded_anywhere():
    code = random_code(6, 3, density=0.5, random_state=0)
    stripes = np.random.default_rng(0).integers(-9, 9, size=(5, 6, 2))
    parts = [code.encode(stripes[k : k + 1]) for k in range(5)]
    np.testing.assert_array_equal(code.encode(stripes), np.concatenate(parts, axis=1))


def test_encoding_does_not_change_the_rows():
    stripes = np.ones((2, 3, 1))
    coded = Code([[2, 0], [1, 0], [-1, 1]]).encode(stripes)
    coded[:] = 9
    assert (stripes == 1).all()


def test_the_columns_of_a_code_are_those_of_its_matrix():
    code = Code([[2, 1, 0], [0, 1, 0], [-1, 1, 1]])
    for column, g in zip(code.columns, code.G.T, strict=True):
        assert column.lanes.tolist() == [i for i in range(3) if g[i]]
        assert column.weights.tolist() == [w for w in g.tolist() if w]
        assert [column.lanes[p] if p >= 0 else None for p in column.place] == [i if g[i] else None for i in range(3)]
        assert column.plain is (set(g.tolist()) <= {0, 1})


@examples(60)
@given(codes)
def test_lanes_and_learners_are_the_two_sides_of_the_matrix(code):
    entries = {(i, j) for i in range(code.shards) for j in range(code.learners) if code.G[i, j]}
    slots = 3 * code.shards + np.arange(code.shards)  # of another stripe than the first
    assert {(i, j) for i in range(code.shards) for j in code.learners_of(slots[i : i + 1])} == entries
    even_lanes = slots[::2]
    assert code.learners_of(even_lanes) == sorted({j for i, j in entries if i % 2 == 0})
    assert {(int(i), j) for j in range(code.learners) for i in code.lanes_of(j)} == entries
    assert code.rate == code.shards / code.learners
    assert code.density == len(entries) / (code.shards * code.learners)
    assert code.heaviest == max(len(code.lanes_of(j)) for j in range(code.learners))


@pytest.mark.parametrize(
    ("G", "selects"),
    [
        ([[1]], True),
        ([[0, 1], [1, 0]], True),
        ([[2]], False),
        ([[-1]], False),
        ([[1, 0], [0, -1]], False),
        ([[1], [1]], False),
        ([[1, 0], [-1, 1], [1, 0]], False),  # a sum of one, of three entries
    ],
)
def test_only_unit_columns_select_rows(G, selects):
    assert Code(G).is_selection is selects


def test_uncoded_is_the_identity_and_single_is_one_learner():
    uncoded, single = Code.uncoded(5), Code.single()
    np.testing.assert_array_equal(uncoded.G, np.eye(5))
    np.testing.assert_array_equal(single.G, [[1]])
    assert (uncoded.rate, uncoded.density, uncoded.heaviest, uncoded.is_selection) == (1.0, 0.2, 1, True)
    stripes = np.arange(30).reshape(3, 5, 2)
    np.testing.assert_array_equal(uncoded.encode(stripes), stripes.swapaxes(0, 1))
    with pytest.raises(InvalidSetting, match="shards must be a whole number"):
        Code.uncoded(0)


def test_the_matrix_is_a_read_only_copy():
    G = np.eye(3, dtype=np.int64)
    code = Code(G)
    G[0, 0] = 7
    assert code.G[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        code.G[0, 0] = 2
    with pytest.raises(AttributeError):
        code.G = G


class Holder(BaseEstimator):
    def __init__(self, code=None):
        self.code = code


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda code: pickle.loads(pickle.dumps(code)),
    "clone": lambda code: clone(Holder(code)).code,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("used", [False, True])
def test_a_copy_of_a_code_is_the_same_code(how, used):
    code = random_code(6, 3, density=0.5, random_state=0)
    stripes = np.arange(24).reshape(2, 6, 2)
    if used:  # cached values are copied as well
        code.encode(stripes)
    twin = COPIES[how](code)
    np.testing.assert_array_equal(twin.G, code.G)
    np.testing.assert_array_equal(twin.encode(stripes), code.encode(stripes))
    assert (twin.heaviest, twin.is_selection, repr(twin)) == (code.heaviest, code.is_selection, repr(code))


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_code_is_read_only_too(how):
    assert not COPIES[how](Code.uncoded(3)).G.flags.writeable


def test_a_code_shows_its_size_in_words():
    assert repr(random_code(20, 4, random_state=0)) == "Code(shards=20, learners=4, density=0.25)"
