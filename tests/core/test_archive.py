"""Archives: what was written comes back, from disk or from memory, or the file is refused by name."""

import io
import zipfile

import numpy as np
import pytest

from expunge.errors import InvalidFile
from expunge.saving.archive import Archive, dump_archive, write_archive

HEADER = {"answer": 42}
ARRAYS = {"table": np.arange(6.0).reshape(2, 3), "names": np.array(["a", "bc"])}


def in_memory():
    file = io.BytesIO()
    dump_archive(file, HEADER, ARRAYS)
    return file


def test_an_archive_in_memory_has_the_members_of_the_one_on_disk(tmp_path):
    write_archive(tmp_path / "a", HEADER, ARRAYS)
    with zipfile.ZipFile(tmp_path / "a") as disk, zipfile.ZipFile(in_memory()) as memory:
        assert disk.namelist() == memory.namelist()
        assert all(disk.read(name) == memory.read(name) for name in disk.namelist())


@pytest.mark.parametrize("source", ["path", "file", "memory"])
def test_what_was_written_comes_back(tmp_path, source):
    write_archive(tmp_path / "a", HEADER, ARRAYS)
    with (tmp_path / "a").open("rb") as file:
        with Archive({"path": tmp_path / "a", "file": file, "memory": in_memory()}[source]) as archive:
            assert archive.get("answer", int) == 42
            np.testing.assert_array_equal(archive.array("table", "<f8", 2, None), ARRAYS["table"])
            np.testing.assert_array_equal(archive.array("names", "<U", 2), ARRAYS["names"])
        assert not file.closed


def test_whoever_opened_a_file_closes_it(tmp_path):
    for file in (in_memory(), io.BytesIO(b"no archive")):
        try:
            with Archive(file):
                pass
        except InvalidFile:
            pass
        assert not file.closed
    write_archive(tmp_path / "a", HEADER, ARRAYS)
    archive = Archive(tmp_path / "a")
    with archive:
        pass
    with pytest.raises(InvalidFile, match="lacks 'table'"):
        archive.array("table", "<f8", 2, 3)


def test_arrays_are_the_same_bytes_on_every_machine():
    file = io.BytesIO()
    dump_archive(
        file, {}, {"big": np.arange(6, dtype=">i8").reshape(2, 3), "columns": np.asfortranarray(ARRAYS["table"])}
    )
    with Archive(file) as archive:
        np.testing.assert_array_equal(archive.array("big", "<i8", 2, 3), np.arange(6).reshape(2, 3))
        np.testing.assert_array_equal(archive.array("columns", "<f8", 2, 3), ARRAYS["table"])


def test_every_truncation_is_refused_by_name():
    whole = in_memory().getvalue()
    for length in range(len(whole)):
        with pytest.raises(InvalidFile, match="^snapshot 3 "):
            Archive(io.BytesIO(whole[:length]), name="snapshot 3")


def test_an_array_that_claims_more_than_there_is_is_refused_in_memory_too():
    file, member = in_memory(), io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("huge.npy", member.getvalue())
    with Archive(file) as archive, pytest.raises(InvalidFile, match="^the archive has 'huge', which is cut short"):
        archive.array("huge", "<f8", None)
