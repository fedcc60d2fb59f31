"""Generated text of the ground-truth server: what a request asks for, and how each endpoint has the answer.

Completions, chats and responses are OpenAI's, messages Anthropic's. An image in a prompt counts IMAGE_TOKENS,
whatever its size, and has to be a PNG or a JPEG in a data URL or in base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from modeldyno.testing.server_response import ServerResponse
from modeldyno.testing.server_sessions import SeenSessions

_Json = dict[str, Any]
_WORD = " word"
IMAGE_TOKENS = 256
"""Tokens of an image in a prompt."""
_IMAGE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_BLOCK = 16
"""Words of a block of the prefix cache."""


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def count_by_tokenizer(file: str) -> Callable[[str], int]:
    """Return what counts tokens by a ``tokenizer.json``; needs the library `tokenizers`."""
    from tokenizers import Tokenizer  # optional

    tokenizer = Tokenizer.from_file(file)
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text).ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How text is generated."""

    tokens: int = 16
    """Tokens, if the request does not set a number."""
    pace: float = 0.001
    """Seconds from one token to the next."""
    together: int = 1
    """Tokens in a piece of a stream."""
    count_tokens: Callable[[str], int] = count_words
    """Counts the tokens of a prompt: words, or by a tokenizer."""
    prefixes: set[bytes] | None = None
    """Beginnings of earlier prompts, of which the tokens are cached; None: nothing is cached."""
    sessions: SeenSessions | None = None
    """The chats of several turns so far, whose order is checked; None: it is not."""
    template: int = 0
    """Tokens that its chat template adds to each prompt but those of completions."""
    cached_in_usage: bool = True
    """Whether an answer says how much of its prompt was cached."""
    usage: bool = True
    """Whether an answer says how many tokens it has."""
    counted: Counter[str] = field(default_factory=Counter)
    """Tokens of the prompts so far, and those of them that were cached."""


# -- prompts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    """What a request asks."""

    texts: tuple[str, ...]
    images: int = 0
    several: bool = False
    """Whether the texts are prompts of their own."""


def _read_prompt(request: _Json) -> _Prompt:
    """Return the prompts of a completion, or all that is said in a chat, a message or a response.

    Raises:
        ValueError: an image is none.
    """
    messages = request.get("messages") or request.get("input")
    if messages is None:
        prompt = request.get("prompt") or ""
        texts = prompt if isinstance(prompt, list) else [prompt]
        return _Prompt(texts=tuple(map(str, texts)), several=True)
    parts = [*_parts(request.get("system")), *_parts(request.get("instructions"))]
    if isinstance(messages, str):
        parts += _parts(messages)
    else:
        parts += (part for message in messages for part in _parts(message.get("content")))
    images = [part for part in parts if "image" in part["type"]]
    for image in images:
        _check_image(image)
    return _Prompt(
        texts=tuple(str(part["text"]) for part in parts if "text" in part["type"]), images=len(images)
    )


def _parts(content: Any) -> list[_Json]:
    """Return the parts of a content, which may be one text."""
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _check_image(part: _Json) -> None:
    """Raise ValueError if a part has no image in the form of any endpoint."""
    place = part.get("image_url")
    url = place["url"] if isinstance(place, dict) else place
    data = part["source"]["data"] if url is None else url.partition(";base64,")[2]
    if not base64.b64decode(data[:16]).startswith(_IMAGE_STARTS):
        raise ValueError("an image is neither a PNG nor a JPEG in base64")


def _take_cached(text: str, settings: Generation) -> int:
    """Return the tokens of the longest beginning in blocks that an earlier prompt had; keep all of this."""
    assert settings.prefixes is not None
    words, longest, read = text.split(), 0, hashlib.blake2b(digest_size=16)
    for end in range(_BLOCK, len(words) + 1, _BLOCK):
        read.update(" ".join(words[end - _BLOCK : end]).encode())
        beginning = read.digest()
        if beginning in settings.prefixes:
            longest = end
        settings.prefixes.add(beginning)
    return settings.count_tokens(" ".join(words[:longest])) if longest else 0


