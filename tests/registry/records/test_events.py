from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.registry.records.records import RegistryEvent, event_hash, first_broken


def chain(count: int) -> list[RegistryEvent]:
    """Make events that follow each other."""
    events: list[RegistryEvent] = []
    for number in range(1, count + 1):
        before = events[-1].hash if events else ""
        fields = ("2026-01-01T00:00:00.000+00:00", "ada", "alias.moved", f"digits/{number}")
        detail = {"after": str(number), "before": ""}
        hashed = event_hash(before, *fields, detail)
        at, actor, kind, subject = fields
        events.append(
            RegistryEvent(
                id=number,
                at=at,
                actor=actor,
                kind=kind,
                subject=subject,
                detail=detail,
                before=before,
                hash=hashed,
            )
        )
    return events


def test_a_whole_chain_is_in_order() -> None:
    """So is one without events."""
    assert first_broken(chain(20)) is None
    assert first_broken([]) is None


@pytest.mark.parametrize("field", ["at", "actor", "kind", "subject", "before", "hash"])
@pytest.mark.parametrize("position", [0, 7, 19])
def test_a_changed_event_is_found(field: str, position: int) -> None:
    """Whatever was changed of it, and wherever it is."""
    events = chain(20)
    events[position] = replace(events[position], **{field: "changed"})  # type: ignore[arg-type]

    assert first_broken(events) == position + 1


def test_a_changed_detail_is_found() -> None:
    """A detail that was added, changed or left out."""
    details: list[dict[str, str]] = [
        {},
        {"after": "9", "before": ""},
        {"after": "4", "before": "", "why": ""},
    ]
    for detail in details:
        events = chain(5)
        events[3] = replace(events[3], detail=detail)
        assert first_broken(events) == 4


def test_an_event_whose_hash_was_mended_breaks_the_next() -> None:
    """Who changes one has to change all that follow."""
    events = chain(5)
    forged = replace(events[2], actor="eve")
    fields = (forged.at, forged.actor, forged.kind, forged.subject)
    events[2] = replace(forged, hash=event_hash(forged.before, *fields, forged.detail))

    assert first_broken(events) == 4


@given(st.integers(0, 8))
def test_a_removed_event_is_found(position: int) -> None:
    """By the one that followed it."""
    events = chain(10)
    del events[position]

    assert first_broken(events) == position + 2


@given(st.integers(0, 9), st.integers(0, 9))
def test_swapped_events_are_found(one: int, other: int) -> None:
    """At the first of the two places."""
    events = chain(10)
    events[one], events[other] = events[other], events[one]

    assert first_broken(events) == (None if one == other else max(one, other) + 1)


def test_the_order_of_details_does_not_count() -> None:
    """A database may return them in another."""
    fields = ("", "at", "ada", "kind", "subject")
    assert event_hash(*fields, {"a": "1", "b": "2"}) == event_hash(*fields, {"b": "2", "a": "1"})


def test_texts_that_join_alike_have_unlike_hashes() -> None:
    """The parts are told apart."""
    assert event_hash("", "", "ab", "c", "", {}) != event_hash("", "", "a", "bc", "", {})
    assert event_hash("", "", "a", "", "", {"b": "c"}) != event_hash("", "", "a", "", "", {"bc": ""})
