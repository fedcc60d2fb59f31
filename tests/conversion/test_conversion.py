"""Converting: each form in a process of its own, judged against the source, with typed failures."""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.openvino_module import import_openvino

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.conversion.agreement.conversion import Conversion
from modeldyno.conversion.agreement.conversion import ConversionFailureKind as Kind
from modeldyno.conversion.agreement.rule import Tolerance
from modeldyno.conversion.request import ConversionRequest
from modeldyno.conversion.run import convert
from modeldyno.stores.catalog import list_documents, remove_documents
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from collections.abc import Callable


torch = pytest.importorskip("torch")

SOURCE = '''
import atexit
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

LOADS = Path(__file__).with_name("loads")


def linear():
    return nn.Linear(6, 3), torch.randn(2, 6)


class Nan(nn.Module):
    def forward(self, x):
        return torch.log(x - 1e9)


def nan():
    return Nan(), torch.randn(2, 6)


class Endless(nn.Module):
    def forward(self, x):
        return x * 0 - torch.inf


def endless():
    return Endless(), torch.randn(2, 6)


class Masked(nn.Module):
    def forward(self, x):
        return x, x * 0 - torch.inf


def masked():
    return Masked(), torch.randn(2, 6)


class Frozen(nn.Module):
    def forward(self, x):
        return x * float(x.shape[0])


def frozen():
    return Frozen(), torch.randn(2, 6)


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def nested():
    module = nn.Linear(6, 6)
    for _ in range(200):
        module = Around(module)
    return module, torch.randn(2, 6)


class Branch(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x * 3


class Noisy(nn.Module):
    def forward(self, x):
        return x * (1 + 1e-3 * torch.jit.is_tracing())


def noisy():
    return Noisy(), torch.randn(2, 6)


def branch():
    return Branch(), torch.ones(2, 6)


def loaded():
    """Count how often the model was loaded: the source first, then each recipe."""
    number = int(LOADS.read_text()) if LOADS.exists() else 0
    LOADS.write_text(str(number + 1))
    return number


def counted():
    """Note the process of each load, and write what is removed at its exit, as TensorFlow does."""
    with LOADS.open("a") as file:
        file.write(f"{os.getpid()} ")
    left = LOADS.with_name(f"left.{os.getpid()}")
    left.touch()
    atexit.register(left.unlink, missing_ok=True)
    return linear()


def crashing():
    if loaded() == 1:
        os.abort()
    return linear()


def slow():
    if loaded():
        time.sleep(60)
    return linear()


def greedy():
    if loaded():
        raise MemoryError
    return linear()
'''


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], str]:
    """Return the reference of a factory."""
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    return lambda name: f"torch:{path}:{name}"


def request_of(model: str, tmp_path: Path, *to: str, **options: object) -> ConversionRequest:
    return ConversionRequest(model=model, to=to, output=tmp_path / "made", **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Converted:
    """A source that was converted to two forms, each in a process."""

    folder: Path
    conversion: Conversion
    stages: list[tuple[str, str]]
    processes: list[str]
    """The process of each load of the source."""


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Convert a source to TorchScript and to an exported program."""
    folder = tmp_path_factory.mktemp("converted")
    (folder / "source.py").write_text(SOURCE)
    stages: list[tuple[str, str]] = []
    conversion = convert(
        request_of(f"torch:{folder}/source.py:counted", folder, "torchscript", "exported"),
        watch=lambda recipe, stage: stages.append((recipe, stage)),
    )
    return Converted(folder, conversion, stages, (folder / "loads").read_text().split())


def test_each_form_is_converted_and_judged(converted: Converted) -> None:
    """The document has the file, its digest and size, the agreement, and the script that makes it again."""
    conversion = converted.conversion
    assert [made.verdict for made in conversion.converted] == ["agrees", "agrees"]
    assert conversion.usable
    assert conversion.model is not None
    assert conversion.model.name == "source.counted"
    assert ("torchscript", "converting") in converted.stages
    made = conversion["torchscript"]
    assert made.path == str(converted.folder / "made" / "torchscript" / "model.pt")
    loader = plugins.loader("torchscript")
    ref = modeldyno.profiling.resolve_model.resolve_reference(made.path)
    assert loader.load(ref, seed=0, trust=True).identity.digest == made.digest
    assert made.size == Path(made.path).stat().st_size
    assert made.converter.startswith("torch.jit ")
    assert made.agreement is not None
    assert made.agreement.samples == 45
    assert "float64" in made.agreement.floors


def test_the_script_beside_the_file_makes_it_again(
    converted: Converted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anyone can run it; it names the model relative to itself."""
    script = Path(converted.conversion["torchscript"].reproduce)

    assert str(converted.folder) not in script.read_text()
    monkeypatch.chdir("/")
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(script), run_name="__main__")
    assert left.value.code == 0
    assert "torchscript agrees" in capsys.readouterr().out
    assert (script.parent / "again" / "torchscript" / "model.pt").is_file()


