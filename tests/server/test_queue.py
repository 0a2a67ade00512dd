"""The queue: pages, filters and counts, compared with the same over a plain list."""

from datetime import timedelta
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.server.queue import JOB_STATES, JobFilter, NewJob

KINDS, PROTOCOLS = ("erasure", "addition"), ("api", "opendsr")
rows = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(PROTOCOLS), st.sampled_from(JOB_STATES), st.booleans()),
    max_size=12,
)
filters = st.builds(
    JobFilter,
    states=st.sets(st.sampled_from(JOB_STATES)).map(sorted),
    kind=st.sampled_from([None, *KINDS]),
    protocol=st.sampled_from([None, *PROTOCOLS]),
    overdue=st.sampled_from([None, True, False]),
    before=st.one_of(st.none(), st.integers(1, 20)),
    limit=st.integers(1, 20),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(rows, filters)
def test_a_page_is_what_a_list_would_give(service, clock, wanted, which):
    queue, start = service.queue, clock.now
    service.database.execute("DELETE FROM requests")
    made = []
    for kind, protocol, state, late in wanted:
        clock.now = start - timedelta(days=200 if late else 0)
        entry = queue.add(NewJob(kind, protocol, "gdpr"), clock())
        made.append(queue.move(entry.id, state))
    clock.now = start
    expected = [
        one
        for one in reversed(made)
        if (not which.states or one.state in which.states)
        and which.kind in (None, one.kind)
        and which.protocol in (None, one.protocol)
        and which.overdue in (None, one.open and one.due < clock())
        and (which.before is None or one.number < which.before)
    ]
    assert queue.page(which) == expected[: which.limit]
    counts = {
        key: n for key in product(KINDS, PROTOCOLS, JOB_STATES)
        if (n := sum((one.kind, one.protocol, one.state) == key for one in made))
    }  # fmt: skip
    assert queue.counts() == counts
    assert [one.id for one in queue.pending()] == [one.id for one in made if one.pending]
    assert [one.id for one in queue.incomplete()] == [one.id for one in made if one.incomplete]
    assert all(one.open == (one.pending or one.incomplete) for one in made)


def test_the_newest_of_two_that_another_system_calls_alike_is_found(service, clock):
    first, second = (service.queue.add(NewJob("erasure", "drp", "gdpr", outside="x"), clock()) for _ in range(2))
    assert first.number < second.number
    assert service.queue.find("drp", "x") == second
    assert service.queue.find("api", "x") is None


@pytest.mark.parametrize("state", ["done", "cancelled", "failed"])
def test_what_is_over_has_no_people_and_no_mark(service, vault, clock, state):
    people = tuple(vault.seal(["p1", "p2"]))
    entry = service.queue.add(NewJob("erasure", "api", "gdpr", people=people, mark="m"), clock())
    assert service.queue.people(entry.id) == list(people)
    assert service.queue.find_same("m") == entry
    service.queue.move(entry.id, state)
    assert service.queue.people(entry.id) == []
    assert service.queue.find_same("m") is None
    assert service.queue.get(entry.id).people == 2
    assert service.queue.get(entry.id).ended == clock()


def test_a_request_that_is_not_there_is_a_lookup_error(service):
    with pytest.raises(LookupError):
        service.queue.get("nobody")
