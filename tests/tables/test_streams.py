"""Streams that can be read only once: every row of them is answered, by the newest model, or the answer is refused."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidInput, VaultBusy
from expunge.tables.proposal import propose_schema
from expunge.vault import Vault

from support.vaults import ANYTHING, duplicate, made, people, random_table, small

ROWS = 12
PROBE = random_table([f"probe-{k}" for k in range(ROWS)], seed=5).drop(["y"])


class Once:
    """A stream of another library: whoever asks twice gets nothing."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        table, self._table = self._table, None
        if table is None:
            raise ValueError("this stream was read")
        return table.to_reader(max_chunksize=3).__arrow_c_stream__(requested_schema)


def stream(before, act, table=PROBE):
    """A reader of one row at a time that does something before it gives row ``before``."""

    def rows():
        for k, batch in enumerate(table.to_batches(max_chunksize=1)):
            if k == before:
                act()
            yield batch

    return pa.RecordBatchReader.from_batches(table.schema, rows())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return made(tmp_path_factory.mktemp("trained") / "v.vault").places.vault


def other_columns(vault):
    """Another request: the vault learns another table, with another order of the columns and one column less."""
    data = random_table(people(), seed=3)
    Vault.create(vault.places.vault, data.select(["y", "who", "x1"]), target="y", id="who", replace=True, **ANYTHING)


REQUESTS = {"unlearn": lambda vault: vault.unlearn(["person-3"]), "replace": other_columns}


@given(before=st.integers(0, ROWS - 1), request=st.sampled_from(sorted(REQUESTS)))
def test_a_request_while_a_stream_is_read_gives_all_rows_from_the_new_model(trained, tmp_path_factory, before, request):
    vault = Vault.open(duplicate(trained, tmp_path_factory.mktemp("copy")))
    writer = Vault.open(vault.places.vault)
    before_it = vault.predict(PROBE)
    found = vault.predict(stream(before, lambda: REQUESTS[request](writer)))
    np.testing.assert_array_equal(found, vault.predict(PROBE))
    assert len(found) == ROWS
    assert not np.array_equal(found, before_it)
    ids, again = vault.predict_with_ids(stream(before, lambda: writer.unlearn(["person-5"])))
    assert ids == PROBE["who"].to_pylist()
    np.testing.assert_array_equal(again, vault.predict(PROBE))


@pytest.mark.parametrize("before", [0, ROWS - 1])
@pytest.mark.parametrize("form", ["csv", "parquet", "open file"])
def test_predictions_of_a_stream_into_a_file_are_refused_if_the_vault_changes(vault, tmp_path, before, form):
    out = io.BytesIO() if form == "open file" else tmp_path / f"p.{form}"
    if isinstance(out, Path):
        out.write_bytes(b"old")
    writer = Vault.open(vault.places.vault)
    with pytest.raises(VaultBusy, match="can be read only once: pass it again; nothing was written"):
        vault.predict_to(stream(before, lambda: writer.unlearn(["person-3"])), out)
    if isinstance(out, Path):
        assert out.read_bytes() == b"old"
        assert [path.name for path in tmp_path.glob(".*")] == []
    else:
        assert out.getvalue() == b""


def test_a_table_that_can_be_read_again_is(vault, tmp_path):
    path, writer, asked = tmp_path / "probe.csv", Vault.open(vault.places.vault), []
    pyarrow.csv.write_csv(PROBE, path)
    looks = vault._reader.get_model

    def current():
        if len(asked) == 1:
            writer.unlearn(["person-3"])
        asked.append(looks())
        return asked[-1]

    vault._reader.get_model = current
    assert vault.predict_to(path, tmp_path / "p.csv").rows == ROWS
    assert len(asked) == 4
    np.testing.assert_array_equal(
        pyarrow.csv.read_csv(tmp_path / "p.csv")["predicted_y"].to_numpy(), writer.predict(PROBE)
    )


@pytest.mark.parametrize("source", [Once, pa.Table.to_reader])
def test_a_stream_that_is_read_once_does_for_every_request(tmp_path, source):
    data = random_table(people())
    vault = Vault.create(tmp_path / "v.vault", source(data), target="y", id="who", model=small())
    same = made(tmp_path / "same.vault", data)
    for one, table in ((vault, source), (same, lambda table: table)):
        one.add(table(random_table(["new"], seed=1)))
        one.rectify(table(random_table(["person-3"], seed=2)))
    assert vault.digest() == same.digest()
    expected = same.predict(PROBE)
    np.testing.assert_array_equal(vault.predict(source(PROBE)), expected)
    ids, found = vault.predict_with_ids(source(PROBE))
    assert ids == PROBE["who"].to_pylist()
    np.testing.assert_array_equal(found, expected)
    ours, theirs = io.BytesIO(), io.BytesIO()
    assert vault.predict_to(source(PROBE), ours).rows == same.predict_to(PROBE, theirs).rows == ROWS
    assert ours.getvalue() == theirs.getvalue()
    assert propose_schema(source(data), target="y", id="who") == propose_schema(data, target="y", id="who")


def test_a_proposal_looks_at_a_stream_only_once():
    far = pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("s"), safe=False)
    table = pa.table({"when": far, "y": [1.0, 2.0]})
    with pytest.raises(InvalidInput, match="column 'when' must hold dates"):
        propose_schema(table.to_reader(), target="y")


def test_a_generator_is_no_table(vault):
    with pytest.raises(InvalidInput, match="got generator"):
        vault.predict(batch for batch in PROBE.to_batches())
