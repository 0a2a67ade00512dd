"""The sample: whole people, each on one side, not too many rows, and a function of the people who are there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.planning import sample as room
from expunge.planning.sample import MIN_SAMPLE_ROWS, TooFewRows, draw_sample, hash_people


def drawn(owners, most, seed=0, rows=None):
    """A sample of rows that say by their input which they are, and by their target whose."""
    rows = np.arange(len(owners)) if rows is None else rows
    X, y = rows.astype(float)[:, None], np.asarray(owners, dtype=float)[:, None]
    return draw_sample(X, y, hash_people(np.asarray(owners), len(X), seed), max_rows=most)


@given(st.integers(8, 60), st.integers(150, 300), st.integers(60, 400), st.integers(0, 99))
def test_everybody_is_on_one_side_and_at_most_one_person_is_cut(people, rows, most, seed):
    rng = np.random.default_rng(seed)
    owners = rng.permutation([*range(people), *rng.integers(0, people, rows - people)])
    made = drawn(owners, most, seed)
    rows = made.X[:, 0].astype(int)
    assert len(set(rows)) == len(rows) <= most
    assert (owners[rows] == made.y[:, 0]).all()
    there, counts = np.unique(owners[rows], return_counts=True)
    whole = np.minimum(np.bincount(owners, minlength=people)[there], most // 8)
    assert (counts < whole).sum() <= 1
    numbers = {(person, number) for person, number in zip(owners[rows], made.people, strict=True)}
    assert len(numbers) == len(there) == len({number for _, number in numbers})
    for fold in made.folds:
        assert not set(owners[rows[fold]]) & set(owners[rows[~fold]])


def test_every_quarter_judges_in_turn_and_nobody_twice():
    made = drawn(np.repeat(np.arange(50), 4), 1000)
    assert len(made.folds) == 4
    assert (np.sum(made.folds, axis=0) == 1).all()
    assert sorted(made.validation_rows) == list(range(200))
    assert min(fold.sum() for fold in made.folds) > 20


def test_of_many_rows_one_quarter_judges(monkeypatch):
    monkeypatch.setattr(room, "_FOUR_FOLD_ROWS", 100)
    (fold,) = drawn(np.arange(400), 300).folds
    assert 50 < fold.sum() < 100


@pytest.mark.parametrize(("rows", "folds"), [(101, 2), (180, 2), (181, 1)])
def test_of_some_rows_two_quarters_judge_in_turn(rows, folds, monkeypatch):
    monkeypatch.setattr(room, "_FOUR_FOLD_ROWS", 100)
    made = drawn(np.arange(rows), 300)
    assert len(made.validation_rows) == len(set(made.validation_rows)) < rows
    assert len(made.folds) == folds


@given(st.integers(0, 99), st.integers(1, 30))
def test_a_person_outside_the_sample_does_not_change_it_and_one_inside_lets_the_next_in(seed, gone):
    owners = np.random.default_rng(seed).integers(0, 150, 400)
    whole = drawn(owners, 150, seed)
    people = {float(person) for person in set(owners)}
    outside = np.random.default_rng(seed).permutation(sorted(people - set(whole.y[:, 0])))[:gone]
    kept = ~np.isin(owners, outside)
    assert_equal_samples(drawn(owners[kept], 150, seed, rows=np.flatnonzero(kept)), whole)
    inside = whole.y[0, 0]
    kept = owners != inside
    after = drawn(owners[kept], 150, seed, rows=np.flatnonzero(kept))
    same = whole.y[:, 0] != inside
    count = int(same.sum())  # the others stay, in their order and their folds; rows with larger hashes may follow
    assert np.array_equal(after.X[:count], whole.X[same])
    assert all(np.array_equal(a[:count], b[same]) for a, b in zip(after.folds, whole.folds, strict=True))
    assert (after.hashes[count:] >= whole.hashes.max()).all()


def assert_equal_samples(one, other):
    for name in ("X", "y", "hashes", "folds"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_few_people_are_split_even_if_their_hashes_agree():
    for seed in range(200):
        made = drawn(np.repeat(np.arange(4), 20), 1000, seed)
        assert all(fold.any() and not fold.all() for fold in made.folds)


def test_a_sorted_table_is_not_sampled_in_its_order():
    made = drawn(np.arange(300), 1000)
    assert abs(np.corrcoef(made.X[:, 0], np.arange(300))[0, 1]) < 0.2


def test_ids_of_another_type_draw_the_same_people():
    owners = np.random.default_rng(0).integers(0, 120, 300)
    numbers, texts = (
        draw_sample(np.eye(300), np.ones((300, 1)), hash_people(ids, 300, 0), max_rows=100)
        for ids in (owners, owners.astype(str))
    )
    assert np.array_equal(numbers.X, texts.X)
    assert np.array_equal(numbers.people, texts.people)


def test_a_person_with_many_rows_does_not_fill_the_sample():
    made = drawn(np.repeat(np.arange(20), 300), 400)
    assert np.bincount(made.people).tolist() == [50] * 8


@pytest.mark.parametrize("owners", [np.arange(MIN_SAMPLE_ROWS - 1), np.arange(100) % 3, np.zeros(0, dtype=int)])
def test_too_few_rows_or_people_are_refused(owners):
    with pytest.raises(TooFewRows, match="a plan needs at least 40 rows of 4 people, got "):
        drawn(owners, 1000)
