from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.result.where import (
    AllOf,
    AnyOf,
    Bounded,
    CreatedSince,
    Expression,
    HasFailed,
    Not,
    SettingCondition,
    TextCondition,
    conditions,
)
from modeldyno.base.result.where_text import parse

NOW = datetime(2026, 11, 26, 1, 2, 3, 456, tzinfo=UTC)


def read(text: str) -> Expression:
    return parse(text, now=NOW)


def refused(text: str) -> str:
    with pytest.raises(RequestError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_bound_is_that_of_require() -> None:
    """The same words, signs and units."""
    for text in ("latency.p99 < 20ms", "throughput>=1000/s", "process_memory.max <= 2 GiB", "macs@a=b > 10M"):
        assert read(text) == Bounded(constraint=Constraint.parse(text))
    assert read("SURELY latency.p99 < 20ms") == Bounded(
        constraint=Constraint.parse("latency.p99 < 20ms"), surely=True
    )


def test_and_binds_closer_than_or() -> None:
    a, b, c = (TextCondition(field="name", text=text) for text in "abc")

    assert read("name = a or name = b and name = c") == AnyOf(parts=(a, AllOf(parts=(b, c))))
    assert read("(name = a OR name == b) AND name = c") == AllOf(parts=(AnyOf(parts=(a, b)), c))
    assert read("not name = a and name != b") == AllOf(parts=(Not(inner=a), Not(inner=b)))
    assert read("((failed))") == HasFailed()


def test_a_value_is_a_word_several_words_or_quoted() -> None:
    assert read("name ~ my net and failed") == AllOf(
        parts=(TextCondition(field="name", text="my net", contained=True), HasFailed())
    )
    assert read("""name = "and (x) = 'y'" """) == TextCondition(field="name", text="and (x) = 'y'")
    assert read("tag = ''") == TextCondition(field="tag", text="")
    assert read("tag = @main") == TextCondition(field="tag", text="@main")


def test_settings_are_named_alone_or_below_config() -> None:
    assert read("batch_size >= 8") == SettingCondition(
        name="config.batch_size", sign=">=", text="8", number=8.0
    )
    assert read("config.macs = 1e3") == SettingCondition(
        name="config.macs", sign="=", text="1e3", number=1000.0
    )
    assert read("precision ~ fp") == SettingCondition(name="config.precision", sign="~", text="fp")
    assert read("note = -") == SettingCondition(name="config.note", sign="=", text="-")
    assert read("device = cuda:0") == SettingCondition(name="config.device", sign="=", text="cuda:0")
    assert read("surely = 1") == SettingCondition(name="config.surely", sign="=", text="1", number=1.0)


def test_equal_numbers_may_differ_by_a_billionth() -> None:
    """As 20 ms is not exactly 0.02 s; below zero, too."""
    for text, value in (("latency.p99 = 20ms", 0.02), ("temperature.mean = -4C", -4.0)):
        bounds = [each.constraint for each in conditions(read(text)) if isinstance(each, Bounded)]
        assert [bound.at_most for bound in bounds] == [False, True]
        assert bounds[0].bound < value < bounds[1].bound


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("created >= 2026-11-01", "2026-11-01T00:00:00"),
        ("created > 2026-11-01", "2026-11-02T00:00:00"),
        ("created > '2026-11-01 14:30'", "2026-11-01T14:31:00"),
        ("created > 2026-11-01T14:30:59Z", "2026-11-01T14:31:00"),
        ("created >= 0001-01-01", "0001-01-01T00:00:00"),
        ("created >= today", "2026-11-26T00:00:00"),
        ("created >= yesterday", "2026-11-25T00:00:00"),
        ("created > 2 days ago", "2026-11-24T01:02:03"),
        ("created > 1 hour ago", "2026-11-26T00:02:03"),
    ],
)
def test_times(text: str, time: str) -> None:
    assert read(text) == CreatedSince(time=time)


