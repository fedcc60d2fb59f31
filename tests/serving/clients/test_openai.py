from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tests.zoo.protocols import recorded, reply

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.data.text_requests import write_request
from modeldyno.engine.interfaces.request_target import BrokenStream, Endpoint, ServerInfo, insert_history
from modeldyno.serving.clients import openai
from modeldyno.testing.clients import ClientSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

STREAM = b"Content-Type: text/event-stream; charset=utf-8"
PROMPT = {"prompt": np.array(["hello"], object)}


class TestStreamed(ClientSuite):
    name = "openai"
    answer = recorded("transformers chat stream")
    numbers = False

    def feed(self, seed: int) -> Feed:
        """A payload."""
        return {"prompt": np.array([f"tell me of {seed}"], object)}


class TestWhole(TestStreamed):
    answer = recorded("transformers completions whole")
    options: ClassVar = {"stream": False}


class TestEmbeddings(TestStreamed):
    answer = reply(
        {"object": "list", "data": [{"index": 0, "embedding": [1.0, 2.0]}], "usage": {"prompt_tokens": 3}}
    )
    options: ClassVar = {"endpoint": "embeddings"}


def sent(feed: Feed = PROMPT, path: str = "", model: str = "llama", **options: Any) -> tuple[str, Any]:
    """Give path and JSON of a request."""
    (message,) = openai.target(
        [feed], Endpoint(host="h", port=1, model=model, path=path, options=options)
    ).messages
    head, _, body = message.partition(b"\r\n\r\n")
    return head.split(b" ")[1].decode(), json.loads(body)


def events(*parts: Any, end: bytes = b"data: [DONE]\n\n") -> Any:
    """Make an answer of events."""
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in parts)
    return reply(body + end, head=STREAM)


