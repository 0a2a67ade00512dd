"""The page on feature maps runs as it stands, and what it warns of is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from expunge import CodedRegressor
from expunge.errors import InvalidSetting

PAGE = Path(__file__).parents[2] / "docs" / "feature-maps.md"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page defines, all of its blocks run in order."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
            exec(block, found)  # noqa: S102 - our own text
    return found


def test_the_page_runs_as_it_stands(names):
    assert names["model"].n_rows_ == 398
    assert names["again"].predict(names["X"]).tobytes() == names["model"].predict(names["X"]).tobytes()


def test_a_map_without_draws_needs_two_methods(names):
    class Halves(names["FeatureMap"]):
        @property
        def n_out(self):
            return self.n_features_in_

        def map_block(self, scaled, unit=1.0):
            return scaled * (unit / 2)

    names["check_unlearning"](CodedRegressor(features=Halves(), random_state=0), names["X"][:40], names["y"][:40])


def bad(names, **methods):
    return type("Bad", (names["Hinges"],), methods)


def test_what_the_page_forbids_is_refused(names):
    X, y = names["X"], names["y"]

    def overwrite(self, scaled, unit=1.0):
        scaled *= unit
        return scaled

    for methods, error, message in (
        ({"map_block": lambda self, x, unit=1.0: np.full((len(x), self.n_out), 1.5 * unit)}, InvalidSetting, "to unit"),
        ({"map_block": lambda self, x, unit=1.0: np.full((len(x), self.n_out), np.nan)}, InvalidSetting, "to unit"),
        ({"map_block": lambda self, x, unit=1.0: x[:, :1] * unit}, InvalidSetting, r"of shape \(\d+, 24\), got"),
        ({"arrays": lambda self: {"thresholds": self.thresholds_ / 1024}}, InvalidSetting, "must return integers"),
        ({"map_block": overwrite}, ValueError, "read-only"),
    ):
        before = X.copy()
        with pytest.raises(error, match=message):
            CodedRegressor(features=bad(names, **methods)(8), bounds="unit", random_state=0).fit(X, y)
        np.testing.assert_array_equal(X, before)


def test_parameters_that_no_digest_could_hold_are_refused(names):
    class Choosing(names["Hinges"]):
        def __init__(self, count=8, choose=None, random_state=None):
            super().__init__(count, random_state=random_state)
            self.choose = choose

    fit = CodedRegressor(features=Choosing(2, choose=(1, "a", [None, 2.5])), random_state=0).fit
    assert fit(names["X"], names["y"]).digest()
    for choose in ({1, 2}, np.max, {"a": 1}):
        with pytest.raises(InvalidSetting, match="the parameter choose of Choosing must be a number"):
            CodedRegressor(features=Choosing(2, choose=choose)).fit(names["X"], names["y"])


def test_a_map_is_shown_copied_and_set_by_its_parameters(names):
    hinges = names["Hinges"](3)
    assert repr(hinges) == "Hinges(count=3)"
    assert hinges.get_params() == {"count": 3, "random_state": None}
    assert hinges.set_params(count=4).count == 4
    with pytest.raises(InvalidSetting, match="Hinges has no parameter 'degree'; it has count, random_state"):
        hinges.set_params(degree=2)
    drawn = hinges.draw_copy(2, np.random.default_rng(0))
    assert drawn is not hinges
    assert not hasattr(hinges, "thresholds_")
    assert repr(drawn.copy()) == "Hinges(count=4)"

    class Loose(names["Hinges"]):
        def __init__(self, *counts):
            pass

    with pytest.raises(InvalidSetting, match="Loose.__init__ must name its parameters"):
        Loose(1).get_params()
