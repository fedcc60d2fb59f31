"""Figures and verdicts on bounds of models whose speed is known, in a process and behind a server."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from tests.proofs.cell import Cell, Outcome, Try
from tests.proofs.commands import MEAN, last_line, modeldyno, python, read_document, write_function

import modeldyno as product
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.testing.server import RunningServer, Truth

CLOSE = 0.003
"""What the known function itself may be off by: starting a sleep and looking at a clock."""
MEMORY_CLOSE = 0.03
DISTURBED = {"interference", "steal", "drift", "unsettled", "run-to-run"}
"""Doubts by which the product says that the machine, and not the model, is in the figure."""


def _covers(result: Result, query: str, truth: float, close: float = CLOSE) -> Try:
    """Say whether an interval covers the truth; open if there is none, or a doubt says what disturbed it."""
    answer = result.ask(query)
    if answer.interval is None:
        return Try(
            Outcome.OPEN, f"{query} has no interval; " + "; ".join(doubt.code for doubt in result.doubts)
        )
    low, high = answer.interval.low, answer.interval.high
    line = f"{query} {low:.6g} to {high:.6g}, truth {truth:.6g}"
    if low * (1 - close) <= truth <= high * (1 + close):
        return Try(Outcome.TRUE, line)
    disturbed = sorted(DISTURBED & {doubt.code for doubt in result.doubts})
    return Try(Outcome.OPEN if disturbed else Outcome.FALSE, f"{line}; {', '.join(disturbed)}")


# --- in a process ------------------------------------------------------------------------------------


def _interval(seed: int, _folder: Path, how: str, query: str) -> Try:
    """See whether the interval of a figure covers the truth; two of five calls are 1 % off the mean."""
    result, mean = _known(seed, how)
    truth = {"latency.p95": 1.01 * mean, "throughput": 1 / mean}.get(query, mean)
    return result if isinstance(result, Try) else _covers(result, query, truth)


@lru_cache(maxsize=8)
def _known(seed: int, how: str) -> tuple[Result | Try, float]:
    """Measure the function at any speed, once for all figures that are asked for; return its mean as well."""
    slowdown = Random(seed).uniform(-0.5, 2.0)
    with TemporaryDirectory() as name:
        folder = Path(name)
        failed = _measured(folder, write_function(folder, slowdown, busy=True), how)
        return failed or product.read(folder / "result.json", product.Result), MEAN * (1 + slowdown)


def _memory(seed: int, folder: Path, how: str) -> Try:
    """Measure a function that keeps a known amount of memory, and uses as much again in each call."""
    kept, used = (Random(f"{seed} {what}").randrange(16, 160) * 2**20 for what in ("kept", "used"))
    (folder / "model.py").write_text(HUNGRY.format(kept=kept, used=used), encoding="utf-8")
    if failed := _measured(folder, "call:model.py:work", how):
        return failed
    peak = product.read(folder / "result.json", product.Result).ask("process_memory.max").value
    if peak is None:
        return Try(Outcome.OPEN, "process_memory.max is not known")
    off = peak / (kept + used) - 1
    line = f"process_memory.max {peak / 2**20:.1f} MiB, truth {(kept + used) / 2**20:.1f} ({off:+.1%})"
    return Try(Outcome.TRUE if abs(off) <= MEMORY_CLOSE else Outcome.FALSE, line)


HUNGRY = """
import time

KEPT = bytearray(b"x") * {kept}


def work():
    used = bytearray(b"x") * {used}
    time.sleep(0.01)
    return len(used)
"""
PROFILE = """
import modeldyno

