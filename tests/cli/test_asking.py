"""Commands about people and bounds: unknown ids, who is there, names as they are, and options that moved."""

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from expunge.vault import Receipt, Vault

from support.commands import SHAPE, TRAIN, V, customers
from support.vaults import everything, people, random_table

# --- unknown ids


def test_near_misses_are_told_and_counted(spend, ok, run):
    named = ("--id", "person-1", "--id", "PERSON-2", "--id", "'person-3'", "--id", "nobody")
    code, out, err = run("unlearn", *V, *named)
    assert (code, out) == (4, "")
    assert "ids that are not in the vault: 3 of 4, at positions 2, 3, 4; nothing was changed. " in err
    assert "a similar id for 2 of them, at positions 2, 3: check case, quotes, zeros" in err
    assert "erson" not in err
    code, out, _ = run("find", *V, *named)
    assert code == 4
    assert re.search(r"^PERSON-2 +not known here +a similar id is in the vault$", out, re.MULTILINE)
    assert re.search(r"^nobody +not known here$", out, re.MULTILINE)
    found = json.loads(run("find", *V, *named, "--json")[1])
    assert [one["similar"] for one in found] == [False, True, True, False]
    out = ok("unlearn", *V, *named, "--skip-unknown")
    assert "\n3 ids are not known here and were skipped\n2 of them resemble an id in the vault: check case" in out
    out = ok("unlearn", *V, "--id", "person-2", *named, "--skip-unknown")
    assert "\n1 person was erased earlier by request 2\n" in out
    told = json.loads(ok("unlearn", *V, "--id", "person-4", *named, "--skip-unknown", "--json"))
    counts = {name: told[name] for name in ("people", "erased_earlier", "skipped", "similar")}
    assert counts == {"people": 1, "erased_earlier": 1, "skipped": 3, "similar": 1}  # person-2 is not here any more
    attested = ("--attest-unknown", "--receipts", "r")
    out = ok("unlearn", *V, *named[4:], *attested)
    assert out.startswith(
        "nothing was erased\n2 ids are not known here and nothing was erased for them; signed statements in r"
    )
    assert "1 of them resembles an id in the vault" in out
    assert json.loads(ok("unlearn", *V, *named[4:], *attested, "--json"))["similar"] == 1
    assert "1 of them resembles an id in the vault" in ok("unlearn", *V, "--id", "person-5", *named[4:], *attested)


def test_unknown_ids_are_left_out_if_asked(spend, ok, run):
    before = everything(spend)
    named = ("--id", "person-1", "--id", "nobody", "--id", "no one")
    code, out, _ = run("unlearn", *V, *named)
    assert (code, out) == (4, "")
    assert everything(spend) == before
    out = ok("unlearn", *V, *named, "--skip-unknown")
    assert out.startswith("erased 1 row of 1 person; ")
    assert "\n2 ids are not known here and were skipped\n" in out
    named = ("--id", "person-2", "--id", "nobody", "--skip-unknown")
    assert "\n1 id is not known here and was skipped\n" in ok("unlearn", *V, *named)
    assert json.loads(ok("unlearn", *V, *named, "--json"))["skipped"] == 1


def test_ids_that_are_not_erased_are_left_out_of_a_readmission_if_asked(spend, ok, run):
    ok("unlearn", *V, "--id", "person-1")
    named = ("--id", "person-1", "--id", "nobody")
    code, out, _ = run("readmit", *V, *named)
    assert (code, out) == (4, "")
    out = ok("readmit", *V, *named, "--skip-unknown")
    assert out.startswith("1 person may be added again")
    assert "\n1 id that is not erased was skipped\n" in out


