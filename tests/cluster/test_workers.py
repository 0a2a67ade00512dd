"""How work is cut into tasks and put together, without Dask: the same bytes whatever order, cuts and repetitions."""

import os
import pickle
import resource
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.distributed import tasks, workers
from expunge.errors import ClusterFailed, ErasedId, InvalidInput
from expunge.saving import files
from expunge.stores.change import Change
from expunge.vault import Vault
from expunge.vault.disk import runs
from expunge.vault.disk.folder import Folder

from support.executors import Here
from support.vaults import made, random_table, small, weights


@pytest.fixture
def vault(tmp_path):
    return made(tmp_path / "v.vault")


def create(path, data, client=None, **changes):
    return Vault.create(path, data, **{"target": "y", "id": "who", "model": small()} | changes, client=client)


def shown(vault):
    return vault.digest(), weights(vault), [(r.kind, r.rows, r.people, r.state) for r in vault.requests]


def only_what_counts(vault):
    manifest = Folder(vault.places.vault).read_current_manifest()
    names = {part.name for part in vault.places.vault.iterdir()}
    return names == manifest.file_names | manifest.spares | {"identity.json", "current"}


@pytest.mark.parametrize("bounds", [None, (-2.0, 2.0)])
def test_everything_that_workers_help_with_has_the_bytes_of_one_process(tmp_path, data, small_tasks, bounds):
    model = small(bounds=bounds, target_bounds=bounds)
    mine, theirs = tmp_path / "mine.vault", tmp_path / "theirs.vault"
    here = Here(seed=1)
    alone, helped = create(mine, data / "first", model=model), create(theirs, data / "first", here, model=model)
    assert {"store_pieces", "merge_part", "sum_stripes", "add_packed_moments"} <= set(here.ran)
    assert shown(alone) == shown(helped)
    gone = [f"person-{k}" for k in range(0, 20_000, 3)]
    for ask in (
        lambda vault, client: vault.add(data / "more.parquet", client=client),
        lambda vault, client: vault.unlearn(gone, client=client),
        lambda vault, client: vault.unlearn(["person-1", "person-2"], client=client),
        lambda vault, client: vault.add(data / "more.parquet", skip_erased=True, client=client),
    ):
        a, b = ask(alone, None), ask(helped, here)
        assert (a.rows, a.people, a.learners, a.skipped, a.known) == (b.rows, b.people, b.learners, b.skipped, b.known)
        assert shown(alone) == shown(helped)
        assert only_what_counts(helped)
    assert [check.ok for check in helped.verify(client=here).checks] == [True] * 5
    assert shown(Vault.open(theirs)) == shown(helped)
    people = gone[:2] + ["person-1"]
    assert {one: type(r) for one, r in helped.personal_receipts(people).items()}.keys() == set(people)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(300, 3_000),
    st.integers(50, 700),
    st.integers(1, 2_000),
    st.integers(100, 3_000),
    st.integers(0, 2**32),
    st.sampled_from([1, 4, 7]),
)
def test_cuts_and_repetitions_do_not_show(tmp_path_factory, rows, group, task, part, seed, shards):
    folder = tmp_path_factory.mktemp("cuts")
    pq.write_table(
        random_table([f"p{k % 50}" for k in range(rows)], seed=seed % 100), folder / "t.parquet", row_group_size=group
    )
    model = small(shards=shards, rate=shards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "TASK_ROWS", task)
        patch.setattr(runs, "PART_ENTRIES", part)
        patch.setattr(runs, "RUN_ENTRIES", part)
        patch.setattr("expunge.encoding.placement.BLOCK", 512)
        alone = create(folder / "a.vault", folder / "t.parquet", model=model)
        helped = create(folder / "b.vault", folder / "t.parquet", Here(seed), model=model)
        for vault, client in ((alone, None), (helped, Here(seed))):
            vault.unlearn([f"p{k}" for k in range(0, 50, 2)], client=client)
            vault.add(folder / "t.parquet", skip_erased=True, client=client)
        assert shown(alone) == shown(helped)
        assert helped.verify(client=Here(seed)).ok
        assert only_what_counts(helped)


def test_a_table_that_has_no_pieces_is_read_by_this_process(tmp_path, small_tasks):
    here = Here()
    helped = create(tmp_path / "v.vault", random_table([f"p{k}" for k in range(300)]), here)
    assert "store_pieces" not in here.ran
    assert helped.verify().ok


def test_refusals_have_the_numbers_of_the_whole_table(tmp_path, small_tasks):
    whole = random_table([f"p{k}" for k in range(9_000)])
    values = whole.column("x0").to_numpy().copy()
    values[[10, 4_500, 8_999]] = np.nan
    broken = whole.set_column(1, "x0", pa.array(values, from_pandas=True))
    pq.write_table(broken, tmp_path / "t.parquet", row_group_size=500)
    told = []
    for client in (None, Here()):
        with pytest.raises(InvalidInput) as refusal:
            create(tmp_path / "v.vault", tmp_path / "t.parquet", client)
        told.append(str(refusal.value))
        assert not (tmp_path / "v.vault").exists()
    assert told[0] == told[1]
    assert "3 in column 'x0' (of 9,000 rows)" in told[0]


