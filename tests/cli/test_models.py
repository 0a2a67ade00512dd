"""Models on the command line: everything that the features can, the defaults of Python, and rows outside the bounds."""

import inspect
import json
import re
from argparse import Namespace
from pathlib import Path

import pyarrow.csv
import pytest

from expunge import CodedRegressor, RandomFourier
from expunge.cli import planning
from expunge.learning.settings import Settings
from expunge.vault import Vault

from support.commands import TRAIN, V, customers
from support.vaults import people

NAMES = ("--target", "spend", "--id-column", "customer_id")


def choose_model(**given):
    """Return what train passes to `Vault.create` for these options."""
    none = dict.fromkeys(("shards", "rate", "features", "alpha", "plan", "seed", "outside"))
    return planning.choose_model(Namespace(**none | {"clip": False} | given))


def asked(**given):
    """Return the settings that these options stand for."""
    return choose_model(**given)["model"]


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("fourier:7", RandomFourier(7)),
        ("fourier:7,linear", RandomFourier(7, linear=True)),
        ("fourier:7,scale=0.5,kernel=laplacian", RandomFourier(7, scale=0.5, kernel="laplacian")),
        ("fourier:7,kernel=gaussian+laplacian", RandomFourier(7, kernel="gaussian+laplacian")),
        ("fourier:1000,kernel=matern32,scale=2,linear,order=3",)
        + (RandomFourier(1000, kernel="matern32", scale=2.0, linear=True, order=3),),
    ],
)
def test_features_say_everything_that_random_fourier_can(here, ok, text, features):
    made = asked(features=planning.parse_features(text)).features
    assert made.get_params() == features.get_params()
    if made.n_features == 7:
        ok("train", "customers.parquet", *V, *TRAIN[:8], "--features", text, "--seed", "1")
        model = CodedRegressor(shards=4, rate=2, features=features, random_state=1)
        assert Vault.open("spend.vault").digest() == fitted(model).digest()
        parts = json.loads(ok("status", *V, "--json"))["features"].removeprefix("RandomFourier(").removesuffix(")")
        told = dict(part.split("=") for part in parts.split(", "))
        expected = {name: repr(value) for name, value in features.get_params().items()}
        assert expected | told == expected  # what is told is so,
        assert {expected[name] for name in expected.keys() - told.keys()} <= {"None", "False"}  # and what is not is off


def test_the_status_of_a_blend_says_it_in_words(here, ok):
    ok("train", "customers.parquet", *V, *TRAIN[:8], "--features", "fourier:7,kernel=gaussian+gaussian")
    (line,) = [line for line in ok("status", *V).splitlines() if line.startswith("features")]
    assert "RandomFourier(n_features=7, kernel='gaussian+gaussian'" in line
    assert line.endswith(": 2 gaussian kernels")


def fitted(model):
    """The model in memory of the table of customers."""
    table = customers(people())
    X = table.select(["age", "visits"]).to_pandas().to_numpy()
    return model.fit(X, table["spend"].to_numpy())


def test_every_parameter_of_random_fourier_has_an_option_or_comes_from_the_seed():
    parameters = set(inspect.signature(RandomFourier).parameters) - {"n_features", "random_state"}
    assert parameters == {name.split("=")[0] for name in planning._FOURIER_SYNTAX.replace(" and ", ", ").split(", ")}


@pytest.mark.parametrize("text", ["identity", "powers:2"])
def test_other_features_are_named_on_the_command_line(here, ok, text):
    ok("train", "customers.parquet", *V, *TRAIN[:8], "--features", text)
    named = {"identity": "Identity()", "powers:2": "Powers(degree=2)"}[text]
    assert json.loads(ok("status", *V, "--json"))["features"] == named


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fourier", "must be fourier:D, powers:D or identity, D at least 1, got 'fourier'"),
        ("fourier:0", "must be fourier:D"),
        ("fourier:-3", "must be fourier:D"),
        ("fourier:1.5", "must be fourier:D"),
        ("fourier:³", "must be fourier:D"),
        ("cosines:5", "must be fourier:D"),
        ("identity:5", "must be fourier:D"),
        ("identity,linear", "must be fourier:D"),
        ("powers:2,linear", "powers:D has no options"),
        ("fourier:5,", "the options of fourier:D are kernel=NAME, scale=NUMBER, linear and order=NUMBER, got ''"),
        ("fourier:5,linear=yes", "the options of fourier:D are"),
        ("fourier:5,kernel=", "the options of fourier:D are"),
        ("fourier:5,kernel", "the options of fourier:D are"),
        ("fourier:5,order", "the options of fourier:D are"),
        ("fourier:5,seed=3", "the options of fourier:D are"),
        ("fourier:5, linear", "the options of fourier:D are"),
        ("fourier:5,linear,linear", "linear is given twice"),
        ("fourier:5,scale=1,scale=2", "scale is given twice"),
        ("fourier:5,scale=0", "scale must be a number above 0, got '0'; use a plan or Python for one per input"),
        ("fourier:5,scale=[1;2]", "scale must be a number above 0"),
        ("fourier:5,scale=inf", "scale must be a number above 0"),
        ("fourier:5,scale", "scale must be a number above 0, got ''"),
        ("fourier:5,order=0", "order must be a whole number of at least 1, got '0'"),
        ("fourier:5,order=x", "order must be a whole number of at least 1, got 'x'"),
    ],
)
def test_features_that_cannot_be_are_a_usage_error_that_says_what_can(here, run, text, reason):
    code, out, err = run("train", "customers.parquet", *V, *NAMES, "--features", text)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: argument --features: {reason}")
    assert err.endswith("; see expunge train --help\n")
    assert not Path("spend.vault").exists()


