"""Dask itself: real processes, TLS, workers and coordinators that are killed, tasks that fail for good."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import dask
import distributed
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed.security import Security

from expunge.distributed import Cluster, joined_cluster, own_cluster
from expunge.distributed.cluster import check_address
from expunge.errors import ClusterFailed, ErasedId, InvalidInput, InvalidSetting
from expunge.vault import Planning, Vault

from support.executors import Killing, always_dies, fails, no_room
from support.planning import quick_plans
from support.vaults import bits, small, weights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TESTS = Path(__file__).parents[1]
PHASES = ["store_pieces", "merge_part", "sum_stripes", "add_packed_moments"]  # in which a process can be killed


def sampled(*values, of):
    """The first values in `make test`, all in `make torture`: each starts processes."""
    return [value if value in values else pytest.param(value, marks=pytest.mark.torture) for value in of]


@pytest.fixture(scope="module")
def two():
    with own_cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def expected(tmp_path_factory, data):
    """What one process gives: a training, what is added, and a large erasure."""
    return _asked(tmp_path_factory.mktemp("expected") / "v.vault", data)


def _asked(path, data, *clients):
    """The digests and weights of a vault after each request, of which each has a client of its own."""
    first, second, third = (*clients, None, None, None)[:3] if len(clients) != 1 else clients * 3
    vault = Vault.create(path, data / "first", target="y", id="who", model=small(), client=first)
    seen = [(vault.digest(), weights(vault))]
    vault.add(data / "more.parquet", client=second)
    seen.append((vault.digest(), weights(vault)))
    vault.unlearn([f"person-{k}" for k in range(0, 20_000, 2)], client=third)
    return [*seen, (vault.digest(), weights(vault))]


def test_two_workers_give_the_bytes_of_one_process(tmp_path, data, small_tasks, two, expected):
    assert _asked(tmp_path / "v.vault", data, two) == expected
    vault = Vault.open(tmp_path / "v.vault")
    assert vault.verify(client=two).ok
    assert vault.verify().ok


def test_a_replan_with_workers_gives_the_bytes_of_one_process_even_if_one_is_killed(tmp_path, data, small_tasks, two):
    models = []
    with quick_plans():
        for name, client in (("one", None), ("two", two)):
            (tmp_path / name).mkdir()
            planning = Planning(quick=False)
            vault = Vault.create(
                tmp_path / name / "v.vault", data / "first", target="y", id="who", planning=planning, client=client
            )
            vault.unlearn([f"person-{k}" for k in range(0, 20_000, 2)], client=client)
            assert vault.status().open
            before = bits(vault)
            vault.replan(client=client and Killing(client._client, "sum_stripes", tmp_path))
            models.append((before, bits(vault), vault.status().alpha, vault.status().features))
            assert (vault.status().open, vault.verify(plan=True, client=client).ok) == (0, True)
    assert models[0] == models[1]
    assert models[0][0] != models[0][1]
    assert (tmp_path / "died-sum_stripes").exists()


@pytest.mark.parametrize("rows", sampled(20_000, of=[1_500, 20_000]))
def test_three_workers_give_the_same_in_pieces_of_any_size(tmp_path, data, small_tasks, expected, rows, monkeypatch):
    monkeypatch.setattr("expunge.distributed.workers.TASK_ROWS", rows)
    with own_cluster(3) as three:
        assert _asked(tmp_path / "v.vault", data, three) == expected


@pytest.mark.parametrize("phase", sampled("store_pieces", "sum_stripes", of=PHASES))
def test_a_worker_that_is_killed_in_any_phase_changes_nothing(tmp_path, data, small_tasks, two, expected, phase):
    killing = Killing(two._client, phase, tmp_path)
    assert _asked(tmp_path / "v.vault", data, killing) == expected
    assert (tmp_path / f"died-{phase}").exists()
    vault = Vault.open(tmp_path / "v.vault")
    assert vault.verify().ok
    manifest = vault._writer.snapshot.manifest
    names = {part.name for part in vault.places.vault.iterdir()}
    assert names == manifest.file_names | manifest.spares | {"identity.json", "current"}


def test_a_task_that_fails_for_good_is_an_error_and_leaves_nothing(tmp_path, data, small_tasks, two):
    with pytest.raises(RuntimeError, match="broken for good"):
        _asked(tmp_path / "v.vault", data, Killing(two._client, "merge_part", tmp_path, fails))
    assert not (tmp_path / "v.vault").exists()


def test_a_full_disk_of_a_worker_is_told_as_such(tmp_path, data, small_tasks, two):
    with pytest.raises(OSError, match="No space left on device"):
        _asked(tmp_path / "v.vault", data, Killing(two._client, "store_pieces", tmp_path, no_room))
    assert not (tmp_path / "v.vault").exists()


@pytest.mark.torture  # it starts many processes
def test_a_task_that_kills_every_worker_is_given_up(tmp_path, data, small_tasks):
    with own_cluster(2) as cluster, pytest.raises(ClusterFailed, match="repeatedly lost its worker"):
        _asked(tmp_path / "v.vault", data, Killing(cluster._client, "store_pieces", tmp_path, always_dies))
    assert not (tmp_path / "v.vault").exists()


@pytest.mark.parametrize("phase", sampled("sum_stripes", of=PHASES[:3]))
def test_a_coordinator_that_is_killed_has_accepted_nothing_and_leaves_nothing(tmp_path, data, phase, expected):
    path = tmp_path / "v.vault"
    command = [sys.executable, "-m", "support.coordinator", str(path), str(data / "first"), phase]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]
    assert not (path / "current").exists()
    _until(lambda: not _workers_of(path))
    vault = Vault.create(path, data / "first", target="y", id="who", model=small())
    assert (vault.digest(), weights(vault)) == expected[0]
    manifest = vault._writer.snapshot.manifest
    names = {part.name for part in path.iterdir()}
    assert names == manifest.file_names | manifest.spares | {"identity.json", "current"}


def _workers_of(path):
    """Processes that have a file of a vault open."""
    found = []
    for process in Path("/proc").glob("[0-9]*/fd") if Path("/proc").is_dir() else ():
        try:
            found += [one for one in process.iterdir() if str(path) in os.readlink(one)]
        except OSError:
            continue
    return found


def _until(there, seconds=30):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_cluster_that_is_gone_is_an_error_and_leaves_nothing(tmp_path, data, small_tasks):
    with own_cluster(1) as cluster:
        run = cluster.run

        def closing(task, calls, done):
            def gone(k):
                cluster._client.close()

            return run(task, calls, gone)

        cluster.run = closing
        with pytest.raises(ClusterFailed, match="nothing was changed"):
            _asked(tmp_path / "v.vault", data, cluster)
    assert not (tmp_path / "v.vault").exists()


def test_a_cluster_of_our_own_is_closed_to_others(two):
    client = two._client
    info = client.scheduler_info()
    assert info["address"].startswith("tls://127.0.0.1:")
    assert all(address.startswith("tls://127.0.0.1:") for address in info["workers"])
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [c.laddr for p in processes for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {ip for ip, _ in listening} == {"127.0.0.1"}
    for _, port in listening:  # whatever answers in plain text has nothing to say
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as page:
            assert page.status == 404
    with pytest.raises(OSError, match=".*"):
        distributed.Client(info["address"].replace("tls://", "tcp://"), timeout=2, set_as_default=False)
    with pytest.raises(OSError, match=".*"):
        distributed.Client(info["address"], security=Security.temporary(), timeout=2, set_as_default=False)


def test_a_cluster_is_joined_by_tls_with_files(tmp_path, data, small_tasks, expected):
    security = Security.temporary()
    (tmp_path / "ca.pem").write_text(security.tls_ca_file)
    (tmp_path / "cert.pem").write_text(security.tls_client_cert)
    (tmp_path / "key.pem").write_text(security.tls_client_key)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, protocol="tls://", security=security, dashboard_address=None
    ) as there:
        files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
        with joined_cluster(there.scheduler_address, **files) as cluster:
            assert _asked(tmp_path / "v.vault", data, cluster) == expected
        with (
            pytest.raises(InvalidSetting, match="tls:// needs a certificate authority"),
            joined_cluster(there.scheduler_address),
        ):
            pass


def test_workers_with_other_versions_are_refused(two, monkeypatch):
    monkeypatch.setattr("expunge.distributed.cluster.versions", lambda: {"expunge": "0.0.7", "numpy": "1.0"})
    monkeypatch.setattr(Cluster, "run_everywhere", lambda *_: {"w": {"expunge": "0.0.7", "numpy": "2.0"}})
    with pytest.raises(ClusterFailed, match="calling process differ: numpy 2.0 instead of 1.0"):
        Cluster(two._client)


@pytest.mark.parametrize(
    ("address", "insecure", "fine"),
    [
        ("tls://10.0.0.1:8786", False, True),
        ("tcp://127.0.0.1:8786", False, True),
        ("tcp://[::1]:8786", False, True),
        ("tcp://localhost:8786", False, True),
        ("tcp://10.0.0.1:8786", False, False),
        ("tcp://10.0.0.1:8786", True, True),
        ("tcp://example.com:8786", False, False),
        ("ucx://10.0.0.1:8786", False, False),
        ("10.0.0.1:8786", False, False),
        ("127.0.0.1:8786", False, False),
        ("tcp://127.0.0.1", False, False),
        ("", False, False),
    ],
)
def test_an_address_that_anybody_could_take_over_is_refused(address, insecure, fine):
    if fine:
        check_address(address, insecure=insecure)
    else:
        with pytest.raises(
            InvalidSetting, match=r"anyone on the network could run code|must look like tls://host:8786"
        ):
            check_address(address, insecure=insecure)


def test_what_is_no_client_is_refused(tmp_path, data):
    with pytest.raises(InvalidSetting, match=r"client must be a synchronous distributed\.Client"):
        Vault.create(tmp_path / "v.vault", data / "first", target="y", id="who", client="tcp://localhost:8786")


def test_a_cluster_that_was_closed_is_refused(tmp_path, data):
    vault = Vault.create(tmp_path / "v.vault", data / "first", target="y", id="who", model=small())
    with own_cluster(1) as cluster:
        pass
    for client in (cluster, cluster._client):
        with pytest.raises(ClusterFailed, match="connection to the Dask scheduler is lost"):
            vault.verify(client=client)


def test_a_script_is_not_run_again_by_its_workers(tmp_path):
    """Without the guard that Python's multiprocessing asks for, and from standard input."""
    script = "print('begins')\nfrom expunge.distributed import own_cluster as own\nwith own(1) as c:\n    "
    script += "print(c.run_everywhere(abs, -3))\n"
    (tmp_path / "script.py").write_text(script)
    for arguments, given in (([str(tmp_path / "script.py")], None), ([], script)):
        ended = subprocess.run([sys.executable, *arguments], input=given, capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stdout.count("begins"), ended.stderr) == (0, 1, "")
        assert ended.stdout.strip().endswith(": 3}")


