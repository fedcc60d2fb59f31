"""What a load of generated text asked for and did not get: pieces, counts of tokens, all of the tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.stats import statistics
from modeldyno.serving.load.request_log import sample_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.load.steady_window import SteadyWindow

_ENOUGH = 0.98
"""Share of the tokens asked for that is as good as all of them."""
_LIMIT_REASONS = {"length", "max_tokens", "max_output_tokens"}
"""Why a text ends at the number of tokens that was asked for, in the words of OpenAI and Anthropic."""
_SAMPLE = 200_000
"""Requests sampled to decide on a doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """What the requests of a load ask for."""

    streamed: bool = False
    """Whether their answers are to come in pieces."""
    tokens: Sequence[int] = ()
    """Tokens that each message asks for at most; 0 for one that does not say; empty: none says."""
    reasons: Sequence[str] = ()
    """Why the texts of some answers ended, as the server says; empty for an answer without a reason."""
    tokenizer: str = ""
    """What the client counted tokens by, as no answer has their number; empty: it counted none."""


def cached_prompts(
    counts: Sequence[tuple[int, int]],
    shared: Sequence[int] = (),
    account: ServerCounters | None = None,
    *,
    weights: Sequence[float] = (),
    first_turns: bool = False,
    primed: bool = False,
) -> Iterator[Measurement | Doubt]:
    """Yield the share of prompts that a server had from earlier requests, and a doubt if it matters.

    Args:
        counts: of some answers the cached and all tokens of the prompt; -1 if the server does not say.
        shared: with how many tokens each of these prompts was to begin as an earlier one; empty: none was.
        account: what the server counted in the steady window, for answers that say nothing.
        weights: for how many answers each of these stands; empty: for as many as any other.
        first_turns: whether these are the first turns of chats, whose later turns have a share of their own.
        primed: whether the server may have them, so that there is nothing to doubt.
    """
    alike = [max(_BEGIN, common) for common in shared or [0] * len(counts)]
    counted = [
        (cached * weight, tokens * weight, common * weight)
        for (cached, tokens), common, weight in zip(
            counts, alike, weights or [1.0] * len(counts), strict=True
        )
        if cached >= 0 and tokens > 0
    ]
    witness = f"{len(counted):,} answers say"
    if not counted and account is not None and account.cached_tokens is not None and account.prompt_tokens:
        part = sum(alike) / max(1, sum(max(0, tokens) for _, tokens in counts))
        witness = "its metrics say"
        counted = [(account.cached_tokens, account.prompt_tokens, part * account.prompt_tokens)]
    if not counted:
        return
    tokens = sum(tokens for _, tokens, _ in counted)
    share = sum(cached for cached, _, _ in counted) / tokens
    intended = sum(common for _, _, common in counted) / tokens
    if not first_turns:
        yield observed_number("cached_prompt_share", share)
    if share >= intended + _CACHED and not primed:
        instead = f" instead of the {intended:.0%} with which they were to begin alike" if any(shared) else ""
        yield Doubt(
            code="cached-prompts",
            seen=f"the server had {share:.0%} of the {'first ' if first_turns else ''}prompts' tokens from "
            f"earlier requests{instead}, as {witness}: their first tokens may have come sooner",
            advice="send prompts that it has not seen, with another `seed`, or restart it; if your users' "
            "prompts begin alike, give theirs with `inputs`",
        )


_CACHED = 0.01
"""Share of cached tokens from which on they matter."""
_BEGIN = 1
"""Tokens that all prompts share, whatever they say: a tokenizer may mark the beginning of each text."""


def stream_doubts(window: SteadyWindow, text_request: TextRequest) -> Iterator[Doubt]:
    """Yield a doubt for each thing that the requests asked for and did not get."""
    if not text_request.streamed and not any(text_request.tokens):
        return
    records = sample_records(window.due().where(lambda part: part.fine), _SAMPLE)
    if len(records):
        if text_request.streamed:
            yield from _without_pieces(records)
        yield from _uncounted(records, text_request)
        yield from _counted_here(records, text_request)
        yield from _too_few(records, text_request)


def _without_pieces(records: Records) -> Iterator[Doubt]:
    missing = len(records) if records.pieces is None else int((records.pieces.counts == 0).sum())
    if missing:
        yield Doubt(
            code="not-in-pieces",
            seen=f"{missing:,} of {len(records):,} answers did not come in pieces with text, as was asked "
            f"for: time_to_first_token is {'not known' if missing == len(records) else 'of the others'}",
            advice="see whether the server streams, and in which field of an event it has the text",
        )


def _uncounted(records: Records, text_request: TextRequest) -> Iterator[Doubt]:
    missing = int((records.tokens < 0).sum())
    if not missing:
        return
    known = missing < len(records)
    lost = "token_rate and time_per_output_token are" if text_request.streamed else "token_rate is"
    yield Doubt(
        code="no-token-counts",
        seen=f"the server counted the tokens of {'only some' if known else 'none'} of its answers (no usage "
        f"in {missing:,} of {len(records):,}): {lost} {'of the others alone' if known else 'not known'}",
        advice="have the server report usage, or give the model's tokenizer, as `tokenizer=DIR`; pieces are "
        "not counted as tokens, as one may hold several",
    )


def _counted_here(records: Records, text_request: TextRequest) -> Iterator[Doubt]:
    if text_request.tokenizer and (records.tokens >= 0).any():
        yield Doubt(
            code="own-token-counts",
            seen=f"the server reports no usage: tokens were counted by {text_request.tokenizer} in the "
            "texts, which may be divided into other tokens than were generated",
            advice="have the server report usage",
        )


def _too_few(records: Records, text_request: TextRequest) -> Iterator[Doubt]:
    """Doubt answers that are shorter than the requests allowed, with why they ended."""
    np = statistics.load_numpy()
    limits = np.array(text_request.tokens or (0,))[
        records.message if text_request.tokens else records.message * 0
    ]
    judged = (limits > 0) & (records.tokens >= 0)
    share = records.tokens[judged].sum() / limits[judged].sum() if judged.any() else 1.0
    if share >= _ENOUGH:
        return
    reasons = Counter(reason for reason in text_request.reasons if reason)
    why = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
    got, most = records.tokens[judged].mean(), limits[judged].mean()
    limited = bool(reasons) and reasons.keys() <= _LIMIT_REASONS
    yield Doubt(
        code="fewer-tokens",
        seen=f"the answers have {got:,.3g} tokens on average, of {most:,.3g} that were asked for "
        f"({share:.0%}){why and f'; they ended by {why}'}",
        advice="the server has a limit of its own, below `max_tokens`: raise it, or ask for what it allows"
        if limited
        else 'for texts of one length have the server go on, as by `extra={"ignore_eos":true}`, or set '
        "`max_tokens` to what is usual",
    )
