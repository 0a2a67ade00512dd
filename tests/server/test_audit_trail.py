"""The audit trail: everything that happened, wherever it was asked for, with who did it and no identities."""

import csv
import getpass
import io
import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from expunge.cli import program
from expunge.server.app import create_app
from expunge.server.database import Database, queue_path
from expunge.server.matters import Author
from expunge.server.tokens import Tokens
from expunge.vault import Vault
from expunge.vault.backup import Backup

from support.client import LocalClient

ERASE = "/api/v1/erasures"
ACTIONS = ("vault.train", "vault.unlearn", "key.introduced")


def entries(client):
    return client.get("/api/v1/audit").json()


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_vault_without_a_service_has_its_requests_and_keys(vault, capsys):
    vault.unlearn("p3", reference="DSR-3", actor="privacy desk")
    vault.renew_key()
    assert program.run(["audit", "--vault", str(vault.places.vault)]) == 0
    rows = table(capsys.readouterr().out)
    [_train], [unlearn], keys = ([row for row in rows if row["action"] == what] for what in ACTIONS)
    assert (unlearn["actor"], unlearn["reference"], unlearn["subject"]) == ("privacy desk", "DSR-3", "2")
    assert json.loads(unlearn["details"]) == {"rows": 1, "people": 1, "state": "certified"}
    assert [json.loads(row["details"]) for row in keys] == [{"endorsed": False}, {"endorsed": True}]


def test_jobs_tokens_webhooks_and_what_others_did_are_in_one_list(client, service, clock):
    _, admin = service.tokens.create("Anna", ["admin"], None)
    client.headers["Authorization"] = f"Bearer {admin}"
    clock.pass_(minutes=1)
    client.post(ERASE, json={"ids": ["p1"], "reference": "DSR-1"})
    clock.pass_(minutes=1)
    hook = client.post("/api/v1/webhooks", json={"url": "https://hooks.example/secret-path"}).json()["id"]
    clock.pass_(minutes=1)
    client.delete(f"/api/v1/webhooks/{hook}")
    token = service.tokens.create("Ben", ["read"], None, actor="Anna")[0]
    service.tokens.revoke(token.id, actor="Anna")
    found = [(one["action"], one["actor"]) for one in entries(client)]
    for expected in [
        ("vault.train", ""), ("key.introduced", ""), ("token.created", ""), ("job.received", "Anna"),
        ("job.done", "Anna"), ("webhook.removed", "Anna"), ("token.created", "Anna"), ("token.revoked", "Anna"),
        ("vault.unlearn", "Anna"),
    ]:  # fmt: skip
        assert expected in found, expected
    text = json.dumps(entries(client))
    assert "secret-path" not in text
    assert admin not in text
    assert '"p1"' not in text


def test_a_job_leads_to_the_request_that_carried_it_out_and_back(client):
    job = client.post(ERASE, json={"ids": ["p1"]}).json()
    found = {one["action"]: one for one in entries(client)}
    assert found["job.done"]["subject"] == job["id"]
    assert found["job.done"]["details"]["request"] == int(found["vault.unlearn"]["subject"])


def test_csv_and_json_say_the_same_without_reprs(client):
    for k in range(3):
        client.post(ERASE, json={"ids": [f"p{k}"], "reference": f"DSR-{k}"})
    listed, rows = entries(client), table(client.get("/api/v1/audit?format=csv").text)
    assert [row | {"details": json.loads(row["details"])} for row in rows] == listed
    assert [one["time"] for one in listed] == sorted(one["time"] for one in listed)


def test_a_cell_of_the_audit_is_no_formula(client):
    client.post(ERASE, json={"ids": ["p1"], "reference": "=1+1"})
    rows = table(client.get("/api/v1/audit?format=csv").text)
    assert {row["reference"] for row in rows if row["action"].startswith("job.")} == {"'=1+1"}


@pytest.mark.parametrize("name", ["audit.csv", "audit.json"])
def test_the_trail_is_downloaded_from_the_page(client, name):
    client.post(ERASE, json={"ids": ["p1"]})
    answer = client.get(f"/{name}")
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert "job.done" in answer.text
    assert f'href="/{name}"' in client.get("/requests", headers={"Accept": "text/html"}).text


def test_the_command_line_sees_what_the_service_recorded(vault, capsys):
    Tokens(Database(queue_path(vault.places.vault))).create("Anna", ["read"], None)
    assert program.run(["audit", "--json", "--vault", str(vault.places.vault)]) == 0
    assert "token.created" in [one["action"] for one in json.loads(capsys.readouterr().out)]


