"""Files that were damaged or crafted: each is read or refused with an error of ours, never with another one.

A sample of the cases is tried here; the tests marked ``torture`` try many more.
"""

import hashlib
import json
import random
import shutil
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from expunge import CodedRegressor, Powers, RandomFourier
from expunge.errors import ExpungeError, InvalidFile, InvalidInput, InvalidSetting
from expunge.tables.proposal import propose_schema
from expunge.tables.proposal.draft import plain_schema
from expunge.tables.reader import read_blocks
from expunge.tables.schema import Schema
from expunge.vault import Vault
from expunge.vault.status import try_read_status

from support.fuzzing import flipped, odd_archive, odd_document
from support.tables import FORMS, SCHEMA, arrow, arrow_file, parquet, whole
from support.tampering import PROBE, WHO, of_kind
from support.vaults import duplicate

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

SAMPLE, MANY = 60, 3000


def cases(count, *names):
    """Parameters that try so many cases of each name, and many more in torture."""
    few = [pytest.param(name, count, id=str(name)) for name in names]
    return few + [
        pytest.param(name, MANY, id=f"{name}, many", marks=pytest.mark.torture) for name in names
    ]  # as many seeds, so the sample is among them


def tried(count, attempt):
    """Try with so many seeds; an error that is not ours fails, and tells the seed."""
    for seed in range(count):
        try:
            attempt(random.Random(seed))
        except ExpungeError:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


# Tables


@cache
def frame():
    rng, n = np.random.default_rng(0), 40
    made = pd.DataFrame(
        {
            "note": ["x"] * n,
            "seen": pd.to_datetime(rng.integers(-(10**9), 2 * 10**9, n), unit="s"),
            "city": rng.choice(["Berlin", "7", "Ulm", None], n),
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(40, 20, n)),
            "who": [f"0{k}" for k in rng.integers(0, 50, n)],
            "member": rng.choice(np.array([True, False, None], dtype=object), n),
            "joined": rng.choice(np.array([date(1969, 5, 5), None], dtype=object), n),
            "y": rng.normal(size=n),
            "won": rng.random(n) < 0.5,
        }
    )
    return arrow(made.astype({"member": "boolean"}))


def packed(table):
    """The same table with dictionaries."""
    texts = ("city", "who", "note")
    cells = {name: table[name] for name in table.column_names}
    return pa.table({name: cell.dictionary_encode() if name in texts else cell for name, cell in cells.items()})


TABLES = {
    **{form: FORMS[form] for form in ("csv", "csv.gz", "parquet", "pq", "arrow", "arrow stream", "feather", "ipc")},
    "parquet, dictionaries": lambda t, d: parquet(packed(t), d / "t.parquet", data_page_version="2.0"),
    "arrow, dictionaries": lambda t, d: arrow_file(packed(t), d / "t.arrow"),
    "arrow stream, dictionaries": lambda t, d: arrow_file(packed(t), d / "t.arrow", pa.ipc.new_stream),
}
READERS = (
    lambda path: list(read_blocks(path, SCHEMA, targets=True, ids=True)),
    lambda path: [one.decode() for block in read_blocks(path, SCHEMA, targets=False, ids=True) for one in block.ids],
    lambda path: propose_schema(path, target="y", id="who"),
    lambda path: plain_schema(path, "y", "who"),
)


@pytest.mark.parametrize(("form", "count"), cases(SAMPLE, *TABLES))
def test_a_damaged_table_is_read_or_refused(tmp_path, form, count):
    path = TABLES[form](frame(), tmp_path)
    content = path.read_bytes()

    def attempt(rng):
        path.write_bytes(flipped(rng, content))
        rng.choice(READERS)(path)

    tried(count, attempt)


def test_an_arrow_file_that_claims_more_than_there_is_memory_for_is_refused(tmp_path):
    path = FORMS["feather"](frame(), tmp_path)
    content = path.read_bytes()
    lengths = [k for k in range(len(content) - 12) if content[k + 8 : k + 12] == b"\x04\x22\x4d\x18"]  # before LZ4
    assert lengths
    told = []
    for k in lengths:
        path.write_bytes(content[:k] + (2**47).to_bytes(8, "little") + content[k + 8 :])
        for read in READERS[:2]:
            try:
                read(path)  # columns that nobody wants are not looked at
            except InvalidFile as error:
                told.append(str(error))
    assert any("batches do not fit into memory" in text for text in told)


@pytest.mark.parametrize("form", ["table", "arrow", "parquet"])
def test_text_that_is_no_text_and_indices_that_point_nowhere_are_refused(tmp_path, form):
    offsets = pa.py_buffer(np.array([0, 2], dtype=np.int32).tobytes())
    no_text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    nowhere = pa.DictionaryArray.from_arrays(pa.array([9]), pa.array(["a"]), safe=False)
    schema = Schema.parse('id="i"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.c]\nkind="category"\nvalues=["a"]')
    for column in (no_text, nowhere):
        if column is nowhere and form == "parquet":
            continue  # pyarrow writes no such file
        for cells in ({"i": column, "c": pa.array(["a"])}, {"i": pa.array(["a"]), "c": column}):
            table = pa.table({**cells, "y": [1.0]})
            with pytest.raises((InvalidInput, InvalidFile)):
                whole(FORMS[form](table, tmp_path), schema)


