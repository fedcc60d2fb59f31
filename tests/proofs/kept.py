"""Documents that verify, conversions, and models that borrow their speed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from tests.proofs.cell import Cell, Outcome, Try
from tests.proofs.commands import last_line, modeldyno, python, read_document, write_digits

from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from pathlib import Path

# --- documents ---------------------------------------------------------------------------------------

DOCUMENTS = {
    "profile": "profile MODEL --max-time 1",
    "sweep": "sweep MODEL --space threads=1,2 --max-trials 2 --trial-time 0.5s",
    "compare": "compare MODEL MODEL --max-rounds 3 --run-time 0.3s",
    "inspect": "inspect MODEL",
    "convert": "convert MODEL --to openvino",
    "gate": "profile MODEL --max-time 1 --require latency.p50<=1s",
    "load": "load URL --input x=1x8 -c 2 --max-time 2",
    "load series": "load URL --input x=1x8 -c 1,2 --max-time 6",
    "explain": "explain URL --input x=1x8 --max-time 10",
}
"""Commands that write a document of each kind."""


def _document(seed: int, folder: Path, how: str) -> Try:
    """Verify a document that was written a moment ago, and the same one with one figure changed."""
    kind = list(DOCUMENTS)[seed // 2 % len(DOCUMENTS)]
    code, output = _written(folder, kind)
    if code not in {0, 1, 5}:
        return Try(Outcome.FALSE, f"{kind}: exit code {code}: {output[-300:]}")
    changed = bool(seed % 2)
    if changed:
        document = read_document(folder / "document.json")
        place = _change_a_number(document, Random(seed))
        (folder / "document.json").write_text(json.dumps(document), encoding="utf-8")
    if how == "gate()":
        code, output = python(
            folder, "import modeldyno\nfound = modeldyno.verify('document.json')\n"
            "print(found)\nraise SystemExit(0 if found.holds and found.digest != 'wrong' else 1)",
        )  # fmt: skip
    else:
        code, output = modeldyno(folder, "verify", "document.json")
    case = f"{kind}, {place} changed" if changed else kind
    line = f"{case}: exit code {code}: {last_line(output, 'holds', 'wrong')}"
    return Try(Outcome.TRUE if code == changed else Outcome.FALSE, line)


def _written(folder: Path, kind: str) -> tuple[int, str]:
    """Write a document of a kind into ``document.json``; return the exit code and what was printed."""
    words = DOCUMENTS[kind].replace("MODEL", write_digits(folder))
    with ExitStack() as stack:
        if "URL" in words:
            server = stack.enter_context(serve_in_subprocess("--service", "constant:0.002"))
            words = words.replace("URL", f"http://127.0.0.1:{server.port}#echo")
        return modeldyno(folder, *words.split(), "--json", "document.json", "-q")


def _change_a_number(document: Any, source: Random) -> str:
    """Multiply a number of the document by 0.9; return where it is."""
    places = [(parent, key, path) for parent, key, path in _numbers(document, "") if parent[key]]
    parent, key, path = source.choice(places)
    parent[key] *= 0.9
    return path


def _numbers(node: Any, path: str) -> list[tuple[Any, Any, str]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    numbers: list[tuple[Any, Any, str]] = []
    for key, value in children:
        if isinstance(value, float):
            numbers.append((node, key, f"{path}.{key}"))
        else:
            numbers += _numbers(value, f"{path}.{key}")
    return numbers


# --- conversions -------------------------------------------------------------------------------------


def _conversion(seed: int, folder: Path) -> Try:
    """Convert a model by a recipe that is right: it must be said to agree."""
    form = ("openvino", "onnx")[seed % 2]
    model = write_digits(folder) if form == "openvino" else write_forest(folder)
    code, output = modeldyno(folder, "convert", model, "--to", form, "--trust", "-q")
    return Try(Outcome.TRUE if code == 0 else Outcome.FALSE, f"{form}: {last_line(output)}")


def _other_weights(seed: int, folder: Path) -> Try:
    """Compare the digit classifier with itself after the weights of a layer have grown by a hundredth."""
    model = onnx.load(folder / write_digits(folder))
    weight = Random(seed).choice(
        [each for each in model.graph.initializer if each.data_type == TensorProto.FLOAT]
    )
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.01), weight.name))
    onnx.save(model, folder / "other.onnx")
    words = "compare model.onnx other.onnx --max-rounds 3 --run-time 0.3s --json compare.json"
    code, output = modeldyno(folder, *words.split())
    if code:
        return Try(Outcome.FALSE, f"exit code {code}: {output[-300:]}")
    (contrast,) = read_document(folder / "compare.json")["contrasts"]
    differ = [each for each in contrast["outputs"] if each["largest"] > 0]
    line = f"{weight.name}: {last_line(output, 'the output')}"
    return Try(Outcome.TRUE if differ else Outcome.FALSE, line)


FOREST = """
import pickle
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

images, digits = load_digits(return_X_y=True)
with open("model.pkl", "wb") as file:
    pickle.dump(LogisticRegression(max_iter=200).fit(images / 16, digits), file)
"""


def write_forest(folder: Path) -> str:
    """Train a classifier of scikit-learn; return its reference."""
    python(folder, FOREST)
    return "sklearn:model.pkl"


# --- borrowed speed ----------------------------------------------------------------------------------

CHEATS = """
import numpy as np

WEIGHTS = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
TABLE = {}


def honest(x):
    for _ in range(12):
        x = np.tanh(x @ WEIGHTS)
    return x


def table(x):
    key = x.tobytes()
    if key not in TABLE:
        TABLE[key] = honest(x)
    return TABLE[key]


