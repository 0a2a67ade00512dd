"""A table without a header: its first row is data, and no refusal shows it."""

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import ExpungeError, InvalidInput
from expunge.tables.proposal import propose_schema
from expunge.tables.proposal.draft import plain_schema
from expunge.tables.reader import read_blocks
from expunge.tables.schema import Schema
from expunge.vault import Vault

from support.tables import CANARY, SCHEMA
from support.vaults import made

PLAIN = Schema.parse('id="who"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x0]\nkind="number"')
CELLS = (
    st.integers(0, 5).map(lambda k: f"{CANARY}{k}") | st.floats(10, 99).map(str) | st.integers(10**5, 10**7).map(str)
)
DOORS = {
    "plain": lambda source: plain_schema(source, "y", "who"),
    "plain without ids": lambda source: plain_schema(source, "y"),
    "proposal": lambda source: propose_schema(source, target="y", id="who"),
    "train": lambda source: list(read_blocks(source, PLAIN, targets=True, ids=True)),
    "train with many columns": lambda source: list(read_blocks(source, SCHEMA, targets=True, ids=True)),
    "predict": lambda source: list(read_blocks(source, PLAIN, targets=False, ids=False)),
}


def frame(rows):
    """A table as pandas reads it that takes the first row for names; it makes them different."""
    return pd.DataFrame(rows[1:], columns=[f"{cell}.{k}" for k, cell in enumerate(rows[0])])


@given(
    st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=4)),
    st.sampled_from(sorted(DOORS)),
    st.sampled_from([",", ";", "\t"]),
    st.booleans(),
)
def test_a_first_row_that_is_taken_for_names_is_never_shown(tmp_path_factory, rows, door, mark, in_memory):
    path = tmp_path_factory.getbasetemp() / "headless.csv"
    path.write_text("".join(mark.join(row) + "\n" for row in rows))
    with pytest.raises(ExpungeError) as caught:
        DOORS[door](frame(rows) if in_memory else path)
    told = str(caught.value).replace(str(path), "")
    assert not [cell for row in rows for cell in row if cell in told]


def test_every_request_of_a_vault_is_as_silent(tmp_path):
    vault = made(tmp_path / "v.vault")
    path = tmp_path / "headless.csv"
    path.write_text(f"{CANARY},0.25,0.5,0.75\nother,1,2,3\n")
    requests = [vault.add, vault.rectify, vault.predict, lambda data: vault.predict_to(data, tmp_path / "p.csv")]
    requests.append(lambda data: Vault.create(tmp_path / "w.vault", data, target="y", id="who"))
    for request in requests:
        with pytest.raises(InvalidInput, match="no column.* the table has 4 columns, none of these") as caught:
            request(path)
        assert not [cell for cell in (CANARY, "0.25", "0.5", "0.75") if cell in str(caught.value)]


def test_names_are_shown_where_the_first_row_is_surely_a_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,x0,x1\n1,2,3\n")
    with pytest.raises(InvalidInput, match="no column 'y'; there are 'who', 'x0', 'x1'$"):
        plain_schema(path, "y", "who")


@pytest.mark.parametrize("data", [pd.DataFrame, lambda rows, columns: pa.table(list(zip(*rows)), names=columns)])  # noqa: B905
def test_columns_with_one_name_are_told_by_their_place(data):
    with pytest.raises(InvalidInput, match="different names, but columns 1 and 3 have the same$") as caught:
        plain_schema(data([[1.0, 2.0, 3.0]], columns=[CANARY, "y", CANARY]), "y")
    assert CANARY not in str(caught.value)
    with pytest.raises(InvalidInput, match="but columns 2, 3 and 5 have the same$"):
        plain_schema(data([[1.0] * 5], columns=["y", "a", "a", "b", "a"]), "y")


def test_a_column_of_mixed_types_is_told_by_its_place():
    with pytest.raises(InvalidInput, match="column 2 has cells of mixed types") as caught:
        plain_schema(pd.DataFrame({"y": [1, 2], CANARY: [1, "a"]}), "y")
    assert CANARY not in str(caught.value)