def test_a_day_is_a_stretch_of_time() -> None:
    """On it, before it, and not after it."""
    begin, end = (CreatedSince(time=f"2026-11-0{day}T00:00:00") for day in (1, 2))

    assert read("created = 2026-11-01") == AllOf(parts=(begin, Not(inner=end)))
    assert read("created < 2026-11-01") == Not(inner=begin)
    assert read("created <= 2026-11-01") == Not(inner=end)


def test_times_are_of_utc() -> None:
    """Wherever the clock stands that says what now is."""
    there = NOW.astimezone(timezone(timedelta(hours=-5)))

    assert parse("created >= today", now=there) == read("created >= today")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "at the end: a condition is missing here, such as latency.p99 < 20ms; fields are name, tag"),
        ("and", "character 1 of 3: a condition is missing before 'and'"),
        ("name = a and", "at the end: a condition is missing here"),
        ("name = a or = b", "character 13 of 15: a condition is missing before '='"),
        ("surely", "character 1 of 6: 'surely' needs a sign and a value"),
        ("surely failed", "character 8 of 13: 'failed' needs a sign"),
        ("bert", "character 1 of 4: 'bert' needs a sign and a value, such as name ~ bert."),
        ("name =", "at the end: a value is missing here"),
        ("name => 3", "character 7 of 9: a value is missing here"),
        ("name = a = b", "character 8 of 12: 'and' or 'or' is missing before 'a'"),
        ("name = a name = b", "character 10 of 17: 'and' or 'or' is missing before 'name'"),
        ("name = a)", "character 9 of 9: ')' cannot follow; join conditions by 'and' or 'or'."),
        ("failed not failed", "character 8 of 17: 'not' cannot follow"),
        ("(name = a", "character 1 of 9: this parenthesis is not closed."),
        ("name = 'a", "character 8 of 9: a quotation mark is not closed."),
        ("name ! a", "character 6 of 8: '!' is not read here."),
        (
            "latncy.p99 < 1ms",
            "1 of 16: There is no metric 'latncy'; did you mean 'latency'; fields are",
        ),
        ("failed or p99 < 1ms", "character 11 of 19: There is no metric 'p99'; did you mean 'latency.p99'"),
        ("latency < 1ms", "latency is a distribution; name a statistic"),
        ("macs.p50 < 1", "macs is one number and has no p50"),
        (
            "latency.p97 < 1ms",
            "p99.9, mean, std, min, max of a distribution, not p97.",
        ),
        ("latency.p50.ci < 1ms", "an interval cannot be bounded; drop the .ci"),
        ("latency.p50 < 1", "'1' has no unit; write 1ms or 1s."),
        ("latency.p50 < 1kg", "'kg' in '1kg' is not a unit here"),
        ("latency.p50 ~ 1ms", "latency.p50 is a number and contains nothing"),
        ("surely latency.p50 = 1ms", "surely takes <, <=, > or >="),
        ("surely latency.p50.raw < 1ms", "surely takes <, <=, > or >="),
        ("surely name = a", "surely is for a number that was measured, and name is none"),
        ("name < a", "name is text and has no order; write name = TEXT, or name ~ PART."),
        ("gpu >= a", "gpu is text and has no order"),
        ("batch_size < x", "'x' is not a number"),
        ("batch_size < 1e", "'1e' is not a number"),
        ("failed = maybe", "failed is yes or no"),
        ("failed < yes", "failed is yes or no"),
        ("created > tomorrow", "created compares with a time of UTC: 2026-11-01"),
        ("created > 2026-13-01", "created compares with a time"),
        ("created > 9999-12-31", "created compares with a time"),
        ("created > 999999 weeks ago", "created compares with a time"),
        ("created ~ 2026", "created compares with a time"),
        ("not " * 30 + "failed", "more than 20 parentheses and nots lie in each other."),
        ("(" * 2000, "more than 20 parentheses"),
        ("x" * 5000, "The condition has 5,000 characters; at most 4,000 are read."),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, says: str) -> None:
    """In one sentence that says what to write."""
    assert says in refused(text)
