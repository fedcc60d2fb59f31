"""Requests to language models in traces of OpenTelemetry, as its collector writes them to a file (OTLP JSON).

The names of attributes are those of its semantic conventions for generative AI, and of their drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RESOURCES = "resourceSpans"
"""Field by which a document of OTLP is known."""
TIME, PROMPT, OUTPUT = "startTimeUnixNano", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
_OLDER = {"gen_ai.usage.prompt_tokens": PROMPT, "gen_ai.usage.completion_tokens": OUTPUT}
_OPERATION = "gen_ai.operation.name"
_REQUESTS = frozenset({"chat", "text_completion", "generate_content"})
"""Operations that are one request; an agent's span has the sum of those below it."""


def request_spans(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the time, in nanoseconds since 1970, and the tokens of each request of a document.

    Spans without tokens are passed over: most are of no language model.
    """
    for resource in _objects(document, RESOURCES):
        for scope in _objects(resource, "scopeSpans"):
            for span in _objects(scope, "spans"):
                values = {_OLDER.get(name, name): value for name, value in _attributes(span)}
                known = {name: values[name] for name in (PROMPT, OUTPUT) if name in values}
                if len(known) == 2 and values.get(_OPERATION, "chat") in _REQUESTS:
                    yield {TIME: span.get(TIME), **known}


def _objects(document: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    value = document.get(name)
    yield from (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))


def _attributes(span: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each attribute; JSON of protobuf has whole numbers as texts."""
    for attribute in _objects(span, "attributes"):
        value = attribute.get("value")
        for kind, content in (value if isinstance(value, dict) else {}).items():
            if kind in {"stringValue", "intValue", "doubleValue"} and isinstance(content, str | int | float):
                yield str(attribute.get("key")), content
