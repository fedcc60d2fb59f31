"""The first commands that a new user types: each answers in a sentence, and its figures agree.

Five are those of README; the others are five each of a torch module, a model of transformers from a factory,
an estimator of scikit-learn and a decoder with a cache in ONNX.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import tiny_onnx

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
COLUMNS = 80

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
        )

    def forward(self, pixels):
        return self.layers(pixels)

def wide():
    return Net(2048).eval()
"""
BERT = """
from transformers import BertConfig, BertForSequenceClassification

def small(layers=2):
    config = BertConfig(
        vocab_size=1000, hidden_size=64, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=99
    )
    return BertForSequenceClassification(config).eval()

def deeper():
    return small(8)
"""


@dataclass(frozen=True, kw_only=True)
class FirstCommand:
    """A command, and how what it prints begins."""

    line: str
    begins: str
    """A regular expression."""
    slow: bool = True

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """What pytest is to know of it."""
        return (pytest.mark.slow, pytest.mark.timeout(600)) if self.slow else ()


def five(model: str, other: str, costs: str, *, options: str = "", quick: bool = False) -> list[FirstCommand]:
    """Return what a user tries with a model of any kind, and with another version of it."""
    name = r"\S+"
    two = f"modeldyno compare {model} {other}{options} --quick"
    return [
        FirstCommand(
            line=f"modeldyno inspect {model}{options}", begins=f"{name} has {costs}", slow=not quick
        ),
        FirstCommand(
            line=f"modeldyno profile {model}{options} --max-time 30s",
            begins=rf"{name} answers in .* \(median.*\) on \w+; on average .*samples/s",
        ),
        FirstCommand(
            line=f"modeldyno sweep {model}{options} --space batch_size=1,8 --max-trials 4",
            begins=r".* gives throughput .*; .* certain to be the best",
        ),
        FirstCommand(line=two, begins=rf"{name} (is|may be|took) .* times"),
        FirstCommand(
            line=f"modeldyno explain {model}{options} --max-time 90s",
            begins=rf"{name} takes .* in process \(median\), (most|the largest part) of it ",
        ),
    ]


README = [
    (r"digits has 38\.3 k parameters \(150 KiB\) and costs 338 kMACs", False),
    (r"digits answers in .* \(median.*\) on onnxruntime; on average .* samples/s", True),
    (r"echo answers \d+ requests/s at 100/s poisson on remote: latency .* \(median\)", True),
    (r"At most 2 loads of 4 s each, .* The (curve|knee) .* tokens/s", True),
    (r".* gives throughput .*, at latency.p50 .* <= 5 ms; ", True),
    (r".*(threads=1|better or worse).*latency.p50", True),
]
"""How the answers to those of README begin, and whether they are slow."""


