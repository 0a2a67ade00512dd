"""Group commit: callers who wait share one request of the vault, and one transaction of the queue."""

import threading
import time
from collections import Counter

import pytest

from expunge.errors import InvalidInput
from expunge.server.app import create_app
from expunge.server.database import GroupCommit
from expunge.server.queue import NewJob
from expunge.vault.writer import Writer

from support.client import LocalClient

ERASE = "/api/v1/erasures"
ASKED = NewJob("erasure", "api", "gdpr")


def until(condition):
    """Wait until something is so."""
    for _ in range(10_000):
        if condition():
            return
        time.sleep(0.001)
    raise AssertionError("it never came")


def together(service, *tasks):
    """Do things in threads that all have to wait for the writer, and return what each of them gave."""
    results = [None] * len(tasks)

    def keep(k):
        results[k] = tasks[k]()

    threads = [threading.Thread(target=keep, args=(k,)) for k in range(len(tasks))]
    with service._work_lock:
        for thread in threads:
            thread.start()
        until(lambda: service._erasure_group.waiting_count == len(tasks))
    for thread in threads:
        thread.join()
    return results


def test_callers_who_wait_for_the_writer_share_a_request_with_all_of_them_in_its_record(service, vault):
    tokens = [service.tokens.create(f"caller {k}", ["erase"], None)[1] for k in range(8)]
    with LocalClient(create_app(service)) as client:

        def ask(k):
            ids = [f"p{k}", f"p{k + 10}", "nobody"] if k else ["nobody", "p1"]  # two ask for p1
            return client.post(
                ERASE,
                json={"ids": ids, "reference": f"ticket {k}"},
                headers={"Authorization": f"Bearer {tokens[k]}"},
            )

        answers = together(service, *(lambda k=k: ask(k) for k in range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    found = [answer.json() for answer in answers]
    (request,) = [one for one in vault.requests if one.kind == "unlearn"]
    assert sorted((one.job, one.reference, one.actor) for one in request.callers) == sorted(
        (one["id"], f"ticket {k}", f"caller {k}") for k, one in enumerate(found)
    )
    assert (request.people, request.rows) == (14, 14)
    assert {one["certificate"] for one in found} == {request.certificate}
    assert [one["outcome"]["erased"] for one in found] == [1] + [2] * 7
    assert {one["outcome"]["unknown"] for one in found} == {1}
    for k, one in enumerate(found):
        ids = [f"p{k}", f"p{k + 10}"] if k else ["p1"]
        kinds = Counter(receipt["certificate"] == request.certificate for receipt in one["receipts"])
        assert kinds == {True: len(ids), False: 1}  # one is the statement that nobody is known by this id
    assert vault.verify().ok


def test_an_erasure_takes_the_vaults_lock_once_and_the_queue_two_transactions(client, service, monkeypatch):
    taken, locked, execute = [], Writer.lock, service.database._connection
    commits = []

    class Watched:
        def __getattr__(self, name):
            return getattr(execute, name)

        def execute(self, statement, *values):
            if statement == "COMMIT":
                commits.append(statement)
            return execute.execute(statement, *values)

    monkeypatch.setattr(Writer, "lock", lambda self, wait: taken.append(wait) or locked(self, wait))
    monkeypatch.setattr(service.database, "_connection", Watched())
    answer = client.post(ERASE, json={"ids": ["p1", "nobody"]}).json()
    assert (len(taken), len(commits)) == (1, 2)
    assert answer["certificate"] is not None
    assert None not in answer["receipts"]


def test_a_wrong_erasure_fails_none_of_the_others(service, vault, monkeypatch):
    unlearn = vault.unlearn_group

    def refuse(erasures, **said):
        if any("p3" in erasure.ids for erasure in erasures):
            raise InvalidInput("one of them is wrong")
        return unlearn(erasures, **said)

    monkeypatch.setattr(vault, "unlearn_group", refuse)
    jobs = together(service, *(lambda k=k: service.erase([f"p{k}"], ASKED) for k in range(1, 6)))
    assert [job.state for job in jobs] == ["done", "done", "waiting", "done", "done"]
    assert jobs[2].reason == "one of them is wrong"


def test_two_who_ask_for_one_job_both_get_its_answer(service, vault):
    jobs = together(service, *(lambda: service.erase(["p1", "p2"], ASKED) for _ in range(3)))
    assert {(job.id, job.state) for job in jobs} == {(jobs[0].id, "done")}
    assert len([one for one in vault.requests if one.kind == "unlearn"]) == 1


def test_long_lists_go_alone(service, vault, monkeypatch):
    monkeypatch.setattr("expunge.server.service.MAX_RECEIPTS", 2)
    wanted = [["p1"], ["p2", "p3", "p4"], ["p5"]]
    jobs = together(service, *(lambda ids=ids: service.erase(ids, ASKED) for ids in wanted))
    first, second = [one for one in vault.requests if one.kind == "unlearn"]
    assert {one.job for one in first.callers} == {jobs[0].id, jobs[2].id}
    assert {one.job for one in second.callers} == {jobs[1].id}


def test_the_clock_leaves_a_job_to_the_caller_who_carries_it_out(service, vault, monkeypatch):
    seen, submit = [], service._erasure_group.submit

    def look_first(item):
        service.run_due()
        seen.append(service.queue.get(item[0].id).state)
        return submit(item)

    monkeypatch.setattr(service._erasure_group, "submit", look_first)
    assert service.erase(["p1"], ASKED).state == "done"
    assert seen == ["waiting"]


# The combiner itself


def test_a_combiner_gives_each_its_own_result_and_all_of_a_group_its_error():
    lock, groups = threading.RLock(), []

    def double(items):
        groups.append(list(items))
        if "bad" in items:
            raise ValueError("no")
        return [2 * item for item in items]

    combiner, results = GroupCommit(double, lambda: lock), {}

    def submit(item):
        try:
            results[item] = combiner.submit(item)
        except ValueError:
            results[item] = "error"

    for items, expected in ((["a", "b", "c"], ["aa", "bb", "cc"]), (["d", "bad"], ["error", "error"])):
        threads = [threading.Thread(target=submit, args=(item,)) for item in items]
        with lock:
            for thread in threads:
                thread.start()
            until(lambda items=items: combiner.waiting_count == len(items))
        for thread in threads:
            thread.join()
        assert [results[item] for item in items] == expected
        assert sorted(groups.pop()) == sorted(items)
    assert groups == []
    assert combiner.submit("alone") == "alonealone"


def test_a_combiner_whose_context_cannot_be_entered_tells_everybody():
    class Closed:
        def __enter__(self):
            raise OSError("closed")

        def __exit__(self, *_):
            raise AssertionError

    combiner = GroupCommit(lambda items: items, Closed)
    for _ in range(2):
        with pytest.raises(OSError, match="closed"):
            combiner.submit(1)