def test_the_first_form_is_made_in_the_process_of_the_source(converted: Converted) -> None:
    """And each other in one of its own."""
    first, second, third = converted.processes

    assert first == second != third


def test_what_a_process_removes_at_its_exit_is_gone(converted: Converted) -> None:
    """Frameworks write files of their own, and a process that has answered has time to remove them."""
    assert not [pid for pid in converted.processes if (converted.folder / f"left.{pid}").exists()]


def test_a_source_that_was_run_is_not_run_again(source: Callable[[str], str], tmp_path: Path) -> None:
    """For another form, if the caller keeps what it returned."""
    request = request_of(source("counted"), tmp_path, "torchscript")
    kept = tmp_path / "kept" / "counted"
    first, second = (convert(request, in_process=True, kept=kept) for _ in range(2))

    assert len((tmp_path / "loads").read_text().split()) == 3
    assert first["torchscript"].agreement == second["torchscript"].agreement


def test_a_file_that_differs_is_kept_under_another_name(source: Callable[[str], str], tmp_path: Path) -> None:
    """So that nobody loads it by mistake."""
    made = convert(request_of(source("frozen"), tmp_path, "torchscript"), in_process=True)["torchscript"]

    assert made.verdict == "differs"
    assert made.failure is not None
    assert made.failure.kind is Kind.OUTPUT_DIFFERS
    assert made.path.endswith("torchscript/model.pt.unchecked")
    assert Path(made.path).is_file()
    assert not Path(made.path.removesuffix(".unchecked")).exists()


def test_a_wider_tolerance_is_recorded_with_who_asked_for_it(
    source: Callable[[str], str], tmp_path: Path
) -> None:
    """In the document, beside the verdict, and in the script."""
    request = request_of(source("noisy"), tmp_path, "torchscript", tolerance=1e-2, tolerated_by="ada")
    conversion = convert(request, in_process=True)
    made = conversion["torchscript"]

    assert made.verdict == "agrees"
    assert conversion.tolerance == Tolerance(relative=1e-2, by="ada")
    assert made.agreement is not None
    assert "within 0.01 as ada asked" in made.agreement.sentence
    assert "tolerance=0.01" in Path(made.reproduce).read_text()


def test_a_branch_that_tracing_fixed_is_found(source: Callable[[str], str], tmp_path: Path) -> None:
    """The exporter that refuses it says why."""
    conversion = convert(request_of(source("branch"), tmp_path, "torchscript", "exported"), in_process=True)

    assert conversion["torchscript"].verdict == "differs"
    failure = conversion["exported"].failure
    assert failure is not None
    assert failure.kind is Kind.DYNAMIC_SHAPE
    assert failure.log


def test_a_batch_that_was_frozen_is_a_failure_of_sizes(source: Callable[[str], str], tmp_path: Path) -> None:
    """The exported program refuses other sizes than that of its example."""
    failure = convert(request_of(source("frozen"), tmp_path, "exported"), in_process=True)["exported"].failure

    assert failure is not None
    assert failure.kind is Kind.DYNAMIC_SHAPE
    assert "batch=32" in failure.message


@pytest.mark.parametrize("others", [(), pytest.param(("exported",), marks=pytest.mark.slow)])
def test_a_crash_does_not_stop_the_others(
    source: Callable[[str], str], tmp_path: Path, others: tuple[str, ...]
) -> None:
    """It is a failure with the end of the log."""
    conversion = convert(request_of(source("crashing"), tmp_path, "torchscript", *others))
    failure = conversion["torchscript"].failure

    assert failure is not None
    assert (failure.kind, failure.message) == (Kind.CRASHED, "it crashed (SIGABRT)")
    assert "source.py" in failure.log
    assert [conversion[other].verdict for other in others] == ["agrees"] * len(others)


