"""An old copy of the folder gets the bounds that were declared since, whatever else was asked for meanwhile."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from expunge.vault import Vault
from expunge.vault.disk.folder import Folder
from expunge.vault.requests import Rebound, Restore

from support.disks import ended_at
from support.oracle import Oracle, Request
from support.vaults import bits, everything, put_back, slots_of, small, table

FIRST = Request.drawn("train", 0, [k % 20 for k in range(24)])
WIDER = Request.rebound(x0=(-1.0, 3.0), y=(0.0, 2.0))
SINCE = {
    "rebound": [WIDER],
    "twice": [WIDER, Request.rebound(x0=(0.0, 2.0), x1=(0.0, 1.0))],
    "and back": [WIDER, Request.rebound(x0=None, y=None)],
    "rebound, unlearn, add, rectify": [
        WIDER,
        Request("unlearn", (5, 7)),
        Request.drawn("add", 1, [20, 21, 20], 2.0),
        Request.drawn("rectify", 2, [6, 1, 1]),
    ],
    "unlearn, add, rectify, rebound": [
        Request("unlearn", (5,)),
        Request.drawn("add", 1, [20, 21], 3.0),
        Request("unlearn", (21,)),
        Request.drawn("rectify", 2, [6]),
        Request.rebound(x0=(0.0, 3.0), x1=(0.0, 3.0), y=None),
        Request("readmit", (5,)),
    ],
}


class Life:
    """A vault, an oracle that is asked the same, and copies of the folder."""

    def __init__(self, root, declared=()):
        bounds = {"bounds": (0, 4), "target_bounds": (0, 4)} if declared else {}
        self.path = root / "v.vault"
        self.vault = Vault.create(self.path, FIRST.table, target="y", id="who", model=small(**bounds))
        self.oracle = Oracle.of(small(**bounds)).after(FIRST)
        self.past = [(set(), set())]  # of each request: whom it erased or corrected, what a restore erased

    def ask(self, *requests):
        for request in requests:
            request.ask(self.vault)
            self.oracle = self.oracle.after(request)
            self.past.append((set(request.ids) if request.kind in ("unlearn", "rectify") else set(), set()))

    def copied(self, name):
        return shutil.copytree(self.path, self.path.parent / name), self.oracle

    def put_back(self, copy):
        """The oracle has what is left of the copy's rows, with the bounds of now. Returns how many were outside."""
        folder, old = copy
        put_back(folder, self.path)
        self.vault = Vault.open(self.path)
        people, slots = (set().union(*parts) for parts in zip(*self.past[old.request :], strict=True))
        held = old.without(people, slots)
        outside = [slot for mine in held.rows.values() for slot, row in mine if self.oracle.inside(row) != row]
        rows = held.without(slots=outside).rows
        self.oracle = replace(self.oracle, rows=rows, kinds=(*self.oracle.kinds, "restore"))
        self.past.append((set(), old.slots - self.oracle.slots))
        return len(outside)

    def check(self):
        assert bits(self.vault) == bits(self.oracle)
        assert [request.kind for request in self.vault.requests] == list(self.oracle.kinds)
        assert {request.state for request in self.vault.requests} == {"certified"}
        verdict = self.vault.verify()
        assert verdict.ok, verdict
        assert bits(Vault.open(self.path)) == bits(self.oracle)
        rows = {one: [slot for slot, _ in mine] for one, mine in self.oracle.rows.items()}
        found = slots_of(self.vault, sorted({*range(30), *rows}))
        assert {one: slots for one, slots in found.items() if slots and slots[0] >= 0} == rows
        names = {path.name for path in self.path.iterdir()}
        manifest = self.vault._writer.snapshot.manifest
        assert names == manifest.file_names | manifest.spares | {"identity.json", "current"}


@pytest.mark.parametrize("declared", [False, True], ids=["observed", "declared"])
@pytest.mark.parametrize("since", SINCE)
def test_a_copy_from_before_a_rebound_gets_its_bounds_however_often_it_is_put_back(tmp_path, since, declared):
    life = Life(tmp_path, declared)
    copy = life.copied("copy")
    life.ask(*SINCE[since])
    for _ in range(2):
        assert life.put_back(copy) == 0
        life.check()
    life.ask(Request("unlearn", (2,)), Request.drawn("add", 3, [25, 26]), Request.rebound(x1=(-1.0, 5.0)))
    life.check()
    life.put_back(copy)
    life.check()