def test_find_says_who_is_there_erased_or_unknown_and_ends_accordingly(spend, ok, run):
    assert re.fullmatch(r"person-2 +present +2 rows\nperson-1 +present +1 row\n", ok("find", *V, *two("2", "1")))
    ok("unlearn", *V, "--id", "person-1")
    Path("ids.txt").write_text("person-1\nnobody\n")
    before = everything(spend)
    code, out, err = run("find", *V, "--id", "person-2", "--ids-from", "ids.txt")
    assert (code, err) == (4, "")
    assert re.fullmatch(r"person-2 +present +2 rows\nperson-1 +erased +by request 2\nnobody +not known here\n", out)
    code, out, err = run("find", *V, "--id", "person-2", "--ids-from", "ids.txt", "--json")
    assert (code, err) == (4, "")
    assert json.loads(out) == [
        {"id": "person-2", "state": "present", "rows": 2, "request": None, "similar": False},
        {"id": "person-1", "state": "erased", "rows": 0, "request": 2, "similar": False},
        {"id": "nobody", "state": "unknown", "rows": 0, "request": None, "similar": False},
    ]
    assert everything(spend) == before
    assert run("find", *V)[0] == 3


def two(*numbers):
    return [word for number in numbers for word in ("--id", f"person-{number}")]


def test_an_id_that_is_named_twice_is_one_id(spend, ok):
    assert ok("find", *V, *two("1", "1")).count("\n") == 1
    assert ok("unlearn", *V, *two("1", "1")).startswith("erased 1 row of 1 person; ")


def test_an_id_may_begin_with_a_dash(spend, ok, run):
    pyarrow.csv.write_csv(customers(["-x", "-7", "-1e5", "-7y"], 3), "dashes.csv")
    ok("add", "dashes.csv", *V)
    assert ok("find", *V, "--id", "-x", "--id", "-7", "--id", "-1e5", "--id=-7y").count("present") == 4
    for words in (("--id", "--json"), ("--id", "-h"), ("--id",), ("--id", "--nonsense")):
        code, out, err = run("unlearn", *V, *words)
        assert (code, out) == (2, "")
        assert "argument --id: expected one argument" in err


BLANKS = ["", " ", "\t", "\v", "\f", "\x1c", "\x1e", "\x85", "\xa0", "\u2028", "\u2029", "\u3000"]
ENDS = [("", "\n\n"), ("\r\n", "\r\n"), ("\r", "\r"), ("", "")]


@pytest.mark.parametrize("blank", BLANKS)
def test_blanks_around_ids_do_not_count_in_files_nor_in_options(spend, ok, run, blank):
    for k, (before, after) in enumerate(ENDS):
        lines = f"\ufeff{before}{blank}person-1{after}{after}person-2{blank}{after}"
        if not after:
            lines = f"{blank}person-1\nperson-2{blank}"
        assert ok("find", *V, "--ids-from", "-", stdin=lines).count("present") == 2, k
    assert ok("find", *V, "--id", f"{blank}person-1{blank}").count("present") == 1
    code, out, _ = run("find", *V, "--ids-from", "-", stdin=f"person-1{blank}-person-2\n")
    assert (code, out.count("\n"), out.count("not known here")) == (4, 1, 1)  # within an id they count


def test_an_id_with_blanks_is_found_by_what_was_written(spend, run, ok):
    pyarrow.csv.write_csv(customers(["4711 ", "12\u20287"], 3), "more.csv")
    ok("add", "more.csv", *V)
    for words in (["--id", "4711 "], ["--id", "4711"], ["--id", " 12\u20287"]):
        assert ok("find", *V, *words).count("present") == 1
    code, out, _ = run("unlearn", *V, "--ids-from", "-", "--json", stdin="\ufeff4711 \n12\u20287\r\n\n")
    assert (code, json.loads(out)["people"]) == (0, 2)


JSON = ['{"ids": ["person-1"]}', '["person-1"]', "[1, 2]", '{\n  "ids": [1]\n}', '{"id": 1}\n{"id": 2}\n', '{"ids": [']


@pytest.mark.parametrize("text", JSON)
def test_a_file_of_ids_that_is_json_is_refused(spend, run, text):
    before = everything(spend)
    Path("ids.txt").write_text(text)
    for words in (("unlearn",), ("unlearn", "--skip-unknown"), ("find",)):
        code, out, err = run(*words, *V, "--ids-from", "ids.txt")
        assert (code, out) == (3, "")
        assert err == "error: ids.txt: expected plain ids, one per line, but this is a JSON document\n"
    assert everything(spend) == before


