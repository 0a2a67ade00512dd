"""Bad input: the right error, nothing changed, nothing told."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import CodedRegressor
from expunge.errors import ErasedId, InvalidColumns, InvalidFile, InvalidInput, InvalidSetting, MissingData, UnknownId
from expunge.learning.settings import Settings
from expunge.vault import Schema, Vault

from support.vaults import bits, everything, made, random_table, small

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
        (lambda vault: vault.predict(np.array([[np.nan, 0.0]])), InvalidColumns),
        (lambda vault: vault.predict(random_table(["a"]).drop(["x0"])), InvalidInput),
        (lambda vault: vault.renew_key(public_key=vault.places.public), InvalidSetting),
        (lambda vault: vault.unlearn(["person-1"], reference="a\nb"), InvalidSetting),
        (lambda vault: vault.unlearn(["person-1"], actor="x" * 201), InvalidSetting),
        (lambda vault: vault.unlearn(["person-1"], reference=17), InvalidSetting),
        (lambda vault: vault.unlearn(["person-1"], in_certificate="yes"), InvalidSetting),
        (lambda vault: vault.personal_receipts(["person-1"]), UnknownId),
        (lambda vault: vault.personal_receipts(["person-0"], request=1), InvalidSetting),
        (lambda vault: vault.personal_receipts(["person-0"], request=99), InvalidSetting),
        (lambda vault: vault.personal_receipts(["person-1"], request=2), UnknownId),
        (lambda vault: vault.attest_unknown(["person-1"]), InvalidInput),
        (lambda vault: vault.attest_unknown(["nobody", "person-0"]), InvalidInput),
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
    assert type(caught.value).public_name() == error.public_name()
    assert "secret" not in str(caught.value)
    assert "person-" not in str(caught.value)
    assert everything(vault.places.vault) == before
    assert vault.verify().ok
    assert vault.unlearn(["person-1"]).request == 3


def test_a_model_that_a_vault_cannot_hold_is_refused(tmp_path):
    for model in (small(learner=Lasso(fit_intercept=False)), small(keep="coded", bounds="unit", target_bounds="unit")):
        with pytest.raises(InvalidSetting, match="learner='ridge' and keep='rows'"):
            made(tmp_path / "v.vault", model=model)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_is_refused_by_its_name(tmp_path):
    for model, got in (
        (make_pipeline(StandardScaler(), small()), "Pipeline"),
        (Lasso(), "Lasso"),
        (CodedRegressor, "the class CodedRegressor"),
        ("ridge", "str"),
    ):
        with pytest.raises(InvalidSetting, match=f"^model must be a CodedRegressor or Settings, got {got}; "):
            made(tmp_path / "v.vault", model=model)
    assert list(tmp_path.iterdir()) == []


def test_settings_and_a_regressor_make_the_same_vault(tmp_path):
    vaults = [
        made(tmp_path / f"{k}.vault", model=model) for k, model in enumerate((small(), Settings.from_model(small())))
    ]
    assert bits(vaults[0]) == bits(vaults[1])


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