def test_erased_people_are_refused_by_whoever_finds_them(tmp_path, data, small_tasks):
    vault = create(tmp_path / "v.vault", data / "first", Here())
    vault.unlearn(["person-5"])
    before = shown(vault)
    with pytest.raises(ErasedId, match="^1 id in this table was erased before"):
        vault.add(data / "first", client=Here())
    assert shown(Vault.open(vault.places.vault)) == before
    assert only_what_counts(vault)


def test_workers_that_do_not_see_the_vault_are_refused_and_nothing_is_left(tmp_path, data, small_tasks):
    class Blind(Here):
        def run_everywhere(self, task, *arguments):
            return {"one": True, "another": False}

    with pytest.raises(ClusterFailed, match="1 of the workers cannot use .*v.vault: a vault must lie on a file system"):
        create(tmp_path / "v.vault", data / "first", Blind())
    assert not (tmp_path / "v.vault").exists()


@pytest.mark.parametrize("task", ["store_pieces", "merge_part", "sum_stripes", "add_packed_moments"])
def test_a_task_that_fails_leaves_all_as_it_was(tmp_path, data, small_tasks, task):
    class Failing(Here):
        def _called(self, function, *arguments):
            if function.__name__ == task and (task in self.ran or task == "add_packed_moments"):
                raise RuntimeError("broken")
            return super()._called(function, *arguments)

    vault = create(tmp_path / "v.vault", data / "first")
    before = shown(vault)
    with pytest.raises(RuntimeError, match="broken"):
        vault.add(data / "first", client=Failing()) if task != "add_packed_moments" else vault.unlearn(
            [f"person-{k}" for k in range(15_000)], client=Failing()
        )
    assert shown(Vault.open(vault.places.vault)) == before
    assert vault.verify().ok
    assert only_what_counts(vault)


def test_a_worker_that_was_cut_off_stops_and_wipes_what_it_wrote(tmp_path, data, small_tasks):
    """The request was given up, and the token is gone; or it is done, and the vault is another."""
    late = []

    class GivesUp(Here):
        def run(self, task, calls, done):
            if task.__name__ != "sum_stripes":  # which writes nothing
                late.append((task, calls[0]))
            if task.__name__ == "merge_part":
                raise RuntimeError("given up")
            return super().run(task, calls, done)

    vault = create(tmp_path / "v.vault", data / "first")
    with pytest.raises(RuntimeError, match="given up"):
        vault.add(data / "more.parquet", client=GivesUp())
    names = set(files.VaultDir(vault.places.vault).names())
    assert len(late) == 2
    for told in ("no sign of this request", "another state of it"):
        for task, call in late:
            with pytest.raises(ClusterFailed, match=told):
                task(*call)
            assert {name.split(".")[0] for name in files.VaultDir(vault.places.vault).names()} == {
                n.split(".")[0] for n in names
            }
        vault.unlearn(["person-1"])


def test_a_token_that_ends_in_the_midst_of_a_task_leaves_zeros_behind(tmp_path, data, small_tasks, monkeypatch):
    """Whoever asked has wiped and removed the files of a worker that goes on: what it writes then has no name."""
    vault = create(tmp_path / "v.vault", data / "first")
    kept = []

    def giving_up(task, *arguments):
        write = files.write_all

        def late(fd, content, offset):
            if not kept:
                kept.append(os.dup(fd))
                vault._writer.folder.wipe_all_but(vault._writer.folder.read_current_manifest())
            write(fd, content, offset)

        with monkeypatch.context() as patch:
            patch.setattr(files, "write_all", late)
            return task(*arguments)

    class Late(Here):
        def _called(self, task, *arguments):
            return giving_up(task, *arguments) if task.__name__ == "store_pieces" else super()._called(task, *arguments)

    with pytest.raises(ClusterFailed, match="no sign of this request"):
        vault.add(data / "more.parquet", client=Late(twice=0))
    size = os.fstat(kept[0]).st_size
    assert size > 0
    assert os.fstat(kept[0]).st_nlink == 0
    with open(f"/proc/self/fd/{kept[0]}", "rb") as left:
        assert not any(left.read())
    os.close(kept[0])
    assert only_what_counts(vault)


def test_tokens_are_wiped_before_anything_else(vault, monkeypatch):
    path = vault.places.vault
    for name in ("owners.7.1", "rows.7.1", "training.7"):
        (path / name).write_bytes(b"x")
        (path / name).chmod(0o600)
    order, wipe = [], files.wipe
    monkeypatch.setattr(files, "wipe", lambda part: (order.append(part.name), wipe(part)))
    vault._writer.folder.wipe_all_but(vault._writer.snapshot.manifest)
    assert order == ["training.7", "owners.7.1", "rows.7.1"]


