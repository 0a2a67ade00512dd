"""Plan files: what is written is read back, and what is wrong with one is said."""

import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidSetting
from expunge.planning.plan_file import PLAN_VERSION, PlanFile, PlanScore

NAMES = (
    "a",
    "qu\"o'te",
    "new\nline\r",
    "\x7f\x00\x1f",
    "\u20ac \U0001f600",
    "\U000e0001\u2028",
    "back\\slash",
    "",
    "#[=]",
)


BOUNDS = ((0.0, 1.0), None, (-5.0, 5.0), None)  # of three inputs and a target


@pytest.fixture(scope="module")
def document(planned):
    """The document of the plan, for inputs with odd names."""
    return PlanFile.from_plan(planned, NAMES[:3], scales=True, targets=["y"])


def same(one, other):
    """Whether two documents say the same."""
    a, b = one.settings, other.settings
    names = ("shards", "rate", "alpha", "scales", "target_scales", "outside", "random_state")
    shape = all(getattr(a, name) == getattr(b, name) for name in names)
    ours, theirs = a.features.get_params(), b.features.get_params()
    scales = np.array_equal(ours.pop("scale"), theirs.pop("scale"))
    about = ("inputs", "targets", "declared", "bounds", "score")
    return shape and scales and ours == theirs and all(getattr(one, name) == getattr(other, name) for name in about)


def test_a_document_is_the_plan(planned, document):
    settings, best = document.settings, planned.best
    assert (settings.shards, settings.rate, settings.alpha) == (best.shards, best.rate, best.alpha)
    assert settings.scales == best.scales
    assert settings.features.get_params() == best.features.get_params()
    assert settings.random_state == best.random_state == 0
    assert document.score.r2 == pytest.approx(planned.choice.r2, abs=1e-4)
    assert PlanFile.from_plan(planned, NAMES[:3], scales=False).settings.scales is None


def test_the_score_has_no_more_digits_than_are_counted(planned, document):
    score, choice = document.score, planned.choice
    assert score.error == float(f"{choice.error:.4g}") != choice.error
    assert score.spread == float(f"{choice.spread:.4g}") != choice.spread
    assert score.r2 == round(1 - score.error, 4)


def test_what_is_written_is_read_back(document):
    read = PlanFile.parse(document.to_toml())
    assert same(read, document)
    assert read.to_toml() == document.to_toml()
    plain = replace(document, settings=replace(document.settings, scales=None))
    assert same(PlanFile.parse(plain.to_toml()), plain)
    log = replace(document, settings=replace(document.settings, target_scales=["log"]))
    assert same(PlanFile.parse(log.to_toml()), log)
    assert not same(log, document)
    assert not same(plain, document)


def test_a_linear_model_is_read_back(document):
    settings = replace(document.settings, features=None, scales=None, outside="extrapolate")
    read = PlanFile.parse(replace(document, settings=settings).to_toml())
    assert (read.settings.features, read.settings.outside) == (None, "extrapolate")
    assert read.describe_score(settings) == str(document.score)
    assert read.describe_score(replace(settings, outside="clamp")) == ""


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_odd_names_are_read_back(document, name):
    assert PlanFile.parse(replace(document, inputs=(name, "b", "c")).to_toml()).inputs == (name, "b", "c")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_is_read_back_and_only_prints(document, name):
    text = replace(document, inputs=(name, "b", "c")).to_toml()
    assert text.replace("\n", "").isprintable()
    assert PlanFile.parse(text).inputs == (name, "b", "c")


def test_numbers_of_numpy_are_numbers(document):
    score = PlanScore(*map(np.float64, (0.5, 0.5, 0.1, 1.0)), 7, np.float64(3.0))
    settings = replace(document.settings, alpha=np.float64(0.25))
    read = PlanFile.parse(replace(document, score=score, settings=settings).to_toml())
    assert (read.score, read.settings.alpha) == (score, 0.25)


def test_another_version_is_refused(document):
    text = document.to_toml().replace(f"version = {PLAN_VERSION}", "version = 99")
    with pytest.raises(InvalidSetting, match=r"^my.toml: the plan has version 99, expected version 4: plan again$"):
        PlanFile.parse(text, name="my.toml")


NO_PLAN = r"^plan is not a plan: make one with expunge plan --out FILE$"


