"""Tables on other filesystems, by URI: the same rows, and errors without passwords."""

from urllib.parse import quote, unquote

import pyarrow.fs
import pytest

from expunge import tables
from expunge.errors import InvalidFile
from expunge.tables.proposal import propose_schema
from expunge.tables.sources import locations

from support.many import OWNED, WRITERS, files, same, some
from support.tables import CANARY, parquet, refused, whole, written


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A folder that s3://bucket is, and what was asked for."""
    asked = []

    def from_uri(uri):
        asked.append(uri)
        path = uri.partition("://")[2].partition("?")[0].rpartition("@")[2]
        return pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem()), unquote(path)

    monkeypatch.setattr(locations, "from_uri", from_uri)
    return tmp_path / "bucket", asked


@pytest.mark.parametrize("form", WRITERS)
def test_files_of_another_filesystem_are_found_and_read_alike(bucket, form):
    folder, _ = bucket
    folder.mkdir()
    paths = files(folder / "the data", form)
    ending = f"*.{form}"
    for source in (
        "s3://bucket",
        "s3://bucket/the%20data/",
        "s3://bucket/the data",
        f"s3://bucket/**/{ending}",
        f"s3://bucket/the%20data/{ending}?region=x",
        [f"s3://bucket/the data/{quote(path.name)}" for path in paths[::-1]],
    ):
        same(source, some(0, 81))


def test_another_filesystem_may_have_partitions(bucket):
    for k, x in enumerate(["1.5", "%32"]):
        (bucket[0] / f"x={x}").mkdir(parents=True)
        parquet(some(k, 1).drop(["x"]), bucket[0] / f"x={x}" / "t.parquet")
    assert whole("s3://bucket", OWNED)[0].ravel().tolist() == [2.0, 1.5]
    found = tables.split_table("s3://bucket?a=b")
    assert [piece.path for piece in found] == [f"s3://bucket/x={x}/t.parquet?a=b" for x in ("%2532", "1.5")]
    assert [block.X.item() for piece in found for block in tables.read_piece(piece, OWNED)] == [2.0, 1.5]


def test_no_message_holds_a_password(bucket):
    folder, asked = bucket
    folder.mkdir()
    uri = "s3://name:Xq7canary@bucket/{}?secret=Xq7canary"
    refused(uri.format("t.csv"), match=r"no such file: s3://\*\*\*@bucket/t.csv$")
    refused(uri.format("*.csv"), match=r"no file matches s3://\*\*\*@bucket/\*.csv$")
    refused(uri.format(""), match=r"s3://\*\*\*@bucket/ has no tables")
    assert asked[0] == uri.format("t.csv")
    files(folder / "data", "parquet", (1, 0))
    written(folder / "data" / "z.parquet", "damaged")
    refused(
        uri.format("data"),
        error=InvalidFile,
        match=r"s3://\*\*\*@bucket/data/z.parquet is damaged, .*cannot be reached",
    )
    assert 'read from "part-10.parquet".' in propose_schema(uri.format("data/part-10.parquet"), target="y")


@pytest.mark.parametrize("when", ["from_uri", "get_file_info", "open_input_file"])
def test_a_filesystem_that_cannot_be_reached_is_refused_by_name(bucket, monkeypatch, when):
    folder, _ = bucket
    folder.mkdir()
    parquet(some(0, 1), folder / "t.parquet")
    there, path = locations.from_uri("s3://bucket/t.parquet")

    class Away:
        def get_file_info(self, path):
            return self._or_fail("get_file_info", path)

        def open_input_file(self, path):
            return self._or_fail("open_input_file", path)

        def _or_fail(self, method, path):
            if method == when:
                raise OSError(f"AWS Error NETWORK_CONNECTION: {CANARY}")
            return getattr(there, method)(path)

    def from_uri(uri):
        if when == "from_uri":
            raise OSError(f"no region: {CANARY}")
        return Away(), path

    monkeypatch.setattr(locations, "from_uri", from_uri)
    refused("s3://bucket/t.parquet", OWNED, match="s3://bucket/t.parquet cannot be reached; check the address")
