"""Reads traces of requests: when each was due and, of a language model, how many tokens it had.

A line is a number of seconds, or an object of JSON (mooncake's fields and those of others), or the file is a
CSV whose header names the columns (BurstGPT's, Azure's, Vidur's, or ``seconds,prompt_tokens,output_tokens``),
or spans of OpenTelemetry, or sessions of agents as Weka has them, or a table of Baseten's.
``timestamp`` in JSON is in milliseconds, as mooncake has it, except beside a ``chat_id``, as Bailian's traces
count seconds; every other time is in seconds, or a date.

Or the file is a series of rates: a CSV whose header is ``seconds,rate``, or a list of JSON as AIPerf has it.
"""

from __future__ import annotations

import csv
import json
import math
import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.codec import check_no_stream
from modeldyno.base.errors import RequestError
from modeldyno.base.job.prompt_lengths import MOST_TOKENS
from modeldyno.engine.data import agent_traces, otel_spans
from modeldyno.engine.data.rate_series import arrival_times

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

_SECOND = 1_000_000_000
_MILLISECOND = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_LATEST = 1 << 62
"""Nanoseconds, either way from 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX_MILLISECONDS = "timestampstartunixms"
_TIMES = ("timestamp", "seconds", "time", "times", "arrivedat", "arrivaltime", _UNIX_MILLISECONDS)
_RATES = ("rate", "qps", "rps", "requestrate")
_PROMPTS = (
    "inputlength", "prompttokens", "inputtokens", "contexttokens", "requesttokens", "numprefilltokens",
    "inputlen", "promptlen", "isl",
)  # fmt: skip
_OUTPUTS = (
    "outputlength", "outputtokens", "completiontokens", "generatedtokens", "responsetokens",
    "numdecodetokens", "outputlen", "osl",
)  # fmt: skip
_BLOCKS, _BLOCK_SIZE = ("hashids", "totalhashes"), ("blocksize",)
"""Names of fields, in small letters without anything else: mooncake's, Azure's, BurstGPT's, Vidur's ..."""
_UNREMARKABLE = {
    "totaltokens", "chatid", "parentchatid", "turn", "type", "id", "providedsessionid", "poormansessionid",
    "durationeems",
}  # fmt: skip
"""Further fields whose loss needs no word."""
_IN_SECONDS = "chat_id"
"""Field of traces whose ``timestamp`` in JSON is in seconds."""
_USUAL_BLOCKS = (512, 16, 64, 32, 128, 256, 1024, 2048, 4096)
"""Tokens that a block of a trace may have, mooncake's first."""
_LOOKED_AT = 1000
"""Requests by which the size of a block is recognised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The requests of a trace in the order of their times; a column is empty if the file lacks it."""

    times: array[int]
    """When each is due, in nanoseconds from the first one."""
    prompt_tokens: array[int]
    output_tokens: array[int]
    blocks: Sequence[Sequence[Hashable]] = ()
    """Ids of the blocks that each prompt consists of; the same id is the same text."""
    block_tokens: int = _USUAL_BLOCKS[0]
    """Tokens of a block."""
    failed: int = 0
    """Requests with 0 tokens, which failed when the trace was recorded; they are not among the others."""
    lengths: tuple[str, ...] = ()
    """Names of the fields of lengths and blocks in the file."""
    others: tuple[str, ...] = ()
    """Names of fields that are none of these."""

    def until(self, window: float | None) -> Trace:
        """Return the requests that are due in the first seconds; all without a number of them.

        Raises:
            RequestError: there are none, as a series of rates may begin with its first request later.
        """
        if window is None:
            return self
        count = bisect_left(self.times, int(window * _SECOND))
        if not count:
            raise RequestError(
                f"The trace has no request in its first {window:g} s, the first one is due after "
                f"{self.times[0] / _SECOND:.3g} s; make `replay_window` longer."
            )
        columns = ("times", "prompt_tokens", "output_tokens", "blocks")
        return replace(self, **{name: getattr(self, name)[:count] for name in columns})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """The names of a file's fields, by what they are."""

    time: str
    prompt: str = ""
    output: str = ""
    blocks: str = ""
    block_size: str = ""
    others: tuple[str, ...] = ()

    @property
    def lengths(self) -> tuple[str, ...]:
        """Those beside the time."""
        return tuple(sorted(filter(None, (self.prompt, self.output, self.blocks, self.block_size))))

    @classmethod
    def of(cls, names: Iterable[str]) -> _Fields:
        """Find those of a line of JSON, or of a header."""
        plain = {_plain(name): name for name in names}
        time, prompt, output, blocks, block_size = (
            next((plain[name] for name in known if name in plain), "")
            for known in (_TIMES, _PROMPTS, _OUTPUTS, _BLOCKS, _BLOCK_SIZE)
        )
        used = {time, prompt, output, blocks, block_size}
        return cls(
            time=time,
            prompt=prompt,
            output=output,
            blocks=blocks,
            block_size=block_size,
            others=tuple(sorted({name for key, name in plain.items() if key not in _UNREMARKABLE} - used)),
        )