# -- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A generated text and its counts."""

    model: str
    words: tuple[str, ...]
    prompt: int
    """Tokens of the prompt."""
    cached: int | None = None
    """Those of them that were cached; None: the answer does not say."""
    with_usage: bool = True
    """Whether a stream ends with the counts, as OpenAI's chats and completions do if they are asked to."""

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """How an endpoint writes what was generated."""

    whole: Callable[[Generated], _Json]
    piece: Callable[[Generated, str], str]
    """The events of a piece of the text."""
    end: Callable[[Generated], str]
    """The events after the last piece."""
    begin: Callable[[Generated], str] = lambda _: ""
    """The events that come at once."""


def answer(model: str, form: TextForm, body: bytes, settings: Generation) -> ServerResponse:
    """Generate the requested number of words, whole or in pieces."""
    request = json.loads(body)
    limits = (request.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
    count = next((int(number) for number in limits if number), settings.tokens)
    prompt = _read_prompt(request)
    size = sum(map(settings.count_tokens, prompt.texts)) + IMAGE_TOKENS * prompt.images
    size += 0 if prompt.several else settings.template
    cached = None
    if settings.prefixes is not None:
        whole = prompt.texts if prompt.several else [" ".join(prompt.texts)]  # a chat is one prompt
        cached = sum(_take_cached(text, settings) for text in whole)
        settings.counted.update(prompt_tokens=size, cached_tokens=cached)
    turn, words = "", [_WORD] * count
    if settings.sessions is not None and request.get("messages"):
        words[0] = f" {settings.sessions.next_word()}"
        turn = settings.sessions.go_on(request["messages"], "".join(words))
    generated = Generated(
        model=model,
        words=tuple(words),
        prompt=size,
        cached=cached if settings.cached_in_usage else None,
        with_usage=settings.usage and bool((request.get("stream_options") or {}).get("include_usage")),
    )
    if not request.get("stream"):
        document = form.whole(generated)
        if not settings.usage:
            del document["usage"]
        return ServerResponse(json.dumps(document).encode(), turn=turn)
    return ServerResponse(
        kind=b"text/event-stream",
        begin=form.begin(generated).encode(),
        pieces=tuple(_pieces(generated, form, settings.together)),
        turn=turn,
    )


def _pieces(generated: Generated, form: TextForm, together: int) -> Iterator[tuple[int, bytes]]:
    """Yield the tokens and the events of each piece."""
    words = generated.words
    sizes = [min(together, len(words) - at) for at in range(0, len(words), together)]
    for at, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        end = form.end(generated) if at + size == len(words) else ""
        yield size, (form.piece(generated, "".join(words[at : at + size])) + end).encode()


def _event(content: _Json | str) -> str:
    return f"data: {content if isinstance(content, str) else json.dumps(content)}\n\n"


def _typed(kind: str, **content: Any) -> str:
    """Write an event that has its kind as a field and in its data."""
    return f"event: {kind}\n{_event({'type': kind} | content)}"


# OpenAI's completions and chats


def _choice_form(
    whole: str, piece: str, write: Callable[[str], _Json], delta: Callable[[str], _Json]
) -> TextForm:
    """Return the form of answers with choices, whose objects have these names, and a text in these fields."""

    def document(generated: Generated, kind: str, *choices: _Json, **more: Any) -> _Json:
        common = {"id": "cmpl-1", "created": 0, "model": generated.model, "object": kind}
        return common | {"choices": [{"index": 0} | choice for choice in choices]} | more

    def part(generated: Generated, text: str, reason: str | None = None) -> str:
        return _event(document(generated, piece, {"finish_reason": reason} | delta(text)))

    def end(generated: Generated) -> str:
        usage = _event(document(generated, piece, usage=_openai_usage(generated)))
        return part(generated, "", "length") + (usage if generated.with_usage else "") + _event("[DONE]")

    return TextForm(
        whole=lambda generated: document(
            generated,
            whole,
            {"finish_reason": "length"} | write(generated.text),
            usage=_openai_usage(generated),
        ),
        piece=part,
        end=end,
    )


def _openai_usage(generated: Generated) -> _Json:
    prompt, count = generated.prompt, len(generated.words)
    usage: _Json = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
    if generated.cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": generated.cached}
    return usage


# OpenAI's responses


def _response(generated: Generated, status: str) -> _Json:
    """Return a response; it has its text and its usage unless it is in progress."""
    has_ended = status != "in_progress"
    count, cached = len(generated.words), generated.cached
    content = [{"type": "output_text", "text": generated.text, "annotations": []}]
    details = {} if cached is None else {"input_tokens_details": {"cached_tokens": cached}}
    usage = {
        "input_tokens": generated.prompt,
        "output_tokens": count,
        "total_tokens": generated.prompt + count,
    }
    item = {"type": "message", "id": "msg_1", "status": status, "role": "assistant", "content": content}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if has_ended else None,
        "instructions": None,
        "model": generated.model,
        "output": [item] if has_ended else [],
        "usage": usage | details if has_ended else None,
    }


