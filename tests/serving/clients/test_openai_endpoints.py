"""Responses of OpenAI and messages of Anthropic, and images in what is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tests.serving.clients.test_openai import STREAM, turn
from tests.zoo.protocols import reply

from modeldyno.base.errors import RequestError
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.data.text_requests import write_request
from modeldyno.engine.interfaces.request_target import BrokenStream, Endpoint
from modeldyno.serving.clients import openai
from modeldyno.testing.clients import ClientSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

URL = "data:image/png;base64,iVBORw0KGgo="
WITH_IMAGE = write_request({"prompt": "hello", "images": [URL]})


def events(*parts: dict[str, Any]) -> Any:
    """Make an answer of events that have their kinds as fields, as both protocols write them."""
    body = b"".join(
        b"event: %b\ndata: %b\n\n" % (part["type"].encode(), json.dumps(part).encode()) for part in parts
    )
    return reply(body, head=STREAM)


def delta(text: str, kind: str = "output_text") -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "delta": text}


def ended(status: str = "completed", /, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, "error": None, **fields}}


def block(**fields: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": fields}


RESPONSE: dict[str, Any] = {
    "object": "response",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm "}], "content": None},
        {"type": "function_call", "status": "completed", "arguments": "{}"},
        {"type": "message", "status": "completed", "content": [{"type": "output_text", "text": "so"}]},
    ],
    "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3},
}
RESPONSE_STREAM = events(
    {"type": "response.created", "response": {"status": "in_progress", "error": None, "output": []}},
    {"type": "response.output_item.added", "item": {"type": "message", "content": []}},
    delta("hm ", "reasoning_summary_text"),
    delta("s"),
    delta("o"),
    {"type": "response.output_text.done", "text": "so"},
    ended(**{name: RESPONSE[name] for name in ("output", "usage")}),
)
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "hm "}, {"type": "text", "text": "so"}],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 3,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 2,
        "output_tokens": 3,
    },
}
MESSAGE_STREAM = events(
    {"type": "message_start", "message": MESSAGE | {"content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    block(type="thinking_delta", thinking="hm "),
    block(type="signature_delta", signature="EqQB"),
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    block(type="text_delta", text="s"),
    block(type="text_delta", text="o"),
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)


class TestResponses(ClientSuite):
    name = "openai"
    answer = RESPONSE_STREAM
    numbers = False
    options: ClassVar = {"endpoint": "responses"}

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {"prompt": np.array([f"tell me of {seed}"], object)}


class TestMessages(TestResponses):
    answer = MESSAGE_STREAM
    options: ClassVar = {"endpoint": "messages"}


def sent(text: str = "hello", **options: Any) -> tuple[bytes, Any]:
    """Give head and JSON of a request."""
    endpoint = Endpoint(host="h", port=1, model="m", path="/v1", options=options)
    (message,) = openai.target([{"prompt": np.array([text], object)}], endpoint).messages
    head, _, body = message.partition(b"\r\n\r\n")
    return head, json.loads(body)


# -- requests ------------------------------------------------------------------------------------


def test_a_response_is_asked_for_and_not_kept() -> None:
    """The number of tokens has a name of its own, and a server keeps no answer of a load."""
    head, body = sent(endpoint="responses", max_tokens=9)
    assert head.startswith(b"POST /v1/responses ")
    assert body == {
        "model": "m",
        "max_output_tokens": 9,
        "temperature": 0.0,
        "store": False,
        "stream": True,
        "input": "hello",
    }
    assert "stream" not in sent(endpoint="responses", stream=False)[1]
    assert "store" not in sent(endpoint="responses", extra='{"store": null}')[1]


def test_a_message_is_asked_for_in_a_version_of_the_protocol() -> None:
    """Which the user may override; the number of tokens is there as the protocol requires it."""
    head, body = sent(endpoint="messages")
    assert head.startswith(b"POST /v1/messages ")
    assert b"\r\nanthropic-version: 2023-06-01\r\n" in head
    assert body == {
        "model": "m",
        "max_tokens": 64,
        "temperature": 0.0,
        "stream": True,
        "messages": [{"role": "user", "content": "hello"}],
    }


@pytest.mark.parametrize("endpoint", ["completions", "chat", "responses", "messages"])
def test_the_tokens_that_are_asked_for_are_known(endpoint: str) -> None:
    """Whatever their field is called."""
    place = Endpoint(host="h", port=1, options={"endpoint": endpoint, "max_tokens": 7})
    assert openai.target([{"prompt": np.array(["a"], object)}], place).token_limits == (7,)


@pytest.mark.parametrize(
    ("endpoint", "asks", "parts"),
    [
        (
            "chat",
            "messages",
            [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": URL}}],
        ),
        (
            "responses",
            "input",
            [
                {"type": "input_text", "text": "hello"},
                {"type": "input_image", "image_url": URL, "detail": "auto"},
            ],
        ),
        (
            "messages",
            "messages",
            [
                {"type": "text", "text": "hello"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                },
            ],
        ),
    ],
)  # fmt: skip
def test_images_come_after_the_text(endpoint: str, asks: str, parts: list[Any]) -> None:
    """In the form of each endpoint, so that prompts that begin alike still do."""
    assert sent(WITH_IMAGE, endpoint=endpoint)[1][asks] == [{"role": "user", "content": parts}]


def test_images_go_with_the_last_message_of_a_line() -> None:
    """After its own parts."""
    own = [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
    ]
    first, last = sent(write_request({"messages": own, "images": [URL]}), endpoint="chat")[1]["messages"]
    assert first == own[0]
    assert [part["type"] for part in last["content"]] == ["text", "image_url"]


def test_a_line_is_sent_in_the_form_that_it_has() -> None:
    """The input of a response, messages in place of it, and the texts of embeddings."""
    spoken = [{"role": "user", "content": "hi"}]
    line = write_request({"input": spoken, "instructions": "brief", "max_tokens": 5})
    body = sent(line, endpoint="responses")[1]
    assert (body["input"], body["instructions"], body["max_output_tokens"]) == (spoken, "brief", 5)
    assert sent(write_request({"messages": spoken}), endpoint="responses")[1]["input"] == spoken
    assert sent(write_request({"input": ["a", "b"]}), endpoint="embeddings")[1]["input"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        (WITH_IMAGE, {}, "endpoint=completions have no images; set endpoint=chat, responses or messages"),
        (WITH_IMAGE, {"endpoint": "embeddings"}, "endpoint=embeddings have no images"),
        (write_request({"messages": []}), {}, "field messages, which requests of endpoint=completions have"),
        (write_request({"input": []}), {"endpoint": "chat"}, "set endpoint=embeddings or responses"),
        (
            "a",
            {"endpoint": "messages", "token_limit": "max_completion_tokens"},
            "endpoint=messages have max_tokens, not max_completion_tokens; leave out token_limit",
        ),
    ],
)
def test_what_an_endpoint_does_not_take_is_refused(text: str, options: dict[str, Any], why: str) -> None:
    """In one sentence, with what to set."""
    with pytest.raises(RequestError, match=why):
        sent(text, **options)


# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(RESPONSE), "completed"),
        (RESPONSE_STREAM, "completed"),
        (reply(MESSAGE), "end_turn"),
        (MESSAGE_STREAM, "end_turn"),
    ],
    ids=["response", "response stream", "message", "message stream"],
)
def test_an_answer_is_read(answer: Any, reason: str) -> None:
    """Its text with what was reasoned, why it ended, and its tokens: Anthropic's input is less its cache."""
    assert openai.arrays(answer)["text"].tolist() == ["hm so"]
    assert openai.finish_reason(answer) == reason
    assert openai.tokens(answer) == 3
    assert (openai.prompt_tokens(answer), openai.cached_tokens(answer)) == (9, 4)


