"""Schemas: what is declared is what is kept, and a stored schema has one form."""

import math
import re
from dataclasses import fields
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from expunge.errors import InvalidFile, InvalidSetting
from expunge.tables.cells import encode_batch
from expunge.tables.kinds import Boolean, Category, Date, Ignore, Number
from expunge.tables.proposal import draft
from expunge.tables.reader import read_blocks
from expunge.tables.schema import Schema

from support.sampling import examples

DOCS = Path(__file__).parents[2] / "docs" / "schema.md"
EPOCH = datetime(1970, 1, 1)
Y = '[columns.y]\nkind = "number"\n'
X = '[columns.x]\nkind = "number"\n'


def one(keys, *, more=""):
    """A schema of one input, x."""
    return Schema.parse(f'target = "y"\n{Y}\n[columns.x]\n{keys}\n{more}')


# What a schema says


def test_the_example_in_the_docs_makes_what_the_docs_say(tmp_path):
    draft, table = re.search(r"```toml\n(.*?)```.*?```csv\n(.*?)```", DOCS.read_text(), re.DOTALL).groups()
    (tmp_path / "customers.csv").write_text(table)
    (tmp_path / "schema.toml").write_text(draft, encoding="utf-8-sig")  # as some editors save it
    schema = Schema.load(tmp_path / "schema.toml")
    assert schema == Schema.parse(draft)
    assert (schema.id, schema.targets) == ("customer_id", ("spend",))
    assert schema.inputs == ("age", "income", "discount", "newsletter", "joined", "city=Berlin", "city=Paris")
    low, high = schema.bounds()
    np.testing.assert_array_equal(low, [0, 0, np.nan, 0, (datetime(2015, 1, 1) - EPOCH).days, 0, 0])
    np.testing.assert_array_equal(high, [120, 1e6, np.nan, 1, (datetime(2030, 1, 1) - EPOCH).days, 1, 1])
    assert schema.scales() == [["linear", [0, 18, 40, 65, 120]], "log", *["linear"] * 5]
    assert [side.tolist() for side in schema.target_bounds()] == [[0], [5000]]
    (block,) = read_blocks(tmp_path / "customers.csv", schema, targets=True, ids=True)
    days = [
        (t - EPOCH) / timedelta(days=1)
        for t in (datetime(2019, 5, 1), datetime(2024, 2, 29, 18), datetime(2021, 12, 31))
    ]
    expected = [[34, 41e3, 0.1, 1, days[0], 1, 0], [40, 3e4, 0, 0, days[1], 0, 0], [51, 2.5e6, 0.25, 0, days[2], 0, 0]]
    np.testing.assert_array_equal(block.X, expected)
    assert schema.clip(block.X)[:, 1].tolist() == [41e3, 3e4, 1e6]
    assert (block.y.tolist(), block.ids) == ([[120.5], [80], [0]], [b"007", b"4711", b"4712"])


def test_the_kinds_in_the_docs_are_the_kinds_there_are():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*)\|$", DOCS.read_text(), re.MULTILINE)
    keys = {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows}
    kinds = {kind.kind: {field.name for field in fields(kind)} for kind in (Number, Boolean, Date, Category, Ignore)}
    assert keys == kinds


