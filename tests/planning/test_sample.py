"""The sample: whole people, each on one side, and not too many rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.planning import sample as room
from expunge.planning.sample import MIN_SAMPLE_ROWS, TooFewRows, draw_sample


def drawn(owners, most, seed=0):
    """A sample of rows that say by their input which they are, and by their target whose."""
    X, y = np.arange(len(owners), dtype=float)[:, None], np.asarray(owners, dtype=float)[:, None]
    return draw_sample(X, y, np.asarray(owners), np.random.default_rng(seed), max_rows=most)


@given(st.integers(4, 60), st.integers(150, 300), st.integers(60, 400), st.integers(0, 99))
def test_people_are_whole_on_one_side_and_not_too_many(people, rows, most, seed):
    rng = np.random.default_rng(seed)
    owners = rng.permutation([*range(people), *rng.integers(0, people, rows - people)])
    made = drawn(owners, most, seed)
    rows = made.X[:, 0].astype(int)
    assert len(set(rows)) == len(rows)
    assert (owners[rows] == made.y[:, 0]).all()
    there = set(owners[rows])
    assert sorted(rows) == np.flatnonzero(np.isin(owners, list(there))).tolist()
    assert len(rows) <= most or len(there) == 4
    numbers = {(person, number) for person, number in zip(owners[rows], made.people, strict=True)}
    assert len(numbers) == len(there) == len({number for _, number in numbers})
    for fold in made.folds:
        assert not set(owners[rows[fold]]) & set(owners[rows[~fold]])


def test_every_quarter_judges_in_turn_and_nobody_twice():
    made = drawn(np.repeat(np.arange(50), 4), 1000)
    assert len(made.folds) == 4
    assert (np.sum(made.folds, axis=0) == 1).all()
    assert sorted(made.validation_rows) == list(range(200))
    assert [fold.sum() for fold in made.folds] == [52, 52, 48, 48]


def test_of_many_rows_one_quarter_judges(monkeypatch):
    monkeypatch.setattr(room, "_FOUR_FOLD_ROWS", 100)
    (fold,) = drawn(np.arange(400), 300).folds
    assert fold.sum() == 75


@pytest.mark.parametrize(("rows", "judging"), [(101, 51), (180, 90), (181, 46)])
def test_of_some_rows_two_quarters_judge_in_turn(rows, judging, monkeypatch):
    monkeypatch.setattr(room, "_FOUR_FOLD_ROWS", 100)
    made = drawn(np.arange(rows), 300)
    assert len(made.validation_rows) == len(set(made.validation_rows)) == judging
    assert len(made.folds) == (2 if rows < 181 else 1)


def test_a_sorted_table_is_not_sampled_in_its_order():
    made = drawn(np.arange(300), 1000)
    assert abs(np.corrcoef(made.X[:, 0], np.arange(300))[0, 1]) < 0.2


def test_ids_of_another_type_draw_the_same_people():
    owners = np.random.default_rng(0).integers(0, 120, 300)
    numbers, texts = (
        draw_sample(np.eye(300), np.ones((300, 1)), ids, np.random.default_rng(0), max_rows=100)
        for ids in (owners, owners.astype(str))
    )
    assert np.array_equal(numbers.X, texts.X)
    assert np.array_equal(numbers.people, texts.people)


def test_four_people_are_enough_whatever_they_have():
    assert len(drawn(np.repeat(np.arange(5), 30), 40).X) == 120


@pytest.mark.parametrize("owners", [np.arange(MIN_SAMPLE_ROWS - 1), np.arange(100) % 3, np.zeros(0, dtype=int)])
def test_too_few_rows_or_people_are_refused(owners):
    with pytest.raises(TooFewRows, match="a plan needs at least 40 rows of 4 people, got "):
        drawn(owners, 1000)
