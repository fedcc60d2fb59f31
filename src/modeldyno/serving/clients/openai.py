"""``openai``: OpenAI's completions, chats, responses and embeddings, and Anthropic's messages.

Many servers support them. Options: ``endpoint`` (``completions``, the default; ``chat``; ``responses``;
``messages``; ``embeddings``), ``stream`` (default true: the answer comes in pieces), ``max_tokens``,
``temperature`` (default 0: the same prompt gives the same text), ``token_limit`` (the field of a request
that has ``max_tokens``, for servers that know another one), and ``extra``, a JSON object added to each
request, such as ``{"ignore_eos": true}``; null leaves a field out.
The input ``prompt`` is text: lines of a file, or random words, 128 by default
(``--input prompt=1:string:64..256``). Completions and embeddings take a batch, the others one prompt per
request. A line of a ``.jsonl`` may be a request of its own, with its messages and ``max_tokens``; see
`engine.data.text_requests`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.prompt_lengths import WORDS_OF_A_PROMPT
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.data import text_requests
from modeldyno.engine.interfaces.request_target import BrokenStream, ServerInfo, Transport
from modeldyno.serving.clients import generated_text, openai_answers, openai_requests, tensors
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.loadgen.event_stream import DONE, StreamEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.models.interface import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP
takes_requests = True

NAME = "openai"
PROMPT = "prompt"
_MESSAGES = "messages"
_EVENT_STREAM = "text/event-stream"


# -- requests ------------------------------------------------------------------------------------


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a request.

    Raises:
        RequestError: an input is not text, a chat has several prompts, or an option is wrong.
    """
    return _posted(openai_requests.request_bodies(feeds, endpoint), endpoint)


def sequence_target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a turn of a chat, to which the history of its session is added as it is sent.

    Raises:
        RequestError: as `target` does, and if requests are no chats of one answer each, or are compressed.
    """
    if openai_requests.form_of(endpoint).asks != _MESSAGES:
        raise RequestError(
            "Sessions of several turns are chats: give endpoint=chat or endpoint=messages, or leave out "
            "`sequence`."
        )
    if endpoint.options.get("compression"):
        raise RequestError(
            "The requests of a session grow while it is sent; leave out compression or `sequence`."
        )
    bodies = openai_requests.request_bodies(feeds, endpoint)
    if any(body.get("n", 1) != 1 for body in bodies):
        raise RequestError("A session goes on with one answer; leave out n, or `sequence`.")
    turns = [body.pop(_MESSAGES) for body in bodies]
    times = tuple(float(body.pop(text_requests.THINK_TIME, -1.0)) for body in bodies)
    links = tuple(tuple(body.pop(text_requests.LINKS, ())) for body in bodies)
    posted = _posted([{**body, _MESSAGES: turn} for body, turn in zip(bodies, turns, strict=True)], endpoint)
    lengths = [len(clients_messages.encode_json(turn, instead="remove them")) for turn in turns]
    return replace(
        posted,
        marks=tuple(len(message) - size for message, size in zip(posted.messages, lengths, strict=True)),
        turn_ends=tuple(len(message) - len("]}") for message in posted.messages),
        think_times=times if max(times, default=-1.0) >= 0 else (),
        links=links if any(links) else (),
    )


def _posted(bodies: Sequence[Mapping[str, Any]], endpoint: Endpoint) -> Target:
    form, stream = openai_requests.form_of(endpoint), openai_requests.is_streamed(endpoint)
    path = _base_path(endpoint, form.path)
    headers = {**form.headers, **({"Accept": _EVENT_STREAM} if stream else {})}
    messages = [
        clients_messages.post_request(
            endpoint, path, clients_messages.encode_json(body, instead="remove them"), headers=headers
        )
        for body in bodies
    ]
    return replace(
        clients_messages.http_target(NAME, endpoint, messages, stream=stream, counted=bool(form.limits)),
        token_limits=tuple(map(_asked_tokens, bodies)),
        tokenizer=str(endpoint.options.get("tokenizer", "")),
    )


def _asked_tokens(body: Mapping[str, Any]) -> int:
    """Return the tokens that a request asks to generate for all of its prompts and choices; 0 if unknown."""
    prompts, choices = body.get("prompt"), body.get("n", 1)
    if not isinstance(choices, int):
        return 0
    return generated_text.limit_of(body) * choices * (len(prompts) if isinstance(prompts, list) else 1)


def _base_path(endpoint: Endpoint, path: str) -> str:
    """Drop ``/v1`` from the path if the URL already ends in it, as base URLs of this protocol do."""
    return path.removeprefix("/v1") if endpoint.path.rstrip("/").endswith("/v1") else path


# -- answers -------------------------------------------------------------------------------------


def arrays(reply: Reply) -> Feed:
    """Return ``text``, one per prompt, or ``embedding``, one row per prompt."""
    clients_messages.check_http_status(reply)
    if generated_text.is_streamed(reply):
        _check_stream(reply)
        answers = [clients_messages.parse_json(event.data) for event in generated_text.events(reply)]
    else:
        answers = [clients_messages.parse_json(reply.body)]
        generated_text.raise_on_error(StreamEvent(b"", reply.body))
    try:
        if answers and "data" in answers[0]:
            rows = sorted(answers[0]["data"], key=lambda row: row["index"])
            return {
                "embedding": tensors.from_values(
                    "embedding", [row["embedding"] for row in rows], "float32", None
                )
            }
        texts = openai_answers.choice_texts(answers)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the answer has neither a text nor embeddings where they should be") from None
    if not texts:
        raise ValueError("the answer has no text")
    return {
        "text": tensors.from_values("text", [texts[index] for index in sorted(texts)], tensors.TEXT, None)
    }


def text(reply: Reply) -> str:
    """Return the texts of all choices, one after the other."""
    streamed = generated_text.is_streamed(reply)
    bodies = [event.data for event in generated_text.events(reply)] if streamed else [reply.body]
    texts = openai_answers.choice_texts([clients_messages.parse_json(body) for body in bodies])
    return "".join(texts.values())


def assistant_message(reply: Reply) -> bytes:
    """Return the answer as a message of the chat that goes on, without any reasoning; it has one choice.

    Pieces are joined as they are, still escaped: to decode each would take the driver's time from its clock.

    Raises:
        ValueError: the answer has no text.
    """
    pattern = _BLOCK_TEXT if _OF_MESSAGES in reply.body else _CONTENT
    text = b"".join(pattern.findall(reply.body)) or json.dumps(_content(reply))[1:-1].encode()
    return b'{"role":"assistant","content":"%b"}' % text


_CONTENT = re.compile(rb'"content"\s*:\s*"((?:[^"\\]|\\.)*)"')
"""A text in its place; that of a thought has another name."""
_BLOCK_TEXT = re.compile(rb'"text"\s*:\s*"((?:[^"\\]|\\.)*)"')
_OF_MESSAGES = b'"content_block_'
"""The same in a stream of Anthropic's, which has such events."""


