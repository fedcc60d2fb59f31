"""Streams of generated text as real servers write them: the ground-truth server's ``/dialect/NAME/...``.

A dialect says what is written at once, with each piece, and after the last one; the server writes a piece
when its tokens are due. They are modelled on what servers of OpenAI's protocol, and others, were seen to
send or document, and on what the standard of server-sent events allows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.testing.server_response import ServerResponse

_Json = dict[str, Any]
_EVENTS, _LINES = b"text/event-stream", b"application/x-ndjson"
_WORD = " word"
_THIRD, _HALF, _ALL = 2, 4, 1 << 20
"""Numbers of the piece that an error replaces, and of the first that is no reasoning; more than there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a server writes a stream of text, and what a client must see of it."""

    piece: Callable[[int], bytes]
    """The events of a piece, given its number from 0."""
    begin: bytes = b""
    """What is written at once, before the first token."""
    end: Callable[[int], bytes] = lambda _: b""
    """What is written with the last piece, given the number of tokens."""
    kind: bytes = _EVENTS
    """The type of the content."""
    endpoint: str = ""
    """The endpoint of the client `openai`, such as ``chat``; empty for another protocol."""
    together: int = 1
    """Tokens in a piece."""
    rewrite: Callable[[bytes], bytes] = lambda text: text
    """What becomes of all that is written, such as other line ends."""
    cut: int | None = None
    """Where each piece is cut in two, counted from its end: the first part comes with the piece before."""
    pieces: int | None = None
    """How many pieces with text a client must see; None: all that are written."""
    reasoning: int = 0
    """How many of its first pieces a client must see as reasoning."""
    counted: bool = True
    """Whether the server counts the tokens."""
    reason: str = ""
    """Why the text ends, as the server says."""
    outcome: RequestOutcome = RequestOutcome.OK

    def response(self, tokens: int) -> ServerResponse:
        """Return the answer of so many tokens."""
        sizes = [min(self.together, tokens - at) for at in range(0, tokens, self.together)]
        texts = [self.rewrite(self.piece(number)) for number in range(len(sizes))]
        begin, end = self.rewrite(self.begin), self.rewrite(self.end(tokens))
        if self.cut is not None:
            early, texts = [text[: -self.cut] for text in texts], [text[-self.cut :] for text in texts]
            begin += early[0]
            texts = [text + following for text, following in zip(texts, (*early[1:], b""), strict=True)]
        texts[-1] += end
        return ServerResponse(kind=self.kind, begin=begin, pieces=tuple(zip(sizes, texts, strict=True)))


def answer(path: str, body: bytes, tokens: int) -> ServerResponse | None:
    """Answer a request whose path begins with ``/dialect/NAME``; None for any other.

    Raises:
        KeyError: there is no such dialect.
    """
    if not path.startswith("/dialect/"):
        return None
    request = json.loads(body or b"{}")
    count = request.get("max_tokens") or request.get("max_output_tokens") or tokens
    return DIALECTS[path.split("/")[2]].response(int(count))


# -- how events are written ------------------------------------------------------------------------


def _event(content: object, kind: str = "") -> bytes:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    name = f"event: {kind}\n" if kind else ""
    return f"{name}data: {text}\n\n".encode()


def _line(content: _Json) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _typed(content: _Json) -> bytes:
    """Write an event whose kind is its field ``type``."""
    return _event(content, content["type"])


_DONE = _event("[DONE]")
_COMMON = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}


def _chunk(delta: _Json, reason: str | None = None, **more: Any) -> _Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return _COMMON | {"choices": [choice]} | more


def _content(_number: int = 0, **more: Any) -> bytes:
    return _event(_chunk({"content": _WORD}, **more))


def _usage(tokens: int, name: str = "completion_tokens") -> _Json:
    return {"prompt_tokens": 5, name: tokens, "total_tokens": 5 + tokens}


def _ended(tokens: int, reason: str = "length") -> bytes:
    """Write OpenAI's end: the reason, the usage in an event of its own, the mark."""
    usage = _event(_COMMON | {"choices": [], "usage": _usage(tokens)})
    return _event(_chunk({}, reason)) + usage + _DONE


