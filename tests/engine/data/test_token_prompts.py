"""Prompts have exactly as many tokens as were asked for, by tokenizers of every kind."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.job.prompt_lengths import parse_prompt_lengths
from modeldyno.engine.data import token_prompts
from modeldyno.engine.data.text_requests import read_request
from modeldyno.engine.data.token_prompts import find_tokenizer, make_prompts
from modeldyno.models.word_list import WORDS

if TYPE_CHECKING:
    from pathlib import Path

tokenizers = pytest.importorskip("tokenizers")
KINDS = ("byte-level pairs", "word pieces", "bytes", "unigrams")


def a_tokenizer(kind: str, folder: Path) -> Path:
    """Train a tokenizer on the words, and save it."""
    models, before, trainers, after = (
        tokenizers.models, tokenizers.pre_tokenizers, tokenizers.trainers, tokenizers.processors
    )  # fmt: skip
    alphabet = before.ByteLevel.alphabet()
    made: dict[str, tuple[Any, Any, Any]] = {
        "byte-level pairs": (
            models.BPE(), before.ByteLevel(add_prefix_space=False),
            trainers.BpeTrainer(
                vocab_size=900, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
            ),
        ),
        "word pieces": (
            models.WordPiece(unk_token="[UNK]"), before.BertPreTokenizer(),
            trainers.WordPieceTrainer(
                vocab_size=600, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
            ),
        ),
        "bytes": (
            models.BPE(), before.ByteLevel(add_prefix_space=False),
            trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False),
        ),
        "unigrams": (
            models.Unigram(), before.Metaspace(),
            trainers.UnigramTrainer(
                vocab_size=500, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
            ),
        ),
    }  # fmt: skip
    model, splitter, trainer = made[kind]
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    if kind == "byte-level pairs":
        tokenizer.post_processor = after.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    if kind == "word pieces":
        tokenizer.post_processor = after.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    tokenizer.enable_truncation(8)  # as many models have it, which would cut prompts
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return file


@pytest.mark.parametrize("source", ["tokens:96", "tokens:4..40", "tokens:64~20/16"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_prompt_has_exactly_its_tokens(tmp_path: Path, kind: str, source: str) -> None:
    """Those that the tokenizer adds included; no two prompts are the same, and answers have their limit."""
    file = a_tokenizer(kind, tmp_path)
    lengths = parse_prompt_lengths(source)
    requests, sizes = make_prompts(lengths, str(file), most=100, seed=3)

    counter = tokenizers.Tokenizer.from_file(str(file))
    counter.no_truncation()
    fields = [read_request(request) for request in requests]
    assert [len(counter.encode(each["prompt"]).ids) for each in fields] == list(sizes)
    assert len(requests) == 100
    assert len(set(requests)) >= 99
    assert all(("max_tokens" in each) == (lengths.output is not None) for each in fields)
    assert (requests, sizes) == make_prompts(lengths, str(file), most=100, seed=3)
    assert requests != make_prompts(lengths, str(file), most=100, seed=4)[0]


def test_long_prompts_are_fewer(tmp_path: Path) -> None:
    """So that they are made in a moment."""
    file = a_tokenizer("byte-level pairs", tmp_path)
    lengths = parse_prompt_lengths("tokens:5000")

    assert len(make_prompts(lengths, str(file), most=1024, seed=0)[0]) == 200


def test_a_prompt_that_no_text_has_is_refused(tmp_path: Path) -> None:
    """As the tokenizer adds tokens of its own."""
    with pytest.raises(RequestError, match=r"of 2 tokens is impossible with .*, which adds 2 of its own"):
        make_prompts(
            parse_prompt_lengths("tokens:2"), str(a_tokenizer("word pieces", tmp_path)), most=9, seed=0
        )


def test_a_length_that_cannot_be_reached_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than sent with another one."""
    monkeypatch.setattr(token_prompts, "_ATTEMPTS", 0)
    with pytest.raises(RequestError, match="no text of exactly 9 tokens was found"):
        make_prompts(parse_prompt_lengths("tokens:9"), str(a_tokenizer("bytes", tmp_path)), most=9, seed=0)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    """As is a place without one; a folder stands for the file in it."""
    file = tmp_path / "tokenizer.json"
    with pytest.raises(RequestError, match=r"There is no tokenizer .*tokenizer\.json"):
        find_tokenizer(str(tmp_path))
    file.write_text(json.dumps({"no": "tokenizer"}))
    assert find_tokenizer(str(tmp_path)) == find_tokenizer(str(file)) == file
    with pytest.raises(RequestError, match="is no tokenizer that can be read"):
        make_prompts(parse_prompt_lengths("tokens:9"), str(file), most=9, seed=0)


def test_without_the_library_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not needed for anything else."""
    (tmp_path / "t.json").touch()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match="pip install tokenizers"):
        make_prompts(parse_prompt_lengths("tokens:9"), str(tmp_path / "t.json"), most=9, seed=0)


def test_the_length_of_answers_alone_needs_no_tokenizer() -> None:
    """Prompts are words then, as without it; of prompts without a tokenizer the knob is named."""
    requests, counts = make_prompts(parse_prompt_lengths("tokens:/3..9"), "", most=50, seed=1)

    fields = [read_request(request) for request in requests]
    assert {len(each["prompt"].split()) for each in fields} == {128}
    assert {each["max_tokens"] for each in fields} <= {*range(3, 10)}
    assert (len(requests), counts) == (50, ())
    with pytest.raises(RequestError, match=r"need the model's tokenizer; .* by `tokenizer=DIR`"):
        make_prompts(parse_prompt_lengths("tokens:9"), "", most=9, seed=0)
