"""Our time per output token over that of transformers' own ``generate``, in alternating rounds.

A network of the size of GPT-2 small with random weights reads a prompt and generates greedily, without an
end of text. Every round generates once in each way, in turn: step by step as the probe ``generate`` does,
by ``generate`` with a streamer that notes when each token comes, and by a loop of bare forward passes that
does nothing but hand the cache on. The tokens of all three are compared, and each round gives the ratio of
the median gaps between tokens, by the clock and by the processor time of the thread, which neighbours
disturb less; printed are medians over the rounds, with the smallest and the largest.

At most 1 is expected over ``generate``, which does all that our loop does and in each step also runs its
logits processors, copies the scores, asks its stopping criteria and hands the token to the streamer. Over
the bare loop it is at least 1 by what preparing the inputs of a step costs (masks, positions), which is the
same work that ``generate`` does.

    python bench/generate.py [--rounds 15] [--layers 12] [--width 768] [--words 50257] [--prompt 64]
        [--tokens 32] [--threads 1]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

from modeldyno.base import plugins
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.engine.interfaces.session import CanGenerate
from modeldyno.models.interface import Form, Model

Stamp = tuple[int, int]
"""Nanoseconds by the clock and of the thread's processor time."""
Way = Callable[[], tuple[list[int], list[Stamp]]]
"""Generates once; gives the tokens, and the time that each one after the first took."""


def stamp() -> Stamp:
    """Read both clocks."""
    return time.perf_counter_ns(), time.thread_time_ns()


def since(begin: Stamp, end: Stamp) -> Stamp:
    """Give the time between two readings."""
    return end[0] - begin[0], end[1] - begin[1]


def gpt2(layers: int, width: int, vocabulary: int) -> Any:
    """A network like GPT-2 small, with random weights."""
    torch.manual_seed(0)
    special = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(n_layer=layers, n_embd=width, vocab_size=vocabulary, **special)
    net = transformers.GPT2LMHeadModel(config).eval()
    net.generation_config.eos_token_id = None
    net.generation_config.pad_token_id = 0
    return net


def ours(session: CanGenerate, prompt: torch.Tensor, tokens: int) -> Way:
    """What the probe ``generate`` times: each step by itself."""
    decoding = session.decoding({"input_ids": prompt.numpy()}, tokens)

    def generate() -> tuple[list[int], list[Stamp]]:
        chosen, gaps = [], []
        with closing(decoding.tokens()) as steps:
            for _ in range(tokens):
                begin = stamp()
                token = next(steps)
                gaps.append(since(begin, stamp()))
                chosen.append(int(token))
        return chosen, gaps[1:]

    return generate


class Notes(BaseStreamer):  # type: ignore[misc]  # of no type that is known here
    """Notes when each token comes."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.times: list[Stamp] = []

    def put(self, value: torch.Tensor) -> None:
        """Take tokens; the first ones are the prompt."""
        self.times.append(stamp())
        self.tokens.append(int(value.flatten()[-1]))

    def end(self) -> None:
        """Nothing is left to do."""


def theirs(net: Any, prompt: torch.Tensor, tokens: int) -> Way:
    """``generate`` with a streamer."""

    def generate() -> tuple[list[int], list[Stamp]]:
        notes = Notes()
        mask = torch.ones_like(prompt)
        net.generate(
            prompt,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=tokens,
            streamer=notes,
            use_cache=True,
        )
        return notes.tokens[1:], [since(*pair) for pair in pairwise(notes.times[1:])]

    return generate


def bare(net: Any, prompt: torch.Tensor, tokens: int) -> Way:
    """The least that a greedy loop can do."""

    def generate() -> tuple[list[int], list[Stamp]]:
        chosen: list[int] = []
        gaps: list[Stamp] = []
        ids, cache = prompt, None
        for _ in range(tokens):
            begin = stamp()
            output = net(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            ids, cache = output.logits[:, -1].argmax(-1, keepdim=True), output.past_key_values
            gaps.append(since(begin, stamp()))
            chosen.append(int(ids))
        return chosen, gaps[1:]

    return generate


def compare(ways: dict[str, Way], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Alternate the ways; give the median gaps of each by round, after one round to warm up."""
    gaps_by_way: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        order = list(ways) if number % 2 == 0 else list(reversed(ways))
        made = {name: ways[name]() for name in order}
        texts = {tuple(tokens) for tokens, _ in made.values()}
        assert len(texts) == 1, f"the tokens differ: {texts}"
        if number:
            for name, (_, gaps) in made.items():
                wall, busy = (statistics.median(column) for column in zip(*gaps, strict=True))
                gaps_by_way[name].append((wall, busy))
    return gaps_by_way


_NUMBERS = {
    "rounds": 15, "layers": 12, "width": 768, "words": 50257, "prompt": 64, "tokens": 32, "threads": 1,
}  # fmt: skip


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, default in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    net = gpt2(options.layers, options.width, options.words)
    prompt = torch.randint(0, net.config.vocab_size, (1, options.prompt))
    model = Model(
        identity=ModelIdentity(name="bench", digest="sha256:0", framework="torch"),
        form=Form.TORCH,
        value=net,
        inputs=(),
    )
    config = {"inference_mode": True, "device": "cpu"}
    with plugins.backend("torch").open(model, config) as session:
        assert isinstance(session, CanGenerate)
        ways = {
            "modeldyno": ours(session, prompt, options.tokens),
            "generate with a streamer": theirs(net, prompt, options.tokens),
            "bare loop": bare(net, prompt, options.tokens),
        }
        gaps_by_way = compare(ways, options.rounds)
    own = gaps_by_way.pop("modeldyno")
    asked_for = ", ".join(f"{name} {value}" for name, value in vars(options).items())
    print(f"{asked_for}; ours: {statistics.median(wall for wall, _ in own) * 1e-6:.2f} ms a token")
    for name, gaps in gaps_by_way.items():
        for place, clock in enumerate(("by the clock", "processor time")):
            ratios = [mine[place] / other[place] for mine, other in zip(own, gaps, strict=True)]
            print(
                f"  over {name:<25} {clock:<15} x {statistics.median(ratios):.4f}   "
                f"({min(ratios):.3f} to {max(ratios):.3f})"
            )


if __name__ == "__main__":
    main()