def test_copies_from_between_rebounds_get_the_bounds_of_the_last(tmp_path):
    life, copies = Life(tmp_path), []
    for k, request in enumerate([*SINCE["rebound, unlearn, add, rectify"], Request.rebound(x0=None, x1=(-9.0, 9.0))]):
        copies.append(life.copied(f"{k}"))
        life.ask(request)
    for copy in (*copies, *reversed(copies)):
        life.put_back(copy)
        life.check()


@pytest.mark.parametrize("where", [(Rebound, "overwrite"), (Folder, "commit"), (Folder, "wipe_all_but")])
def test_a_rebound_that_nobody_finished_is_done_by_the_copy_that_is_put_back(tmp_path, where):
    """It is accepted: the copy that knows nothing of it has its bounds, too."""
    life = Life(tmp_path)
    copy = life.copied("copy")
    life.ask(Request("unlearn", (3,)))
    ended_at(*where, lambda: WIDER.ask(life.vault))
    life.oracle = life.oracle.after(WIDER)
    life.past.append((set(), set()))
    life.put_back(copy)
    assert bits(life.vault) == bits(life.oracle)
    assert [r.state for r in life.vault.requests] == ["certified", "certified", "restored", "certified"]
    assert life.vault.verify().ok


def test_a_copy_that_catches_up_with_a_rebound_may_end_at_any_step(tmp_path):
    life = Life(tmp_path)
    copy = life.copied("copy")
    life.ask(*SINCE["rebound, unlearn, add, rectify"])
    for where in ((Restore, "overwrite"), (Folder, "commit"), (Folder, "wipe_all_but")):
        put_back(copy[0], life.path)
        ended_at(*where, lambda: Vault.open(life.path))
        life.put_back((shutil.copytree(life.path, tmp_path / f"{where[1]}"), copy[1]))
        assert bits(life.vault) == bits(life.oracle)
        assert life.vault.verify().ok


def lost_and_found(root):
    """A vault that lost rows of an old copy, got bounds that leave some of them outside, and gets that copy back."""
    life = Life(root)
    first = life.copied("first")
    far = Request("add", (20, 20, 21, 22), ((0.5, 0.5, 0.5), (7.5, 0.5, 0.5), (0.5, 0.5, -3.25), (0.5, 9.0, 0.5)))
    life.ask(far)
    second = life.copied("second")
    life.put_back(first)
    life.ask(Request.rebound(x0=(0.0, 1.0), y=(0.0, 1.0)))
    return life, second


def test_rows_that_a_copy_has_outside_the_bounds_that_were_declared_since_are_erased_and_told(tmp_path):
    """No model has them, and no model with these bounds can: they were missing when the bounds were declared."""
    life, second = lost_and_found(tmp_path)
    assert life.put_back(second) == 2
    (note,) = life.vault.notes
    assert note == (
        "this folder is a copy from request 2. 0 rows that were erased or corrected since are now erased; "
        "add the corrected ones again. 0 rows added since are missing; add them again. "
        "2 rows are outside bounds that were declared since, so they are erased"
    )
    life.check()
    assert [holding.rows for holding in life.vault.find([20, 21, 22])] == [1, 0, 1]
    assert life.vault.add(table([21], [[0.5, 0.5]], [0.5])).rows == 1  # nobody was erased: they may come again
    held = b"".join(everything(life.path).values())
    assert not [value for value in (7.5, -3.25) if np.float64(value).tobytes() in held]


def test_rows_outside_are_erased_although_the_process_that_catches_up_ends(tmp_path):
    life, (folder, old) = lost_and_found(tmp_path)
    for where in ((Restore, "overwrite"), (Folder, "commit"), (Folder, "wipe_all_but")):
        put_back(folder, life.path)
        ended_at(*where, lambda: Vault.open(life.path))
        life.put_back((shutil.copytree(life.path, tmp_path / f"{where[1]}"), old))
        assert [holding.rows for holding in life.vault.find([20, 21, 22])] == [1, 0, 1]
        assert bits(life.vault) == bits(life.oracle)
        assert life.vault.verify().ok
