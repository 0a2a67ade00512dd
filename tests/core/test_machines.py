"""The digest is the same on every machine: compared with a recorded one, and on simulated machines."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from expunge.encoding.placement import draw_slots

from support import golden

GOLDEN = json.loads(golden.PATH.read_text())


def test_the_golden_digests_are_reproduced():
    assert golden.digests() == GOLDEN["digests"]


def test_the_golden_slots_are_reproduced():
    slots = draw_slots(np.array(GOLDEN["key"], dtype=np.uint64), 0, len(GOLDEN["slots"]), len(GOLDEN["G"]))
    assert slots.tolist() == GOLDEN["slots"]


OTHER_MACHINES = [
    {"OPENBLAS_CORETYPE": "Nehalem"},
    {"OPENBLAS_CORETYPE": "Sandybridge"},
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "SkylakeX"},
    {"NPY_DISABLE_CPU_FEATURES": " ".join(np.show_config(mode="dicts")["SIMD Extensions"]["found"])},
    {"OPENBLAS_NUM_THREADS": "1"},
    {"OPENBLAS_NUM_THREADS": "2"},
]


@pytest.mark.slow
@pytest.mark.parametrize("machine", OTHER_MACHINES, ids=lambda machine: "=".join(*machine.items()))
def test_another_machine_computes_the_same_digests(machine):
    program = Path(golden.__file__)
    done = subprocess.run([sys.executable, program], env=os.environ | machine, capture_output=True, text=True)
    if done.returncode == -signal.SIGILL:
        pytest.skip("this processor lacks the instructions of the one to be pretended")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == GOLDEN["digests"]
