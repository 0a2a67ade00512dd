"""Moments of stripes add up, for any cut of the stripes, any reader and any change."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge import Code, RandomFourier
from expunge.encoding.placement import draw_slots, slots_needed
from expunge.learning.blueprint import draw_blueprint
from expunge.learning.rules import add_moments, cut_stripes, sum_in_parallel, sum_moments
from expunge.learning.settings import Settings
from expunge.stores.change import Change
from expunge.stores.store import Rows

from support.paths import NATIVE, computing
from support.sampling import examples

PATHS = [False, True] if NATIVE else [False]


def place(n, shards, seed, gone=()):
    rng = np.random.default_rng(seed)
    X, y = rng.random((n, 3)), rng.random((n, 1))
    settings = Settings(shards=shards, rate=shards, features=RandomFourier(4), bounds=(0, 1), target_bounds=(0, 1))
    blueprint = draw_blueprint(settings, 3, 1)
    slots = draw_slots(blueprint.key, 0, n, blueprint.code.shards)
    rows = Rows.place(X, y, slots, slots_needed(n, blueprint.code.shards))
    rows.commit(Change(slots[list(gone)]))
    return blueprint.encoder(blueprint.measure(rows)), rows, slots


@pytest.mark.parametrize("natively", PATHS)
@examples(40)
@given(
    st.integers(5, 60),
    st.sampled_from([1, 2, 4]),
    st.lists(st.integers(0, 60), max_size=4),
    st.sets(st.integers(0, 4), max_size=3),
    st.integers(0, 5),
)
def test_stripes_cut_anywhere_add_up_to_what_learners_read_for_themselves(natively, n, shards, cuts, gone, seed):
    with computing(natively=natively):
        encoder, rows, _ = place(n, shards, seed, gone)
        stripes = rows.live.size // shards
        edges = sorted({0, stripes, *(cut for cut in cuts if cut < stripes)})
        parts = [sum_moments(encoder, rows, range(a, b)) for a, b in pairwise(edges)]
        total = sum_in_parallel(encoder, rows, range(stripes))
        assert add_moments(parts) == total
        rule = draw_blueprint(Settings(alpha=0.1), 3, 1).rule
        assert total == [rule.learn(encoder, rows, j) for j in range(encoder.code.learners)]


@examples(40)
@given(st.integers(8, 60), st.sampled_from([1, 3]), st.booleans(), st.integers(0, 5), st.randoms(use_true_random=False))
def test_a_change_that_is_to_come_is_summed_as_if_it_had_come(n, shards, erases, seed, random):
    encoder, rows, slots = place(n, shards, seed)
    changed = slots[random.sample(range(n), n // 2)]
    new = (None, None) if erases else (np.full((len(changed), 3), 0.25), np.full((len(changed), 1), 0.75))
    stripes = range(rows.live.size // shards)
    expected = sum_in_parallel(encoder, rows, stripes, Change(changed, *new))
    rows.commit(Change(changed, *new))
    assert sum_in_parallel(encoder, rows, stripes) == expected


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_pieces_are_cut_at_multiples_and_cover_everything(start, more, step):
    blocks = list(cut_stripes(range(start, start + more), step))
    assert [k for block in blocks for k in block] == list(range(start, start + more))
    assert all(block.start % step == 0 for block in blocks[1:])
    assert all(len(block) <= step for block in blocks)


@pytest.mark.parametrize("code", [Code.single(), Code.uncoded(3)])
def test_what_is_subtracted_again_leaves_nothing(code, rng):
    blueprint = draw_blueprint(Settings(code=code, bounds=(0, 1), target_bounds=(0, 1)), 2, 1)
    slots = draw_slots(blueprint.key, 0, 30, code.shards)
    rows = Rows.place(rng.random((30, 2)), rng.random((30, 1)), slots, 30)
    encoder = blueprint.encoder(blueprint.measure(rows))
    first, rest = (sum_moments(encoder, rows, part) for part in (range(4), range(4, 30 // code.shards)))
    for a, b in zip(first, rest, strict=True):
        assert a.plus(b).minus(b) == a