def test_ids_of_another_form_than_the_schema_declares_are_refused(here, run, ok):
    pyarrow.csv.write_csv(customers(range(20)), "numbered.csv")
    text = ok("schema", "numbered.csv", "--target", "spend", "--id-column", "customer_id", "--people", "5")
    assert 'id_format = "integer"' in text
    Path("schema.toml").write_text(text)
    ok("train", "numbered.csv", "--schema", "schema.toml", "--vault", "spend.vault", *SHAPE)
    before = everything(here / "spend.vault")
    ids = ["--id", "4", "--id", "secret-7", "--id", "05"]
    for words in (["unlearn"], ["unlearn", "--skip-unknown"], ["find"], ["readmit"], ["receipts", "--receipts", "r"]):
        code, out, err = run(*words, *V, *ids)
        assert (code, out) == (3, ""), words
        assert "ids that are not whole numbers like 4711: 2 of 3, at positions 2, 3; correct them" in err
        assert "secret" not in err
    pyarrow.csv.write_csv(customers(["19", "secret-7"]), "more.csv")
    code, _, err = run("add", "more.csv", *V)
    assert code == 3
    assert "1 in column 'customer_id' (of 2 rows, first row 2" in err
    assert everything(here / "spend.vault") == before
    assert "erased 1 row of 1 person" in ok("unlearn", *V, "--id", " 4")


@pytest.mark.parametrize("words", [["secret-7"], ["--ids", "secret-7"], ["--idd=secret-7"], ["-7", "--json"]])
def test_a_word_that_nobody_knows_is_not_repeated_because_it_may_be_an_id(spend, run, words):
    code, _, err = run("find", *V, "--id", "person-1", *words)
    assert code == 2
    assert "unrecognized arguments: " in err
    assert "-7" not in err


@pytest.mark.parametrize("words", [["add"], ["rectify"], ["predict"]])
def test_a_pipe_is_no_table(spend, run, words):
    os.mkfifo("pipe.csv")
    code, _, err = run(*words, "pipe.csv", *V)
    assert code == 3
    assert "pipe.csv is not a regular file" in err


def test_a_file_of_ids_that_is_no_text_is_refused_without_its_contents(spend, run):
    Path("ids.txt").write_bytes(b"person-1\n\xff\xfe")
    code, out, err = run("unlearn", *V, "--ids-from", "ids.txt")
    assert (code, out, err) == (3, "", "error: ids.txt: not UTF-8; write one id per line, in UTF-8\n")


def test_ids_that_look_like_formulas_get_a_quote_if_asked(spend, ok):
    pyarrow.csv.write_csv(customers(["=1+1", "x"], 3), "odd.csv")
    assert '"=1+1",' in ok("predict", "odd.csv", *V)
    assert '"\'=1+1",' in ok("predict", "odd.csv", *V, "--guard-formulas")
    ok("predict", "odd.csv", *V, "--guard-formulas", "--out", "p.csv")
    assert '"\'=1+1",' in Path("p.csv").read_text()


def test_ids_may_be_the_same_in_any_case(here, ok, run):
    ok("train", "customers.parquet", "--vault", "spend.vault", *TRAIN, "--fold-case")
    assert ok("find", *V, "--id", "PERSON-3", "--id", "Person-4").count("present") == 2
    ok("unlearn", *V, "--ids-from", "-", stdin="PERSON-3\nPerson-4\n")
    code, _, err = run("train", "customers.parquet", *V, *TRAIN, "--replace")
    assert (code, "--fold-case" in err) == (2, True)


# --- bounds


