"""Bodies: no limit is passed, no name of a column is repeated, and nothing that was sent lies anywhere under a name."""

import http.client
import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.server.bodies import format_numbers
from expunge.server.queue import JobFilter
from expunge.tables.sources import upload as limits

from support.processes import Served, small_vault, until

CANARY = "canary-4711-Zebra"
CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"
ARROW, STREAM = "application/vnd.apache.arrow.file", "application/vnd.apache.arrow.stream"
NAMES = ("who", "age", "visits", "spend")


def table(count, **more):
    columns = {name: [0.5] * count for name in NAMES[1:]}
    return pa.table({"who": [f"q{k}" for k in range(count)], **columns, **more})


def csv(found, end="\n"):
    rows = [found.column_names, *(map(str, row.values()) for row in found.to_pylist())]
    return end.join(map(",".join, rows)).encode()


def parquet(found, **options):
    out = io.BytesIO()
    pa.parquet.write_table(found, out, **options)
    return out.getvalue()


def arrow(found, **options):
    out = io.BytesIO()
    pa.feather.write_feather(found, out, **options)
    return out.getvalue()


def stream(found, **options):
    out = io.BytesIO()
    with pa.ipc.new_stream(out, found.schema, **options) as writer:
        writer.write_table(found)
    return out.getvalue()


def rows(found):
    return json.dumps({"rows": found.to_pylist()}).encode()


def columns(found):
    return json.dumps({"columns": found.to_pydict()}).encode()


FORMS = {
    "csv": (CSV, csv),
    "csv with CR": (CSV, lambda found: csv(found, "\r")),
    "csv with CR LF": (CSV, lambda found: csv(found, "\r\n")),
    "parquet": (PARQUET, parquet),
    "arrow": (ARROW, arrow),
    "arrow without compression": (ARROW, lambda found: arrow(found, compression="uncompressed")),
    "stream": (STREAM, stream),
    "stream with zstd": (STREAM, lambda found: stream(found, options=pa.ipc.IpcWriteOptions(compression="zstd"))),
    "rows": ("application/json", rows),
    "columns": ("application/json", columns),
}
PREDICTED = {
    "csv": FORMS["csv"],
    "csv with CR": FORMS["csv with CR"],
    "parquet": FORMS["parquet"],
    "split": (
        "application/json",
        lambda found: json.dumps(
            {
                "dataframe_split": {
                    "columns": found.column_names,
                    "data": [list(row.values()) for row in found.to_pylist()],
                }
            }
        ).encode(),
    ),
    "records": ("application/json", lambda found: json.dumps({"dataframe_records": found.to_pylist()}).encode()),
    "inputs": ("application/json", lambda found: json.dumps({"inputs": found.to_pydict()}).encode()),
    "instances": ("application/json", lambda found: json.dumps({"instances": [[0.5, 0.5]] * len(found)}).encode()),
}


def send(client, path, form, found):
    kind, write = (PREDICTED if path == "/invocations" else FORMS)[form]
    return client.post(path, content=write(found), headers={"content-type": kind})


# Limits


@pytest.fixture
def narrow(make):
    """A client of a service that takes ten rows."""
    from expunge.server.app import create_app

    from support.client import LocalClient

    with LocalClient(create_app(make(max_rows=10)), raise_server_exceptions=False) as found:
        yield found


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_counted_whatever_they_come_in(narrow, vault, form):
    assert send(narrow, "/api/v1/rows", form, table(10)).status_code == 200
    before = vault.status().rows
    answer = send(narrow, "/api/v1/rows", form, table(11))
    assert (answer.status_code, "at most 10 rows" in answer.json()["detail"]) == (422, True)
    assert vault.status().rows == before


@pytest.mark.parametrize("form", PREDICTED)
def test_rows_to_predict_are_counted_too(narrow, form):
    assert len(send(narrow, "/invocations", form, table(10)).json()["predictions"]) == 10
    answer = send(narrow, "/invocations", form, table(11))
    assert (answer.status_code, "at most 10 rows" in answer.json()["detail"]) == (422, True)


def test_a_claim_of_more_rows_than_there_are_bytes_is_refused(narrow):
    nulls = pa.table({name: pa.Array.from_buffers(pa.null(), 2**31 - 1, [None]) for name in NAMES})
    answer = narrow.post("/api/v1/rows", content=stream(nulls), headers={"content-type": STREAM})
    assert (answer.status_code, "at most 10 rows" in answer.json()["detail"]) == (422, True)


NESTED = {
    "lists": pa.array([[1.0] * 3] * 2),
    "lists of lists": pa.array([[[1.0]]] * 2),
    "objects": pa.array([{CANARY: 1}] * 2),
    "maps": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"a", b"b"]),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("form", ["parquet", "stream"])
