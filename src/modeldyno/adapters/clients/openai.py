"""``openai``: OpenAI's completions, chat completions and embeddings, which many servers speak.

Options: ``endpoint`` (``completions``, by default; ``chat``; ``embeddings``), ``stream`` (by default true:
the answer comes in pieces), ``max_tokens``, ``temperature`` (0 by default: the same prompt gives the same
text), and ``extra``, an object of JSON added to each request, such as ``{"ignore_eos": true}``.
The input ``prompt`` is text: lines of a file, or random words, 128 where nobody says how many
(``--input prompt=1:string:64..256``). A chat takes one prompt a request; the others take a batch.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.adapters.clients import tensors
from modeldyno.core.load.request_log import Outcome
from modeldyno.core.load.request_target import BrokenStream, Server, Transport
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.request_target import Endpoint, Reply, Target
    from modeldyno.interfaces import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "openai"
PROMPT = "prompt"
PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
}
"""Option `endpoint` to its path."""
MAX_TOKENS = 64
_DATA, _DONE = b"data:", b"[DONE]"
_FINISHED = re.compile(rb'"finish_reason":\s*"')
_BEARING = re.compile(rb'"(?:text|content|reasoning|reasoning_content|arguments)":\s*"(?!")')
_EVENT_STREAM = "text/event-stream"


# -- requests ------------------------------------------------------------------------------------


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Make each payload a request.

    Raises:
        RequestError: an input is no text, a chat has several, or an option is wrong.
    """
    kind = str(endpoint.options.get("endpoint", "completions"))
    if kind not in PATHS:
        raise UnknownName.among("endpoint", kind, PATHS)
    stream = kind != "embeddings" and bool(endpoint.options.get("stream", True))
    fixed = {**_fixed(endpoint, kind, stream=stream), **_extra(endpoint)}
    bodies = ({**_asked(kind, feed), **fixed} for feed in feeds)
    path = _versioned(endpoint, PATHS[kind])
    headers = {"Accept": _EVENT_STREAM} if stream else {}
    messages = [
        clients_messages.post(
            endpoint, path, clients_messages.written(body, instead="leave them away"), headers=headers
        )
        for body in bodies
    ]
    return clients_messages.http(NAME, endpoint, messages, stream=stream, counted=kind != "embeddings")


def _versioned(endpoint: Endpoint, path: str) -> str:
    """Leave ``/v1`` away where the URL ends in it, as base URLs of this protocol do."""
    return path.removeprefix("/v1") if endpoint.path.rstrip("/").endswith("/v1") else path


def _fixed(endpoint: Endpoint, kind: str, *, stream: bool) -> dict[str, Any]:
    """Give what is the same in each request."""
    named = {"model": endpoint.model} if endpoint.model else {}
    if kind == "embeddings":
        return named
    options = {
        "max_tokens": int(endpoint.options.get("max_tokens", MAX_TOKENS)),
        "temperature": float(endpoint.options.get("temperature", 0)),
    }
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return {**named, **options, **streamed}