@pytest.mark.parametrize(
    "text", ["", "{", "version = 4", "version = 4\ninputs = []\nfeatures = 3", "a = " + "[" * 5000]
)
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(InvalidSetting, match=NO_PLAN):
        PlanFile.parse(text)


def test_a_plan_with_a_line_less_is_refused(document):
    lines = document.to_toml().splitlines()
    optional = ("#", "scales", "linear", "order", "kernel")
    for k, line in enumerate(lines):
        if line and not line.startswith(optional):
            with pytest.raises(InvalidSetting):
                PlanFile.parse("\n".join(lines[:k] + lines[k + 1 :]))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("shards", "0", "shards must be"),
        ("shards", '"5"', "shards must be"),
        ("rate", "-1", "rate must be"),
        ("alpha", "-1.0", "alpha must be"),
        ("alpha", "nan", "alpha must be"),
        ("outside", '"anything"', "outside must be"),
        ("inputs", '"abc"', "inputs must be a list of names"),
        ("inputs", "[1]", "inputs must be a list of names"),
        ("targets", "[1]", "targets must be a list of names"),
        ("scales", '["cubic"]', "scale"),
        ("bounds", "3", r"bounds must be a list of \[low, high\], or \[\] for none, of 4 inputs"),
        ("bounds", "[[], [], []]", "bounds must be a list of .* of 4 inputs and targets"),
        ("bounds", "[[], [], [], 1]", "bounds must be a list of"),
        ("bounds", "[[], [], [], [1]]", "bounds must be a list of"),
        ("bounds", "[[], [], [], [1, true]]", "bounds must be a list of"),
        ("bounds", '[[], [], [], ["0", "1"]]', "bounds must be a list of"),
        ("bounds", "[[], [], [], [2, 1]]", "bounds must be a list of"),
        ("bounds", "[[], [], [], [nan, nan]]", "bounds must be a list of"),
        ("bounds", "[[], [], [], [0, inf]]", "bounds must be a list of"),
        ("bounds", "[{}, [], [], []]", "bounds must be a list of"),
        ("declared", "3", "declared must be a list with one scale for each of 4 inputs and targets"),
        ("declared", "true", "declared must be a list"),
        ("declared", '"linear"', "declared must be a list"),
        ("declared", "[]", "declared must be a list with one scale for each of 4 inputs and targets"),
        ("declared", '["linear", "linear"]', "declared must be a list with one scale for each of 4 inputs and targets"),
        (
            "declared",
            '["linear", "cubic", "linear", "log"]',
            r"declared: scales\[1\] must be 'linear', 'log' or a list of",
        ),
        ("declared", '["linear", [1.0, nan], "linear", "log"]', r"declared: scales\[1\]: knots must be finite"),
        ("declared", '["linear", [[]], "linear", "log"]', r"declared: scales\[1\]"),
        ("declared", "[{a = 1}, 2024-01-01, true, 1]", r"declared: scales\[0\]"),
        ("declared", '["linear", "log", "linear", [0.0, 1.0]]', "declared: target_scales must be"),
        ("target_scales", '["cubic"]', "target_scales must be None, 'linear', 'log' or a list"),
        ("target_scales", '["log", "log"]', "each of the 1 targets; got"),
        ("target_scales", "[[0.0, 1.0]]", "target_scales must be"),
        ("target_scales", "3", "target_scales must be"),
        ("cosines", "0", "n_features must be a whole number of at least 1"),
        ("kernel", '"os.system"', "kernel must be one of"),
        ("linear", "3", "linear must be"),
        ("scale", "[nan, 1.0]", "scale must have numbers"),
        ("scale", '["x"]', "is not a plan"),
        ("seed", '"x"', "random_state must be None"),
        ("seed", "-1", "random_state must be None"),
        ("r2", '"0.9"', "score must hold only numbers"),
        ("bits", "true", "score must hold only numbers"),
        ("sampled", "[1]", "score must hold only numbers"),
    ],
)
def test_what_a_plan_says_is_checked(document, name, value, reason):
    declared = ["linear", None, ["linear", [0.0, 1.0]], "log"]
    settings = replace(document.settings, target_scales=["log"])
    whole = replace(document, declared=declared, settings=settings, bounds=BOUNDS).to_toml()
    text = re.sub(rf"(?m)^{name} = .*$", lambda found: f"{name} = {value}", whole)
    assert text != whole
    with pytest.raises(InvalidSetting, match=reason):
        PlanFile.parse(text)