@pytest.mark.parametrize("path", ["/api/v1/rows", "/api/v1/rectifications", "/invocations"])
def test_nested_cells_are_refused_from_the_schema_also_where_nobody_reads_them(client, monkeypatch, kind, form, path):
    if path == "/invocations" and form == "stream":
        pytest.skip("predictions take no Arrow")
    monkeypatch.setattr(limits.UploadTable, "batches", lambda *words: pytest.fail("it was read"))
    answer = send(client, path, form, table(2, more=NESTED[kind]))
    assert (answer.status_code, "plain cells" in answer.json()["detail"]) == (422, True)
    assert CANARY not in answer.text


def test_a_parquet_file_that_was_cut_short_is_called_damaged(client):
    raw = parquet(pa.table({"who": ["a"], "age": [0.5], "visits": [0.5], "spend": [0.5]}))
    told = client.post("/api/v1/rows", content=raw[: len(raw) // 2], headers={"Content-Type": PARQUET})
    assert told.status_code == 422
    assert told.json()["detail"] == "the body is damaged, or not of its declared type"


def test_a_small_parquet_file_of_long_lists_is_refused_before_it_is_unpacked(client):
    many = 2_000_000
    lists = pa.ListArray.from_arrays(pa.array([0, many]), pa.array(np.zeros(many)))
    raw = parquet(pa.table({"who": ["a"], "age": lists, "visits": [0.5], "spend": [0.5]}), compression="zstd")
    assert len(raw) < 10_000
    before = pa.default_memory_pool().bytes_allocated()
    answer = client.post("/api/v1/rows", content=raw, headers={"content-type": PARQUET})
    assert answer.status_code == 422
    assert pa.default_memory_pool().bytes_allocated() <= before + 2**20


def bomb(form):
    """Few bytes that unpack to many: zeros, or a long text that every row refers to."""
    count = 100_000
    zeros = pa.table({"who": [f"q{k}" for k in range(count)], **{name: np.zeros(count) for name in NAMES[1:]}})
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, dtype=np.int32)), ["x" * 10_000])
    texts = pa.table({"who": text, **{name: np.zeros(1000) for name in NAMES[1:]}})
    return {
        "pages": (PARQUET, lambda: parquet(zeros, compression="zstd", use_dictionary=False, data_page_size=2**30)),
        "texts in parquet": (PARQUET, lambda: parquet(texts, compression="zstd")),
        "buffers": (STREAM, lambda: stream(zeros, options=pa.ipc.IpcWriteOptions(compression="zstd"))),
        "texts in arrow": (STREAM, lambda: stream(texts)),
    }[form]


@pytest.mark.parametrize("form", ["pages", "texts in parquet", "buffers", "texts in arrow"])
def test_what_unpacks_to_too_much_is_refused(client, vault, monkeypatch, form):
    monkeypatch.setattr(limits, "_MAX_UNPACKED_BYTES", 2**20)
    kind, write = bomb(form)
    answer = client.post("/api/v1/rows", content=write(), headers={"content-type": kind})
    assert answer.status_code == 422
    assert "too large" in answer.json()["detail"] or "too long" in answer.json()["detail"]
    assert vault.status().rows == 40


def test_columns_that_nobody_needs_are_not_read(client, monkeypatch):
    monkeypatch.setattr(limits, "_MAX_UNPACKED_BYTES", 2**20)
    extra = pa.table({"age": [0.5] * 1000, "visits": [0.5] * 1000, "more": [f"{k}" + "x" * 2000 for k in range(1000)]})
    raw = parquet(extra, compression="zstd", use_dictionary=False, data_page_size=2**30)
    answer = client.post("/invocations", content=raw, headers={"content-type": PARQUET})
    assert (answer.status_code, len(answer.json()["predictions"])) == (200, 1000)


WIDE = {
    "objects": ("application/json", lambda: json.dumps([{f"c{k}": 1} for k in range(11_000)]).encode()),
    "columns": ("application/json", lambda: json.dumps({"columns": {f"c{k}": [1] for k in range(11_000)}}).encode()),
    "header": (CSV, lambda: b",".join(b"c%d" % k for k in range(11_000)) + b"\n"),
    "footer": (PARQUET, lambda: parquet(pa.table({f"c{k}": [1] for k in range(11_000)}))),
    "schema": (STREAM, lambda: stream(pa.table({f"c{k}": [1] for k in range(11_000)}))),
}  # fmt: skip


@pytest.mark.parametrize("form", WIDE)
def test_very_many_columns_are_refused(client, form):
    kind, write = WIDE[form]
    answer = client.post("/api/v1/rows", content=write(), headers={"content-type": kind})
    assert answer.status_code == 422
    assert "column" in answer.json()["detail"]


