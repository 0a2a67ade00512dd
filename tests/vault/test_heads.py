"""Heads: the ledger that one is of passes for ever, however much is added; every other ledger is refused."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidCertificate, VerificationFailed
from expunge.vault.certificates.statements import check_head, head_payload
from expunge.vault.ledger.records import START, compose_record, header_record, parse_records

VAULT, OTHER = "0a4f7a6e-7f2c-4a55-9d1c-5f0c3c1d2e3f", "1b4f7a6e-7f2c-4a55-9d1c-5f0c3c1d2e3f"
NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


CALLER = {"callers": [], "in_certificate": False}
DONE = {"commitment": "0" * 64, "schema": "0" * 64, "software": "expunge 1", "fold_case": False}


def ledger(marks, vault=VAULT):
    """A ledger with one request and what is done about it for each mark."""
    records = [header_record(vault)]
    for k, mark in enumerate(marks, start=1):
        body = {"request": k, "waiting": 0, "time": NOW.isoformat(), "rows": mark, "people": 1} | CALLER
        records.append(compose_record(records[-1].end, {"kind": "unlearn", **body}))
        records.append(compose_record(records[-1].end, {"kind": "done", "request": k, **DONE}))
    return records


def head_of(records, vault=VAULT):
    newest = max((record.request for record in records if record.is_request), default=0)
    return json.loads(head_payload(vault, records[-1].end, len(records), newest, NOW))


MARKS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(MARKS, st.data())
def test_a_ledger_passes_the_head_of_each_of_its_beginnings_and_no_other(marks, data):
    records = ledger(marks)
    cut = data.draw(st.integers(1, len(records)))
    head = head_of(records[:cut])
    again, torn = parse_records(b"".join(record.line for record in records), START, Path("x"))
    assert not torn
    for later in range(cut, len(records) + 1):
        check_head(head, again[:later])
    for earlier in range(cut):
        with pytest.raises(VerificationFailed, match="older copy" if earlier else "another vault"):
            check_head(head, again[:earlier])


@given(MARKS, MARKS)
def test_a_ledger_with_another_past_is_refused(marks, others):
    records, rewritten = ledger(marks), ledger(others)
    same = [record.line for record in rewritten[: len(records)]] == [record.line for record in records]
    if same:
        check_head(head_of(records), rewritten)
    else:
        with pytest.raises(VerificationFailed):
            check_head(head_of(records), rewritten)


def test_the_ledger_of_another_vault_is_refused():
    with pytest.raises(VerificationFailed, match="of another vault"):
        check_head(head_of(ledger([1])), ledger([1], OTHER))
    with pytest.raises(VerificationFailed, match="of another vault"):
        check_head(head_of(ledger([1])), [])
    with pytest.raises(VerificationFailed, match="records before it were changed"):  # the same name, another ledger
        check_head(head_of(ledger([1], OTHER)), ledger([1]))


def test_a_payload_says_where_the_ledger_ended():
    records = ledger([1, 2])
    assert head_of(records) == {
        "version": 1,
        "iss": f"expunge vault {VAULT}",
        "iat": int(NOW.timestamp()),
        "head": records[-1].end.hash,
        "records": 5,
        "bytes": sum(len(record.line) for record in records),
        "request": 2,
    }


ODD = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})


@given(st.sampled_from(sorted(head_of(ledger([1])))), ODD)
def test_a_head_with_a_field_of_any_other_kind_or_value_is_refused_without_a_traceback(field, value):
    records = ledger([1, 2])
    head = head_of(records)
    changed = head | {field: value}
    if field == "iat" and type(value) is int:
        return check_head(changed, records)
    if changed == head and type(value) is type(head[field]):
        return check_head(changed, records)
    with pytest.raises((InvalidCertificate, VerificationFailed)):
        check_head(changed, records)
    with pytest.raises(InvalidCertificate, match="not a head"):
        check_head({name: value for name, value in head.items() if name != field}, records)
    return None