def readme_commands() -> list[FirstCommand]:
    """Read the commands of README as they stand there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Five things to try")[2]
    shown = re.findall(r"^\$ (modeldyno .*)$", text.partition("The same from Python")[0], re.MULTILINE)
    return [
        FirstCommand(line=line, begins=begins, slow=slow)
        for line, (begins, slow) in zip(shown, README, strict=True)
    ]


MANY = r"[\d.,]+( k| M)? parameters \(.*\)"
COMMANDS = [
    *readme_commands(),
    *five("net.py:Net", "net.py:wide", rf"{MANY} and costs .*MACs .* at batch 1"),
    *five("bert.py:small", "bert.py:deeper", rf"{MANY} and costs .*MACs .* at batch 1, seq 128"),
    *five("iris.joblib", "forest.joblib", r"23 parameters \(184 B\)", options=" --trust"),
    *five(
        "decoder.onnx", "decoder.onnx --candidate-set threads=1",
        rf"{MANY} and costs .*MACs .* at batch 1, .*past_sequence_length 128", quick=True,
    ),
]  # fmt: skip


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models of a new user, without the estimators."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "net.py").write_text(NET)
    (folder / "bert.py").write_text(BERT)
    shutil.copytree(ROOT / "examples" / "digits", folder / "examples" / "digits")
    tiny_onnx.decoder(folder)
    return folder


@pytest.fixture(scope="session")
def estimators(models: Path) -> Path:
    """The same folder with two fitted estimators."""
    import joblib
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_iris(return_X_y=True)
    joblib.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y), models / "iris.joblib")
    joblib.dump(RandomForestClassifier(50, random_state=0).fit(x, y), models / "forest.joblib")
    return models


@pytest.fixture
def echo_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Start the server that README loads, where the command needs it; give its address."""
    if "http://" not in request.getfixturevalue("command").line:
        yield ""
        return
    line = [sys.executable, "-m", "modeldyno.testing.server", "--port", "0", "--service", "exponential:0.005"]
    with subprocess.Popen([*line, "--workers", "4"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.terminate()


_PROGRESS = re.compile(
    r"  \d+ s.*: |(Comparing|Measuring) in up to |"
    r"Waiting for modeldyno worker|modeldyno worker.* still measures"
)
"""What may stand on standard error beside an answer."""


@pytest.mark.parametrize(
    "command",
    [pytest.param(command, id=command.line[10:60], marks=command.marks) for command in COMMANDS],
)
def test_a_first_command_answers(
    command: FirstCommand, echo_server: str, models: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The first line is the answer, doubts are one paragraph, and nothing is printed that nobody can read."""
    if ".joblib" in command.line:
        request.getfixturevalue("estimators")
    words = shlex.split(re.sub(r"http://[\d.:]+", echo_server, command.line) if echo_server else command.line)
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "MODELDYNO_STORE": f"sqlite:///{tmp_path}/s.db"}
    done = subprocess.run(
        [sys.executable, "-m", "modeldyno", *words[1:]],
        cwd=models, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in ({0, 1, 5} if "--require" in words else {0, 5}), done.stderr
    assert not [line for line in done.stderr.splitlines() if not _PROGRESS.match(line)]
    lines = done.stdout.splitlines()
    announced = lines[0].startswith("· Varying as study ")
    answer = " ".join(lines[2 if announced else 0 :][:6])
    assert re.match(command.begins, answer), answer
    assert max(map(len, lines)) <= COLUMNS
    assert not re.search(r"\bnan\b|\bNone\b|\de[+-]\d|Traceback|-0\.0+ ", done.stdout)
    explained = [line for line in lines if line.startswith("! ") and "assumed-sizes" not in line]
    assert len(explained) <= 2 + ("compare" in words), explained
    assert_figures_agree(done.stdout)


def assert_figures_agree(printed: str) -> None:
    """Hold the rate of a profile against its mean time of a call, and the parts of a latency against it."""
    if profile := re.search(
        r"answers in .*?; on average ([\d,.]+) samples/s, ([\d,.]+) (us|ms|s) a", joined(printed)
    ):
        seconds = number(profile[2]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[profile[3]]
        assert number(profile[1]) * seconds == pytest.approx(1.0, rel=0.2)
    drawn = re.findall(r"^(?!=)(bound|kernels|framework) +(-?[\d,.]+) ", printed, re.MULTILINE)
    assert all(number(size) >= 0 for _, size in drawn)


def joined(printed: str) -> str:
    """Return the words of a report in one line."""
    return " ".join(printed.split())


def number(text: str) -> float:
    """Read a printed figure."""
    return float(text.replace(",", ""))


def test_there_are_twenty_six() -> None:
    """A command that README gains or loses is noticed here."""
    assert len({command.line for command in COMMANDS}) == 26


def test_a_pickle_is_refused_with_the_word_to_type(tmp_path: Path) -> None:
    """Loading it runs code; the sentence is all that is printed."""
    (tmp_path / "iris.joblib").write_bytes(b"\x80\x05.")
    done = subprocess.run(
        [sys.executable, "-m", "modeldyno", "inspect", "iris.joblib", "--no-store"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "give --trust if you know where it comes from" in done.stderr
