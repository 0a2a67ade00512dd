"""A vault is the model in memory: the same rows in the same slots, the same bits; and what it does with bad input."""

import gzip
import multiprocessing
import shutil
import threading

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

from expunge import CodedRegressor
from expunge.errors import (
    CountedInput,
    ErasedId,
    InvalidFile,
    InvalidInput,
    InvalidSetting,
    MissingData,
    NothingLearned,
    UnknownId,
    VaultBusy,
)
from expunge.vault import Schema, Vault
from expunge.vault.disk.folder import Folder
from expunge.vault.tables.reading import BLOCK_ROWS
from expunge.vault.writer import Writer

from support.strategies import regressors, tables
from support.vaults import everything, made, people, put_back, random_table, slots_of, small, table, targets, weights

pytestmark = pytest.mark.usefixtures("unsynced")

# --- exactness


def bits(model):
    """All that a fit leads to: the digest and the bytes of the weights."""
    models = weights(model) if isinstance(model, Vault) else [_bytes(W) for W in model._state.ensemble.models]
    return model.digest(), models


def _bytes(W):
    return None if W is None else W.tobytes()


class Pair:
    """A vault and a model in memory that are asked the same."""

    def __init__(self, path, model, X, y, rng):
        self.X, self.y, self.rng, self.path = X, y, rng, path
        first = np.arange(len(X) // 2)
        ids = rng.integers(0, 10, len(first))
        self.rows = {}
        self.memory = CodedRegressor(**model.get_params(deep=False)).fit(X[first], y[first], ids=ids)
        self.vault = Vault.create(
            path, table(ids, X[first], y[first]), target=targets(y), id="who", model=model, wait=0.0
        )
        self.keep(ids)
        self.erased = set()

    def keep(self, ids):
        for one in ids.tolist():
            self.rows[one] = self.rows.get(one, 0) + 1

    def some(self, ids):
        ids = sorted(ids)
        return self.rng.permutation(ids)[: self.rng.integers(1, max(2, len(ids) // 2))].tolist()

    def step(self):
        kinds = ["add"] + ["unlearn", "rectify", "reopen"] * bool(self.rows) + ["readmit"] * bool(self.erased)
        getattr(self, self.rng.choice(kinds))()

    def add(self):
        ids = self.rng.choice(sorted(set(range(40)) - self.erased), size=self.rng.integers(1, 9))
        picked = self.rng.integers(0, len(self.X), len(ids))
        self.vault.add(table(ids, self.X[picked], self.y[picked]))
        self.memory.partial_fit(self.X[picked], self.y[picked], ids=ids)
        self.keep(ids)

    def unlearn(self):
        ids = self.some(self.rows)
        assert self.vault.unlearn(ids).rows == self.memory.unlearn(ids).rows == sum(self.rows.pop(one) for one in ids)
        self.erased.update(ids)

    def rectify(self):
        ids = self.rng.permutation([one for one in self.some(self.rows) for _ in range(self.rows[one])])
        picked = self.rng.integers(0, len(self.X), len(ids))
        receipt = self.vault.rectify(table(ids, self.X[picked], self.y[picked]))
        report = self.memory.rectify(ids, self.X[picked], self.y[picked])
        assert (receipt.rows, receipt.learners) == (report.rows, report.learners)

    def readmit(self):
        ids = self.some(self.erased)
        self.vault.readmit(ids)
        self.erased.difference_update(ids)

    def reopen(self):
        self.vault = Vault.open(self.path, wait=0.0)

    def compare(self):
        assert bits(self.vault) == bits(self.memory)
        assert self.vault.status().rows == self.memory.n_rows_ == sum(self.rows.values())
        if self.rows:
            expected = self.memory.predict(self.X)
            np.testing.assert_array_equal(
                self.vault.predict(self.X), np.squeeze(expected, 1) if flat(expected) else expected
            )


def flat(predicted):
    return predicted.ndim == 2 and predicted.shape[1] == 1


@settings(max_examples=80)
@given(regressors(learners=False), tables(most=30), st.integers(0, 2**20))
def test_a_vault_is_the_model_in_memory_whatever_it_is_made_of(tmp_path_factory, model, rows, seed):
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
    assert len(pair.vault._writer.model.manifest.people) <= 16
    assert pair.vault.verify().ok


@pytest.mark.parametrize("bounds", [None, (-3.0, 3.0)])
def test_a_table_longer_than_a_block_is_learned_block_by_block(tmp_path, rng, bounds):
    n, more = BLOCK_ROWS + 1000, BLOCK_ROWS + 10
    X, y = rng.uniform(-1, 1, (n + more, 2)), rng.uniform(-1, 1, n + more)
    X[BLOCK_ROWS + 7, 0], X[n + 5, 1] = 1.5, -1.5  # in a later block a bound moves, if it is observed
    ids = np.arange(n + more) // 2
    model = small(features=None, shards=10, rate=5, bounds=bounds, target_bounds=bounds)
    vault = Vault.create(tmp_path / "v.vault", table(ids[:n], X[:n], y[:n]), target="y", id="who", model=model)
    memory = small(features=None, shards=10, rate=5, bounds=bounds, target_bounds=bounds)
    blocks = [slice(0, BLOCK_ROWS), slice(BLOCK_ROWS, n), slice(n, n + BLOCK_ROWS), slice(n + BLOCK_ROWS, n + more)]
    for block in blocks[:2]:
        memory.partial_fit(X[block], y[block], ids=ids[block])
    assert bits(vault) == bits(memory)
    vault.add(table(ids[n:], X[n:], y[n:]))
    for block in blocks[2:]:
        memory.partial_fit(X[block], y[block], ids=ids[block])
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
    inputs = vault._writer.model.manifest.inputs
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
    with pytest.raises(InvalidSetting, match="leave one of them out"):
        made(tmp_path / "u.vault", data, target=None, id=None, schema=schema, model=small(**bounds))


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


# --- requests and their answers


@pytest.fixture
def vault(tmp_path):
    return made(tmp_path / "v.vault")


def test_a_receipt_says_what_was_done(vault, tmp_path):
    assert (vault.receipt.request, vault.receipt.kind, vault.receipt.rows, vault.receipt.people) == (1, "train", 30, 20)
    erased = vault.unlearn(["person-2", "person-3", "person-2"])
    assert (erased.request, erased.kind, erased.rows, erased.people, erased.earlier) == (2, "unlearn", 3, 2, ())
    added = vault.add(random_table(["a", "b", "a"], seed=1))
    assert (added.request, added.kind, added.rows, added.people) == (3, "add", 3, 2)
    corrected = vault.rectify(random_table(["a", "a", "b"], seed=2))
    assert (corrected.request, corrected.kind, corrected.rows, corrected.people) == (4, "rectify", 3, 2)
    readmitted = vault.readmit("person-2")
    assert (readmitted.request, readmitted.kind, readmitted.rows, readmitted.people) == (5, "readmit", 0, 1)
    assert [(r.number, r.kind, r.rows, r.people, r.state) for r in vault.requests] == [
        (1, "train", 30, 20, "certified"),
        (2, "unlearn", 3, 2, "certified"),
        (3, "add", 3, 2, "certified"),
        (4, "rectify", 3, 2, "certified"),
        (5, "readmit", 0, 1, "certified"),
    ]
    assert erased.path == tmp_path / "v.certificates" / "000002.jws"
    assert erased.path.read_text() == erased.certificate + "\n" == vault.requests[1].certificate + "\n"
    status = vault.status()
    assert (status.rows, status.erased_ids, status.requests, status.uncertified) == (30, 1, 5, 0)
    assert (status.targets, status.inputs, status.shards, status.learners) == (("y",), ("x0", "x1"), 4, 2)


def test_numbers_and_text_are_one_id(tmp_path):
    vault = made(tmp_path / "v.vault", random_table(list(range(4700, 4720))))
    assert vault.unlearn(4711).request == 2
    assert vault.unlearn("4711").request == 2
    assert vault.unlearn(np.array([4711, 4712])).rows == 1
    with pytest.raises(ErasedId):
        vault.add(random_table(["4711"]))
    assert vault.readmit(np.int64(4711)).people == 1
    assert vault.add(random_table(["4711"])).rows == 1
    assert vault.unlearn([4711]).request == 6


def test_who_was_erased_has_the_same_answer_again_and_the_same_certificate(vault):
    first, second = vault.unlearn(["person-1"]), vault.unlearn(["person-2"])
    before = everything(vault.places.vault)
    for asked, answer in (
        (["person-1"], first),
        (["person-2"], second),
        (["person-1", "person-2"], second),
    ):
        for asker in (vault, Vault.open(vault.places.vault)):
            again = asker.unlearn(asked)
            assert (again.request, again.rows, again.people) == (answer.request, answer.rows, answer.people)
            assert (again.certificate, again.path) == (answer.certificate, answer.path)
    assert vault.unlearn(["person-1", "person-2"]).earlier == (2, 3)
    assert everything(vault.places.vault) == before
    some = vault.unlearn(["person-1", "person-3", "person-2"])
    assert (some.request, some.rows, some.people, some.earlier) == (4, 1, 1, (2, 3))


def test_who_was_erased_comes_back_only_after_being_readmitted(vault):
    vault.unlearn(["person-1", "person-2"])
    back = random_table(["new-1", "person-1", "person-2", "person-1", "new-1"], seed=1)
    with pytest.raises(ErasedId, match="^2 ids .*were erased before; nothing was changed"):
        vault.add(back)
    with pytest.raises(ErasedId, match="^2 ids "):
        made(vault.places.vault, pa.concat_tables([random_table(["a"] * 9), back]), replace=True)
    with pytest.raises(ErasedId, match="^1 ids "):
        vault.rectify(random_table(["person-1"]))
    assert vault.add(back, skip_erased=True).rows == 2
    vault.readmit(["person-1"])
    with pytest.raises(ErasedId, match="^1 ids "):
        vault.add(back.slice(1))
    assert vault.add(back.slice(3, 1)).rows == 1
    with pytest.raises(UnknownId, match="1 of 1 ids are not erased"):
        vault.readmit(["person-1"])
    assert vault.unlearn(["person-1"]).earlier == ()
    assert vault.verify().ok


def test_who_was_erased_stays_erased_when_the_vault_is_trained_anew(vault):
    first = vault.unlearn(["person-1", "person-2"])
    anew = made(vault.places.vault, random_table(people(), seed=5), replace=True, skip_erased=True)
    assert (anew.receipt.kind, anew.receipt.rows, anew.receipt.people) == ("train", 27, 18)
    assert anew.unlearn(["person-1"]).certificate == first.certificate
    assert vault.unlearn(["person-2"]).certificate == first.certificate  # the object from before goes on with the new
    with pytest.raises(ErasedId):
        anew.add(random_table(["person-1"]))
    kept = random_table(people(), seed=5).filter(pa.array([one not in ("person-1", "person-2") for one in people()]))
    assert bits(anew) == bits(made(vault.places.vault.parent / "w.vault", kept))
    assert [r.kind for r in anew.requests] == ["train", "unlearn", "train"]
    assert not list(vault.places.vault.glob("*.1"))
    assert anew.verify().ok


def test_training_anew_leaves_rows_out_that_a_table_lacks_without_burying_anybody(vault):
    anew = made(vault.places.vault, random_table([f"new-{k}" for k in range(8)]), replace=True)
    with pytest.raises(UnknownId):
        anew.unlearn(["person-1"])
    assert anew.add(random_table(["person-1"])).rows == 1


def test_threads_may_share_a_vault(vault):
    errors = []

    def work(k):
        try:
            vault.unlearn([f"person-{k}"])
            vault.predict(np.zeros((3, 2)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [r.number for r in vault.requests] == list(range(1, 10))
    assert vault.verify().ok


def test_one_object_sees_what_another_did(vault):
    other = Vault.open(vault.places.vault)
    before = other.predict(np.zeros((1, 2)))
    vault.unlearn(["person-1"])
    assert other.predict(np.zeros((1, 2))) == vault.predict(np.zeros((1, 2))) != before
    other.unlearn(["person-2"])
    assert vault.unlearn(["person-2"]).request == 3
    assert bits(vault) == bits(other)


def test_predictions_are_written_with_their_ids_to_csv_and_parquet(vault, tmp_path):
    data = random_table(["a", "b", "c"], seed=8)
    expected = vault.predict(data)
    for name in ("p.csv", "p.parquet"):
        assert vault.predict_to(data, tmp_path / name) == 3
        read = pyarrow.csv.read_csv if name.endswith("csv") else pyarrow.parquet.read_table
        found = read(tmp_path / name)
        assert found["who"].to_pylist() == ["a", "b", "c"]
        np.testing.assert_array_equal(found["predicted_y"], expected)
    assert vault.predict_to(data.drop(["who", "y"]), tmp_path / "p.csv") == 3
    assert pyarrow.csv.read_csv(tmp_path / "p.csv").column_names == ["predicted_y"]
    with pytest.raises(InvalidSetting, match="to .csv or .parquet"):
        vault.predict_to(data, tmp_path / "p.json")
    with pytest.raises(InvalidInput):
        vault.predict_to(data.drop(["x0"]), tmp_path / "q.csv")
    assert sorted(path.name for path in tmp_path.iterdir() if "p." in path.name or "q." in path.name) == [
        "p.csv",
        "p.parquet",
    ]


# --- bad input: the right error, nothing changed, nothing told

SECRETS = ("98765.4321", "98765", "secret-person-77", "person-1", "-54321.5")


def with_cell(name, value):
    """A table of new people whose first cell in a column is this."""
    data = random_table(["secret-person-77", "new-2"], seed=1)
    cells = [value, *([value] if isinstance(value, str) and value else data[name].to_pylist()[1:])]
    return data.set_column(data.column_names.index(name), name, pa.array(cells))


DECLARED = 'id = "who"\ntarget = "y"\n' + "".join(
    f'[columns.{name}]\nkind = "number"\nlow = -1\nhigh = 1\n' for name in ("x0", "x1", "y")
)

BAD_TABLES = {
    "a column is missing": (lambda: random_table(["new-1"]).drop(["x1"]), InvalidInput),
    "the target is missing": (lambda: random_table(["new-1"]).drop(["y"]), InvalidInput),
    "the id is missing": (lambda: random_table(["new-1"]).drop(["who"]), InvalidInput),
    "a column is too many": (lambda: random_table(["new-1"]).append_column("z", pa.array([1.0])), InvalidInput),
    "text for a number": (lambda: with_cell("x0", "98765.4321"), InvalidInput),
    "NaN": (lambda: with_cell("x0", float("nan")), InvalidInput),
    "null": (lambda: with_cell("x0", None), InvalidInput),
    "infinite": (lambda: with_cell("x0", float("inf")), InvalidInput),
    "NaN in the target": (lambda: with_cell("y", float("nan")), InvalidInput),
    "outside the bounds": (lambda: with_cell("x0", 98765.4321), InvalidInput),
    "the target outside its bounds": (lambda: with_cell("y", -54321.5), InvalidInput),
    "no id": (lambda: with_cell("who", None), InvalidInput),
    "an empty id": (lambda: with_cell("who", ""), InvalidInput),
    "ids that are floats": (lambda: random_table([1.5, 2.5]), InvalidInput),
    "no rows": (lambda: random_table(["new-1"]).slice(0, 0), InvalidInput),
    "no table": (lambda: {"who": ["new-1"]}, InvalidInput),
}


@pytest.mark.parametrize("request_", ["create", "add", "rectify"])
@pytest.mark.parametrize("what", BAD_TABLES)
def test_a_bad_table_is_refused_and_changes_nothing(tmp_path, what, request_):
    vault = made(tmp_path / "v.vault", target=None, id=None, schema=Schema.parse(DECLARED))
    vault.add(random_table(["secret-person-77", "new-1", "new-2"]))
    before = everything(tmp_path / "v.vault")
    table_of, error = BAD_TABLES[what]
    data = table_of()
    with pytest.raises(error) as caught:
        if request_ == "create":
            made(tmp_path / "v.vault", data, target=None, id=None, schema=Schema.parse(DECLARED), replace=True)
        else:
            getattr(vault, request_)(data)
    assert not [secret for secret in SECRETS if secret in str(caught.value)]
    assert everything(tmp_path / "v.vault") == before
    assert vault.verify().ok


@pytest.mark.parametrize("name", ["empty.csv", "empty.parquet", "header.csv", "torn.parquet", "there.txt", "no.csv"])
@pytest.mark.parametrize("what", ["create", "add", "rectify", "predict"])
def test_a_file_without_a_table_is_refused_and_changes_nothing(vault, tmp_path, name, what):
    pyarrow.parquet.write_table(random_table(["secret-person-77"]), tmp_path / "whole.parquet")
    contents = {
        "empty.csv": b"",
        "empty.parquet": b"",
        "header.csv": b"who,x0,x1,y\n",
        "torn.parquet": (tmp_path / "whole.parquet").read_bytes()[:-20],
        "there.txt": b"who,x0,x1,y\nsecret-person-77,0,0,0\n",
    }
    if name in contents:
        (tmp_path / name).write_bytes(contents[name])
    before = everything(vault.places.vault)
    if (what, name) == ("predict", "header.csv"):
        assert len(vault.predict(tmp_path / name)) == 0
        return
    with pytest.raises((InvalidInput, InvalidFile)) as caught:
        if what == "create":
            made(vault.places.vault, tmp_path / name, replace=True)
        else:
            getattr(vault, what)(tmp_path / name)
    assert "secret" not in str(caught.value)
    assert everything(vault.places.vault) == before


def test_a_csv_cell_that_is_no_number_is_told_by_its_place_only(vault, tmp_path):
    (tmp_path / "t.csv").write_text("who,x0,x1,y\nnew-1,0,0,0\nsecret-person-77,0,98765.4321x,0\n")
    before = everything(vault.places.vault)
    with pytest.raises(InvalidInput, match="'x1' must hold numbers, but row 2 ") as caught:
        vault.add(tmp_path / "t.csv")
    assert not [secret for secret in SECRETS if secret in str(caught.value)]
    assert everything(vault.places.vault) == before


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda vault: vault.unlearn(["person-1", "secret-person-77"]), UnknownId),
        (lambda vault: vault.readmit(["secret-person-77"]), UnknownId),
        (lambda vault: vault.readmit(["person-1"]), UnknownId),
        (lambda vault: vault.readmit(["person-0", "person-1"]), UnknownId),
        (lambda vault: vault.rectify(random_table(["person-1", "secret-person-77"])), UnknownId),
        (lambda vault: vault.rectify(random_table(["person-0"])), ErasedId),
        (lambda vault: vault.rectify(random_table(["person-1", "person-1"])), InvalidInput),
        (lambda vault: vault.rectify(random_table(["person-2"])), InvalidInput),
        (lambda vault: vault.unlearn([]), InvalidInput),
        (lambda vault: vault.unlearn([""]), InvalidInput),
        (lambda vault: vault.unlearn([None]), InvalidInput),
        (lambda vault: vault.unlearn([1.5]), InvalidInput),
        (lambda vault: vault.unlearn([True]), InvalidInput),
        (lambda vault: vault.unlearn([b"person-1"]), InvalidInput),
        (lambda vault: vault.unlearn(["\ud800"]), InvalidInput),
        (lambda vault: vault.add(random_table(["person-0"]), skip_erased=True), InvalidInput),
        (lambda vault: vault.predict(np.zeros((2, 3))), InvalidInput),
        (lambda vault: vault.predict(np.array([["a", "b"]])), InvalidInput),
        (lambda vault: vault.predict(np.array([[np.nan, 0.0]])), CountedInput),
        (lambda vault: vault.predict(random_table(["a"]).drop(["x0"])), InvalidInput),
        (lambda vault: vault.renew_key(), InvalidSetting),
        (lambda vault: made(vault.places.vault), InvalidSetting),
        (lambda vault: made(vault.places.vault, random_table(["a", "b"]), replace=True), InvalidInput),
        (lambda vault: made(vault.places.vault, target="z", replace=True), InvalidInput),
        (lambda vault: made(vault.places.vault, target=None, replace=True), InvalidSetting),
        (lambda vault: made(vault.places.vault, model=small(learner=Lasso()), replace=True), InvalidSetting),
        (lambda vault: made(vault.places.vault, model=small(shards=5), replace=True), InvalidSetting),
        (lambda vault: made(vault.places.vault, key=vault.places.public, replace=True), InvalidFile),
    ],
)
def test_a_bad_request_is_refused_and_changes_nothing(vault, ask, error):
    vault.unlearn(["person-0"])
    before = everything(vault.places.vault)
    with pytest.raises(error) as caught:
        ask(vault)
    assert type(caught.value) is error
    assert "secret" not in str(caught.value)
    assert "person-" not in str(caught.value)
    assert everything(vault.places.vault) == before
    assert vault.verify().ok
    assert vault.unlearn(["person-1"]).request == 3


def test_a_model_that_a_vault_cannot_hold_is_refused(tmp_path):
    for model in (small(learner=Lasso(fit_intercept=False)), small(keep="coded", bounds="unit", target_bounds="unit")):
        with pytest.raises(InvalidSetting, match="learner='ridge' and keep='rows' only"):
            made(tmp_path / "v.vault", model=model)
    assert list(tmp_path.iterdir()) == []


def test_a_first_training_that_fails_leaves_nothing_behind(tmp_path):
    for data in (random_table(["a", "b"]), with_cell("x0", None), with_cell("who", "")):
        with pytest.raises(InvalidInput):
            made(tmp_path / "v.vault", data)
        assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_vault_is_refused(vault, tmp_path):
    (tmp_path / "file.vault").write_text("something else")
    (tmp_path / "empty.vault").mkdir()
    (tmp_path / "empty.ledger").touch()
    (tmp_path / "alone.vault").mkdir()
    shutil.copytree(tmp_path / "v.vault", tmp_path / "copy.vault")
    (tmp_path / "link.vault").symlink_to(tmp_path / "v.vault")
    for name, error in (
        ("none.vault", MissingData),
        ("file.vault", InvalidFile),
        ("alone.vault", InvalidFile),
        ("empty.vault", InvalidFile),
        ("copy.vault", InvalidFile),
        ("link.vault", InvalidFile),
        ("v", InvalidSetting),
        (".vault", InvalidSetting),
        ("v.ledger", InvalidSetting),
    ):
        with pytest.raises(error):
            Vault.open(tmp_path / name)
    for name in ("file.vault", "copy.vault", "link.vault"):
        with pytest.raises(InvalidFile):
            made(tmp_path / name)
    assert (tmp_path / "file.vault").read_text() == "something else"
    shutil.rmtree(tmp_path / "v.vault")
    with pytest.raises(InvalidFile, match="put a copy of the folder back"):
        made(tmp_path / "v.vault")
    put = tmp_path / "v.ledger"
    assert put.stat().st_size


def test_an_open_vault_is_not_in_the_way_of_others_but_a_writer_is(vault):
    other = Vault.open(vault.places.vault, wait=0.0)
    before = everything(vault.places.vault)
    with vault._writer.locked(0.0):
        for ask in (
            lambda: other.unlearn(["person-1"]),
            lambda: other.add(random_table(["new-1"])),
            lambda: other.rectify(random_table(["person-1"])),
            lambda: other.verify(),
            lambda: made(vault.places.vault, replace=True, wait=0.0),
        ):
            with pytest.raises(VaultBusy):
                ask()
        np.testing.assert_array_equal(other.predict(np.zeros((1, 2))), vault.predict(np.zeros((1, 2))))
        Vault.open(vault.places.vault, wait=0.0).predict(np.zeros((1, 2)))
    assert everything(vault.places.vault) == before
    assert other.unlearn(["person-1"]).rows == 1


def _hold(path, held, release):
    with Vault.open(path)._writer.locked(0.0):
        held.set()
        release.wait(60)


def test_another_process_that_writes_keeps_writers_out_until_it_ends(vault):
    spawn = multiprocessing.get_context("spawn")
    held, release = spawn.Event(), spawn.Event()
    process = spawn.Process(target=_hold, args=(vault.places.vault, held, release))
    process.start()
    try:
        assert held.wait(60)
        with pytest.raises(VaultBusy, match="another process is writing"):
            Vault.open(vault.places.vault, wait=0.0).unlearn(["person-1"])
        assert vault.predict(np.zeros((1, 2))).shape == (1,)
    finally:
        process.kill()
        process.join()
    assert Vault.open(vault.places.vault, wait=5.0).unlearn(["person-1"]).rows == 1


# --- old copies


def test_an_old_copy_of_the_folder_catches_up(vault, tmp_path):
    path, copy = vault.places.vault, tmp_path / "copy"
    vault.unlearn(["person-1"])
    shutil.copytree(path, copy)
    erased = vault.unlearn(["person-2", "person-3"])
    vault.add(random_table(["new-1", "new-2", "new-2", "person-5"], seed=1))
    vault.rectify(random_table(["person-4", "person-4"], seed=2))
    vault.unlearn(["new-1"])
    vault.readmit(["person-3"])
    drawn = vault._writer.state.drawn
    put_back(copy, path)
    old = Vault.open(path)
    (note,) = old.notes
    assert note == (
        "this folder was a copy from request 2: 5 rows that were erased or corrected since are erased, "
        "3 rows that were added since are missing; add them again"
    )
    assert old.verify().ok
    assert [(r.number, r.kind, r.state) for r in old.requests][-1] == (8, "restore", "certified")
    assert old.requests[-1].rows == 5
    assert old._writer.state.drawn == drawn
    found = slots_of(old, [*dict.fromkeys(people()), "new-1", "new-2"])
    assert {one: slots for one, slots in found.items() if min(slots, default=-1) < 0} == {
        "person-1": [-2],
        "person-2": [-3, -3],
        "person-3": [],
        "person-4": [],
        "new-1": [-6],
        "new-2": [],
    }
    assert old.unlearn(["person-2"]).certificate == erased.certificate
    assert old.unlearn(["new-1"]).request == 6
    for gone in ("person-3", "person-4", "new-2"):
        with pytest.raises(UnknownId):
            old.unlearn([gone])
    old.add(random_table(["person-4", "person-4", "new-2", "person-3"], seed=2))
    fresh = [slot for slots in slots_of(old, ["person-4", "new-2", "person-3"]).values() for slot in slots]
    assert min(fresh) >= drawn // 4 * 4
    assert old.verify().ok
    assert Vault.open(path).notes == ()


def test_an_object_that_is_open_notices_an_old_copy(vault, tmp_path):
    path, copy = vault.places.vault, tmp_path / "copy"
    shutil.copytree(path, copy)
    before = vault.predict(np.zeros((1, 2)))
    vault.unlearn(["person-1"])
    after = vault.predict(np.zeros((1, 2)))
    put_back(copy, path)
    assert vault.predict(np.zeros((1, 2))) == after != before
    assert "copy from request 1" in vault.notes[0]
    assert vault.verify().ok


def test_somebody_whom_one_old_copy_lost_and_another_has_is_erased_there_too(vault, tmp_path):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "first")
    vault.add(random_table(["lost", "lost-too", "other"], seed=1))
    shutil.copytree(path, tmp_path / "second")
    put_back(tmp_path / "first", path)
    vault = Vault.open(path)
    vault.add(random_table(["lost", "lost-too"], seed=1))
    erased = vault.unlearn(["lost"])
    vault.rectify(random_table(["lost-too"], seed=2))
    put_back(tmp_path / "second", path)
    vault = Vault.open(path)
    assert slots_of(vault, ["lost", "lost-too"]) == {"lost": [-erased.request], "lost-too": []}
    assert len(slots_of(vault, ["other"])["other"]) == 1
    assert vault.unlearn(["lost"]).certificate == erased.certificate
    assert vault.verify().ok


def test_who_was_readmitted_and_erased_again_stays_erased_however_often_an_old_copy_is_put_back(vault, tmp_path):
    path, copy = vault.places.vault, tmp_path / "copy"
    vault.unlearn(["person-1"])
    shutil.copytree(path, copy)
    vault.readmit(["person-1"])
    vault.add(random_table(["person-1"], seed=1))
    erased = vault.unlearn(["person-1"])
    for _ in range(3):
        put_back(copy, path)
        vault = Vault.open(path)
        assert set(slots_of(vault, ["person-1"])["person-1"]) == {-erased.request}
        assert vault.unlearn(["person-1"]).certificate == erased.certificate
        with pytest.raises(ErasedId):
            vault.add(random_table(["person-1"], seed=1))
        assert vault.verify().ok


def test_rows_that_were_added_again_after_an_old_copy_are_counted_once(vault, tmp_path):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "copy")
    for _ in range(2):
        vault.add(random_table(["new-1", "new-2"], seed=1))
        put_back(tmp_path / "copy", path)
        vault = Vault.open(path)
        assert " 2 rows that were added since are missing" in vault.notes[0]
        assert vault.verify().ok


class Crash(BaseException):
    """The end of a process."""


def ended(monkeypatch, kind, method, ask):
    """Ask for something; the process ends where it would call this."""

    def end(*_):
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(kind, method, end)
        ask()


@pytest.mark.parametrize("kind", ["unlearn", "rectify", "add", "train"])
def test_a_copy_that_was_made_half_way_through_its_newest_request_is_finished(vault, tmp_path, monkeypatch, kind):
    path, copy = vault.places.vault, tmp_path / "copy"
    asks = {
        "unlearn": lambda: vault.unlearn(["person-1", "person-2"]),
        "rectify": lambda: vault.rectify(random_table(["person-1"], seed=1)),
        "add": lambda: vault.add(random_table(["new-1"], seed=1)),
        "train": lambda: made(path, random_table(people(), seed=1), replace=True),
    }
    vault.unlearn(["person-3"]) if kind != "train" else None
    ended(monkeypatch, Writer, "_overwrite", asks[kind])  # committed, and nothing is overwritten yet
    shutil.copytree(path, copy)
    Vault.open(path)  # does it
    expected, requests = bits(vault), len(vault.requests)
    put_back(copy, path)
    again = Vault.open(path)
    assert again.verify().ok
    assert (bits(again), len(again.requests)) == (expected, requests)
    again.unlearn(["person-4"])
    put_back(copy, path)
    assert Vault.open(path).verify().ok


def test_what_is_missing_is_told_although_the_process_that_caught_up_ended(vault, tmp_path, monkeypatch):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "copy")
    vault.add(random_table(["new-1", "new-2"], seed=1))
    for method in ("commit", "wipe_all_but"):
        put_back(tmp_path / "copy", path)
        ended(monkeypatch, Folder, method, lambda: Vault.open(path))
        assert " 2 rows that were added since are missing" in Vault.open(path).notes[0]
        Vault.open(path).add(random_table(["new-1", "new-2"], seed=1))


