"""Hostile bodies: each is refused, and neither the response nor the log contains an id."""

import gzip
import io
import json
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.server.queue import JobFilter

TABLES = ("text/csv", "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream")
KINDS = {
    "/api/v1/erasures": ("application/json", "text/plain", "x" * 5000),
    "/api/v1/receipts": ("application/json",),
    "/api/v1/rows": ("application/json", "", "application/vnd.apache.arrow.file", *TABLES),
    "/api/v1/rectifications": ("application/json", "application/xml"),
    "/api/v1/readmissions": ("application/json",),
    "/api/v1/matters": ("application/json",),
    "/api/v1/matters/lookup": ("application/json",),
    "/invocations": ("application/json", *TABLES),
    "/v2/models/spend/infer": ("application/json",),
}
POSTS = list(KINDS)
CANARY = "canary-4711-Zebra"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
members = st.sampled_from(
    ["ids", "rows", "columns", "reason", "review", "reference", "regulation", "instances", "inputs", "dataframe_split",
     "dataframe_records", "data", "name", "shape", "datatype", "id", "age", "visits", "spend", "who", "\ud800"]
)  # fmt: skip
shaped = st.recursive(
    json_values,
    lambda inner: st.dictionaries(members, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=10,
)


def parquet(table, **options):
    out = io.BytesIO()
    pa.parquet.write_table(table, out, **options)
    return out.getvalue()


TABLE = pa.table({"who": ["q1"] * 9, "age": [0.5] * 9, "visits": [0.5] * 9, "spend": [0.5] * 9})
TORN = parquet(TABLE)
BODIES = {
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"ids":' * 50_000,
    "deep and whole": b"[" * 900 + b"]" * 900,
    "NaN": b'{"instances": [[NaN, 1]], "ids": [NaN]}',
    "infinite": b'{"instances": [[Infinity, 1]]}',
    "1e400": b'{"instances": [[1e400, 1]], "inputs": [{"name": "age", "shape": [1], "data": [1e400]}]}',
    "1e400 alone": b'{"instances": [[1e400, 1]]}',
    "huge number": b'{"ids": [' + b"9" * 5000 + b"]}",
    "large number": b'{"ids": [' + b"9" * 4000 + b"]}",
    "large input": b'{"instances": [[' + b"9" * 400 + b", 1]]}",
    "largest": b'{"instances": [[1.7976931348623157e308, -1.7976931348623157e308]]}',
    "half a pair": b'{"ids": ["\\ud800"], "id": "\\ud800", "\\ud800": 1, "instances": [{"\\ud800": 1}]}',
    "nul": b'{"ids": ["a\\u0000b"]}',
    "utf-16": '{"ids": ["p1"]}'.encode("utf-16"),
    "latin-1": '{"ids": ["é"]}'.encode("latin-1"),
    "truncated": b'{"ids": ["p1"',
    "gzip": gzip.compress(bytes(10**7)),
    "torn parquet": TORN[:-20],
    "parquet with a hole": TORN[:40] + bytes(40) + TORN[80:],
    "parquet without its middle": TORN[:20] + TORN[-120:],
    "same key twice": b'{"ids": ["p1"], "ids": 5}',
    "booleans": b'{"ids": [true], "instances": [[true, false, null]]}',
    "objects in cells": b'{"rows": [{"who": {"a": 1}, "age": [1], "visits": {}, "spend": null}]}',
    "columns of other lengths": b'{"columns": {"who": ["a"], "age": [1, 2], "visits": [], "spend": 3}}',
    "csv of other lengths": b"who,age,visits,spend\na,1\nb,1,2,3,4,5\n",
    "csv with nul": b"who,age,visits,spend\n\0,\0,\0,\0\n",
    "csv without end": b'who,age,visits,spend\n"' + b"a" * 10_000,
    "empty": b"",
    "zeros": bytes(10_000),
    "tensor of negative shape": b'{"inputs": [{"name": "x", "shape": [-1, 2], "datatype": "FP64", "data": []}]}',
    "tensor of strings": b'{"inputs": [{"name": "age", "shape": ["a", {}], "datatype": 7, "data": ["a"]}]}',
    "nested tensor": b'{"inputs": [{"name": "x", "shape": [1, 2], "data": [[[[1]]], 2]}]}',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_no_hostile_body_causes_a_server_error(client, vault, service, name, capsys):
    for path, kinds in KINDS.items():
        for kind in kinds:
            answer = client.post(path, content=BODIES[name], headers={"content-type": kind})
            assert answer.status_code < 500, (path, kind, answer.status_code, answer.text)
            if answer.status_code >= 400 and not path.startswith("/v2"):
                assert answer.headers["content-type"] == "application/problem+json"
    assert vault.predict(np.array([[0.5, 0.5]])).shape == (1,)
    assert '"event": "error"' not in capsys.readouterr().err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.sampled_from(POSTS), shaped)
def test_no_json_causes_a_server_error(client, path, value):
    answer = client.post(path, content=json.dumps(value), headers={"content-type": "application/json"})
    assert answer.status_code < 500, answer.text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.sampled_from(["/api/v1/rows", "/invocations"]), st.data())
