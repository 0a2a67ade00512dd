"""How work is cut into tasks and put together, without Dask: the same bytes whatever order, cuts and repetitions."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.distributed import helping
from expunge.errors import ClusterFailed, ErasedId, InvalidInput
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.disk import runs
from expunge.vault.disk.folder import Folder

from support.executors import Here
from support.vaults import random_table, small, weights


def create(path, data, client=None, **changes):
    return Vault.create(path, data, **{"target": "y", "id": "who", "model": small()} | changes, client=client)


def shown(vault):
    return vault.digest(), weights(vault), [(r.kind, r.rows, r.people, r.state) for r in vault.requests]


def only_what_counts(vault):
    manifest = Folder(vault.places.vault).current()
    names = {part.name for part in vault.places.vault.iterdir()}
    return names == manifest.names | manifest.spares | {"identity.json", "current"}


@pytest.mark.parametrize("bounds", [None, (-2.0, 2.0)])
def test_everything_that_workers_help_with_has_the_bytes_of_one_process(tmp_path, data, small_tasks, bounds):
    model = small(bounds=bounds, target_bounds=bounds)
    mine, theirs = tmp_path / "mine.vault", tmp_path / "theirs.vault"
    here = Here(seed=1)
    alone, helped = create(mine, data / "first", model=model), create(theirs, data / "first", here, model=model)
    assert {"take_piece", "merge_part", "sum_stripes", "add_sums"} <= set(here.ran)
    assert shown(alone) == shown(helped)
    gone = [f"person-{k}" for k in range(0, 20_000, 3)]
    for ask in (
        lambda vault, client: vault.add(data / "more.parquet", client=client),
        lambda vault, client: vault.unlearn(gone, client=client),
        lambda vault, client: vault.unlearn(["person-1", "person-2"], client=client),
        lambda vault, client: vault.add(data / "more.parquet", skip_erased=True, client=client),
    ):
        before = len(here.ran)
        a, b = ask(alone, None), ask(helped, here)
        assert (a.rows, a.people, a.learners, a.skipped, a.known) == (b.rows, b.people, b.learners, b.skipped, b.known)
        assert shown(alone) == shown(helped)
        assert only_what_counts(helped)
    assert len(here.ran) > before
    verdict = helped.verify(client=here)
    assert verdict == alone.verify() or [check.ok for check in verdict.checks] == [True] * 5
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
        patch.setattr(helping, "TASK_ROWS", task)
        patch.setattr(runs, "PART", part)
        patch.setattr(runs, "RUN", part)
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
    assert "take_piece" not in here.ran
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
        def everywhere(self, task, *arguments):
            return {"one": True, "another": False}

    with pytest.raises(ClusterFailed, match="1 of the workers cannot use .*v.vault: a vault must lie on a file system"):
        create(tmp_path / "v.vault", data / "first", Blind())
    assert not (tmp_path / "v.vault").exists()


@pytest.mark.parametrize("task", ["take_piece", "merge_part", "sum_stripes", "add_sums"])
def test_a_task_that_fails_leaves_all_as_it_was(tmp_path, data, small_tasks, task):
    class Failing(Here):
        def _called(self, function, *arguments):
            if function.__name__ == task and (task in self.ran or task == "add_sums"):  # in the midst of the work
                raise RuntimeError("broken")
            return super()._called(function, *arguments)

    vault = create(tmp_path / "v.vault", data / "first")
    before = shown(vault)
    with pytest.raises(RuntimeError, match="broken"):
        vault.add(data / "first", client=Failing()) if task != "add_sums" else vault.unlearn(
            [f"person-{k}" for k in range(15_000)], client=Failing()
        )
    assert shown(Vault.open(vault.places.vault)) == before
    assert vault.verify().ok
    assert only_what_counts(vault)


def test_a_worker_that_was_cut_off_stops_and_wipes_what_it_wrote(tmp_path, data, small_tasks):
    """The token is gone: the request was given up, or is done."""
    late = []

    class CutOff(Here):
        def run(self, task, calls, done):
            if task.__name__ != "sum_stripes":  # which writes nothing
                late.append((task, calls[0]))
            return super().run(task, calls, done)

    vault = create(tmp_path / "v.vault", data / "first", CutOff())
    names = set(files.names(vault.places.vault))
    for task, call in late:
        with pytest.raises(Exception, match="no longer, the folder of the vault that asked|not there"):
            task(*call)
        assert set(files.names(vault.places.vault)) == names


def test_what_tasks_return_has_no_row_and_no_id(tmp_path, data, small_tasks):
    import pickle

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