def test_rebound_passes_bounds_on_as_they_were_typed(spend, ok, run, monkeypatch):
    asked = []

    def rebound(self, bounds, *, progress, **said):
        asked.append(dict(bounds))
        progress("training", 30, 30)
        return Receipt(2, "rebound", 0, 0, 2, 0.01, None, None)

    monkeypatch.setattr(Vault, "rebound", rebound, raising=False)
    out = ok("rebound", *V, "--bounds", "age", "-1e5", "120", "--observe", "visits")
    assert out == "2 columns have new bounds; 2 learners retrained, in 10.0 ms\nrequest 2, certificate: not yet\n"
    out = ok("rebound", *V, "--bounds", "joined", "-.5", "2024-12-31", "--json")
    assert json.loads(out)["kind"] == "rebound"
    assert asked == [{"age": ("-1e5", "120"), "visits": None}, {"joined": ("-.5", "2024-12-31")}]
    for words in ((), ("--bounds", "age", "0", "1", "--observe", "age"), ("--bounds", "age", "0")):
        code, out, err = run("rebound", *V, *words)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
    assert len(asked) == 2


@pytest.mark.parametrize("low", ["-inf", "-Infinity", "-nan", "-1e400"])
def test_bounds_that_are_not_finite_are_refused_by_their_column(spend, run, low):
    code, out, err = run("rebound", *V, "--bounds", "age", low, "4")
    assert (code, out) == (2, "")
    assert "column 'age'" in err
    assert "finite" in err


def test_bounds_are_declared_and_observed_again(spend, ok):
    assert json.loads(ok("status", *V, "--json"))["observed_bounds"]
    bounds = [word for column in ("age", "visits", "spend") for word in ("--bounds", column, "-1", "1.5")]
    assert ok("rebound", *V, *bounds).startswith("3 columns have new bounds; ")
    assert not json.loads(ok("status", *V, "--json"))["observed_bounds"]
    assert ok("rebound", *V, "--observe", "age").startswith("1 column has new bounds; ")
    assert json.loads(ok("status", *V, "--json"))["observed_bounds"]
    assert [r["kind"] for r in json.loads(ok("log", *V, "--json"))] == ["train", "rebound", "rebound"]
    assert ok("verify", *V)


# --- what is told


def test_add_tells_how_many_people_were_there_already(spend, ok):
    pyarrow.csv.write_csv(customers(["person-3", "new-8", "person-4", "person-4"], 5), "mixed.csv")
    out = ok("add", "mixed.csv", *V)
    assert out.startswith("added 4 rows of 3 people; ")
    assert "\n2 of these people were already in the vault\n" in out
    assert json.loads(ok("add", "mixed.csv", *V, "--json"))["known"] == 3
    assert "already" not in ok("add", "more.parquet", *V)


def test_status_counts_the_values_of_a_category_and_tells_programs_all_inputs(here, ok):
    table = customers(people()).append_column("city", pa.array(["Berlin", "Paris", "Ulm"] * 10))
    pyarrow.parquet.write_table(table, "cities.parquet")
    Path("schema.toml").write_text(
        'id = "customer_id"\ntarget = "spend"\n[columns]\nspend = {kind = "number"}\nage = {kind = "number"}\n'
        'city = {kind = "category", values = ["Berlin", "Paris"], fill = "other"}\nvisits = {kind = "ignore"}\n'
    )
    ok("train", "cities.parquet", *V, "--schema", "schema.toml", *SHAPE)
    status = ok("status", *V)
    assert re.search(r"^inputs +age, city \(2 values\)$", status, re.MULTILINE)
    assert re.search(r"^scales +3 linear$", status, re.MULTILINE)
    assert "Berlin" not in status
    assert json.loads(ok("status", *V, "--json"))["inputs"] == ["age", "city=Berlin", "city=Paris"]


def test_predictions_of_a_table_without_ids_have_none(spend, ok):
    pyarrow.csv.write_csv(customers(["a", "b"], 4).drop(["customer_id"]), "anybody.csv")
    found = json.loads(ok("predict", "anybody.csv", *V, "--json"))
    assert found == {"ids": None, "predictions": Vault.open(spend).predict("anybody.csv").tolist(), "outside": 0}


