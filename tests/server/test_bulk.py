"""Large bodies are predicted in a process of their own: with the same answers, and nothing of it stays."""

import http.client
import io
import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from expunge.server.app import create_app
from expunge.vault import Vault

from support.client import LocalClient
from support.processes import Served, alive, small_vault, until

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]
NAMES = ("age", "visits")
ROWS = np.random.default_rng(7).uniform(-0.2, 1.2, (20_000, 2))
JSON, CSV, PARQUET = "application/json", "text/csv", "application/vnd.apache.parquet"
PADDING = b" " * 400_000  # makes any JSON large
CANARY = "canary-4711-Zebra"


def in_form(form, rows):
    """The rows in one of MLflow's forms, or as tensors: a path, a content type and a body."""
    columns = {name: rows[:, k].tolist() for k, name in enumerate(NAMES)}
    if form in (CSV, PARQUET):
        out = io.BytesIO()
        (pa.csv.write_csv if form == CSV else pa.parquet.write_table)(pa.table(columns), out)
        return "/invocations", form, out.getvalue()
    body = {
        "instances": {"instances": rows.tolist()},
        "split": {"dataframe_split": {"columns": list(NAMES), "data": rows.tolist()}},
        "records": {"dataframe_records": [dict(zip(NAMES, row, strict=True)) for row in rows.tolist()]},
        "tensors": {
            "id": "7",
            "inputs": [
                {"name": name, "shape": [len(rows)], "datatype": "FP64", "data": column}
                for name, column in columns.items()
            ],
        },
    }[form]
    return "/v2/models/spend/infer" if form == "tensors" else "/invocations", JSON, json.dumps(body).encode()


LARGE = in_form("instances", ROWS)


def post(client, path, kind, body):
    return client.post(path, content=body, headers={"content-type": kind})


def outside_rows(client):
    (line,) = [one for one in client.get("/metrics").text.splitlines() if one.startswith("expunge_outside_rows_total")]
    return float(line.split()[1])


@pytest.fixture
def client(make):
    app = create_app(make(max_rows=30_000))
    with LocalClient(app, raise_server_exceptions=False) as found:
        yield found
    app.state.bulk.close()


@pytest.fixture
def served(tmp_path):
    small_vault(tmp_path / "spend.vault")
    with Served(tmp_path / "spend.vault") as service:
        yield service


def test_large_and_small_bodies_have_the_same_answers(client, vault):
    expected = vault.predict(ROWS).tolist()
    for form in ("instances", "split", "records", "tensors", CSV, PARQUET):
        large = post(client, *in_form(form, ROWS))
        assert large.status_code == 200, form
        found, counted = [], 0
        for start in range(0, len(ROWS), 2000):
            small = post(client, *in_form(form, ROWS[start : start + 2000]))
            found += small.json()["outputs"][0]["data"] if form == "tensors" else small.json()["predictions"]
            counted += int(small.headers["Expunge-Outside-Rows"])
        if form == "tensors":
            output = {"name": "predict", "shape": [len(ROWS)], "datatype": "FP64", "data": expected}
            answer = {"model_name": "spend", "model_version": "1", "id": "7", "outputs": [output]}
        else:
            answer = {"predictions": expected}
        assert large.json() == answer
        assert found == expected
        before = outside_rows(client)
        assert int(large.headers["Expunge-Outside-Rows"]) == counted > 1000
        assert int(large.headers["Content-Length"]) == len(large.content)
        assert set(large.headers) == set(small.headers)
        post(client, *in_form(form, ROWS))
        assert outside_rows(client) == before + counted


@pytest.mark.parametrize("path", ["/invocations", "/v2/models/spend/infer"])
def test_large_and_small_bodies_are_refused_alike(client, capfd, path):
    bodies = [
        b"{}",
        b"[1",
        b'{"instances": [[NaN, 1]]}',
        b'{"instances": [[1, 2]], "instances": [[1, 2]]}',
        b'{"instances": [[1, 2, 3]]}',
        b'{"instances": [["a", "b"]]}',
        b'{"instances": []}',
        b'{"dataframe_records": [{"age": 1}]}',
        b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1, 2, 3]}]}',
        b'{"inputs": [{"name": "age", "shape": [1], "datatype": "FP64", "data": ["%s"]}]}' % CANARY.encode(),
    ]
    for body in bodies:
        small, large = (post(client, path, JSON, sent) for sent in (body, body + PADDING))
        assert (large.status_code, large.content) == (small.status_code, small.content), body
        assert large.headers["Content-Type"] == small.headers["Content-Type"]
    assert CANARY not in capfd.readouterr().err