def test_what_was_done_to_matters_is_in_the_trail(client, service):
    matter = service.matters.open("case 7", "a lawsuit", None, Author("Anna"), ["p1", "p2"]).matter
    service.matters.release(matter.id, "case 7", "settled", Author("Ben"))
    found = [one for one in entries(client) if one["action"].startswith("matter.")]
    assert {one["subject"] for one in found} == {"case 7"}
    assert (found[0]["action"], found[0]["actor"], found[-1]["action"], found[-1]["actor"]) == (
        "matter.opened", "Anna", "matter.released", "Ben",
    )  # fmt: skip
    assert found[-1]["details"]["reason"] == "settled"


def test_a_backup_is_in_the_trail_because_it_copies_everybody(vault, tmp_path, capsys):
    Database(queue_path(vault.places.vault)).close()
    place = ["--vault", str(vault.places.vault)]
    assert vault.backup(tmp_path / "by a program", actor="nightly job").note == ""
    assert program.run(["backup", str(tmp_path / "copy"), *place]) == 0
    capsys.readouterr()
    assert program.run(["audit", "--json", *place]) == 0
    made = [one["actor"] for one in json.loads(capsys.readouterr().out) if one["action"] == "backup.made"]
    assert made == ["nightly job", getpass.getuser()]


def test_a_backup_that_cannot_be_recorded_is_kept_and_says_so(vault, tmp_path):
    with closing(Database(queue_path(vault.places.vault))) as database:
        database.execute("DROP TABLE audit")
    copy = vault.backup(tmp_path / "copy")
    assert "could not be recorded" in copy.note
    assert Backup.read(copy.path).request == copy.request


def test_times_are_written_in_one_way_and_a_job_comes_before_its_request(client):
    client.post(ERASE, json={"ids": ["p1"]})
    assert {one["time"][-1] for one in entries(client)} == {"Z"}


def test_who_cancels_or_extends_a_job_need_not_be_who_asked_for_it(make, clock):
    service = make(window=timedelta(days=1))
    with LocalClient(create_app(service)) as client:
        anna, ben = (
            {"Authorization": f"Bearer {service.tokens.create(name, ['admin'], None)[1]}"} for name in ("Anna", "Ben")
        )
        job = client.post(ERASE, json={"ids": ["p1"], "reference": "DSR-1"}, headers=anna).json()
        client.post(f"/api/v1/requests/{job['id']}/extension", json={"reason": "many requests"}, headers=ben)
        clock.pass_(hours=1)
        client.delete(f"/api/v1/requests/{job['id']}", headers=ben)
        trail = client.get("/api/v1/audit", headers=anna).json()
    mine = {one["action"]: one for one in trail if one["subject"] == job["id"]}
    token = next(one["subject"] for one in trail if one["details"].get("name") == "Ben")
    assert list(mine) == ["job.received", "job.extended", "job.cancelled"]
    assert (mine["job.received"]["actor"], mine["job.received"]["details"]["due"]) == ("Anna", job["due"])
    for action, reason in (("job.extended", "many requests"), ("job.cancelled", "cancelled by Ben")):
        found = mine[action]
        assert (found["actor"], found["reference"]) == ("Ben", "DSR-1")
        assert (found["details"]["token"], found["details"]["reason"]) == (token, reason)
    assert mine["job.extended"]["details"]["due"] > job["due"]


def test_the_user_of_the_command_line_is_the_actor_unless_another_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LOGNAME", "operator")
    monkeypatch.chdir(tmp_path)
    rows = [f"p{k},{k / 40},{k % 7 / 7},{k / 40}" for k in range(40)]
    Path("spend.csv").write_text("\n".join(["who,age,visits,spend", *rows]))
    place = ["--vault", "spend.vault"]
    model = ["--features", "identity", "--shards", "5", "--rate", "5"]
    for words in (
        ["train", "spend.csv", "--target", "spend", "--id-column", "who", *model, *place],
        ["unlearn", "--id", "p1", *place],
        ["unlearn", "--id", "p2", "--actor", "privacy desk", *place],
        ["unlearn", "--id", "p3", "--reference", "DSR-3", "--in-certificate", *place],
        ["key", "--new", *place],
        ["clone", "staging.vault", "--new-identity", *place],
        ["train", "spend.csv", "--target", "spend", "--id-column", "who", *model, "--skip-erased", "--replace",
         "--accept-worse", "--alpha", "1e6", *place],
        ["token", "new", "--scope", "read", *place],
    ):  # fmt: skip
        assert program.run(words) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert program.run(["audit", "--json", *place]) == 0
    trail = json.loads(capsys.readouterr().out)
    requests = [one for one in trail if one["action"].startswith("vault.")]
    assert [one["actor"] for one in requests] == ["operator", "operator", "privacy desk", "", "operator", "operator"]
    assert [one["actor"] for one in trail if one["action"] == "key.introduced"] == ["operator"] * 2
    assert [one["actor"] for one in trail if one["action"] == "token.created"] == ["operator"]
    clone, train = requests[-2:]
    assert clone["details"]["clone"] == Vault.open("staging.vault").status().vault
    assert train["details"]["accepted"]
    assert train["details"]["compared"]
