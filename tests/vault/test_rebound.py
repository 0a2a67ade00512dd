"""Other bounds: the model is the one that was trained with them, and what cannot be is refused and changes nothing."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidColumns, InvalidSetting
from expunge.vault import Schema, Vault
from expunge.vault.certificates.jws import unverified_payload

from support.oracle import Oracle, Request
from support.sampling import examples
from support.vaults import bits, everything, made, people, random_table, small, table, weights

COLUMNS = ("x0", "x1", "y")
ENDS = st.none() | st.tuples(st.sampled_from([-1.0, -1.5, -7e5]), st.sampled_from([1.0, 1.25, 9e7]))


def schema(bounds):
    """Columns of numbers with these bounds, or observed ones."""
    lines = ['id = "who"', 'target = "y"']
    for name in COLUMNS:
        ends = bounds.get(name)
        lines += [f"[columns.{name}]", 'kind = "number"', *([f"low = {ends[0]}", f"high = {ends[1]}"] if ends else [])]
    return Schema.parse("\n".join(lines))


# The model


@examples(30)
@given(
    first=st.dictionaries(st.sampled_from(COLUMNS), ENDS),
    then=st.lists(st.dictionaries(st.sampled_from(COLUMNS), ENDS, min_size=1), min_size=1, max_size=2),
    seed=st.integers(0, 9),
)
def test_a_vault_with_other_bounds_is_the_one_that_was_trained_with_them(tmp_path_factory, first, then, seed):
    """To the last bit of its integers and weights, and of what it keeps."""
    root, data, model = tmp_path_factory.mktemp("rebound"), random_table(people(), seed), small(random_state=seed)
    last = dict(first)
    vault = made(root / "v.vault", data, target=None, id=None, schema=schema(first), model=model)
    for bounds in then:
        receipt = vault.rebound(bounds)
        last |= bounds
        assert (receipt.kind, receipt.rows, receipt.people, receipt.learners) == ("rebound", 0, 0, 2)
        assert unverified_payload(receipt.certificate)["kind"] == "rebound"
    fresh = made(root / "w.vault", data, target=None, id=None, schema=schema(last), model=model)
    for one in (vault, Vault.open(root / "v.vault")):
        assert bits(one) == bits(fresh)
        assert one.predict(data).tobytes() == fresh.predict(data).tobytes()
        assert one.status().observed_bounds == fresh.status().observed_bounds
    assert vault.verify().ok
    with vault._lock_for_writing() as mine, fresh._lock_for_writing() as other:
        kept = [
            (writer.snapshot.schema, writer.folder.read(writer.snapshot.manifest.schema)) for writer in (mine, other)
        ]
        assert kept[0] == kept[1]
        archives = [writer.folder.read(writer.snapshot.manifest.blueprint) for writer in (mine, other)]
        assert len({len(archive) for archive in archives}) == 1
        assert np.array_equal(mine.snapshot.rows.live, other.snapshot.rows.live)


def test_what_comes_later_is_the_same_as_in_a_vault_that_had_these_bounds_from_the_beginning(tmp_path):
    bounds = {"x0": (-3.0, 4.0), "y": (-2.0, 2.0)}
    late = made(tmp_path / "v.vault", target=None, id=None, schema=schema({"x1": (-1, 1)}))
    late.rebound({"x1": None, **bounds})
    early = made(tmp_path / "w.vault", target=None, id=None, schema=schema(bounds))
    more = table(["a", "b"], [[3.9, 0.5], [-3.0, 8.0]], [2.0, -2.0])  # outside what was declared first
    for vault in (late, early):
        vault.unlearn(["person-1", "person-4"])
        vault.add(more)
        vault.rectify(random_table(["person-5"], seed=4))
        vault.readmit(["person-1"])
        assert vault.verify().ok
    assert bits(late) == bits(early)


@pytest.mark.parametrize("side", ["bounds", "target_bounds"])
def test_bounds_of_the_models_own_are_replaced_column_by_column(tmp_path, side):
    data = random_table(people())
    given = {"bounds": ([-1, -2], [1, 2])} if side == "bounds" else {"target_bounds": (-3, 3)}
    vault = made(tmp_path / "v.vault", data, model=small(**given))
    vault.rebound({"x1": (-4, 4), "y": None})
    wanted = {"bounds": ([-1 if side == "bounds" else None, -4], [1 if side == "bounds" else None, 4])}
    assert bits(vault) == bits(made(tmp_path / "w.vault", data, model=small(**wanted)))


def test_targets_get_other_bounds_each_for_itself(tmp_path):
    rng = np.random.default_rng(3)
    data = table(range(20), rng.random((20, 2)), rng.random((20, 2)))
    named = {"target": ["y0", "y1"], "model": small(target_bounds=([0, 0], [1, 1]))}
    vault = made(tmp_path / "v.vault", data, **named)
    vault.rebound({"y1": (-1, 2), "x0": (0, 2)})
    wanted = small(bounds=([0, None], [2, None]), target_bounds=([0, -1], [1, 2]))
    assert bits(vault) == bits(made(tmp_path / "w.vault", data, target=["y0", "y1"], model=wanted))


def test_bounds_that_were_observed_are_observed_again_and_move(vault, tmp_path):
    before = bits(vault)
    vault.rebound({"x0": (-5, 5), "x1": (-1, 1), "y": (-1, 1)})
    assert not vault.status().observed_bounds
    assert bits(vault) != before
    vault.rebound({"x0": None, "x1": None, "y": None})
    assert bits(vault) == before
    assert vault.add(table(["far"], [[50.0, 0.0]], [0.0])).learners == 2
    vault.unlearn(["far"])
    left = made(tmp_path / "w.vault")
    left.add(table(["far"], [[50.0, 0.0]], [0.0]))
    left.unlearn(["far"])
    assert bits(vault) == bits(left)


def test_the_same_bounds_again_change_nothing_but_are_a_request(vault):
    vault.rebound({"x0": (-2, 2)})
    before, answer = bits(vault), vault.predict(np.zeros((1, 2)))
    assert vault.rebound({"x0": ("-2", "2.0")}).request == 3
    assert (bits(vault), vault.predict(np.zeros((1, 2)))) == (before, answer)
    assert vault.verify().ok


def test_a_vault_of_which_everybody_left_gets_other_bounds(tmp_path):
    first = Request.drawn("train", 0, range(8))
    vault, oracle = made(tmp_path / "v.vault", first.table), Oracle.of(small()).after(first)
    for request in (
        Request("unlearn", tuple(range(8))),
        Request.rebound(x0=(0.0, 9.0), y=(-1.0, 1.0)),
        Request.drawn("add", 1, range(10, 18)),
    ):
        request.ask(vault)
        oracle = oracle.after(request)
        assert bits(Vault.open(tmp_path / "v.vault")) == bits(vault) == bits(oracle)
    assert vault.verify().ok


def test_only_the_new_schema_and_blueprint_are_left(vault):
    vault.rebound({"x0": (-2, 2)})
    vault.rebound({"x1": (-2, 2)})
    names = {path.name for path in vault.places.vault.iterdir()}
    assert {name for name in names if name.startswith(("schema", "blueprint"))} == {"schema.3", "blueprint.3"}
    assert {"rows.1.0", "live.1", "people.1.0"} <= names


def test_progress_is_told_up_to_all_rows(vault):
    told = []
    vault.rebound({"x0": (-2, 2)}, progress=lambda *what: told.append(what))
    assert {(what, of) for what, _, of in told} == {("learning", 60)}  # once for the observed bounds
    assert sum(rows for _, rows, _ in told) == 60


# What bounds may be

MIXED = """
id = "who"
target = ["y", "paid"]
[columns.x0]
kind = "number"
low = -1
high = 1
fill = 0.5
[columns.day]
kind = "date"
low = 2020-01-01
high = 2029-12-31
[columns.city]
kind = "category"
values = ["Berlin", "Paris"]
[columns.member]
kind = "boolean"
[columns.note]
kind = "ignore"
[columns.y]
kind = "number"
[columns.paid]
kind = "boolean"
"""


def mixed(n=12):
    rng = np.random.default_rng(1)
    days = [date(2024, 1, 1) + timedelta(days=100 * k) for k in range(n)]
    return pa.table(
        {
            "who": [f"person-{k}" for k in range(n)],
            "x0": rng.uniform(-0.9, 0.9, n),
            "day": pa.array(days),
            "city": ["Berlin", "Paris", "Rome"] * (n // 3),
            "member": [True, False] * (n // 2),
            "note": ["secret"] * n,
            "y": rng.uniform(-1, 1, n),
            "paid": [False, True] * (n // 2),
        }
    )


@pytest.fixture
def every_kind(tmp_path):
    return made(tmp_path / "v.vault", mixed(), target=None, id=None, schema=Schema.parse(MIXED))


LOW, HIGH = datetime(2024, 1, 1), datetime(2027, 6, 30, 12)
DATES = {
    "text": ("2024-01-01", "2027-06-30T12:00:00"),
    "dates": (date(2024, 1, 1), HIGH),
    "times": (LOW, HIGH),
    "times elsewhere": (
        datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        HIGH.replace(tzinfo=UTC),
    ),
    "text elsewhere": ("2024-01-01T02:00:00+02:00", "2027-06-30T12:00Z"),
    "numpy": (np.datetime64("2024-01-01"), np.datetime64("2027-06-30T12:00:00")),
}


@pytest.mark.parametrize("form", DATES)
def test_dates_are_given_in_any_form(every_kind, tmp_path, form):
    every_kind.rebound({"day": DATES[form]})
    other = MIXED.replace("2020-01-01", "2024-01-01").replace("2029-12-31", "2027-06-30T12:00:00")
    expected = made(tmp_path / "w.vault", mixed(), target=None, id=None, schema=Schema.parse(other))
    assert bits(every_kind) == bits(expected)
    assert every_kind.verify().ok


NUMBERS = {
    "whole": (-2, 3),
    "floats": (-2.0, 3.0),
    "numpy": (np.float64(-2), np.int32(3)),
    "text": ("-2", "3e0"),
    "a list": [-2, 3],
    "an array": np.array([-2.0, 3.0]),
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_are_given_in_any_form(vault, tmp_path, form):
    vault.rebound({"x0": NUMBERS[form]})
    assert bits(vault) == bits(made(tmp_path / "w.vault", model=small(bounds=([-2, None], [3, None]))))
    assert bits(Vault.open(vault.places.vault)) == bits(vault)


BAD = {
    "nothing": ({}, "name at least one column"),
    "no mapping": ([("x0", (0, 1))], "name at least one column"),
    "an unknown column": ({"x9": (0, 1)}, "no column 'x9' is declared"),
    "a column that is no text": ({0: (0, 1)}, "no column 0 is declared"),
    "the ids": ({"who": (0, 1)}, "no column 'who' is declared"),
    "an input of a category": ({"city=Berlin": (0, 1)}, "no column 'city=Berlin' is declared"),
    "a category": ({"city": (0, 1)}, "'city' is of kind 'category'"),
    "a boolean": ({"member": None}, "'member' is of kind 'boolean'"),
    "a target that is a boolean": ({"paid": (0, 1)}, "'paid' is of kind 'boolean'"),
    "a column that is left out": ({"note": None}, "'note' is of kind 'ignore'"),
    "reversed": ({"x0": (2, -2)}, "column 'x0': low must not be above high"),
    "reversed dates": ({"day": ("2029-01-01", "2020-01-01")}, "column 'day': low must not be above high"),
    "NaN": ({"x0": (float("nan"), 1)}, "column 'x0': low must be a finite number"),
    "NaN for both": ({"x0": (float("nan"), float("nan"))}, "column 'x0': low must be a finite number"),
    "infinite": ({"y": (-1, float("inf"))}, "column 'y': high must be a finite number"),
    "infinite as text": ({"y": ("-inf", "inf")}, "column 'y': low must be a finite number"),
    "too large": ({"y": (-1, 10**400)}, "column 'y': high must be a finite number"),
    "too far apart": ({"y": (-1.7e308, 1.7e308)}, "column 'y': high - low must be finite"),
    "one is missing": ({"x0": (None, 1)}, "the bounds of column 'x0' must be numbers"),
    "one is empty": ({"x0": ("", "1")}, "the bounds of column 'x0' must be numbers"),
    "both are empty": ({"x0": ("", "")}, "the bounds of column 'x0' must be numbers"),
    "text that is no number": ({"x0": ("a", "b")}, "the bounds of column 'x0' must be numbers, got 'a' and 'b'"),
    "booleans": ({"x0": (False, True)}, "the bounds of column 'x0' must be numbers"),
    "dates for numbers": ({"x0": (date(2020, 1, 1), date(2021, 1, 1))}, "'x0' must be numbers, got '2020-01-01'"),
    "numbers for dates": ({"day": (0, 1)}, "the bounds of column 'day' must be dates like 2024-12-31"),
    "text that is no date": ({"day": ("2024-13-01", "2025-01-01")}, "'day' must be dates like 2024-12-31"),
    "a date before all dates": ({"day": ("0001-01-01T00:00:00+10:00", "2029-12-31")}, "column 'day'"),
    "one number": ({"x0": 3}, "bounds of 'x0' must be a pair"),
    "three": ({"x0": (0, 1, 2)}, "bounds of 'x0' must be a pair"),
    "a text of two letters": ({"x0": "05"}, "bounds of 'x0' must be a pair"),
    "a set": ({"x0": {-2, 2}}, "bounds of 'x0' must be a pair"),
    "a fill outside": ({"x0": (-1, 0.25)}, "column 'x0': fill must be between low and high"),
    "one of two is wrong": ({"y": (-2, 2), "x9": None}, "no column 'x9' is declared"),
}


@pytest.mark.parametrize("what", BAD)
def test_bounds_that_cannot_be_are_refused_and_change_nothing(every_kind, what):
    bounds, message = BAD[what]
    path = every_kind.places.vault
    before, answers = everything(path), every_kind.predict(mixed())
    with pytest.raises(InvalidSetting) as caught:
        every_kind.rebound(bounds)
    assert message in str(caught.value)
    assert everything(path) == before
    assert every_kind.predict(mixed()).tobytes() == answers.tobytes()
    assert every_kind.unlearn(["person-1"]).request == 2


@pytest.mark.parametrize(
    ("bounds", "counts"),
    [
        ({"x0": (0.0, 0.5)}, {"column 'x0'": (0, (0.0, 0.5))}),
        ({"x0": (-1, 1), "y": (-0.5, 0.5)}, {"column 'y'": (2, (-0.5, 0.5))}),
        ({"x0": (0, 0), "y": (0, 0)}, {"column 'x0'": (0, (0, 0)), "column 'y'": (2, (0, 0))}),
    ],
    ids=["an input", "the target", "both"],
)
def test_rows_outside_are_counted_in_the_whole_vault_and_nothing_changes(tmp_path, monkeypatch, bounds, counts):
    vault, data = made(tmp_path / "v.vault"), random_table(people())
    vault.unlearn(["person-1", "person-2"])
    rows = [row for row in data.to_pylist() if row["who"] not in ("person-1", "person-2")]
    values = np.array([[row[name] for name in COLUMNS] for row in rows])
    before = everything(vault.places.vault)
    with monkeypatch.context() as patch:  # many blocks
        patch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", 10)
        with pytest.raises(InvalidColumns) as caught:
            vault.rebound(bounds)
    expected = {
        place: int(((values[:, j] < low) | (values[:, j] > high)).sum()) for place, (j, (low, high)) in counts.items()
    }
    assert (caught.value.counts, caught.value.rows, caught.value.complete) == (expected, len(rows), True)
    assert everything(vault.places.vault) == before
    assert vault.verify().ok
    assert vault.rebound({"x0": (-1, 1), "y": (-1, 1)}).request == 3


def test_a_row_on_a_bound_is_inside(tmp_path):
    data = table(range(8), [[k / 3, -k / 7] for k in range(8)], [k / 11 for k in range(8)])
    vault = made(tmp_path / "v.vault", data)
    bounds = {name: (min(data[name].to_pylist()), max(data[name].to_pylist())) for name in COLUMNS}
    before = weights(vault)
    vault.rebound(bounds)  # those that were observed
    assert weights(vault) == before
    assert not vault.status().observed_bounds


def test_values_that_are_taken_as_they_are_have_no_other_bounds(tmp_path):
    vault = made(tmp_path / "v.vault", model=small(bounds="unit"))
    before = everything(tmp_path / "v.vault")
    for bounds in ({"x0": (-1, 1)}, {"x1": None}, {"y": (-1, 1), "x0": (-1, 1)}):
        with pytest.raises(InvalidSetting, match="bounds='unit'"):
            vault.rebound(bounds)
    assert everything(tmp_path / "v.vault") == before
    vault.rebound({"y": (-2, 2)})
    assert bits(vault) == bits(made(tmp_path / "w.vault", model=small(bounds="unit", target_bounds=(-2, 2))))


def test_clipped_values_stay_clipped_and_a_vault_that_clips_refuses_narrower_bounds_too(tmp_path):
    vault = made(tmp_path / "v.vault", model=small(bounds=(-0.5, 0.5), clip=True))
    with pytest.raises(InvalidColumns, match="rows outside these bounds"):
        vault.rebound({"x0": (-0.25, 0.25)})
    vault.rebound({"x0": (-1, 1), "x1": (-1, 1)})
    data = random_table(people())
    clipped = {name: np.clip(data[name].to_numpy(), -0.5, 0.5) for name in ("x0", "x1")}
    expected = table(people(), np.column_stack([clipped["x0"], clipped["x1"]]), data["y"].to_numpy())
    assert bits(vault) == bits(made(tmp_path / "w.vault", expected, model=small(bounds=(-1, 1), clip=True)))


def test_whoever_stops_a_rebound_has_changed_nothing(vault):
    before = everything(vault.places.vault)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vault.rebound({"x0": (-2, 2)}, progress=stop)
    assert everything(vault.places.vault) == before
    assert vault.rebound({"x0": (-2, 2)}).request == 2
    assert vault.verify().ok
