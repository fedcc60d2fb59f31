"""What was asked of a language model and did not come is said, with figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.serving.load.test_load_analysis import records, window

from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.serving.load.stream_doubts import TextRequest, cached_prompts, stream_doubts

if TYPE_CHECKING:
    from modeldyno.serving.load.request_log import Records

MILLI = 1_000_000


def answers(
    tokens: int | list[int], count: int = 4, *, pieces: object = ((1, 2),), **columns: object
) -> Records:
    times = pieces * count if isinstance(pieces, tuple) and len(pieces) == 1 else pieces
    return records([at * MILLI for at in range(count)], MILLI, tokens=tokens, pieces=times, **columns)


def doubts(log: Records, text_request: TextRequest) -> dict[str, Doubt]:
    by_code = {doubt.code: doubt for doubt in stream_doubts(window(log), text_request)}
    assert set(by_code) <= set(CODES)
    return by_code


def test_what_was_asked_and_came_raises_no_doubt() -> None:
    """All in pieces, all counted, as many tokens as asked for."""
    text_request = TextRequest(streamed=True, tokens=(16, 16), reasons=("length",))
    assert not doubts(answers(16), text_request)
    assert not doubts(answers(16), TextRequest(streamed=True))


def test_nothing_is_said_where_nothing_was_asked() -> None:
    """Requests of other protocols, embeddings, and a load without an answer."""
    assert not doubts(answers(-1, pieces=None), TextRequest())
    assert not doubts(answers(-1, pieces=None), TextRequest(tokens=(0, 0)))
    failed = answers(-1, outcome=RequestOutcome.TIMEOUT)
    assert not doubts(failed, TextRequest(streamed=True, tokens=(16,)))


def test_tokens_that_the_client_counted_are_told() -> None:
    """With what they were counted by; not where none was."""
    counted = TextRequest(streamed=True, tokenizer="llama/tokenizer.json")
    assert "counted by llama/tokenizer.json" in doubts(answers(16), counted)["own-token-counts"].seen
    assert {*doubts(answers(-1), counted)} == {"no-token-counts"}


@pytest.mark.parametrize(
    ("pieces", "missing", "known"), [(None, 4, "not known"), (((1,), (), (3,), (4,)), 1, "of the others")]
)
def test_answers_that_come_whole_are_told(pieces: object, missing: int, known: str) -> None:
    """With how many, and what is not known for it."""
    assert doubts(answers(16, pieces=pieces), TextRequest(streamed=True))["not-in-pieces"].seen == (
        f"{missing} of 4 answers did not come in pieces with text, as was asked for: "
        f"time_to_first_token is {known}"
    )


@pytest.mark.parametrize(
    ("tokens", "streamed", "figures"),
    [
        (-1, True, "none of its answers (no usage in 4 of 4): token_rate and {} are not known"),
        (-1, False, "none of its answers (no usage in 4 of 4): token_rate is not known"),
        (
            [16, -1, 16, 16],
            True,
            "only some of its answers (no usage in 1 of 4): token_rate and {} are of the others alone",
        ),
    ],
)
def test_answers_without_a_count_of_tokens_are_told(
    tokens: int | list[int], streamed: bool, figures: str
) -> None:
    """Their rate would vanish without a word."""
    doubt = doubts(answers(tokens), TextRequest(streamed=streamed, tokens=(16,) * 4))
    counted = f"the server counted the tokens of {figures.format('time_per_output_token')}"
    assert doubt["no-token-counts"].seen == counted


@pytest.mark.parametrize("reason", ["length", "max_tokens", "max_output_tokens"])
def test_half_of_the_tokens_is_told_with_why(reason: str) -> None:
    """A server with a limit of its own says that the text ended by its length, as its protocol says it."""
    text_request = TextRequest(streamed=True, tokens=(64, 64), reasons=(reason, "", reason))
    doubt = doubts(answers(32, message=[0, 1, 0, 1]), text_request)["fewer-tokens"]
    assert doubt.seen == (
        f"the answers have 32 tokens on average, of 64 that were asked for (50%); they ended by {reason} (2)"
    )
    assert "limit of its own" in doubt.advice


def test_texts_that_end_by_themselves_are_told_with_how_to_go_on() -> None:
    """Each message has its own number; what does not say how many is not judged."""
    text_request = TextRequest(tokens=(100, 0, 20), reasons=("stop",))
    doubt = doubts(answers([30, 7, 20, 30], message=[0, 1, 2, 0]), text_request)["fewer-tokens"]
    assert "26.7 tokens on average, of 73.3 that were asked for (36%); they ended by stop (1)" in doubt.seen
    assert 'extra={"ignore_eos":true}' in doubt.advice
    assert "ended" not in doubts(answers(5), TextRequest(tokens=(10,)))["fewer-tokens"].seen


def test_prompts_of_a_cache_are_told() -> None:
    """By what answers say of it; below a percent it is no doubt, and of silent servers nothing is known."""
    share, doubt = cached_prompts([(40, 100), (0, 100), (-1, 100), (9, -1)], [0] * 4)
    assert isinstance(share, Measurement)
    assert (share.metric, share.value) == ("cached_prompt_share", 0.2)
    assert isinstance(doubt, Doubt)
    assert doubt.code == "cached-prompts"
    assert "20% of the prompts' tokens from earlier requests, as 2 answers say" in doubt.seen
    (little,) = cached_prompts([(1, 1000)], [0])
    assert isinstance(little, Measurement)
    assert list(cached_prompts([(-1, 5)])) == []
    (of_chats,) = cached_prompts([(40, 100)], first_turns=True)
    assert isinstance(of_chats, Doubt)
    assert "40% of the first prompts' tokens" in of_chats.seen


def test_an_answer_stands_for_all_that_are_like_it() -> None:
    """Of a prompt that was sent ten times the first answer for one, the last for nine."""
    share, _ = cached_prompts([(0, 100), (100, 100)], weights=[1, 9])
    assert isinstance(share, Measurement)
    assert share.value == pytest.approx(0.9)
    (share,) = cached_prompts([(0, 100), (100, 100)], weights=[1, 9], primed=True)


def test_prompts_that_were_to_begin_alike_may_come_from_a_cache() -> None:
    """Up to as many tokens as were to be the same; more is a doubt, which says both shares."""
    (share,) = cached_prompts([(48, 100), (50, 100), (-1, 100)], [50, 50, 50])
    assert isinstance(share, Measurement)
    assert share.value == 0.49
    _, doubt = cached_prompts([(48, 100), (90, 100)], [50, 50])
    assert isinstance(doubt, Doubt)
    assert "69% of the prompts' tokens from earlier requests instead of the 50% with which they" in doubt.seen
    assert not list(cached_prompts([(48, 100)], [50], first_turns=True))


def test_a_token_that_begins_every_prompt_is_no_doubt() -> None:
    """Tokenizers put one before each text, which a cache has from the second request on."""
    (share,) = cached_prompts([(1, 64), (1, 64)])
    assert isinstance(share, Measurement)
    assert share.value == 1 / 64
    assert len(list(cached_prompts([(2, 64), (2, 64)]))) == 2
    account = ServerCounters(requests=2, cached_tokens=2, prompt_tokens=128)
    assert len(list(cached_prompts([(-1, 64), (-1, 64)], account=account))) == 1


def test_cached_prompts_are_told_by_the_servers_metrics_where_answers_say_nothing() -> None:
    """Answers come first; a server that looked nothing up says nothing."""
    account = ServerCounters(requests=1, cached_tokens=30, prompt_tokens=100)
    share, doubt = cached_prompts([(-1, 100)], account=account)
    assert isinstance(share, Measurement)
    assert share.value == 0.3
    assert isinstance(doubt, Doubt)
    assert "as its metrics say" in doubt.seen
    (answered,) = cached_prompts([(0, 100)], account=account)
    assert isinstance(answered, Measurement)
    assert answered.value == 0
    for silent in (ServerCounters(requests=1), replace(account, prompt_tokens=0.0)):
        assert list(cached_prompts([], account=silent)) == []