def test_a_recipe_that_takes_too_long_is_ended(source: Callable[[str], str], tmp_path: Path) -> None:
    """The failure says what it was doing."""
    slow = request_of(source("slow"), tmp_path, "torchscript", max_time=4)
    failure = convert(slow)["torchscript"].failure

    assert failure is not None
    assert (failure.kind, failure.message) == (
        Kind.TIMED_OUT,
        "it was still loading the source after 4 s",
    )


def test_memory_that_runs_out_is_its_own_failure(source: Callable[[str], str], tmp_path: Path) -> None:
    """Whatever ran out of it."""
    conversion = convert(request_of(source("greedy"), tmp_path, "torchscript"), in_process=True)
    failure = conversion["torchscript"].failure

    assert failure is not None
    assert failure.kind is Kind.OUT_OF_MEMORY


def test_nan_is_a_failure_of_the_source(source: Callable[[str], str], tmp_path: Path) -> None:
    """Nothing is converted."""
    conversion = convert(request_of(source("nan"), tmp_path, "torchscript", "exported"), in_process=True)

    assert [made.verdict for made in conversion.converted] == ["source-invalid", "source-invalid"]
    assert conversion.name == "source.nan"
    assert not (tmp_path / "made").exists()


def test_a_source_that_fails_keeps_its_name(source: Callable[[str], str], tmp_path: Path) -> None:
    """As one that is converted has."""
    request = request_of(source("nan"), tmp_path, "torchscript", name="net")

    assert convert(request, in_process=True).name == "net"


def test_a_source_that_cannot_be_loaded_is_named_as_typed(tmp_path: Path) -> None:
    """Not by the reference that it was understood as."""
    path = tmp_path / "net.py"
    path.write_text("def make():\n    raise ValueError('no weights')\n")
    conversion = convert(request_of(f"{path}:make", tmp_path, "torchscript"), in_process=True)

    assert conversion.name == f"{path}:make"
    assert conversion["torchscript"].verdict == "source-invalid"


@pytest.mark.slow
def test_modules_nested_deeply_are_converted(source: Callable[[str], str], tmp_path: Path) -> None:
    """Exporters need more frames of Python for each level than a call of the model."""
    limit = sys.getrecursionlimit()
    conversion = convert(request_of(source("nested"), tmp_path, "torchscript"), in_process=True)

    assert conversion["torchscript"].verdict == "agrees"
    assert sys.getrecursionlimit() == limit


def test_equal_infinities_are_no_agreement(source: Callable[[str], str], tmp_path: Path) -> None:
    """A source that returns nothing else is invalid; beside numbers, such an output is a doubt."""
    endless, masked = (
        convert(request_of(source(name), tmp_path, "torchscript"), in_process=True)["torchscript"]
        for name in ("endless", "masked")
    )

    assert endless.verdict == "source-invalid"
    assert endless.failure is not None
    assert endless.failure.message.endswith("values of its outputs are infinite")
    assert masked.verdict == "agrees"
    assert masked.agreement is not None
    (note,) = masked.agreement.notes
    assert "has no finite number in any call, so none was compared" in note


def test_a_form_that_the_source_cannot_become_says_of_what_it_can(
    source: Callable[[str], str], tmp_path: Path
) -> None:
    """Nothing is loaded for it."""
    conversion = convert(request_of(source("linear"), tmp_path, "tflite"), in_process=True)

    assert [made.verdict for made in conversion.converted] == ["unsupported-source"]
    failures = [made.failure.message for made in conversion.converted if made.failure is not None]
    assert failures == ["nothing converts a model of torch to tflite, only one of keras"]
    advice = [made.failure.advice for made in conversion.converted if made.failure is not None]
    assert all(text.startswith("such a model becomes: ") and "torchscript" in text for text in advice)


def test_a_form_that_the_source_has_is_converted_only_to_lower_precision() -> None:
    """ONNX is what a conversion is to unless something is said, and an ONNX file is of that form already."""
    request = ConversionRequest(model="m.onnx", to=("onnx",), int8=True)

    assert request.recipes("onnx") == ("onnx-int8",)
    assert request.recipes("torch") == ("onnx", "onnx-int8")
    assert replace(request, int8=False).recipes("onnx") == ("onnx",)