class TestRequests:
    def test_a_completion_is_streamed_with_its_usage(self) -> None:
        """By default text is completed, streamed, without chance, with the usage at the end."""
        assert sent() == (
            "/v1/completions",
            {
                "model": "llama",
                "prompt": "hello",
                "max_tokens": 64,
                "temperature": 0.0,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
        )
        assert openai.target([PROMPT], Endpoint(host="h", port=1)).stream

    def test_a_chat(self) -> None:
        """A chat has one message of the user."""
        path, body = sent(endpoint="chat", stream=False, max_tokens=5, temperature=0.5)

        assert path == "/v1/chat/completions"
        assert body["messages"] == [{"role": "user", "content": "hello"}]
        assert (body["max_tokens"], body["temperature"]) == (5, 0.5)
        assert "stream" not in body

    def test_embeddings_of_a_batch(self) -> None:
        """Several texts are embedded at once; there is nothing to stream or to limit."""
        two = {"prompt": np.array(["a", "b"], object)}

        assert sent(two, endpoint="embeddings") == ("/v1/embeddings", {"model": "llama", "input": ["a", "b"]})

    def test_a_batch_of_prompts(self) -> None:
        """Completions take several prompts, a chat does not."""
        two = {"prompt": np.array(["a", "b"], object)}

        assert sent(two)[1]["prompt"] == ["a", "b"]
        with pytest.raises(RequestError, match="one prompt per request, not 2"):
            sent(two, endpoint="chat")

    def test_extras_win(self) -> None:
        """Whatever else a server understands is added, and may replace what is usual."""
        body = sent(extra='{"ignore_eos": true, "temperature": 1}')[1]

        assert (body["ignore_eos"], body["temperature"]) == (True, 1)

    def test_a_field_that_a_server_does_not_know_is_left_out_or_renamed(self) -> None:
        """Models of OpenAI that reason take no temperature, and name the limit otherwise."""
        body = sent(extra='{"temperature": null}', token_limit="max_completion_tokens", max_tokens=9)[1]

        assert "temperature" not in body
        assert "max_tokens" not in body
        assert body["max_completion_tokens"] == 9

    @pytest.mark.parametrize("extra", ["{", "[]", "3", '{"stream": false}'])
    def test_extras_that_are_none(self, extra: str) -> None:
        """What is no object, or contradicts the knob stream, is refused."""
        with pytest.raises(RequestError, match="extra"):
            sent(extra=extra)

    @pytest.mark.parametrize("prefix", ["/v1", "/openai/v1/"])
    def test_a_base_url_with_its_version(self, prefix: str) -> None:
        """A URL that ends in /v1, as base URLs of this protocol do, is not given another."""
        assert sent(path=prefix)[0] == prefix.rstrip("/") + "/completions"

    def test_a_server_with_one_model_needs_no_name(self) -> None:
        """Without a model's name the server takes its own."""
        assert "model" not in sent(model="")[1]

    @pytest.mark.parametrize(
        "feed",
        [{}, {"a": PROMPT["prompt"], "b": PROMPT["prompt"]}, {"x": np.zeros(1)}, {"x": np.array([], object)}],
    )
    def test_what_is_no_prompt(self, feed: Feed) -> None:
        """Anything but one input of text is refused."""
        with pytest.raises(RequestError):
            sent(feed)

    def test_an_unknown_endpoint(self) -> None:
        """An endpoint that is none gets a suggestion."""
        with pytest.raises(UnknownName, match="did you mean 'chat'"):
            sent(endpoint="chats")


class TestAnswers:
    @pytest.mark.parametrize("kind", ["completions", "chat"])
    @pytest.mark.parametrize("how", ["stream", "whole"])
    def test_real_answers(self, kind: str, how: str) -> None:
        """Text and tokens of a real server, streamed and whole; the tokens are those that it counted."""
        answer = recorded(f"transformers {kind} {how}")

        assert openai.arrays(answer)["text"].shape == (1,)
        assert openai.tokens(answer) == (8 if kind == "completions" else 2)
        assert openai.prompt_tokens(answer) > 0

    def test_a_stream_is_put_together(self) -> None:
        """Pieces of several choices are joined, each in its order; comments and other lines are none."""
        answer = events(
            {"choices": [{"index": 1, "text": "B"}]},
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
            {"choices": [{"index": 0, "delta": {"reasoning_content": "so "}}]},
            {"choices": [{"index": 0, "delta": {"content": "A"}}, {"index": 1, "text": "b"}]},
            {"choices": [], "usage": {"completion_tokens": 17}},
        )
        answer = reply(b": ping\r\nid: 4\n\n" + answer.body.replace(b"\n", b"\r\n"), head=STREAM)

        assert openai.arrays(answer)["text"].tolist() == ["so A", "Bb"]
        assert openai.tokens(answer) == 17

    def test_tokens_are_never_counted(self) -> None:
        """Where the server tells no usage, nothing is said of tokens, however many pieces there were."""
        assert openai.tokens(events(*[{"choices": [{"index": 0, "text": "x"}]}] * 5)) == -1
        assert openai.tokens(reply({"choices": []})) == -1
        assert openai.prompt_tokens(reply({"usage": {"prompt_tokens": True}, "choices": []})) == -1
        assert openai.prompt_tokens(reply({"usage": {"prompt_tokens": "3"}})) == -1

    @pytest.mark.parametrize(
        "document",
        [
            {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}, "choices": []},
            {"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 8}, "choices": []},
            {"choices": [], "timings": {"cache_n": 8, "prompt_n": 1}},
        ],
    )
    def test_cached_tokens_of_a_prompt_are_read(self, document: dict[str, Any]) -> None:
        """Where OpenAI, DeepSeek and llama.cpp have them; where there are none, they are not known."""
        assert openai.cached_tokens(reply(document)) == 8
        assert openai.cached_tokens(events(document)) == 8
        assert openai.cached_tokens(reply({"usage": {"prompt_tokens": 9}})) == -1
        assert openai.cached_tokens(events(document, {"usage": {"prompt_tokens": 9}})) == -1

    def test_the_last_usage_counts(self) -> None:
        """A server that tells the usage with every piece is read at its last."""
        answer = events(*({"choices": [], "usage": {"completion_tokens": n}} for n in range(4)))

        assert openai.tokens(answer) == 3

    @pytest.mark.parametrize(
        "error", [{"error": {"message": "out of memory", "code": 500}}, {"error": "out of memory"}]
    )
    def test_an_error_within_a_stream(self, error: Any) -> None:
        """An error that is told after the status said that all was well is an error."""
        answer = events({"choices": [{"index": 0, "text": "a"}]}, error)
        for read in (openai.arrays, openai.tokens):
            with pytest.raises(BrokenStream, match="out of memory") as raised:
                read(answer)
            assert raised.value.outcome is RequestOutcome.SERVER_ERROR

    def test_a_stream_without_its_end(self) -> None:
        """A stream that just stops is no answer; one whose choices have finished is, also without [DONE]."""
        part = {"choices": [{"index": 0, "text": "a"}]}
        for read in (openai.arrays, openai.tokens):
            with pytest.raises(BrokenStream, match="DONE") as raised:
                read(events(part, end=b""))
            assert raised.value.outcome is RequestOutcome.TRUNCATED
        finished = events(part, {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}, end=b"")
        assert openai.arrays(finished)["text"].tolist() == ["a"]

    def test_embeddings_in_their_order(self) -> None:
        """Rows come in the order of the texts, whatever the order in the answer; they are no tokens."""
        rows = [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2]}]
        answer = reply({"data": rows, "usage": {"prompt_tokens": 9}})

        assert openai.arrays(answer)["embedding"].tolist() == [[1, 2], [3, 4]]
        assert openai.tokens(answer) == -1

    @pytest.mark.parametrize(
        "answer",
        [
            {},
            [],
            3,
            {"choices": []},
            {"choices": [3]},
            {"data": [{}]},
            {"data": [{"index": 0, "embedding": "a"}]},
        ],
    )
    def test_what_is_no_answer(self, answer: Any) -> None:
        """An answer without choices or embeddings is told."""
        with pytest.raises(ValueError, match=r"answer|embedding"):
            openai.arrays(reply(answer))


