"""Tables in many files, and how the tests compare them with one."""

import numpy as np
import pyarrow as pa

from .tables import arrow_file, csv, numbers, parquet, whole

PLAIN = numbers(x=[1.0], y=[1.0])[1]
OWNED = PLAIN.with_id("who")
WRITERS = {"csv": csv, "csv.gz": csv, "parquet": parquet, "arrow": arrow_file}
STEM = ["part-10", "part-2", "a b", "ü", "x[1]", "%41", "-dash", "Z"]


def some(first, rows):
    """Rows whose values and ids tell which they are."""
    numbers = np.arange(first, first + rows)
    return pa.table({"who": pa.array(numbers).cast(pa.string()), "x": numbers * 2.0, "y": numbers * 3.0})


def files(folder, form, sizes=(3, 0, 70, 1, 5, 2)):
    """Write files of these sizes, and return them in the order of their names."""
    folder.mkdir(exist_ok=True)
    paths = sorted((folder / f"{stem}.{form}" for stem in STEM[: len(sizes)]), key=str)
    ends = np.cumsum([0, *sizes])
    for path, first, rows in zip(paths, ends, sizes, strict=False):
        WRITERS[form](some(int(first), rows), path)
    return paths


def same(source, table, schema=OWNED):
    """Compare what is read of a source with what is read of a table in memory."""
    (X, y, ids), (wanted_X, wanted_y, wanted_ids) = whole(source, schema), whole(table, schema)
    np.testing.assert_array_equal(X, wanted_X)
    np.testing.assert_array_equal(y, wanted_y)
    assert ids == wanted_ids