def test_lists_and_objects_are_counted_before_they_are_read_and_brackets_in_text_are_not(narrow):
    answer = narrow.post("/api/v1/rows", content=b'{"rows": [' + b"{}," * 20_000 + b"{}]}")
    assert (answer.status_code, "at most 10 rows" in answer.json()["detail"]) == (422, True)
    assert narrow.post("/api/v1/erasures", content=b'{"ids": [' + b"[]," * 20_000 + b"[]]}").status_code == 422
    text = json.dumps({"ids": ["p1"], "reference": '[{"\\'}) + " " * 10
    assert narrow.post("/api/v1/erasures", content=text.replace("[{", "[{" * 50)).status_code == 200
    ids = {"ids": ["[" * 900 for _ in range(20)]}
    assert narrow.post("/api/v1/erasures", json=ids).status_code == 200


# Names


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", ["/api/v1/rows", "/api/v1/rectifications"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_refusal_repeats_no_name_of_a_column_that_was_sent(client, service, capfd, form, path, missing):
    found = table(2, **{CANARY: [1.0, 2.0]})
    answer = send(client, path, form, found.drop(["age"]) if missing else found)
    assert answer.status_code == 422
    assert ("'age'" if missing else "number 5") in answer.json()["detail"]
    assert CANARY not in answer.text + "".join(capfd.readouterr())
    assert all(CANARY not in entry.reason for entry in service.queue.page(JobFilter()))


@pytest.mark.parametrize("form", [form for form in PREDICTED if form != "instances"])
def test_a_refused_prediction_repeats_no_name_either(client, capfd, form):
    answer = send(client, "/invocations", form, table(2, **{CANARY: [1.0, 2.0]}).drop(["age"]))
    assert (answer.status_code, "'age'" in answer.json()["detail"]) == (422, True)
    assert CANARY not in answer.text + "".join(capfd.readouterr())


def test_a_refused_tensor_repeats_no_name_either(client):
    tensors = [{"name": name, "shape": [1], "datatype": "FP64", "data": [0.5]} for name in (CANARY, "visits")]
    answer = client.post("/v2/models/spend/infer", json={"inputs": tensors})
    assert (answer.status_code, CANARY in answer.text) == (400, False)


@pytest.mark.parametrize("cell", [{CANARY: 1}, [CANARY], [{CANARY: 1}], CANARY])
def test_a_cell_that_is_no_cell_is_not_repeated(client, cell):
    row = {"who": "q1", "age": cell, "visits": 0.5, "spend": 0.5}
    for path, body in (("/api/v1/rows", {"rows": [row]}), ("/invocations", {"dataframe_records": [row]})):
        answer = client.post(path, json=body)
        assert (answer.status_code, CANARY in answer.text) == (422, False)


@given(st.lists(st.floats(), max_size=20), st.sampled_from([1, 3000]))
def test_numbers_are_written_as_they_are_and_others_as_null(given_, times):
    array = np.tile(np.array(given_, dtype=np.float64), times)
    expected = [value if np.isfinite(value) else None for value in given_] * times
    assert json.loads(format_numbers(array)) == expected
    assert json.loads(format_numbers(array.reshape(-1, 1))) == [[value] for value in expected]


# Nothing lies anywhere


@pytest.mark.parametrize("form", [CSV, PARQUET, ARROW, STREAM])
def test_no_body_has_a_name_while_it_is_read_or_afterwards(client, vault, tmp_path, monkeypatch, form):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    seen, rectify = [], type(vault).rectify

    def watched(self, data, **said):
        seen.append(
            [path.name for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
        )
        return rectify(self, data, **said)

    monkeypatch.setattr(type(vault), "rectify", watched)
    found = table(2).set_column(0, "who", [["p1", CANARY]])
    raw = {CSV: csv, PARQUET: parquet, ARROW: arrow, STREAM: stream}[form](found)
    assert client.post("/api/v1/rectifications", content=raw, headers={"content-type": form}).status_code == 404
    assert seen == [[]]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_nothing_of_a_body_is_left_when_the_process_is_killed_over_it(tmp_path, monkeypatch):
    folder, path = tmp_path / "tmp", tmp_path / "spend.vault"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    small_vault(path)
    with Served(path) as service:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        connection.putrequest("POST", "/api/v1/rows")
        connection.putheader("Content-Type", CSV)
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(f"who,age,visits,spend\n{CANARY},0.5,0.5,0.5\n".encode() * 3000)
        process = f"/proc/{service.process.pid}/fd"
        until(lambda: any("(deleted)" in str(link.readlink()) for link in Path(process).iterdir()))
        service.kill()
        connection.close()
    assert [file for file in tmp_path.rglob("*") if file.is_file() and CANARY.encode() in file.read_bytes()] == []
    assert list(folder.iterdir()) == []