class TestPieces:
    @pytest.mark.parametrize("kind", ["completions", "chat"])
    def test_only_text_bears(self, kind: str) -> None:
        """Of the events of a real stream, the role alone, the usage and the end bear nothing."""
        pieces = recorded(f"transformers {kind} stream").body.split(b"\n\n")
        texts = [openai.text_start(event) > 0 for event in pieces if event]

        assert texts == ([True, True, False] if kind == "completions" else [False, True, False])

    @pytest.mark.parametrize("delta", [{"content": ""}, {"content": None}, {"role": "assistant"}, {}])
    def test_an_empty_piece_bears_nothing(self, delta: Any) -> None:
        """An event whose text is empty is none, spaces in its JSON or not."""
        for separators in ((",", ":"), (", ", ": ")):
            piece = json.dumps({"choices": [{"delta": delta, "index": 0}]}, separators=separators)
            assert not openai.text_start(piece.encode())
            assert bool(openai.text_start(piece.replace("{}", '{"content": "x"}').encode())) == (not delta)

    def test_the_plugin_says_so(self) -> None:
        """The client has the capability by which a driver finds it."""
        assert openai.text_start is not None

    def test_a_driver_needs_no_numpy_to_count(self) -> None:
        """Counting tokens imports neither numpy nor anything else that is dear."""
        code = (
            "import sys; from modeldyno.serving.clients.openai import tokens;"
            "from modeldyno.engine.interfaces.request_target import Reply;"
            "tokens(Reply(message=0, status=200, head=b'', body=b'{}')); sys.exit('numpy' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestServer:
    def test_models_are_listed(self) -> None:
        """A server is recognised by its list of models."""
        listed = reply({"object": "list", "data": [{"id": "a"}, {"id": "b"}, {}]})

        assert openai.recognised(listed) == ServerInfo(models=("a", "b"))
        assert openai.recognised(recorded("transformers greeting")) == ServerInfo()
        assert openai.recognised(recorded("triton http unknown")) is None


# -- sessions ------------------------------------------------------------------------------------


def turn(texts: list[str], **options: Any) -> Any:
    """Give the target of the turns of chats."""
    feeds = [{"prompt": np.array([text], object)} for text in texts]
    endpoint = Endpoint(host="h", port=1, model="m", options={"endpoint": "chat", **options})
    return openai.sequence_target(feeds, endpoint)


def test_a_turn_has_a_place_for_what_was_said_before() -> None:
    """As it is, it is the first of its session; the length of the body grows with its history."""
    target = turn(['h\u00e9 "you"', "b"], extra='{"top_p": 0.5}')
    (message, _), (at, _), (end, _) = target.messages, target.marks, target.turn_ends
    assert json.loads(message[at:end]) == {"role": "user", "content": 'h\u00e9 "you"'}
    history = b'{"role":"user","content":"a"},{"role":"assistant","content":"\\u00e9"},'
    head, _, body = insert_history(message, at, history).partition(b"\r\n\r\n")
    assert int(head.rpartition(b":")[2]) == len(body)
    assert [each["content"] for each in json.loads(body)["messages"]] == ["a", "\u00e9", 'h\u00e9 "you"']
    assert json.loads(body)["top_p"] == 0.5
    assert target.think_times == ()


def test_turns_of_a_file_say_when_they_are_due() -> None:
    """After the answer before them; it is not sent to the server."""
    own = write_request({"messages": [{"role": "user", "content": "a"}], "think_time": 2.5, "max_tokens": 3})
    target = turn([own, "b"], max_tokens=9)
    assert target.think_times == (2.5, -1.0)
    assert target.token_limits == (3, 9)
    assert b"think_time" not in target.messages[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "completions"}, "endpoint=chat"),
        ({"extra": '{"n": 2}'}, "leave out n"),
        ({"compression": "gzip"}, "leave out compression"),
    ],
)
def test_what_is_no_session_is_refused(options: dict[str, Any], message: str) -> None:
    """A session is a chat, with one answer to each turn."""
    with pytest.raises(RequestError, match=message):
        turn(["a"], **options)


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            events(delta(role="assistant", content=""), delta(content='a "b" '), delta(content="\u00e9\n")),
            'a "b" \u00e9\n',
        ),
        (events(delta(reasoning_content="hm", content=None), delta(content="so")), "so"),
        (events(delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])), "ab"),
        (reply({"choices": [{"message": {"role": "assistant", "content": "whole"}}]}), "whole"),
        (reply({"choices": [{"message": {"content": None, "tool_calls": []}}]}), ""),
        (reply({"data": []}), ""),
    ],
    ids=["stream", "reasoning", "parts", "whole", "tools", "none"],
)
def test_an_answer_is_a_message_of_its_history(answer: Any, text: str) -> None:
    """Its text, without what the model thought."""
    assert json.loads(openai.assistant_message(answer)) == {"role": "assistant", "content": text}


def test_what_is_no_answer_is_no_message() -> None:
    """A server that answers something else ends the session."""
    with pytest.raises(ValueError, match="not JSON"):
        openai.assistant_message(reply(b"<html>"))