def read_trace(path: str, *, timed: bool = True) -> Trace:
    """Read a trace, or if it need not be timed a file of lengths: numbers of tokens, one or two to a line.

    Raises:
        RequestError: it cannot be read, or a line, whose number is given, is no request of a trace.
    """
    try:
        check_no_stream(Path(path))
        if path.lower().endswith(agent_traces.TABLE_SUFFIXES):
            return _order_by_time(_read_file_table(path, timed=timed), path)
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            lines = _number_lines(file)
            first = next(lines, None)
            if timed and first is not None and _is_rate_series(first[1]):
                return _read_rates(chain((first,), lines), path)
            return _order_by_time(_read_rows(first, lines, path, timed=timed), path)
    except csv.Error as error:
        raise RequestError(f"The trace {path} is no CSV that can be read: {error}.") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RequestError(f"Cannot read the trace {path}: {reason}.") from error


@dataclass(slots=True, kw_only=True)
class _Columns:
    """The requests of a file in its order."""

    timed: bool
    """Whether each needs a time."""
    times: array[int]
    prompt_tokens: array[int]
    output_tokens: array[int]
    blocks: list[Sequence[Hashable]]
    block_tokens: int = 0
    failed: int = 0
    fields: _Fields | None = None


def _number_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty with their numbers."""
    return ((number, text) for number, line in enumerate(lines, 1) if (text := line.strip()))


def _is_rate_series(first: str) -> bool:
    """Return whether a file whose first line this is has rates at times rather than requests with tokens."""
    names = {_plain(name) for name in first.split(",")} if "," in first and first[0] != "{" else set()
    return first.startswith("[") or not (names.isdisjoint(_RATES) or names & {*_PROMPTS, *_OUTPUTS})


def _read_rates(lines: Iterable[tuple[int, str]], path: str) -> Trace:
    """Read a series of rates, and draw the times of its requests."""
    text = "\n".join(line for _, line in lines)
    try:
        rows = json.loads(text) if text.startswith("[") else [*csv.DictReader(text.splitlines())]
        points = [(_value(row, _TIMES), _value(row, _RATES)) for row in rows]
    except (ValueError, OverflowError, TypeError, AttributeError, RecursionError):
        raise RequestError(
            f"The series of rates {path} cannot be read; write a CSV with the header seconds,rate, or a "
            "trace of requests as one object of JSON a line."
        ) from None
    try:
        times = arrival_times(points)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    return Trace(times=times, prompt_tokens=array("q"), output_tokens=array("q"))


def _value(row: Mapping[str, Any], known: Sequence[str]) -> float:
    """Return the number in one of these columns; raise ValueError without one."""
    return float(next((value for name, value in row.items() if _plain(name) in known), "missing"))


def _plain(name: str) -> str:
    """Return the letters of a field's name, in small ones."""
    return re.sub(r"[^a-z]", "", name.lower())


def _no_rows(*, timed: bool) -> _Columns:
    return _Columns(
        timed=timed, times=array("q"), prompt_tokens=array("q"), output_tokens=array("q"), blocks=list[Any]()
    )


def _read_file_table(path: str, *, timed: bool) -> _Columns:
    """Read a table in Parquet or Arrow's file format."""
    columns = _no_rows(timed=timed)
    with agent_traces.opened_table(path) as (names, rows):
        fields = _Fields.of(names)
        if not fields.time and timed:
            raise _no_column(path)
        read = [name for name in (fields.time, *fields.lengths) if name]
        for number, row in enumerate(rows(read), 1):
            if fields.block_size and row[fields.block_size] is not None:
                _note_block_size(row[fields.block_size], fields.block_size, columns, path, number)
            _add_row(row, fields, _unit_of(fields), columns, path, number, str(row.get(fields.time)))
    return columns


