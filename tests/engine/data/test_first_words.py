"""Words of random prompts that take each other's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.engine.data.test_token_prompts import a_tokenizer

from modeldyno.base.job.prompt_lengths import parse_prompt_lengths
from modeldyno.engine.data.first_words import find_first_words
from modeldyno.engine.data.text_requests import read_request, write_request
from modeldyno.engine.data.token_prompts import find_tokenizer, make_prompts, open_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


def test_words_of_one_length_take_each_others_place() -> None:
    """Of a text, or of a request that has one; each of the first three is among its own."""
    requests = ["big bird can fly", write_request({"prompt": "quick run", "max_tokens": 3})]
    first_words = find_first_words(requests, alike=False)
    assert first_words is not None
    assert first_words.at == 0
    assert first_words.texts == ("big bird can fly", "quick run")
    assert [*map(len, first_words.groups_of)] == [3, 2]
    for text, numbers in zip(first_words.texts, first_words.groups_of, strict=True):
        for word, number in zip(text.split(), numbers, strict=False):
            group = first_words.groups[number]
            assert word in group
            assert {len(other) for other in group} == {len(word)}
            assert len(group) > 50


def test_behind_what_all_begin_with_it_is_the_next_word() -> None:
    """And not the letters of two words that begin alike."""
    first_words = find_first_words(["we all stand by", "we all stay here", "we all study"], alike=True)
    assert first_words is not None
    assert first_words.at == len("we all ")


def test_a_text_without_a_common_word_is_left_alone() -> None:
    """As of letters, where words are several tokens."""
    assert find_first_words(["xqx big", "bird"], alike=False) is None


@pytest.mark.parametrize("kind", ["byte-level pairs", "word pieces", "bytes", "unigrams"])
@pytest.mark.parametrize("source", ["tokens:40", "tokens:40,shared=20"])
def test_no_other_word_changes_the_number_of_tokens(kind: str, source: str, tmp_path: Path) -> None:
    """Of any prompt, by its tokenizer; the shared beginning stays."""
    file = a_tokenizer(kind, tmp_path)
    requests, _ = make_prompts(parse_prompt_lengths(source), str(file), most=64, seed=3)
    tokenizer = open_tokenizer(find_tokenizer(str(file)))
    first_words = find_first_words(requests, alike="shared" in source, tokenizer=tokenizer)
    if first_words is None:
        assert kind == "bytes"  # letters
        return
    for request, numbers in zip(requests, first_words.groups_of, strict=True):
        text = read_request(request)["prompt"]
        assert text.startswith(read_request(requests[0])["prompt"][: first_words.at])
        rest = text[first_words.at :].split(" ")[len(numbers) :]
        for turn in range(8):
            groups = [first_words.groups[number] for number in numbers]
            words = [group[turn % len(group)] for group in groups]
            assert len(tokenizer.encode(text[: first_words.at] + " ".join([*words, *rest])).ids) == 40
