"""Requests and their answers: what a receipt says, and who was erased stays erased."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from expunge.errors import ErasedId, InvalidInput, InvalidSetting, UnknownId
from expunge.saving.ownership import VaultFolder
from expunge.vault import Schema, Vault
from expunge.vault.certificates.jws import unverified_payload

from support.vaults import bits, everything, made, people, random_table, small, table


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
    rebounded = vault.rebound({"x0": (-1, 1)})
    assert (rebounded.request, rebounded.kind, rebounded.rows, rebounded.people) == (6, "rebound", 0, 0)
    assert [(r.number, r.kind, r.rows, r.people, r.state) for r in vault.requests] == [
        (1, "train", 30, 20, "certified"),
        (2, "unlearn", 3, 2, "certified"),
        (3, "add", 3, 2, "certified"),
        (4, "rectify", 3, 2, "certified"),
        (5, "readmit", 0, 1, "certified"),
        (6, "rebound", 0, 0, "certified"),
    ]
    assert erased.path == tmp_path / "v.certificates" / "000002.jws"
    assert erased.path.read_text() == erased.certificate + "\n" == vault.requests[1].certificate + "\n"
    status = vault.status()
    assert (status.rows, status.erased_ids, status.requests, status.uncertified) == (30, 1, 6, 0)
    assert (status.targets, status.inputs, status.shards, status.learners) == (("y",), ("x0", "x1"), 4, 2)


def test_a_certificate_names_the_schema_with_the_bounds_of_then(vault):
    receipts = [vault.receipt, vault.rebound({"x0": (-2, 2)}), vault.unlearn(["person-1"]), vault.rebound({"x0": None})]
    schemas = [unverified_payload(receipt.certificate)["schema"] for receipt in receipts]
    assert schemas[0] == schemas[3] != schemas[1] == schemas[2]


def test_the_status_does_not_miss_a_file_that_a_writer_wipes_meanwhile(vault, monkeypatch):
    there = vault.status().bytes
    monkeypatch.setattr(VaultFolder, "iterdir", lambda folder: [*Path(folder).iterdir(), folder / "learner.0.77"])
    assert vault.status().bytes == there


def test_the_status_says_what_the_model_is_and_of_how_many_people(tmp_path):
    data = table([1, 1, 2, 3, 4, 5, 6, 7, 7], np.zeros((9, 3)), np.zeros((9, 2)))
    model = small(shards=6, rate=3, alpha=0.25)
    vault = made(tmp_path / "v.vault", data, target=["y0", "y1"], model=model)
    status = vault.status()
    assert (status.rows, status.people, status.erased_ids) == (9, 7, 0)
    assert (status.shards, status.learners, status.rate, status.alpha) == (6, 2, 3.0, 0.25)
    assert (status.targets, status.columns, status.inputs) == (("y0", "y1"), ("x0", "x1", "x2"), ("x0", "x1", "x2"))
    vault.unlearn([1, 7, 2])
    vault.add(table([3, 8], np.ones((2, 3)), np.ones((2, 2))))
    vault.readmit([2])
    status = vault.status()
    assert (status.rows, status.people, status.erased_ids) == (6, 5, 2)


def test_a_vault_shows_where_it_is_and_what_it_holds_without_a_look_at_the_disk(vault):
    path = vault.places.vault
    assert repr(vault) == f"Vault({str(path)!r}, rows=30, request=1)"
    vault.predict(np.zeros((1, 2)))
    vault.unlearn(["person-2"])
    opened = Vault.open(path)
    vault.places.ledger.rename(path.with_suffix(".away"))
    assert repr(vault) == repr(opened) == f"Vault({str(path)!r}, rows=28, request=2)"


def test_a_receipt_says_who_was_there_before_and_who_was_left_out(vault):
    vault.unlearn(["person-1", "person-2"])
    more = random_table(["person-3", "new-1", "person-3", "person-1", "person-4", "new-1", "person-2", "person-1"], 3)
    receipt = vault.add(more, skip_erased=True)
    assert (receipt.rows, receipt.people, receipt.known, receipt.skipped) == (5, 3, 2, 2)
    receipt = vault.add(more.take([0, 1]))
    assert (receipt.rows, receipt.people, receipt.known, receipt.skipped) == (2, 2, 2, 0)
    anew = made(vault.places.vault, random_table(people(), seed=5), replace=True, skip_erased=True)
    assert (anew.receipt.people, anew.receipt.skipped) == (18, 2)


def test_rows_that_are_added_are_clipped_if_asked(tmp_path):
    bounds = {"bounds": ([-1, None], [1, None]), "target_bounds": (-1, 1)}
    far = table(["a", "b", "c"], [[-3.5, 9.0], [0.5, -8.0], [1.5, 0.0]], [2.0, 0.5, -1.5])
    near = table(["a", "b", "c"], [[-1.0, 9.0], [0.5, -8.0], [1.0, 0.0]], [1.0, 0.5, -1.0])  # x1 is observed
    vault, other = (made(tmp_path / f"{name}.vault", model=small(**bounds)) for name in "vw")
    before = everything(vault.places.vault)
    with pytest.raises(InvalidInput, match=r"2 in column 'x0', 2 in column 'y' \(of 3 rows\).*--clip"):
        vault.add(far)
    assert everything(vault.places.vault) == before
    assert vault.add(far, clip=True).rows == other.add(near).rows == 3
    assert bits(vault) == bits(other)
    with pytest.raises(InvalidInput):  # once: the vault itself does not clip
        vault.add(far)
    assert vault.verify().ok


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
    with pytest.raises(ErasedId, match="^1 id "):
        vault.rectify(random_table(["person-1"]))
    assert vault.add(back, skip_erased=True).rows == 2
    vault.readmit(["person-1"])
    with pytest.raises(ErasedId, match="^1 id "):
        vault.add(back.slice(1))
    assert vault.add(back.slice(3, 1)).rows == 1
    with pytest.raises(UnknownId, match="ids that are not erased: 1 of 1, at position 1"):
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
    other = made(vault.places.vault.parent / "w.vault", random_table(people(), seed=5))
    other.unlearn(["person-1", "person-2"])  # rows that are left out leave holes, as if they were erased
    assert bits(anew) == bits(other)
    assert [r.kind for r in anew.requests] == ["train", "unlearn", "train"]
    assert not [path for path in vault.places.vault.glob("*.1") if path.stat().st_size]
    assert anew.verify().ok


def test_training_anew_leaves_rows_out_that_a_table_lacks_without_burying_anybody(vault):
    anew = made(vault.places.vault, random_table([f"new-{k}" for k in range(8)]), replace=True)
    with pytest.raises(UnknownId):
        anew.unlearn(["person-1"])
    assert anew.add(random_table(["person-1"])).rows == 1


def test_predictions_are_written_with_their_ids_to_csv_and_parquet(vault, tmp_path):
    data = random_table(["a", "b", "c"], seed=8)
    expected = vault.predict(data)
    for name in ("p.csv", "p.parquet"):
        assert vault.predict_to(data, tmp_path / name).rows == 3
        read = pyarrow.csv.read_csv if name.endswith("csv") else pyarrow.parquet.read_table
        found = read(tmp_path / name)
        assert found["who"].to_pylist() == ["a", "b", "c"]
        np.testing.assert_array_equal(found["predicted_y"], expected)
    assert vault.predict_to(data.drop(["who", "y"]), tmp_path / "p.csv").rows == 3
    assert pyarrow.csv.read_csv(tmp_path / "p.csv").column_names == ["predicted_y"]
    with pytest.raises(InvalidSetting, match="to .csv or .parquet"):
        vault.predict_to(data, tmp_path / "p.json")
    with pytest.raises(InvalidInput):
        vault.predict_to(data.drop(["x0"]), tmp_path / "q.csv")
    assert sorted(path.name for path in tmp_path.iterdir() if "p." in path.name or "q." in path.name) == [
        "p.csv",
        "p.parquet",
    ]


def test_predictions_come_with_the_ids_of_the_rows_if_there_are_any(vault):
    data = random_table(["a", "b", "c"], seed=8)
    ids, predicted = vault.predict_with_ids(data)
    assert ids == ["a", "b", "c"]
    np.testing.assert_array_equal(predicted, vault.predict(data))
    assert vault.predict_with_ids(data.drop(["who"]))[0] is None
    assert vault.predict_with_ids(data.slice(0, 0))[0] == []


def test_a_receipt_counts_the_values_that_were_moved_to_a_bound(tmp_path):
    vault = made(tmp_path / "v.vault", model=small(bounds=(-1, 1), target_bounds=(-1, 1)))
    outside = table(["a", "b", "c"], [[5.0, 0.0], [0.5, -3.0], [0.0, 0.0]], [0.0, 9.0, 0.0])
    with pytest.raises(InvalidInput, match="rows outside the declared bounds"):
        vault.add(outside)
    assert vault.add(outside, clip=True).clipped == 3
    assert vault.add(outside.slice(2), clip=True).clipped == 0
    assert vault.verify().ok


CLIPPING = Schema.parse("""
id = "who"
target = "y"
[columns.x0]
kind = "number"
low = -0.5
high = 0.5
clip = true
[columns.x1]
kind = "number"
low = -1
high = 1
[columns.y]
kind = "number"
low = -1
high = 1
""")


def test_a_column_that_clips_is_learned_as_if_its_values_were_at_the_bound(tmp_path):
    data = random_table(people())
    x0 = data["x0"].to_numpy()
    moved = data.set_column(1, "x0", pa.array(np.clip(x0, -0.5, 0.5)))
    schema = {"schema": CLIPPING, "target": None, "id": None}
    vault, other = made(tmp_path / "v.vault", data, **schema), made(tmp_path / "w.vault", moved, **schema)
    assert (vault.receipt.clipped, other.receipt.clipped) == (int((np.abs(x0) > 0.5).sum()), 0)
    far = table(["person-1", "person-3"], [[-9.0, 0.5], [9.0, 0.5]], [0.5, 0.5])
    near = table(["person-1", "person-3"], [[-0.5, 0.5], [0.5, 0.5]], [0.5, 0.5])
    for request in ("add", "rectify"):
        change = (far, near) if request == "add" else (pa.concat_tables([far, far]), pa.concat_tables([near, near]))
        receipts = [getattr(one, request)(rows) for one, rows in zip((vault, other), change, strict=True)]
        assert [receipt.clipped for receipt in receipts] == [len(change[0]), 0]
        assert bits(vault) == bits(other)
    for outside in (table(["new"], [[0.0, 1.5]], [0.5]), table(["new"], [[0.0, 0.5]], [1.5])):
        with pytest.raises(InvalidInput, match="rows outside the declared bounds: 1 in column '(x1|y)'"):
            vault.add(outside)
    assert vault.verify().ok


def test_the_column_of_the_ids_cannot_be_the_target(tmp_path):
    with pytest.raises(InvalidSetting, match="the target and the id column are the same"):
        made(tmp_path / "v.vault", target="who")
