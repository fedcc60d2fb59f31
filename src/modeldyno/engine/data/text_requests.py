"""Reads requests to a language model from JSON lines: what is asked, and how much is to be generated.

A line is a text, or an object with the text or the messages of a chat and, if it likes, with fields of
OpenAI's and Anthropic's requests (``max_tokens``, ``temperature``, ``tools`` ...), or is a line of OpenAI's
batch files, whose ``body`` is such an object. Other tools have other names for the number of tokens to
generate.

Where sessions are read, a line is a chat of several turns: its ``messages`` up to each answer, ``turns`` as
AIPerf has them, or ShareGPT's ``conversations``. Answers in the file are left out: the server gives its own.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.engine.data import data_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIX = ".csv"
LIST_SUFFIX = ".json"
_MARK = "\x1e"
"""Before a request that is more than its text; the separator of records, which is in no text."""
_MESSAGES, _INPUT = "messages", "input"
_TEXTS = ("prompt", "text", "input", "text_input", "question", "instruction")
"""Names of the text: OpenAI's and vLLM's, TGI's, AIPerf's, and those that GuideLLM takes."""
_BEFORE_INPUT = _TEXTS[: _TEXTS.index(_INPUT)]
_LENGTHS = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "output_length", "output_len",
    "output_tokens", "output_tokens_count", "max_new_tokens", "expected_output_len",
)  # fmt: skip
"""Names of the number of tokens to generate: OpenAI's, AIPerf's and traces', vLLM's, GuideLLM's, TGI's."""
SENT = frozenset({
    "temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "user", "tools", "tool_choice",
    "parallel_tool_calls", "response_format", "min_tokens", "ignore_eos", "suffix", "echo", "best_of",
    "reasoning_effort", "chat_template_kwargs", "dimensions", "encoding_format",
})  # fmt: skip
"""Further fields of a request that are sent as they are."""
_SENT_BESIDE = {
    _MESSAGES: frozenset({"system", "stop_sequences", "thinking", "output_config"}),
    _INPUT: frozenset({
        "instructions", "reasoning", "text", "include", "truncation", "store", "previous_response_id",
    }),
}  # fmt: skip
"""Those that only go with the messages of Anthropic's requests, or with the input of OpenAI's responses."""
IMAGES = "images"
"""Field of `write_request`: the data URLs of images that go with the text."""
_TURNS, _CONVERSATIONS = "turns", "conversations"
_KNOWN = frozenset({
    _MESSAGES, "id", "model", "stream", "stream_options", "prompt_tokens_count", "prompt_len",
})  # fmt: skip
"""Fields whose loss needs no word: the command says the model, and whether answers are streamed."""
THINK_TIME = "think_time"
"""Seconds before a turn is due, after the answer to the one before."""
LINKS = "links"
"""Of agents' sessions: whose history a turn has, and which turns it waits for, see `Target.links`."""
MOST_TURNS = 4096
"""Turns after which no further session is read."""
_USER, _SYSTEM, _ASSISTANT = "user", "system", "assistant"
_ROLES = {
    **dict.fromkeys(("human", _USER), _USER),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "model", _ASSISTANT), _ASSISTANT),
    **dict.fromkeys((_SYSTEM, "developer"), _SYSTEM),
}
"""Who speaks, in ShareGPT's words and in OpenAI's, to the role."""
_DELAY = "delay"
"""AIPerf's name of the think time, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequests:
    """The requests of a file."""

    texts: list[str]
    """One for each line, or for each turn of a session: its text, or a request that `read_request` reads."""
    sessions: tuple[int, ...] = ()
    """Turns of each session, one after the other; empty if lines are requests."""
    unused: tuple[str, ...] = ()
    """Names of fields that are not sent."""


def read_text_requests(path: Path, name: str, limit: int) -> TextRequests | None:
    """Read up to `limit` requests; None if some line has neither a text nor messages.

    Args:
        path: a file of JSON lines, or a CSV whose header names the fields.
        name: of the input that takes the text, which lines may use.
        limit: the most lines that are read.

    Raises:
        RequestError: a line is not JSON, or its number of tokens is none.
    """
    texts, unused = [], dict[str, None]()
    lines = _table_lines(path) if path.suffix.lower() == TABLE_SUFFIX else data_files.json_lines(path)
    for number, sample in islice(lines, limit):
        _refuse_session(sample, f"{path}, line {number}")
        line = sample
        if isinstance(line, dict) and isinstance(line.get("body"), dict):
            line = line["body"]
        request = line if isinstance(line, str) else _request(line, name, f"{path}, line {number}")
        if request is None:
            return None
        texts.append(request)
        if isinstance(line, dict):
            unused |= dict.fromkeys(key for key in line if not _is_used(key, name, line))
    return TextRequests(texts=texts, unused=tuple(unused))


def _table_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a CSV as lines of JSON would be: settings as JSON has them, texts as they are.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            for row in rows:
                cells = {key: value for key, value in row.items() if isinstance(value, str) and key}
                settings = cells.keys() & {*SENT, *_LENGTHS}
                yield (
                    rows.line_num,
                    {
                        key: _value(text) if key in settings else text
                        for key, text in cells.items()
                        if text or key not in settings
                    },
                )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{path} cannot be read as a CSV: {error}.") from error


def _value(text: str) -> Any:
    """Return a value as JSON has it; the text if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _refuse_session(line: Any, where: str) -> None:
    """Raise RequestError for a line that is a session, which is no single request."""
    if isinstance(line, dict) and any(isinstance(line.get(key), list) for key in (_TURNS, _CONVERSATIONS)):
        raise RequestError(f"{where} is a session of several turns; send it as one with `sequence=data`.")


