"""Run the tests of deeplite-profiler by the imports of "Come from deeplite-profiler".

``python bench/deeplite_tests.py`` fetches the sources of deeplite-profiler (its packages have no tests),
lends their tests modules called ``deeplite`` that hold nothing but names of `modeldyno.compat.deeplite`,
and compares what comes with EXPECTED. Those of TensorFlow need the extra `tf`; their project skips them
from Python 3.8 on, here they run. The exit code is 1 if a test ends otherwise than expected.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

URL = "https://github.com/Deeplite/deeplite-profiler/archive/615ba0d.tar.gz"
FOLDERS = ("profiler_tests", "torch_tests", "tf_tests", "tflite_tests")

MODULES = {
    "deeplite": "",
    "deeplite.profiler": "Device ComputeEvalMetric ProfilerFunction ExternalProfilerFunction Profiler",
    "deeplite.profiler.profiler": "Profiler ProfilerFunction ExternalProfilerFunction ComputeEvalMetric",
    "deeplite.profiler.utils": "Device",
    "deeplite.profiler.formatter": "getLogger setLogger",
    "deeplite.profiler.metrics": "*",
    "deeplite.profiler.evaluate": "EvaluationFunction",
    "deeplite.profiler.data_loader": "DataLoader ModelInputPattern TensorSampler ForwardPass",
    "deeplite.torch_profiler": "",
    "deeplite.torch_profiler.torch_profiler": "*",
    "deeplite.torch_profiler.torch_inference": "get_accuracy get_missclass get_topk EvalLossFunction",
    "deeplite.torch_profiler.torch_data_loader": "TorchDataLoader TorchForwardPass TorchTensorSampler",
    "deeplite.tf_profiler": "",
    "deeplite.tf_profiler.tf_profiler": "*",
    "deeplite.tf_profiler.tf_inference": "get_accuracy get_missclass get_topk",
    "deeplite.tf_profiler.tf_data_loader": "TFDataLoader TFForwardPass TFTensorSampler",
    "deeplite.tflite_profiler": "",
    "deeplite.tflite_profiler.tflite_profiler": "*",
    "deeplite.tflite_profiler.tflite_inference": "get_accuracy",
    "deeplite.tflite_profiler.flops": "",
    "deeplite.tflite_profiler.flops.compute_flops": "ComputeFlops",
}
"""The modules that the tests import from, with the names that they hold."""

RENAMED = {
    "Profiler": "MetricProfiler",
    "TorchDataLoader": "DataLoader",
    "TFDataLoader": "DataLoader",
    "TorchForwardPass": "ForwardPass",
    "TFForwardPass": "ForwardPass",
    "TorchTensorSampler": "TensorSampler",
    "TFTensorSampler": "TensorSampler",
}
"""Names that are others in `modeldyno.compat.deeplite`, as the page says."""

CONFTEST = """
import sys
from types import ModuleType
from modeldyno.compat import deeplite as api

for name, listed in MODULES.items():
    module = sys.modules[name] = ModuleType(name)
    module.__path__ = []
    module.__all__ = api.__all__ if listed == "*" else listed.split()
    vars(module).update({key: getattr(api, RENAMED.get(key, key)) for key in module.__all__})
    parent, _, tail = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], tail, module)
"""

_CLOCK = "replaces deeplite.profiler.utils.AverageAggregator, which takes the times there"
_SAMPLER = "TFTensorSampler.to_device, which gives tensors of TensorFlow; here of torch"
_COSTS = ("flops", "execution_time", "size", "memory_footprint")
_DATA = "profiler_tests/unit/test_data_loader.py::test_"
EXPECTED: dict[str, str] = {
    **{f"torch_tests/unit/test_torch_profiler.py::test_compute_{key}": _CLOCK for key in _COSTS},
    **{f"tf_tests/unit/test_tf_profiler.py::test_compute_{key}": _CLOCK for key in _COSTS},
    f"{_DATA}default_loader": "sets DataLoader._forward_pass",
    f"{_DATA}simple_pass": "overrides _tensor_sampler_cls, _standardize_tensor and _get_info",
    f"{_DATA}user_defined_pass": "reads ForwardPass._tensor_sampler",
    "profiler_tests/unit/test_profiler.py::test_register_profiler_function": (
        "reads Profiler._profiling_functions_register"
    ),
    "torch_tests/functional/test_torch_profiler.py::test_compute_network_status": _CLOCK,
    "torch_tests/functional/test_torch_profiler.py::test_custom_conv": "a size in MiB, here in bytes",
    "tf_tests/unit/test_tf_data_loader.py::test_sampler": _SAMPLER,
    "tf_tests/functional/test_tf_profiler.py::test_compute_network_status": "half of all operations as MACs",
    "tf_tests/functional/test_tf_profiler.py::test_compare_profiles": (
        "equal layer tables of two models of Keras, which gives their layers other names"
    ),
    "tflite_tests/functional/test_tflite_profiler.py": "makes its file with TensorFlow 1",
}
"""Tests that fail, by name, with what each of them reaches for."""


def main() -> int:
    """Run them, and print what came."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=Path, help="a checkout of theirs; by default it is fetched")
    given = parser.parse_args().sources
    with TemporaryDirectory() as name:
        folder = Path(name)
        outcomes = run_tests(prepare(given or fetch(folder), folder / "run"))
    wrong = [test for test, outcome in outcomes.items() if (outcome == "failed") != (test in EXPECTED)]
    counts = {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
    for test, outcome in outcomes.items():
        if outcome == "failed":
            print(f"  {test}: {EXPECTED.get(test, 'NOT EXPECTED')}")
    print(*(f"{test} {outcomes[test]}, otherwise than expected" for test in wrong), sep="\n")
    return 1 if wrong else 0


def fetch(folder: Path) -> Path:
    """Return the unpacked sources."""
    archive = folder / "sources.tar.gz"
    with urlopen(URL) as answer:
        archive.write_bytes(answer.read())
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def prepare(sources: Path, folder: Path) -> Path:
    """Copy the tests, with modules called deeplite in front of them; return where they lie."""
    for path in (sources / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8").replace("sys.version_info < (3,8)", "True")
        target = folder / "tests" / path.relative_to(sources / "tests")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    tables = f"MODULES = {MODULES!r}\nRENAMED = {RENAMED!r}\n"
    (folder / "conftest.py").write_text(tables + CONFTEST, encoding="utf-8")
    return folder


def run_tests(folder: Path) -> dict[str, str]:
    """Return the outcome of each test by its name, ``torch_tests/unit/test_x.py::test_flops``."""
    tensorflow = find_spec("tensorflow") is not None
    chosen = [f"tests/{name}" for name in FOLDERS if tensorflow or not name.startswith("tf")]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", *chosen]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    lines = re.findall(r"^(PASSED|FAILED|SKIPPED|ERROR) (?:\[\d+\] )?tests/(\S+)", printed, re.MULTILINE)
    if not lines:
        sys.exit(printed)
    kinds = {"PASSED": "passed", "FAILED": "failed", "ERROR": "failed", "SKIPPED": "skipped"}
    return {re.sub(r"::Test\w+", "", name): kinds[kind] for kind, name in lines}


if __name__ == "__main__":
    sys.exit(main())