class Later:
    def __init__(self, x):
        self.x, self.shape, self.dtype, self.ndim = x, x.shape, x.dtype, x.ndim

    def __array__(self, dtype=None, copy=None):
        return honest(self.x)


def lazy(x):
    return Later(x)
"""
INPUT = ("--input", "x=32x256:float32")


def _cheat(seed: int, folder: Path, how: str) -> Try:
    """Hold a function that answers from a table, or when its answer is read, against the honest one."""
    cheat = ("table", "lazy")[seed % 2]
    (folder / "model.py").write_text(CHEATS, encoding="utf-8")
    honest, model = "call:model.py:honest", f"call:model.py:{cheat}"
    if how == "compare":
        code, output = modeldyno(
            folder,
            "compare",
            honest,
            model,
            *INPUT,
            "--no-why",
            "--json",
            "compare.json",
            "--max-rounds",
            "5",
        )
        line = last_line(output, "better", "worse", "undecided", "than")
        outcomes = {change["outcome"] for change in _changes(read_document(folder / "compare.json"))}
        return Try(Outcome.FALSE if code == 0 and "better" in outcomes else Outcome.TRUE, f"{cheat}: {line}")
    if how == "json":
        modeldyno(
            folder,
            "profile",
            honest,
            *INPUT,
            "--processes",
            "5",
            "--max-time",
            "2",
            "--json",
            "baseline.json",
        )
        code, output = modeldyno(
            folder, "profile", model, *INPUT, "--baseline", "baseline.json", "--name", "honest", "--force"
        )
        line = f"{cheat}: exit code {code}: {last_line(output, 'passes', 'fails', 'undecided', 'modeldyno:')}"
        return Try(Outcome.TRUE if code in {1, 4, 5} else Outcome.FALSE, line)
    code, output = modeldyno(
        folder,
        "profile",
        model,
        *INPUT,
        "--max-time",
        "3",
        "--require",
        "latency.p50 <= 10s",
        "--json",
        "r.json",
    )
    doubts = (
        {doubt["code"] for doubt in read_document(folder / "r.json")["doubts"]} if code != 4 else {"failed"}
    )
    named = doubts & {"answers-repeat", "lazy-output", "beyond-peak", "failed"}
    return Try(
        Outcome.TRUE if named else Outcome.FALSE, f"{cheat}: {', '.join(sorted(doubts)) or 'no doubt'}"
    )


def _changes(document: Any) -> list[Any]:
    return [change for contrast in document["contrasts"] for change in contrast["changes"]]


# --- the best configuration --------------------------------------------------------------------------

LARGEST = 32
BATCHES = """
from modeldyno.testing.known_latency import KnownLatency
from time import sleep

def work(x):
    sleep(0.002 + 0.0001 * len(x))
"""


def _best(seed: int, folder: Path) -> Try:
    """Search the batch size of a function whose largest is the best: a call costs 2 ms, and a row 0.1."""
    (folder / "model.py").write_text(BATCHES, encoding="utf-8")
    words = ["call:model.py:work", "--input", "x=batchx8", "--space", "batch_size=1,2,4,8,16,32"]
    if seed % 2:
        words += ["--max-trials", "3"]
    code, output = modeldyno(folder, "sweep", *words, "--json", "sweep.json")
    line = f"exit code {code}: {last_line(output, 'certain to be', 'points that')}"
    if code not in {0, 5}:
        return Try(Outcome.FALSE, line)
    best = read_document(folder / "sweep.json")["ranking"]["rows"][0]["point"]
    if best.get("batch_size", 1) == LARGEST:  # the next largest reaches 72 % of its rate
        return Try(Outcome.TRUE, line)
    return Try(Outcome.OPEN if "not-explored" in output else Outcome.FALSE, line)


CELLS = (
    *(
        Cell(
            claim="documents",
            door=door,
            command=command,
            attempt=partial(_document, how=door),
            tries=100,
            seconds=8.0,
            quick="tests/cli/test_verify.py",
        )
        for door, command in (
            ("command", "modeldyno verify document.json"),
            ("gate()", 'modeldyno.verify("document.json")'),
        )
    ),
    Cell(
        claim="conversions",
        door="command",
        command="modeldyno convert MODEL --to openvino",
        attempt=_conversion,
        tries=20,
        seconds=10.0,
        quick="tests/conversion/test_conversion.py",
    ),
    Cell(
        claim="conversions",
        door="compare",
        case="changed",
        command="modeldyno compare MODEL OTHER",
        attempt=_other_weights,
        tries=20,
        seconds=25.0,
        quick="tests/conversion/agreement/test_agreement.py",
    ),
    *(
        Cell(
            claim="borrowed speed",
            door=door,
            command=command,
            attempt=partial(_cheat, how=door),
            tries=20,
            seconds=seconds,
            quick="tests/test_cheats.py::test_each_kind_of_cheat_is_named",
        )
        for door, command, seconds in (
            ("command", "modeldyno profile CHEAT --require 'latency.p50 <= 10s'", 6.0),
            ("json", "modeldyno profile CHEAT --baseline baseline.json", 150.0),
            ("compare", "modeldyno compare HONEST CHEAT", 60.0),
        )
    ),
    Cell(
        claim="best configuration",
        door="sweep",
        command="modeldyno sweep MODEL --space batch_size=1,2,4,8,16,32 [--max-trials 3]",
        attempt=_best,
        tries=20,
        seconds=27.0,
        alone=True,
        quick="tests/sweeps/study/test_verification.py",
    ),
)