def _unit_of(fields: _Fields) -> int:
    """Return the nanoseconds of a unit of time in tables."""
    return _MILLISECOND if _plain(fields.time) == _UNIX_MILLISECONDS else _SECOND


def _note_block_size(value: Any, name: str, columns: _Columns, path: str, number: int | str) -> None:
    """Remember the tokens of a block, which are the same in all of a trace."""
    size = _tokens(value, name, path, number)
    if size < 1 or columns.block_tokens not in {0, size}:
        other = f" beside {columns.block_tokens}" if columns.block_tokens else ""
        raise RequestError(
            f"Line {number} of the trace {path}: {name} is {size}{other}; a trace has blocks of one size; "
            "replay those of another size by themselves."
        )
    columns.block_tokens = size


def _read_rows(
    first: tuple[int, str] | None, lines: Iterator[tuple[int, str]], path: str, *, timed: bool
) -> _Columns:
    columns = _no_rows(timed=timed)
    if first is None:
        return columns
    if first[1].startswith("{"):
        _read_objects(chain((first,), lines), columns, path)
    elif ("," in first[1] or not timed) and not re.match(r"[\d.+-]", first[1]):
        _read_table(first[1], lines, columns, path)
    elif not timed:
        if first[1].count(",") > 1:
            raise RequestError(
                f"Line {first[0]} of {path} has more than two numbers; name the columns in a line before it, "
                "as prompt_tokens,output_tokens."
            )
        names = ("prompt_tokens", "output_tokens")[: first[1].count(",") + 1]
        _read_table(",".join(names), chain((first,), lines), columns, path)
    else:
        for number, text in chain((first,), lines):
            columns.times.append(_time(text, _SECOND, text, path, number))
    return columns


def _read_objects(lines: Iterable[tuple[int, str]], columns: _Columns, path: str) -> None:
    """Read lines of JSON; the first says which fields there are."""
    fields: _Fields | None = None
    for number, text in _documents(lines):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise _no_time(text, path, number)
        if otel_spans.RESOURCES in row:
            for request in otel_spans.request_spans(row):
                _add_row(request, _OF_SPANS, 1, columns, path, number, text)
            continue
        if agent_traces.is_session(row):
            _read_session(row, columns, path, number)
            continue
        if fields is None:
            fields = _Fields.of(row)
            in_milliseconds = fields.time == "timestamp" and _IN_SECONDS not in row
            unit = _MILLISECOND if in_milliseconds else _unit_of(fields)
            if fields.block_size:
                columns.block_tokens = _tokens(row[fields.block_size] or 0, fields.block_size, path, number)
        _add_row(row, fields, unit, columns, path, number, text)


_OF_SPANS = _Fields(time=otel_spans.TIME, prompt=otel_spans.PROMPT, output=otel_spans.OUTPUT)

_OF_AGENTS = _Fields(
    time=agent_traces.TIME, prompt=agent_traces.PROMPT, output=agent_traces.OUTPUT, blocks=agent_traces.BLOCKS
)


def _read_session(session: Mapping[str, Any], columns: _Columns, path: str, number: int) -> None:
    """Read the requests of an agent's session."""
    if (size := session.get(agent_traces.BLOCK_SIZE)) is not None:
        _note_block_size(size, agent_traces.BLOCK_SIZE, columns, path, number)
    for place, request in agent_traces.session_requests(session, number, str(number)):
        _add_row(request, _OF_AGENTS, _SECOND, columns, path, place, str(request))


