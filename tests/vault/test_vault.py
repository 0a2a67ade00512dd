"""A vault is the model in memory: the same rows in the same slots, the same bits."""

import gzip

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from expunge import CodedRegressor, RandomFourier
from expunge.errors import InvalidSetting, NothingLearned
from expunge.tables.reader import BLOCK_ROWS
from expunge.vault import Schema, Vault

from support.oracle import Oracle, Request
from support.sampling import examples
from support.strategies import regressors, tables
from support.vaults import bits, made, people, random_table, small, table, targets


class Pair:
    """A vault and a model in memory that are asked the same, and what both must hold."""

    def __init__(self, path, model, X, y, rng):
        self.X, self.y, self.rng, self.path = X, y, rng, path
        first, ids = np.arange(len(X) // 2), rng.integers(0, 10, len(X) // 2)
        self.memory = CodedRegressor(**model.get_params(deep=False)).fit(X[first], y[first], ids=ids)
        data = table(ids, X[first], y[first])
        self.vault = Vault.create(path, data, target=targets(y), id="who", model=model, wait=0.0)
        self.oracle = Oracle.of(model, X.shape[1], 1 if y.ndim == 1 else y.shape[1])
        self.note("train", ids, first)

    def note(self, kind, ids, picked=()):
        rows = np.column_stack([self.X, self.y])[list(picked)].tolist()
        self.oracle = self.oracle.after(Request(kind, tuple(np.array(ids).tolist()), tuple(map(tuple, rows))))

    def some(self, ids):
        ids = sorted(ids)
        return self.rng.permutation(ids)[: self.rng.integers(1, max(2, len(ids) // 2))].tolist()

    def step(self):
        rows, erased = bool(self.oracle.rows), bool(self.oracle.erased)
        getattr(self, self.rng.choice(["add"] + ["unlearn", "rectify", "reopen"] * rows + ["readmit"] * erased))()

    def add(self):
        ids = self.rng.choice(sorted(set(range(40)) - set(self.oracle.erased)), size=self.rng.integers(1, 9))
        picked = self.rng.integers(0, len(self.X), len(ids))
        self.vault.add(table(ids, self.X[picked], self.y[picked]))
        self.memory.partial_fit(self.X[picked], self.y[picked], ids=ids)
        self.note("add", ids, picked)

    def unlearn(self):
        ids = self.some(self.oracle.rows)
        expected = sum(self.oracle.counts[one] for one in ids)
        assert self.vault.unlearn(ids).rows == self.memory.unlearn(ids).rows == expected
        self.note("unlearn", ids)

    def rectify(self):
        people = self.some(self.oracle.rows)
        ids = self.rng.permutation([one for one in people for _ in range(self.oracle.counts[one])])
        picked = self.rng.integers(0, len(self.X), len(ids))
        receipt = self.vault.rectify(table(ids, self.X[picked], self.y[picked]))
        report = self.memory.rectify(ids, self.X[picked], self.y[picked])
        assert (receipt.rows, receipt.learners) == (report.rows, report.learners)
        self.note("rectify", ids, picked)

    def readmit(self):
        ids = self.some(self.oracle.erased)
        self.vault.readmit(ids)
        self.note("readmit", ids)

    def reopen(self):
        self.vault = Vault.open(self.path, wait=0.0)

    def compare(self):
        assert bits(self.vault) == bits(self.memory) == bits(self.oracle)
        assert self.vault.status().rows == self.memory.n_rows_ == self.oracle.counts.total()
        if self.oracle.rows:
            np.testing.assert_array_equal(self.vault.predict(self.X), self.oracle.predict(self.X))
            np.testing.assert_array_equal(np.squeeze(self.memory.predict(self.X)), self.oracle.predict(self.X))


@pytest.mark.slow
@pytest.mark.no_cover
@examples(40)
@given(regressors(learners=False), tables(most=30), st.integers(0, 2**20))
def test_a_vault_is_the_model_in_memory_whatever_it_is_made_of(tmp_path_factory, model, rows, seed):
    assume(model.aggregate != "pooled")  # for models in memory
    pair = Pair(
        tmp_path_factory.mktemp("pair") / "p.vault", model.set_params(keep="rows"), *rows, np.random.default_rng(seed)
    )
    pair.compare()
    for _ in range(5):
        pair.step()
        pair.compare()
    assert pair.vault.verify().ok


def test_adding_often_merges_what_is_known_of_people_and_nothing_shows(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, 40)
    pair = Pair(tmp_path / "p.vault", small(), X, y, rng)
    for k in range(40):
        pair.add() if k % 3 else pair.unlearn()
    pair.compare()
    assert len(pair.vault._writer.snapshot.manifest.people) <= 16
    assert pair.vault.verify().ok


@pytest.mark.parametrize("bounds", [None, (-3.0, 3.0)])
def test_a_table_longer_than_a_block_is_learned_as_in_memory(tmp_path, rng, bounds):
    n, more = BLOCK_ROWS + 1000, BLOCK_ROWS + 10
    X, y = rng.uniform(-1, 1, (n + more, 2)), rng.uniform(-1, 1, n + more)
    X[BLOCK_ROWS + 7, 0], X[n + 5, 1] = 1.5, -1.5  # in a later block a bound moves, if it is observed
    ids = np.arange(n + more) // 2
    model = small(features=None, shards=10, rate=5, bounds=bounds, target_bounds=bounds)
    vault = Vault.create(tmp_path / "v.vault", table(ids[:n], X[:n], y[:n]), target="y", id="who", model=model)
    memory = small(features=None, shards=10, rate=5, bounds=bounds, target_bounds=bounds)
    memory.fit(X[:n], y[:n], ids=ids[:n])
    assert bits(vault) == bits(memory)
    vault.add(table(ids[n:], X[n:], y[n:]))
    memory.partial_fit(X[n:], y[n:], ids=ids[n:])
    assert bits(vault) == bits(memory)
    gone = [0, BLOCK_ROWS // 2 - 1, BLOCK_ROWS // 2, (BLOCK_ROWS + 7) // 2, (n + 5) // 2, (n + more - 1) // 2]
    assert vault.unlearn(gone).learners == memory.unlearn(gone).learners
    assert bits(vault) == bits(memory)
    np.testing.assert_array_equal(vault.predict(X), memory.predict(X))
    assert vault.verify().ok


def test_a_bound_that_moves_refits_everything_to_the_same_bits(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, 40)
    X[7, 0], y[8] = 5.0, -5.0
    vault = Vault.create(tmp_path / "v.vault", table(np.arange(40), X, y), target="y", id="who", model=small())
    memory = small().fit(X, y)
    for kind, ids in (("unlearn", [7]), ("unlearn", [8]), ("rectify", [9]), ("unlearn", [9])):
        if kind == "unlearn":
            receipt, report = vault.unlearn(ids), memory.unlearn(ids)
        else:
            wide = np.full((1, 2), 9.0)
            receipt, report = vault.rectify(table(ids, wide, [9.0])), memory.rectify(ids, wide, [9.0])
        assert report.bounds_moved
        assert receipt.learners == report.learners == 2
        assert bits(vault) == bits(memory)
    inputs = vault._writer.snapshot.manifest.inputs
    assert (inputs.low, inputs.high) == (tuple(memory.bounds_.low), tuple(memory.bounds_.high))


def written(data, path):
    """A table as a file, by its ending."""
    frame = data.to_pandas()
    {
        ".csv": lambda: pyarrow.csv.write_csv(data, path),
        ".tsv": lambda: frame.to_csv(path, sep="\t", index=False),
        ".gz": lambda: path.write_bytes(gzip.compress(frame.to_csv(index=False).encode())),
        ".parquet": lambda: pyarrow.parquet.write_table(data, path, row_group_size=7),
        ".feather": lambda: pyarrow.feather.write_feather(data, path),
    }[path.suffix]()
    return path


def test_the_same_table_in_any_form_gives_the_same_vault(tmp_path):
    data = random_table(people())
    forms = {
        "arrow": data,
        "batches": pa.Table.from_batches(data.to_batches(max_chunksize=4)),
        "pandas": data.to_pandas(),
        "polars": pl.from_arrow(data),
        "reader": data.to_reader(max_chunksize=11),
        **{name: written(data, tmp_path / f"t.{name}") for name in ("csv", "tsv", "csv.gz", "parquet", "feather")},
    }
    vaults = {name: made(tmp_path / f"{name}.vault", form) for name, form in forms.items()}
    expected = bits(vaults["arrow"])
    assert [name for name, vault in vaults.items() if bits(vault) != expected] == []
    predicted = vaults["arrow"].predict(data)
    for name, form in forms.items():
        if name != "reader":  # it was read
            np.testing.assert_array_equal(vaults[name].predict(form), predicted)
    numbers = np.column_stack([data["x0"], data["x1"]])
    np.testing.assert_array_equal(vaults["csv"].predict(numbers), predicted)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_rows_have_no_predictions_of_every_target(tmp_path, count):
    rng = np.random.default_rng(0)
    y = rng.random((12, count)) if count > 1 else rng.random(12)
    data = table(range(12), rng.random((12, 2)), y)
    vault = made(tmp_path / "v.vault", data, target=targets(y))
    pyarrow.csv.write_csv(data.slice(0, 0), tmp_path / "none.csv")
    expected = vault.predict(data)[:0]
    assert expected.shape == ((0, count) if count > 1 else (0,))
    for none in (data.slice(0, 0), pa.Table.from_batches([], data.schema), tmp_path / "none.csv", np.empty((0, 2))):
        found = vault.predict(none)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert vault.predict_to(data.slice(0, 0), tmp_path / "p.csv").rows == 0


def test_the_order_of_columns_is_that_of_the_training_table(tmp_path):
    data = random_table(people())
    vault = made(tmp_path / "v.vault", data)
    turned = data.select(["y", "x1", "who", "x0"])
    np.testing.assert_array_equal(vault.predict(turned), vault.predict(data))
    more = random_table(["new-1", "new-2"], seed=3)
    other = made(tmp_path / "w.vault", data)
    vault.add(more)
    other.add(more.select(["y", "x1", "who", "x0"]))
    assert bits(vault) == bits(other)


def test_declared_bounds_of_a_schema_are_those_of_the_model(tmp_path):
    data = random_table(people())
    schema = Schema.parse(
        'id = "who"\ntarget = "y"\n[columns.y]\nkind = "number"\nlow = -2\nhigh = 2\n'
        '[columns.x0]\nkind = "number"\nlow = -1\nhigh = 1\n[columns.x1]\nkind = "number"\n'
    )
    vault = made(tmp_path / "v.vault", data, target=None, id=None, schema=schema)
    bounds = {"bounds": ([-1, None], [1, None]), "target_bounds": (-2, 2)}
    memory = small(**bounds).fit(np.column_stack([data["x0"], data["x1"]]), data["y"].to_numpy())
    assert bits(vault) == bits(memory)
    assert bits(made(tmp_path / "w.vault", data, model=small(**bounds))) == bits(memory)
    with pytest.raises(InvalidSetting, match="leave one out"):
        made(tmp_path / "u.vault", data, target=None, id=None, schema=schema, model=small(**bounds))


def test_declared_scales_of_a_schema_are_those_of_the_model(tmp_path):
    data = random_table(people())
    schema = Schema.parse(
        'id = "who"\ntarget = "y"\n[columns.y]\nkind = "number"\n'
        '[columns.x0]\nkind = "number"\nlow = -1\nhigh = 1\nscale = ["linear", [-1, 0.2, 1]]\n'
        '[columns.x1]\nkind = "number"\nscale = "log"\n'
    )
    given = {"target": None, "id": None, "schema": schema}
    vault = made(tmp_path / "v.vault", data, **given)
    same = {"bounds": ([-1, None], [1, None]), "scales": [["linear", [-1, 0.2, 1]], "log"]}
    memory = small(**same).fit(np.column_stack([data["x0"], data["x1"]]), data["y"].to_numpy())
    assert bits(vault) == bits(memory)
    assert vault.status().scales == "1 linear and knots, 1 log"
    vault.rebound({"x0": (-2, 3)})
    wider = small(**same | {"bounds": ([-2, None], [3, None])})
    assert bits(vault) == bits(wider.fit(np.column_stack([data["x0"], data["x1"]]), data["y"].to_numpy()))
    assert bits(Vault.open(tmp_path / "v.vault")) == bits(vault)
    with pytest.raises(InvalidSetting, match="both the schema and the parameter scales declare scales"):
        made(tmp_path / "u.vault", data, **given, model=small(scales="log"))
    linear = schema.with_bounds({"x0": None}).to_json().replace(',"scale":["linear",[-1.0,0.2,1.0]]', "")
    plain = Schema.from_json(linear.replace(',"scale":"log"', ""))
    logged = made(tmp_path / "w.vault", data, target=None, id=None, schema=plain, model=small(scales="log"))
    assert logged.status().scales == "2 log"
    said = Schema.from_json(linear.replace('"scale":"log"', '"scale":"linear"'))
    given["schema"] = said
    with pytest.raises(InvalidSetting, match="the schema declares 'x1' as linear, but scales gives it another scale"):
        made(tmp_path / "x.vault", data, **given, model=small(scales="log"))
    first = made(tmp_path / "y.vault", data, **given, model=small(scales=["log", "linear"]))
    assert first.status().scales == "1 log, 1 linear"


def test_the_status_tells_all_parameters_of_the_features(tmp_path):
    features = RandomFourier(3, scale=np.array([1.0, 0.5]), linear=True, random_state=7)
    told = made(tmp_path / "v.vault", model=small(features=features)).status().features
    assert told == "RandomFourier(n_features=3, kernel='gaussian', scale=array of shape (2,), linear=True)"


AMOUNTS = """id = "who"
target = "y"
[columns.y]
kind = "number"
SCALE
[columns.x0]
kind = "number"
[columns.x1]
kind = "number"
"""


@pytest.mark.parametrize("said", ["schema", "model", "both"])
def test_a_target_on_a_log_scale_is_learned_and_forgotten_as_in_memory(tmp_path, said):
    names = people()
    data = random_table(names)
    data = data.set_column(3, "y", pa.array(np.exp(3 * data["y"].to_numpy())))
    schema = Schema.parse(AMOUNTS.replace("SCALE", "" if said == "model" else 'scale = "log"'))
    model = small(target_scales=None if said == "schema" else ["log"])
    vault = made(tmp_path / "v.vault", data, target=None, id=None, schema=schema, model=model)
    X, y = np.column_stack([data["x0"], data["x1"]]), data["y"].to_numpy()
    memory = small(target_scales="log").fit(X, y, ids=names)
    assert vault.status().target_scales == "log"
    for gone in (["person-3"], ["person-2", "person-11"]):
        assert bits(vault) == bits(memory)
        np.testing.assert_array_equal(vault.predict(data), memory.predict(X))
        vault.unlearn(gone)
        memory.unlearn(gone)
    assert bits(vault) == bits(memory) == bits(Vault.open(tmp_path / "v.vault"))
    assert vault.verify().ok
    assert bits(memory) != bits(small().fit(X, y, ids=names))


def test_a_model_with_another_scale_of_the_target_than_the_schema_is_refused(tmp_path):
    schema = Schema.parse(AMOUNTS.replace("SCALE", 'scale = "linear"'))
    with pytest.raises(InvalidSetting, match="the schema declares 'y' as linear, but target_scales gives it another"):
        made(tmp_path / "v.vault", target=None, id=None, schema=schema, model=small(target_scales="log"))
    assert not (tmp_path / "v.vault").exists()


# Outside the bounds

FAR = np.array([[0.5, 0.5], [-9.0, 0.5], [0.5, 9.0], [-9.0, 9.0], [1.0, -1.0]])


@pytest.mark.parametrize("outside", ["clamp", "extrapolate"])
def test_rows_outside_the_bounds_are_told_and_predicted_as_the_model_in_memory_does(tmp_path, outside):
    data = random_table(people())
    model = small(bounds=(-1, 1), target_bounds=(-1, 1), outside=outside)
    vault = made(tmp_path / "v.vault", data, model=model)
    memory = model.fit(np.column_stack([data["x0"], data["x1"]]), data["y"].to_numpy())
    found = vault.predictions(FAR)
    np.testing.assert_array_equal(found.values, memory.predict(FAR))
    assert found.outside.tolist() == memory.outside_rows(FAR).tolist() == [False, True, True, True, False]
    inside = vault.predict(np.clip(FAR, -1, 1))
    assert (found.values == inside).all() == (outside == "clamp")
    how = "predicted for the nearest point inside" if outside == "clamp" else "extrapolated, which can be far off"
    assert found.notes == (f"3 of 5 rows lie outside the bounds: {how}",)
    done = vault.predict_to(table(list("abcde"), FAR, np.zeros(5)), tmp_path / "p.csv")
    assert (done.rows, done.outside, done.notes) == (5, 3, found.notes)
    assert vault.predictions(FAR[:1]).notes == ()
    assert vault.predictions(FAR[1:2]).notes == (f"1 of 1 row lies outside the bounds: {how}",)
    assert vault.status().outside == outside


def test_bounds_that_are_observed_are_those_of_the_rows_there_are(tmp_path):
    vault = made(
        tmp_path / "v.vault", table(["a", *"bcdefgh"], [[5.0, 0.0], *[[k / 7, k / 7] for k in range(7)]], [0.0] * 8)
    )
    probe = np.array([[3.0, 0.5]])
    assert not vault.predictions(probe).outside.any()
    vault.unlearn("a")
    assert vault.predictions(probe).outside.all()


def test_a_vault_of_which_everybody_left_can_be_filled_again(tmp_path):
    vault = made(tmp_path / "v.vault")
    everyone = sorted(set(people()))
    vault.unlearn(everyone)
    assert vault.status().rows == 0
    assert vault.status().erased_ids == 20
    with pytest.raises(NothingLearned):
        vault.predict(np.zeros((1, 2)))
    assert vault.verify().ok
    more = random_table([f"new-{k}" for k in range(9)], seed=4)
    vault.add(more)
    assert Vault.open(tmp_path / "v.vault").verify().ok
    vault.readmit(everyone[:1])
    with pytest.raises(NothingLearned):
        vault.unlearn([f"new-{k}" for k in range(9)])
        vault.predict(np.zeros((1, 2)))
