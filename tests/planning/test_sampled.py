"""Rows sampled from a table on the disk: whole people, whoever comes first, and not too many at once."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from expunge.errors import InvalidInput
from expunge.tables import reader
from expunge.tables.ids import hash_ids, sample_positions
from expunge.tables.reader import sample_rows
from expunge.vault.creation import resolve_schema


@pytest.fixture(scope="module")
def owners():
    return np.random.default_rng(0).integers(0, 200, 900)


def rows(owners, order=slice(None)):
    """A table whose rows say by their input which they are, and by their target whose."""
    columns = {"who": [f"p{k}" for k in owners], "a": np.arange(len(owners)) * 1.0, "y": owners * 1.0}
    return pa.table({name: np.asarray(column)[order] for name, column in columns.items()})


def schema(made):
    return resolve_schema(made, None, "y", "who", False)


def seen(made, most):
    found = sample_rows(made, schema(made), most, b"key")
    order = np.argsort(found.X[:, 0])
    return found.X[order, 0].tolist(), found.y[order, 0], found.people[order], found.total


def test_the_sample_is_the_one_that_a_plan_draws_from_all_rows(owners):
    chosen, whose, people, total = seen(rows(owners), 300)
    hashes = hash_ids([f"p{k}".encode() for k in owners], b"key")
    assert (len(chosen), total) == (300, 900)
    assert chosen == sorted(sample_positions(hashes, 300).tolist())
    assert (owners[np.array(chosen, dtype=int)] == whose).all()
    assert (hashes[np.array(chosen, dtype=int)] == people).all()


def test_block_sizes_order_and_the_kind_of_file_do_not_matter(owners, tmp_path, monkeypatch):
    shuffled = rows(owners, np.random.default_rng(1).permutation(900))
    expected = seen(shuffled, 100)
    pyarrow.parquet.write_table(shuffled, tmp_path / "shuffled.parquet")
    for size in (1, 37, 1000):
        monkeypatch.setattr(reader, "BLOCK_ROWS", size)
        for source in (shuffled, tmp_path / "shuffled.parquet"):
            found = seen(source, 100)
            assert (found[0], found[3]) == (expected[0], 900)
            assert (found[2] == expected[2]).all()


def test_never_much_more_is_held_than_asked_for(owners, monkeypatch):
    held, add = [], reader._RowCollector.add

    def added(kept, *given):
        add(kept, *given)
        held.append(kept.rows)

    monkeypatch.setattr(reader._RowCollector, "add", added)
    monkeypatch.setattr(reader, "BLOCK_ROWS", 10)
    seen(rows(owners), 50)
    assert len(held) == 90
    assert max(held) <= 110


def test_all_rows_of_a_small_table_are_kept(owners):
    chosen, *_, total = seen(rows(owners), 900)
    assert (chosen, total) == (list(range(900)), 900)


def test_of_a_person_with_too_many_rows_the_first_are_kept():
    chosen, *_ = seen(rows(np.zeros(60, dtype=int)), 24)
    assert chosen == [0, 1, 2]


def test_a_table_without_rows_is_refused(owners):
    with pytest.raises(InvalidInput, match="no rows"):
        seen(rows(owners[:0]), 20)


def test_without_ids_each_row_is_somebody_elses(owners):
    made = rows(owners)
    whose = replace(schema(made), id=None)
    assert len(set(sample_rows(made.drop(["who"]), whose, 2000, b"key").people)) == 900