@pytest.mark.parametrize("task", ["sum_stripes", "find_damaged_rows", "count_owned"])
def test_a_worker_that_sees_another_state_of_the_vault_is_refused(tmp_path, data, small_tasks, task):
    class Stale(Here):
        """Workers look at a copy from before the last request."""

        def _called(self, function, sight, *arguments):
            if function.__name__ == task:
                sight = replace(sight, manifest_digest="0" * 64)
            return super()._called(function, sight, *arguments)

    vault = create(tmp_path / "v.vault", data / "first")
    (wrong,) = {c.name for c in vault.verify(client=Stale()).checks if "another state of it" in c.detail}
    assert wrong == {"sum_stripes": "model", "find_damaged_rows": "rows", "count_owned": "people"}[task]


def test_a_worker_with_other_versions_refuses_its_tasks(tmp_path, data, small_tasks, monkeypatch):
    monkeypatch.setitem(tasks.WORKER_VERSIONS, "numpy", "1.0")
    with pytest.raises(ClusterFailed, match="calling process differ: numpy 1.0 instead of"):
        create(tmp_path / "v.vault", data / "first").unlearn([f"person-{k}" for k in range(15_000)], client=Here())


def test_a_client_helps_its_own_thread_and_its_own_request_alone(tmp_path, data, small_tasks):
    vault, errors = create(tmp_path / "v.vault", data / "first"), []

    class Slow(Here):
        def run(self, task, calls, done):
            inside.set()
            asked.wait(5)
            return super().run(task, calls, done)

    inside, asked = threading.Event(), threading.Event()

    def other():
        inside.wait(5)
        asked.set()
        try:
            vault.rectify(random_table(["person-1", "person-1"]))  # waits for its turn
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    slow = Slow()
    vault.verify(client=slow)
    thread.join()
    ran = len(slow.ran)
    assert vault._writer.workers is None
    assert vault.verify().ok
    assert (errors, len(slow.ran)) == ([], ran)


def test_a_correction_is_never_sent(tmp_path, data, small_tasks):
    """Of a change that brings rows nothing goes to workers, even if they are asked."""
    vault, here = create(tmp_path / "v.vault", data / "first"), Here()
    with vault._lock_for_writing() as writer, writer.use_workers(here.workers):
        rows, encoder = writer.snapshot.rows, writer.snapshot.state.ensemble.encoder
        change = Change(np.flatnonzero(rows.live)[:5], np.zeros((5, 2)), np.zeros((5, 1)))
        assert here.workers.sum_moments(rows, encoder, range(len(rows.live) // 4), change) is None
        assert here.workers.sum_moments(rows, encoder, range(len(rows.live) // 4), Change(change.slots)) is not None


def test_hundreds_of_files_need_no_descriptor_each(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "TASK_ROWS", 3)
    monkeypatch.setattr(workers, "_MAX_TASKS", 10**6)
    monkeypatch.setattr("expunge.vault.disk.rowfile._MAX_MAPPED_FILES", 8)
    (tmp_path / "many").mkdir()
    for k in range(150):
        pq.write_table(random_table([f"p{k}", f"q{k}"], seed=k), tmp_path / "many" / f"{k:03}.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, hard))
    try:
        vault = create(tmp_path / "v.vault", tmp_path / "many", Here(twice=0))
        assert len(vault._writer.snapshot.manifest.segments) == 150
        vault.unlearn([f"p{k}" for k in range(0, 150, 7)])
        assert vault.verify(client=Here(twice=0)).ok
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_small_files_are_put_together_to_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "TASK_ROWS", 10)
    (tmp_path / "many").mkdir()
    for k in range(12):
        pq.write_table(random_table([f"p{k}"] * 4, seed=k), tmp_path / "many" / f"{k:03}.parquet")
    vault = create(tmp_path / "v.vault", tmp_path / "many", Here())
    assert [segment.count for segment in vault._writer.snapshot.manifest.segments] == [8] * 6
    assert vault.digest() == create(tmp_path / "w.vault", tmp_path / "many").digest()


def test_what_tasks_return_has_no_row_and_no_id(tmp_path, data, small_tasks):
    sent = []

    class Listening(Here):
        def _called(self, task, *arguments):
            result = super()._called(task, *arguments)
            sent.append(pickle.dumps((arguments, result)))
            return result

    vault = create(
        tmp_path / "v.vault", data / "first", Listening(), model=small(bounds=(-2, 2), target_bounds=(-2, 2))
    )
    first = pq.read_table(data / "first" / "0.parquet").slice(0, 50)
    everything = b"".join(sent)
    assert b"person-" not in everything
    for column in ("x0", "x1", "y"):
        for value in first.column(column).to_numpy():
            assert value.tobytes() not in everything
    assert vault._writer.identity.key not in everything