def test_dictionaries_that_have_no_room_in_one_are_read():
    parts = [
        pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array([f"{part}{k}" for k in range(100)]))
        for part in "ab"
    ]
    batches = [pa.record_batch({"who": part, "x": np.ones(100), "y": np.ones(100)}) for part in parts]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    schema = Schema.parse('id="who"\ntarget="y"\n[columns.y]\nkind="number"\n[columns.x]\nkind="number"')
    assert whole(reader, schema)[2] == [f"{part}{k}".encode() for part in "ab" for k in range(100)]


# Schemas


@pytest.mark.parametrize(("form", "count"), cases(10 * SAMPLE, "toml", "json"))
def test_an_odd_schema_is_understood_or_refused(form, count):
    toml = Path(__file__).parents[2].joinpath("docs/schema.md").read_text().split("```toml\n")[1].split("```")[0]
    document = json.loads(SCHEMA.to_json())

    def attempt(rng):
        if form == "toml":
            schema = Schema.parse(flipped(rng, toml.encode()).decode(errors="replace"))
        else:
            schema = Schema.from_json(json.dumps(odd_document(rng, document), sort_keys=True, separators=(",", ":")))
        assert Schema.from_json(schema.to_json()) == schema
        assert len(schema.bounds()[0]) == len(schema.inputs)

    tried(count, attempt)


@pytest.mark.parametrize("depth", [100, 400, 900, 2000, 100_000])
def test_a_schema_that_is_nested_too_deep_is_refused(depth):
    for text in (f"target = {'[' * depth}{']' * depth}", f"target = {'{a=' * depth}1{'}' * depth}", "[" * depth):
        with pytest.raises(InvalidSetting):
            Schema.parse(text)


# Vaults


def signed(content):
    """A manifest with a checksum that fits."""
    plain = json.dumps({**content, "sum": ""}, sort_keys=True, separators=(",", ":")).encode()
    whole_one = {**content, "sum": hashlib.sha256(plain).hexdigest()}
    return json.dumps(whole_one, sort_keys=True, separators=(",", ":")).encode()


def crafted(rng, path, kind):
    """Change a file of a vault so that every checksum fits."""
    (manifest,) = of_kind(path, "manifest")
    content = json.loads(manifest.read_bytes())
    if kind == "manifest":
        return manifest.write_bytes(signed(odd_document(rng, content)))
    if kind == "identity":
        identity = odd_document(rng, json.loads((path / "identity.json").read_bytes()))
        if isinstance(identity.get("vault"), str) and isinstance(identity.get("key"), str):
            raw = identity["vault"].encode(errors="replace") + identity["key"].encode(errors="replace")
            identity["sum"] = hashlib.sha256(raw).hexdigest()
        return (path / "identity.json").write_bytes(json.dumps(identity).encode())
    file = path / content[kind]["name"]
    if kind == "blueprint":
        data = odd_archive(rng, file.read_bytes())
    else:
        document = odd_document(rng, json.loads(file.read_bytes()))
        data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    file.write_bytes(data)
    content[kind]["sum"] = hashlib.sha256(data).hexdigest()
    return manifest.write_bytes(signed(content))


@pytest.mark.parametrize(("kind", "count"), cases(SAMPLE, "manifest", "identity", "schema", "blueprint"))
def test_a_crafted_vault_answers_or_refuses(original, tmp_path, kind, count):
    def attempt(rng):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        path = duplicate(original, tmp_path / "copy")
        crafted(rng, path, kind)
        if rng.random() < 0.3:
            try_read_status(path)
        vault = Vault.open(path, wait=0.0)
        vault.predict(PROBE)
        vault.status()
        vault.find([WHO])
        vault.unlearn([WHO])
        vault.verify()

    tried(count, attempt)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "9" * 400, "9" * 5000])
def test_a_number_that_no_float_holds_is_refused_in_a_manifest(original, copies, number):
    path = copies()
    (manifest,) = of_kind(path, "manifest")
    text = manifest.read_text()
    low = json.loads(text)["inputs"]["low"]
    changed = text.replace(json.dumps(low, separators=(",", ":")), f"[{number},{number}]", 1)
    assert changed != text
    manifest.write_text(changed)
    with pytest.raises(InvalidFile, match="manifest"):
        Vault.open(path)


# Saved models


@cache
def saved(folder, kind, ids):
    settings = {
        "fourier": {"features": RandomFourier(5)},
        "identity": {},
        "powers": {"features": Powers(2), "bounds": (0, 1), "target_bounds": (0, 1), "clip": True},
        "coded": {"keep": "coded", "bounds": (0, 1), "target_bounds": (0, 1)},
        "unit": {"bounds": "unit"},
    }[kind]
    rng = np.random.default_rng(0)
    model = CodedRegressor(shards=4, rate=2, random_state=0, **settings)
    model.fit(rng.random((24, 2)), rng.random(24), **({"ids": [f"p{k}" for k in range(24)]} if ids else {}))
    model.save(folder / "model")
    return (folder / "model").read_bytes()


@pytest.mark.parametrize(("kind", "count"), cases(SAMPLE, "fourier", "identity", "powers", "coded", "unit"))
def test_a_crafted_model_is_loaded_or_refused(tmp_path, kind, count):
    path = tmp_path / "changed"

    def attempt(rng):
        ids = rng.random() < 0.5
        path.write_bytes((flipped if rng.random() < 0.3 else odd_archive)(rng, saved(tmp_path, kind, ids)))
        model = CodedRegressor.load(path)
        if hasattr(model, "feature_names_in_"):
            return
        model.predict(np.full((1, model.n_features_in_), 0.5))
        model.digest()
        model.save(path)
        CodedRegressor.load(path).unlearn("p3" if ids else 3)

    tried(count, attempt)
