"""What recomputing a document found: figures that hold, that are wrong, and that cannot be recomputed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.base.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
"""What JSON holds."""

TOLERANCE = 1e-9
"""Relative difference up to which two numbers are equal: other processors and libraries round differently."""
_MISSING = "nothing"


class CheckState(StrEnum):
    """What recomputing a figure found."""

    HOLDS = "holds"
    WRONG = "wrong"
    KEPT = "not recomputable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureCheck:
    """A figure, a verdict or a doubt of a document, and what recomputing it gave."""

    place: str
    """Where it is: ``latency p99``, ``latency p99 interval high``, ``doubt few-samples``."""
    state: CheckState
    written: Plain = None
    recomputed: Plain = None
    """Null, if it cannot be recomputed."""
    why: str = ""
    """What it was recomputed from, or what it is kept as."""


class DigestState(StrEnum):
    """Whether a document is what was written."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    ABSENT = "absent"
    """It was written without a digest: by an earlier version, or its store keeps it in parts."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Recomputation(Document):
    """Whether a document holds, as a document."""

    KIND = "recomputation"
    document: str
    """Its kind: ``result``, ``study``, ``comparison``, ``ladder``, ``capacity``, ``conversion`` or others."""
    id: str
    name: str
    """Of the model."""
    digest: DigestState
    verified: int
    """Figures that were recomputed and are right."""
    wrong: tuple[FigureCheck, ...]
    kept: dict[str, tuple[str, ...]]
    """What cannot be recomputed: what it is kept as, to the figures."""
    tolerance: float = TOLERANCE

    @classmethod
    def of(
        cls, checks: Iterable[FigureCheck], *, document: str, identifier: str, name: str, digest: DigestState
    ) -> Recomputation:
        """Sum up the checks of a document."""
        states: Counter[CheckState] = Counter()
        wrong: list[FigureCheck] = []
        kept: dict[str, list[str]] = {}
        for check in checks:
            states[check.state] += 1
            if check.state is CheckState.WRONG:
                wrong.append(check)
            elif check.state is CheckState.KEPT:
                kept.setdefault(check.why, []).append(check.place)
        return cls(
            document=document,
            id=identifier,
            name=name,
            digest=digest,
            verified=states[CheckState.HOLDS],
            wrong=tuple(wrong),
            kept={why: tuple(places) for why, places in kept.items()},
        )

    def __bool__(self) -> bool:
        """Whether it holds."""
        return self.holds

    @property
    def holds(self) -> bool:
        """Whether no figure is wrong, and nothing was changed after it was written."""
        return not self.wrong and self.digest is not DigestState.CHANGED


def compare(place: str, written: Plain, recomputed: object, why: str) -> Iterator[FigureCheck]:
    """Compare what is written with what was recomputed, number by number, and yield a check of each.

    Args:
        place: where it is.
        written: the part of the document.
        recomputed: the same part, as a value of any type of ours; of what JSON cannot hold, null is compared.
        why: what it was recomputed from.
    """
    expected = to_plain(recomputed)
    if isinstance(expected, dict) and isinstance(written, dict):
        for key in {**expected, **written}:
            inner = f"{place} {key.replace('_', ' ')}"
            yield from compare(inner, written.get(key), expected.get(key), why)
    elif isinstance(expected, list) and isinstance(written, list) and len(expected) == len(written):
        for number, (one, other) in enumerate(zip(written, expected, strict=True), 1):
            yield from compare(f"{place} {number}", one, other, why)
    else:
        right = are_equal(written, expected)
        state = CheckState.HOLDS if right else CheckState.WRONG
        yield FigureCheck(place=place, state=state, written=written, recomputed=expected, why=why)


def missing(place: str, recomputed: object, why: str) -> FigureCheck:
    """Return the check of something that should be in the document and is not."""
    return FigureCheck(
        place=place, state=CheckState.WRONG, written=_MISSING, recomputed=to_plain(recomputed), why=why
    )


def groundless(place: str, written: object, why: str) -> FigureCheck:
    """Return the check of something that is in the document, and that nothing in it gives rise to."""
    return FigureCheck(
        place=place, state=CheckState.WRONG, written=to_plain(written), recomputed=_MISSING, why=why
    )


def kept(place: str, written: object, why: str) -> FigureCheck:
    """Return the check of what cannot be recomputed; `why` says what it is kept as."""
    return FigureCheck(place=place, state=CheckState.KEPT, written=to_plain(written), why=why)


def are_equal(written: Plain, expected: Plain) -> bool:
    """Return whether two values of JSON are equal; numbers may differ by rounding."""
    if is_number(written) and is_number(expected):
        return math.isclose(written, expected, rel_tol=TOLERANCE, abs_tol=1e-300)  # type: ignore[arg-type]
    return type(written) is type(expected) and written == expected


def is_number(value: object) -> bool:
    """Return whether a value of JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_plain(value: object) -> Plain:
    """Return a value as JSON holds it: NaN and infinities are null."""
    match value:
        case Enum():
            return str(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        case dict():
            return {str(key): to_plain(item) for key, item in value.items()}
        case _:
            return [to_plain(item) for item in value]  # type: ignore[attr-defined]


def at(part: Mapping[str, Plain], key: str) -> dict[str, Plain]:
    """Return the object under a key of an object of JSON; empty if it is none."""
    value = part.get(key)
    return value if isinstance(value, dict) else {}


def objects(part: Mapping[str, Plain], key: str) -> list[dict[str, Plain]]:
    """Return the objects in the array under a key of an object of JSON."""
    value = part.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
