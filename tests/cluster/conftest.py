import numpy as np
import pyarrow.parquet as pq
import pytest

from expunge.distributed import workers
from expunge.encoding.placement import BLOCK

from support.vaults import table

ROWS = 3 * BLOCK + 1_234


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Tables in several files: to learn from, and to add; people have two rows each, in different places."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (ROWS, 2)), rng.uniform(-1, 1, ROWS)
    ids = [f"person-{k}" for k in (np.arange(ROWS) * 7919) % (ROWS // 2)]
    whole = table(ids, X, y)
    (folder / "first").mkdir()
    for k, (start, count) in enumerate([(0, 20_000), (20_000, 1_000), (21_000, 15_000)]):
        pq.write_table(whole.slice(start, count), folder / "first" / f"{k}.parquet", row_group_size=700 * (k + 1))
    pq.write_table(whole.slice(36_000), folder / "more.parquet", row_group_size=900)
    return folder


@pytest.fixture
def small_tasks(monkeypatch):
    """Tasks of few rows: several of each kind."""
    monkeypatch.setattr(workers, "TASK_ROWS", 4_000)
    monkeypatch.setattr("expunge.vault.disk.runs.PART_ENTRIES", 10_000)
