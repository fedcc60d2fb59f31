"""Faults of streams: what ModelDyno, AIPerf and GuideLLM say of a server that breaks half of its answers.

The ground-truth server knows which of its answers it broke, and how. Each tool sends the same number of
requests, in an environment of its own (`llm_peers.py prepare`); a fault is right if as many requests are
counted as failed as were broken, and, of ours, if each has the one outcome that the fault has.

    python bench/llm_faults.py .venv/llm [--requests 2000] [--faults truncated,stream-error] [--only aiperf]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.testing.server import serve_in_subprocess
from modeldyno.testing.server_faults import FAULTS, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM_FAULTS = (
    "429", "503", "500", "400", "reset-before", "reset-after", "close-before", "truncated", "garbage",
    "bad-chunk", "stream-error", "hang",
)  # fmt: skip
SHARE = 0.5
SLOTS, TOKENS, TIMEOUT = 8, 16, 2
_LONGEST = 900
"""Seconds that a tool may take."""


def modeldyno(place: Path, port: int, requests: int, out: Path) -> list[str]:
    """Return our command."""
    del place
    return [
        sys.executable, "-m", "modeldyno", "load", f"http://127.0.0.1:{port}/v1#echo",
        "--set", "endpoint=chat", "-c", f"{SLOTS}", "--requests", f"{requests}",
        "--set", f"max_tokens={TOKENS}", "--request-timeout", f"{TIMEOUT}s", "--no-store",
        "--calibration", "0", "--records", f"{out}/requests.csv",
    ]  # fmt: skip


def aiperf(place: Path, port: int, requests: int, out: Path) -> list[str]:
    """Return AIPerf's command."""
    return [
        f"{place}/aiperf/bin/aiperf", "profile", "--model", "echo", "--tokenizer", f"{place}/tokenizer",
        "--url", f"http://127.0.0.1:{port}", "--endpoint-type", "chat", "--streaming",
        "--concurrency", f"{SLOTS}", "--request-count", f"{requests}",
        "--request-timeout-seconds", f"{TIMEOUT}",
        "--synthetic-input-tokens-mean", "32", "--output-tokens-mean", f"{TOKENS}", "--ui", "none",
        "--artifact-dir", f"{out}", "--export-level", "records",
    ]  # fmt: skip


def guidellm(place: Path, port: int, requests: int, out: Path) -> list[str]:
    """Return GuideLLM's command."""
    return [
        f"{place}/guidellm/bin/guidellm", "run",
        "--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=echo,timeout={TIMEOUT}",
        "--profile", f"kind=concurrent,streams={SLOTS}",
        "--constraint", f"kind=max_requests,count={requests}",
        "--tokenizer", f"kind=hf_auto,model={place}/tokenizer",
        "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={TOKENS}",
        "--output", f"kind=json,path={out}/guidellm.json", "--disable-console",
    ]  # fmt: skip


def read_modeldyno(out: Path) -> Counter[str]:
    """Count our requests by their outcome."""
    with (out / "requests.csv").open() as file:
        rows = [*csv.DictReader(file)]
    return Counter(row["outcome"] for row in rows) + Counter(retried=sum(int(row["retries"]) for row in rows))


def read_aiperf(out: Path) -> Counter[str]:
    """Count AIPerf's requests by whether they failed."""
    lines = next(out.rglob("profile_export.jsonl")).read_text().splitlines()
    return Counter("failed" if json.loads(line).get("error") else "ok" for line in lines)


def read_guidellm(out: Path) -> Counter[str]:
    """Count GuideLLM's requests by whether they failed."""
    (bench,) = json.loads((out / "guidellm.json").read_text())["benchmarks"]
    names = {"successful": "ok", "errored": "failed", "incomplete": "incomplete"}
    return Counter({word: len(bench["requests"][name]) for name, word in names.items()})


TOOLS: dict[str, tuple[Callable[[Path, int, int, Path], list[str]], Callable[[Path], Counter[str]]]] = {
    "modeldyno": (modeldyno, read_modeldyno),
    "aiperf": (aiperf, read_aiperf),
    "guidellm": (guidellm, read_guidellm),
}


_NO_FAILURES = frozenset({"ok", "cancelled", "retried", "incomplete"})


def broken_answers(port: int, fault: str) -> int:
    """Return how many answers the server broke."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/truth") as answer:
        return int(json.load(answer)["fault"].count(NUMBERS[fault]))


def measure(tool: str, place: Path, fault: str, requests: int) -> str:
    """Run a tool on a fresh server; say what it counted beside what the server broke."""
    command, read = TOOLS[tool]
    arguments = ("--workers", "16", "--pace", "0.0005", "--fault", f"{fault}={SHARE}")
    with tempfile.TemporaryDirectory() as folder, serve_in_subprocess(*arguments) as server:
        out = Path(folder)
        with (out / "log").open("w") as log:
            try:
                done = subprocess.run(
                    command(place, server.port, requests, out), stdout=log, stderr=log, cwd=folder,
                    env={**os.environ, "HOME": folder}, timeout=_LONGEST, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return f"hangs for {_LONGEST} s"
        try:
            counts = read(out)
        except (OSError, ValueError, KeyError, StopIteration):
            return f"no result (exit code {done.returncode})"
        broken = broken_answers(server.port, fault)
    failed = sum(count for outcome, count in counts.items() if outcome not in _NO_FAILURES)
    # A request is sent again where a server closes a connection before an answer; one may be cut at the end.
    right = failed <= broken <= failed + counts["retried"] + counts["cancelled"]
    if tool == "modeldyno":
        known = {outcome.word for outcome in FAULTS[fault].outcomes}
        others = {*counts} - known - _NO_FAILURES
        right = right and not others and sum(counts.values()) >= requests
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return f"{'yes' if right else 'NO'}: {broken} broken, {words}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Faults of streams, by several tools")
    parser.add_argument("place", type=Path, help="folder of the environments")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--faults", default=",".join(STREAM_FAULTS))
    parser.add_argument("--only", default=",".join(TOOLS))
    options = parser.parse_args()
    tools, place = options.only.split(","), options.place.resolve()
    print(f"| fault | {' | '.join(tools)} |")
    print("|---" * (len(tools) + 1) + "|", flush=True)
    assert all(RequestOutcome.OK not in FAULTS[fault].outcomes for fault in options.faults.split(","))
    for fault in options.faults.split(","):
        cells = [measure(tool, place, fault, options.requests) for tool in tools]
        print(f"| {fault} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