def test_a_copy_from_before_a_training_is_refused(vault, tmp_path):
    path, copy, now = vault.places.vault, tmp_path / "copy", tmp_path / "now"
    shutil.copytree(path, copy)
    made(path, random_table(people(), seed=3), replace=True)
    shutil.copytree(path, now)
    put_back(copy, path)
    before = everything(path)
    for ask in (
        lambda: Vault.open(path),
        lambda: vault.unlearn(["person-1"]),
        lambda: vault.predict(np.zeros((1, 2))),
        lambda: made(path, replace=True),
    ):
        with pytest.raises(InvalidFile, match="is older than the training that .*put a newer copy of the folder back"):
            ask()
    assert everything(path) == before
    put_back(now, path)
    assert Vault.open(path).verify().ok


def test_an_old_copy_of_folder_and_ledger_cannot_be_recognised(vault, tmp_path):
    """Documented in docs/vault.md: keep the ledger in a safe place of its own."""
    path, old = vault.places.vault, tmp_path / "old"
    shutil.copytree(path, old)
    ledger = vault.places.ledger.read_bytes()
    vault.unlearn(["person-1"])
    put_back(old, path)
    vault.places.ledger.write_bytes(ledger)
    rolled_back = Vault.open(path)
    assert rolled_back.notes == ()
    assert rolled_back.verify().ok
    assert rolled_back.unlearn(["person-1"]).rows == 1  # as if it had never been asked


def test_what_a_vault_keeps_is_for_its_owner_alone(vault):
    private = [*vault.places.vault.iterdir(), vault.places.key, vault.places.ledger]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert vault.places.vault.stat().st_mode & 0o777 == 0o700
