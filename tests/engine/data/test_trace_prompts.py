"""Prompts of a trace have its lengths, and share the tokens that those of the trace shared."""

from __future__ import annotations

from array import array
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.data.test_token_prompts import KINDS, a_tokenizer

from modeldyno.base.errors import RequestError
from modeldyno.engine.data import trace_prompts
from modeldyno.engine.data.single_tokens import find_single_tokens
from modeldyno.engine.data.text_requests import read_request
from modeldyno.engine.data.token_prompts import open_tokenizer
from modeldyno.engine.data.trace_file import Trace
from modeldyno.engine.data.trace_prompts import make_trace_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

tokenizers = pytest.importorskip("tokenizers")
BLOCKS = [(1, 2, 3), (1, 2, 4), (1, 2), (1, 2, 3), (5,), (), (1, 2, 3, 6, 7)]
LENGTHS = [90, 96, 64, 90, 10, 20, 100]
"""Of blocks of 32 tokens: the third one is full, and the last one has ids beyond its length."""


def a_trace(**more: Any) -> Trace:
    """Return requests of three chats, one without ids, and one that is sent twice."""
    count = len(LENGTHS)
    columns: dict[str, Any] = {
        "prompt_tokens": array("q", LENGTHS),
        "output_tokens": array("q", range(1, count + 1)),
        "blocks": BLOCKS,
        "block_tokens": 32,
    }
    return Trace(times=array("q", range(count)), **columns | more)


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return with how many tokens two prompts begin alike."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_share_exactly_the_tokens_of_their_blocks(tmp_path: Path, kind: str) -> None:
    """By tokenizers of every kind, whatever tokens they add; and each has its length."""
    file = a_tokenizer(kind, tmp_path)
    made = make_trace_prompts(a_trace(), "t.jsonl", str(file), seed=3)

    tokenizer = open_tokenizer(file)
    single = find_single_tokens(tokenizer, file)
    fields = [read_request(text) for text in made.texts]
    ids = [tokenizer.encode(each["prompt"]).ids for each in fields]
    assert [len(each) for each in ids] == LENGTHS == [*made.tokens]
    assert [each["max_tokens"] for each in fields] == [1, 2, 3, 4, 5, 6, 7]
    for a, b in combinations(range(len(ids)), 2):
        text_ends = min(LENGTHS[a], LENGTHS[b]) - single.after
        common = min(32 * in_common(BLOCKS[a], BLOCKS[b]), text_ends) or single.before
        assert (
            ids[a] == ids[b] or common <= in_common(ids[a], ids[b]) <= common + 2
        )  # the next may be the same
    assert made.shared == (0, 64, 64 - single.after, 90 - single.after, 0, 0, 96)
    assert made.texts == make_trace_prompts(a_trace(), "t.jsonl", str(file), seed=3).texts
    assert made.texts != make_trace_prompts(a_trace(), "t.jsonl", str(file), seed=4).texts


def test_a_trace_without_blocks_or_answers_has_prompts_of_its_lengths(tmp_path: Path) -> None:
    """Each of its own words; answers have the length of the knob then."""
    file = a_tokenizer("byte-level pairs", tmp_path)
    made = make_trace_prompts(a_trace(blocks=(), output_tokens=array("q")), "t.csv", str(file), seed=1)

    assert len(set(made.texts)) == len(LENGTHS)
    assert not any("max_tokens" in read_request(text) for text in made.texts)
    assert set(made.shared) == {0}
    assert made.doubts == ()


def test_what_is_not_sent_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other fields, requests that failed, and those whose prompts do not fit into the memory for them."""
    monkeypatch.setattr(trace_prompts, "MOST_BYTES", 1200)
    file = a_tokenizer("byte-level pairs", tmp_path)
    made = make_trace_prompts(a_trace(others=("user",), failed=3), "t.csv", str(file), seed=1)

    assert {doubt.code for doubt in made.doubts} == {"trace-reduced"}
    fields, failed, cut = (doubt.seen for doubt in made.doubts)
    assert "the trace also has user of its requests, which were not used" in fields
    assert "3 requests of the trace have no tokens" in failed
    assert f"the prompts of the first {len(made.texts)} of 7 requests of t.csv fill" in cut
    assert 2 <= len(made.texts) < 7


def test_a_prompt_that_is_shorter_than_what_a_tokenizer_adds_is_refused(tmp_path: Path) -> None:
    """With the file in which it stands."""
    file = a_tokenizer("word pieces", tmp_path)
    trace = a_trace(prompt_tokens=array("q", [2] * 7))
    with pytest.raises(RequestError, match=r"t\.csv has a prompt of 2 tokens, which is impossible with"):
        make_trace_prompts(trace, "t.csv", str(file), seed=1)


def test_a_tokenizer_without_single_words_and_letters_is_refused(tmp_path: Path) -> None:
    """As no texts share exactly so many tokens then."""
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "two": 1}, unk_token="[UNK]"))
    whole.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    file = tmp_path / "tokenizer.json"
    whole.save(str(file))
    with pytest.raises(RequestError, match="no texts were found that share exactly so many tokens"):
        make_trace_prompts(a_trace(), "t.csv", str(file), seed=1)
