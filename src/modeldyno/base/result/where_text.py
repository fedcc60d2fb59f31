"""Read conditions on Results: ``latency.p99 < 20ms and (framework = onnx or not failed)``.

::

    expression = term {"or" term}
    term       = factor {"and" factor}
    factor     = "not" factor | "(" expression ")" | "failed" | ["surely"] name sign value
    sign       = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~"

A name is a query (``latency.p99``, ``macs``), a field (`FIELDS`) or a setting (``batch_size``, also
``config.batch_size``). A value ends at ``and``, ``or`` or a parenthesis; one with them in it is quoted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BOOLEANS
from modeldyno.base.metrics.constraints import Constraint, check_kind
from modeldyno.base.metrics.metric import EVERYDAY, METRICS, Query
from modeldyno.base.metrics.queries import STATISTICS_SHOWN
from modeldyno.base.result.where import (
    CONFIG,
    AllOf,
    AnyOf,
    Bounded,
    CreatedSince,
    Expression,
    HasFailed,
    Not,
    SettingCondition,
    TextCondition,
)
from modeldyno.base.stats.units import parse_bound

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS = ("name", "tag", "backend", "framework", "device", "processor", "gpu", "created", "failed")
"""What can be named beside metrics and settings."""
_FIELDS = f"fields are {', '.join(FIELDS)}; others are metrics, as latency.p99, and settings, as batch_size"
_LONGEST, _DEEPEST = 4000, 20
"""Characters of an expression, and how deep parentheses and ``not`` may lie in each other."""
_NAME_CHARACTERS = r"[^\s()<>=!~'\"@]"
_TOKEN = re.compile(
    rf"""\s*(?:(?P<mark>[()])|(?P<sign><=|>=|!=|==|[<>=~])|(?P<quoted>'[^']*'|"[^"]*")"""
    rf"""|(?P<word>{_NAME_CHARACTERS}+(?:@[^\s()<>~'"]*[^\s()<>=!~'"])?|@[^\s()<>=!~'"]+))"""
)
"""As in a constraint, a scope may contain equals signs, such as ``prompt=128``."""
_KEYWORDS = frozenset({"and", "or", "not"})
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?Z?)?")
_AGO = re.compile(r"(\d{1,6}) *(minute|hour|day|week)s? ago")
_NEAR = 1e-9
"""Relative difference up to which two numbers are equal: 20 ms is not exactly 0.02 s."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """``(``, ``)``, ``sign``, ``quoted``, ``word``, a keyword or ``end``."""
    text: str
    at: int


class _Mistake(Exception):
    """What is wrong, and at which character it is."""

    def __init__(self, at: int, sentence: str) -> None:
        super().__init__(sentence)
        self.at = at


def parse(text: str, *, now: datetime) -> Expression:
    """Read an expression; ``2 days ago`` counts from `now`, days are those of UTC.

    Raises:
        RequestError: the text does not follow the grammar; the sentence says at which character, and what can
            be named.
    """
    if len(text) > _LONGEST:
        raise RequestError(f"The condition has {len(text):,} characters; at most {_LONGEST:,} are read.")
    try:
        reader = _Reader(_tokens(text), now)
        expression = reader.any_of(0)
        reader.check_end()
    except _Mistake as mistake:
        where = f"at character {mistake.at + 1} of {len(text)}" if mistake.at < len(text) else "at the end"
        raise RequestError(f"'{text}', {where}: {mistake}") from None
    return expression


def _tokens(text: str) -> list[_Token]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            quote = text[start] in "'\""
            raise _Mistake(
                start, "a quotation mark is not closed." if quote else f"'{text[start]}' is not read here."
            )
        kind, word = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "mark" or (kind == "word" and word.lower() in _KEYWORDS):
            kind = word.lower()
        tokens.append(_Token(kind, word, match.start(str(match.lastgroup))))
        at = match.end()
    return [*tokens, _Token("end", "", end)]


class _Reader:
    """Reads tokens one after the other, by recursive descent."""

    def __init__(self, tokens: list[_Token], now: datetime) -> None:
        self._tokens, self._now, self._at = tokens, now, 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def check_end(self) -> None:
        """Refuse what follows a whole expression."""
        if self._next.kind != "end":
            token = self._next
            raise _Mistake(token.at, f"'{token.text}' cannot follow; join conditions by 'and' or 'or'.")

    def any_of(self, depth: int) -> Expression:
        """Read terms joined by ``or``."""
        parts = self._joined("or", lambda: self._all_of(depth))
        return parts[0] if len(parts) == 1 else AnyOf(parts=parts)

    def _all_of(self, depth: int) -> Expression:
        parts = self._joined("and", lambda: self._factor(depth))
        return parts[0] if len(parts) == 1 else AllOf(parts=parts)

    def _joined(self, word: str, read: Callable[[], Expression]) -> tuple[Expression, ...]:
        parts = [read()]
        while self._next.kind == word:
            self._take()
            parts.append(read())
        return tuple(parts)

    def _factor(self, depth: int) -> Expression:
        token = self._take()
        if depth > _DEEPEST:
            raise _Mistake(token.at, f"more than {_DEEPEST} parentheses and nots lie in each other.")
        if token.kind == "not":
            return Not(inner=self._factor(depth + 1))
        if token.kind == "(":
            inner = self.any_of(depth + 1)
            if self._take().kind != ")":
                raise _Mistake(token.at, "this parenthesis is not closed.")
            return inner
        surely = token.kind == "word" and token.text.lower() == "surely" and self._next.kind == "word"
        return self._condition(self._take() if surely else token, surely=surely)

    def _condition(self, name: _Token, *, surely: bool) -> Expression:
        if name.kind != "word":
            place = f"before '{name.text}'" if name.text else "here"
            raise _Mistake(name.at, f"a condition is missing {place}, such as latency.p99 < 20ms; {_FIELDS}.")
        if self._next.kind != "sign":
            if name.text == "failed" and not surely:
                return HasFailed()
            raise _Mistake(name.at, f"'{name.text}' needs a sign and a value, such as name ~ {name.text}.")
        sign, value = self._take(), self._value()
        try:
            return _negated(name.text, sign.text, value, self._now, surely=surely)
        except RequestError as error:
            raise _Mistake(name.at, str(error)) from None

    def _value(self) -> str:
        begin = self._next
        words = []
        while self._next.kind in {"word", "quoted"}:
            token = self._take()
            words.append(token.text[1:-1] if token.kind == "quoted" else token.text)
        if not words:
            raise _Mistake(begin.at, "a value is missing here; quote one with signs or parentheses in it.")
        if self._next.kind == "sign":
            before = self._tokens[self._at - 1]
            raise _Mistake(before.at, f"'and' or 'or' is missing before '{before.text}'.")
        return " ".join(words)


def _negated(name: str, sign: str, value: str, now: datetime, *, surely: bool) -> Expression:
    """Read one condition; ``!=`` is the negation of ``=``."""
    if sign == "!=":
        return Not(inner=_condition(name, "=", value, now, surely=surely))
    return _condition(name, sign[:1] if sign == "==" else sign, value, now, surely=surely)


def _condition(name: str, sign: str, value: str, now: datetime, *, surely: bool) -> Expression:
    if name not in FIELDS and not name.startswith(CONFIG) and _is_query(name):
        return _bounded(name, sign, value, surely=surely)
    if surely:
        raise RequestError(f"surely is for a number that was measured, and {name} is none; leave it out.")
    if name == "created":
        return _created(sign, value, now)
    if name == "failed":
        return _failed(sign, value)
    return _worded(name, sign, value) if name in FIELDS else _set(name.removeprefix(CONFIG), sign, value)


def _worded(name: str, sign: str, value: str) -> Expression:
    if sign not in {"=", "~"}:
        raise RequestError(f"{name} is text and has no order; write {name} = TEXT, or {name} ~ PART.")
    if name in {"name", "tag", "backend"}:
        return TextCondition(field=name, text=value, contained=sign == "~")
    return SettingCondition(name=f"{CONFIG}device" if name == "device" else name, sign=sign, text=value)


def _is_query(name: str) -> bool:
    """Whether a name is meant as a query, even a wrong one: settings have no dots and no scopes."""
    return re.search(r"[.:@]", name) is not None or name in METRICS or name in EVERYDAY


def _bounded(name: str, sign: str, value: str, *, surely: bool) -> Expression:
    try:
        query = Query.parse(name)
    except RequestError as error:
        raise RequestError(f"{str(error).rstrip('.?')}; {_FIELDS}.") from None
    if query.part == "ci":
        raise RequestError("an interval cannot be bounded; drop the .ci, or write surely before the name.")
    check_kind(query)
    if query.statistic not in {None, *STATISTICS_SHOWN}:
        raise RequestError(
            f"lists keep {', '.join(STATISTICS_SHOWN)} of a distribution, not {query.statistic}."
        )
    if sign == "~":
        raise RequestError(f"{name} is a number and contains nothing; compare it by =, <, <=, > or >=.")
    if surely and (sign == "=" or query.part == "raw"):
        raise RequestError("surely takes <, <=, > or >= of a number with an interval.")
    bound = parse_bound(value, query.unit)
    if sign == "=":
        ends = sorted((bound * (1 - _NEAR), bound * (1 + _NEAR)))
        return AllOf(
            parts=tuple(
                Bounded(constraint=Constraint(query=query, at_most=at_most, bound=ends[at_most]))
                for at_most in (False, True)
            )
        )
    constraint = Constraint(query=query, at_most=sign[0] == "<", bound=bound, strict="=" not in sign)
    return Bounded(constraint=constraint, surely=surely)


def _set(name: str, sign: str, value: str) -> SettingCondition:
    try:
        number = float(value) if re.fullmatch(r"[-+.\deE]+", value) else None
    except ValueError:
        number = None
    if number is None and sign not in {"=", "~"}:
        raise RequestError(
            f"'{value}' is not a number, and the setting {name} is compared with one by {sign}."
        )
    return SettingCondition(name=CONFIG + name, sign=sign, text=value, number=number)


def _failed(sign: str, value: str) -> Expression:
    meant = BOOLEANS.get(value.lower())
    if sign != "=" or meant is None:
        raise RequestError("failed is yes or no; write failed, not failed, or failed = yes.")
    return HasFailed() if meant else Not(inner=HasFailed())


def _created(sign: str, value: str, now: datetime) -> Expression:
    """Compare with a stretch of time: a whole day, minute or second; ``>`` is after the end of it."""
    try:
        begin, end = _stretch(value, now.astimezone(UTC))
    except (ValueError, OverflowError):
        begin = end = None
    if begin is None or end is None or sign == "~":
        raise RequestError(
            "created compares with a time of UTC: 2026-11-01, '2026-11-01 14:30', today or 2 days ago, "
            "by =, <, <=, > or >=."
        )
    since_begin, since_end = (CreatedSince(time=time.isoformat()[:19]) for time in (begin, end))
    if sign == "=":
        return AllOf(parts=(since_begin, Not(inner=since_end)))
    since = since_begin if sign in {"<", ">="} else since_end
    return since if sign.startswith(">") else Not(inner=since)


def _stretch(text: str, now: datetime) -> tuple[datetime, datetime] | tuple[None, None]:
    """Return the beginning and the end of what a text means.

    Raises:
        ValueError, OverflowError: there is no such time.
    """
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text.lower() in {"today", "yesterday"}:
        begin = day if text.lower() == "today" else day - timedelta(days=1)
        return begin, begin + timedelta(days=1)
    if ago := _AGO.fullmatch(text):
        moment = now.replace(microsecond=0) - timedelta(**{f"{ago[2]}s": int(ago[1])})
        return moment, moment
    if (match := _MOMENT.fullmatch(text)) is None:
        return None, None
    begin = datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]
    size = "days" if match[4] is None else "minutes" if match[6] is None else "seconds"
    return begin, begin + timedelta(**{size: 1})
