"""A process that trains a vault on a cluster of its own, and dies in a phase of it: run as a program."""

import os
import signal
import sys

from expunge.distributed import own_cluster, workers
from expunge.vault import Vault

from support.vaults import small


def main(path: str, data: str, phase: str) -> None:
    """Die as soon as the first task of a phase is done; "prepared" is when all tasks are."""
    workers.TASK_ROWS = 4_000
    with own_cluster(2) as cluster:
        run, reduced = cluster.run, cluster.run_and_combine

        def dying(name, done):
            return (lambda k: os.kill(os.getpid(), signal.SIGKILL)) if name == phase else done

        cluster.run = lambda task, calls, done: run(task, calls, dying(task.__name__, done))
        cluster.run_and_combine = lambda task, calls, combine, done: reduced(
            task, calls, combine, dying(task.__name__, done)
        )
        Vault.create(path, data, target="y", id="who", model=small(), client=cluster)


if __name__ == "__main__":
    main(*sys.argv[1:])