def _extra(endpoint: Endpoint) -> dict[str, Any]:
    text = str(endpoint.options.get("extra") or "{}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError(f'extra={text} is no object of JSON; write such as {{"ignore_eos": true}}.')
    if "stream" in found:
        raise RequestError("Whether the answer is streamed is said by the knob stream, not by extra.")
    return found


def _asked(kind: str, feed: Feed) -> dict[str, Any]:
    name, array = tensors.only(feed, "This protocol")
    if tensors.kind(array) != tensors.TEXT:
        raise RequestError(f"The input '{name}' is {array.dtype}, and this protocol takes text.")
    texts = tensors.lists(name, array.reshape(-1))
    if not texts:
        raise RequestError(f"The input '{name}' holds no text.")
    if kind == "chat":
        if len(texts) > 1:
            raise RequestError(f"A chat takes one prompt a request, not {len(texts)}; set batch_size=1.")
        return {"messages": [{"role": "user", "content": texts[0]}]}
    return {"input" if kind == "embeddings" else "prompt": texts[0] if len(texts) == 1 else texts}


# -- answers -------------------------------------------------------------------------------------


def arrays(reply: Reply) -> Feed:
    """Read ``text``, one for each prompt, or ``embedding``, a row for each."""
    clients_messages.check(reply)
    found = list(_events(reply.body)) if _streamed(reply) else [clients_messages.parsed(reply.body)]
    for event in found:
        _refuse_error(event)
    if _streamed(reply):
        _refuse_cut(reply)
    try:
        if found and "data" in found[0]:
            rows = sorted(found[0]["data"], key=lambda row: row["index"])
            return {
                "embedding": tensors.from_values(
                    "embedding", [row["embedding"] for row in rows], "float32", None
                )
            }
        texts = _texts(found)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the answer has neither choices nor embeddings where they should be") from None
    if not texts:
        raise ValueError("the answer has no choices")
    return {
        "text": tensors.from_values("text", [texts[index] for index in sorted(texts)], tensors.TEXT, None)
    }


def _texts(found: list[Any]) -> dict[int, str]:
    """Join the pieces of each choice."""
    texts: dict[int, str] = {}
    for event in found:
        for choice in event.get("choices") or ():
            index = int(choice.get("index", 0))
            texts[index] = texts.get(index, "") + _piece(choice)
    return texts


def _piece(choice: dict[str, Any]) -> str:
    """Give the text of a completion, a chat, or a part of one; what a model reasons is part of it."""
    said = choice.get("delta") or choice.get("message")
    if said is None:
        return str(choice.get("text") or "")
    thought = said.get("reasoning_content") or said.get("reasoning") or ""
    return f"{thought}{said.get('content') or ''}"


def tokens(reply: Reply) -> int:
    """Give the tokens that the server says it generated; pieces are not tokens, and are not counted.

    Raises:
        BrokenStream: it tells of an error, or lacks its end.
        ValueError: it holds what is no JSON.
    """
    if _streamed(reply):
        if b'"error"' in reply.body:
            for event in _events(reply.body):
                _refuse_error(event)
        _refuse_cut(reply)
    return _used(reply, "completion_tokens")


def prompt_tokens(reply: Reply) -> int:
    """Give the tokens of the prompts that an answer is of, as the server counts them; -1: unknown."""
    try:
        return _used(reply, "prompt_tokens")
    except ValueError:
        return -1


def _used(reply: Reply, name: str) -> int:
    """Find a number in the usage, which comes last: so one piece is read, and not the hundreds before it."""
    if not _streamed(reply):
        return _count(clients_messages.quiet(reply), name)
    for line in reversed(reply.body.splitlines()):
        if line.startswith(_DATA) and b'"usage"' in line:
            count = _count(clients_messages.parsed(line[len(_DATA) :]), name)
            if count >= 0:
                return count
    return -1


def bearing(event: bytes) -> bool:
    """Say whether an event holds text: the first of a chat often tells the role alone, the last the usage."""
    return _BEARING.search(event) is not None


def _count(found: Any, name: str) -> int:
    usage = found.get("usage") if isinstance(found, dict) else None
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count >= 0 else -1


def _streamed(reply: Reply) -> bool:
    return clients_messages.header(reply, "content-type").lower().startswith(_EVENT_STREAM)


def _events(body: bytes) -> Iterator[Any]:
    """Give the data of each event of a stream, as JSON."""
    for line in body.splitlines():
        data = line[len(_DATA) :].strip() if line.startswith(_DATA) else b""
        if data and data != _DONE:
            yield clients_messages.parsed(data)


def _refuse_error(event: Any) -> None:
    if isinstance(event, dict) and event.get("error"):
        words = clients_messages.complaint(json.dumps(event).encode())
        raise BrokenStream(Outcome.SERVER_ERROR, f"the server told of an error within its answer: {words}")


def _refuse_cut(reply: Reply) -> None:
    if not reply.body.rstrip().endswith(_DONE) and not _FINISHED.search(reply.body):
        raise BrokenStream(Outcome.TRUNCATED, "the stream ends without [DONE], and no choice has finished")


# -- the server ----------------------------------------------------------------------------------


def greeting(endpoint: Endpoint) -> Target:
    """Ask for its models."""
    return clients_messages.get(NAME, endpoint, _versioned(endpoint, "/v1/models"))


def recognised(reply: Reply) -> Server | None:
    """Read their names."""
    found = clients_messages.quiet(reply)
    if not isinstance(found.get("data"), list):
        return None
    models = [entry.get("id") for entry in found["data"] if isinstance(entry, dict)]
    return Server(models=tuple(name for name in models if isinstance(name, str)))


def described(endpoint: Endpoint) -> None:
    """Ask nothing: the input is text."""
    del endpoint


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Give the prompt, whatever the server says."""
    del reply, endpoint
    return (PROMPT_INPUT,)


WORDS = 128
"""Of a random prompt, where nobody says how many."""
PROMPT_INPUT = InputSpec(name=PROMPT, shape=(BATCH,), dtype="string", low=WORDS, high=WORDS)
