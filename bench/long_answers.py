"""Rates of answers of a language model whose timing is known, beside the truth.

The ground-truth server streams tokens at known times: the first after 50 ms, then one every few milliseconds,
however many requests it has. So the rate is slots / (time of an answer), and that of tokens as many times
their number. Each point is measured as a user would, by ``modeldyno.load``; it is right within 3 %, or
withheld with its reason. The status is 1 where a point is neither.

    python bench/long_answers.py [--answers 0.2,0.69,4.2] [--slots 1,4,8] [--durations 2,5,20] [--default]

With --default the times are those that ModelDyno chooses by itself.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import modeldyno
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST, TOKENS, ALLOWED = 0.05, 64, 0.03


def measure(answer: float, slots: int, duration: float | None) -> modeldyno.Result:
    """Load a server whose answers take so many seconds."""
    pace = (answer - FIRST) / (TOKENS - 1)
    arguments = ("--service", f"constant:{FIRST}", "--workers", "4096", "--pace", f"{pace}")
    with serve_in_subprocess(*arguments) as server:
        return modeldyno.load(
            f"http://127.0.0.1:{server.port}#echo,protocol=openai",
            concurrency=slots,
            duration=duration,
            endpoint="chat",
            max_tokens=TOKENS,
            store=False,
            progress=False,
        )


def judge(result: modeldyno.Result, answer: float, slots: int) -> Iterator[tuple[str, float, str, str]]:
    """Yield each rate with the truth, what was told, and the verdict.

    The truth counts what the service time exceeds the answer by: a busy machine delays requests, too.
    """
    service = result.distribution("service_time")
    seconds = answer if service is None else max(answer, service.statistic("mean"))
    withheld = [doubt.code for doubt in result.doubts if doubt.code in {"short-load", "little-law"}]
    for name, truth in (("request_rate", slots / seconds), ("token_rate", slots * TOKENS / seconds)):
        rate = result.find(name)
        if rate is None or rate.interval is None:
            yield name, truth, "-", f"withheld: {withheld[0]}" if withheld else "LOST"
            continue
        right = abs(rate.mean_with_ends()[1] / truth - 1) <= ALLOWED
        text = f"{rate.value:,.5g} ({rate.interval.low:,.5g} to {rate.interval.high:,.5g})"
        yield name, truth, text, "right" if right else "WRONG"


def numbers(text: str) -> list[float]:
    """Read numbers separated by commas."""
    return [float(number) for number in text.split(",")]


def main() -> int:
    """Measure the grid, and print a line a rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=numbers, default=[0.2, 0.69, 4.2])
    parser.add_argument("--slots", type=numbers, default=[1, 4, 8])
    parser.add_argument("--durations", type=numbers, default=[2, 5, 20])
    parser.add_argument("--default", action="store_true")
    options = parser.parse_args()
    wrong = 0
    for answer in options.answers:
        for slots in map(int, options.slots):
            for duration in [None] if options.default else options.durations:
                result = measure(answer, slots, duration)
                for name, truth, text, verdict in judge(result, answer, slots):
                    wrong += verdict in {"WRONG", "LOST"}
                    at = f"{answer:g} s x {slots}, {f'{duration:g} s' if duration else 'default'}"
                    print(f"{at:22} {name:13} truth {truth:<10.5g} {text:32} {verdict}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