modeldyno.profile({model!r}, max_time=5, progress=False).save("result.json")
"""


def _measured(folder: Path, model: str, how: str) -> Try | None:
    """Measure a model as a user of this door would, into ``result.json``; None if that succeeded."""
    words = ("profile", model, "--max-time", "5", "--json", "result.json", "-q")
    if how == "gate()":
        code, output = python(folder, PROFILE.format(model=model))
    elif how == "job file":
        (folder / "job.yaml").write_text(
            f"command: profile\nmodel: {model}\nmax_time: 5s\njson: result.json\nquiet: true\n",
            encoding="utf-8",
        )
        code, output = modeldyno(folder, "profile", "job.yaml")
    else:
        code, output = modeldyno(folder, *words)
    return Try(Outcome.FALSE, output[-300:]) if code else None


def _bound(seed: int, folder: Path, how: str) -> Try:
    """Hold the function against a bound 5 % beside its median, above or below."""
    model = write_function(folder)
    below = bool(seed % 2)
    bound = f"latency.p50 <= {MEAN * (0.95 if below else 1.05) * 1e3:.4f}ms"
    words = ("profile", model, "--max-time", "5")
    if how == "check":
        modeldyno(folder, *words, "--json", "result.json", "-q")
        code, output = modeldyno(folder, "check", "result.json", "--require", bound)
    elif how == "gate()":
        script = f"import modeldyno\nr = modeldyno.profile({model!r}, max_time=5, progress=False)\n"
        script += f"raise SystemExit({{'held': 0, 'broken': 1, 'undecided': 5}}[r.judge({bound!r}).verdict])"
        code, output = python(folder, script)
    elif how == "job file":
        text = f"command: profile\nmodel: {model}\nmax_time: 5s\nrequire: {bound}\n"
        (folder / "job.yaml").write_text(text, encoding="utf-8")
        code, output = modeldyno(folder, "profile", "job.yaml", "-q")
    else:
        code, output = modeldyno(folder, *words, "--require", bound, "-q")
    line = f"{bound}, median {MEAN * 1e3:g} ms: exit code {code}"
    if code == 5:
        return Try(Outcome.OPEN, line)
    return Try(Outcome.TRUE if code == below else Outcome.FALSE, line if code in {0, 1} else output[-300:])


# --- behind a server ---------------------------------------------------------------------------------

FIRST, PACE = 0.05, 0.01
"""Seconds to the first token, and from one to the next, of the server that generates text."""


@contextmanager
def _text_server(tokens: int) -> Iterator[RunningServer]:
    with serve_in_subprocess(
        "--service", f"constant:{FIRST}", "--workers", "256", "--tokens", str(tokens), "--pace", str(PACE)
    ) as server:
        yield server


def _stream(seed: int, _folder: Path, query: str) -> Try:
    """Ask a load of streamed answers what the server did, and hold it against what the server recorded."""
    case, result, truths = _streamed(seed)
    if isinstance(result, str):
        return Try(Outcome.FALSE, f"{case}: {result}")
    answer = result.ask(query)
    if answer.value is None:
        return Try(Outcome.OPEN, f"{case}: {query} is withheld: {'; '.join(d.code for d in result.doubts)}")
    off = answer.value / truths[query] - 1
    close = 0.03 if query.endswith("rate") else 0.10
    line = f"{case}: {query} {answer.value:.4g}, truth {truths[query]:.4g} ({off:+.1%})"
    return Try(Outcome.TRUE if abs(off) <= close else Outcome.FALSE, line)


@lru_cache(maxsize=8)
def _streamed(seed: int) -> tuple[str, Result | str, dict[str, float]]:
    """Load a server that streams answers of 0.1 to 4 s, 1 to 32 at once, once for all that is asked.

    Returns:
        What was loaded; the Result, or what was printed instead; and the truth of each query.
    """
    source = Random(seed)
    tokens, slots = source.choice((8, 64, 200, 400)), source.choice((1, 4, 8, 32))
    options = f"--set endpoint=chat --set max_tokens={tokens} -c {slots} --json load.json -q"
    words = options.split()
    if seed % 2:
        words += ["--max-time", f"{source.choice((3, 5, 10, 20))}s"]
    case = f"{tokens} tokens, {slots} at once, {' '.join(words[-2:]) if seed % 2 else 'no time given'}"
    with TemporaryDirectory() as name, _text_server(tokens) as server:
        folder = Path(name)
        code, output = modeldyno(
            folder, "load", f"http://127.0.0.1:{server.port}#echo,protocol=openai", *words
        )
        if not (folder / "load.json").is_file():
            return case, f"exit code {code}: {output[-200:]}", {}
        return (
            case,
            product.read(folder / "load.json", product.Result),
            _truths(server.truth(), tokens, slots),
        )


def _truths(truth: Truth, tokens: int, slots: int) -> dict[str, float]:
    fine = truth.fine & (truth.end - truth.first > 0)  # not the questions that come before the load
    seconds, first = ((times - truth.arrival)[fine] * 1e-9 for times in (truth.end, truth.first))
    return {
        "token_rate": slots * tokens / seconds.mean(),
        "request_rate": slots / seconds.mean(),
        "time_to_first_token.p50": float(np.median(first)),
        "inter_token_latency.p50": float(np.median((seconds - first) / (tokens - 1))),
    }


def _served_bound(seed: int, folder: Path) -> Try:
    """Hold the first token of an exact server against a bound that all answers keep, or all break."""
    broken = bool(seed % 2)
    bound = f"time_to_first_token.p95 <= {30 if broken else 100}ms"
    with _text_server(64) as server:
        code, output = modeldyno(
            folder, "load", f"http://127.0.0.1:{server.port}#echo,protocol=openai", "--set",
            "endpoint=chat", "--set", "max_tokens=64", "-c", "4", "--require", bound, "-q",
        )  # fmt: skip
    line = f"{bound}, first token after {FIRST * 1e3:g} ms: exit code {code}"
    if code == 5:
        return Try(Outcome.OPEN, line)
    return Try(Outcome.TRUE if code == broken else Outcome.FALSE, line if code in {0, 1} else output[-300:])


def _largest_load(seed: int, folder: Path) -> Try:
    """Search the largest concurrency of one worker of 10 ms: a closed loop of n takes n x 10 ms.

    Open is what the product itself takes back as another measurement contradicts it, and what a machine
    decides whose worker took longer than it was told.
    """
    most = Random(seed).choice((4, 7, 12))
    limit = 10 * most + 7
    bound = f"latency.p50 <= {limit}ms"
    with serve_in_subprocess("--service", "constant:0.01", "--workers", "1") as server:
        code, output = modeldyno(
            folder, "load", f"http://127.0.0.1:{server.port}#echo", "--input", "x=1x8", "--find-load",
            "-c", "1", "--require", bound, "--max-time", "2m", "--json", "load.json", "-q",
        )  # fmt: skip
        truth = server.truth()
    if code not in {0, 1, 5}:
        return Try(Outcome.FALSE, f"exit code {code}: {output[-300:]}")
    answer = read_document(folder / "load.json")
    passed, failed = answer["passed"], answer["failed"]
    took = float(np.median((truth.end - truth.start)[truth.fine])) * 1e-6
    line = f"{bound}: {passed} holds, {failed} breaks it; {most} is right where a call takes {took:.2f} ms"
    if "do not rely on it" in output or (code == 5 and not passed):
        return Try(Outcome.OPEN, f"{line}; {last_line(output, 'do not rely')}")
    if (passed or 0) <= most < (failed or 1e9):
        return Try(Outcome.TRUE, line)
    return Try(Outcome.OPEN if most * took > limit else Outcome.FALSE, line)


_TRUTH = "tests/base/metrics/test_truth.py::test_a_steady_source_is_measured_as_it_is"
_BOUND = "tests/base/metrics/test_constraints.py"
_SERVED = "tests/test_served_truth.py"
CELLS = (
    *(
        Cell(
            claim="intervals",
            door=door,
            case=query,
            command=command,
            attempt=partial(_memory, how=door)
            if query == "memory"
            else partial(_interval, how=door, query=query),
            tries=40,
            seconds=6.0 if query == "memory" else 1.0,
            alone=True,
            most_false=0.1,
            quick=_TRUTH,
        )
        for door, command in (
            ("command", "modeldyno profile MODEL --max-time 5"),
            ("job file", "modeldyno profile job.yaml"),
            ("gate()", "modeldyno.profile(MODEL, max_time=5)"),
        )
        for query in ("latency.p50", "latency.mean", "latency.p95", "throughput", "memory")
    ),
    *(
        Cell(
            claim="bounds",
            door=door,
            command=command,
            attempt=partial(_bound, how=door),
            tries=40,
            seconds=6.0,
            alone=True,
            least_true=0.9,
            quick=_BOUND,
        )
        for door, command in (
            ("command", "modeldyno profile MODEL --require 'latency.p50 <= 4.2ms'"),
            ("check", "modeldyno check result.json --require 'latency.p50 <= 4.2ms'"),
            ("job file", "modeldyno profile job.yaml (require: latency.p50 <= 4.2ms)"),
            ("gate()", 'modeldyno.profile(MODEL).judge("latency.p50 <= 4.2ms")'),
        )
    ),
    *(
        Cell(
            claim="rates",
            door="load",
            case=case,
            command="modeldyno load URL --set endpoint=chat --set max_tokens=64 -c 4 [--max-time 3s]",
            attempt=partial(_stream, query=query),
            tries=40,
            seconds=14.0,
            alone=True,
            quick=_SERVED,
        )
        for case, query in (
            ("tokens/s", "token_rate"),
            ("requests/s", "request_rate"),
            ("first token", "time_to_first_token.p50"),
            ("gaps", "inter_token_latency.p50"),
        )
    ),
    Cell(
        claim="bounds",
        door="load",
        command="modeldyno load URL --set endpoint=chat -c 4 --require 'time_to_first_token.p95 <= 100ms'",
        attempt=_served_bound,
        tries=20,
        seconds=65.0,
        alone=True,
        least_true=0.9,
        quick=_SERVED,
    ),
    Cell(
        claim="largest load",
        door="load",
        command="modeldyno load URL --find-load -c 1 --require 'latency.p50 <= 77ms' --max-time 2m",
        attempt=_largest_load,
        tries=20,
        seconds=180.0,
        alone=True,
        least_true=0.8,
        quick="tests/serving/load/test_series_steps.py",
    ),
)
