"""Predictions: every form of the same rows has the vault's own answer, bit by bit."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge import CodedRegressor
from expunge.server.app import create_app
from expunge.server.database import Database, queue_path
from expunge.server.service import Service
from expunge.vault import Vault

from support.client import LocalClient

NAMES = ("age", "visits")
numbers = st.floats(-2.0, 3.0, allow_nan=False, width=64)
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6)
alike = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


def forms(rows):
    """The same rows in each form that MLflow has: a content type and a body."""
    columns = dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))
    data = [list(row) for row in rows]
    backwards = {name: columns[name] for name in reversed(NAMES)}
    table, parquet, text = pa.table(columns), io.BytesIO(), io.BytesIO()
    pa.parquet.write_table(table, parquet)
    pa.csv.write_csv(table, text)
    split = {"columns": list(NAMES), "index": list(range(len(rows))), "data": data}
    said = [
        {"dataframe_split": split},
        {"dataframe_records": [dict(zip(NAMES, row, strict=True)) for row in rows]},
        {"dataframe_records": [dict(zip(NAMES, row, strict=True)) | {"other": "x"} for row in rows]},
        {"instances": data},
        {"instances": [dict(zip(NAMES, row, strict=True)) for row in rows]},
        {"inputs": data, "params": {}},
        {"inputs": columns},
        {"inputs": backwards},
    ]
    yield from (("application/json", json.dumps(one).encode()) for one in said)
    yield "application/json; charset=utf-8", json.dumps(said[0]).encode()
    yield "text/csv", text.getvalue()
    yield "application/vnd.apache.parquet", parquet.getvalue()


def tensors(rows):
    """The same rows in each form that the Open Inference Protocol has."""
    columns = list(zip(*rows, strict=True))
    n = len(rows)
    yield [
        {"name": name, "shape": [n], "datatype": "FP64", "data": list(column)}
        for name, column in zip(NAMES, columns, strict=True)
    ]
    yield [
        {"name": name, "shape": [n, 1], "datatype": "FP64", "data": [[one] for one in column]}
        for name, column in reversed(list(zip(NAMES, columns, strict=True)))
    ]
    yield [{"name": "x", "shape": [n, 2], "datatype": "FP64", "data": [list(row) for row in rows]}]
    yield [{"name": "x", "shape": [n, 2], "datatype": "FP64", "data": [one for row in rows for one in row]}]


@alike
@given(rows)
def test_all_forms_agree_with_the_vault(client, vault, wanted):
    expected = vault.predict(np.array(wanted)).tolist()
    for kind, body in forms(wanted):
        answer = client.post("/invocations", content=body, headers={"content-type": kind})
        assert answer.status_code == 200, (kind, body, answer.text)
        assert answer.json() == {"predictions": expected}


@alike
@given(rows)
def test_all_tensors_agree_with_the_vault(client, vault, wanted):
    expected = vault.predict(np.array(wanted)).tolist()
    for inputs in tensors(wanted):
        answer = client.post("/v2/models/spend/infer", json={"id": "7", "inputs": inputs})
        assert answer.status_code == 200, answer.text
        output = {"name": "predict", "shape": [len(wanted)], "datatype": "FP64", "data": expected}
        assert answer.json() == {"model_name": "spend", "model_version": "1", "id": "7", "outputs": [output]}


def test_several_targets_are_rows_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.random(30) for name in ("a", "b", "y", "z")} | {"who": list(range(30))})
    model = CodedRegressor(shards=5, rate=5, random_state=0)
    vault = Vault.create(tmp_path / "two.vault", table, target=["y", "z"], id="who", model=model)
    service = Service(vault, Database(queue_path(vault.places.vault)))
    expected = vault.predict(np.array([[0.1, 0.2], [0.3, 0.4]]))
    with LocalClient(create_app(service)) as client:
        found = client.post("/invocations", json={"instances": [[0.1, 0.2], [0.3, 0.4]]}).json()
        assert found == {"predictions": expected.tolist()}
        tensor = {"name": "x", "shape": [2, 2], "datatype": "FP64", "data": [0.1, 0.2, 0.3, 0.4]}
        output = client.post("/v2/models/two/infer", json={"inputs": [tensor]}).json()["outputs"][0]
        assert (output["shape"], output["data"]) == ([2, 2], expected.ravel().tolist())
        assert client.get("/v2/models/two").json()["outputs"][0]["shape"] == [-1, 2]
    service.stop()


def test_an_erasure_changes_the_very_next_prediction(client, vault):
    body = {"instances": [[0.4, 0.5]]}
    before = client.post("/invocations", json=body).json()
    client.post("/api/v1/erasures", json={"ids": ["p1", "p2", "p3"]})
    after = client.post("/invocations", json=body).json()
    assert after != before
    assert after["predictions"] == vault.predict(np.array([[0.4, 0.5]])).tolist()
    assert client.get("/v2/models/spend").json()["versions"] == ["2"]


def test_what_the_protocols_say_of_themselves(client):
    assert client.get("/ping").status_code == client.get("/health").status_code == 200
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/spend/ready").json()["ready"] is True
    about = client.get("/v2/models/spend").json()
    assert [one["name"] for one in about["inputs"]] == list(NAMES)
    assert client.get("/v2/models/spend/versions/1").json() == about
    for path in ("/v2/models/other", "/v2/models/spend/versions/9", "/v2/models/spend/versions/x"):
        answer = client.get(path)
        assert (answer.status_code, list(answer.json())) == (404, ["error"])


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("text/plain", b"1,2", 415),
        ("application/json", b"{}", 422),
        ("application/json", b'{"instances": [[1, 2]], "inputs": [[1, 2]]}', 422),
        ("application/json", b'{"instances": [[1, 2, 3]]}', 422),
        ("application/json", b'{"instances": [["a", "b"]]}', 422),
        ("application/json", b'{"dataframe_split": {"columns": ["age"], "data": [[1]]}}', 422),
        ("application/json", b'{"dataframe_split": {"columns": ["age", "visits"], "data": [[1]]}}', 422),
        ("application/json", b'{"dataframe_split": {"columns": ["age", "visits", "age"], "data": [[1, 2, 3]]}}', 422),
        ("text/csv", b"age,visits\n1,x\n", 422),
        ("application/vnd.apache.parquet", b"PAR1", 422),
    ],
)
def test_what_cannot_be_predicted_is_refused(client, kind, body, status):
    assert client.post("/invocations", content=body, headers={"content-type": kind}).status_code == status


def test_no_rows_are_no_predictions(client):
    for body in ({"instances": []}, {"dataframe_split": {"columns": list(NAMES), "data": []}}):
        assert client.post("/invocations", json=body).json() == {"predictions": []}


def test_binary_tensors_are_refused(client):
    headers = {"Inference-Header-Content-Length": "10"}
    assert client.post("/v2/models/spend/infer", content=b"x", headers=headers).status_code == 400


def test_too_many_rows_are_refused(make):
    with LocalClient(create_app(make(max_rows=2))) as client:
        assert client.post("/invocations", json={"instances": [[1, 2]] * 3}).status_code == 422
        assert client.post("/invocations", json={"instances": [[1, 2]] * 2}).status_code == 200
