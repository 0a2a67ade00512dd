"""The commands of the service: tokens are made, listed and revoked beside the vault, and options are read."""

import json
import sqlite3
from argparse import ArgumentTypeError
from datetime import timedelta

import pytest

from expunge.cli import program
from expunge.cli.program import build_parser
from expunge.cli.service import _parse_batch, _parse_duration
from expunge.server.database import Database, queue_path
from expunge.server.tokens import Tokens


def run(capsys, *words):
    code = program.run([*words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_token_is_made_listed_and_revoked(vault, capsys):
    place = ["--vault", str(vault.places.vault)]
    code, text, told = run(capsys, "token", "new", "--scope", "erase", "--scope", "read", "--name", "ops", *place)
    assert (code, "only once" in told) == (0, True)
    tokens = Tokens(Database(queue_path(vault.places.vault)))
    found = tokens.authenticate(text.strip())
    assert (found.name, found.scopes) == ("ops", {"erase", "read"})
    assert found.expires - found.made == timedelta(days=365)
    code, listed, _ = run(capsys, "token", "list", *place)
    assert found.id in listed
    assert text.strip() not in listed
    assert text.strip().split("_", 2)[2] not in listed
    code, _, _ = run(capsys, "token", "revoke", found.id, *place)
    assert code == 0
    assert tokens.authenticate(text.strip()) is None


def test_the_same_as_json(vault, capsys):
    place = ["--json", "--vault", str(vault.places.vault)]
    _, made, _ = run(capsys, "token", "new", "--scope", "predict", "--days", "2", *place)
    _, listed, _ = run(capsys, "token", "list", *place)
    _, revoked, _ = run(capsys, "token", "revoke", json.loads(made)["id"], *place)
    assert [one["scopes"] for one in json.loads(listed)] == [["predict"]]
    assert "token" not in json.loads(listed)[0]
    assert json.loads(revoked)["revoked"] is not None


def test_a_token_that_is_not_there_cannot_be_revoked(vault, capsys):
    code, _, told = run(capsys, "token", "revoke", "none", "--vault", str(vault.places.vault))
    assert code == 4
    assert "no token" in told


def test_options_of_the_service_are_read():
    options = "--vault a.vault --window 24h --batch every=1h --predict-workers 3 --port 0"
    found = build_parser().parse_args(["serve", *options.split()])
    assert (found.window, found.batch, found.predict_workers) == (
        timedelta(hours=24), {"batch_every": timedelta(hours=1)}, 3,
    )  # fmt: skip
    assert _parse_batch("size=100") == {"batch_size": 100}
    for text in ("size=0", "size=x", "size=", "each=1h", "every=1y", ""):
        with pytest.raises(ArgumentTypeError):
            _parse_batch(text)
    with pytest.raises(ArgumentTypeError):
        _parse_duration("soon")


def test_a_token_counts_at_most_for_a_hundred_years(vault, capsys):
    code, _, told = run(
        capsys, "token", "new", "--scope", "read", "--days", "99999999999", "--vault", str(vault.places.vault)
    )
    assert (code, "at most 36,500" in told) == (2, True)


def test_a_queue_that_cannot_be_written_is_told_in_words(vault, capsys, monkeypatch):
    def full(*given):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Tokens, "create", full)
    code, _, told = run(capsys, "token", "new", "--scope", "read", "--vault", str(vault.places.vault))
    assert (code, "disk is full" in told) == (1, True)


def test_an_address_that_leads_elsewhere_now_is_told(vault, capsys, tmp_path):
    for id_, told in (("p1", ""), ("p1", ""), ("p2", "1 address belonged to another id before")):
        (tmp_path / "a.csv").write_text(f"email,id\njane@example.com,{id_}\n")
        code, _, said = run(capsys, "aliases", "add", str(tmp_path / "a.csv"), "--vault", str(vault.places.vault))
        assert (code, told in said, bool(said)) == (0, True, bool(told))
