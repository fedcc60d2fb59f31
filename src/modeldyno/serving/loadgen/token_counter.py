"""Counts the tokens of answers: as the server says, or else by the model's tokenizer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import ModelDynoError
from modeldyno.engine.data.token_prompts import find_tokenizer, open_tokenizer

if TYPE_CHECKING:
    from modeldyno.engine.interfaces.request_target import Reply
    from modeldyno.serving.interfaces.client import Client


class TokenCounter:
    """Counts the tokens of one answer after the other.

    The tokenizer is opened before the load begins: in the middle of it, all other answers would wait.
    """

    def __init__(self, client: Client, tokenizer: str) -> None:
        self._client = client
        self._tokenizer: Any = None
        with suppress(ModelDynoError):  # whoever opened the session has tried it
            self._tokenizer = open_tokenizer(find_tokenizer(tokenizer))

    def __call__(self, reply: Reply) -> int:
        """Return the tokens of an answer; -1 if there is no tokenizer. Raises as `Client.tokens` does."""
        count = self._client.tokens(reply)
        if count >= 0 or self._tokenizer is None:
            return count
        return len(self._tokenizer.encode(self._client.text(reply), add_special_tokens=False).ids)