@pytest.mark.parametrize("seconds", sampled(1.0, of=[1.0, 3.0, 4.0, 5.0]))
def test_ctrl_c_ends_workers_and_leaves_nothing(tmp_path, data, seconds):
    """Whenever it comes, also to the workers, as from a terminal; a training that was faster is whole."""
    command = [sys.executable, "-m", "expunge", "train", str(data / "first"), "--target", "y", "--id-column", "who"]
    command += ["--shards", "4", "--rate", "2", "--vault", str(tmp_path / "v.vault"), "--workers", "2"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert "Traceback" not in told
    if process.returncode == 130:
        assert told.startswith("interrupted")
        assert not (tmp_path / "v.vault").exists()
    else:
        assert Vault.open(tmp_path / "v.vault").verify().ok


def test_no_client_is_picked_up_that_was_not_given(tmp_path, data, two):
    with two._client.as_current():
        vault = Vault.create(tmp_path / "v.vault", data / "first", target="y", id="who", model=small())
    assert [part.name for part in vault.places.vault.glob("rows.*")] == ["rows.1.0"]


def test_logs_of_workers_have_no_cell_no_id_and_no_key(tmp_path, data, small_tasks):
    """With a cluster that logs as Dask does by default: tables that are refused, and a task that fails."""
    odd = pq.read_table(data / "more.parquet").slice(0, 2_000)
    text = pa.array(["canary-cell"] * len(odd))
    pq.write_table(odd.set_column(1, "x0", text), tmp_path / "text.parquet", row_group_size=500)
    gaps = pa.array([None, *odd.column("x0").to_pylist()[1:]])
    pq.write_table(odd.set_column(1, "x0", gaps), tmp_path / "gaps.parquet", row_group_size=500)
    with (
        dask.config.set({"distributed.admin.log-length": 10_000}),  # a cluster of our own keeps none
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as there,
        distributed.Client(there, set_as_default=False) as client,
    ):
        vault = Vault.create(tmp_path / "v.vault", data / "first", target="y", id="who", model=small(), client=client)
        vault.unlearn(["person-3"], client=client)
        for table in ("text.parquet", "gaps.parquet"):
            with pytest.raises(InvalidInput):
                vault.add(tmp_path / table, client=client)
        with pytest.raises(ErasedId):
            vault.add(data / "first", client=client)
        with pytest.raises(RuntimeError):
            vault.add(data / "more.parquet", client=Killing(client, "store_pieces", tmp_path, fails))
        logged = [*client.get_worker_logs().values(), client.get_scheduler_logs()]
    told = "\n".join(str(line) for lines in logged for line in lines)
    assert "broken for good" in told  # it is the log of what failed
    values = [repr(value) for value in odd.column("x0").to_pylist()]
    for secret in ("canary", "person-", vault._writer.identity.key.hex(), repr(vault._writer.identity.key), *values):
        assert secret not in told
