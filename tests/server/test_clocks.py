"""Clocks: when the law says that a request is due, compared with a walk over the calendar day by day."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidSetting
from expunge.server.clocks import due_date, format_time, parse_duration, parse_time

moments = st.datetimes(datetime(1990, 1, 1), datetime(2190, 1, 1)).map(lambda one: one.replace(tzinfo=UTC))


def walked(start, months):
    """The same day so many months later by walking over first days, then on to the day if it is there."""
    day, seen = start, 0
    while seen < months:
        day += timedelta(days=1)
        seen += day.day == 1
    last = day
    while last.day < start.day and (last + timedelta(days=1)).month == day.month:
        last += timedelta(days=1)
    return last


@given(moments, st.booleans())
def test_the_gdpr_gives_a_month_or_three_to_the_same_day_or_the_last(received, extended):
    found = due_date(received, "gdpr", extended=extended)
    assert found.date() == walked(received.date(), 3 if extended else 1)
    assert found.timetz() == received.timetz()


@given(moments, st.booleans())
def test_the_ccpa_gives_45_days_or_90(received, extended):
    assert due_date(received, "ccpa", extended=extended) == received + timedelta(days=90 if extended else 45)


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (date(2026, 1, 31), date(2026, 2, 28)),
        (date(2028, 1, 30), date(2028, 2, 29)),
        (date(2026, 12, 31), date(2027, 1, 31)),
        (date(2026, 2, 28), date(2026, 3, 28)),
    ],
)
def test_ends_of_months(received, expected):
    at = datetime(received.year, received.month, received.day, 23, 59, tzinfo=UTC)
    assert due_date(at, "gdpr").date() == expected


@given(moments)
def test_times_come_back_to_the_second_and_texts_sort_like_times(moment):
    second = moment.replace(microsecond=0)
    assert parse_time(format_time(moment)) == second
    assert format_time(moment) < format_time(moment + timedelta(seconds=1))


@given(st.integers(0, 999_999), st.sampled_from("smhd"))
def test_durations(number, unit):
    names = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    assert parse_duration(f"{number}{unit}") == timedelta(**{names[unit]: number})


@pytest.mark.parametrize("text", ["", "s", "1", "-1s", "1.5h", "1w", "1234567d", "٣h", "1 h", "1hh"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(InvalidSetting):
        parse_duration(text)
