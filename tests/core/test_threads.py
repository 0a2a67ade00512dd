"""Threads: one inside BLAS, any number outside, and the process keeps its own limits."""

import multiprocessing
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import expunge.exact.threads
from expunge import CodedRegressor, RandomFourier
from expunge.exact.blas import add_gram
from expunge.exact.threads import one_blas_thread, run_on_one_thread, spread, stop_if_cancelled

from support.commands import python
from support.models import state_of


class Library:
    """A BLAS library with one limit per thread, as with OpenMP."""

    threading_layer = "openmp"

    def __init__(self):
        self.mine = threading.local()

    @property
    def num_threads(self):
        return getattr(self.mine, "count", 4)

    def set_num_threads(self, count):
        self.mine.count = count


@pytest.fixture
def own_limits(monkeypatch):
    library = Library()
    monkeypatch.setattr(expunge.exact.threads, "load_blas", lambda: ([], [library]))
    return library


def test_where_each_thread_has_its_own_limit_each_worker_is_held(own_limits):
    with one_blas_thread():
        assert own_limits.num_threads == 1
        inside = spread(lambda k, n: (k, n, own_limits.num_threads), limit=3)
    assert inside == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]
    assert own_limits.num_threads == 4


def test_work_is_spread_over_as_many_threads_as_blas_has():
    with threadpool_limits(2, user_api="blas"), one_blas_thread():
        assert spread(lambda k, n: (k, n), limit=9) == [(0, 2), (1, 2)]
        assert spread(lambda k, n: (k, n), limit=1) == [(0, 1)]
        assert spread(lambda k, n: (k, n), limit=0) == [(0, 1)]
    with threadpool_limits(1, user_api="blas"):
        assert spread(lambda k, n: (k, n), limit=9) == [(0, 1)]


def test_an_error_in_a_worker_reaches_the_caller():
    def task(k, n):
        if k == 1:
            raise MemoryError
        return k

    with threadpool_limits(2, user_api="blas"), pytest.raises(MemoryError):
        spread(task, limit=2)


def test_a_thread_ends_early_if_another_fails():
    started, steps = threading.Event(), []

    def task(k, n):
        if k == 1:
            started.wait()
            raise MemoryError
        while True:
            steps.append(k)
            started.set()
            stop_if_cancelled()

    with threadpool_limits(2, user_api="blas"), pytest.raises(MemoryError):
        spread(task, limit=2)
    assert steps
    stop_if_cancelled()  # what was stopped there is not stopped here


def test_ctrl_c_is_not_kept_waiting(tmp_path):
    program = tmp_path / "endless.py"
    program.write_text(ENDLESS)
    child = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "computing\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
    assert errors.endswith("KeyboardInterrupt\n")
    assert "TaskCancelled" not in errors


ENDLESS = """
import signal
from expunge.exact import threads

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

def task(k, n):
    if k == 0:
        print("computing", flush=True)
    while True:
        threads.stop_if_cancelled()

threads._max_threads = lambda: 2
threads.spread(task, limit=2)
"""


def fit(queue=None):
    rng = np.random.default_rng(0)
    X = rng.random((5000, 4))
    model = CodedRegressor(shards=4, rate=4, features=RandomFourier(350), random_state=0).fit(X, np.sin(X.sum(axis=1)))
    result = model.digest(), [W.tobytes() for W in state_of(model).ensemble.models]
    if queue is not None:
        queue.put(result)
    return result


def test_many_threads_that_train_at_once_get_the_same_bytes():
    with threadpool_limits(1, user_api="blas"):
        expected = fit()
    results = []
    with threadpool_limits(2, user_api="blas"):
        workers = [threading.Thread(target=lambda: results.append(fit())) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert results == [expected] * 4


@pytest.mark.skipif(not hasattr(expunge.exact.threads.os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_was_forked_while_blas_was_held_holds_nothing():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread(), expunge.exact.threads._lock:  # as if another thread were just setting the limit
            child = context.Process(target=fit, args=(queue,))
            child.start()
            result = queue.get(timeout=60)
        child.join()
        assert result == fit()


def test_add_gram_adds_the_upper_triangle_in_place(rng):
    rows, total = rng.random((7, 5)), rng.random((5, 5))
    expected = np.where(np.tri(5, k=-1, dtype=bool), total, total - rows.T @ rows)
    add_gram(total, rows, -1.0)
    np.testing.assert_allclose(total, expected, rtol=1e-14)


def test_add_gram_refuses_what_it_would_read_wrongly(rng):
    for rows in (
        np.asfortranarray(rng.random((7, 5))),
        rng.random((7, 5)).astype(np.float32),
        rng.random((7, 10))[:, ::2],
    ):
        with pytest.raises(ValueError, match="in C order"):
            add_gram(np.zeros((5, 5)), rows, 1.0)


def test_a_computation_is_repeated_if_somebody_lifted_the_limit_meanwhile():
    seen = []

    def compute():
        seen.append(max(library.num_threads for library in expunge.exact.threads.load_blas()[0]))
        if len(seen) == 1:
            for library in expunge.exact.threads.load_blas()[0]:
                expunge.exact.threads._set_threads(library, 2)
        return len(seen)

    with threadpool_limits(2, user_api="blas"):
        assert run_on_one_thread(compute) == 2
    assert seen == [1, 1]


def test_an_interrupt_while_the_limit_is_set_leaves_no_holder(monkeypatch):
    switch = expunge.exact.threads._switch_threads

    def interrupted(*arguments, limited):
        if limited:
            raise KeyboardInterrupt
        switch(*arguments, limited=False)

    with threadpool_limits(2, user_api="blas"):
        with monkeypatch.context() as patch:
            patch.setattr(expunge.exact.threads, "_switch_threads", interrupted)
            with pytest.raises(KeyboardInterrupt), one_blas_thread():
                pass
        assert expunge.exact.threads._holders == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.parametrize("loaded", ["numpy", "scipy.linalg, scipy.linalg.cython_blas"])
def test_without_room_for_the_buffers_of_blas_nobody_waits_for_ever(loaded):
    """OpenBLAS retries a failed allocation for ever; the first product of a process would never end."""
    room = 2**24 if "scipy" in loaded else 2**26  # enough to load it
    code = f"""
import resource, signal, numpy, threadpoolctl, {loaded}
from expunge.exact import threads
from expunge.exact.blas import add_gram
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + {room},) * 2)
signal.alarm(60)
try:
    threads.run_on_one_thread(lambda: add_gram(numpy.zeros((50, 50), order="F"), numpy.ones((50, 50)), 1))
except MemoryError as error:
    print(error)
"""
    ran = python(code)
    assert (ran.returncode, ran.stdout) == (0, "not enough memory for the buffers of BLAS\n"), ran.stderr