@pytest.mark.parametrize("line", ["n_features = 3", "random_state = 3", "unknown = 1", '__class__ = "x"'])
def test_features_have_nothing_else(document, line):
    with pytest.raises(InvalidSetting, match=NO_PLAN):
        PlanFile.parse(document.to_toml().replace("[features]", f"[features]\n{line}"))


def test_nothing_but_settings_comes_from_a_file(document):
    text = 'learner = "os.system"\nclip = true\nkeep = "coded"\ntarget_bounds = "unit"\n' + document.to_toml()
    assert tomllib.loads(text)["clip"] is True
    read = PlanFile.parse(text)
    assert same(read, document)
    for name in ("learner", "clip", "keep", "bounds", "target_bounds", "code"):
        assert getattr(read.settings, name) == getattr(document.settings, name)


def test_other_inputs_are_refused(document):
    document.check(NAMES[:3], ["y"])
    for targets, declared, what in (
        (["z"], None, "a different target"),
        (["y"], ["log"] * 4, "different scales"),
    ):
        with pytest.raises(InvalidSetting, match=f"the plan was made for {what}, so its score does not apply"):
            document.check(NAMES[:3], targets, declared)
    scaled = replace(document, declared=["log", ["linear", [0.0, 1.0, 5.0]], "linear", "log"])
    PlanFile.parse(scaled.to_toml()).check(NAMES[:3], ["y"], scaled.declared)
    partly = replace(document, declared=["linear", None, None, None])
    assert 'declared = ["linear", "planned", "planned", "planned"]\n' in partly.to_toml()
    PlanFile.parse(partly.to_toml()).check(NAMES[:3], ["y"], ["linear", None, None, None])
    for declared in ([None, "linear", None, None], ["linear", None, None, "log"]):
        with pytest.raises(InvalidSetting, match="different scales"):
            partly.check(NAMES[:3], ["y"], declared)
    first, second, third = NAMES[:3]
    for inputs, what in (
        ((second, first, third), "its inputs are in a different order"),
        ((first, second), "1 of its inputs are missing, 0 are new"),
        ((first, "x", "y"), "2 of its inputs are missing, 2 are new"),
    ):
        with pytest.raises(InvalidSetting, match=f"for a different table or schema: {what}; plan again"):
            document.check(inputs)


def test_other_bounds_are_refused_by_name_and_observed_ones_were_never_promised(document):
    bounded = PlanFile.parse(replace(document, inputs=("a", "b", "c"), bounds=BOUNDS).to_toml())
    assert bounded.bounds == BOUNDS
    names = {"inputs": ["a", "b", "c"], "targets": ["y"]}
    bounded.check(**names, bounds=BOUNDS)
    assert bounded.newly_bounded(BOUNDS) == []
    for other, who in (
        (((0.0, 2.0), None, (-5.0, 5.0), None), "'a'"),
        ((None, None, (-5.0, 6.0), None), "'a', 'c'"),
    ):
        with pytest.raises(InvalidSetting, match=f"with different bounds of {who}, which scale the values: plan again"):
            bounded.check(**names, bounds=other)
    declared = (*BOUNDS[:3], (0.0, 9.0))  # where the plan had none
    bounded.check(**names, bounds=declared)
    assert bounded.newly_bounded(declared) == ["y"]
    assert document.bounds == ()
    document.check(NAMES[:3], ["y"], bounds=(None,) * 4)
    assert "bounds" not in document.to_toml()


def test_a_promise_is_kept_only_for_the_settings_that_were_planned(document):
    settings = document.settings
    assert document.describe_score(replace(settings, clip=True)) == str(document.score)
    assert str(document.score).startswith(f"R2 {document.score.r2:.4f} on validation rows, of 300 ")
    poor = replace(document.score, r2=0.01, error=0.99, spread=0.02)
    assert str(poor) == "R2 0.0100 on validation rows, no better than the mean, of 300 sampled rows"
    for change in ({"alpha": 7.0}, {"shards": 3, "rate": 3}, {"features": None}, {"random_state": 9}):
        assert document.describe_score(replace(settings, **change)) == ""
