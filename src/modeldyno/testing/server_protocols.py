"""Answers of the ground-truth server, by protocol: a request's head and body -> an Answer."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from modeldyno.testing import server_dialects, server_tensorflow
from modeldyno.testing.server_response import ServerResponse, problem
from modeldyno.testing.server_sessions import SeenSessions

_BINARY = b"Inference-Header-Content-Length"
_WORD = " word"
_Json = dict[str, Any]
_Choice = Callable[[str], dict[str, Any]]


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def count_by_tokenizer(file: str) -> Callable[[str], int]:
    """Return what counts tokens by a ``tokenizer.json``; needs the library `tokenizers`."""
    from tokenizers import Tokenizer  # optional

    tokenizer = Tokenizer.from_file(file)
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text).ids)


_BLOCK = 16
"""Words of a block of the prefix cache."""


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


def _prompts(request: _Json) -> list[str]:
    """Return the texts of a request: the contents of its messages, or its prompts."""
    if messages := request.get("messages"):
        return [str(message.get("content") or "") for message in messages]
    prompt = request.get("prompt") or ""
    return [str(text) for text in prompt] if isinstance(prompt, list) else [str(prompt)]


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
    cached_in_usage: bool = True
    """Whether an answer says how much of its prompt was cached."""
    usage: bool = True
    """Whether an answer says how many tokens it has."""
    counted: Counter[str] = field(default_factory=Counter)
    """Tokens of the prompts so far, and those of them that were cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request."""

    method: str
    path: str
    """Path without query and ``/fault/NAME``."""
    query: str
    headers: dict[str, str]
    length: int
    fault: str = ""
    id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is served: the model, and how it answers."""

    model: str = "echo"
    payload: bytes = b"ok"
    """Body of the plain path's answer."""
    generation: Generation = field(default_factory=Generation)

    def answer(self, head: RequestHead, body: bytes) -> ServerResponse | None:
        """Answer an inference request; None for any other."""
        work: dict[str, Callable[[RequestHead, bytes], ServerResponse]] = {
            "/": lambda _head, _body: ServerResponse(self.payload, kind=b"application/octet-stream"),
            f"/predictions/{self.model}": lambda _, sent: ServerResponse(sent),
            f"/v2/models/{self.model}/infer": _kserve,
            f"/v2/models/{self.model}/versions/1/infer": _kserve,
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._complete,
        }
        try:
            if head.path in work:
                return work[head.path](head, body)
            if (spoken := server_dialects.answer(head.path, body, self.generation.tokens)) is not None:
                return spoken
            return server_tensorflow.predict(self.model, head.path, body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return problem(400, f"the request cannot be read: {error!r}")

    def describe(self, path: str) -> ServerResponse:
        """Answer a request about the server or the model."""
        tensor = {"datatype": "FP32", "shape": [-1, -1]}
        model = {
            "name": self.model,
            "versions": ["1"],
            "platform": "modeldyno_ground_truth",
            "inputs": [{"name": "x"} | tensor],
            "outputs": [{"name": "y"} | tensor],
        }
        documents: dict[str, Any] = {
            "/v2/repository/index": [{"name": self.model, "version": "1", "state": "READY"}],
            "/v2": {"name": "modeldyno.testing.server", "version": "1", "extensions": ["binary_tensor_data"]},
            f"/v2/models/{self.model}": model,
            "/v1/models": {"object": "list", "data": [{"id": self.model, "object": "model"}]},
            "/ping": {"status": "Healthy"},
        }
        healthy = {"/v2/health/live", "/v2/health/ready", f"/v2/models/{self.model}/ready", "/health"}
        if path in healthy:
            return ServerResponse()
        if path in documents:
            return ServerResponse(json.dumps(documents[path]).encode())
        return server_tensorflow.describe(self.model, path) or problem(404, f"no {path} here")

    def _chat(self, _head: RequestHead, body: bytes) -> ServerResponse:
        return self._generate(
            body,
            {"object": "chat.completion"},
            lambda text: {"message": {"role": "assistant", "content": text}},
            {"object": "chat.completion.chunk"},
            lambda text: {"delta": {"content": text}},
        )

    def _complete(self, _head: RequestHead, body: bytes) -> ServerResponse:
        kind = {"object": "text_completion"}
        return self._generate(body, kind, lambda text: {"text": text}, kind, lambda text: {"text": text})

    def _generate(
        self,
        body: bytes,
        whole_fields: _Json,
        whole_choice: _Choice,
        piece_fields: _Json,
        piece_choice: _Choice,
    ) -> ServerResponse:
        """Generate the requested number of words, whole or in pieces."""
        request = json.loads(body)
        settings = self.generation
        count = int(request.get("max_tokens") or request.get("max_completion_tokens") or settings.tokens)
        prompt = sum(map(settings.count_tokens, _prompts(request)))
        usage: _Json = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
        if settings.prefixes is not None:
            texts = _prompts(request)
            whole = [" ".join(texts)] if request.get("messages") else texts  # a chat is one prompt
            cached = sum(_take_cached(text, settings) for text in whole)
            settings.counted.update(prompt_tokens=prompt, cached_tokens=cached)
            if settings.cached_in_usage:
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
        common = {"id": "cmpl-1", "created": 0, "model": self.model}
        turn, words = "", [_WORD] * count
        if settings.sessions is not None and request.get("messages"):
            words[0] = f" {settings.sessions.next_word()}"
            turn = settings.sessions.go_on(request["messages"], "".join(words))
        if not request.get("stream"):
            choice = {"index": 0, "finish_reason": "length"} | whole_choice("".join(words))
            counts = {"usage": usage} if settings.usage else {}
            whole_answer = common | whole_fields | {"choices": [choice]} | counts
            return ServerResponse(json.dumps(whole_answer).encode(), turn=turn)

        def event(text: str, reason: str | None = None) -> str:
            choice = {"index": 0, "finish_reason": reason} | piece_choice(text)
            return _event(json.dumps(common | piece_fields | {"choices": [choice]}))

        sizes = [min(settings.together, count - at) for at in range(0, count, settings.together)]
        texts = [
            event("".join(words[at : at + size]))
            for at, size in zip(accumulate(sizes, initial=0), sizes, strict=False)
        ]
        texts[-1] += event("", "length")
        if settings.usage and (request.get("stream_options") or {}).get("include_usage"):
            texts[-1] += _event(json.dumps(common | piece_fields | {"choices": [], "usage": usage}))
        texts[-1] += _event("[DONE]")
        pieces = tuple((size, text.encode()) for size, text in zip(sizes, texts, strict=True))
        return ServerResponse(kind=b"text/event-stream", pieces=pieces, turn=turn)


def _event(text: str) -> str:
    return f"data: {text}\n\n"


def _kserve(head: RequestHead, body: bytes) -> ServerResponse:
    """Echo each input as an output: ``y``, ``y1`` ...; in binary if requested."""
    length = int(head.headers.get(_BINARY.decode().lower(), len(body)))
    request, rest = json.loads(body[:length]), body[length:]
    requested = {output["name"]: output.get("parameters", {}) for output in request.get("outputs", ())}
    always = request.get("parameters", {}).get("binary_data_output", False)
    outputs, blocks = [], []
    for index, tensor in enumerate(request["inputs"]):
        name = f"y{index or ''}"
        output = {"name": name, "datatype": tensor["datatype"], "shape": tensor["shape"]}
        size = tensor.get("parameters", {}).get("binary_data_size")
        if size is None:
            block, data = b"", tensor["data"]
        else:
            block, rest, data = rest[:size], rest[size:], None
        if len(block) != (size or 0):
            raise ValueError(f"{tensor['name']} has {len(block)} bytes, not {size}")
        if requested.get(name, {}).get("binary_data", always):
            block = block or _pack(tensor["datatype"], data)
            output["parameters"] = {"binary_data_size": len(block)}
            blocks.append(block)
        else:
            output["data"] = _unpack(tensor["datatype"], block) if data is None else data
        outputs.append(output)
    response = {"model_name": head.path.split("/")[3], "model_version": "1", "outputs": outputs}
    encoded = json.dumps(response | ({"id": request["id"]} if "id" in request else {})).encode()
    if not blocks:
        return ServerResponse(encoded)
    extra = b"%b: %d\r\n" % (_BINARY, len(encoded))
    return ServerResponse(encoded + b"".join(blocks), kind=b"application/octet-stream", extra=extra)


_DTYPES = {
    "BOOL": "?", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1",
    "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip


def _pack(datatype: str, data: Any) -> bytes:
    import numpy as np  # heavy

    return np.asarray(data, _DTYPES[datatype]).tobytes()


def _unpack(datatype: str, block: bytes) -> Any:
    import numpy as np  # heavy

    return np.frombuffer(block, _DTYPES[datatype]).tolist()
