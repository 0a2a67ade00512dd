"""Code that only reads a model's files loads none of the large packages."""

import importlib
import subprocess
import sys

import pytest

import expunge

HEAVY = ("sklearn", "scipy", "pandas", "pyarrow", "threadpoolctl", "joblib")

DRAWING = """
from expunge.learning.settings import Settings
from expunge.learning.blueprint import draw_blueprint
from expunge.encoding.fourier import RandomFourierMap
draw_blueprint(Settings(features=RandomFourierMap(5)), 3, 1)
"""


def loaded_by(program):
    """Return the large packages that a fresh interpreter has loaded after a program."""
    script = f"{program}\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return answer.stdout.split()


@pytest.mark.parametrize(
    "program",
    [
        "import expunge",
        "import expunge.exact.moments, expunge.exact.ridge, expunge.exact.threads",
        "import expunge.learning.state, expunge.saving.format",
        "from expunge import Bounds, Code, ExpungeError, FeatureMap, random_code; random_code(6, 3, random_state=0)",
        DRAWING,
    ],
)
def test_the_rooms_below_the_face_load_nothing_large(program):
    assert loaded_by(program) == []


def test_a_first_solve_loads_what_it_needs_and_no_more():
    program = (
        "import numpy as np\n"
        "from expunge.exact.moments import Moments, Tally\n"
        "from expunge.exact.ridge import ridge_weights\n"
        "tally = Tally(3)\n"
        "tally.add(np.eye(3) * 2**20, 3)\n"
        "ridge_weights(Moments.from_tallies(tally), bits=20, targets=1, alpha=1.0, intercept=False)"
    )
    assert set(loaded_by(program)) == {"scipy", "threadpoolctl"}


def test_every_blas_is_held_to_one_thread_also_by_who_comes_first():
    """SciPy's own library must be loaded before libraries are looked up, or it would be missed for ever."""
    program = (
        "from expunge.exact.threads import one_blas_thread\n"
        "with one_blas_thread():\n"
        "    import scipy.linalg, threadpoolctl\n"
        "    found = [l['num_threads'] for l in threadpoolctl.threadpool_info() if l['user_api'] == 'blas']\n"
        "    assert found and set(found) == {1}, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_name_at_the_top_is_there_and_is_listed():
    for name in expunge.__all__:
        assert name in dir(expunge)
        home = importlib.import_module(f"expunge.{expunge._HOMES[name]}")
        assert getattr(expunge, name) is getattr(home, name)
    assert sorted(expunge._HOMES) == sorted(expunge.__all__)
    with pytest.raises(AttributeError, match="module 'expunge' has no attribute 'Nothing'"):
        _ = expunge.Nothing
