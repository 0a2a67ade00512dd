"""The page on choosing a model runs as it stands, and its numbers, pictures, commands and options are there."""

import argparse
import inspect
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import expunge
from benchmarks.choosing import effects
from benchmarks.choosing.effects import error, ground, kept
from expunge.cli.program import build_parser
from expunge.planning import Plan
from expunge.planning.candidates import SINGLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "choosing.md").read_text()
PRINTED = "".join((ROOT / "docs" / name).read_text() for name in ("figures/choosing.txt", "quality.md"))
README = (ROOT / "README.md").read_text().partition("\n## Which model? The plan\n")[2].partition("\n## ")[0]


FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
PROSE = FENCED.sub("", PAGE)


def blocks(text, language=""):
    return [block for name, block in FENCED.findall(text) if name == language]


@pytest.mark.slow
def test_the_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(PAGE, "python"):
        exec(block, names)  # noqa: S102 - our own text
    assert "one learner" in capsys.readouterr().out
    assert names["result"].choice.r2 > 0.9
    assert names["model"].features_.n_features_in_ == 5
    assert names["trees"].n_rows_ == 398
    assert list(names["model"].outside_rows(np.array([[0.5] * 4, [0.5, 2.0, 0.5, 0.5]]))) == [False, True]


@pytest.mark.slow
def test_the_example_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(expunge, "plan", quick(expunge.plan))
    rng = np.random.default_rng(0)
    X = rng.random((100, 2))
    names = {"X": X, "y": X[:, 0], "customers": np.arange(100)}
    (example,) = blocks(README, "python")
    exec(example, names)  # noqa: S102 - our own text
    assert names["model"].n_rows_ == 100
    assert "<h1>Plan</h1>" in Path("plan.html").read_text()


def quick(plan):
    """The same plan, in less time."""
    return lambda *given, **named: plan(*given, quick=True, max_features=50, **named)


@pytest.mark.parametrize("text", [PAGE, README], ids=["page", "readme"])
def test_every_command_is_one_that_the_program_takes(text):
    commands = [line for block in blocks(text) for line in block.splitlines() if line.startswith("expunge ")]
    assert len(commands) >= 2
    for line in commands:
        build_parser().parse_args(line.split()[1:])


def test_every_command_and_option_in_the_text_is_there():
    (known,) = (one for one in build_parser()._actions if isinstance(one, argparse._SubParsersAction))
    assert set(re.findall(r"`expunge (\w+)", PAGE)) <= set(known.choices)
    options = set()
    for name in ("plan", "train"):
        options |= {option for one in known.choices[name].complete()._actions for option in one.option_strings}
    assert set(re.findall(r"(?<!-)--[a-z][a-z-]*", PAGE)) <= options


def test_every_parameter_in_the_text_is_there():
    takers = (expunge.plan, expunge.CodedRegressor, expunge.RandomFourier)
    known = {name for taker in takers for name in inspect.signature(taker).parameters}
    assert set(re.findall(r"`(\w+)=", PROSE)) <= known
    assert set(re.findall(r"`result\.(\w+)", PROSE)) <= {*dir(Plan), *(field.name for field in fields(Plan))}


def test_every_make_target_in_the_text_is_there():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"`make (\w+)`", PAGE)) <= set(targets)


def test_every_measured_number_was_printed():
    measured = re.findall(r"(?<![\d.,])\d+\.\d+(?!\d|\.\d)", re.sub(r"`[^`]*`", "", PROSE))
    assert len(measured) > 10
    assert [number for number in measured if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", PRINTED)] == []


def test_every_picture_is_shown():
    shown = set(re.findall(r"\]\(figures/(choosing-\w+\.png)\)", PAGE))
    assert shown == {path.name for path in (ROOT / "docs" / "figures").glob("choosing-*.png")}


def test_a_scaler_gives_an_erased_row_back():
    rng = np.random.default_rng(0)
    X = rng.lognormal(0, 1, (60, 3))
    said = list(kept(X, X[:, 0], person=7, column=1))
    assert f"{X[7, 1]:.3f}" in said[2]
    assert said[3].startswith("fit warned: mean 0 and standard deviation 1")
    assert "the same as never seen" in said[4]


def test_what_is_measured_is_what_the_page_says():
    """An error of 1 is that of the mean, and a model that can follow the target has next to none."""
    rng = np.random.default_rng(0)
    X = rng.random((400, 2))
    where = ground(X, X @ [1.0, 2.0])
    assert error(where, effects.drawn(20, 1.0)) < 1e-3
    noise = ground(X, rng.normal(size=400))
    assert error(noise, effects.drawn(20, 1.0), alphas=(1e9,)) == pytest.approx(1, abs=0.1)
    forget, _ = effects.measured(SINGLE, X, X[:, 0], 20)
    assert forget > 0
