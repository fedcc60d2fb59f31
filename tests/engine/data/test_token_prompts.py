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
KINDS = ("byte-level pairs", "word pieces", "bytes", "unigrams", "pairs without words")


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
        "pairs without words": (  # as Llama 2 has it: a space is put before every text
            models.BPE(unk_token="<s>"), None,
            trainers.BpeTrainer(vocab_size=900, special_tokens=["<s>"], show_progress=False),
        ),
    }  # fmt: skip
    model, splitter, trainer = made[kind]
    tokenizer = tokenizers.Tokenizer(model)
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
        tokenizer.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    else:
        steps = tokenizers.normalizers
        tokenizer.normalizer = steps.Sequence([steps.Prepend("▁"), steps.Replace(" ", "▁")])
        tokenizer.train_from_iterator([*WORDS] * 20, trainer)
    if kind in {"byte-level pairs", "pairs without words"}:
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


@pytest.mark.parametrize("kind", KINDS)
def test_all_prompts_begin_with_the_same_tokens(tmp_path: Path, kind: str) -> None:
    """Exactly as many as asked for, those that the tokenizer adds included; each has its length still."""
    file = a_tokenizer(kind, tmp_path)
    requests, sizes = make_prompts(
        parse_prompt_lengths("tokens:60..90/4,shared=40"), str(file), most=100, seed=3
    )

    counter = tokenizers.Tokenizer.from_file(str(file))
    counter.no_truncation()
    ids = [counter.encode(read_request(request)["prompt"]).ids for request in requests]
    assert [len(each) for each in ids] == list(sizes)
    assert len({*sizes}) > 10
    assert len({tuple(each[:40]) for each in ids}) == 1
    assert len({tuple(each[:42]) for each in ids}) > 10


@pytest.mark.parametrize("source", ["tokens:60,shared=60", "tokens:60,shared=59", "tokens:9,shared=1"])
def test_a_prompt_no_longer_than_its_shared_beginning_is_refused(tmp_path: Path, source: str) -> None:
    """Nor may the beginning be only what the tokenizer adds itself."""
    file = a_tokenizer("word pieces", tmp_path)
    with pytest.raises(RequestError, match="cannot begin with the same"):
        make_prompts(parse_prompt_lengths(source), str(file), most=9, seed=3)


def test_lengths_are_drawn_from_a_file_in_pairs(tmp_path: Path) -> None:
    """Each answer's beside its prompt's, as often as they are there; a seed draws the same again."""
    file = a_tokenizer("byte-level pairs", tmp_path)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("20,200\n20,200\n20,200\n9,90\n")
    lengths = parse_prompt_lengths(f"tokens:@{pairs}")
    requests, sizes = make_prompts(lengths, str(file), most=1000, seed=3)

    limits = [read_request(request)["max_tokens"] for request in requests]
    assert limits == [10 * size for size in sizes]
    assert sizes.count(20) / len(sizes) == pytest.approx(0.75, abs=0.05)
    assert (requests, sizes) == make_prompts(lengths, str(file), most=1000, seed=3)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("prompt_tokens\n8\n8\n", False),
        ("8\n\n8\n", False),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.75,8,3\n", True),
        ('{"input_length": 8, "output_length": 3}\n', True),
    ],
)
def test_a_file_of_lengths_has_one_of_several_forms(tmp_path: Path, text: str, answers: bool) -> None:
    """A trace, whose times are not used, or numbers of tokens; those of answers may be absent."""
    (tmp_path / "pairs").write_text(text)
    requests, sizes = make_prompts(
        parse_prompt_lengths(f"tokens:@{tmp_path / 'pairs'}"),
        str(a_tokenizer("bytes", tmp_path)),
        most=70,
        seed=1,
    )

    assert set(sizes) == {8}
    assert {read_request(request).get("max_tokens") for request in requests} == {3 if answers else None}


def test_a_file_without_lengths_of_prompts_is_refused(tmp_path: Path) -> None:
    """With the names that its columns may have."""
    (tmp_path / "pairs").write_text("output_tokens,user\n3,1\n")
    with pytest.raises(RequestError, match="has no lengths of prompts; name a column prompt_tokens"):
        make_prompts(parse_prompt_lengths(f"tokens:@{tmp_path / 'pairs'}"), "", most=9, seed=1)


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
