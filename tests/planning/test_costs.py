"""Costs: counts of operations, which rise with the width and fall with the rate."""

import math
from itertools import pairwise

import numpy as np
import pytest

from expunge.encoding.codes import Code
from expunge.planning import finals
from expunge.planning.candidates import CODINGS, Coding, TableSize, max_width, predict_costs
from expunge.planning.column_scales import count_knot_bits
from expunge.planning.finals import Finals
from expunge.planning.planner import count_bits, count_line_bits
from expunge.planning.sample import Validation, draw_sample, hash_people
from expunge.planning.shapes import Shape


def costs(coding, width, rows=10_000, cosines=0):
    code = coding if isinstance(coding, Code) else coding.draw_code()
    return predict_costs(code, rows=rows, inputs=3, cosines=cosines, width=width)


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_costs_rise_with_the_width_and_the_rows(coding):
    some = [costs(coding, width) for width in (10, 100, 300, 1000)]
    for name in ("forget_ms", "train_s", "mb"):
        assert all(getattr(a, name) < getattr(b, name) for a, b in pairwise(some))
    more = costs(coding, 100, rows=20_000)
    assert (more.train_s > some[1].train_s, more.mb > some[1].mb) == (True, True)
    assert more.forget_ms == some[1].forget_ms


@pytest.mark.parametrize("time", [0.4, 1.0, 2.0, 5.0, 17.3, 100.0])
def test_the_widest_is_the_inverse_of_the_prediction(time):
    width = max_width(time)
    assert costs(Coding(1, 1), width).forget_ms <= time < costs(Coding(1, 1), width + 1).forget_ms


@pytest.mark.parametrize("rate", [2, 5, 10])
def test_a_code_cuts_the_products_by_its_rate(rate):
    def products(coding):
        return (costs(coding, 50, rows=2_000_000).train_s - costs(coding, 50, rows=1_000_000).train_s) / 1_000_000

    assert products(Coding(1, 1)) / products(Coding(rate, rate)) == pytest.approx(rate)
    assert products(Coding(4 * rate, rate)) == pytest.approx(products(Coding(rate, rate)))


def test_a_row_of_a_dense_code_feeds_every_learner():
    dense, sparse = Code(1 - 2 * np.eye(6, 3, dtype=np.int64)), Coding(6, 2)
    solve = costs(Coding(1, 1), 400).forget_ms - costs(Coding(1, 1), 1).forget_ms
    assert costs(dense, 400).forget_ms - costs(sparse, 400).forget_ms == pytest.approx(2 * solve, rel=1e-3)
    assert costs(dense, 400, cosines=100).train_s > costs(sparse, 400, cosines=100).train_s


def test_a_plan_counts_the_rows_that_will_be_trained_on(planned):
    for line in planned.table:
        columns = planned.best.features.scale.shape[-1] if line.cosines else 3
        width = line.cosines + columns + 2
        assert line.forget_ms == costs(Coding(line.shards, line.rate), width).forget_ms


def test_the_bits_of_a_plan_by_hand():
    # Linear or not, up to three kinds, penalties, numbers of cosines, codes, in which of the kinds inputs are mixed.
    settings = 2 * 6**3 * 14 * 8 * 6 * 3
    score = 2 * math.log2(660 * 10**4)  # four digits of the error, and of its spread
    scales, mixing = 9 * math.log2(54), 9 * math.log2(63)  # 53 powers of two, and 0; eighths between -4 and 4
    assert count_bits(3, [], 0) == pytest.approx(math.log2(settings) + score + scales + mixing)
    assert count_bits(3, [], 2) == count_bits(3, [], 0) + 2  # each of two targets on one of two scales
    which = math.log2(20 * 19 * 18 * 17 * 16 * 15 * 14 * 13 / math.factorial(8))  # twelve of twenty are mixed
    rest = math.log2(settings) + score
    assert count_bits(20, [], 0) == pytest.approx(rest + 60 * math.log2(54) + 144 * math.log2(63) + which)
    assert count_line_bits() == pytest.approx(score + math.log2(2 * 17 * 2))  # linear or not, penalties, outside
    assert count_bits(3, [[], [1.0, 2.0, 4.0]], 0) - count_bits(3, [], 0) == pytest.approx(
        1 + count_knot_bits([1.0, 2.0, 4.0])
    )


def test_a_plan_tells_as_many_bits_as_its_knots_have(planned):
    knots = [scale[1] for scale in planned.best.scales]
    assert planned.bits == pytest.approx(count_bits(6, knots, 1))


def test_a_table_that_is_too_wide_for_every_time_has_candidates(table, monkeypatch):
    X, y, _ = table
    monkeypatch.setattr(finals, "max_width", lambda time: int(time))
    ground = Validation.from_sample(
        draw_sample(X, y[:, None], hash_people(None, len(X), 0), max_rows=1000),
        bounds=None,
        target_bounds=None,
        scales=None,
    )
    made = Finals(ground, TableSize(300, 3, 300, 1), 0, 40, with_codes=False)
    monkeypatch.setattr(finals, "measure_forgetting", lambda ground, settings: 0.0)
    monkeypatch.setattr(Finals, "_choose_shape", lambda self, found: Shape.initial("gaussian", None, 3))
    assert [one.settings.features.n_features for one in made.run([], None, lambda share: None)] == [16]