_ROLE = _event(_chunk({"role": "assistant", "content": ""}))
_FAILED = RequestOutcome.SERVER_ERROR
_chat = partial(Dialect, endpoint="chat", begin=_ROLE, piece=_content, end=_ended, reason="length")


def _completed(_number: int, text: str = _WORD, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    return _event({"id": "cmpl-7", "object": "text_completion", "choices": [choice]} | more)


def _with_usage_at_end(tokens: int) -> bytes:
    return _event(_chunk({"content": ""}, "length", usage=_usage(tokens))) + _DONE


def _uncounted(_tokens: int) -> bytes:
    return _event(_chunk({}, "length")) + _DONE


def _in_the_middle(event: bytes) -> Callable[[int], bytes]:
    """Write this event in place of the third piece."""
    return lambda number: event if number == _THIRD else _content()


def _indented(text: bytes) -> bytes:
    """Spread the JSON of each event over several lines of data."""

    def spread(part: bytes) -> bytes:
        data = part.removeprefix(b"data: ")
        if not data.startswith(b"{"):
            return part
        return b"\n".join(
            b"data: " + line for line in json.dumps(json.loads(data), indent=1).encode().split(b"\n")
        )

    return b"\n\n".join(map(spread, text.split(b"\n\n")))


def _ollama(number: int, **more: Any) -> bytes:
    del number
    return _line({"model": "m", "created_at": "2024-01-01T00:00:00Z", "done": False} | more)


def _tgi(number: int, **more: Any) -> bytes:
    token = {"id": 7, "text": _WORD, "logprob": -0.5, "special": False}
    content = {"index": number + 1, "token": token, "generated_text": None, "details": None} | more
    return _event(content).replace(b"data: ", b"data:", 1)


def _tgi_end(tokens: int) -> bytes:
    details = {"finish_reason": "length", "generated_tokens": tokens, "seed": None}
    special = {"id": 2, "text": "", "logprob": 0, "special": True}
    return _tgi(tokens, token=special, generated_text=_WORD * tokens, details=details)


def _anthropic(kind: str, name: str) -> Callable[[int], bytes]:
    return lambda _: _typed({"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: _WORD}})


_ANTHROPIC_BEGIN = (
    _typed(
        {
            "type": "message_start",
            "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}},
        }
    )
    + _typed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    + _typed({"type": "ping"})
)


def _anthropic_end(tokens: int) -> bytes:
    delta = {"stop_reason": "max_tokens", "stop_sequence": None}
    return (
        _typed({"type": "content_block_stop", "index": 0})
        + _typed({"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}})
        + _typed({"type": "message_stop"})
    )


_RESPONSES_BEGIN = _typed(
    {
        "type": "response.created",
        "response": {"status": "in_progress", "error": None, "instructions": "Be brief.", "text": {}},
    }
) + _typed({"type": "response.output_item.added", "item": {"type": "message", "content": []}})


def _responses_end(tokens: int, status: str = "completed") -> bytes:
    text = _WORD * tokens
    usage = {"input_tokens": 5, "output_tokens": tokens}
    response = {
        "status": status,
        "error": None,
        "incomplete_details": None if status == "completed" else {"reason": "max_output_tokens"},
        "output": [{"content": [{"text": text}]}],
        "usage": usage,
    }
    return _typed({"type": "response.output_text.done", "text": text}) + _typed(
        {"type": f"response.{status}", "response": response}
    )


_responses_stream = partial(
    Dialect,
    endpoint="responses",
    begin=_RESPONSES_BEGIN,
    piece=lambda _: _typed({"type": "response.output_text.delta", "delta": _WORD}),
    end=_responses_end,
    reason="completed",
)


def _sglang(number: int) -> bytes:
    meta = {"prompt_tokens": 5, "completion_tokens": number + 1, "finish_reason": None}
    return _event({"text": _WORD * (number + 1), "meta_info": meta})


def _tool(number: int) -> bytes:
    call: _Json = {"index": 0, "function": {"arguments": '{"a":'}}
    if number == 0:
        call |= {"id": "call_1", "type": "function"}
    return _event(_chunk({"tool_calls": [call]}))


def _triton(_number: int) -> bytes:
    return _event({"model_name": "m", "model_version": "1", "text_output": _WORD})


def _responses_failed(_tokens: int) -> bytes:
    error = {"code": "server_error", "message": "The model failed."}
    return _typed({"type": "response.failed", "response": {"status": "failed", "error": error}})


_anthropic_text = _anthropic("text_delta", "text")
_anthropic_stream = partial(
    Dialect, begin=_ANTHROPIC_BEGIN, piece=_anthropic_text, end=_anthropic_end, reason="max_tokens"
)


def _overloaded(number: int) -> bytes:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    return _typed({"type": "error", "error": error}) if number == _THIRD else _anthropic_text(number)


# -- the table -----------------------------------------------------------------------------------------

DIALECTS: dict[str, Dialect] = {
    # OpenAI's protocol, as its servers write it.
    "openai-chat": _chat(),
    "openai-completions": Dialect(
        endpoint="completions",
        piece=_completed,
        reason="length",
        end=lambda tokens: (
            _completed(0, "", "length") + _completed(0, choices=[], usage=_usage(tokens)) + _DONE
        ),
    ),
    "openai-obfuscated": _chat(piece=lambda number: _content(obfuscation="x" * (3 + number), usage=None)),
    "openai-logprobs": _chat(
        piece=lambda _: _event(
            _COMMON
            | {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"content": _WORD},
                        "finish_reason": None,
                        "logprobs": {"content": [{"token": _WORD, "logprob": -0.5, "top_logprobs": []}]},
                    }
                ]
            }
        )
    ),
    "openai-refusal": _chat(
        piece=lambda _: _event(_chunk({"refusal": _WORD})), reason="stop", end=partial(_ended, reason="stop")
    ),
    "openai-tool-calls": _chat(piece=_tool, reason="tool_calls", end=partial(_ended, reason="tool_calls")),
    "openai-two-choices": _chat(
        piece=lambda number: _event(
            _COMMON | {"choices": [{"index": number % 2, "delta": {"content": _WORD}, "finish_reason": None}]}
        )
    ),
    "vllm-chat": _chat(
        begin=_event(_chunk({"role": "assistant", "content": ""}, usage=None)),
        piece=partial(_content, usage=None),
    ),
    "vllm-usage-in-each": _chat(piece=lambda number: _content(usage=_usage(number + 1))),
    "vllm-reasoning": _chat(
        piece=lambda number: _event(_chunk({"reasoning": _WORD})) if number < _HALF else _content(),
        reasoning=_HALF,
    ),
    "sglang-chat": _chat(piece=partial(_content, usage=None), end=_with_usage_at_end),
    "tgi-chat": _chat(
        begin=b"",
        piece=lambda _: _event(_chunk({"role": "assistant", "content": _WORD})),
        end=_with_usage_at_end,
    ),
    "llama.cpp-chat": _chat(
        begin=_event(_chunk({"role": "assistant", "content": None})),
        end=lambda tokens: (
            _event(_chunk({}, "length", timings={"prompt_n": 5, "predicted_n": tokens})) + _DONE
        ),
    ),
    "ollama-chat": _chat(begin=b"", piece=lambda _: _event(_chunk({"role": "assistant", "content": _WORD}))),
    "lm-studio": _chat(
        end=lambda tokens: _event(_chunk({}, "stop", stats={})) + _ended(tokens, "stop"), reason="stop"
    ),
    "deepseek-reasoning": _chat(
        begin=b": keep-alive\n\n" * 3
        + _event(_chunk({"role": "assistant", "content": None, "reasoning_content": ""})),
        piece=lambda number: (
            _event(_chunk({"content": None, "reasoning_content": _WORD})) if number < _HALF else _content()
        ),
        reasoning=_HALF,
        end=_with_usage_at_end,
    ),
    "mistral": _chat(end=_with_usage_at_end),
    "mistral-content-parts": _chat(
        piece=lambda _: _event(_chunk({"content": [{"type": "text", "text": _WORD}]})), end=_with_usage_at_end
    ),
    "groq": _chat(
        begin=_event(_chunk({"role": "assistant", "content": ""}, x_groq={"id": "req_1"})),
        end=lambda tokens: (
            _event(_chunk({}, "length", x_groq={"id": "req_1", "usage": _usage(tokens)})) + _DONE
        ),
    ),
    "azure": _chat(
        begin=_event(
            _COMMON
            | {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}
        )
        + _ROLE
    ),
    "azure-content-filter": _chat(
        end=partial(_ended, reason="content_filter"),
        reason="content_filter",
    ),
    "openrouter": _chat(begin=b": OPENROUTER PROCESSING\n\n" * 4 + _ROLE),
    "together": _chat(together=4),
    "fireworks": _chat(begin=b"", end=_with_usage_at_end),
    "stop": _chat(end=partial(_ended, reason="stop"), reason="stop"),
    "heartbeats": _chat(piece=lambda _: _event(_chunk({"content": ""})) + b": ping\n\n" + _content()),
    "usage-in-an-only-piece": _chat(begin=b"", together=1 << 20, piece=_content, end=_with_usage_at_end),
    "no-usage": _chat(end=_uncounted, counted=False),
    "no-end-mark": _chat(end=lambda tokens: _ended(tokens).removesuffix(_DONE)),
    "end-mark-without-empty-line": _chat(end=lambda tokens: _ended(tokens).rstrip(b"\n")),
    # What the standard allows.
    "crlf": _chat(rewrite=lambda text: text.replace(b"\n", b"\r\n")),
    "cr": _chat(rewrite=lambda text: text.replace(b"\n", b"\r")),
    "several-data-lines": _chat(rewrite=_indented),
    "byte-order-mark": _chat(begin=b"\xef\xbb\xbf" + _ROLE),
    "no-space": _chat(rewrite=lambda text: text.replace(b"data: ", b"data:")),
    "other-fields": _chat(
        rewrite=lambda text: text.replace(b"data: ", b"id: 7\nretry: 1000\nevent: delta\ndata: ")
    ),
    "cut-in-an-event": _chat(cut=20),
    "cut-before-the-empty-line": _chat(cut=1),
    "cut-in-a-crlf": _chat(rewrite=lambda text: text.replace(b"\n", b"\r\n"), cut=3),
    "cut-in-a-character": _chat(
        piece=lambda _: _event(_chunk({"content": "€"})),
        cut=len(_event(_chunk({"content": "€"})).partition(b"\x82")[2]),
    ),
    # Other protocols.
    "ollama-generate": Dialect(
        kind=_LINES,
        piece=partial(_ollama, response=_WORD),
        reason="length",
        end=lambda tokens: _ollama(
            0, response="", done=True, done_reason="length", prompt_eval_count=5, eval_count=tokens
        ),
    ),
    "ollama-chat-lines": Dialect(
        kind=_LINES,
        piece=partial(_ollama, message={"role": "assistant", "content": _WORD}),
        reason="stop",
        cut=10,
        end=lambda tokens: _ollama(
            0, message={"role": "assistant", "content": ""}, done=True, done_reason="stop", eval_count=tokens
        ),
    ),
    "tgi-generate": Dialect(piece=_tgi, end=_tgi_end, reason="length"),
    "triton-generate": Dialect(piece=_triton, counted=False),
    "llama.cpp-completion": Dialect(
        piece=lambda _: _event({"content": _WORD, "stop": False, "id_slot": 0}),
        end=lambda tokens: _event(
            {"content": "", "stop": True, "tokens_predicted": tokens, "tokens_evaluated": 5}
        ),
    ),
    "sglang-generate": Dialect(piece=_sglang, end=lambda _: _DONE),
    "anthropic": _anthropic_stream(),
    "anthropic-messages": _anthropic_stream(endpoint="messages"),
    "anthropic-thinking": _anthropic_stream(
        piece=_anthropic("thinking_delta", "thinking"), reasoning=_ALL, endpoint="messages"
    ),
    "anthropic-thinking-first": _anthropic_stream(
        piece=lambda number: (
            _anthropic("thinking_delta", "thinking")(number) if number < _HALF else _anthropic_text(number)
        ),
        reasoning=_HALF,
        endpoint="messages",
    ),
    "anthropic-tool-use": _anthropic_stream(
        piece=_anthropic("input_json_delta", "partial_json"), endpoint="messages"
    ),
    "openai-responses": _responses_stream(endpoint=""),
    "openai-responses-endpoint": _responses_stream(),
    "openai-responses-reasoning": _responses_stream(
        piece=lambda number: _typed(
            {
                "type": f"response.{'reasoning' if number < _HALF else 'output'}_text.delta",
                "delta": _WORD,
            }
        ),
        reasoning=_HALF,
    ),
    "openai-responses-incomplete": _responses_stream(
        end=partial(_responses_end, status="incomplete"), reason="max_output_tokens"
    ),
    "openai-responses-tool-use": _responses_stream(
        piece=lambda _: _typed({"type": "response.function_call_arguments.delta", "delta": '{"a":'})
    ),
    "gemini": Dialect(
        piece=lambda number: _event(
            {
                "candidates": [{"content": {"parts": [{"text": _WORD}], "role": "model"}}],
                "usageMetadata": {"candidatesTokenCount": number + 1},
            }
        ),
    ),
    "cohere": Dialect(
        begin=_typed({"type": "message-start", "delta": {"message": {"role": "assistant", "content": []}}}),
        piece=lambda _: _typed(
            {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": _WORD}}}}
        ),
        end=lambda tokens: _typed(
            {
                "type": "message-end",
                "delta": {
                    "finish_reason": "MAX_TOKENS",
                    "usage": {"tokens": {"input_tokens": 5, "output_tokens": tokens}},
                },
            }
        ),
        reason="MAX_TOKENS",
    ),
    "plain-text": Dialect(piece=lambda _: _event(_WORD.strip()), end=lambda _: _DONE, counted=False),
    # What goes wrong.
    "openai-error": _chat(
        piece=_in_the_middle(_event({"error": {"message": "overloaded", "code": 500}})), outcome=_FAILED
    ),
    "vllm-error": _chat(
        piece=_in_the_middle(_event({"object": "error", "message": "overloaded", "code": 500})),
        outcome=_FAILED,
    ),
    "error-event": _chat(piece=_in_the_middle(_event({"message": "overloaded"}, "error")), outcome=_FAILED),
    "openrouter-error": _chat(
        piece=_in_the_middle(_event(_chunk({"content": ""}, "error"))), outcome=_FAILED
    ),
    "tgi-error": Dialect(
        piece=lambda number: (
            _event({"error": "overloaded", "error_type": "generation"}) if number == _THIRD else _tgi(number)
        ),
        outcome=_FAILED,
    ),
    "anthropic-error": _anthropic_stream(outcome=_FAILED, piece=_overloaded),
    "anthropic-messages-error": _anthropic_stream(outcome=_FAILED, piece=_overloaded, endpoint="messages"),
    "anthropic-cut-off": _anthropic_stream(
        end=lambda _: b"", endpoint="messages", outcome=RequestOutcome.TRUNCATED
    ),
    "openai-responses-failed": _responses_stream(end=_responses_failed, outcome=_FAILED),
    "openai-responses-error": _responses_stream(
        end=lambda _: _typed({"type": "error", "code": "overloaded", "message": "Overloaded"}),
        outcome=_FAILED,
    ),
    "openai-responses-cut-off": _responses_stream(end=lambda _: b"", outcome=RequestOutcome.TRUNCATED),
    "ollama-error": Dialect(
        kind=_LINES,
        outcome=_FAILED,
        piece=lambda number: (
            _line({"error": "out of memory"}) if number == _THIRD else _ollama(number, response=_WORD)
        ),
    ),
    "cut-off": _chat(end=lambda _: b"", outcome=RequestOutcome.TRUNCATED),
    "whole": Dialect(
        endpoint="chat",
        kind=b"application/json",
        together=1 << 20,
        pieces=0,
        reason="length",
        piece=lambda _: b"",
        end=lambda tokens: json.dumps(
            _COMMON
            | {
                "choices": [{"index": 0, "message": {"content": _WORD * tokens}, "finish_reason": "length"}],
                "usage": _usage(tokens),
            }
        ).encode(),
    ),
}
"""Name to dialect."""
