"""Large JSON is read and written as `json` reads and writes it, in steps."""

import gc
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.server import bodies
from expunge.server.bodies import format_numbers, load_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=30,
)


def read(text):
    def refuse(name):
        raise ValueError(name)

    return load_json(text, parse_constant=refuse, object_pairs_hook=dict)


@pytest.fixture(autouse=True, params=[4, 16])
def in_small_steps(request, monkeypatch):
    monkeypatch.setattr(bodies, "_MAX_STEP_CHARS", request.param)
    monkeypatch.setattr(bodies, "_SINGLE_MEMBERS", 2)
    monkeypatch.setattr(bodies, "_NUMBERS_PER_STEP", 3)


@given(values, st.sampled_from([None, 0, 2]))
def test_values_are_those_of_json(value, indent):
    assert read(json.dumps(value, indent=indent)) == value
    assert read(f" \t\n{json.dumps(value, ensure_ascii=False)}\r ") == value


@given(values, st.data())
def test_texts_are_refused_that_json_refuses(value, data):
    text = list(json.dumps(value) + " " * 5)
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from(list('[]{},:"0a\\ \n')))
    broken = "".join(text)
    try:
        expected = json.loads(broken)
    except ValueError:
        with pytest.raises(ValueError):
            read(broken)
    else:
        assert read(broken) == expected


@pytest.mark.parametrize(
    "text", ["[" * 5000, "[1, 2, NaN]", '{"a": 1,}     ', "[1 2]      ", "      ", "[1],      2", '{1: 2, "": 3}']
)
def test_these_are_refused(text):
    with pytest.raises((ValueError, RecursionError)):
        read(text)


@given(st.lists(st.floats(), max_size=20))
def test_numbers_are_written_as_they_are_and_others_as_null(given_):
    found = json.loads(format_numbers(np.array(given_, dtype=np.float64)))
    assert found == [value if np.isfinite(value) else None for value in given_]
    assert json.loads(format_numbers(np.array(given_, dtype=np.float64).reshape(-1, 1))) == [[value] for value in found]


def test_the_collector_is_off_while_a_large_body_is_worked_on_and_on_again_after_the_last():
    with bodies.without_collector(3):
        assert gc.isenabled()
    with pytest.raises(ValueError), bodies.without_collector(10**6):
        with bodies.without_collector(10**6):
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()