def test_targets_come_in_the_order_of_the_schema_and_booleans_are_bounded():
    schema = Schema.parse(f'target = ["won", "y"]\n{Y}{X}[columns.won]\nkind = "boolean"\n')
    batch = pa.record_batch({"y": [5.0, -0.0], "x": [1, 2], "won": [True, False]})
    X_, y = encode_batch(schema, batch, targets=True)
    assert (X_.tolist(), y.tolist()) == ([[1], [2]], [[1, 5], [0, 0]])
    np.testing.assert_array_equal(schema.target_bounds(), [[0, np.nan], [1, np.nan]])
    assert schema.inputs == ("x",)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("target = ", "schema: Invalid value"),
        ("target = " + "1" * 5000, "schema: "),
        (f'target = "y"\nids = "i"\n{Y}{X}', "unknown keys 'ids'; a schema has id, target"),
        (f"{Y}{X}", "target must be the name"),
        (f"target = 5\n{Y}{X}", "target must be the name"),
        (f"target = []\n{Y}{X}", "target must be the name"),
        (f"target = [5]\n{Y}{X}", "target must be the name"),
        (f'target = ["y", "y"]\n{Y}{X}', "list of different names"),
        (f'target = "z"\n{Y}{X}', r"target 'z' must be declared under \[columns\]"),
        ('target = "y"', "no columns; declare each"),
        ('target = "y"\ncolumns = 5', "no columns; declare each"),
        (f'target = "y"\nid = "x"\n{Y}{X}', r"id must be .* not declared under \[columns\]"),
        (f'target = "y"\nid = 5\n{Y}{X}', "id must be the name"),
        (f'target = "y"\n{Y}', "there are no inputs"),
        (f'target = "y"\n{Y}[columns.x]\nkind = "ignore"', "there are no inputs"),
        (f'target = "y"\n{X}[columns.y]\nkind = "date"', "target 'y' must be .* a number or a boolean"),
        (f'target = "y"\n{X}[columns.y]\nkind = "number"\nfill = 1', "target 'y' must have no fill"),
        (
            f'target = "y"\n{X}[columns.y]\nkind = "number"\nscale = [0, 1]',
            "the scale of target 'y' must be 'linear' or 'log'",
        ),
        (f'target = "y"\n{Y}[columns]\nx = 5', "schema: Cannot declare|column 'x': kind must be one of"),
        (f'target = "y"\ncolumns.x = 5\n{Y}', "column 'x': kind must be one of 'number', 'boolean'|Invalid|Cannot"),
        (
            f'target = "y"\n{Y}[columns.c]\nkind = "category"\nvalues = ["a"]\n[columns."c=a"]\nkind = "number"',
            "different names; duplicates: 'c=a'",
        ),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(text, match):
    with pytest.raises(InvalidSetting, match=match):
        Schema.parse(text)


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ("", "kind must be one of 'number', 'boolean', 'date', 'category', 'ignore'"),
        ("kind = 5", "kind must be one of"),
        ('kind = "text"', "kind must be one of"),
        ('kind = "number"\nvalues = [1]', "unknown keys 'values'; kind 'number' takes"),
        ('kind = "ignore"\nfill = 1', "unknown keys 'fill'"),
        ('kind = "number"\nlow = 1', "low and high belong together"),
        ('kind = "number"\nlow = 1\nhigh = 0', "low must not be above high, got low = 1.0, high = 0.0"),
        (
            'kind = "number"\nlow = 1\nhigh = 2\nfill = 3',
            "fill must be between low and high, got fill = 3.0, low = 1.0, high = 2.0",
        ),
        ('kind = "number"\nfill = inf', "fill must be a finite number"),
        ('kind = "number"\nfill = nan', "fill must be a finite number"),
        ('kind = "number"\nfill = true', "fill must be a finite number, got True"),
        ('kind = "number"\nfill = "1"', "fill must be a finite number"),
        (f'kind = "number"\nfill = {10**400}', "fill must be a finite number"),
        ('kind = "number"\nlow = -1.7e308\nhigh = 1.7e308', "high - low must be finite"),
        (
            'kind = "number"\nscale = "cubic"',
            'scale must be "linear" or "log", a list of knots, or a list of these, got',
        ),
        ('kind = "number"\nscale = 5', "scale must be .* got 5"),
        ('kind = "number"\nscale = []', "scale must have 2 to 256 knots"),
        ('kind = "number"\nscale = [1]', "scale must have 2 to 256 knots"),
        ('kind = "number"\nscale = [1, 2, 2]', "scale must have .* each above the one before"),
        ('kind = "number"\nscale = [2, 1]', "scale must have .* each above the one before"),
        (f'kind = "number"\nscale = {list(range(257))}', "scale must have 2 to 256 knots"),
        ('kind = "number"\nscale = [1, nan]', "every knot of scale must be a finite number, got nan"),
        ('kind = "number"\nscale = [1, true]', "every knot of scale must be a finite number, got True"),
        ('kind = "number"\nscale = [0, "log"]', "scale must be .* got 0"),
        ('kind = "number"\nscale = ["linear", ["log", "log"]]', "every knot of scale must be a finite number"),
        ('kind = "number"\nscale = ["log", "linear", "log"]', "scale must not give an input twice on the same scale"),
        (
            'kind = "number"\nscale = [[0, 1], "log", [0.0, 1.0]]',
            "scale must not give an input twice on the same scale",
        ),
        ('kind = "number"\nscale = [-1.7e308, 1.7e308]', "the knots of scale must not be too far apart"),
        ('kind = "number"\ngaps = "?"', 'gaps must be a list of texts without blanks around them, .* or "text"'),
        ('kind = "number"\ngaps = [1]', "gaps must be a list of texts"),
        ('kind = "number"\ngaps = [""]', "gaps must be a list of texts"),
        ('kind = "number"\ngaps = ["? "]', "gaps must be a list of texts without blanks"),
        ('kind = "number"\ngaps = ["?", "-", "?"]', r"gaps must differ; duplicates: '\?'"),
        ('kind = "number"\nlow = 0\nhigh = 1\nclip = 1', "clip must be true or false, got 1"),
        ('kind = "number"\nclip = true', "clip moves values to the bounds: declare low and high"),
        ('kind = "date"\nclip = true', "clip moves values to the bounds: declare low and high"),
        ('kind = "date"\nscale = "log"', "scale must be \"linear\", a list of knots, or a list of these, got 'log'"),
        ('kind = "date"\nscale = [1, 2]', "every knot of scale must be a date without quotes"),
        ('kind = "date"\nscale = [2024-01-01, 2024-01-01T00:00:00]', "scale must have .* each above the one before"),
        ('kind = "date"\ngaps = ["?"]', "unknown keys 'gaps'; kind 'date' takes"),
        ('kind = "boolean"\nscale = "log"', "unknown keys 'scale'"),
        ('kind = "category"\nvalues = ["a"]\nscale = "log"', "unknown keys 'scale'"),
        ('kind = "boolean"\nfill = 1', "fill must be true or false, got 1"),
        ('kind = "date"\nfill = 5', "fill must be a date without quotes, like 2024-12-31"),
        ('kind = "date"\nfill = "2024-12-31"', "fill must be a date without quotes"),
        ('kind = "date"\nfill = 10:00:00', "fill must be a date without quotes"),
        ('kind = "date"\nlow = 2024-01-01\nhigh = 2023-01-01', "low must not be above high"),
        ('kind = "date"\nlow = 2024-01-01\nhigh = 2024-01-01\nfill = 2024-01-01T00:00:01', "fill must be between"),
        ('kind = "category"', "values must be a list of texts"),
        ('kind = "category"\nvalues = []', "values must be a list of texts"),
        ('kind = "category"\nvalues = "a"', "values must be a list of texts"),
        ('kind = "category"\nvalues = [1]', "values must be a list of texts"),
        ('kind = "category"\nvalues = [""]', "values must be a list of texts"),
        ('kind = "category"\nvalues = ["a", "b", "a"]', "values must differ; duplicates: 'a'"),
        ('kind = "category"\nvalues = ["a", "other"]', "values must not contain 'other'"),
        ('kind = "category"\nvalues = ["a"]\nfill = "b"', "fill must be one of the values or 'other'"),
        ('kind = "category"\nvalues = ["a"]\nfill = 1', "fill must be one of the values or 'other'"),
    ],
)
def test_a_column_that_cannot_be_is_refused_by_name(keys, match):
    with pytest.raises(InvalidSetting, match=f"schema: column 'x': {match}"):
        one(keys)


