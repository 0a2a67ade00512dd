"""Executors for tests: tasks in this process, in any order and several times, and workers that die."""

import errno
import os
import pickle
import random
import signal
from pathlib import Path

from expunge.distributed.cluster import Cluster
from expunge.distributed.workers import ClusterWorkers


class Here:
    """A cluster that is this process: it runs tasks in any order, some of them twice, and pickles what is sent."""

    def __init__(self, seed=0, twice=0.3):
        self.lost_count, self._random, self._twice = 0, random.Random(seed), twice
        self.ran = []  # what was run

    @property
    def workers(self):
        return ClusterWorkers(self)

    def run(self, task, calls, done):
        results = {}
        for k in self._random.sample(range(len(calls)), len(calls)):
            results[k] = self._called(task, *calls[k])
            if self._random.random() < self._twice:  # the first attempt seemed lost, and was not
                results[k] = self._called(task, *calls[k])
            done(k)
        return [results[k] for k in range(len(calls))]

    def run_and_combine(self, task, calls, combine, done):
        found = self.run(task, calls, done)
        while len(found) > 1:
            size = self._random.randint(2, 4)
            found = [self._called(combine, found[k : k + size]) for k in range(0, len(found), size)]
        return found[0]

    def run_everywhere(self, task, *arguments):
        return {"here": self._called(task, *arguments)}

    def _called(self, task, *arguments):
        self.ran.append(task.__name__)
        return pickle.loads(pickle.dumps(task(*pickle.loads(pickle.dumps(arguments)))))


def dies_once(marker, task, *arguments):
    """Run a task, unless nobody died here yet: then this worker does, in the midst of it."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return task(*arguments)
    task(*arguments)
    return os.kill(os.getpid(), signal.SIGKILL)


def always_dies(task, *arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(task, *arguments):
    raise RuntimeError("broken for good")


def no_room(task, *arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


class Killing(Cluster):
    """A cluster of which a worker dies when it first has done a task of some name."""

    def __init__(self, client, name, folder: Path, how=dies_once):
        super().__init__(client)
        self.name, self._marker, self._how = name, str(folder / f"died-{name}"), how

    def run(self, task, calls, done):
        return super().run(*self._deadly(task, calls), done)

    def run_and_combine(self, task, calls, combine, done):
        if self.name == combine.__name__:
            return super().run_and_combine(task, calls, _Deadly(self._marker, combine), done)
        return super().run_and_combine(*self._deadly(task, calls), combine, done)

    def _deadly(self, task, calls):
        if task.__name__ != self.name:
            return task, calls
        if self._how is not dies_once:
            return self._how, [(task, *call) for call in calls]
        return dies_once, [(self._marker, task, *call) for call in calls]


class _Deadly:
    """A function that ends the first worker that calls it."""

    def __init__(self, marker, task):
        self.marker, self.task = marker, task

    def __call__(self, *arguments):
        return dies_once(self.marker, self.task, *arguments)