def test_what_is_not_installed_is_a_failure_with_the_command(
    source: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on."""
    missing = plugins.missing
    monkeypatch.setattr(
        plugins, "missing", lambda modules: tuple(m for m in modules if m == "onnxscript") or missing(modules)
    )
    failure = convert(request_of(source("linear"), tmp_path, "onnx"), in_process=True)["onnx"].failure

    assert failure is not None
    assert failure.kind is Kind.MISSING_EXTRA
    assert failure.advice == "run pip install onnxscript"


NOT_HERE = {"openvino", "tensorrt", "tensorrt_rtx", "onnx2torch", "hummingbird"}
"""Packages that a machine without them lacks."""


def test_all_is_what_the_source_can_become_here(
    source: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without lossy forms, unless they are asked for, and without forms whose packages are missing."""
    everything = ConversionRequest(model=source("linear"), to=("all",))
    monkeypatch.setattr(plugins, "missing", lambda modules: tuple(NOT_HERE & {*modules}))

    assert everything.recipes("torch") == ("exported", "onnx", "torchscript")
    assert ConversionRequest(model="m", to=("all",), int8=True).recipes("onnx") == ("onnx-int8",)
    assert ConversionRequest(model="m", to=("onnx",), int8=True).recipes("torch") == ("onnx", "onnx-int8")
    both = ConversionRequest(model="m", to=("onnx",), int8=True, fp16=True)
    assert both.recipes("onnx") == ("onnx-int8", "onnx-fp16")
    assert ConversionRequest(model="m", to=("tflite",), int8=True).recipes("keras") == (
        "tflite",
        "tflite-int8",
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"to": ("onx",)}, UnknownName, "did you mean 'onnx'"),
        ({"to": ()}, RequestError, "name a form"),
        ({"data": "absent.npz"}, RequestError, "`data`"),
        ({"max_time": 0}, RequestError, "time limit"),
        ({"tolerance": 1.0}, RequestError, "such as 1e-3"),
        ({"model": "torch:absent.py:make"}, RequestError, "no file"),
        ({"inputs": ("other=2x6",)}, RequestError, "other"),
    ],
)
def test_a_wrong_request_is_told_before_anything_is_converted(
    options: dict[str, object],
    error: type[Exception],
    message: str,
    source: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """In one sentence."""
    request = ConversionRequest(**{"model": source("linear"), "output": tmp_path / "made", **options})  # type: ignore[arg-type]

    with pytest.raises(error, match=message):
        convert(request, in_process=True)
    assert not (tmp_path / "made").exists()


def test_a_loader_whose_package_is_missing_raises(
    source: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no source to convert."""
    monkeypatch.setattr(plugins, "missing", lambda modules: tuple(m for m in modules if m == "torch"))

    with pytest.raises(MissingExtra, match="torch"):
        convert(ConversionRequest(model=source("linear")))


def test_a_live_module_is_converted_in_this_process(tmp_path: Path) -> None:
    """It is as it was afterwards, and there is no script, because nobody else has it."""
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.5))
    conversion = modeldyno.convert(
        module, torch.randn(2, 6), to="torchscript", output=tmp_path, name="net", store=False
    )

    assert conversion["torchscript"].verdict == "agrees"
    assert conversion["torchscript"].reproduce == ""
    assert module.training
    assert conversion.model is not None
    assert conversion.model.name == "net"


def test_real_samples_are_compared(tmp_path: Path) -> None:
    """All of a file, up to 256, and the document names it."""
    import_openvino()
    root = Path(__file__).parents[2] / "examples" / "digits"
    conversion = modeldyno.convert(
        root / "digits.onnx", to="openvino", output=tmp_path, data=root / "test.npz", inline=True
    )
    agreement = conversion["openvino"].agreement

    assert agreement is not None
    assert conversion["openvino"].verdict == "agrees"
    assert agreement.samples == 256
    assert conversion.inputs[0].source == str(root / "test.npz")
    assert agreement.outputs[0].top is not None
    assert agreement.outputs[0].top.low > 0.98


def test_a_conversion_is_a_document_of_the_store(tmp_path: Path) -> None:
    """It is found, listed and removed like a comparison."""
    conversion = modeldyno.convert(
        torch.nn.Linear(6, 3), torch.randn(2, 6), to="torchscript", output=tmp_path, name="kept"
    )

    assert find_any(conversion.id) == conversion
    listed = next(entry for entry in list_documents().conclusions if entry.id == conversion.id)
    assert (listed.kind, listed.name) == ("conversion", "kept")
    assert listed.headline == "1 of 1 converted form agrees with it"
    assert [removed.id for removed in remove_documents([conversion.id])] == [conversion.id]
    assert all(entry.id != conversion.id for entry in list_documents().conclusions)