def test_predictions_of_two_targets_are_pairs(here, ok):
    ok("train", "customers.parquet", *V, *TRAIN, "--target", "visits")
    found = json.loads(ok("predict", "new.csv", *V, "--json"))
    assert found["ids"] == ["person-3", "nobody"]
    assert found["predictions"] == Vault.open("spend.vault").predict("new.csv").tolist()


def test_one_thing_is_counted_as_one(spend, run, ok):
    ok("unlearn", *V, "--id", "person-3")
    pyarrow.csv.write_csv(customers(["person-3"], 5), "again.csv")
    pyarrow.csv.write_csv(customers(["person-2"], 5), "other.csv")
    said = [
        run(*words)
        for words in (
            ("unlearn", *V, "--id", "nobody"),
            ("readmit", *V, "--id", "person-1"),
            ("add", "again.csv", *V),
            ("rectify", "again.csv", *V),
            ("rectify", "other.csv", *V),
            ("unlearn", *V, "--id", "person-5"),
            ("unlearn", *V, "--id", "person-6", "--id", "nobody", "--skip-unknown"),
            ("readmit", *V, "--id", "person-5", "--id", "nobody", "--skip-unknown"),
        )
    ]
    assert [code for code, _, _ in said] == [4, 4, 10, 10, 3, 0, 0, 0]
    for _, out, err in said:
        assert not re.search(r"(?<!of )\b1 (ids|rows|people|learners|requests|columns)\b", out + err)


# --- names are shown as they are

NAMES = ["age [years]", "a[/b]", "red \x1b[31m", "two\nlines", "größe", "right\u202eleft"]
SHOWN = ["age [years]", "a[/b]", r"red \x1b[31m", r"two\nlines", "größe", r"right\u202eleft"]


@pytest.fixture
def named(here, ok):
    """A vault whose columns and target have odd names."""
    table = random_table(people(), columns=len(NAMES)).rename_columns(["who", *NAMES, "[bold]y\x07"])
    pyarrow.parquet.write_table(table, "odd.parquet")
    ok("train", "odd.parquet", *V, "--target", "[bold]y\x07", "--id-column", "who", *SHAPE)
    return table


def test_names_of_columns_are_shown_as_they_are_and_control_characters_escaped(named, ok):
    status = ok("status", *V)
    assert re.search(rf"^inputs +{re.escape(', '.join(SHOWN))}$", status, re.MULTILINE)
    assert re.search(r"^targets +\[bold\]y\\x07$", status, re.MULTILINE)
    assert json.loads(ok("status", *V, "--json"))["inputs"] == NAMES


def test_errors_and_notes_hold_no_control_characters(named, run):
    for name in NAMES[:4]:
        pyarrow.parquet.write_table(named.drop([name]), "less.parquet")
        code, out, err = run("predict", "less.parquet", *V)
        assert (code, out) == (3, "")
        assert err[:-1].isprintable()
    code, _, err = run("predict", "no\x1b[2J\nsuch.csv", *V)
    assert code == 3
    assert err[:-1].isprintable()


def test_names_of_files_are_shown_escaped(spend, ok):
    assert ok("predict", "new.csv", *V, "--out", "[b]\x1b[31m.csv") == "2 predictions in [b]\\x1b[31m.csv\n"


# --- options that moved


@pytest.mark.parametrize("words", [("train", "customers.parquet", *V, *SHAPE), ("schema", "customers.parquet")])
def test_the_old_name_of_the_column_of_ids_is_taken_with_a_note(here, run, words):
    code, out, err = run(*words, "--target", "spend", "--id", "customer_id")
    assert code == 0
    assert err.startswith("note: --id is deprecated here and will be removed in the next release; use --id-column\n")
    assert out.startswith("learned 30 rows of 20 people" if words[0] == "train" else "# A proposal")


def test_the_column_of_ids_has_one_name(here, run):
    words = ("schema", "customers.parquet", "--target", "spend", "--id", "age", "--id-column", "customer_id")
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "give only one of them" in err
