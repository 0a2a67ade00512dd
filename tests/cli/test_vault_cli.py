"""The command expunge on a vault: what it prints, where, how it ends; it tells programs and people the same."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from expunge import __version__, errors
from expunge.exact.native import kernel_status
from expunge.vault import Vault
from expunge.vault.certificates.jws import SigningKey

from support.commands import SHAPE, TRAIN, V, customers
from support.vaults import everything, people, put_back, table

ROOT = Path(__file__).parents[2]
# --- every command of the issue, for people and for programs


@pytest.mark.slow
def test_the_commands_of_the_readme_in_their_order_for_people(here, ok):
    out = ok("train", "customers.parquet", *V, *TRAIN)
    assert re.fullmatch(r"learned 30 rows of 20 people; 2 learners, in [\d.,]+ ms\nrequest 1, certificate: .+\n", out)
    assert out.endswith("certificate: spend.certificates/000001.jws\n")
    assert ok("predict", "new.csv", *V, "--out", "predictions.csv") == "2 predictions in predictions.csv\n"
    out = ok("unlearn", *V, "--id", "person-2", "--id", "person-3")
    complete = "complete: no setting in use was chosen with the help of rows of these people\n"
    first, second, third = out.splitlines(keepends=True)
    assert re.match(r"erased 3 rows of 2 people; 2 learners retrained, in [\d.,]+ ms\n", first)
    assert (second, third[:24]) == (complete, "request 2, certificate: ")
    assert ok("unlearn", *V, "--id", "person-2") == (
        f"already erased by request 2\n{complete}request 2, certificate: spend.certificates/000002.jws\n"
    )
    out = ok("unlearn", *V, "--id", "person-2", "--id", "person-4")
    assert "erased 2 rows of 1 person" in out
    assert "1 person was erased earlier by request 2\n" in out
    assert ok("rectify", "corrected.csv", *V).startswith("corrected 1 row of 1 person; 2 learners retrained, in ")
    assert ok("add", "more.parquet", *V).startswith("added 2 rows of 2 people; ")
    assert ok("readmit", *V, "--id", "person-2").startswith("1 person may be added again, in ")
    status = ok("status", *V)
    for line in (
        r"rows +27",
        r"people +19",
        r"erased ids +2",
        r"requests +6",
        r"uncertified +0",
        r"targets +spend",
        r"inputs +age, visits",
        r"shards +4",
        r"rate +2",
        r"alpha +0\.001",
        r"features +RandomFourier\(n_features=5, kernel='gaussian'\)",
        r"scales +2 linear",
        r"outside +clamp",
        r"observed bounds +yes",
    ):
        assert re.search(rf"^{line}$", status, re.MULTILINE), line
    log = ok("log", *V)
    assert [re.findall(r"\w+", line)[0] for line in log.splitlines() if "certified" in line] == list("123456")
    assert "000006.jws" in log
    assert log.endswith("certificates: spend.certificates\n")
    verified = ok("verify", *V)
    assert [line.split()[:2] for line in verified.splitlines()] == [
        ["ok", name] for name in ("ledger", "certificates", "rows", "people", "model")
    ]
    shown = ok("certificate", "show", "spend.certificates/000002.jws")
    assert re.search(r"^rows +3$", shown, re.MULTILINE)
    assert shown.endswith("the signature was not checked; run expunge certificate check\n")
    checked = ok("certificate", "check", "spend.certificates/000002.jws", "--public-key", "spend.pub")
    assert checked.endswith("the signature is valid for spend.pub\n")
    assert ok("certificate", "check", "spend.certificates/000002.jws") == checked
    assert re.fullmatch(r"signs now    [\w-]{43}\npublic keys  spend.pub\n", ok("key", *V))


def test_the_same_commands_for_programs(here, ok):
    def said(*args):
        return json.loads(ok(*args, "--json"))

    keys = {
        "request",
        "kind",
        "rows",
        "people",
        "learners",
        "seconds",
        "certificate",
        "path",
        "earlier",
        "clipped",
        "notes",
    }
    keys |= {"skipped", "known", "erased_earlier", "open"}
    trained = said("train", "customers.parquet", *V, *TRAIN)
    assert trained.keys() == keys
    assert (trained["request"], trained["kind"], trained["rows"], trained["people"]) == (1, "train", 30, 20)
    assert said("predict", "new.csv", *V, "--out", "p.csv") == {"rows": 2, "out": "p.csv", "outside": 0}
    predicted = said("predict", "new.csv", *V)
    assert predicted.keys() == {"ids", "predictions", "outside"}
    assert predicted["ids"] == ["person-3", "nobody"]
    np.testing.assert_array_equal(predicted["predictions"], Vault.open("spend.vault").predict("new.csv"))
    erased = said("unlearn", *V, "--id", "person-2", "--id", "person-3")
    assert (erased["request"], erased["rows"], erased["people"], erased["earlier"]) == (2, 3, 2, [])
    again = said("unlearn", *V, "--id", "person-2")
    assert (again["request"], again["certificate"], again["earlier"]) == (2, erased["certificate"], [2])
    assert said("rectify", "corrected.csv", *V).keys() == keys | {"complete"}
    assert said("add", "more.parquet", *V)["rows"] == 2
    assert said("readmit", *V, "--id", "person-2")["people"] == 1
    status = said("status", *V)
    assert (status["rows"], status["erased_ids"], status["requests"], status["inputs"]) == (29, 1, 5, ["age", "visits"])
    log = said("log", *V)
    assert [(r["number"], r["kind"], r["state"]) for r in log] == [
        (k, kind, "certified") for k, kind in enumerate(["train", "unlearn", "rectify", "add", "readmit"], 1)
    ]
    assert log[1]["certificate"] == erased["certificate"] == Path(erased["path"]).read_text().strip()
    verified = said("verify", *V)
    assert verified["ok"]
    assert [check["name"] for check in verified["checks"]] == ["ledger", "certificates", "rows", "people", "model"]
    payload = said("certificate", "show", erased["path"])
    assert payload == said("certificate", "check", erased["path"], "--public-key", "spend.pub")
    assert (payload["request"], payload["rows"]) == (2, 3)
    assert said("key", *V) == {
        "keys": Vault.open("spend.vault").public_keys(),
        "file": "spend.pub",
        "changes": [],
    }
    assert "schema" in said("schema", "customers.parquet", "--target", "spend")


@pytest.mark.slow
def test_no_command_prints_a_digest(spend, ok):
    digests, printed = [Vault.open(spend).digest()], []
    for as_json in ((), ("--json",)):
        for args in (
            ("unlearn", *V, "--id", f"person-{len(as_json)}"),
            ("unlearn", *V, "--id", f"person-{len(as_json)}"),
            ("rectify", "corrected.csv", *V),
            ("status", *V),
            ("log", *V),
            ("verify", *V),
            ("key", *V),
            ("predict", "new.csv", *V),
            ("certificate", "show", "spend.certificates/000002.jws"),
            ("certificate", "check", "spend.certificates/000002.jws"),
        ):
            printed.append(ok(*args, *as_json))
            digests.append(Vault.open(spend).digest())
    assert len(set(digests)) == 4
    assert not [digest for digest in digests for out in printed if digest in out]
    assert len(ok("key", *V)) < 90


# --- options


def test_ids_come_from_options_from_a_file_and_from_standard_input(spend, ok, run):
    Path("ids.txt").write_text("person-1\n\nperson-2\r\nperson-2\n", encoding="utf-8")
    assert json.loads(ok("unlearn", *V, "--ids-from", "ids.txt", "--id", "person-3", "--json"))["people"] == 3
    assert json.loads(ok("unlearn", *V, "--ids-from", "-", "--json", stdin="person-4\nperson-5"))["people"] == 2
    assert json.loads(ok("readmit", *V, "--ids-from", "-", "--json", stdin="person-4\n"))["people"] == 1
    before = everything(spend)
    for args, stdin in ((("--ids-from", "-"), "\n\n"), ((), ""), (("--id", ""), "")):
        code, out, err = run("unlearn", *V, *args, stdin=stdin)
        assert (code, out) == (3, "")
        assert err.startswith("error: ")
    code, _, err = run("unlearn", *V, "--ids-from", "no.txt")
    assert code == 1
    assert "no.txt" in err
    assert everything(spend) == before


def test_predictions_go_to_csv_to_parquet_and_to_standard_output(spend, ok):
    expected = Vault.open(spend).predict("new.csv")
    ok("predict", "new.csv", *V, "--out", "p.csv")
    ok("predict", "new.csv", *V, "--out", "p.parquet")
    out = ok("predict", "new.csv", *V)
    assert out == Path("p.csv").read_text()
    for found in (pyarrow.csv.read_csv("p.csv"), pyarrow.parquet.read_table("p.parquet")):
        assert found["customer_id"].to_pylist() == ["person-3", "nobody"]
        np.testing.assert_array_equal(found["predicted_spend"], expected)


def test_a_file_with_erased_people_is_refused_or_skipped(spend, ok, run):
    ok("unlearn", *V, "--id", "person-3")
    pyarrow.csv.write_csv(customers(["person-3", "new-9"], 5), "again.csv")
    before = everything(spend)
    code, out, err = run("add", "again.csv", *V)
    assert (code, out) == (10, "")
    assert re.match(r"error: 1 .*erased before.*nothing was changed", err)
    code, out, err = run("train", "customers.parquet", *V, *TRAIN, "--replace")
    assert (code, out) == (10, "")
    assert everything(spend) == before
    added = json.loads(ok("add", "again.csv", *V, "--skip-erased", "--json"))
    assert (added["rows"], added["skipped"]) == (1, 1)
    assert "\n1 erased id was skipped\n" in ok("add", "again.csv", *V, "--skip-erased")
    out = ok("train", "customers.parquet", *V, *TRAIN, "--replace", "--skip-erased", "--accept-worse")
    assert out.startswith("learned 29 rows of 19 people")
    assert "\n1 erased id was skipped\n" in out
    ok("readmit", *V, "--id", "person-3")
    assert json.loads(ok("add", "again.csv", *V, "--json"))["rows"] == 2


def test_a_schema_is_proposed_edited_and_used(here, ok, run):
    asked = ("schema", "customers.parquet", "--target", "spend", "--id-column", "customer_id", "--people", "5")
    text = ok(*asked)
    assert json.loads(ok(*asked, "--json"))["schema"] == text
    Path("schema.toml").write_text(text.replace("clip = true\n", ""))
    out = ok("train", "customers.parquet", *V, *TRAIN, "--schema", "schema.toml")
    assert out.startswith("learned 30 rows of 20 people")
    assert not json.loads(ok("status", *V, "--json"))["observed_bounds"]
    code, _, err = run("train", "customers.parquet", "--vault", "w.vault", "--schema", "schema.toml", "--target", "age")
    assert code == 2
    assert "the schema names another" in err
    pyarrow.csv.write_csv(
        table(["new-1"], [[9e9, 0.0]], [0.0]).rename_columns(["customer_id", "age", "visits", "spend"]), "far.csv"
    )
    before = everything(here / "spend.vault")
    code, out, err = run("add", "far.csv", *V)
    assert (code, out) == (3, "")
    assert "outside the declared bounds: 1 in column 'age'" in err
    assert "9000000000" not in err
    assert everything(here / "spend.vault") == before
    assert ok("add", "far.csv", *V, "--clip").startswith("added 1 row of 1 person; ")
    again = ("--schema", "schema.toml", "--clip", "--replace", "--accept-worse")
    assert ok("train", "customers.parquet", *V, *TRAIN, *again)
    assert ok("add", "far.csv", *V)


def test_a_schema_is_used_as_it_is_proposed_whatever_the_table(here, ok, run, rng):
    n = 400
    ages = rng.normal(40, 10, n).round().astype(str)
    ages[:9] = ["?", "n/a", "-", "unknown", " ", "", "forty", "?", "NA"]
    columns = {
        "customer_id": [f"person-{k}" for k in range(n)],
        "age": ages,
        "income": np.exp(rng.normal(10, 1, n)).round(2),
        "delay": np.append(rng.normal(0, 5, n - 1), 1e9),
        "joined": ["9999-12-31", *[f"20{k % 20 + 10}-0{k % 9 + 1}-01" for k in range(n - 1)]],
        "city": ["Ulm", "Bonn"] * (n // 2),
        "remark": [f"called on day {k}" for k in range(n)],
        "spend": rng.normal(100, 10, n),
    }
    columns["spend"][7] = -1e9
    pyarrow.csv.write_csv(pa.table(columns), "odd.csv")
    code, text, err = run("schema", "odd.csv", "--target", "spend", "--id-column", "customer_id")
    assert code == 0
    for name in ("delay", "joined", "spend"):
        assert f"note: column '{name}': 1 person has values outside the proposed bounds; training counts" in err
    assert "'remark' is left out (kind = \"ignore\"): it has no value shared by at least 10 people (or rows)\n" in err
    assert "note: column 'age': 8 cells are not numbers: they count as empty\n" in err
    assert "called on" not in text + err
    Path("odd.toml").write_text(text)
    out = ok("train", "odd.csv", *V, "--schema", "odd.toml", *SHAPE)
    assert "values were outside the bounds and clipped" in out
    found = json.loads(ok("status", *V, "--json"))
    assert found["rows"] == n
    assert found["columns"] == ["age", "income", "delay", "joined", "city"]
    assert len(json.loads(ok("predict", "odd.csv", *V, "--json"))["predictions"]) == n
    assert ok("verify", *V)


def test_the_seed_decides_the_model(here, ok):
    for name in ("a", "b"):
        ok("train", "customers.parquet", "--vault", f"{name}.vault", *TRAIN)
    ok("train", "customers.parquet", "--vault", "c.vault", *TRAIN[:-1], "1")
    digests = [Vault.open(f"{name}.vault").digest() for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


def test_the_key_may_lie_elsewhere(here, ok, monkeypatch):
    Path("own.pem").write_bytes(SigningKey.generate().pem())
    ok("train", "customers.parquet", *V, *TRAIN, "--key", "own.pem")
    assert not Path("spend.key").exists()
    assert json.loads(ok("unlearn", *V, "--id", "person-1", "--key", "own.pem", "--json"))["certificate"]
    monkeypatch.setenv("EXPUNGE_KEY", "own.pem")
    assert json.loads(ok("unlearn", *V, "--id", "person-2", "--json"))["certificate"]
    ok("certificate", "check", "spend.certificates/000003.jws")


def test_a_lost_key_is_told_and_renewed(spend, ok, run):
    Path("spend.key").unlink()
    code, out, err = run("unlearn", *V, "--id", "person-1")
    assert code == 0
    assert out.endswith("request 2, certificate: not yet\n")
    assert err.startswith("note: done, not certified: spend.key is missing: ")
    assert re.search(r"\bdone\b", ok("log", *V))
    old = json.loads(ok("key", *V, "--json"))["keys"]
    assert ok("key", *V, "--new").splitlines()[1] == f"signed before  {old[0]}"
    assert json.loads(ok("key", *V, "--json"))["keys"][1:] == old
    assert [r["state"] for r in json.loads(ok("log", *V, "--json"))] == ["certified"] * 2
    ok("certificate", "check", "spend.certificates/000001.jws")
    ok("certificate", "check", "spend.certificates/000002.jws")


def test_an_old_copy_is_told(spend, ok, run, here):
    shutil.copytree(spend, here / "copy")
    ok("add", "more.parquet", *V)
    ok("unlearn", *V, "--id", "person-1")
    put_back(here / "copy", spend)
    code, out, err = run("status", *V, "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 29
    assert re.fullmatch(r"note: this folder is a copy from request 1\. 1 row.* 2 rows .*add them again\n", err)
    assert ok("verify", *V)


# --- what goes wrong

CODES = {
    kind.__name__: kind.exit_code
    for kind in vars(errors).values()
    if isinstance(kind, type) and hasattr(kind, "exit_code")
}


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("train", "customers.parquet", *V, *TRAIN), 2),
        (("train", "customers.parquet", "--vault", "no-ending", *TRAIN), 2),
        (("train", "customers.parquet", "--vault", "w.vault", *TRAIN[2:]), 2),
        (("train", "customers.parquet", "--vault", "w.vault", *TRAIN, "--features", "cubes:3"), 2),
        (("train", "customers.parquet", "--vault", "w.vault", *TRAIN, "--features", "fourier:0"), 2),
        (("train", "customers.parquet", "--vault", "w.vault", *TRAIN, "--shards", "7"), 2),
        (("train", "customers.parquet", "--vault", "w.vault", *TRAIN, "--schema", "no.toml"), 2),
        (("train", "customers.parquet", "--vault", "w.vault", "--target", "no", "--id-column", "customer_id"), 3),
        (("train", "no.parquet", "--vault", "w.vault", *TRAIN), 3),
        (("train", "more.parquet", "--vault", "w.vault", *TRAIN), 3),
        (("train", "empty.csv", "--vault", "w.vault", *TRAIN), 3),
        (("train", "torn.parquet", "--vault", "w.vault", *TRAIN), 7),
        (("train", "customers.parquet", "--vault", "w.vault", *TRAIN, "--key", "spend.pub"), 7),
        (("train", "customers.parquet", "--vault", "w.vault", *TRAIN, "--key", "no.pem"), 1),
        (("add", "no.csv", *V), 3),
        (("add", "empty.csv", *V), 3),
        (("add", "new.csv", *V), 3),
        (("rectify", "more.parquet", *V), 4),
        (("unlearn", *V, "--id", "secret-person-77"), 4),
        (("readmit", *V, "--id", "person-1"), 4),
        (("predict", "corrected.csv", *V, "--out", "p.json"), 2),
        (("predict", "ids.csv", *V), 3),
        (("status", "--vault", "none.vault"), 8),
        (("status", "--vault", "damaged.vault"), 7),
        (("certificate", "check", "spend.certificates/000001.jws", "--public-key", "other.pub"), 13),
        (("certificate", "check", "torn.jws", "--public-key", "spend.pub"), 13),
        (("certificate", "check", "torn.jws"), 2),
        (("certificate", "check", "spend.certificates/000001.jws", "--public-key", "new.csv"), 7),
        (("certificate", "show", "new.csv"), 13),
        (("certificate", "show", "no.jws"), 1),
    ],
)
def test_an_error_is_one_line_on_standard_error_and_an_exit_code(spend, run, args, code):
    Path("empty.csv").touch()
    Path("torn.parquet").write_bytes(Path("customers.parquet").read_bytes()[:-9])
    Path("ids.csv").write_text("customer_id\n1\n")
    Path("damaged.vault").mkdir()
    Path("damaged.ledger").touch()
    Path("other.pub").write_bytes(SigningKey.generate().public.pem())
    Path("torn.jws").write_text(Path("spend.certificates/000001.jws").read_text()[:-9])
    before = everything(spend)
    found, out, err = run(*args)
    assert (found, out) == (code, ""), err
    assert re.fullmatch(r"error: .+\n", err)
    assert "person-" not in err
    assert everything(spend) == before
    assert not Path("w.vault").exists()
    assert not Path("w.ledger").exists()


def test_a_vault_that_another_process_writes_to_is_busy(spend, run, ok):
    with Vault.open(spend)._writer.lock(0.0):
        code, out, err = run("unlearn", *V, "--id", "person-1", "--wait", "0")
        assert (code, out) == (9, "")
        assert "another process is writing to this vault" in err
        assert ok("predict", "new.csv", *V, "--wait", "0")
    assert ok("unlearn", *V, "--id", "person-1", "--wait", "0")


def test_a_vault_without_rows_says_so(spend, run, ok):
    ok("unlearn", *V, *(word for one in dict.fromkeys(people()) for word in ("--id", one)))
    code, out, err = run("predict", "new.csv", *V)
    assert (code, out) == (5, "")
    assert err.startswith("error: every row was unlearned")


def test_verify_ends_with_its_own_code_and_says_what_does_not_fit(spend, run):
    rows = next(spend.glob("rows.*"))
    data = bytearray(rows.read_bytes())
    data[40] ^= 1
    rows.write_bytes(data)
    code, out, err = run("verify", *V)
    assert code == 11
    assert re.search(r"^WRONG +rows ", out, re.MULTILINE)
    assert err.startswith("error: failed checks: rows")
    code, out, _ = run("verify", *V, "--json")
    assert code == 11
    assert not json.loads(out)["ok"]


def test_every_exit_code_is_another_and_documented():
    own = [code for name, code in CODES.items() if "exit_code" in vars(getattr(errors, name))]  # others inherit theirs
    assert len(set(own)) == len(own)
    documented = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "vault.md").read_text(), re.MULTILINE)
    assert sorted({0, 130, *CODES.values()}) == sorted(map(int, documented))


# --- what first users tripped over


def test_the_version_is_told(run):
    code, out, _ = run("--version")
    assert (code, out) == (0, f"expunge {__version__} (native kernels: {kernel_status()})\n")


def test_a_file_that_is_not_there_is_named_without_a_number_of_the_system(spend, run):
    code, _, err = run("unlearn", *V, "--ids-from", "nowhere.txt")
    assert (code, err) == (1, "error: nowhere.txt: No such file or directory; nothing was changed\n")


def test_predictions_do_not_overwrite_their_own_table(spend, run):
    before = Path("new.csv").read_bytes()
    code, _, err = run("predict", "new.csv", *V, "--out", spend.parent / "new.csv")
    assert code == 2
    assert "the predictions would overwrite their own table" in err
    assert Path("new.csv").read_bytes() == before


def test_predictions_have_the_mode_of_any_new_file(spend, ok):
    ok("predict", "new.csv", *V, "--out", "predicted.csv")
    Path("other").touch()
    assert Path("predicted.csv").stat().st_mode == Path("other").stat().st_mode


@pytest.mark.parametrize(
    ("content", "reason"), [(b"none", "wrong.pem is not a private key"), (None, "wrong.pem is not a key of this vault")]
)
def test_a_key_that_is_no_key_of_the_vault_is_told_by_its_name(spend, run, content, reason):
    Path("wrong.pem").write_bytes(content or SigningKey.generate().pem())
    code, out, err = run("unlearn", *V, "--id", "person-1", "--key", "wrong.pem")
    assert code == 0
    assert out.endswith("certificate: not yet\n")
    assert f"note: done, not certified: {reason}" in err


def test_an_id_completes_a_schema_that_names_none(here, ok, run):
    Path("schema.toml").write_text(ok("schema", "customers.parquet", "--target", "spend", "--people", "1"))
    code, _, err = run("train", "customers.parquet", *V, "--schema", "schema.toml")
    assert (code, "declares no column of ids" in err) == (2, True)
    shape = ("--shards", "4", "--rate", "2", "--features", "identity")
    ok("train", "customers.parquet", *V, "--schema", "schema.toml", "--id-column", "customer_id", *shape)
    assert json.loads(ok("status", *V, "--json"))["inputs"] == ["age", "visits"]
    other = ("--replace", "--schema", "schema.toml", "--id-column", "customer_id")
    code, _, err = run("train", "customers.parquet", *V, *other, "--target", "age")
    assert (code, "another target, spend: leave yours out" in err) == (2, True)


def test_whole_numbers_that_were_written_with_a_point_are_no_ids(here, run):
    rows = "\n".join(f"{k}.0,{k},{k % 3}" for k in range(30))
    Path("floats.csv").write_text(f"customer_id,age,spend\n{rows}\n")
    code, _, err = run("train", "floats.csv", *V, *TRAIN)
    assert code == 3
    assert "column 'customer_id': ids look like floats" in err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("customer_id,age,spend\n", "the table has no rows, or only empty cells"),
        ("customer_id;age;spend\na;1;2\n", "is the table separated by ';'? A CSV file has commas"),
        ("customer_id,age\na,1\n", "no column 'spend'; there are"),
        ("age,visits\n1,2\n", "no columns 'spend', 'customer_id'; the table has 2 columns"),
    ],
)
def test_a_table_that_is_not_what_it_should_be_is_told_why(here, run, content, reason):
    Path("odd.csv").write_text(content)
    code, _, err = run("train", "odd.csv", *V, *TRAIN)
    assert code == 3
    assert reason in err


def test_a_table_of_which_everybody_was_erased_is_told_so(spend, ok, run):
    for k in range(20):
        ok("unlearn", *V, "--id", f"person-{k}")
    code, _, err = run("train", "customers.parquet", *V, *TRAIN, "--replace", "--skip-erased")
    assert (code, "everybody in this table was erased" in err) == (3, True)


def test_ids_in_a_file_may_have_a_mark_at_the_front(spend, ok):
    Path("ids.txt").write_text("\ufeffperson-1\n\nperson-2\n", encoding="utf-8")
    assert ok("unlearn", *V, "--ids-from", "ids.txt").startswith("erased 3 rows of 2 people; ")


@pytest.mark.parametrize(
    "option",
    [
        ("--seed", "-1"),
        ("--shards", "0"),
        ("--shards", "many"),
        ("--features", "fourier:0"),
        ("--wait", "-1"),
        ("--wait", "nan"),
        ("--wait", "long"),
        ("--tolerance", "5"),
        ("--tolerance", "-1%"),
        ("--tolerance", "nan"),
    ],
)
def test_options_out_of_range_are_refused_as_options(here, run, option):
    code, _, err = run("train", "customers.parquet", *V, *TRAIN, *option)
    assert code == 2
    assert err.startswith(f"error: argument {option[0]}: must be ")
    assert not any(word in err for word in ("random_state", "n_features", "Traceback"))


@pytest.mark.parametrize(
    "args",
    [
        ("status", *V, "--vault", "other.vault"),
        ("status", "--vault=other.vault", *V),
        ("unlearn", *V, "--id", "person-1", "--id", "person-2", "--actor", "dpo", "--actor", "somebody"),
        ("train", "customers.parquet", "--vault", "w.vault", *TRAIN, "--seed", "1"),
    ],
)
def test_an_option_that_takes_one_value_is_not_given_twice(spend, run, args):
    before = everything(spend)
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: argument --[a-z]+: given more than once; .+\n", err)
    assert "person-" not in err
    assert "dpo" not in err
    assert everything(spend) == before
    assert not Path("w.vault").exists()


def test_a_model_that_is_worse_is_not_put_in_the_place_of_a_better_one(here, ok, run):
    rng = np.random.default_rng(0)
    who, X = [f"person-{k}" for k in range(60)], rng.uniform(0, 1, (60, 2))
    columns = ["customer_id", "age", "visits", "spend"]
    right = table(who, X, X[:, 0] + 0.1 * rng.uniform(size=60)).rename_columns(columns)
    wrong = table(who, X, rng.uniform(0, 9, 60)).rename_columns(columns)
    pyarrow.parquet.write_table(right, "right.parquet")
    pyarrow.parquet.write_table(wrong, "wrong.parquet")
    pyarrow.parquet.write_table(wrong.slice(0, 10).rename_columns([*columns[:2], "calls", "spend"]), "other.parquet")
    ok("train", "right.parquet", *V, *TRAIN)
    before = everything(Path("spend.vault"))

    code, out, err = run("train", "other.parquet", *V, *TRAIN, "--replace")
    assert (code, out) == (17, "")
    assert err.startswith("error: the schema differs from the vault's: it lacks 'visits'; 'calls' is new; nothing was")
    code, _, err = run("train", "other.parquet", *V, *TRAIN, "--replace", "--new-schema", "--accept-worse")
    assert (code, "less than half of the vault's 60" in err) == (17, True)
    code, out, err = run("train", "wrong.parquet", *V, *TRAIN, "--replace", "--json")
    told = json.loads(err)["error"]
    assert (code, told["type"], told["exit_code"]) == (17, "ReplacementRefused", 17)
    assert re.search(r"RMSE of spend \S+ instead of \S+ \(\+[\d.]+%\); on 60 rows of 60 people", told["message"])
    code, _, err = run("train", "wrong.parquet", *V, *TRAIN, "--replace", "--evaluate-on", "right.parquet")
    assert (code, "nobody is left to learn from" in err) == (3, True)
    assert everything(Path("spend.vault")) == before

    ok("train", "right.parquet", *V, *TRAIN, "--replace", "--tolerance", "0")
    code, _, err = run("train", "wrong.parquet", *V, *TRAIN, "--replace", "--accept-worse")
    assert code == 0
    assert err.startswith("note: this training replaced another model; accepted on request: worse: RMSE of spend ")
    assert re.search(r"^compared +RMSE of spend .+ whom neither had learned$", ok("status", *V), re.MULTILINE)


@pytest.mark.parametrize(
    "option", ["--new-schema", "--fewer-rows", "--accept-worse", "--tolerance=0", "--evaluate-on=x"]
)
def test_what_a_replacement_may_change_goes_with_replace(here, run, option):
    code, _, err = run("train", "customers.parquet", *V, *TRAIN, option)
    assert (code, err) == (2, f"error: {option.partition('=')[0]} needs --replace\n")
    assert not Path("spend.vault").exists()


def test_a_queue_that_cannot_be_opened_does_not_make_an_erasure_look_refused(spend, run):
    queue = spend.with_suffix(".queue")
    queue.mkdir(mode=0o700)
    (queue / "queue.sqlite").write_bytes(b"no database" * 100)
    (queue / "queue.sqlite").chmod(0o600)
    code, out, err = run("unlearn", "--id", "person-3", "--despite-hold", "a court says so", *V)
    assert code == 0
    assert out.startswith("erased 1 row of 1 person")
    assert "their e-mail addresses could not be removed now" in err