# -- sessions --------------------------------------------------------------------------------------


def read_sessions(path: Path, name: str) -> TextRequests | None:
    """Read the sessions of a file, up to `MOST_TURNS` turns; None if some line is no session.

    A line that is a single request is a session of one turn.

    Args:
        path: a file of JSON lines, or of a list of what such lines would be (``.json``).
        name: of the input that takes the text, which lines may use.

    Raises:
        RequestError: a line is not JSON, or a turn cannot be sent.
    """
    texts: list[str] = []
    lengths: list[int] = []
    unused = dict[str, None]()
    for where, line in _places(path):
        turns = _turns(line, name, where)
        if turns is None:
            return None
        texts += turns
        lengths.append(len(turns))
        if isinstance(line, dict):
            unused |= dict.fromkeys(key for key in line if not _is_used_in_session(key, name, line))
            unused |= dict.fromkeys(
                key
                for turn in (line[_TURNS] if isinstance(line.get(_TURNS), list) else ())
                if isinstance(turn, dict)
                for key in turn
                if key not in {*_TURN_FIELDS, *SENT, *_LENGTHS, *_TEXTS}
            )
        if len(texts) >= MOST_TURNS:
            break
    return TextRequests(texts=texts, sessions=tuple(lengths), unused=tuple(unused))