def test_large_files_are_refused_like_small_ones(client):
    bad_cell, no_column = b"age,visits\n1,", b"x\n"
    for small, large in ((bad_cell + b"x", bad_cell + b"x" * 400_000), (no_column + b"1", no_column + b"1" * 400_000)):
        answers = [post(client, "/invocations", CSV, sent) for sent in (small, large)]
        assert len({(answer.status_code, answer.content) for answer in answers}) == 1


@pytest.mark.parametrize("form", ["instances", "records", "tensors", CSV, PARQUET])
def test_too_many_rows_are_refused(client, form):
    answer = post(client, *in_form(form, np.tile(ROWS, (2, 1))))
    assert answer.status_code == (400 if form == "tensors" else 422)
    assert "at most 30,000 rows" in answer.text


def test_an_erasure_that_was_acknowledged_is_in_the_answer(served, tmp_path):
    vault = Vault.open(tmp_path / "spend.vault", read_only=True)
    answers = []
    for k in range(4):
        status, answer = served.ask("POST", *LARGE[::2], {"Content-Type": JSON})
        assert (status, answer["predictions"]) == (200, vault.predict(ROWS).tolist())
        answers.append(tuple(answer["predictions"]))
        assert served.ask("POST", "/api/v1/erasures", {"ids": [f"p{k}"]})[0] == 200
    assert len(set(answers)) == 4


def test_one_process_is_kept_and_another_is_started_after_it_died(served):
    assert served.children() == []
    for _ in range(2):
        assert served.ask("POST", *LARGE[::2], {"Content-Type": JSON})[0] == 200
        (first,) = served.children()
    os.kill(first, signal.SIGKILL)
    until(lambda: not alive(first))
    assert served.ask("POST", *LARGE[::2], {"Content-Type": JSON})[0] == 200
    (second,) = served.children()
    assert second != first
    until(lambda: b'"bulk-process-ended"' in b"".join(served.lines))


@pytest.mark.parametrize("path", ["/invocations", "/v2/models/spend/infer"])
def test_a_process_that_dies_over_a_call_gives_503_and_the_next_call_works(served, path):
    assert served.ask("POST", *LARGE[::2], {"Content-Type": JSON})[0] == 200
    (child,) = served.children()
    os.kill(child, signal.SIGSTOP)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("POST", path, LARGE[2], {"Content-Type": JSON})
    timer = threading.Timer(1.0, os.kill, (child, signal.SIGKILL))
    timer.start()
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    timer.join()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert b"interrupted" in text
    assert served.ask("POST", *LARGE[::2], {"Content-Type": JSON})[0] == 200


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_process_ends_with_the_service(served, end):
    assert served.ask("POST", *LARGE[::2], {"Content-Type": JSON})[0] == 200
    (child,) = served.children()
    getattr(served, end)()
    until(lambda: not alive(child))


def test_prediction_workers_have_one_each_which_ends_with_them(tmp_path):
    small_vault(tmp_path / "spend.vault")
    with Served(tmp_path / "spend.vault", "--predict-workers", "1", "--predict-port", "0") as service:
        until(lambda: any(b'"predicting"' in line for line in service.lines))
        status, answer = service.ask("POST", *LARGE[::2], {"Content-Type": JSON}, port=service.predict_port)
        assert (status, answer) == service.ask("POST", *LARGE[::2], {"Content-Type": JSON})
        children = service.children()
        processes = [*children, *(grandchild for child in children for grandchild in service.children(child))]
        assert len(processes) == 3
        assert service.stop() == 0
    until(lambda: not any(map(alive, processes)))


def test_a_body_leaves_no_file(tmp_path, monkeypatch):
    folder, path = tmp_path / "tmp", tmp_path / "spend.vault"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    small_vault(path)
    body = {"dataframe_records": [{"age": 0.5, "visits": 0.5, "note": CANARY}] * 20_000}
    with Served(path) as service:
        assert service.ask("POST", "/invocations", body)[0] == 200
        (child,) = service.children()
        opened = [str(link.readlink()) for link in Path(f"/proc/{child}/fd").iterdir()]
        assert [file for file in opened if "(deleted)" in file or str(folder) in file] == []
        service.kill()
        until(lambda: not alive(child))
    assert [file for file in tmp_path.rglob("*") if file.is_file() and CANARY.encode() in file.read_bytes()] == []
    assert list(folder.iterdir()) == []
