"""The lower bounds of the dependencies are those that `make lowest` installs."""

import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def _required():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, build = settings["project"], settings["build-system"]["requires"]
    for text in chain(build, project["dependencies"], *project["optional-dependencies"].values()):
        if (requirement := Requirement(text)).name != project["name"]:
            yield requirement


def _pinned(name):
    lines = (ROOT / name).read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(package): Version(version) for package, version in pairs}


def test_every_lower_bound_is_pinned_where_make_lowest_reads_it():
    bounds = {}
    for requirement in _required():
        (only,) = requirement.specifier
        assert only.operator == ">=", requirement
        bounds[canonicalize_name(requirement.name)] = Version(only.version)
    assert bounds == _pinned("constraints-lowest.txt")


def test_no_lower_bound_is_above_what_make_test_installs():
    newest = _pinned("constraints.txt")
    assert {name for name, least in _pinned("constraints-lowest.txt").items() if least > newest[name]} == set()
