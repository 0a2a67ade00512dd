"""DATA may be many files, by words, a glob, a folder or a URI: the answers are those of one file with all rows."""

import json
import re
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

from expunge.vault import Vault

from support.commands import TRAIN, V, customers
from support.vaults import people


@pytest.fixture
def parts(here):
    """The rows of customers.parquet in three files of a folder."""
    table = customers(people())
    Path("parts").mkdir()
    for k, first in enumerate(range(0, len(table), 12)):
        pyarrow.parquet.write_table(table.slice(first, 12), f"parts/{k}.parquet")
    return sorted(map(str, Path("parts").iterdir()))


def test_a_vault_of_many_files_is_the_vault_of_one(here, ok, parts):
    ok("train", "customers.parquet", "--vault", "one.vault", *TRAIN)
    expected = Vault.open("one.vault").digest()
    words = {
        "glob": ["parts/*.parquet"],
        "words": parts,
        "folder": ["parts"],
        "uri": [Path("parts").resolve().as_uri()],
    }
    for name, data in words.items():
        ok("train", *data, "--vault", f"{name}.vault", *TRAIN)
        assert Vault.open(f"{name}.vault").digest() == expected
    ok("train", "--vault", "last.vault", *TRAIN, *parts[::-1])
    assert Vault.open("last.vault").digest() == expected


def test_other_commands_take_many_files_too(here, ok, spend, parts):
    names = ("--target", "spend", "--id-column", "customer_id", "--people", "5")
    one, many = ok("schema", "customers.parquet", *names), ok("schema", *parts, *names)
    assert one.replace('"customers.parquet"', '"3 files"') == many
    assert ok("predict", "parts/*", *V) == ok("predict", "customers.parquet", *V)
    rows = json.loads(ok("rectify", *parts, *V, "--json"))["rows"]
    assert rows == pyarrow.parquet.read_table("customers.parquet").num_rows
    for name in ("a", "b"):
        pyarrow.csv.write_csv(customers([f"new-{name}"], 3), f"more-{name}.csv")
    assert json.loads(ok("add", "more-*.csv", *V, "--json"))["people"] == 2


def test_a_page_about_many_files_says_so_and_overwrites_none(here, run, spend, parts):
    assert run("evaluate", *parts, *V, "--html", "e.html")[0] == 0
    assert re.search("spend.vault on 3 files", Path("e.html").read_text())
    Path("e.parquet").write_bytes(Path(parts[0]).read_bytes())
    assert run("evaluate", "*.parquet", *V, "--html", "e.parquet")[::2] == (
        2,
        "error: --html would overwrite the table, e.parquet\n",
    )


def test_what_stands_for_no_file_is_an_error_of_the_table(here, run, spend):
    for words, message in (
        (["nothing/*.csv"], "no file matches nothing/*.csv"),
        (["new.csv", "more.parquet"], "more.parquet and new.csv have different formats: a table has one"),
    ):
        assert run("predict", *words, *V)[::2] == (3, f"error: {message}\n")
    code, _, err = run("predict", *V)
    assert (code, "DATA" in err) == (2, True)
