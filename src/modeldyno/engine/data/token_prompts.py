"""Prompts of random words that have exactly as many tokens as asked for, by the model's own tokenizer.

Where only the length of answers is asked for, prompts have as many words as without, and need no tokenizer.
The tokenizer is a file of the library `tokenizers`, ``tokenizer.json``, as models of Hugging Face have it
beside their weights. Words are put together until their tokens add up, and each text is counted as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.job.prompt_lengths import WORDS_OF_A_PROMPT
from modeldyno.engine.data.single_tokens import find_single_tokens
from modeldyno.engine.data.text_requests import write_request
from modeldyno.engine.data.trace_file import read_trace
from modeldyno.models.word_list import WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import ndarray
    from numpy.random import Generator

    from modeldyno.base.job.prompt_lengths import PromptLengths

FILE = "tokenizer.json"
MOST_TOKENS = 1_000_000
"""Tokens of all prompts together: about a second of work."""
FEWEST = 64
"""Prompts that there are at least, however long they are."""
_ATTEMPTS = 12
"""Corrections of a text."""
_LETTER = "a"
"""What fills a text where no word is a single token."""


def find_tokenizer(place: str) -> Path:
    """Return the file of a tokenizer, or of the one in a folder.

    Raises:
        RequestError: there is none, or no place is given.
    """
    if not place:
        raise RequestError(
            f"Prompts of a number of tokens need the model's tokenizer; give its {FILE}, or the folder with "
            "that, by `tokenizer=DIR`."
        )
    path = Path(place).expanduser()
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise RequestError(f"There is no tokenizer {file}; give the {FILE} of the model, or its folder.")
    return file


def make_prompts(
    lengths: PromptLengths, place: str, *, most: int, seed: int, added: int = 0
) -> tuple[list[str], tuple[int, ...]]:
    """Make different prompts of the lengths asked for.

    Args:
        lengths: the tokens of prompts, those of the tokenizer's own included, and of answers.
        place: file or folder of the tokenizer; empty if there is none.
        most: prompts to make; fewer if they are long, but at least FEWEST.
        seed: of words and lengths.
        added: tokens that the server adds to each, by which texts are shorter.

    Returns:
        Texts, or requests that `text_requests.read_request` reads, and the tokens of each prompt: of none if
        they were not counted.

    Raises:
        RequestError: there is no tokenizer, it cannot be read, or no text has so few tokens.
        MissingExtra: the library `tokenizers` is not there.
    """
    import numpy as np  # slow to import

    generator = np.random.default_rng(seed)
    targets, limits = (_draw_pairs if lengths.pairs else _draw_lengths)(lengths, most, generator)
    if targets:
        file = find_tokenizer(place)
        of_texts = [tokens - added for tokens in targets]
        texts = _texts(open_tokenizer(file), of_texts, lengths.shared, generator, file)
    else:
        texts = [" ".join(generator.choice(WORDS, WORDS_OF_A_PROMPT)) for _ in limits]
    if limits:
        texts = [
            write_request({"prompt": text, "max_tokens": limit})
            for text, limit in zip(texts, limits, strict=True)
        ]
    return texts, tuple(targets)


def _draw_lengths(lengths: PromptLengths, most: int, generator: Generator) -> tuple[list[int], list[int]]:
    """Return the tokens of prompts and of answers; empty where they are not asked for."""
    count = _count(WORDS_OF_A_PROMPT if lengths.prompt is None else lengths.prompt.typical, most)
    prompts, outputs = (
        [] if each is None else each.draw(count, generator).tolist()
        for each in (lengths.prompt, lengths.output)
    )
    return prompts, outputs


def _draw_pairs(lengths: PromptLengths, most: int, generator: Generator) -> tuple[list[int], list[int]]:
    """Return the tokens of prompts and of answers in rows of a file, each as likely as any other."""
    path = str(Path(lengths.pairs).expanduser())
    pairs = read_trace(path, timed=False)
    if not pairs.prompt_tokens:
        raise RequestError(
            f"{path} has no lengths of prompts; name a column prompt_tokens, and that of answers "
            "output_tokens."
        )
    count = _count(sum(pairs.prompt_tokens) / len(pairs.prompt_tokens), most)
    drawn = generator.integers(len(pairs.prompt_tokens), size=count)
    prompts, outputs = (
        [column[at] for at in drawn] if column else []
        for column in (pairs.prompt_tokens, pairs.output_tokens)
    )
    return prompts, outputs


def _count(typical: float, most: int) -> int:
    """Return how many prompts of such a length are made."""
    return min(most, max(FEWEST, int(MOST_TOKENS / typical)))


def open_tokenizer(file: Path) -> Any:
    """Open a tokenizer that neither cuts texts nor pads them.

    Raises:
        RequestError: it cannot be read.
        MissingExtra: the library `tokenizers` is not there.
    """
    try:
        from tokenizers import Tokenizer  # optional
    except ImportError:
        raise MissingExtra(
            "Prompts of a number of tokens need tokenizers; install it with: pip install tokenizers"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # whatever the library raises
        raise RequestError(f"{file} is no tokenizer that can be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _texts(
    tokenizer: Any, targets: Sequence[int], shared: int, generator: Generator, file: Path
) -> list[str]:
    """Make a text of each number of tokens: words whose tokens add up, corrected until the whole is exact."""
    import numpy as np  # slow to import

    own = len(tokenizer.encode("").ids)
    if min(targets) <= own:
        raise RequestError(
            f"A prompt of {min(targets)} tokens is impossible with {file}, which adds {own} of its own; "
            "ask for more."
        )
    encoded = tokenizer.encode_batch([f" {word}" for word in WORDS], add_special_tokens=False)
    word_tokens = np.array([max(1, len(one.ids)) for one in encoded])
    single = [word for word, size in zip(WORDS, word_tokens, strict=True) if size == 1]
    texts = (
        _drafts_alike(tokenizer, targets, shared, generator, file)
        if shared
        else [_draft(tokens - own, word_tokens, generator) for tokens in targets]
    )
    rest = list(range(len(texts)))
    for _ in range(_ATTEMPTS):
        counted = tokenizer.encode_batch([texts[at] for at in rest])
        missing = {at: targets[at] - len(one.ids) for at, one in zip(rest, counted, strict=True)}
        rest = [at for at in rest if missing[at]]
        if not rest:
            return texts
        for at in rest:
            texts[at] = _correct(texts[at], missing[at], single, generator)
    raise RequestError(
        f"With {file} no text of exactly {targets[rest[0]]} tokens was found; ask for another length."
    )


def _drafts_alike(
    tokenizer: Any, targets: Sequence[int], shared: int, generator: Generator, file: Path
) -> list[str]:
    """Draw words of one token each, the first of which are the same in all texts."""
    single = find_single_tokens(tokenizer, file)
    if min(targets) <= shared + single.after or shared <= single.before:
        raise RequestError(
            f"Prompts of {min(targets):,} tokens or more cannot begin with the same {shared:,}, with {file}; "
            "set shared_prefix to less than the shortest, or prompt_tokens to more."
        )
    begin = single.begin(single.draw(shared - single.before, generator))
    return [begin + single.draw(tokens - shared - single.after, generator) for tokens in targets]


def _draft(tokens: int, word_tokens: ndarray, generator: Generator) -> str:
    """Draw words, each with a space before it, until there are so many tokens."""
    drawn = generator.integers(len(WORDS), size=tokens)
    enough = int(word_tokens[drawn].cumsum().searchsorted(tokens)) + 1
    return " ".join(WORDS[at] for at in drawn[:enough])


def _correct(text: str, missing: int, single: Sequence[str], generator: Generator) -> str:
    """Add words of one token each, or letters if there are none; or take as many away."""
    if not single:
        return text + _LETTER * missing if missing > 0 else text[:missing]
    if missing > 0:
        return " ".join((text, *(single[at] for at in generator.integers(len(single), size=missing))))
    return " ".join(text.split(" ")[:missing]) or single[0]
