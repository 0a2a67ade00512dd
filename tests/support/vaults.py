"""What tests of vaults share: small tables, what shows of a vault, and copies of all that belongs to one."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor, RandomFourier
from expunge.vault import Vault
from expunge.vault.disk.people import hash_ids

from support.models import state_of

ANYTHING = {"new_schema": True, "fewer_rows": True, "accept_worse": True}  # with replace: whatever comes is learned
BESIDE = (".ledger", ".key", ".pub", ".certificates", ".leaves", ".lists", ".index")


def small(**changes):
    """A model of which a vault is made in milliseconds."""
    return CodedRegressor(
        **{"shards": 4, "rate": 2, "features": RandomFourier(5), "alpha": 1e-3, "random_state": 0} | changes
    )


def table(ids, X, y):
    """Rows as a table: who, x0, x1, ..., and y, or y0, y1, ... if there are several targets."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    inputs = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    targets = {"y": y} if y.ndim == 1 else {f"y{j}": y[:, j] for j in range(y.shape[1])}
    return pa.table({"who": pa.array(ids), **inputs, **targets})


def targets(y):
    """The names of the targets in such a table."""
    return "y" if np.ndim(y) == 1 else [f"y{j}" for j in range(np.shape(y)[1])]


def random_table(ids, seed=0, columns=2):
    """Such a table with one target and values in [-1, 1]."""
    rng = np.random.default_rng(seed)
    return table(ids, rng.uniform(-1, 1, (len(ids), columns)), rng.uniform(-1, 1, len(ids)))


def made(path, data=None, **changes):
    """A vault of a table, by default one of 20 people with 30 rows; random tables replace each other unasked."""
    data = random_table(people()) if data is None else data
    if changes.get("replace"):
        changes = ANYTHING | changes
    return Vault.create(path, data, **{"target": "y", "id": "who", "model": small()} | changes)


def people():
    """Whose the rows of the default table are: every second of person-0 to person-19 has two."""
    return [f"person-{k}" for k in range(20)] + [f"person-{k}" for k in range(0, 20, 2)]


def everything(path):
    """The bytes of all files of a vault, in the folder and beside it."""
    roots = [path, *(path.with_suffix(suffix) for suffix in BESIDE)]
    found = [part for root in roots for part in ([root, *root.rglob("*")] if root.is_dir() else [root])]
    return {str(part.relative_to(path.parent)): part.read_bytes() for part in sorted(found) if part.is_file()}


def duplicate(path, to):
    """A vault copied to another folder, with all that lies beside it."""
    to.mkdir(exist_ok=True, parents=True)
    for part in (path, *(path.with_suffix(suffix) for suffix in BESIDE)):
        if part.is_dir():
            shutil.copytree(part, to / part.name)
        elif part.exists():
            shutil.copy2(part, to / part.name)
    return to / path.name


def put_back(copy, path):
    """An old copy of the folder in place of the folder; what lies beside it stays."""
    shutil.rmtree(path)
    shutil.copytree(copy, path)


def weights(model):
    """The bytes of every learner's weights, of a vault, a model in memory or an oracle."""
    if isinstance(model, Vault):
        ensemble = model._reader.get_model().state.ensemble
    else:
        ensemble = state_of(model).ensemble if isinstance(model, CodedRegressor) else model.ensemble
    return [None if W is None else W.tobytes() for W in ensemble.models]


def bits(model):
    """All that training leads to: the digest and the bytes of the weights."""
    return model.digest(), weights(model)


def slots_of(vault, ids):
    """Where the rows of these ids are; for one that is erased, the negative number of the request that did it."""
    with vault._lock_for_writing() as writer:
        found = writer.snapshot.people.find(hash_ids(writer.identity.key, [str(one).encode() for one in ids]))
    slots = {one: [] for one in ids}
    for owner, slot in zip(found.owner.tolist(), found.slot.tolist(), strict=True):
        if slot != -1:
            slots[ids[owner]].append(slot if slot >= 0 else slot + 1)
    return slots


def damaged(path: Path, position: int, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
