"""Journeys: what users of a kind type from an empty folder to the end, across commands.

Each is one story, and each step rests on what the one before has left: a name, an id, a file. What is printed
must say what the next step needs, and nothing that nobody can read.
"""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess

    from tests.support.shell import Shell

JUDGED = {0, 1, 5}
"""Exit codes of a verdict: held, broken, undecided."""

STEADY = """
import time

def forward():
    end = time.perf_counter() + {seconds}
    while time.perf_counter() < end:
        pass
"""


def first(pattern: str, text: str) -> str:
    """Return what the first group of a pattern matches in the words that a command printed."""
    match = re.search(pattern, text)
    assert match is not None, f"no {pattern!r} in {text}"
    return match[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_jobs_of_a_file_are_run_kept_and_verified_elsewhere(shell: Shell, digits: str) -> None:
    """Four jobs of a matrix give four documents, which are read, checked and verified in another store."""
    shell.write(
        "jobs.yaml",
        f"command: profile\nmodel: {digits}\nmax_time: 500ms\nmatrix: {{set.batch_size: [1, 8]}}\n",
    )
    refused = shell("modeldyno profile jobs.yaml", codes={2})
    assert "for all: modeldyno run jobs.yaml" in refused
    table = shell("modeldyno run --json out jobs.yaml", codes=JUDGED)
    files = sorted(path.name for path in (shell.folder / "out").iterdir())

    assert len(files) == 2
    assert "digits.onnx" in table or "digits" in table
    for name in files:
        assert (
            "as they were written" in (printed := shell(f"modeldyno verify out/{name}")) or "holds" in printed
        )
        shell(f"modeldyno check out/{name} --require 'latency.p50 <= 10s'", codes=JUDGED)
    shell(f"modeldyno report out/{files[0]} -o page.html")
    assert "<html" in (shell.folder / "page.html").read_text()


def test_a_name_leads_to_its_model_and_its_results(shell: Shell, digits: str) -> None:
    """A registered name is a model for what measures; what reads results is led to the newest of them."""
    shell(f"modeldyno registry add {digits} --name ocr --no-worker")
    answer = shell("modeldyno profile ocr --max-time 1s --min-time 100ms --tag first", codes=JUDGED)
    assert answer.startswith("ocr answers in ")
    shown = shell("modeldyno registry show ocr")
    result = first(r"([0-9a-f]{6}) +(?:what: )?result", shown)  # in columns, or in lines if they are too wide

    assert f"Write {result} for the newest" in shell("modeldyno show ocr", codes={2})
    shell(f"modeldyno check @first --baseline {result}", codes={0, 5})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_is_registered_measured_answered_for_and_exported(shell: Shell, digits: str) -> None:
    """From a file to a deployment: conversions, figures, the cheapest form, a repository."""
    shell(f"modeldyno registry add {digits} --task 'image classification' --metric accuracy=0.992 --wait")
    shown = shell("modeldyno registry show digits")
    assert "FIGURES ON" in shown
    answer = shell(
        "modeldyno registry answer digits --require 'latency.p99 <= 50ms' --demand 200/s --price 1.2/h"
    )
    assert "replica" in answer
    shell("modeldyno registry answer digits --require 'latency.p99 <= 50ms' --export triton -o deployment")
    assert list((shell.folder / "deployment").rglob("config.pbtxt"))
    shell("modeldyno registry alias digits/1 champion")
    assert shell("modeldyno profile digits@champion --max-time 2s", codes=JUDGED).startswith(
        "digits answers in"
    )
    shell("modeldyno registry history digits --verify")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_of_modelci_from_a_file_to_a_diagnosis(shell: Shell, digits: str) -> None:
    """Registered from YAML, found again in Python, served and diagnosed by the class of that page."""
    shell.write(
        "model.yaml",
        f"model: {digits}\nname: Digits\ntask: image classification\nmetrics: {{acc: 0.992}}\n",
    )
    shell("modeldyno registry add -f model.yaml --no-worker")
    assert "Digits" in shell("modeldyno registry list --framework onnx --task 'image classification'")
    shell.write(
        "find.py",
        "import modeldyno\n"
        "found = modeldyno.registry.retrieve('Digits', framework='onnx', task='image classification')\n"
        "print(found[0].name, found[0].metrics)\n"
        "result = modeldyno.profile(found[0], max_time=3)\n"
        "print('median', result.ask('latency.p50').value is not None or result.doubts != ())\n",
    )
    printed = shell("python find.py")
    assert printed.startswith("Digits")
    assert "median True" in printed
    assert "ALSO MEASURED" in shell("modeldyno registry show Digits/1")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_gate_over_ten_commits_stops_the_one_that_is_slower(shell: Shell) -> None:
    """Of ten commits one costs 20 % more: it fails, or is undecided, and no other fails."""
    folder = shell.folder
    shell("git init -q -b main .")
    for key, value in (("user.email", "a@b.c"), ("user.name", "a")):
        shell(f"git config {key} {value}")
    base, answers = folder.parent / "base", {}
    for commit in range(10):
        seconds = 0.0048 if commit == 6 else 0.004
        shell.write("src/net.py", STEADY.format(seconds=seconds) + f"\n# commit {commit}\n")
        shell("git add src")
        shell(f"git commit -q -m 'commit {commit}'")
        if commit:
            shell(f"git worktree add -q --force {base} HEAD~1")
            gate = f"modeldyno profile call:src/net.py:forward --baseline {base} --budget 90s"
            answers[commit] = shell.answer(gate, codes=JUDGED)
            shell(f"git worktree remove --force {base}")

    assert answers[6][0] != 0, answers[6]
    assert {commit: text for commit, (code, text) in answers.items() if code == 1 and commit != 6} == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sweep_is_killed_resumed_reranked_and_used(shell: Shell, digits: str) -> None:
    """Nothing that was measured is lost, another goal needs no measurement, and the winner is profiled."""
    space = "--space batch_size=1,8,32 --space threads=1,2"
    shell.kill(f"modeldyno sweep {digits} {space} --minimize latency.p50", after=20)
    printed = shell("modeldyno sweep --resume --max-time 90s", codes=JUDGED)
    study = first(r"Study ([0-9a-f]{6})", printed)
    assert re.search(r"\d+\s+measurements\s+over\s+\d\s+configurations", printed)
    again = shell(
        f"modeldyno sweep --rerank {study} --maximize throughput --require 'latency.p50 <= 1s'", codes=JUDGED
    )
    assert "gives throughput" in again
    page = shell(f"modeldyno report {study} --configuration 1,default -o best.html")
    assert page == "" or "best.html" in page
    assert shell(f"modeldyno show {study}#default", codes=JUDGED).startswith("digits ")
    shell(f"modeldyno verify {study}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_server_is_loaded_searched_and_compared(shell: Shell) -> None:
    """Loads, a curve, the largest load, reports, and the difference of two loads, of one server."""
    with shell.start(
        "python -m modeldyno.testing.server --port 0 --service exponential:0.005 --workers 4"
    ) as server:
        assert server.stdout is not None
        port = first(r"(\d+)", server.stdout.readline())
        url = f"'http://127.0.0.1:{port}#echo' --input x=1x8"
        ladder = shell(
            f"modeldyno load {url} -c 1,4,16 --duration 4s --require 'latency.p95 <= 80ms' "
            "-o ladder.html --json l.json",
            codes=JUDGED,
        )
        assert "Saved to l.json and ladder.html." in ladder
        for tag in ("before", "after"):
            shell(f"modeldyno load {url} --rate 100:poisson --duration 5s --tag {tag}", codes=JUDGED)
        assert "What has changed" in shell("modeldyno compare before after", codes=JUDGED)
        searched = shell(
            f"modeldyno load {url} --find-load -c 1 --require 'latency.p95 <= 60ms' --max-time 60s",
            codes=JUDGED,
        )
        assert re.search(r"[Cc]oncurrency \d+", searched)
    shell("modeldyno verify l.json")
    shell("modeldyno report l.json -o loads.csv")
    assert "concurrency" in (shell.folder / "loads.csv").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_history_finds_the_change(shell: Shell) -> None:
    """Six results, then six of code that takes half as long again: the step is seen."""
    for seconds in (0.004, 0.006):
        shell.write("net.py", STEADY.format(seconds=seconds))
        for _ in range(6):
            shell("modeldyno profile call:net.py:forward --max-time 5s --name net -q", codes=JUDGED)
    printed = shell("modeldyno trend net --fail-on-regression", codes=JUDGED)

    assert re.search(r"worse by (4[0-9]|5[0-9])", printed), printed
    shell("modeldyno trend net -o history.html", codes=JUDGED)
    assert (shell.folder / "history.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_dashboard_beside_the_shell_shows_what_is_measured(shell: Shell, digits: str) -> None:
    """What a command measures and registers while the dashboard runs is on its pages, and in its JSON."""
    with shell.start("modeldyno ui --port 0") as dashboard:
        address = _address(dashboard)
        shell(f"modeldyno registry add {digits} --no-worker")
        shell("modeldyno profile digits --max-time 2s", codes=JUDGED)
        listed = _json(f"{address}/api/v1/results?name=digits")
        assert len(listed["items"]) == 1
        assert listed["items"][0]["id"][:6] in _text(f"{address}/results")
        assert "digits" in _text(f"{address}/models")
        assert "openapi" in _json(f"{address}/api/v1/openapi.json")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_module_is_inspected_converted_compared_and_advised(shell: Shell) -> None:
    """From a torch module to the form that is used, each judged against it."""
    shell.write(
        "net.py",
        "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), "
        "torch.nn.Linear(256, 10))\n\n    def forward(self, pixels):\n        return self.layers(pixels)\n",
    )
    assert (
        "19,210" in (costs := shell("modeldyno inspect net.py:Net --input pixels=1x64")) or "19.2 k" in costs
    )
    made = shell(
        "modeldyno convert net.py:Net --input pixels=batchx64 --to onnx,torchscript,openvino -o forms"
    )
    assert "3 of 3 converted forms agree" in made
    forms = {path.suffix for path in (shell.folder / "forms").rglob("model.*")}
    assert forms >= {".onnx", ".xml"}
    onnx = next(path for path in (shell.folder / "forms").rglob("*.onnx"))
    compared = shell(f"modeldyno compare net.py:Net {onnx} --input pixels=1x64 --quick", codes=JUDGED)
    assert "times" in compared
    shell(f"modeldyno advise {onnx} --max-time 40s", codes=JUDGED)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_script_says_where_its_time_goes(shell: Shell) -> None:
    """A training script with marks, run as it is: regions, operators, a trace for another program."""
    shell.write(
        "train.py",
        "import torch\nfrom modeldyno import profiled\n\nnet = torch.nn.Linear(256, 256)\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n\n@profiled\ndef step(x):\n"
        "    with profiled('forward'):\n        loss = net(x).square().mean()\n"
        "    with profiled('backward'):\n"
        "        loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n\nfor _ in range(200):\n"
        "    step(torch.rand(32, 256))\n",
    )
    printed = shell("modeldyno run --json run.json train.py", codes=JUDGED)
    assert "forward" in printed
    assert "backward" in printed
    assert shell("modeldyno show run.json", codes=JUDGED)
    shell("modeldyno run --ops train.py", codes=JUDGED)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_of_deeplite_from_a_model_to_a_regression(shell: Shell) -> None:
    """A script of that page with its imports changed: a table, and a clone beside it."""
    shell.write(
        "page.py",
        "from copy import deepcopy\nimport torch\nfrom modeldyno.compat.deeplite import *\n\n"
        "data = [(torch.rand(8, 64), torch.randint(0, 10, (8,))) for _ in range(4)]\n"
        "model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))\n"
        "splits = TorchProfiler.enable_forward_pass_data_splits({'train': data, 'test': data})\n"
        "profiler = TorchProfiler(model, splits, name='Original Model')\n"
        "profiler.register_profiler_function(ComputeComplexity())\n"
        "profiler.register_profiler_function(ComputeExecutionTime())\n"
        "profiler.register_profiler_function(ComputeEvalMetric(get_accuracy, 'accuracy', unit_name='%'))\n"
        "profiler.compute_network_status(batch_size=1, device=Device.CPU, short_print=False, "
        "include_weights=True, print_mode='debug')\n"
        "clone = profiler.clone(model=deepcopy(model))\nclone.name = 'Clone Model'\n"
        "clone.compare(profiler, short_print=False, batch_size=1, device=Device.CPU, print_mode='debug')\n",
    )
    printed = shell("python page.py")
    assert "Original Model" in printed
    assert "Clone Model" in printed


def _address(dashboard: subprocess.Popen[str]) -> str:
    """Read where a dashboard is."""
    assert dashboard.stdout is not None
    for line in dashboard.stdout:
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            return match[0]
    pytest.fail("the dashboard did not say where it is")


def _text(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        text: str = answer.read().decode()
    return text


def _json(address: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_text(address))
    return document
