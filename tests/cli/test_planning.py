"""``expunge plan``, ``expunge train --plan``, and the small plan that train makes."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import pytest

from expunge import CodedRegressor
from expunge.planning.plan_file import PlanFile
from expunge.vault import Vault

from support.commands import TRAIN, V
from support.planning import short_search

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short")]  # each plans, which takes seconds
NAMES = ("--target", "spend", "--id-column", "who")
PLAN = ("plan", "sales.parquet", *NAMES, "--max-features", "16")


@pytest.fixture(scope="module")
def short():
    """Plans in a second or less."""
    with short_search():
        yield


def sales(seed, scale=1.0):
    """Rows of 60 people: two inputs, and a target that is no straight line."""
    rng = np.random.default_rng(seed)
    X = rng.random((240, 2)) * scale
    whose = [f"p{k % 60}" for k in range(240)]
    return pa.table({"who": whose, "age": X[:, 0], "visits": X[:, 1], "spend": np.sin(6 * X[:, 0]) + X[:, 1]})


@pytest.fixture
def shop(here):
    """A folder with a table that is large enough to plan on."""
    pyarrow.parquet.write_table(sales(0), "sales.parquet")
    return here


@pytest.fixture
def plan_file(shop, ok):
    ok(*PLAN, "--out", "plan.toml")
    return shop / "plan.toml"


def document(path):
    return PlanFile.parse(path.read_text())


def status(ok):
    return json.loads(ok("status", *V, "--json"))


def test_a_plan_is_a_table_advice_and_a_file(shop, ok):
    out = ok(*PLAN, "--out", "plan.toml", "--html", "plan.html")
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("*")]
    assert any(line.startswith("Train ") for line in lines)
    assert lines[-1] == "plan: plan.toml"
    assert document(shop / "plan.toml").inputs == ("age", "visits")
    assert "<svg" in (shop / "plan.html").read_text()


def test_a_plan_for_programs(shop, ok):
    said = json.loads(ok(*PLAN, "--json", "--seed", "3", "--forget-ms", "0.36", "--out", "plan.toml"))
    assert said["choice"] in said["table"]
    assert said["choice"]["cosines"] <= 16
    assert len(said["references"]) == 3
    assert (said["bits"] > 0, said["advice"].startswith("Train ")) == (True, True)
    settings = document(shop / "plan.toml").settings
    assert settings.random_state == 3


def test_a_limit_that_nothing_meets_is_told(shop, ok):
    assert "No candidate forgets within 0.01 ms; this is the fastest." in ok(*PLAN, "--forget-ms", "0.01")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--out", "nowhere/plan.toml"], "--out: the folder nowhere does not exist"),
        (["--html", "nowhere/plan.html"], "--html: the folder nowhere does not exist"),
        (["--out", "."], "--out: . is a folder"),
        (["--out", "sales.parquet"], "--out would overwrite an input, sales.parquet"),
        (["--html", "link.parquet"], "--html would overwrite an input, link.parquet"),
        (["--out", "public.csv", "--on", "public.csv"], "--out would overwrite an input, public.csv"),
        (["--out", "one", "--html", "one"], "--out and --html are the same file, one"),
    ],
    ids=str,
)
def test_places_are_checked_before_the_planning(shop, run, monkeypatch, given, reason):
    monkeypatch.setattr("expunge.cli.planning._make_plan", lambda *given, **named: pytest.fail("it was planned"))
    (shop / "public.csv").write_text("age\n")
    (shop / "link.parquet").symlink_to("sales.parquet")
    table = (shop / "sales.parquet").read_bytes()
    code, out, err = run(*PLAN, *given)
    assert (code, out) == (2, "")
    assert reason in err
    assert (shop / "sales.parquet").read_bytes() == table


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_a_bad_limit_is_a_usage_error(shop, run, text):
    code, out, err = run(*PLAN, "--forget-ms", text)
    assert (code, out) == (2, "")
    assert f"must be a number of milliseconds above 0, got {text!r}" in err


def test_a_plan_on_other_rows_looks_at_those_only(plan_file, ok):
    first = plan_file.read_bytes()
    pyarrow.csv.write_csv(sales(9), "public.csv")
    ok(*PLAN, "--on", "public.csv", "--out", "plan.toml")
    assert plan_file.read_bytes() != first
    other = plan_file.read_bytes()
    pyarrow.parquet.write_table(sales(5, scale=3.0), "sales.parquet")
    ok(*PLAN, "--on", "public.csv", "--out", "plan.toml")
    assert plan_file.read_bytes() == other


def test_a_schema_says_the_bounds_and_its_scales_stay(shop, ok):
    proposed = ok("schema", "sales.parquet", *NAMES)
    (shop / "schema.toml").write_text(proposed)
    ok("plan", "sales.parquet", "--schema", "schema.toml", "--max-features", "16", "--out", "plan.toml")
    made = document(shop / "plan.toml")
    ok("train", "sales.parquet", *V, "--schema", "schema.toml", "--plan", "plan.toml")
    assert status(ok)["learners"] == made.settings.shards // made.settings.rate


LINEAR_AGE = """id = "who"
target = "spend"
[columns.spend]
kind = "number"
[columns.age]
kind = "number"
scale = "linear"
[columns.visits]
kind = "number"
"""


def test_a_column_that_a_schema_says_is_linear_gets_no_knots(shop, ok, run):
    (shop / "schema.toml").write_text(LINEAR_AGE)
    ok("plan", "sales.parquet", "--schema", "schema.toml", "--max-features", "16", "--out", "plan.toml")
    age, visits = document(shop / "plan.toml").settings.scales
    assert (age, visits[0], len(visits[1]) > 2) == ("linear", "linear", True)
    ok("train", "sales.parquet", *V, "--schema", "schema.toml", "--plan", "plan.toml")
    assert status(ok)["scales"] == "1 linear, 1 linear and knots"
    assert "validation rows" in ok("status", *V)
    code, _, err = run("train", "sales.parquet", "--vault", "other.vault", *NAMES, "--plan", "plan.toml")
    assert (code, "the plan was made for different scales" in err) == (2, True)
    assert run("train", "sales.parquet", "--vault", "small.vault", "--schema", "schema.toml")[0] == 0
    assert json.loads(ok("status", "--vault", "small.vault", "--json"))["scales"] in (
        "1 linear, 1 linear and knots",
        "2 linear",
    )


def amounts():
    """The same with a target that multiplies."""
    rows = sales(0)
    return rows.set_column(3, "spend", pa.array(np.exp(1.5 * rows["spend"].to_numpy())))


def test_a_target_that_multiplies_is_learned_on_a_log_scale_unless_the_schema_says_another(shop, ok, run):
    pyarrow.parquet.write_table(amounts(), "sales.parquet")
    assert "The target is learned on a log scale" in ok(*PLAN, "--out", "plan.toml")
    assert document(shop / "plan.toml").settings.target_scales == ["log"]
    ok("train", "sales.parquet", *V, *NAMES, "--plan", "plan.toml")
    assert status(ok)["target_scales"] == "log"
    assert ok("verify", *V)
    code, _, err = run("train", "sales.parquet", "--vault", "small.vault", *NAMES)
    assert (code, ", target on a log scale: R2" in err) == (0, True)
    (shop / "schema.toml").write_text(LINEAR_AGE.replace('"number"', '"number"\nscale = "linear"', 1))
    assert "on a log scale" not in ok("plan", "sales.parquet", "--schema", "schema.toml", "--max-features", "16")
    code, _, err = run("train", "sales.parquet", "--vault", "o.vault", "--schema", "schema.toml", "--plan", "plan.toml")
    assert (code, "the plan was made for different scales" in err) == (2, True)


def test_training_by_a_plan_is_training_with_its_settings(plan_file, ok):
    ok("train", "sales.parquet", *V, *NAMES, "--plan", plan_file)
    made = document(plan_file)
    rows = sales(0)
    X = np.column_stack([rows["age"], rows["visits"]])
    names = ("shards", "rate", "alpha", "scales", "random_state")
    model = CodedRegressor(**{name: getattr(made.settings, name) for name in names}, features=made.settings.features)
    assert Vault.open("spend.vault").digest() == model.fit(X, rows["spend"].to_numpy()).digest()
    assert str(made.score) in ok("status", *V)


def test_explicit_options_win_over_a_plan_which_promises_nothing_then(plan_file, ok):
    ok("train", "sales.parquet", *V, *NAMES, "--plan", plan_file, "--alpha", "0.5", "--seed", "8")
    found = status(ok)
    assert found["alpha"] == 0.5
    assert "validation rows" not in ok("status", *V)


def test_a_place_that_is_taken_is_refused_before_anything_is_planned(shop, run, ok, monkeypatch):
    ok("train", "sales.parquet", *V, *NAMES, "--alpha", "1", "--shards", "5")
    monkeypatch.setattr("expunge.vault.requests.choice.load_planner", None)
    code, out, err = run("train", "sales.parquet", *V, *NAMES)
    assert (code, out) == (2, "")
    assert err == "error: spend.vault already exists; add rows, or train it again with --replace\n"
    code, out, err = run("train", "sales.parquet", "--vault", "nowhere/a.vault", *NAMES)
    assert (code, out) == (2, "")
    assert "nowhere is not a writable folder" in err


def test_without_settings_train_makes_a_small_plan_and_says_so(shop, run, ok):
    code, out, err = run("train", "sales.parquet", *V, *NAMES)
    assert (code, out.startswith("learned 240 rows of 60 people")) == (0, True)
    assert re.match(r"note: planned: one learner, \d+ cosines \(.*kernels?.*\), alpha=", err)
    assert " on validation rows, of 240 sampled rows" in err
    assert "expunge plan searches longer for a better one" in err
    assert " on validation rows, of 240 sampled rows" in ok("status", *V)


def test_a_table_too_small_for_a_plan_gets_a_linear_learner_and_a_note(here, run, ok):
    code, out, err = run("train", "customers.parquet", *V, *TRAIN[:4])
    assert (code, out.startswith("learned 30 rows of 20 people; 1 learner")) == (0, True)
    assert err.startswith(
        "note: a plan needs at least 40 rows of 4 people, got 30 of 20; training one linear learner\n"
    )
    assert status(ok)["features"] == "Identity()"


def test_a_table_too_small_is_refused_by_plan(here, run):
    code, out, err = run("plan", "customers.parquet", *TRAIN[:4])
    assert (code, out) == (3, "")
    assert err == "error: a plan needs at least 40 rows of 4 people, got 30 of 20\n"


def test_a_plan_of_another_table_is_refused(plan_file, run):
    made = document(plan_file)
    plan_file.write_text(replace(made, inputs=("age", "height")).to_toml())
    code, out, err = run("train", "sales.parquet", *V, *NAMES, "--plan", plan_file)
    assert (code, out) == (2, "")
    assert "a different table or schema: 1 of its inputs are missing, 1 are new; plan again" in err


def test_a_plan_for_another_target_is_refused(plan_file, run):
    plan_file.write_text(replace(document(plan_file), targets=("income",)).to_toml())
    code, out, err = run("train", "sales.parquet", *V, *NAMES, "--plan", plan_file)
    assert (code, out) == (2, "")
    assert "the plan was made for a different target" in err


def test_a_plan_for_another_schema_is_refused(plan_file, run):
    columns = '[columns.age]\nkind = "number"\nscale = "log"\n[columns.visits]\nkind = "number"\n'
    about = 'id = "who"\ntarget = "spend"\n[columns.spend]\nkind = "number"\n'
    (plan_file.parent / "schema.toml").write_text(about + columns)
    code, out, err = run("train", "sales.parquet", *V, "--schema", "schema.toml", "--plan", plan_file)
    assert (code, out) == (2, "")
    assert "the plan was made for different scales" in err


BOUNDED = """id = "who"
target = "spend"
[columns.spend]
kind = "number"
low = -2
high = 3
[columns.age]
kind = "number"
low = 0
high = 1
[columns.visits]
kind = "number"
"""


def test_a_plan_with_other_bounds_is_refused_and_one_without_bounds_promises_nothing(plan_file, run, ok):
    (plan_file.parent / "schema.toml").write_text(BOUNDED)
    by_schema = ("--schema", "schema.toml", "--plan")
    code, _, err = run("train", "sales.parquet", *V, *by_schema, "plan.toml")
    assert code == 0
    assert err.startswith("note: the plan was made without the bounds of 'age', 'spend': its score does not apply\n")
    assert "validation rows" not in ok("status", *V)
    ok("plan", "sales.parquet", "--schema", "schema.toml", "--max-features", "16", "--out", "bounded.toml")
    assert run("train", "sales.parquet", *V, *by_schema, "bounded.toml", "--replace", "--accept-worse")[0] == 0
    assert "validation rows" in ok("status", *V)
    for high, low in (("high = 3", "high = 4"), ("high = 3", "high = 3")):
        (plan_file.parent / "schema.toml").write_text(BOUNDED.replace(high, low).replace("high = 1", "high = 2"))
        code, out, err = run("train", "sales.parquet", *V, *by_schema, "bounded.toml", "--replace")
        assert (code, out) == (2, "")
        names = "'age', 'spend'" if low == "high = 4" else "'age'"
        assert f"the plan was made with different bounds of {names}, which scale the values: plan again" in err
    code, out, err = run("train", "sales.parquet", *V, *NAMES, "--plan", "bounded.toml", "--replace")
    assert (code, "different bounds of 'age', 'spend'" in err) == (2, True)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"version = 4", None])
def test_a_file_that_is_no_plan_is_refused(shop, run, data):
    if data is not None:
        (shop / "bad.toml").write_bytes(data)
    code, out, err = run("train", "sales.parquet", *V, *NAMES, "--plan", "bad.toml")
    assert (code, out) == (2, "")
    assert "bad.toml cannot be read as a plan: " in err or "bad.toml is not a plan: make one with expunge plan" in err


def test_only_the_page_needs_matplotlib_and_misses_it_at_once(shop, run, ok, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run(*PLAN, "--html", "plan.html", "--out", "plan.toml")
    assert (code, out) == (1, "")
    assert err == "error: this command needs matplotlib: pip install 'expunge[plan]'\n"
    assert not (shop / "plan.toml").exists()
    ok(*PLAN, "--out", "plan.toml")


def test_after_a_replan_the_settings_are_those_of_a_vault_that_never_saw_who_left(shop, ok, run):
    table = sales(4)
    pyarrow.csv.write_csv(table, "base.csv")
    pyarrow.csv.write_csv(table.filter(pyarrow.compute.not_equal(table["who"], "p7")), "without.csv")
    run("train", "base.csv", *V, *NAMES, "--seed", "0")
    assert "not complete for 1 person" in ok("unlearn", *V, "--id", "p7")
    assert run("receipts", *V, "--id", "p7", "--receipts", "for-p7")[2] == ""
    assert re.search(r"^2 .* unlearn .* not yet ", ok("log", *V), re.MULTILINE)
    assert "1 erasure" in ok("verify", *V, "--plan")
    code, out, err = run("replan", *V)
    assert (code, err.startswith("note: planned: ")) == (0, True)
    assert re.match(r"planned again; 1 learner trained; all earlier erasures are complete, in ", out)
    assert re.search(r"^2 .* unlearn .* by 3 ", ok("log", *V), re.MULTILINE)
    note = run("receipts", *V, "--id", "p7", "--receipts", "for-p7")[2]
    assert note.startswith("note: since request 3 no setting chosen with the help of these people is in use: hand out ")
    assert "000003.jws as well" in note
    assert [request["completed_by"] for request in json.loads(ok("log", *V, "--json"))] == [1, 3, 3]
    verified = ok("verify", *V, "--plan")
    assert re.search(r"^ok +plan +planned again on the rows of 59 people: the same settings", verified, re.MULTILINE)
    assert "complete: no setting" in ok("unlearn", *V, "--id", "p7")
    mine = status(ok)
    run("train", "without.csv", "--vault", "other.vault", *NAMES, "--seed", "0")
    other = json.loads(ok("status", "--vault", "other.vault", "--json"))
    names = ("features", "alpha", "shards", "learners", "scales", "target_scales", "outside", "rows", "people")
    assert [mine[name] for name in names] == [other[name] for name in names]
    predicted = [Vault.open(path).predict("base.csv") for path in ("spend.vault", "other.vault")]
    np.testing.assert_array_equal(*predicted)


def test_a_plan_file_says_how_to_plan_again_and_one_on_other_rows_needs_no_replan(plan_file, ok, run):
    ok("train", "sales.parquet", *V, *NAMES, "--plan", "plan.toml")
    assert "not complete for 1 person" in ok("unlearn", *V, "--id", "p1")
    assert run("replan", *V)[0] == 0
    assert (status(ok)["open"], status(ok)["renewable"]) == (0, True)
    pyarrow.csv.write_csv(sales(9), "public.csv")
    ok(*PLAN, "--on", "public.csv", "--out", "other.toml")
    ok("train", "sales.parquet", "--vault", "b.vault", *NAMES, "--plan", "other.toml")
    assert "complete: no setting" in ok("unlearn", "--vault", "b.vault", "--id", "p1")
    code, out, err = run("replan", "--vault", "b.vault")
    assert (code, out, "nothing to plan again" in err) == (2, "", True)


def test_one_setting_alone_is_said_to_leave_the_others_unplanned(shop, run):
    code, _, err = run("train", "sales.parquet", *V, *NAMES, "--alpha", "1")
    assert code == 0
    assert err.startswith("note: nothing is planned, because --alpha was given")