def test_no_damaged_parquet_causes_a_server_error(client, path, data):
    raw = bytearray(TORN)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    kind = {"content-type": "application/vnd.apache.parquet"}
    assert client.post(path, content=bytes(raw), headers=kind).status_code < 500


@cache
def bomb(name):
    """Return a small file that expands to a large table: repeated rows, or a long text that every row refers to."""
    if name == "rows":
        return parquet(pa.table({column: np.zeros(3_000_000) for column in ("age", "visits")}), compression="zstd")
    texts = pa.array(["x" * 100_000] * 10_000, pa.large_string())
    return parquet(pa.table({"who": texts, "age": np.zeros(10_000)}), compression="zstd")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "text"])
@pytest.mark.parametrize("path", ["/api/v1/rows", "/invocations"])
def test_a_small_file_that_expands_is_refused_before_it_does(client, vault, name, path):
    raw = bomb(name)
    assert len(raw) < 10**6
    before = pa.total_allocated_bytes()
    answer = client.post(path, content=raw, headers={"content-type": "application/vnd.apache.parquet"})
    assert answer.status_code == 422, answer.text
    assert "damaged" not in answer.text
    assert pa.total_allocated_bytes() <= before + 2**20


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", CANARY]


def test_strange_addresses_are_not_found_and_not_repeated(client, capsys):
    for method in METHODS:
        for path in (f"/{CANARY}", f"/api/v1/requests/{CANARY}", "/%00", "/%ff%fe", "/api/v1/requests/%2e%2e%2f", "//"):
            answer = client.request(method, path, params={"q": CANARY})
            assert answer.status_code < 500
            assert CANARY not in answer.text
    assert CANARY not in capsys.readouterr().err


@pytest.mark.parametrize(
    "query", [{"limit": CANARY}, {"before": CANARY}, {"state": CANARY}, {"overdue": CANARY}, {"limit": "9" * 400}]
)
def test_an_error_in_a_query_does_not_repeat_the_query(client, query):
    answer = client.get("/api/v1/requests", params=query)
    assert answer.status_code == 422
    assert CANARY not in answer.text


BAD = [
    ("/api/v1/erasures", {"ids": [CANARY], "regulation": CANARY}),
    ("/api/v1/erasures", {"ids": [[CANARY]]}),
    ("/api/v1/erasures", {"ids": {CANARY: CANARY}}),
    ("/api/v1/erasures", {"ids": [CANARY], CANARY: 1}),
    ("/api/v1/erasures", {CANARY: {CANARY: CANARY}}),
    ("/api/v1/readmissions", {"ids": [CANARY]}),
    ("/api/v1/rows", {"rows": [{"who": CANARY, "age": CANARY, "visits": CANARY, "spend": CANARY}]}),
    ("/api/v1/rows", {"rows": [{"who": "p1", "age": 0.5, "visits": 0.5, "spend": CANARY}]}),
    ("/api/v1/rectifications", {"rows": [{"who": CANARY, "age": 0.5, "visits": 0.5, "spend": 0.5}]}),
    ("/api/v1/matters", {"ids": [CANARY], "name": "", "reason": "", "review": CANARY}),
    ("/api/v1/matters/lookup", {"ids": [[CANARY]]}),
    ("/invocations", {"instances": [[CANARY, CANARY]]}),
    ("/invocations", {"dataframe_records": [{"age": CANARY, "visits": 1}]}),
    ("/invocations", {CANARY: 1}),
    ("/v2/models/spend/infer", {"inputs": [{"name": "age", "shape": [1], "datatype": "FP64", "data": [CANARY]}]}),
]


@pytest.mark.parametrize(("path", "body"), BAD)
def test_a_refusal_repeats_no_id_and_no_value(client, service, path, body, capsys):
    answer = client.post(path, json=body)
    assert 400 <= answer.status_code < 500
    assert CANARY not in answer.text
    assert CANARY not in capsys.readouterr().err
    assert all(CANARY not in entry.reason for entry in service.queue.page(JobFilter()))
