"""Texts of answers of a language model, streamed and whole, by the endpoint that wrote them.

An answer is a list of documents: the events of a stream, or the one of a whole answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TEXT_DELTAS = (
    "response.output_text.delta",
    "response.reasoning_text.delta",
    "response.reasoning_summary_text.delta",
    "response.refusal.delta",
)
_ENDS = ("response.completed", "response.incomplete")
_NO_TEXT = ("message_start", *_ENDS)
"""Events of an answer that may have no text, and has one that is empty then."""


def choice_texts(documents: Iterable[Any]) -> dict[int, str]:
    """Join the pieces of each choice; reasoning counts as text. Empty if there is no choice.

    Raises:
        KeyError, TypeError, AttributeError: a document is not as its endpoint has it.
    """
    documents = list(documents)
    texts: dict[int, str] = {}
    for document in documents:
        for index, text in _pieces(document):
            texts[index] = texts.get(index, "") + text
    if not any(texts.values()):  # a server may send the text at the end alone
        at_end = [document["response"] for document in documents if document.get("type") in _ENDS]
        texts |= dict(enumerate(_written(response.get("output")) for response in at_end))
    return texts


def answer_texts(documents: Iterable[Any]) -> Iterator[str]:
    """Yield the text of a chat or of a message in pieces, without any reasoning."""
    for document in documents:
        if not isinstance(document, dict):
            continue
        contents = [
            (choice.get("delta") or choice.get("message") or {}).get("content")
            for choice in document.get("choices") or ()
        ]
        if document.get("type") == "content_block_delta":
            contents.append([document.get("delta")])
        elif document.get("type") == "message":
            contents.append(document.get("content"))
        for content in contents:
            parts = content if isinstance(content, list) else [{"text": content}]
            yield from (str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _pieces(document: Any) -> Iterator[tuple[int, str]]:
    """Yield what a document has of each choice."""
    for choice in document.get("choices") or ():
        yield int(choice.get("index", 0)), _text_of(choice)
    kind = document.get("type")
    if kind in _TEXT_DELTAS:
        yield 0, str(document["delta"])
    elif kind == "content_block_delta":
        yield 0, _block_text(document["delta"])
    elif kind == "message":
        yield 0, "".join(map(_block_text, document["content"]))
    elif kind in _NO_TEXT:
        yield 0, ""
    elif document.get("object") == "response":
        yield 0, _written(document["output"])


def _text_of(choice: dict[str, Any]) -> str:
    """Return the text of a completion, a chat, or a piece of one."""
    message = choice.get("delta") or choice.get("message")
    if message is None:
        return str(choice.get("text") or "")
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return f"{reasoning}{message.get('content') or ''}"


def _block_text(block: dict[str, Any]) -> str:
    """Return the text of a block of Anthropic's, or of a piece of one."""
    return str(block.get("text") or block.get("thinking") or "")


def _written(items: Any) -> str:
    """Return the texts of what OpenAI's response puts out: messages, and what was reasoned before them."""
    return "".join(
        str(part.get("text") or part.get("refusal") or "")
        for item in items or ()
        for part in (*(item.get("summary") or ()), *(item.get("content") or ()))
    )
