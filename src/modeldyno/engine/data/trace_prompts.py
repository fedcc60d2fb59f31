"""Prompts with the lengths of a trace, which begin alike where those of the trace did.

A trace names the blocks of each prompt by ids: the same id is the same text here. So two prompts share
exactly as many tokens as in the trace, and a prefix cache of the server acts as it did there. The rest of a
prompt is random text of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.engine.data.single_tokens import SingleTokens, find_single_tokens
from modeldyno.engine.data.text_requests import write_request
from modeldyno.engine.data.token_prompts import find_tokenizer, open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.random import Generator

    from modeldyno.engine.data.trace_file import Trace

MOST_BYTES = 1 << 28
"""Bytes of all prompts together; a load ends with the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePrompts:
    """The requests of a trace, in its order."""

    texts: list[str]
    """Texts, or requests that `text_requests.read_request` reads."""
    tokens: tuple[int, ...]
    """Tokens of each prompt, those of the tokenizer's own included."""
    shared: tuple[int, ...]
    """Tokens with which each begins as an earlier one does."""
    doubts: tuple[Doubt, ...] = ()
    """What of the trace was not used."""


def make_trace_prompts(trace: Trace, path: str, place: str, *, seed: int, added: int = 0) -> TracePrompts:
    """Make the requests of a trace, as many as fit into MOST_BYTES.

    Args:
        trace: with lengths.
        path: of its file, for messages.
        place: file or folder of the tokenizer.
        seed: of the words.
        added: tokens that the server adds to each prompt, by which texts are shorter.

    Raises:
        RequestError: there is no tokenizer, it cannot be read, or no text has so few tokens.
        MissingExtra: the library `tokenizers` is not there.
    """
    import numpy as np  # slow to import

    file = find_tokenizer(place)
    single = find_single_tokens(open_tokenizer(file), file)
    fewest = min(trace.prompt_tokens)
    if fewest - added <= single.own:
        raise RequestError(
            f"{path} has a prompt of {fewest} tokens, which is impossible with {file}, which adds "
            f"{single.own} of its own."
        )
    words = _BlockTexts(single, trace.block_tokens, np.random.default_rng(seed))
    texts, shared, size = list[str](), list[int](), 0
    for text, begins in _prompts(trace, words, added):
        size += len(text)
        if texts and size > MOST_BYTES:
            break
        limit = {"max_tokens": trace.output_tokens[len(texts)]} if trace.output_tokens else {}
        texts.append(write_request({"prompt": text, **limit}) if limit else text)
        shared.append(begins)
    return TracePrompts(
        texts=texts,
        tokens=tuple(trace.prompt_tokens[: len(texts)]),
        shared=tuple(shared),
        doubts=tuple(_doubts(trace, path, len(texts))),
    )


class _BlockTexts:
    """The texts of blocks, each made when it is first needed, and which of them were needed before."""

    def __init__(self, single: SingleTokens, tokens: int, generator: Generator) -> None:
        self.single = single
        self.tokens = tokens
        self._generator = generator
        self._texts: dict[Hashable, str] = {}

    def prompt(self, ids: Sequence[Hashable], tokens: int) -> tuple[str, int]:
        """Return a prompt of so many tokens, and with how many it begins as an earlier one does."""
        left = tokens - self.single.own
        room = self.tokens - self.single.before
        """Tokens of the block at hand: in the first one those of the tokenizer have their place."""
        parts, known, shared = [], True, 0
        for number in ids:
            if left <= 0:
                break
            known = known and number in self._texts
            if number not in self._texts:
                self._texts[number] = self.single.draw(self.tokens, self._generator)
            size = min(room, left)
            parts.append(
                self.single.cut(self._texts[number], size) if size < self.tokens else self._texts[number]
            )
            shared += size if known else 0
            left, room = left - size, self.tokens
        parts.append(self.single.draw(left, self._generator))
        text = self.single.begin("".join(parts))
        return text, shared + (self.single.before if shared else 0)


def _prompts(trace: Trace, words: _BlockTexts, added: int) -> Iterator[tuple[str, int]]:
    for at, tokens in enumerate(trace.prompt_tokens):
        yield words.prompt(trace.blocks[at] if trace.blocks else (), tokens - added)


def _doubts(trace: Trace, path: str, made: int) -> Iterator[Doubt]:
    """Yield what of a trace is not sent."""
    if trace.others:
        yield Doubt(
            code="trace-reduced",
            seen=f"the trace also has {', '.join(trace.others)} of its requests, which were not used",
            advice="leave them out if they do not matter, or give the requests themselves with `inputs`",
        )
    if trace.failed:
        yield Doubt(
            code="trace-reduced",
            seen=f"{trace.failed:,} requests of the trace have no tokens: they failed when it was recorded, "
            "and were not sent",
            advice="nothing, unless the server under test is to fail as well",
        )
    if made < len(trace.times):
        yield Doubt(
            code="trace-reduced",
            seen=f"the prompts of the first {made:,} of {len(trace.times):,} requests of {Path(path).name} "
            f"fill the {MOST_BYTES >> 20} MiB that there are for them, and the load ends with those",
            advice="replay a part of it at a time, such as `replay_window=10m`",
        )