def _responses_begin(generated: Generated) -> str:
    response = _response(generated, "in_progress")
    item = {"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    return (
        _typed("response.created", response=response)
        + _typed("response.in_progress", response=response)
        + _typed("response.output_item.added", output_index=0, item=item)
        + _typed("response.content_part.added", item_id="msg_1", output_index=0, content_index=0, part=part)
    )


def _responses_end(generated: Generated) -> str:
    response = _response(generated, "incomplete")
    (item,) = response["output"]
    (part,) = item["content"]
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return (
        _typed("response.output_text.done", **place, text=generated.text)
        + _typed("response.content_part.done", **place, part=part)
        + _typed("response.output_item.done", output_index=0, item=item)
        + _typed("response.incomplete", response=response)
    )


# Anthropic's messages


def _message(generated: Generated, content: list[_Json], reason: str | None, count: int) -> _Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": generated.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": generated.prompt - (generated.cached or 0),
            "output_tokens": count,
            **({} if generated.cached is None else {"cache_read_input_tokens": generated.cached}),
        },
    }


def _messages_begin(generated: Generated) -> str:
    block = {"type": "text", "text": ""}
    return (
        _typed("message_start", message=_message(generated, [], None, 0))
        + _typed("content_block_start", index=0, content_block=block)
        + _typed("ping")
    )


def _messages_end(generated: Generated) -> str:
    delta = {"stop_reason": "max_tokens", "stop_sequence": None}
    return (
        _typed("content_block_stop", index=0)
        + _typed("message_delta", delta=delta, usage={"output_tokens": len(generated.words)})
        + _typed("message_stop")
    )


TEXT_FORMS = {
    "/v1/completions": _choice_form(
        "text_completion", "text_completion", lambda text: {"text": text}, lambda text: {"text": text}
    ),
    "/v1/chat/completions": _choice_form(
        "chat.completion",
        "chat.completion.chunk",
        lambda text: {"message": {"role": "assistant", "content": text}},
        lambda text: {"delta": {"content": text}},
    ),
    "/v1/responses": TextForm(
        whole=lambda generated: _response(generated, "incomplete"),
        begin=_responses_begin,
        piece=lambda _, text: _typed(
            "response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=text
        ),
        end=_responses_end,
    ),
    "/v1/messages": TextForm(
        whole=lambda generated: _message(
            generated, [{"type": "text", "text": generated.text}], "max_tokens", len(generated.words)
        ),
        begin=_messages_begin,
        piece=lambda _, text: _typed(
            "content_block_delta", index=0, delta={"type": "text_delta", "text": text}
        ),
        end=_messages_end,
    ),
}
"""Path to how its endpoint writes a text. All texts end at the number of tokens that was asked for."""