def _content(reply: Reply) -> str:
    """Return the text of an answer whose content is not plain; empty if it has none, as calls of tools."""
    streamed = generated_text.is_streamed(reply)
    bodies = (event.data for event in generated_text.events(reply)) if streamed else (reply.body,)
    return "".join(openai_answers.answer_texts(map(clients_messages.parse_json, bodies)))


def tokens(reply: Reply) -> int:
    """Return the number of generated tokens that the server reports; pieces are not tokens.

    Raises:
        BrokenStream: the stream reports an error, or is incomplete.
    """
    if generated_text.is_streamed(reply):
        _check_stream(reply)
    else:
        generated_text.raise_on_error(StreamEvent(b"", reply.body))
    return generated_text.generated_tokens(reply)


prompt_tokens = generated_text.prompt_tokens
finish_reason = generated_text.finish_reason
cached_tokens = generated_text.cached_tokens
text_start = generated_text.text_start
is_reasoning = generated_text.is_reasoning


_ERROR, _FAILED = re.compile(rb'error(?!"\s*:\s*null)'), b"response.failed"
"""What a stream with an error has; OpenAI's responses always say that they have none."""


_END = 1024
"""Bytes that the end mark has at most, with what may follow it."""


def _check_stream(reply: Reply) -> None:
    """Raise BrokenStream if a stream reports an error, or has neither its end mark nor a reason to end."""
    if (b"error" in reply.body and _ERROR.search(reply.body)) or _FAILED in reply.body:
        for event in generated_text.events(reply):
            generated_text.raise_on_error(event)
    if not reply.body[-_END:].rstrip().endswith(DONE) and not generated_text.finish_reason(reply):
        raise BrokenStream(
            RequestOutcome.TRUNCATED, "the stream ends without [DONE], and does not say why its text ends"
        )


# -- the server ----------------------------------------------------------------------------------


def greeting(endpoint: Endpoint) -> Target:
    """Return the request for the list of models."""
    return clients_messages.get_target(NAME, endpoint, _base_path(endpoint, "/v1/models"))


def recognised(reply: Reply) -> ServerInfo | None:
    """Return the server's models; None if the reply is not a list of models."""
    listing = clients_messages.json_object_or_empty(reply)
    if not isinstance(listing.get("data"), list):
        return None
    models = [entry.get("id") for entry in listing["data"] if isinstance(entry, dict)]
    return ServerInfo(models=tuple(name for name in models if isinstance(name, str)))


def described(endpoint: Endpoint) -> None:
    """Return None: the input is always text."""
    del endpoint


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return the prompt; the reply is not needed."""
    del reply, endpoint
    return (PROMPT_INPUT,)


PROMPT_INPUT = InputSpec(
    name=PROMPT, shape=(BATCH,), dtype="string", low=WORDS_OF_A_PROMPT, high=WORDS_OF_A_PROMPT
)
