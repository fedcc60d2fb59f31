"""What a model is, and which files it has, is found out in a child process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support import tiny_onnx

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, TrustRequired
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.runtime import identify
from modeldyno.engine.runtime.identify import identify_model
from modeldyno.engine.runtime.supervised_child import ChildLimits
from modeldyno.profiling.resolve_model import resolve_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.engine.runtime.identify import IdentifiedModel


def identified(model: object, *, trust: bool = False) -> IdentifiedModel:
    """Identify what a user names."""
    return identify_model(resolve_reference(str(model)), trust=trust)


@pytest.fixture
def code(tmp_path: Path) -> Callable[[str], str]:
    """Give a function that names a callable of a module with a body."""

    def named(body: str) -> str:
        path = tmp_path / "net.py"
        path.write_text(f"import ctypes, os, signal, sys\n\n{body}\n\ndef double(x):\n    return 2 * x\n")
        return f"call:{path}:double"

    return named


class TestData:
    def test_an_onnx_model_is_its_file(self, tmp_path: Path) -> None:
        """With its inputs, the digest that its Results have, and the backend that runs it."""
        path = tiny_onnx.mlp(tmp_path)
        identification = identified(path)
        model = plugins.loader("onnx").load(resolve_reference(str(path)), seed=0, trust=False)

        assert identification.files == (str(path),)
        assert (identification.identity, identification.inputs) == (model.identity, model.inputs)
        assert (identification.backend, identification.identity.framework) == ("onnxruntime", "onnx")

    def test_the_files_of_external_data_belong_to_it(self, tmp_path: Path) -> None:
        """Those that the graph names, and no others that lie beside it."""
        onnx = pytest.importorskip("onnx")
        path = tiny_onnx.mlp(tmp_path, hidden=600)
        model = onnx.load(str(path))
        onnx.save_model(
            model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=100
        )
        (tmp_path / "notes.txt").touch()

        assert set(identified(path).files) == {str(path), str(tmp_path / "weights.bin")}

    def test_a_folder_is_all_its_files_but_hidden_ones(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a Hugging Face model is kept."""
        for name in ("config.json", "onnx/model.onnx", ".git/HEAD", "onnx/.lock"):
            (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "m" / name).touch()
        loader = plugins.loader("hf")
        files = identify._files(loader, ModelRef(scheme="hf", locator=str(tmp_path / "m")))
        monkeypatch.chdir(tmp_path)
        here = identify._files(loader, ModelRef(scheme="hf", locator="m"))

        assert [str(file.relative_to(tmp_path / "m")) for file in files] == ["config.json", "onnx/model.onnx"]
        assert [file.absolute() for file in here] == files

    def test_a_relative_path_gives_absolute_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The registry may be asked from another folder."""
        path = tiny_onnx.mlp(tmp_path)
        monkeypatch.chdir(tmp_path)
        assert identified(path.name).files == (str(path),)


class TestCode:
    def test_what_code_prints_is_not_the_answer(self, code: Callable[[str], str]) -> None:
        """Neither by Python, nor by the system, nor by a library."""
        body = "print('{}')\nos.write(1, b'{\"native\": 1}')\nctypes.CDLL(None).puts(b'{}')"
        assert identified(code(body)).backend == "python"

    def test_a_factory_has_no_files(self, tmp_path: Path) -> None:
        """Its code may import others, and stays where it is."""
        pytest.importorskip("torch")
        path = tmp_path / "net.py"
        path.write_text("import torch\n\ndef make():\n    return torch.nn.Linear(4, 2)\n")
        identification = identified(f"torch:{path}:make")

        assert identification.files == ()
        assert (identification.identity.framework, identification.backend) == ("torch", "torch")
        assert identification.identity.digest

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("raise ValueError('no weights')", "with ValueError: no weights"),
            ("os.kill(os.getpid(), signal.SIGSEGV)", "it crashed (SIGSEGV)"),
            ("ctypes.string_at(0)", "it crashed (SIGSEGV)"),
            ("os._exit(3)", "it ended the process with exit code 3"),
            ("os._exit(0)", "it ended the process with exit code 0"),
            ("raise ValueError('no\\nsuch weights')", "with ValueError: no"),
            ("sys.exit(7)", "with SystemExit: 7"),
            ("os.kill(os.getpid(), signal.SIGKILL)", "(SIGKILL)"),
            ("print('out of luck', file=sys.stderr, flush=True)\nos._exit(1)", "it said: out of luck"),
            ("os.write(1, b'nonsense')\nos.close(1)\nos._exit(1)", "it said: nonsense"),
            ("os.closerange(3, 100)\nos._exit(2)", "it ended the process with exit code 2"),
            ("os.execv('/bin/sleep', ['sleep', '60'])", "it closed the pipe for its measurements, or became"),
        ],
    )
    def test_a_crash_of_its_code_is_told_in_a_sentence(
        self, code: Callable[[str], str], body: str, message: str
    ) -> None:
        """By the exception, the signal or the exit code, and what it said last; we live on."""
        with pytest.raises(RequestError) as caught:
            identified(code(body))
        assert message in str(caught.value)
        assert "net.py" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1000

    def test_a_process_that_its_code_leaves_behind_is_not_waited_for(
        self, code: Callable[[str], str]
    ) -> None:
        """As a server for data may be."""
        begin = time.monotonic()
        body = "if os.fork() == 0:\n    import time\n    time.sleep(120)\n    os._exit(0)"
        identified(code(body))
        assert time.monotonic() - begin < 100


class TestRefused:
    def test_a_pickle_needs_trust(self, tmp_path: Path) -> None:
        """With it, it is loaded."""
        joblib = pytest.importorskip("joblib")
        linear = pytest.importorskip("sklearn.linear_model")
        path = tmp_path / "model.joblib"
        joblib.dump(linear.LinearRegression().fit(np.eye(3), [1.0, 2.0, 3.0]), path)
        with pytest.raises(TrustRequired):
            identified(path)
        assert identified(path, trust=True).files == (str(path),)

    def test_what_is_no_model_is_refused(self, tmp_path: Path) -> None:
        """In the loader's own sentence."""
        path = tmp_path / "model.onnx"
        path.write_bytes(b"\x08\x07\x12garbage")
        with pytest.raises(RequestError) as caught:
            identified(f"onnx:{path}")
        assert "\n" not in str(caught.value)

    def test_a_missing_package_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With how to install it."""
        hook = tmp_path / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(
            "import importlib.util as u\nreal = u.find_spec\n"
            "u.find_spec = lambda name, *a: None if name == 'onnx' else real(name, *a)\n"
        )
        monkeypatch.setenv("PYTHONPATH", f"{hook}:{os.environ.get('PYTHONPATH', '')}")
        with pytest.raises(MissingExtra, match="pip install"):
            identified(tiny_onnx.mlp(tmp_path))


class TestLimits:
    def test_what_takes_too_long_is_ended(self, code: Callable[[str], str], tmp_path: Path) -> None:
        """With what it has started; one sentence says so."""
        body = f"""import subprocess, time
child = subprocess.Popen(["sleep", "60"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(60)"""
        begin = time.monotonic()

        with pytest.raises(RequestError, match="it was still running after 4 s"):
            identify_model(resolve_reference(code(body)), trust=True, limits=ChildLimits(seconds=4.0))

        assert time.monotonic() - begin < 30
        status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/status")
        assert not status.exists() or "State:\tZ" in status.read_text()

    def test_what_takes_too_much_memory_is_ended(self, code: Callable[[str], str]) -> None:
        """Before it takes what others need."""
        body = "import time\nheld = [bytearray(b'x' * (1 << 24)) for _ in range(40)]\ntime.sleep(60)"

        with pytest.raises(RequestError, match=r"more than the limit of 400\.0 MiB"):
            identify_model(resolve_reference(code(body)), trust=True, limits=ChildLimits(memory=400 << 20))