def _documents(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines; of a document that is written over several lines, all of it as one."""
    lines = iter(lines)
    for number, text in lines:
        whole = not text.startswith("{") or text.endswith("}")
        yield number, (text if whole else "\n".join([text, *(line for _, line in lines)]))


def _read_table(header: str, lines: Iterable[tuple[int, str]], columns: _Columns, path: str) -> None:
    """Read the rows of a CSV, whose header says which columns there are."""
    names = next(csv.reader([header]))
    fields = _Fields.of(names)
    if not fields.time and columns.timed:
        raise _no_column(path)
    numbers = list[int]()

    def remember(numbered: Iterable[tuple[int, str]]) -> Iterator[str]:
        for number, text in numbered:
            numbers[:] = [number]
            yield text

    for row in csv.DictReader(remember(lines), names):
        _add_row(row, fields, _unit_of(fields), columns, path, numbers[0], ",".join(map(str, row.values())))


def _no_column(path: str) -> RequestError:
    return RequestError(
        f"The trace {path} has no column of times; name one of them seconds, besides prompt_tokens and "
        "output_tokens."
    )


def _add_row(
    row: Mapping[str, Any],
    fields: _Fields,
    unit: int,
    columns: _Columns,
    path: str,
    number: int | str,
    text: str,
) -> None:
    lengths = [_tokens(row.get(name), name, path, number) for name in (fields.prompt, fields.output) if name]
    if lengths and not all(lengths):
        columns.failed += 1
        return
    untimed = not (columns.timed or fields.time)
    columns.times.append(0 if untimed else _time(row.get(fields.time), unit, text, path, number))
    columns.fields = fields
    if fields.prompt:
        columns.prompt_tokens.append(lengths[0])
    if fields.output:
        columns.output_tokens.append(lengths[-1])
    if fields.blocks:
        ids = row.get(fields.blocks) or ()
        columns.blocks.append(tuple(map(_hashable, ids)) if isinstance(ids, list) else ())


def _hashable(value: Any) -> Hashable:
    return value if isinstance(value, int) else str(value)


def _time(value: Any, unit: int, text: str, path: str, number: int | str) -> int:
    """Return a time in nanoseconds: of so many for each `unit`, or a date."""
    try:
        if isinstance(value, str) and "-" in value[1:] and ":" in value:
            date = datetime.fromisoformat(value)
            return (date.replace(tzinfo=date.tzinfo or UTC) - _EPOCH) // _MICROSECOND * 1000
        time = value * unit if isinstance(value, int) else int(float(value) * unit)
    except (ValueError, OverflowError, TypeError):
        raise _no_time(text, path, number) from None
    if abs(time) > _LATEST:
        raise _no_time(text, path, number)
    return time


def _no_time(text: str, path: str, number: int | str) -> RequestError:
    problem = 'neither seconds nor an object with "timestamp" in milliseconds'
    return RequestError(f"Line {number} of the trace {path} is {problem}: {text[:40]}")


def _tokens(value: Any, name: str, path: str, number: int | str) -> int:
    try:
        count = float(value)
    except (TypeError, ValueError):
        count = math.nan
    if not 0 <= count <= MOST_TOKENS or count != int(count) or isinstance(value, bool):
        raise RequestError(f"Line {number} of the trace {path}: {name} is {value!r}, no number of tokens.")
    return int(count)


def _order_by_time(columns: _Columns, path: str) -> Trace:
    """Return the requests in the order of their times."""
    if not columns.times:
        why = f": the {columns.failed:,} that it has have no tokens" if columns.failed else ""
        raise RequestError(f"The trace {path} has no requests{why}.")
    times = columns.times
    order = sorted(range(len(times)), key=times.__getitem__)
    begin = times[order[0]]
    blocks = [columns.blocks[at] for at in order] if any(columns.blocks) else []
    prompts = _in_order(columns.prompt_tokens, order)
    return Trace(
        times=array("q", (times[at] - begin for at in order)),
        prompt_tokens=prompts,
        output_tokens=_in_order(columns.output_tokens, order),
        blocks=blocks,
        block_tokens=columns.block_tokens or _find_block_size(prompts, blocks),
        failed=columns.failed,
        lengths=columns.fields.lengths if columns.fields else (),
        others=columns.fields.others if columns.fields else (),
    )


def _in_order(column: array[int], order: Sequence[int]) -> array[int]:
    return array("q", (column[at] for at in order)) if column else column


def _find_block_size(prompts: Sequence[int], blocks: Sequence[Sequence[Hashable]]) -> int:
    """Return the tokens of a block for which every prompt has as many blocks as it has ids."""
    counts = [(tokens, len(ids)) for tokens, ids in zip(prompts[:_LOOKED_AT], blocks, strict=False) if ids]
    for rule in (math.ceil, math.floor):  # traces name the last, partial block, or full ones alone
        for size in _USUAL_BLOCKS:
            if counts and all(rule(tokens / size) == count for tokens, count in counts):
                return size
    return _USUAL_BLOCKS[0]
