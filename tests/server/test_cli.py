"""The commands of the service: tokens are made, listed and revoked beside the vault, and options are read."""

import json
from argparse import ArgumentTypeError
from datetime import timedelta

import pytest

from expunge.cli import program
from expunge.cli.parser import parser
from expunge.cli.serving import _batch, _duration
from expunge.server.database import Database
from expunge.server.serving import queue_path
from expunge.server.tokens import Tokens


def run(capsys, *words):
    code = program.run([*words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_token_is_made_listed_and_revoked(vault, capsys):
    place = ["--vault", str(vault.places.vault)]
    code, text, told = run(capsys, "token", "new", "--scope", "erase", "--scope", "read", "--name", "ops", *place)
    assert (code, "shown once" in told) == (0, True)
    tokens = Tokens(Database(queue_path(vault.places.vault)))
    found = tokens.check(text.strip())
    assert (found.name, found.scopes) == ("ops", {"erase", "read"})
    assert found.expires - found.made == timedelta(days=365)
    code, listed, _ = run(capsys, "token", "list", *place)
    assert found.id in listed
    assert text.strip() not in listed
    assert text.strip().split("_", 2)[2] not in listed
    code, _, _ = run(capsys, "token", "revoke", found.id, *place)
    assert code == 0
    assert tokens.check(text.strip()) is None


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
    found = parser().parse_args(
        ["serve", "--vault", "a.vault", "--window", "24h", "--batch", "every=1h", "--readers", "3", "--port", "0"]
    )
    assert (found.window, found.batch, found.readers) == (
        timedelta(hours=24), {"batch_every": timedelta(hours=1)}, 3,
    )  # fmt: skip
    assert _batch("size=100") == {"batch_size": 100}
    for text in ("size=0", "size=x", "size=", "each=1h", "every=1y", ""):
        with pytest.raises(ArgumentTypeError):
            _batch(text)
    with pytest.raises(ArgumentTypeError):
        _duration("soon")
