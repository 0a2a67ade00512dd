"""A training that replaces a model is compared with it first: schema, rows, and errors on people held out from both."""

import json
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expunge import CodedRegressor, RandomFourier
from expunge.distributed import workers
from expunge.errors import InvalidInput, InvalidSetting, ReplacementRefused
from expunge.vault import Schema, Vault
from expunge.vault.disk import runs
from expunge.vault.disk.people import hash_ids

from support.disks import Crash
from support.executors import Here
from support.vaults import duplicate, everything, table

PEOPLE, ROWS = 150, 300
DECLARED = """
id = "who"
target = "y"
[columns]
x0 = {{kind = "number"{0}}}
x1 = {{kind = {1}}}
y = {{kind = "number"}}
"""


def spending(seed=0, rows=ROWS, people=PEOPLE, **changes):
    """Rows with a target that follows from the inputs, but for some noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (rows, 2))
    y = 3 * X[:, 0] - 2 * X[:, 1] + rng.normal(0, 0.3, rows)
    made = table([f"person-{k % people}" for k in range(rows)], X, y)
    for name, values in changes.items():
        made = made.set_column(made.schema.get_field_index(name), name, pa.array(values))
    return made


def garbage(seed=0, rows=ROWS):
    """The same rows with a target that has nothing to do with them."""
    return spending(seed, rows, y=np.random.default_rng(seed + 1000).uniform(-3, 3, rows))


def linear(**changes):
    return CodedRegressor(**{"shards": 4, "rate": 2, "alpha": 1e-3, "random_state": 0} | changes)


def create(path, data, **options):
    return Vault.create(path, data, **{"target": "y", "id": "who", "model": linear()} | options)


def declared(*parts):
    return Schema.parse(DECLARED.format(*parts))


@pytest.fixture
def live(tmp_path):
    return create(tmp_path / "v.vault", spending())


def record_of(vault):
    """What the ledger says of the newest request."""
    lines = [json.loads(line) for line in vault.places.ledger.read_text().splitlines()]
    return [line for line in lines if "kind" in line and line.get("kind") == "train"][-1]


def refuse(vault, data, **options):
    """Try to replace a model, which must be refused and change nothing."""
    before = everything(vault.places.vault)
    with pytest.raises(ReplacementRefused) as refused:
        create(vault.places.vault, data, replace=True, **options)
    assert everything(vault.places.vault) == before
    assert not re.search("person-|stranger-", str(refused.value))
    assert "nothing was changed" in str(refused.value)
    return str(refused.value)


def test_rows_of_the_same_kind_replace_a_model_unasked(live):
    anew = create(live.places.vault, spending(seed=1), replace=True)
    assert anew.receipt.request == 2
    assert anew.verify().ok
    assert record_of(anew)["accepted"] == []
    assert "of 150 people whom neither had learned" in record_of(anew)["compared"]
    assert not anew.receipt.notes


def test_the_first_training_is_compared_with_nothing(live):
    assert (record_of(live)["compared"], record_of(live)["accepted"]) == ("", [])


def test_a_renamed_column_is_refused_unless_the_schema_may_be_new(live):
    renamed = spending(seed=1).rename_columns(["who", "x0", "visits", "y"])
    assert "lacks 'x1'; 'visits' is new" in refuse(live, renamed)
    text = refuse(live, renamed, new_schema=True)
    assert "cannot be compared with the live one: the rows in the vault lack inputs of the new schema" in text
    anew = create(live.places.vault, renamed, replace=True, new_schema=True, accept_worse=True)
    assert record_of(anew)["accepted"] == ["new schema", "not compared"]
    assert anew.status().inputs == ("x0", "visits")
    assert anew.verify().ok


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"target": "x0"}, "the target is 'x0' instead of 'y'"),
        ({"id": "y", "target": "x0"}, "the id column is y instead of who"),
    ],
)
def test_another_target_or_column_of_ids_is_refused(live, options, told):
    data = spending(seed=1, y=np.arange(ROWS)) if "id" in options else spending(seed=1)
    if "id" in options:
        data = data.set_column(0, "who", pa.array(np.arange(ROWS, dtype=np.float64)))
    assert told in refuse(live, data, **options)
    assert "they predict different targets" in refuse(live, data, new_schema=True, **options)


def test_another_kind_is_refused_and_other_bounds_are_not(tmp_path):
    whole = {"x1": np.arange(ROWS) % 2}
    options = {"target": None, "id": None}
    vault = create(tmp_path / "v.vault", spending(**whole), schema=declared("", '"number"'), **options)
    other = declared("", '"boolean"')
    assert "'x1' is a boolean instead of a number" in refuse(vault, spending(1, **whole), schema=other, **options)
    bounded = declared(", low = -1, high = 2", '"number"')
    assert (
        create(vault.places.vault, spending(1, **whole), schema=bounded, replace=True, **options).receipt.request == 2
    )


def test_a_column_less_is_compared(live):
    fewer = spending(seed=1).drop(["x1"])
    assert "worse than the live one" in refuse(live, fewer, new_schema=True)


def test_less_than_half_of_the_rows_are_refused(live):
    some = spending(seed=1, rows=ROWS // 2 - 1)
    assert "the table has 149 rows to learn, less than half of the vault's 300" in refuse(live, some)
    assert record_of(create(live.places.vault, some, replace=True, fewer_rows=True))["accepted"] == ["fewer rows"]
    assert create(live.places.vault, spending(seed=2, rows=75), replace=True).receipt.request == 3


def test_a_garbage_target_is_refused_with_the_numbers(live):
    text = refuse(live, garbage(seed=1))
    found = re.search(r"RMSE of y (\S+) instead of (\S+) \(\+\d+\.\d%\); on 300 rows of 150 people", text)
    after, before = map(float, found.groups())
    assert 0.25 < before < 0.35
    assert after > 2 * before
    assert "by more than 5 %" in text
    assert "--accept-worse or accept_worse=True" in text


def test_a_sixth_of_the_rows_with_a_garbage_target_is_refused_twice(live):
    assert "less than half" in refuse(live, garbage(seed=1, rows=ROWS // 6))
    assert "worse than the live one" in refuse(live, garbage(seed=1, rows=ROWS // 6), fewer_rows=True)


def test_what_is_accepted_is_in_the_ledger_with_the_numbers(live):
    anew = create(
        live.places.vault, garbage(seed=1, rows=50), replace=True, fewer_rows=True, accept_worse=True, actor="dpo"
    )
    record = record_of(anew)
    assert record["accepted"] == ["fewer rows", "worse"]
    assert re.fullmatch(r"RMSE of y .+ instead of .+ \(\+.+%\); on 300 rows of 150 people .+", record["compared"])
    assert any("accepted on request: fewer rows, worse: RMSE of y" in note for note in anew.receipt.notes)
    assert anew.status().compared == record["compared"]
    assert anew.verify().ok
    assert Vault.open(live.places.vault).verify().ok


def test_worse_settings_are_refused_beyond_the_tolerance(live):
    worse = {"model": linear(alpha=3.0)}
    text = refuse(live, spending(), **worse)
    grown = float(re.search(r"\(\+([\d.]+)%\)", text)[1]) / 100
    assert 0.05 < grown < 1
    refuse(live, spending(), tolerance=grown - 0.02, **worse)
    assert create(live.places.vault, spending(), replace=True, tolerance=grown + 0.02, **worse).receipt.request == 2


def test_errors_are_those_of_models_that_never_saw_the_people(live, tmp_path):
    """Judged on rows that it has learned, a model that learns them by heart looks perfect: here it is refused."""
    by_heart = linear(shards=1, rate=1, features=RandomFourier(300, scale=30.0), alpha=1e-9)
    assert "worse than the live one" in refuse(live, spending(), model=by_heart)


def test_errors_are_those_of_vaults_that_unlearned_the_people(live, tmp_path):
    data, trained = spending(), duplicate(live.places.vault, tmp_path / "trained")
    key = bytes.fromhex(json.loads((trained / "identity.json").read_text())["key"])
    hashes = hash_ids(key, [one.encode() for one in data["who"].to_pylist()])
    group, squares = hashes[:, 0] // np.uint64(2**64 // 10 + 1), 0.0
    for k in range(10):
        vault, held_out = Vault.open(duplicate(trained, tmp_path / f"without-{k}")), data.filter(pa.array(group == k))
        vault.unlearn(list(set(held_out["who"].to_pylist())))
        squares += ((vault.predict(held_out) - held_out["y"].to_numpy()) ** 2).sum()
    anew = create(live.places.vault, spending(), replace=True)
    rmse = f"{np.sqrt(squares / ROWS):#.3g}"
    assert record_of(anew)["compared"].startswith(f"RMSE of y {rmse} instead of {rmse} (+0.0%); on 300 rows")


def test_a_table_of_ones_own_judges_instead_of_the_vault(live):
    changed = spending(seed=1)
    changed = changed.set_column(3, "y", pa.array(changed["y"].to_numpy() + 5))  # the world has changed
    fresh = spending(seed=2)
    fresh = fresh.set_column(3, "y", pa.array(fresh["y"].to_numpy() + 5)).set_column(
        0, "who", pa.array([f"stranger-{k}" for k in range(ROWS)])
    )
    refuse(live, changed)
    assert "on 300 rows of another table" in refuse(live, changed, evaluate_on=spending(seed=3).drop(["who"]))
    anew = create(live.places.vault, changed, replace=True, evaluate_on=fresh)
    assert record_of(anew)["accepted"] == []
    assert re.search(r"^RMSE of y 0\.\d+ instead of \d.+; on 300 rows of another table$", record_of(anew)["compared"])


def test_people_of_the_table_that_judges_are_unlearned_first(live):
    data = spending()
    some = data.slice(0, 30)
    by_heart = linear(shards=1, rate=1, features=RandomFourier(300, scale=30.0), alpha=1e-9)
    refuse(live, data, model=by_heart, evaluate_on=some)
    with pytest.raises(InvalidInput, match="nobody is left to learn from"):
        create(live.places.vault, data, replace=True, evaluate_on=data)


def test_a_stream_can_judge_and_can_be_learned(live):
    stream = pa.RecordBatchReader.from_batches
    fresh = spending(seed=2).drop(["who"])
    anew = create(
        live.places.vault,
        stream(spending(seed=1).schema, spending(seed=1).to_batches()),
        replace=True,
        evaluate_on=stream(fresh.schema, fresh.to_batches()),
    )
    assert "300 rows of another table" in record_of(anew)["compared"]


def test_a_table_that_cannot_judge_is_refused_before_anything_is_learned(live):
    steps = []
    for wrong in (spending().drop(["y"]), spending().drop(["x0"])):
        with pytest.raises(InvalidInput):
            create(
                live.places.vault,
                spending(1),
                replace=True,
                evaluate_on=wrong,
                progress=lambda what, rows, of: steps.append(what),
            )
    assert not steps


def test_with_a_new_schema_a_table_with_all_columns_judges(live):
    more = spending(seed=1).append_column("x2", pa.array(np.random.default_rng(0).uniform(0, 1, ROWS)))
    refuse(live, more, new_schema=True)
    judge = spending(seed=2).append_column("x2", pa.array(np.random.default_rng(1).uniform(0, 1, ROWS))).drop(["who"])
    anew = create(live.places.vault, more, replace=True, new_schema=True, evaluate_on=judge)
    assert record_of(anew)["accepted"] == ["new schema"]


def test_a_new_value_of_a_category_is_compared(tmp_path):
    options = {"target": None, "id": None}
    data = spending(x1=["a" if k % 3 else "b" for k in range(ROWS)])
    vault = create(tmp_path / "v.vault", data, schema=declared("", '"category", values = ["a", "b"]'), **options)
    wider = declared("", '"category", values = ["c", "b", "a"]')
    anew = create(vault.places.vault, data, schema=wider, replace=True, **options)
    assert record_of(anew)["accepted"] == []
    assert record_of(anew)["compared"].startswith("RMSE of y")


def test_several_targets_are_judged_each_by_itself(tmp_path):
    data, wrong = spending(), spending(1)
    both = data.append_column("z", data["y"])
    vault = create(tmp_path / "v.vault", both, target=["y", "z"])
    one_wrong = wrong.append_column("z", pa.array(np.random.default_rng(5).uniform(-3, 3, ROWS)))
    text = refuse(vault, one_wrong, target=["y", "z"])
    assert re.search(r"RMSE of y .+, RMSE of z .+; on 300 rows", text)


def test_few_people_cannot_be_compared(tmp_path):
    vault = create(tmp_path / "v.vault", spending(people=9))
    assert "the vault has rows of fewer than 10 people" in refuse(vault, spending(1))
    anew = create(vault.places.vault, spending(1), replace=True, evaluate_on=spending(2).drop(["who"]))
    assert record_of(anew)["accepted"] == []


def test_a_model_that_knows_hardly_anybody_else_is_worse(live):
    alone = spending(seed=1, people=1)
    assert "worse than the live one" in refuse(live, alone)


def test_errors_near_zero_are_alike(tmp_path):
    def exact(seed):
        data = spending(seed)
        x0, x1 = (data[name].to_numpy() for name in ("x0", "x1"))
        return data.set_column(3, "y", pa.array(x0 + x1))

    bounds = {"bounds": (0, 1), "target_bounds": (0, 2)}
    vault = create(tmp_path / "v.vault", exact(0), model=linear(alpha=1e-9, **bounds))
    anew = create(vault.places.vault, exact(1), replace=True, model=linear(alpha=1e-4, **bounds))
    after, before = map(float, re.match(r"RMSE of y (\S+) instead of (\S+)", record_of(anew)["compared"]).groups())
    assert after > 2 * before


def test_a_vault_of_which_everybody_was_erased_is_replaced_unasked(live):
    live.unlearn([f"person-{k}" for k in range(PEOPLE)])
    fresh = spending(1).set_column(0, "who", pa.array([f"stranger-{k}" for k in range(ROWS)]))
    anew = create(live.places.vault, fresh, replace=True)
    assert (record_of(anew)["compared"], record_of(anew)["accepted"]) == ("", [])


def test_erased_people_take_no_part(live):
    gone = [f"person-{k}" for k in range(0, PEOPLE, 3)]
    live.unlearn(gone)
    anew = create(live.places.vault, spending(1), replace=True, skip_erased=True)
    assert "on 200 rows of 100 people" in record_of(anew)["compared"]
    assert anew.verify().ok


def test_the_options_go_with_replace_and_have_a_range(live, tmp_path):
    for option in ({"new_schema": True}, {"evaluate_on": spending()}, {"tolerance": 0.1}):
        with pytest.raises(InvalidSetting, match="need replace=True"):
            create(tmp_path / "w.vault", spending(), **option)
    for tolerance in (-0.1, 5, float("nan"), "much", True):
        with pytest.raises(InvalidSetting, match="tolerance must be a share from 0 to 1"):
            create(live.places.vault, spending(), replace=True, tolerance=tolerance)
    assert not (tmp_path / "w.vault").exists()


def test_workers_compare_as_one_process_does(live, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "TASK_ROWS", 64)
    monkeypatch.setattr(runs, "PART_ENTRIES", 64)
    monkeypatch.setattr(runs, "RUN_ENTRIES", 64)
    monkeypatch.setattr("expunge.encoding.placement.BLOCK", 64)
    for name, data in (("right", spending(1)), ("wrong", garbage(1))):
        pq.write_table(data, tmp_path / f"{name}.parquet", row_group_size=50)
    helped = Vault.open(duplicate(live.places.vault, tmp_path / "helped"))
    here = Here(seed=1)
    text = refuse(helped, tmp_path / "wrong.parquet", client=here)
    assert {"store_pieces", "merge_part"} <= set(here.ran)
    assert text == refuse(live, tmp_path / "wrong.parquet")
    records = [
        record_of(create(vault.places.vault, tmp_path / "right.parquet", replace=True, client=client))
        for vault, client in ((helped, here), (live, None))
    ]
    assert records[0]["compared"] == records[1]["compared"] != ""
    assert Vault.open(helped.places.vault).verify().ok


@pytest.mark.parametrize("end", [KeyboardInterrupt, Crash])
def test_what_ends_in_the_midst_of_a_comparison_has_changed_nothing(live, end):
    def progress(what, rows, of):
        if what == "comparing":
            raise end

    before = everything(live.places.vault)
    with pytest.raises(end):
        create(live.places.vault, spending(1), replace=True, progress=progress)
    assert everything(live.places.vault) == before
    assert live.verify().ok


def test_a_process_that_is_killed_in_the_midst_of_a_comparison_leaves_nothing(live):
    before = everything(live.places.vault)
    child = os.fork()
    if child == 0:
        create(
            live.places.vault, spending(1), replace=True, progress=lambda what, *_: what != "comparing" or os._exit(9)
        )
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert everything(live.places.vault).keys() > before.keys()
    assert Vault.open(live.places.vault).verify().ok
    assert everything(live.places.vault) == before
