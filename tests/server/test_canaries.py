"""No id, value or token is left anywhere: everything is put through a service, and then all bytes are searched.

The search is that of the vault's tests, over the folder of the vault, all that lies beside it (the queue, its log and
its index), the folder for temporary files, and what was logged and answered.
"""

import base64
import io
import sqlite3
import tempfile
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet
import pytest

from expunge.server.app import create_app
from expunge.server.database import queue_path

from support.client import LocalClient
from support.traces import number_forms, survivors, text_forms

PEOPLE = [f"Canary-{k}-Zebrafink-{k * 7919}" for k in range(12)]
VALUES = [0.123456789012345 + k / 97 for k in range(24)]


def traces():
    """Every form in which an id or a value could lie around."""
    found = {}
    for one in PEOPLE:
        found |= {data: f"id {form}" for form, data in text_forms(one)}
        for shift in range(3):  # base64 has three forms of what is inside of something
            coded = base64.b64encode(b"\0" * shift + one.encode())
            found[coded[4 if shift else 0 : -4]] = "id base64"
        found[one.encode().hex().encode()] = "id hex"
        found[one.encode().hex().upper().encode()] = "id HEX"
    return found


def value_traces(values):
    return {data: f"value {form}" for one in values for form, data in number_forms(one)}


@pytest.fixture
def quiet_tmp(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("SQLITE_TMPDIR", str(folder))
    return folder


def table(ids, values):
    return pa.table(dict(zip(("age", "visits", "spend"), (values[k::3] for k in range(3)), strict=True)) | {"who": ids})


def csv(ids, values):
    rows = zip(ids, *(values[k::3] for k in range(3)), strict=True)
    return ("who,age,visits,spend\n" + "\n".join(",".join(map(str, row)) for row in rows)).encode()


def parquet(ids, values):
    out = io.BytesIO()
    pa.parquet.write_table(table(ids, values), out)
    return out.getvalue()


def traffic(client, service, clock):
    """Rows, right rows, erasures at once, later, held, cancelled and refused; return all that was answered."""
    ids, first, second, third = PEOPLE, VALUES[:12], VALUES[12:], VALUES[6:18]
    post = client.post
    answers = [
        post("/api/v1/rows", content=csv(ids[:4], first), headers={"content-type": "text/csv"}),
        post("/api/v1/rows", content=parquet(ids[4:8], second),
             headers={"content-type": "application/vnd.apache.parquet", "Idempotency-Key": "k"}),
        post("/api/v1/rectifications", json={"columns": table(ids[:4], third).to_pydict()}),
        post("/api/v1/rows", content=csv(["p1", ids[8]], first[:3] + ["x"] * 3), headers={"content-type": "text/csv"}),
        post("/api/v1/rows", content=parquet(ids[4:8], second)[:-30],
             headers={"content-type": "application/vnd.apache.parquet"}),
        post("/api/v1/erasures", json={"ids": ids[:2]}, headers={"Idempotency-Key": "a"}),
        post("/api/v1/erasures", json={"ids": [ids[9], [ids[10]]]}),
        post("/api/v1/matters", json={"ids": [ids[2], ids[11]], "name": "case", "reason": "court"}),
        post("/api/v1/erasures", json={"ids": [ids[2], ids[3]]}),
        post("/api/v1/erasures", content="\n".join(ids[4:6]).encode(), headers={"content-type": "text/plain"}),
        post("/api/v1/erasures", json={"ids": ids[6:8]}),
        post("/invocations", json={"dataframe_records": [{"who": ids[0], "age": VALUES[0], "visits": VALUES[1]}]}),
    ]  # fmt: skip
    service.run_due()
    cancelled = answers[-2].json()["id"]
    answers.append(client.delete(f"/api/v1/requests/{cancelled}"))
    clock.pass_(hours=2)
    service.run_due()
    (matter,) = client.get("/api/v1/matters").json()
    place, words = f"/api/v1/matters/{matter['id']}", {"name": "case", "reason": "over"}
    answers += [post("/api/v1/matters/lookup", json={"ids": ids[2:4]}), post(f"{place}/people", json={"ids": ids[3:4]})]
    answers += [post(f"{place}/release", json=words | {"ids": ids[9:10]}), client.get(f"{place}/release")]
    answers += [post(f"{place}/release", json=words), client.get(place)]
    clock.pass_(hours=2)
    service.run_due()
    answers.append(post("/api/v1/erasures", json={"ids": ids[6:8]}))
    clock.pass_(hours=2)
    service.run_due()
    return answers + [client.get(path) for path in ("/api/v1/audit", "/api/v1/requests", "/metrics", "/openapi.json")]


def told(answers):
    """What was answered, without the receipts: those are for the people, who know their id."""
    return b"\n".join(one.content for one in answers if b'"receipts":[' not in one.content)


def test_nothing_of_anybody_is_left_anywhere(make, vault, clock, quiet_tmp, tmp_path, capfd):
    service = make(window=timedelta(hours=1))
    _, text = service.tokens.create("ops", ["admin"], None)
    with LocalClient(create_app(service), headers={"Authorization": f"Bearer {text}"}) as client:
        answers = traffic(client, service, clock)
    assert [one.status_code for one in answers[:6]] == [200, 200, 200, 422, 422, 202]
    assert [one.state for one in vault.find(PEOPLE[:8])] == ["erased"] * 8
    in_memory = tmp_path / "said"
    in_memory.mkdir()
    (in_memory / "log").write_text("".join(capfd.readouterr()))
    (in_memory / "answers").write_bytes(told(answers))
    wanted = traces() | value_traces(VALUES) | {text.split("_", 2)[2].encode(): "token"}
    for moment in ("while it runs", "once it is stopped"):
        assert survivors(tmp_path, wanted) == set(), moment
        service.stop()
    assert list(quiet_tmp.iterdir()) == []
    assert (in_memory / "log").stat().st_size > 1000


def test_the_search_finds_what_is_there(make, vault, clock, quiet_tmp, tmp_path):
    for data, name in traces().items():
        (tmp_path / "hidden").write_bytes(b"some" + data + b"more")
        assert survivors(tmp_path, {data: name}) == {f"{name} in hidden"}
    (tmp_path / "hidden").write_bytes(base64.b64encode(b"ab" + PEOPLE[0].encode() + b"c"))
    assert "id base64 in hidden" in survivors(tmp_path, traces())


def sealed_traces(vault):
    found = {}
    for one in vault.seal(PEOPLE):
        for form, data in (("hash", one.hash), ("sealed", one.text)):
            found |= {data: form, data.hex().encode(): f"{form} hex", base64.b64encode(data): f"{form} base64"}
    return found


def queue_files(vault):
    return list(queue_path(vault.places.vault).iterdir())


def test_the_queue_keeps_no_sealed_people_once_they_are_done(make, vault, clock, quiet_tmp, tmp_path):
    service = make(window=timedelta(hours=1))
    with LocalClient(create_app(service)) as client:
        waiting = [client.post("/api/v1/erasures", json={"ids": [one]}).json()["id"] for one in PEOPLE]
        wanted = {data: name for data, name in sealed_traces(vault).items() if name in ("hash", "sealed")}
        there = b"".join(path.read_bytes() for path in queue_files(vault))
        assert all(data in there for data in wanted)
        client.delete(f"/api/v1/requests/{waiting[0]}")
        clock.pass_(hours=1)
        service.run_due()
    left = b"".join(path.read_bytes() for path in queue_files(vault))
    assert {name for data, name in sealed_traces(vault).items() if data in left} == set()
    assert len(queue_files(vault)) == 3
    with sqlite3.connect(service.database.path) as other:
        assert other.execute("PRAGMA freelist_count").fetchone() == (0,)
    other.close()