def test_an_answer_that_its_limit_ended_is_one() -> None:
    """OpenAI calls it incomplete, and says why."""
    usage = {"input_tokens": 2, "output_tokens": 1}
    details = {"reason": "max_output_tokens"}
    answer = events(delta("a"), ended("incomplete", incomplete_details=details, usage=usage))
    assert openai.finish_reason(answer) == "max_output_tokens"
    assert (openai.tokens(answer), openai.cached_tokens(answer)) == (1, -1)
    assert openai.arrays(answer)["text"].tolist() == ["a"]


@pytest.mark.parametrize("length", [10, 10_000, 200_000])
def test_the_end_of_a_long_text_has_its_tokens(length: int) -> None:
    """Whose last event repeats all of it."""
    text, usage = "x" * length, {"input_tokens": 2, "output_tokens": length}
    answer = events(delta(text), ended(output=[{"content": [{"text": text}]}], usage=usage))
    assert openai.tokens(answer) == length
    assert openai.finish_reason(answer) == "completed"
    assert openai.arrays(answer)["text"].tolist() == [text]


def test_a_text_that_comes_only_at_the_end_is_read_there() -> None:
    """As a server may send no pieces; an answer without any text is empty, and calls a tool."""
    assert openai.arrays(events(ended(output=RESPONSE["output"])))["text"].tolist() == ["hm so"]
    assert openai.arrays(events(ended(output=[])))["text"].tolist() == [""]
    only = block(type="input_json_delta", partial_json="{}")
    stop = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    assert openai.arrays(events(only, stop))["text"].tolist() == [""]