def test_a_date_that_leaves_the_calendar_is_refused():
    with pytest.raises(InvalidSetting, match="schema: "):
        one('kind = "date"\nfill = 0001-01-01T00:00:00+05:00')


def test_a_schema_that_cannot_be_read_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidSetting, match="schema.toml cannot be read"):
        Schema.load(tmp_path / "schema.toml")
    (tmp_path / "schema.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidSetting, match="schema.toml cannot be read"):
        Schema.load(str(tmp_path / "schema.toml"))
    (tmp_path / "schema.toml").write_text("target = 5")
    with pytest.raises(InvalidSetting, match="schema.toml: no columns"):
        Schema.load(tmp_path / "schema.toml")


# Scales, and values outside the bounds


@pytest.mark.parametrize(
    ("written", "scales"),
    [
        ('"linear"', "linear"),
        ('["linear"]', "linear"),
        ('"log"', "log"),
        ("[0, 1, 5.5]", [0.0, 1.0, 5.5]),
        ("[[0, 1, 5.5]]", [0.0, 1.0, 5.5]),
        ('["linear", [0, 1, 5.5]]', ["linear", [0.0, 1.0, 5.5]]),
        ('[[-0.0, 1], "log", [0, 2]]', [[0.0, 1.0], "log", [0.0, 2.0]]),
    ],
)
def test_scales_are_what_a_model_takes_and_have_one_form(written, scales):
    schema = one(f'kind = "number"\nscale = {written}')
    assert schema.scales() == [scales]
    assert Schema.from_json(schema.to_json()) == schema
    again = dict(Schema.parse(toml_of(schema)).columns)["x"]
    assert again == dict(schema.columns)["x"]


@pytest.mark.parametrize("kind", ["number", "date"])
def test_a_schema_remembers_that_a_scale_is_said_to_be_linear(kind):
    said, unsaid = one(f'kind = "{kind}"\nscale = "linear"'), one(f'kind = "{kind}"')
    assert said.scales() == unsaid.scales() == ["linear"]
    assert (said.declared_scales(), unsaid.declared_scales()) == (["linear"], [None])
    assert 'scale = "linear"' in toml_of(said)
    assert Schema.parse(toml_of(said)) == Schema.from_json(said.to_json()) == said != unsaid
    assert said == one(f'kind = "{kind}"\nscale = ["linear"]')
    assert "scale" not in unsaid.to_json()


def test_a_target_may_be_said_to_be_linear():
    schema = Schema.parse(f'target = "y"\n{X}[columns.y]\nkind = "number"\nscale = "linear"')
    assert Schema.from_json(schema.to_json()) == schema


def test_every_input_has_a_scale_and_knots_of_dates_are_days():
    schema = Schema.parse(
        f"""target = "y"\n{Y}[columns.c]\nkind = "category"\nvalues = ["a", "b"]\n[columns.b]\nkind = "boolean"
        [columns.x]\nkind = "number"\nscale = "log"
        [columns.d]\nkind = "date"\nscale = ["linear", [1970-01-02, 1970-01-03T12:00:00]]"""
    )
    assert schema.inputs == ("c=a", "c=b", "b", "x", "d")
    assert schema.scales() == ["linear", "linear", "linear", "log", ["linear", [1.0, 2.5]]]
    assert Schema.from_json(schema.to_json()) == schema


def test_values_outside_are_moved_to_the_bounds_of_columns_that_say_so_and_of_no_others():
    ends = "low = 0\nhigh = 1\n"
    day = 'kind = "date"\nlow = 1970-01-01\nhigh = 1970-01-11\nclip = true\n'
    schema = one(f'kind = "number"\n{ends}clip = true', more=f'[columns.z]\nkind = "number"\n{ends}[columns.d]\n{day}')
    X_ = np.array([[-1.0, -1.0, -1.0], [0.5, 0.5, 5.0], [2.0, 2.0, 20.0]])
    assert schema.clip(X_).tolist() == [[0, -1, 0], [0.5, 0.5, 5], [1, 2, 10]]
    assert X_[0, 0] == -1
    plain = one(f'kind = "number"\n{ends}clip = false')
    assert plain.clip(X_[:, :1]).tolist() == X_[:, :1].tolist()
    assert plain == one(f'kind = "number"\n{ends}')


# Other bounds

BOUNDED = Schema.parse("""
id = "i"
target = ["y", "won"]
[columns.y]
kind = "number"
[columns.won]
kind = "boolean"
[columns.age]
kind = "number"
low = 0
high = 120
fill = 40
scale = ["linear", [0, 18, 65]]
gaps = ["?"]
clip = true
[columns.joined]
kind = "date"
low = 2015-01-01
high = 2030-01-01
scale = [2015-01-01, 2020-01-01, 2030-01-01]
[columns.city]
kind = "category"
values = ["Ulm"]
[columns.note]
kind = "ignore"
""")


def test_new_bounds_replace_the_old_ones_and_nothing_else():
    schema = BOUNDED.with_bounds({"age": (-0.0, np.float64(130)), "y": [1, np.int64(5)], "joined": None})
    assert schema.inputs == BOUNDED.inputs
    assert (schema.id, schema.targets) == (BOUNDED.id, BOUNDED.targets)
    assert schema == Schema.parse(
        re.sub(r"low = 2015.*\nhigh = 2030.*\n", "", toml_of(BOUNDED))
        .replace("high = 120", "high = 130")
        .replace('[columns.y]\nkind = "number"', '[columns.y]\nkind = "number"\nlow = 1\nhigh = 5')
    )
    assert BOUNDED.with_bounds({}) == BOUNDED
    assert schema.scales() == BOUNDED.scales()
    observed = dict(BOUNDED.with_bounds({"age": None}).columns)["age"]
    assert observed == Number(fill=40, scale=["linear", [0, 18, 65]], gaps=["?"])  # nothing to clip to
    assert schema.with_bounds(
        {"age": (0, 120), "y": (None, None), "joined": (date(2015, 1, 1), datetime(2030, 1, 1))}
    ) == (BOUNDED)


def toml_of(schema):
    return "\n".join(draft.schema_lines(schema, dict.fromkeys(dict(schema.columns), "")))


@pytest.mark.parametrize(
    ("bounds", "match"),
    [
        ({"weight": (0, 1)}, "no column 'weight' is declared"),
        ({"i": (0, 1)}, "no column 'i' is declared"),
        ({"won": (0, 1)}, "column 'won' is of kind 'boolean'; only numbers and dates have bounds"),
        ({"city": None}, "column 'city' is of kind 'category'"),
        ({"note": None}, "column 'note' is of kind 'ignore'"),
        ({"age": (50, 20)}, "column 'age': low must not be above high, got low = 50.0, high = 20.0"),
        (
            {"age": (50, 60)},
            "column 'age': fill must be between low and high, got fill = 40.0, low = 50.0, high = 60.0",
        ),
        ({"age": (0, math.inf)}, "column 'age': high must be a finite number"),
        ({"age": (math.nan, 1)}, "column 'age': low must be a finite number"),
        ({"age": (None, 1)}, "column 'age': low and high belong together"),
        ({"age": ("0", "1")}, "column 'age': low must be a finite number, got '0'"),
        ({"age": (-1.7e308, 1.7e308)}, "column 'age': high - low must be finite"),
        ({"age": 5}, r"column 'age': bounds must be a pair \(low, high\)"),
        ({"age": (1, 2, 3)}, "column 'age': bounds must be a pair"),
        ({"joined": (0, 1)}, "column 'joined': low must be a date"),
    ],
)
def test_new_bounds_that_cannot_be_are_refused_by_column(bounds, match):
    with pytest.raises(InvalidSetting, match=match):
        BOUNDED.with_bounds(bounds)


# The canonical form

names = st.text(max_size=5)
finite = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes()


gaps = st.none() | st.just("text") | st.lists(st.text(min_size=1).map(str.strip).filter(bool), unique=True)


def scales(values, names):
    def several(knots, name):
        assume(isinstance(knots[0], date) or math.isfinite(max(knots) - min(knots)))
        return [sorted(knots), name] if name else sorted(knots)

    knots = st.lists(values, min_size=2, max_size=4, unique=True)
    return st.none() | st.sampled_from(names) | st.builds(several, knots, st.sampled_from(["", *names]))


def ranges(kind, values, *, inputs=True):
    def made(three, bounded, filled, clip, keys):
        low, fill, high = sorted(three)
        assume(not isinstance(low, float) or math.isfinite(high - low))
        keys |= {"clip": clip and bounded, "fill": fill if filled else None} if inputs else {}
        return kind(*((low, high) if bounded else (None, None)), **keys)

    keys = {"gaps": gaps} if kind is Number else {}
    if inputs:
        keys["scale"] = scales(finite, ["linear", "log"]) if kind is Number else scales(st.dates(), ["linear"])
    flags = [st.booleans() for _ in range(3)]
    return st.builds(made, st.lists(values, min_size=3, max_size=3), *flags, st.fixed_dictionaries(keys))


def categories():
    values = st.lists(st.text(min_size=1).filter(lambda value: value != "other"), min_size=1, unique=True)
    return values.flatmap(
        lambda some: st.builds(Category, st.just(tuple(some)), st.sampled_from([None, "other", *some]))
    )


@st.composite
def schemas(draw):
    inputs = st.one_of(
        ranges(Number, finite),
        st.builds(Boolean, st.sampled_from([None, True, False])),
        ranges(Date, moments),
        categories(),
        st.just(Ignore()),
    )
    columns = draw(st.dictionaries(names, inputs, max_size=5))
    targets = draw(
        st.dictionaries(names, st.just(Boolean()) | ranges(Number, finite, inputs=False), min_size=1, max_size=3)
    )
    id_ = draw(st.none() | names)
    try:
        return Schema(id_, tuple(targets), tuple((columns | targets).items()))
    except InvalidSetting:  # no inputs, or names that clash
        assume(False)


@pytest.mark.slow
@examples(60)
@given(schemas())
def test_a_stored_schema_comes_back_and_its_text_is_its_identity(schema):
    text = schema.to_json()
    again = Schema.from_json(text)
    assert again == schema
    assert again.to_json() == text
    assert again.inputs == schema.inputs
    np.testing.assert_array_equal(again.bounds(), schema.bounds())
    assert again.scales() == schema.scales()
    assert text.isascii()


@pytest.mark.slow
@examples(60)
@given(schemas(), st.data())
def test_a_stored_schema_with_one_character_changed_is_refused_or_another_schema(schema, data):
    text = schema.to_json()
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    assume(changed != text)
    try:
        other = Schema.from_json(changed)
    except InvalidFile:
        return
    assert other.to_json() == changed
    assert other != schema


@pytest.mark.parametrize(
    "text",
    ["", "5", "null", "[]", "{}", '{"columns":5}', '{"columns":[5]}', '{"columns":[{"name":[]}]}', "[" * 100_000]
    + ['{"columns":[{"kind":"date","low":5,"name":"x"}],"id":null,"target":["y"]}'],
)
def test_what_is_not_a_stored_schema_is_refused(text):
    with pytest.raises(InvalidFile, match="not a stored schema"):
        Schema.from_json(text)


def test_a_stored_schema_has_one_form_only():
    text = one('kind = "number"\nlow = 0\nhigh = 1').to_json()
    assert Schema.from_json(text)
    for other in (text + " ", text.replace("0.0", "0"), text.replace('"x"', '"\\u0078"')):
        assert other != text
        with pytest.raises(InvalidFile, match="canonical"):
            Schema.from_json(other)


def test_equal_facts_give_equal_texts_and_the_order_of_columns_is_a_fact():
    whole, floating = (one(f'kind = "number"\nlow = {low}\nhigh = 1{end}') for low, end in ((0, ""), ("-0.0", ".0")))
    assert whole.to_json() == floating.to_json()
    ordered = [one(f'kind = "number"\ngaps = {gaps}') for gaps in ('["?", "-"]', '["-", "?"]')]
    assert ordered[0].to_json() == ordered[1].to_json()
    a, b = (
        Schema.parse(f'target = "y"\n{Y}{columns}') for columns in (X + X.replace("x", "z"), X.replace("x", "z") + X)
    )
    assert a.inputs == b.inputs[::-1]
    assert a.to_json() != b.to_json()