def test_a_kernel_that_there_is_not_is_refused_with_those_that_there_are(here, run):
    code, out, err = run("train", "customers.parquet", *V, *NAMES, "--features", "fourier:5,kernel=cubic")
    assert (code, out) == (2, "")
    assert "kernel must be one of" in err
    assert "matern52" in err


@pytest.mark.parametrize(("option", "value"), [("shards", 10), ("rate", 1.0), ("alpha", 0.5)])
def test_with_one_option_the_others_are_the_defaults_of_python(option, value):
    made, model = vars(asked(**{option: value})), CodedRegressor(**{option: value})
    assert made == vars(Settings.from_model(model))
    assert vars(asked(features=planning.parse_features("identity"))) == vars(Settings.from_model(CodedRegressor()))


def test_seed_clip_and_outside_are_no_shape_of_a_model():
    plain, other = vars(asked(alpha=1.0)), vars(asked(alpha=1.0, seed=5, clip=True, outside="extrapolate"))
    assert {name for name in plain if repr(plain[name]) != repr(other[name])} == {"random_state", "clip", "outside"}
    planned = choose_model(seed=5, clip=True, outside="extrapolate")
    assert (planned.keys(), planned["planning"].seed) == ({"planning"}, 5)
    assert json.loads(planned["planning"].declared) == {"clip": True, "outside": "extrapolate"}


# Outside the bounds


@pytest.mark.parametrize(
    ("outside", "how"), [("clamp", "predicted for the nearest point inside"), ("extrapolate", "extrapolated, which")]
)
def test_rows_outside_the_bounds_are_told_in_a_note_or_a_field(here, ok, run, outside, how):
    ok("train", "customers.parquet", *V, *TRAIN, "--outside", outside)
    pyarrow.csv.write_csv(customers(["a"]), "one.csv")
    Path("far.csv").write_text("age,visits\n0,0\n99,0\n0,-99\n")
    for out in ((), ("--out", "p.csv")):
        code, _, err = run("predict", "far.csv", *V, *out)
        assert code == 0
        assert err.startswith(f"note: 2 of 3 rows lie outside the bounds: {how}")
        assert json.loads(ok("predict", "far.csv", *V, *out, "--json"))["outside"] == 2
        ok("predict", "customers.parquet", *V, *out)
    assert json.loads(ok("status", *V, "--json"))["outside"] == outside


def test_outside_is_one_of_two_words(here, run):
    code, _, err = run("train", "customers.parquet", *V, *TRAIN, "--outside", "ignore")
    assert code == 2
    assert "argument --outside: invalid choice: 'ignore'" in err


# How good it is


def test_a_vault_is_evaluated_for_people_and_for_programs(spend, ok, run):
    pyarrow.csv.write_csv(customers([f"new-{k}" for k in range(25)], 5), "test.csv")
    code, out, err = run("evaluate", "test.csv", *V, "--html", "e.html")
    assert code == 0
    lines = out.splitlines()
    assert lines[:2] == ["25 rows of 25 people", ""]
    labels = ["spend", "this vault", "a linear model", "boosted trees", "the mean"]
    assert [line.split("  ")[0] for line in lines[2:]][:5] == labels
    assert re.fullmatch(r"spend +R2 +RMSE +MAE", lines[2])
    assert lines[7].startswith("the vault is ")
    assert "times that of boosted trees" in lines[7]
    found = json.loads(ok("evaluate", "test.csv", *V, "--json"))
    assert (
        err == f"note: {found['outside']} of 25 rows lie outside the bounds: predicted for the nearest point inside\n"
    )
    assert found.keys() == {"rows", "people", "known", "outside", "resamples", "level", "targets", "html"}
    (target,) = found["targets"]
    ratios = {"ratio", "ratio_to_trees", "ratio_to_mean"}
    assert target.keys() == {"target", "vault", "linear", "trees", "mean"} | ratios
    assert f"{target['vault']['rmse']['value']:#.3g}" in lines[3]
    expected = Vault.open(spend).evaluate("test.csv").to_dict()
    assert found == expected | {"html": None}
    assert json.loads(ok("evaluate", "test.csv", *V, "--html", "f.html", "--json"))["html"] == "f.html"
    assert Path("e.html").read_text() == Path("f.html").read_text()
    assert "<h1>spend.vault on test.csv</h1>" in Path("e.html").read_text()
    assert ok("evaluate", "test.csv", *V, "--read-only", "--json") == json.dumps(expected | {"html": None}) + "\n"


def test_people_whom_the_vault_knows_are_told(spend, run):
    code, out, err = run("evaluate", "customers.parquet", *V)
    assert code == 0
    assert out.startswith("30 rows of 20 people\n")
    assert err == "note: the vault has learned rows of 20 of the 20 people: for these people its errors are too small\n"


def test_a_page_does_not_overwrite_the_table(spend, run):
    before = Path("customers.parquet").read_bytes()
    code, out, err = run("evaluate", "customers.parquet", *V, "--html", "customers.parquet")
    assert (code, out, err) == (2, "", "error: --html would overwrite the table, customers.parquet\n")
    assert Path("customers.parquet").read_bytes() == before
    code, _, err = run("evaluate", "customers.parquet", *V, "--html", "none/e.html")
    assert (code, "there is no folder none for the page" in err) == (2, True)
    assert run("evaluate", "new.csv", *V)[0] == 3  # it has no target
    assert run("evaluate", "none.csv", *V, "--html", "new.csv")[0] == 3