def _places(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what each line of a file is, or each item of its list, with where it is."""
    if path.suffix.lower() != LIST_SUFFIX:
        yield from ((f"{path}, line {number}", line) for number, line in data_files.json_lines(path))
        return
    try:
        sessions = json.loads(path.read_bytes())
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON: {error}.") from error
    if not isinstance(sessions, list):
        raise RequestError(f"{path} is no list of sessions; write one a line, and name the file .jsonl.")
    yield from ((f"{path}, session {number}", session) for number, session in enumerate(sessions, 1))


_TURN_FIELDS = frozenset({"role", "type", _DELAY})


def _is_used_in_session(key: str, name: str, line: Mapping[str, Any]) -> bool:
    return key in {_TURNS, _CONVERSATIONS, "session_id", "type"} or _is_used(key, name, line)


def _turns(line: Any, name: str, where: str) -> list[str] | None:
    """Return the turns of a line, each as a request; None if it is no session."""
    if not isinstance(line, dict):
        return [line] if isinstance(line, str) else None
    common = request_fields(line, where)
    if isinstance(line.get(_TURNS), list):
        return _written(_spoken_turns(line[_TURNS], where), common, where)
    for field, key, text in ((_CONVERSATIONS, "from", "value"), (_MESSAGES, "role", "content")):
        if isinstance(line.get(field), list) and line[field]:
            return _written(_spoken(line[field], key, text, where), common | _beside(line), where)
    request = _request(line, name, where)
    return None if request is None else [request]


def _role(message: Mapping[str, Any], key: str, where: str) -> str:
    """Return the role of a message.

    Raises:
        RequestError: a session has no such role, as that of a tool, which the server's own answers call not.
    """
    role = _ROLES.get(str(message.get(key)))
    if role is None:
        raise RequestError(
            f"{where}: a session has messages of the user, the system and the assistant, not of "
            f"'{message.get(key)}'; leave that session out."
        )
    return role


_Said = list[tuple[dict[str, Any], dict[str, Any]]]
"""Messages in order, each with the fields of its turn."""


def _spoken(messages: list[Any], key: str, text: str, where: str) -> _Said:
    """Return messages whose fields `key` and `text` are the role and what is said."""
    if not all(isinstance(each, dict) for each in messages):
        raise RequestError(f"{where}: a message of its session is no object; write its {key} and its {text}.")
    return [({"role": _role(each, key, where), "content": each.get(text)}, {}) for each in messages]


def _spoken_turns(turns: list[Any], where: str) -> _Said:
    """Return the messages of AIPerf's turns: of the user unless they name another role, and each answered."""
    messages: _Said = []
    for turn in turns:
        fields = {"text": turn} if isinstance(turn, str) else turn
        if not isinstance(fields, dict):
            raise RequestError(f"{where}: a turn of its session is no object; write its text.")
        text = next((fields[key] for key in _TEXTS if isinstance(fields.get(key), str)), None)
        if text is None:
            raise RequestError(f"{where}: a turn of its session has no text.")
        role = _role({"role": fields.get("role") or _USER}, "role", where)
        own = request_fields(fields, where)
        if fields.get(_DELAY) is not None:
            own[THINK_TIME] = seconds_of(fields[_DELAY], where)
        messages.append(({"role": role, "content": text}, own))
        if role == _USER:
            messages.append(({"role": _ASSISTANT}, {}))
    return messages


def seconds_of(milliseconds: Any, where: str) -> float:
    """Return a delay in seconds; raise RequestError for one that is none."""
    if (
        isinstance(milliseconds, bool)
        or not isinstance(milliseconds, int | float)
        or not 0 <= milliseconds < 1e9
    ):
        raise RequestError(f"{where}: {milliseconds!r} is no delay of a turn in milliseconds.")
    return milliseconds / 1e3


def _written(messages: _Said, common: Mapping[str, Any], where: str) -> list[str]:
    """Return the requests of a session: what is said up to each answer, without the answers themselves.

    Raises:
        RequestError: no user says anything.
    """
    turns: list[str] = []
    before: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    for message, own in (*messages, ({"role": _ASSISTANT}, {})):
        if message["role"] != _ASSISTANT:
            before.append(message)
            fields |= own
        elif any(each["role"] == _USER for each in before):
            turns.append(write_request({_MESSAGES: before, **common, **fields}))
            before, fields = [], {}
    if not turns:
        raise RequestError(f"{where}: no user says anything in this session.")
    return turns


# -- single requests -------------------------------------------------------------------------------


def _is_used(key: str, name: str, line: Mapping[str, Any]) -> bool:
    if key in _beside(line):
        return True
    if key in {name, *_TEXTS}:
        return not line.get(_MESSAGES)
    return key in SENT or key in _LENGTHS or key in _KNOWN


def _beside(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are only sent with messages, or with the input of a response."""
    if isinstance(line.get(_MESSAGES), list) and line[_MESSAGES]:
        names = _SENT_BESIDE[_MESSAGES]
    elif line.get(_INPUT) and not any(isinstance(line.get(key), str) for key in _BEFORE_INPUT):
        names = _SENT_BESIDE[_INPUT]
    else:
        return {}
    return {key: line[key] for key in line if key in names}


def _request(line: Any, name: str, where: str) -> str | None:
    """Return the text of a line, or what `read_request` reads; None if it has neither text nor messages."""
    if not isinstance(line, dict):
        return None
    fields = request_fields(line, where)
    fields |= _beside(line)
    for given in (_MESSAGES, _INPUT):
        if isinstance(line.get(given), list) and line[given]:
            return write_request({given: line[given], **fields})
    text = next((line[key] for key in (name, *_TEXTS) if isinstance(line.get(key), str)), None)
    if text is None:
        return None
    return write_request({"prompt": text, **fields}) if fields else text


def request_fields(line: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what a line says of its request beside the text."""
    fields = {key: line[key] for key in line if key in SENT}
    length = next((line[key] for key in _LENGTHS if line.get(key) is not None), None)
    if length is not None:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise RequestError(f"{where}: {length!r} is no number of tokens to generate; write 1 or more.")
        fields["max_tokens"] = length
    return fields


def write_request(fields: Mapping[str, Any]) -> str:
    """Write what `read_request` reads."""
    return _MARK + json.dumps(fields)


def read_request(text: str) -> dict[str, Any]:
    """Return the fields of a request: ``prompt``, ``messages`` or ``input``, and those that go with it."""
    if not text.startswith(_MARK):
        return {"prompt": text}
    fields: dict[str, Any] = json.loads(text[len(_MARK) :])
    return fields