@pytest.mark.parametrize(
    ("stream", "text", "reasoning"),
    [
        (RESPONSE_STREAM, [False, False, True, True, True, False, False], 1),
        (MESSAGE_STREAM, [False, False, True, False, False, False, True, True, False, False], 1),
    ],
    ids=["response", "message"],
)
def test_only_pieces_of_text_bear(stream: Any, text: list[bool], reasoning: int) -> None:
    """Not what repeats the request or the text, nor a signature; what was reasoned is told from the rest."""
    parts = [part.partition(b"data: ")[2] for part in stream.body.split(b"\n\n") if part]
    assert [openai.text_start(part) > 0 for part in parts] == text
    assert sum(openai.is_reasoning(part) for part in parts if openai.text_start(part)) == reasoning


@pytest.mark.parametrize(
    "answer",
    [
        events(delta("a"), ended("failed") | {"response": {"error": {"message": "out of memory"}}}),
        events(delta("a"), {"type": "error", "code": "x", "message": "out of memory"}),
        events(block(text="a"), {"type": "error", "error": {"type": "x", "message": "out of memory"}}),
        reply(RESPONSE | {"status": "failed", "error": {"message": "out of memory"}, "output": []}),
        reply({"type": "error", "error": {"type": "overloaded_error", "message": "out of memory"}}),
    ],
    ids=["failed", "error", "anthropic", "whole", "whole anthropic"],
)  # fmt: skip
def test_an_error_in_an_answer_is_a_failure(answer: Any) -> None:
    """Whatever the status said, streamed or whole."""
    for read in (openai.arrays, openai.tokens):
        with pytest.raises(BrokenStream, match="out of memory") as raised:
            read(answer)
        assert raised.value.outcome is RequestOutcome.SERVER_ERROR


@pytest.mark.parametrize("stream", [RESPONSE_STREAM, MESSAGE_STREAM], ids=["response", "message"])
def test_a_stream_without_its_end_is_truncated(stream: Any) -> None:
    """There is no other mark of it than the last events."""
    parts = stream.body.split(b"\n\n")
    cut = reply(b"\n\n".join(parts[:-3]) + b"\n\n", head=STREAM)
    for read in (openai.arrays, openai.tokens):
        with pytest.raises(BrokenStream) as raised:
            read(cut)
        assert raised.value.outcome is RequestOutcome.TRUNCATED


def test_the_word_error_in_a_text_is_none() -> None:
    """It is only one in its place."""
    answer = events(delta('an "error": no'), ended())
    assert openai.arrays(answer)["text"].tolist() == ['an "error": no']


# -- sessions ------------------------------------------------------------------------------------


def test_sessions_are_chats_or_messages() -> None:
    """A response has no list of messages to which its answer could be added."""
    (message,) = turn(["a"], endpoint="messages").messages
    assert message.endswith(b'"messages":[{"role":"user","content":"a"}]}')
    with pytest.raises(RequestError, match="give endpoint=chat or endpoint=messages"):
        turn(["a"], endpoint="responses")


@pytest.mark.parametrize("answer", [MESSAGE_STREAM, reply(MESSAGE)], ids=["stream", "whole"])
def test_a_message_goes_on_without_its_thoughts(answer: Any) -> None:
    """The text alone is what the assistant said."""
    assert json.loads(openai.assistant_message(answer)) == {"role": "assistant", "content": "so"}
